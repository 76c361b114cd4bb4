//! CREATE ([MS-SMB2] 3.3.5.9).
//!
//! ```text
//! check ─ find or create the file ─ access ─ hub: share modes, oplocks ─ truncate, set up ─ reply
//!                                              └ Wait: all again when others have given up caching
//! ```
//!
//! The file is opened before the hub is asked: opening changes nothing, and the descriptor
//! identifies the file.

mod afar;
mod contexts;
mod find;
mod get_files;
mod many_files;
mod pipe;
mod put_files;
mod reconnect;
mod same_files;
mod together;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use ropeway_smb_proto::server::hub::{AppInstance, FileKey, Granted, OpenId, OpenOutcome, OpenRequest};
use ropeway_smb_proto::server::rules::create::CreateIntent;
use ropeway_smb_wire::FileAttributes;
use ropeway_smb_wire::create::{
    AccessMask, CreateAction, CreateOptions, CreateRequest, CreateResponse, CreateResponseFlags, OplockLevel,
};
use ropeway_smb_wire::create_context::{LeaseState, RequestContext};
use ropeway_smb_wire::header::HEADER_LEN;
use ropeway_smb_wire::{NtStatus, Reader, SessionId, TreeId};
use ropeway_vfs::external::ContentLease;
use ropeway_vfs::store::{NodeStat, Task};
use ropeway_vfs::{ErrorKind, Kind};

use self::contexts::CreateContexts;
pub(super) use self::find::stored_name;
use self::find::{FindError, FoundFile, WakeRequest};
pub(super) use self::many_files::files_together;
use super::context::{Context, Execution, Outcome};
use super::name::{self, Target, key_of};
use super::{close, notify, persistent, tree};
use crate::files::{attributes, eas, security, status};
use crate::share::Share;
use crate::state::SharedState;
use crate::state::cache_watch::CacheWatch;
use crate::state::mailbox::Message;
use crate::state::open::{Handle, Open};
use crate::token::Token;

pub(super) fn create(context: &mut Context<'_>) -> Outcome {
    let patched;
    let request = match context.decode(CreateRequest::decode) {
        Ok(request) => request,
        Err(status) => {
            // In a reconnect of a durable handle, the other fields are ignored, even if they are
            // invalid ([MS-SMB2] 3.3.5.9.7).
            patched = reconnect::with_valid_fields(context.message).ok_or(status)?;
            let mut body = Reader::at(&patched, HEADER_LEN, "SMB2 CREATE Request");
            let request = CreateRequest::decode(&mut body).map_err(|_| status)?;
            let claims = |one: &RequestContext<'_>| {
                matches!(
                    one,
                    RequestContext::DurableReconnect(_) | RequestContext::DurableReconnectV2(_)
                )
            };
            if !request.contexts.iter().any(claims) {
                return Err(status);
            }
            request
        }
    };
    if context.tree.is_some_and(|tree| tree.share == tree::IPC) {
        return pipe::open(context, &request);
    }
    let share_id = context.tree.map_or(0, |tree| tree.share);
    let share = context.share().ok_or(NtStatus::NETWORK_NAME_DELETED)?;
    // A session that was renewed as anonymous keeps its trees, but opens nothing where anonymous
    // sessions may not connect.
    if context.token()?.is_anonymous && !share.anonymous {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let contexts = CreateContexts::read(&request, context.protocol.dialect())?;
    if contexts.is_reconnect() {
        return reconnect::reconnect(context, &request, &contexts, &share, share_id);
    }
    let intent = CreateIntent::new(&request)?;
    let target = name::parse(&request.name)?;
    let (share, share_id) = share.at(share_id, contexts.snapshot)?;
    let outcome = open(context, &request, &contexts, &intent, &target, &share, share_id);
    if let Err(status) = &outcome {
        context.record("open", Some(&share.name), Some(&target.path), None, *status);
    }
    outcome
}

