//! CLOSE ([MS-SMB2] 3.3.5.10), and deletions at the last close.

use std::sync::Arc;

use ropeway_smb_proto::server::hub::{BreakOutcome, BreakTrigger, Closed, Deletion, OpenId};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::change_notify::{Action, CompletionFilter};
use ropeway_smb_wire::close::{CloseFlags, CloseRequest, CloseResponse};
use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_vfs::store::{NodeOpen, Removal};
use ropeway_vfs::{ErrorKind, FileId, Name, RelPath};

use super::context::{Context, Execution, Outcome};
use super::{folder_leases, name};
use crate::audit::Record;
use crate::files::attributes;
use crate::ops::range_locks;
use crate::recycle_bin::Kept;
use crate::share::Share;
use crate::state::SharedState;
use crate::state::open::{Handle, Open};
use crate::state::workers::JobClass;

pub(super) fn close(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(CloseRequest::decode)?;
    let handle = context.handle(request.file_id)?;
    let id = match &handle {
        Handle::File(open) => open.id,
        Handle::Pipe(pipe) => pipe.id,
    };
    let hub_id = open_id(&request, context)?;
    if let Handle::File(open) = &handle
        && waits_for_handles(context, open)
    {
        return Ok(Execution::Pending);
    }
    let shared = Arc::clone(context.shared);
    // One that deletes at its end is opened for that.
    let changing = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA | AccessMask::DELETE;
    if handle.file().is_none_or(|open| !open.access.intersects(changing)) {
        context.class = JobClass::Reads;
    }
    context.reply_from_afar(
        move || close_now(&shared, &handle, id, hub_id, &request),
        CloseResponse::encode,
    )
}

/// Asks others for the handles that they cache of a file that this CLOSE deletes, as if it was marked
/// for deletion by SET_INFO. Returns whether to wait for them: they close the file then, so that it
/// is gone after the CLOSE (smb2.lease.unlink).
fn waits_for_handles(context: &Context<'_>, open: &Open) -> bool {
    if !open.options.contains(CreateOptions::DELETE_ON_CLOSE) {
        return false;
    }
    let (now, id) = (context.shared.uptime(), Some(open.hub_id()));
    let mut hub = context.shared.hub();
    // If too many requests wait, this one does not.
    !hub.delete_pending(&open.file)
        && hub.break_caching(now, id, &open.file, BreakTrigger::Delete, context.waiter) == BreakOutcome::Wait
}

/// Closes a handle. The handle is closed also where that fails.
///
/// # Errors
/// What was written is not at a far server, or a deletion failed.
fn close_now(
    shared: &Arc<SharedState>,
    handle: &Handle,
    id: u64,
    hub_id: OpenId,
    request: &CloseRequest,
) -> Result<CloseResponse, NtStatus> {
    let written = match handle {
        Handle::File(open) => write_out(open),
        Handle::Pipe(_) => Ok(()),
    };
    let mut response = CloseResponse::default();
    if let Handle::File(open) = handle
        && request.flags.contains(CloseFlags::POSTQUERY_ATTRIB)
        && let Ok(stat) = open.node.stat()
    {
        response = CloseResponse {
            flags: CloseFlags::POSTQUERY_ATTRIB,
            creation_time: attributes::file_time(stat.created),
            last_access_time: attributes::file_time(stat.accessed),
            last_write_time: attributes::file_time(stat.modified),
            change_time: attributes::file_time(stat.changed),
            allocation_size: attributes::allocation_size(&stat, open.share.store.features()),
            end_of_file: attributes::end_of_file(&stat),
            file_attributes: attributes::of(&stat, SharedState::is_hidden(open)),
        };
    }
    shared.take_handle(id);
    if let Handle::File(open) = handle {
        range_locks::release(shared, open);
    }
    let closed = shared.hub().close(shared.uptime(), hub_id);
    if let Some(closed) = closed {
        if let Handle::File(open) = handle {
            range_locks::release(shared, open);
        }
        // The handle is closed although the deletion failed, as in Samba.
        remove_deleted(shared, &closed, handle.file())?;
    }
    written.map(|()| response)
}

/// Waits until a far server has what was written through an open: after this, nobody is left to
/// hear that it was not.
fn write_out(open: &Open) -> Result<(), NtStatus> {
    let writable = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
    if !open.share.far || !open.access.intersects(writable) {
        return Ok(());
    }
    open.node
        .write_out()
        .map_err(|error| crate::files::status::of(&error))
}

fn open_id(request: &CloseRequest, context: &Context<'_>) -> Result<OpenId, NtStatus> {
    OpenId::from_file_id(context.compound.file(request.file_id)).ok_or(NtStatus::FILE_CLOSED)
}

