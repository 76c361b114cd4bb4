//! CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19), and telling of changes.

use ropeway_smb_proto::server::hub::{FileKey, WatchOutcome};
use ropeway_smb_proto::server::{Connection, ReplyFrame, Request};
use ropeway_smb_wire::change_notify::{
    Action, ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse, CompletionFilter,
    FileNotifyInformation, encode_changes,
};
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::header::HEADER_LEN;
use ropeway_smb_wire::{NtStatus, Reader, Text, Writer};

use super::context::{Context, Done, Outcome};
use super::name;
use crate::open::Open;
use crate::shared::Shared;

pub(super) fn watch(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(ChangeNotifyRequest::decode)?;
    let open = context.open(request.file_id)?;
    context
        .protocol
        .check_size(&context.request.header, request.output_buffer_length as usize)?;
    if !open.directory || request.completion_filter.is_empty() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if !open.access.contains(AccessMask::LIST_DIRECTORY) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let recursive = request.flags.contains(ChangeNotifyFlags::WATCH_TREE);
    // Without it the client hears of what clients of this server do.
    open.state.watching.get_or_init(|| {
        open.node
            .watch(recursive)
            .inspect_err(|error| tracing::debug!(%error, "changes by local programs are not told"))
            .ok()
    });
    let outcome = context.shared.hub().watch(
        open.hub_id(),
        request.completion_filter,
        recursive,
        request.output_buffer_length,
        context.waiter,
    );
    match outcome {
        WatchOutcome::Wait => Ok(Done::Wait),
        WatchOutcome::Refused(status) => Err(status),
        WatchOutcome::Ready { status, changes } => {
            let output = output(&changes);
            context.reply_with(status, |w| ChangeNotifyResponse { output: &output }.encode(w))
        }
    }
}

fn output(changes: &[FileNotifyInformation]) -> Vec<u8> {
    let mut output = Vec::new();
    encode_changes(changes, &mut Writer::new(&mut output));
    output
}

/// Answers a CHANGE_NOTIFY that waited.
pub(crate) fn answer(
    protocol: &mut Connection,
    request: &Request,
    message: &[u8],
    status: NtStatus,
    changes: &[FileNotifyInformation],
    frame: &mut ReplyFrame,
) {
    let header = protocol.reply(request, status);
    // What waits was decoded before.
    let asked =
        ChangeNotifyRequest::decode(&mut Reader::at(message, HEADER_LEN, "SMB2 CHANGE_NOTIFY Request"));
    if status.is_error() || asked.is_err() {
        frame.push_error(&header, request.signer);
        return;
    }
    let output = output(changes);
    frame.push(&header, request.signer, |w| {
        ChangeNotifyResponse { output: &output }.encode(w)
    });
}

/// The share that the hub counts an open under, and its path on the wire.
fn place(shared: &Shared, open: &Open) -> Option<(u32, Text)> {
    let info = shared
        .hub()
        .info(open.hub_id())
        .map(|info| (info.share_id, info.path.clone()));
    info.or_else(|| Some((shared.share_index(&open.share)?, name::to_wire(&open.path()))))
}

/// An entry came or went.
pub(super) fn entry(shared: &Shared, open: &Open, action: Action) {
    let Some((share, path)) = place(shared, open) else {
        return;
    };
    if let Some(stream) = &open.stream {
        let stream_path = Text::from(format!("{path}:{stream}:$DATA").as_str());
        let action = if action == Action::ADDED {
            Action::ADDED_STREAM
        } else {
            Action::REMOVED_STREAM
        };
        let mut hub = shared.hub();
        hub.changed(share, &stream_path, action, CompletionFilter::STREAM_NAME);
        return;
    }
    let filter = if open.directory {
        CompletionFilter::DIR_NAME
    } else {
        CompletionFilter::FILE_NAME
    };
    let has_leases = {
        let mut hub = shared.hub();
        hub.changed(share, &path, action, filter);
        hub.has_leases()
    };
    // Without leases nobody has to be told of the folder. Else it is opened to be known by; never with the hub locked.
    if let Some(parent) = has_leases.then(|| parent_key(open)).flatten() {
        let now = shared.now_ms();
        shared.hub().touch_folder(now, Some(open.hub_id()), &parent);
    }
}

/// The folder that an open file is in, if leases on it may be out.
fn parent_key(open: &Open) -> Option<FileKey> {
    let parent = open.path().parent()?;
    let how = ropeway_vfs::store::NodeOpen::default();
    let opened = open.share.store.open(&parent, &how).ok()?;
    Some(super::create::key_of(&opened.stat, None))
}

/// Content or length changed.
pub(super) fn written(shared: &Shared, open: &Open) {
    let filter = match open.stream {
        None => CompletionFilter::SIZE | CompletionFilter::LAST_WRITE,
        Some(_) => CompletionFilter::STREAM_SIZE | CompletionFilter::STREAM_WRITE,
    };
    changed(shared, open, filter);
}

/// Attributes, times, security or extended attributes changed.
pub(super) fn changed(shared: &Shared, open: &Open, filter: CompletionFilter) {
    let Some((share, path)) = place(shared, open) else {
        return;
    };
    let (action, path) = match &open.stream {
        None => (Action::MODIFIED, path),
        Some(stream) => (
            Action::MODIFIED_STREAM,
            Text::from(format!("{path}:{stream}:$DATA").as_str()),
        ),
    };
    shared.hub().changed(share, &path, action, filter);
}