#[allow(clippy::too_many_arguments, reason = "what a CREATE says, taken apart")]
fn open(
    context: &mut Context<'_>,
    request: &CreateRequest<'_>,
    contexts: &CreateContexts<'_>,
    intent: &CreateIntent,
    target: &Target,
    share: &Arc<Share>,
    share_id: u32,
) -> Outcome {
    let token = context.token()?;
    let (found, watch) = match find_file(context, share, &token, request, intent, contexts, target) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let directory = found.stat.kind == Kind::Directory && found.stream.is_none();
    let overwrites = !found.created && intent.overwrites();
    let file = key_of(&found.stat, found.stream.as_ref());
    let path = name::to_wire(&found.path);
    if contexts.clashes(context, &file) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut hub_request = OpenRequest {
        file: file.clone(),
        path,
        share_id,
        directory,
        existed: !found.created,
        size: found.stat.size,
        overwrites,
        access: found.access,
        share_access: request.share_access,
        delete_on_close: request.options.contains(CreateOptions::DELETE_ON_CLOSE),
        oplock: if directory || contexts.snapshot.is_some() {
            Default::default()
        } else {
            request.oplock_level
        },
        lease: contexts.lease(request, directory, context.protocol),
        durable: contexts.durable(context, share),
        app_instance: app_instance(contexts, share, &token, &found),
        replay: context.is_replay(),
        channel_sequence: context.channel_sequence(),
        connection: context.waiter.connection,
        session: context.session(),
        tree: context.request.tree,
        client: context.client(),
        user: Arc::from(token.name.as_str()),
        waiter: context.waiter,
    };
    let guard = watch_for_caching(context, share, &mut hub_request, &found, watch);
    let outcome = context.shared.hub().open(context.shared.uptime(), &hub_request);
    let granted = match outcome {
        OpenOutcome::Granted(granted) => granted,
        OpenOutcome::Refused(status) => return Err(status),
        OpenOutcome::Wait => return Ok(Execution::Pending),
    };
    if granted.replayed {
        return reply_again(context, contexts, granted);
    }
    if hub_request.existed && is_deleted(share, &found) {
        close_again(context, &granted);
        return Err(NtStatus::DELETE_PENDING);
    }
    if share.far && guard.is_some() {
        break_if_lost(context, &found, &file);
    }
    // A lease that is not granted now may be granted later.
    let guard = guard.filter(|_| granted.lease.is_some() || granted.oplock != OplockLevel::None);
    finish(
        context, request, contexts, intent, found, file, share, granted, overwrites, guard,
    )
}

/// Answers the replay of a CREATE ([MS-SMB2] 3.3.5.9.10). The first request may still be executing on
/// another channel: then the handle may be missing, or its record.
fn reply_again(context: &mut Context<'_>, contexts: &CreateContexts<'_>, granted: Granted) -> Outcome {
    let Some(Handle::File(open)) = context.shared.handle(granted.open.get()) else {
        return Err(NtStatus::FILE_NOT_AVAILABLE);
    };
    take_over(context, &open);
    let granted = persistent::promise(context.shared, &open, granted);
    reply(context, &open, &granted, contexts, open.action, None)
}

/// Returns the application instance of an open. It closes older opens of the same instance, so a user
/// who may not read the file has none ([MS-SMB2] 3.3.5.9.13).
fn app_instance(
    contexts: &CreateContexts<'_>,
    share: &Share,
    token: &Token,
    found: &FoundFile,
) -> Option<AppInstance> {
    let instance = contexts.app_instance?;
    let node = found.base.as_deref().unwrap_or(&*found.node);
    let rights = security::rights(share, token, node, &found.stat, &found.path);
    let may_read = rights.is_ok_and(|rights| rights.contains(AccessMask::READ_DATA));
    may_read.then_some(instance)
}

/// Finds or creates the file. If a folder with very many names must be read, a worker reads it once
/// for all waiting requests, and the connection continues. A file of a far server is watched if the
/// client wants to cache it.
fn find_file(
    context: &mut Context<'_>,
    share: &Arc<Share>,
    token: &Arc<Token>,
    request: &CreateRequest<'_>,
    intent: &CreateIntent,
    contexts: &CreateContexts<'_>,
    target: &Target,
) -> Result<(FoundFile, Option<CacheWatch>), Outcome> {
    if share.far {
        return afar::find(context, share, token, intent);
    }
    let (shared, waiter) = (context.shared, context.waiter);
    let wake_request = || -> Task {
        let shared = Arc::clone(shared);
        Box::new(move || {
            // A lost connection needs no message.
            _ = shared.post(waiter.connection, Message::Retry(waiter.request));
        })
    };
    // A retry does not wait again: others may change the folder faster than it can be read.
    let wake_request: WakeRequest<'_> = if context.is_retry {
        None
    } else {
        Some(&wake_request)
    };
    let place = find::Place {
        share,
        share_id: context.tree.map_or(0, |tree| tree.share),
        tunnel: &shared.tunnel,
        now: shared.uptime(),
    };
    match find::find(&place, token, request, intent, contexts, target, wake_request) {
        Ok(found) => Ok((found, None)),
        Err(FindError::Status(status)) => Err(Err(status)),
        Err(FindError::UnderWay) => Err(Ok(Execution::Pending)),
        Err(FindError::After(task)) => {
            shared.workers.run(task);
            Err(Ok(Execution::Pending))
        }
    }
}

