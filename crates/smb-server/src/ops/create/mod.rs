//! CREATE ([MS-SMB2] 3.3.5.9).
//!
//! ```text
//! check the request ─ find or make the file ─ rights ─ hub: share modes, oplocks ─ empty it, its first attributes ─ reply
//!                                                        └ Wait: all again once others have made room
//! ```
//! A file is opened before anybody is asked: opening changes nothing, and the descriptor says for certain which file it is.

mod check;
mod contexts;
mod find;
mod pipe;
mod reconnect;

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use ropeway_smb_proto::server::hub::{FileKey, Granted, OpenOutcome, OpenRequest};
use ropeway_smb_wire::create::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateResponse,
    CreateResponseFlags, OplockLevel,
};
use ropeway_smb_wire::create_context::{LeaseState, RequestContext};
use ropeway_smb_wire::header::HEADER_LEN;
use ropeway_smb_wire::{FileAttributes, change_notify::Action};
use ropeway_smb_wire::{NtStatus, Reader};
use ropeway_vfs::store::{NodeStat, Task};
use ropeway_vfs::{Kind, Name};

use self::check::Wish;
use self::contexts::Asked;
use self::find::{Found, Missing, Waking};
use super::context::{Context, Outcome};
use super::name::{self, Target};
use super::{close, notify, tree};
use crate::mailbox::Message;
use crate::open::{Handle, Open};
use crate::outside::CacheGuard;
use crate::share::{Share, Token};
use crate::shared::Shared;
use crate::{attributes, eas, status};