/// Deletes what is to be deleted with this close. `open` is the closed open.
///
/// # Errors
/// The status of the failed deletion.
pub(crate) fn remove_deleted(
    shared: &Arc<SharedState>,
    closed: &Closed,
    open: Option<&Arc<Open>>,
) -> Result<(), NtStatus> {
    let Some(deletion) = &closed.delete else {
        return Ok(());
    };
    let (Some(share), Ok(target)) = (shared.share(deletion.share_id), name::parse(&deletion.path)) else {
        return Ok(());
    };
    // The hub has the path as it is on disk.
    let path = target.path;
    let stream = deletion.file.stream.as_ref().and_then(|folded| {
        let called = open.and_then(|open| open.stream.clone());
        called.or_else(|| Name::new(folded.to_string_lossy().as_bytes()))
    });
    let outcome = match &deletion.file.stream {
        None => match remove_name(&share, &path, deletion, open) {
            // A local program or a reload of the shares may have put another file there.
            Err(error) if error.kind == ErrorKind::Gone => {
                tracing::info!(share = share.name, %path, "the name of the file to delete belongs to another file, which stays");
                return Ok(());
            }
            outcome => outcome,
        },
        Some(_) => {
            let base = match open.and_then(|open| open.base.clone()) {
                Some(base) => Ok(base),
                None => share
                    .store
                    .open(&path, &NodeOpen::default())
                    .map(|opened| opened.node),
            };
            match (base, &stream) {
                (Ok(base), Some(name)) => base.remove_stream(name).map(|()| None),
                (Err(error), _) => Err(error),
                (_, None) => return Ok(()),
            }
        }
    };
    let status = match &outcome {
        Err(error) => {
            tracing::warn!(share = share.name, %path, %error, "cannot delete at close");
            crate::files::status::of(error)
        }
        Ok(kept) => {
            if let (None, Some(short)) = (&stream, open.and_then(|open| open.short_name.as_ref())) {
                let now = shared.uptime();
                shared.tunnel.removed(now, deletion.share_id, &path, short);
            }
            report_removal(shared, &share, deletion, &path);
            if let Some(kept) = kept {
                report_kept(shared, &share, deletion.share_id, kept);
            }
            NtStatus::SUCCESS
        }
    };
    let called = match &stream {
        Some(stream) => format!("{path}:{stream}"),
        None => path.to_string(),
    };
    // The client that wanted the deletion may be gone, so its address is unknown.
    shared.record(&Record {
        action: "delete",
        peer: None,
        user: Some(&deletion.user),
        share: Some(&share.name),
        path: Some(&called),
        target: None,
        status,
    });
    match status {
        NtStatus::SUCCESS => Ok(()),
        // It was deleted by someone else before.
        NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND => Ok(()),
        status => Err(status),
    }
}

/// Tells watches and folder leases of a removal.
fn report_removal(shared: &SharedState, share: &Share, deletion: &Deletion, path: &RelPath) {
    let (action, filter) = match (&deletion.file.stream, deletion.directory) {
        (Some(_), _) => (Action::REMOVED_STREAM, CompletionFilter::STREAM_NAME),
        (None, true) => (Action::REMOVED, CompletionFilter::DIR_NAME),
        (None, false) => (Action::REMOVED, CompletionFilter::FILE_NAME),
    };
    let changed = &deletion.path;
    shared.hub().changed(deletion.share_id, changed, action, filter);
    if deletion.file.stream.is_none() {
        folder_leases::break_at(shared, share, path, deletion.parent_lease);
    }
}

/// Tells watches and folder leases of what is new in the recycle bin.
fn report_kept(shared: &SharedState, share: &Share, share_id: u32, kept: &Kept) {
    let folders = kept.folders.iter().map(|path| (path, CompletionFilter::DIR_NAME));
    for (path, filter) in folders.chain([(&kept.path, CompletionFilter::FILE_NAME)]) {
        let changed = name::to_wire(path);
        shared.hub().changed(share_id, &changed, Action::ADDED, filter);
        folder_leases::break_at(shared, share, path, None);
    }
}

/// Removes the name if it still belongs to the node that is to be deleted, or moves the file into the
/// share's recycle bin.
fn remove_name(
    share: &Share,
    path: &RelPath,
    deletion: &Deletion,
    open: Option<&Arc<Open>>,
) -> ropeway_vfs::Result<Option<Kept>> {
    let opened = FileId {
        volume: deletion.file.share_volume,
        index: deletion.file.index,
    };
    // Another open may be the one that closed last.
    let own = open.filter(|open| open.file == deletion.file);
    let id = own.map_or(opened, |open| open.named_node());
    let what = |id| match deletion.directory && id == opened {
        true => Removal::Directory,
        false => Removal::File,
    };
    share.by_name(id, path, |id| {
        let bin = share.recycle_bin.as_ref();
        if let Some(bin) = bin.filter(|_| what(id) == Removal::File)
            && let Some(kept) = bin.take(id, path)?
        {
            return Ok(Some(kept));
        }
        share.store.remove_node(id, path, what(id)).map(|()| None)
    })
}
