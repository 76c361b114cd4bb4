//! CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19), and the notifications of changes by clients.

use ropeway_smb_proto::server::hub::WatchOutcome;
use ropeway_smb_proto::server::rules::notify::Changed;
use ropeway_smb_proto::server::{Connection, ReplyFrame, Request};
use ropeway_smb_wire::change_notify::{
    ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse, CompletionFilter, FileNotifyInformation,
    encode_changes,
};
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::header::HEADER_LEN;
use ropeway_smb_wire::{NtStatus, Reader, Text, Writer};
use ropeway_vfs::Name;

use super::context::{Context, Execution, Outcome};
use super::{folder_leases, name};
use crate::state::SharedState;
use crate::state::open::Open;

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
    // If the watch fails, the client is notified only of changes by clients of this server.
    open.state.watching.get_or_init(|| {
        open.node
            .watch(recursive)
            .inspect_err(|error| tracing::debug!(%error, "cannot watch the folder: changes by local programs are not reported"))
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
        WatchOutcome::Wait => Ok(Execution::Pending),
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

/// Replies to a CHANGE_NOTIFY that waited.
pub(crate) fn answer(
    protocol: &mut Connection,
    request: &Request,
    message: &[u8],
    status: NtStatus,
    changes: &[FileNotifyInformation],
    frame: &mut ReplyFrame,
) {
    let header = protocol.reply(request, status);
    // The waiting request was decoded before.
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

/// Returns the share and the path on the wire under which the hub knows an open.
fn location(shared: &SharedState, open: &Open) -> Option<(u32, Text)> {
    let info = shared
        .hub()
        .info(open.hub_id())
        .map(|info| (info.share_id, info.path.clone()));
    info.or_else(|| Some((shared.share_index(&open.share)?, name::to_wire(&open.path()))))
}

/// Reports that an entry was created or removed.
pub(super) fn entry_changed(shared: &SharedState, open: &Open, added: bool) {
    let Some((share, path)) = location(shared, open) else {
        return;
    };
    let (action, filter) = kind(open).entry(added);
    if let Some(stream) = &open.stream {
        let path = stream_path(&path, stream);
        shared.hub().changed(share, &path, action, filter);
        return;
    }
    shared.hub().changed(share, &path, action, filter);
    folder_leases::break_above(shared, open);
}

/// Reports a change of content. The leases on the folder break at once, although Windows waits for the
/// close: a listing shows the size of a file that is being written for hours.
pub(super) fn content_changed(shared: &SharedState, open: &Open) {
    changed(shared, open, kind(open).written());
}

/// Reports a change of length, attributes, times, security or extended attributes.
pub(super) fn changed(shared: &SharedState, open: &Open, filter: CompletionFilter) {
    let Some((share, path)) = location(shared, open) else {
        return;
    };
    let path = match &open.stream {
        None => path,
        Some(stream) => stream_path(&path, stream),
    };
    shared.hub().changed(share, &path, kind(open).modified(), filter);
    // A listing shows sizes, times and attributes, but nothing of streams.
    if open.stream.is_none() {
        folder_leases::break_above(shared, open);
    }
}

fn kind(open: &Open) -> Changed {
    match (&open.stream, open.directory) {
        (Some(_), _) => Changed::Stream,
        (None, true) => Changed::Directory,
        (None, false) => Changed::File,
    }
}

/// Returns the path of a stream for CHANGE_NOTIFY.
fn stream_path(path: &Text, stream: &Name) -> Text {
    Text::from(format!("{path}:{stream}:$DATA").as_str())
}