pub(super) fn create(context: &mut Context<'_>) -> Outcome {
    let patched;
    let request = match context.decode(CreateRequest::decode) {
        Ok(request) => request,
        Err(status) => {
            // Of a request that claims a durable handle back nothing counts but that ([MS-SMB2] 3.3.5.9.7).
            patched = reconnect::made_readable(context.message).ok_or(status)?;
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
    // A session that was renewed as nobody keeps its trees, and opens nothing in those that nobody may connect to.
    if context.token()?.is_anonymous && !share.anonymous {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let asked = Asked::read(&request, context.protocol.dialect())?;
    if asked.is_reconnect() {
        return reconnect::reconnect(context, &request, &asked, &share, share_id);
    }
    let wish = Wish::check(&request)?;
    let target = name::parse(&request.name)?;
    let outcome = open(context, &request, &asked, &wish, &target, &share, share_id);
    if let Err(status) = &outcome {
        context.record("open", Some(&share.name), Some(&target.path), None, *status);
    }
    outcome
}

#[allow(clippy::too_many_arguments, reason = "what a CREATE says, taken apart")]
fn open(
    context: &mut Context<'_>,
    request: &CreateRequest<'_>,
    asked: &Asked<'_>,
    wish: &Wish,
    target: &Target,
    share: &Arc<Share>,
    share_id: u32,
) -> Outcome {
    let token = context.token()?;
    let found = match look(context, share, &token, request, wish, asked, target) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let directory = found.stat.kind == Kind::Directory && found.stream.is_none();
    let overwrites = !found.created && wish.overwrites();
    let file = key_of(&found.stat, found.stream.as_ref());
    let path = name::to_wire(&found.path);
    if asked.clashes(context, &file) {
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
        oplock: if directory {
            Default::default()
        } else {
            request.oplock_level
        },
        lease: asked.lease(request, directory, context.protocol),
        durable: asked.durable(),
        app_instance: asked.app_instance,
        replay: context.is_replay(),
        channel_sequence: context.channel_sequence(),
        connection: context.waiter.connection,
        session: context.session(),
        tree: context.request.tree,
        client: context.client(),
        user: Arc::from(token.name.as_str()),
        waiter: context.waiter,
    };
    let guard = cacheable(context, &mut hub_request, &found);
    let outcome = context.shared.hub().open(context.shared.now_ms(), &hub_request);
    let granted = match outcome {
        OpenOutcome::Granted(granted) => granted,
        OpenOutcome::Refused(status) => return Err(status),
        OpenOutcome::Wait => return Ok(super::Done::Wait),
    };
    if granted.replayed
        && let Some(Handle::File(open)) = context.shared.handle(granted.open.get())
    {
        claim(context, &open);
        return reply(context, &open, &granted, asked, open.action, None);
    }
    // Deleted with somebody's last close since it was found: what is written to it would be lost.
    let is_gone =
        hub_request.existed && found.stream.is_none() && found.node.stat().is_ok_and(|stat| stat.links == 0);
    if is_gone {
        let closed = context.shared.hub().close(context.shared.now_ms(), granted.open);
        if let Some(closed) = closed {
            // It is logged; the answer is another.
            _ = close::remove_deleted(context.shared, &closed, None);
        }
        return Err(NtStatus::DELETE_PENDING);
    }
    // What a lease does not allow now it may allow later.
    let guard = guard.filter(|_| granted.lease.is_some() || granted.oplock != OplockLevel::None);
    finish(
        context, request, asked, wish, found, file, share, granted, overwrites, guard,
    )
}

/// Finds or makes the file. Where a folder with very many names has to be read for that, the pool does it, once for all
/// who wait, and the connection goes on with other requests.
fn look(
    context: &Context<'_>,
    share: &Arc<Share>,
    token: &Token,
    request: &CreateRequest<'_>,
    wish: &Wish,
    asked: &Asked<'_>,
    target: &Target,
) -> Result<Found, Outcome> {
    let (shared, waiter) = (context.shared, context.waiter);
    let waking = || -> Task {
        let shared = Arc::clone(shared);
        Box::new(move || {
            // A connection that is gone needs no waking.
            _ = shared.post(waiter.connection, Message::Wake(waiter.request));
        })
    };
    // One that has waited is not put off again: others may change the folder faster than it is read.
    let waking: Waking<'_> = if context.again { None } else { Some(&waking) };
    find::find(share, token, request, wish, asked, target, waking).map_err(|missing| match missing {
        Missing::Status(status) => Err(status),
        Missing::UnderWay => Ok(super::Done::Wait),
        Missing::After(task) => {
            shared.pool.run(task);
            Ok(super::Done::Wait)
        }
    })
}

/// An open that was found again is whose the hub says: one whose client was away is this session's from now on.
fn claim(context: &Context<'_>, open: &Open) {
    let owner = context
        .shared
        .hub()
        .info(open.hub_id())
        .map(|info| (info.session, info.tree));
    if let Some((session, tree)) = owner {
        open.set_owner(session, tree);
    }
}

/// Watches what the client wants to cache: what others do to it is to be heard of before anything of it is cached. Where
/// that cannot be, nothing is granted.
fn cacheable(context: &Context<'_>, request: &mut OpenRequest, found: &Found) -> Option<CacheGuard> {
    if request.lease.is_none() && matches!(request.oplock, OplockLevel::None | OplockLevel::Lease) {
        return None;
    }
    let guard = context.shared.caches.watch(&request.file, &*found.node);
    if guard.is_none() {
        request.oplock = OplockLevel::None;
        if let Some(lease) = &mut request.lease {
            lease.state = LeaseState::default();
        }
    }
    guard
}

/// The file is ours to open: does what the request wants with it, and answers.
#[allow(clippy::too_many_arguments, reason = "what a CREATE says, taken apart")]
fn finish(
    context: &mut Context<'_>,
    request: &CreateRequest<'_>,
    asked: &Asked<'_>,
    wish: &Wish,
    found: Found,
    file: FileKey,
    share: &Arc<Share>,
    granted: Granted,
    overwrites: bool,
    guard: Option<CacheGuard>,
) -> Outcome {
    let prepared = prepare(request, asked, &found, overwrites);
    if let Err(status) = prepared {
        if found.created {
            // What a failed CREATE has made goes with it. That it cannot is not this request's outcome.
            _ = context.shared.hub().set_delete_pending(granted.open, true);
        }
        let closed = context.shared.hub().close(context.shared.now_ms(), granted.open);
        if let Some(closed) = closed {
            // It is logged; the answer is another.
            _ = close::remove_deleted(context.shared, &closed, None);
        }
        return Err(status);
    }
    let action = match (found.created, overwrites, wish.disposition) {
        (true, ..) => CreateAction::CREATED,
        (false, true, CreateDisposition::Supersede) => CreateAction::SUPERSEDED,
        (false, true, _) => CreateAction::OVERWRITTEN,
        _ => CreateAction::OPENED,
    };
    let open = Arc::new(Open {
        id: granted.open.get(),
        session: AtomicU64::new(context.session().0),
        tree: AtomicU32::new(context.request.tree.0),
        share: Arc::clone(share),
        file,
        directory: found.stat.kind == Kind::Directory && found.stream.is_none(),
        node: found.node,
        base: found.base,
        stream: found.stream,
        access: found.access,
        options: request.options,
        action,
        path: Mutex::new(found.path),
        position: AtomicU64::new(0),
        scan: Mutex::new(None),
        state: Default::default(),
    });
    // What was seen of the file before it was watched may have changed since.
    let seen_before = guard.is_some();
    if let Some(guard) = guard {
        // It is new, so it has none.
        _ = open.state.caching.set(guard);
    }
    context
        .shared
        .add_handle(open.id, Handle::File(Arc::clone(&open)));
    if found.created {
        notify::entry(context.shared, &open, Action::ADDED);
    } else if overwrites {
        notify::written(context.shared, &open);
    }
    context.record(
        if found.created { "create" } else { "open" },
        Some(&share.name),
        Some(&open.path()),
        None,
        NtStatus::SUCCESS,
    );
    let unchanged = !found.created && !overwrites && asked.allocation.is_none() && !seen_before;
    let stat = unchanged.then_some(found.stat);
    reply(context, &open, &granted, asked, action, stat)
}

/// Empties a file, and gives it what the request brought for it.
fn prepare(
    request: &CreateRequest<'_>,
    asked: &Asked<'_>,
    found: &Found,
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
        if let Some(bytes) = asked.allocation.filter(|bytes| *bytes > 0) {
            match found.node.allocate(bytes) {
                Err(error) if error.kind == ropeway_vfs::ErrorKind::NoSpace => {
                    return Err(NtStatus::DISK_FULL);
                }
                // A reservation is a favour.
                _ => {}
            }
        }
        if !asked.eas.is_empty() {
            eas::set(&*found.node, &asked.eas)?;
        }
    }
    Ok(())
}

/// What the hub knows a file by.
pub(super) fn key_of(stat: &NodeStat, stream: Option<&Name>) -> FileKey {
    FileKey {
        share_volume: stat.id.volume,
        index: stat.id.index,
        stream: stream.map(name::fold_stream),
    }
}

/// The reply; `stat` if it is known that nothing has changed since.
fn reply(
    context: &mut Context<'_>,
    open: &Open,
    granted: &Granted,
    asked: &Asked<'_>,
    action: CreateAction,
    stat: Option<NodeStat>,
) -> Outcome {
    let stat = match stat {
        Some(stat) => stat,
        None => open.node.stat().map_err(|error| status::of(&error))?,
    };
    let contexts = contexts::answers(context, open, granted, asked, &stat);
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
        allocation_size: attributes::allocation_size(&stat, features).max(asked.allocation_shown(&stat)),
        end_of_file: attributes::end_of_file(&stat),
        file_attributes: attributes::of(&stat, Shared::is_hidden(open)),
        file_id: granted.open.file_id(),
        contexts,
    };
    context.compound.file = Some(granted.open.file_id());
    context.reply(|w| response.encode(w))
}

/// Whether rights are only for looking at a file's attributes: such an open never creates, waits or conflicts.
pub(super) fn wants_content(access: AccessMask) -> bool {
    access.intersects(
        AccessMask::READ_DATA | AccessMask::EXECUTE | AccessMask::WRITE_DATA | AccessMask::APPEND_DATA,
    )
}