/// Moves a reconnected open to the session that the hub names.
fn take_over(context: &Context<'_>, open: &Open) {
    let owner = context
        .shared
        .hub()
        .info(open.hub_id())
        .map(|info| (info.session, info.tree));
    if let Some((session, tree)) = owner {
        open.set_owner(session, tree);
    }
}

/// Watches a file that the client wants to cache, because changes by local programs must break the
/// cache. If that is impossible, no caching is granted.
///
/// A file of a far server is watched already, by a lease that the far server has granted. Clients
/// get no more than that lease allows, and never write caching: the far server's other clients would
/// not see what a client has not written yet.
fn watch_for_caching(
    context: &Context<'_>,
    share: &Share,
    request: &mut OpenRequest,
    found: &FoundFile,
    far_watch: Option<CacheWatch>,
) -> Option<CacheWatch> {
    if request.lease.is_none() && matches!(request.oplock, OplockLevel::None | OplockLevel::Lease) {
        return None;
    }
    let guard = match share.far {
        true => far_watch.filter(|_| may_be_cached(found)),
        false => context.shared.cache_watches.watch(&request.file, &*found.node),
    };
    if share.far {
        if let Some(lease) = &mut request.lease {
            lease.state = lease.state.difference(LeaseState::WRITE_CACHING);
        }
        if matches!(request.oplock, OplockLevel::Exclusive | OplockLevel::Batch) {
            request.oplock = OplockLevel::LevelII;
        }
    }
    if guard.is_none() {
        request.oplock = OplockLevel::None;
        if let Some(lease) = &mut request.lease {
            lease.state = LeaseState::default();
        }
    }
    guard
}

/// Whether a far server would report changes of a file before they are made. Of a folder it reports
/// them soon afterwards.
fn may_be_cached(found: &FoundFile) -> bool {
    found.stat.kind == Kind::Directory || matches!(found.node.lease(), ContentLease::Held { .. })
}

/// Breaks the lease that was just granted if the far lease was lost since it was looked at.
fn break_if_lost(context: &Context<'_>, found: &FoundFile, file: &FileKey) {
    if !may_be_cached(found) {
        let now = context.shared.uptime();
        let mut hub = context.shared.hub();
        hub.changed_locally(now, file.share_volume, file.index);
    }
}

/// Whether the file was deleted by another close since it was found, so that written data would be
/// lost. In a recycle bin it keeps its name's number of one.
fn is_deleted(share: &Share, found: &FoundFile) -> bool {
    if found.stream.is_some() {
        return false;
    }
    let has_left = || match share.store.look(&found.path) {
        // A link leads to the file.
        Ok(stat) => stat.id != found.stat.id && stat.kind != Kind::Symlink,
        Err(error) => error.kind == ErrorKind::NotFound,
    };
    found.node.stat().is_ok_and(|stat| stat.links == 0)
        || share.recycle_bin.is_some() && found.stat.kind == Kind::File && has_left()
}

/// Closes an open whose CREATE fails.
fn close_again(context: &Context<'_>, granted: &Granted) {
    let closed = context.shared.hub().close(context.shared.uptime(), granted.open);
    if let Some(closed) = closed {
        // The error is logged; the request fails with another one.
        _ = close::remove_deleted(context.shared, &closed, None);
    }
}

/// Executes a granted CREATE and replies.
#[allow(clippy::too_many_arguments, reason = "what a CREATE says, taken apart")]
fn finish(
    context: &mut Context<'_>,
    request: &CreateRequest<'_>,
    contexts: &CreateContexts<'_>,
    intent: &CreateIntent,
    found: FoundFile,
    file: FileKey,
    share: &Arc<Share>,
    granted: Granted,
    overwrites: bool,
    guard: Option<CacheWatch>,
) -> Outcome {
    let prepared = prepare(request, contexts, &found, overwrites);
    if let Err(status) = prepared {
        if found.created {
            // A failed CREATE removes what it created. An error of that does not change the
            // outcome.
            _ = context.shared.hub().set_delete_pending(granted.open, true);
        }
        close_again(context, &granted);
        return Err(status);
    }
    let action = intent.action(found.created);
    let (created, stat) = (found.created, found.stat);
    let open = Arc::new(Open {
        options: request.options,
        action,
        ..open_of(
            granted.open,
            (context.session(), context.request.tree),
            share,
            file,
            found,
        )
    });
    // The attributes may have changed before the file was watched.
    let seen_before = guard.is_some();
    if let Some(guard) = guard {
        // The open is new, so the cell is empty.
        _ = open.state.caching.set(guard);
    }
    context
        .shared
        .add_handle(open.id, Handle::File(Arc::clone(&open)));
    if created {
        notify::entry_changed(context.shared, &open, true);
    } else if overwrites {
        notify::content_changed(context.shared, &open);
    }
    context.record(
        if created { "create" } else { "open" },
        Some(&share.name),
        Some(&open.path()),
        None,
        NtStatus::SUCCESS,
    );
    let granted = persistent::promise(context.shared, &open, granted);
    let is_new_stream = created && open.stream.is_some();
    let is_prepared = (created || overwrites) && (contexts.allocation.is_some() || !contexts.eas.is_empty());
    let unchanged = !is_new_stream && !overwrites && !is_prepared && !seen_before;
    let stat = unchanged.then_some(stat);
    reply(context, &open, &granted, contexts, action, stat)
}

/// Returns the open of a file that was found or made, without options.
fn open_of(
    id: OpenId,
    (session, tree): (SessionId, TreeId),
    share: &Arc<Share>,
    file: FileKey,
    found: FoundFile,
) -> Open {
    Open {
        id: id.get(),
        session: AtomicU64::new(session.0),
        tree: AtomicU32::new(tree.0),
        share: Arc::clone(share),
        file,
        short_name: found.short_name,
        directory: found.stat.kind == Kind::Directory && found.stream.is_none(),
        node: found.node,
        base: found.base,
        stream: found.stream,
        access: found.access,
        may_overwrite: found.may_overwrite,
        options: CreateOptions::default(),
        action: CreateAction::CREATED,
        path: Mutex::new(found.path),
        position: AtomicU64::new(0),
        scan: Mutex::new(None),
        state: Default::default(),
    }
}

/// Truncates a file, and sets the attributes that the request contains.
fn prepare(
    request: &CreateRequest<'_>,
    contexts: &CreateContexts<'_>,
    found: &FoundFile,
    overwrites: bool,
) -> Result<(), NtStatus> {
    let stored = |result: ropeway_vfs::Result<()>| result.map_err(|error| status::of(&error));
    if overwrites {
        stored(found.node.set_len(0))?;
        if found.stream.is_none() {
            for stream in found.node.streams().map_err(|error| status::of(&error))? {
                stored(found.node.remove_stream(&stream.name))?;
            }
            let fresh = attributes::new_node(false, request.file_attributes | FileAttributes::ARCHIVE);
            stored(found.node.change(&ropeway_vfs::store::NodeChange {
                dos_attributes: fresh.dos_attributes,
                ..Default::default()
            }))?;
        }
    }
    if found.created || overwrites {
        if let Some(bytes) = contexts.allocation.filter(|bytes| *bytes > 0) {
            match found.node.allocate(bytes) {
                Err(error) if error.kind == ropeway_vfs::ErrorKind::NoSpace => {
                    return Err(NtStatus::DISK_FULL);
                }
                // A reservation is optional.
                _ => {}
            }
        }
        if !contexts.eas.is_empty() {
            eas::set(&*found.node, &contexts.eas)?;
        }
    }
    Ok(())
}

/// Replies. `stat` is given if the attributes cannot have changed since.
fn reply(
    context: &mut Context<'_>,
    open: &Open,
    granted: &Granted,
    contexts: &CreateContexts<'_>,
    action: CreateAction,
    stat: Option<NodeStat>,
) -> Outcome {
    let stat = match stat {
        Some(stat) => stat,
        None => open.node.stat().map_err(|error| status::of(&error))?,
    };
    let answers = contexts::answers(context, open, granted, contexts, &stat);
    let features = open.share.store.features();
    let link = if stat.kind == Kind::Symlink {
        CreateResponseFlags::REPARSE_POINT
    } else {
        Default::default()
    };
    let response = CreateResponse {
        oplock_level: granted.oplock,
        flags: link,
        create_action: action,
        creation_time: attributes::file_time(stat.created),
        last_access_time: attributes::file_time(stat.accessed),
        last_write_time: attributes::file_time(stat.modified),
        change_time: attributes::file_time(stat.changed),
        allocation_size: attributes::allocation_size(&stat, features).max(contexts.allocation_shown(&stat)),
        end_of_file: attributes::end_of_file(&stat),
        file_attributes: attributes::of(&stat, SharedState::is_hidden(open)),
        file_id: granted.open.file_id(),
        contexts: answers,
    };
    context.compound.file = Some(granted.open.file_id());
    context.reply(|w| response.encode(w))
}

/// Whether access includes the content. Other opens never conflict with anything.
pub(super) fn wants_content(access: AccessMask) -> bool {
    access.intersects(
        AccessMask::READ_DATA | AccessMask::EXECUTE | AccessMask::WRITE_DATA | AccessMask::APPEND_DATA,
    )
}
