//! Persistent opens: durable opens that survive a restart of the server, too ([MS-SMB2] 3.3.1.10,
//! `Open.IsPersistent`; 3.3.5.9, 3.3.5.9.10, 3.3.5.9.12, 3.3.7.1).
//!
//! The hub's owner keeps the state of each such open where it outlives the process:
//!
//! ```text
//! open ─▶ persistent_open() ─▶ kept? ─ yes ─▶ reply with the flag
//!                                └──── no ──▶ demote() ─▶ reply without it
//! any call ─▶ change_count() has grown ─▶ take_changes() ─▶ kept ─▶ events are polled, replies sent
//! restart ─▶ restore() for each that was kept ─▶ opens without a client, which wait for theirs
//! ```
//!
//! While such an open has no client, nobody else can open its file (`STATUS_FILE_NOT_AVAILABLE`),
//! unless it caches its handle: then the caching breaks as that of any other, the client learns of
//! it when it is back, and requests that need the acknowledgment wait until then
//! (smb2.persistent-open-reconnect-contended).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_wire::create::{AccessMask, ShareAccess};
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::{Guid, LeaseKey, Text};

use super::Hub;
use super::caching::{BreakNotice, H, R, W};
use super::create_replays::Key;
use super::durability::{DurableGrant, DurableOpenRequest};
use super::durable::ReconnectRequest;
use super::ids::{FileKey, Holder, OpenId};
use super::lease::LeaseRequest;
use super::open::AppInstance;
use super::open::OpenRequest;
use super::table::{Open, Stream};

/// The state of a persistent open that outlives the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentOpen {
    /// Its id.
    pub id: OpenId,
    /// The client's id of the create.
    pub create_guid: Guid,
    /// The client's `ClientGuid`.
    pub client: Guid,
    /// The user.
    pub user: Arc<str>,
    /// The share.
    pub share_id: u32,
    /// The file.
    pub file: FileKey,
    /// The path, without the stream.
    pub path: Text,
    /// Whether it is a folder.
    pub directory: bool,
    /// The granted rights.
    pub access: AccessMask,
    /// The access that other opens may have.
    pub share_access: ShareAccess,
    /// Whether the file is deleted when this open closes.
    pub delete_on_close: bool,
    /// How long to wait for the client to return.
    pub timeout_ms: u32,
    /// `AppInstanceId`.
    pub app_instance: Option<AppInstance>,
    /// The lease key that the client has for the parent folder.
    pub parent_lease: Option<LeaseKey>,
    /// `ChannelSequence`.
    pub channel_sequence: u16,
    /// `IsReplayEligible`. It may say so of an open that was used since it was kept.
    pub replayable: bool,
    /// Its oplock or lease, as the client holds it.
    pub caching: KeptCaching,
    /// The break that the client has not acknowledged.
    pub breaking: Option<KeptBreak>,
    /// Its byte-range locks.
    pub locks: Vec<KeptLock>,
    /// `LockSequenceArray`.
    pub lock_sequences: Option<Box<[u8; 64]>>,
    /// The deletion of the file, or of the stream, at its last close.
    pub deletion: Option<KeptDeletion>,
}

/// The oplock or lease of a persistent open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptCaching {
    /// An oplock, as the equivalent lease state.
    Oplock(LeaseState),
    /// A lease of the open's client.
    Lease {
        /// Its key.
        key: LeaseKey,
        /// Its state.
        state: LeaseState,
        /// Its epoch, in version 2.
        epoch: Option<u16>,
    },
}

/// A break without its acknowledgment. Until it comes the client may have data that it did not write
/// yet, so others wait for it after a restart, too ([MS-SMB2] 3.3.4.6, 3.3.4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBreak {
    /// The state that the notification asks for.
    pub requested: LeaseState,
    /// The state that all breaks requested so far lead to.
    pub required: LeaseState,
}

/// A byte-range lock of a persistent open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptLock {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
    /// Whether it excludes readers.
    pub exclusive: bool,
}

/// A deletion that is pending for the file of a persistent open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptDeletion {
    /// The user who asked for it.
    pub user: Arc<str>,
    /// The lease on the parent folder that the open named which asked for it.
    pub parent_lease: Option<LeaseKey>,
}

/// A change of what is to be kept of an open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentChange {
    /// The open.
    pub open: OpenId,
    /// Its share.
    pub share_id: u32,
    /// Its new state; `None` if it is closed.
    pub state: Option<Box<PersistentOpen>>,
}

/// Which opens are persistent, and which of them have changed.
#[derive(Debug, Default)]
pub(super) struct PersistentOpens {
    by_guid: HashMap<Guid, BTreeSet<OpenId>>,
    count: usize,
    /// Opens that changed since [`Hub::take_changes`], with their shares.
    changed: BTreeMap<OpenId, u32>,
    changes: u64,
}

impl PersistentOpens {
    pub(super) fn add(&mut self, guid: Guid, open: OpenId) {
        self.count += usize::from(self.by_guid.entry(guid).or_default().insert(open));
    }

    fn forget(&mut self, open: &Open) {
        let guid = open.durable.and_then(|durable| durable.create_guid);
        let Some(guid) = guid.filter(|_| open.is_persistent()) else {
            return;
        };
        if let Some(opens) = self.by_guid.get_mut(&guid) {
            self.count -= usize::from(opens.remove(&open.info.id));
            if opens.is_empty() {
                self.by_guid.remove(&guid);
            }
        }
    }

    /// Notes that an open was closed.
    pub(super) fn removed(&mut self, open: &Open) {
        self.changed_if(open);
        self.forget(open);
    }

    /// Notes a change of an open, if it is persistent.
    pub(super) fn changed_if(&mut self, open: &Open) {
        if open.is_persistent() {
            self.changed.insert(open.info.id, open.info.share_id);
            self.changes += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_guid.is_empty() && self.count == 0
    }
}

impl Hub {
    /// Returns the state to keep of a persistent open; `None` if it is not persistent.
    pub fn persistent_open(&self, id: OpenId) -> Option<PersistentOpen> {
        let open = self.tables.opens.get(&id).filter(|open| open.is_persistent())?;
        let (info, durable) = (&open.info, open.durable?);
        let stream = self.tables.stream(&info.file)?;
        let own = stream.locks.iter().filter(|lock| lock.open == id);
        let locks = own.map(|lock| KeptLock {
            offset: lock.range.offset,
            length: lock.range.length,
            exclusive: lock.exclusive,
        });
        let create_guid = durable.create_guid?;
        Some(PersistentOpen {
            id,
            create_guid,
            client: info.client,
            user: Arc::clone(&info.user),
            share_id: info.share_id,
            file: info.file.clone(),
            path: info.path.clone(),
            directory: info.directory,
            access: info.access,
            share_access: info.share_access,
            delete_on_close: info.delete_on_close,
            timeout_ms: durable.timeout_ms,
            app_instance: info.app_instance,
            parent_lease: info.parent_lease,
            channel_sequence: open.sequence.number(),
            replayable: self.creates.is_replayable(id),
            caching: self.kept_caching(open),
            breaking: self.kept_break(open),
            locks: if open.lock_count > 0 {
                locks.collect()
            } else {
                Vec::new()
            },
            lock_sequences: open.lock_sequences.clone(),
            deletion: self.kept_deletion(open, stream),
        })
    }

    fn kept_caching(&self, open: &Open) -> KeptCaching {
        match open.lease.and_then(|name| Some((name, self.leases.get(name)?))) {
            Some((name, held)) => KeptCaching::Lease {
                key: name.key,
                state: held.caching.state,
                epoch: held.epoch,
            },
            None => KeptCaching::Oplock(open.oplock.state),
        }
    }

    fn kept_break(&self, open: &Open) -> Option<KeptBreak> {
        let breaking = self.caching(Self::holder(open))?.breaking?;
        Some(KeptBreak {
            requested: breaking.requested,
            required: breaking.required,
        })
    }

    fn kept_deletion(&self, open: &Open, stream: &Stream) -> Option<KeptDeletion> {
        let info = &open.info;
        let base = self.tables.bases.get(&info.file.base())?;
        let of_file = base.pending.iter();
        let deletion = match info.file.stream {
            None => of_file
                .into_iter()
                .find(|deletion| deletion.is_of(info.share_id, &info.path))?,
            Some(_) => stream.pending.as_ref()?,
        };
        Some(KeptDeletion {
            user: Arc::clone(&deletion.user),
            parent_lease: deletion.parent_lease,
        })
    }

    /// Takes back that an open is persistent, since its state cannot be kept. Returns the durable
    /// context for the response: the open may still be durable.
    pub fn demote(&mut self, id: OpenId) -> Option<DurableGrant> {
        let open = self.tables.opens.get(&id)?;
        let is_durable = !open.info.directory && self.holds(open, H);
        let open = self.tables.opens.get_mut(&id)?;
        self.persistent.forget(open);
        self.persistent.changed.remove(&id);
        let durable = open.durable.as_mut()?;
        durable.persistent = false;
        if !is_durable {
            open.durable = None;
        }
        open.durable.map(|durable| durable.grant())
    }

    /// Returns a number that grows with every change of what is to be kept of persistent opens.
    pub fn change_count(&self) -> u64 {
        self.persistent.changes
    }

    /// Returns what has changed since the last call, by open. Keep it before the next event is
    /// polled and before the response to the request that changed it is sent.
    pub fn take_changes(&mut self) -> Vec<PersistentChange> {
        let changed = std::mem::take(&mut self.persistent.changed);
        let changes = changed.into_iter().map(|(open, share_id)| PersistentChange {
            open,
            share_id,
            state: self.persistent_open(open).map(Box::new),
        });
        changes.collect()
    }

    /// Returns the number of persistent opens.
    pub fn persistent_count(&self) -> usize {
        self.persistent.count
    }

    pub(super) fn may_persist(&self, wish: &DurableOpenRequest) -> bool {
        let wanted = matches!(wish, DurableOpenRequest::V2 { persistent: true, .. });
        wanted && self.persistent.count < self.limits.persistent_max
    }

    /// Notes a change of an open, if it is persistent.
    pub(super) fn open_changed(&mut self, id: OpenId) {
        if let Some(open) = self.tables.opens.get(&id) {
            self.persistent.changed_if(open);
        }
    }

    /// Notes a change of the caching of a holder.
    pub(super) fn caching_changed(&mut self, holder: Holder) {
        if self.persistent.count == 0 {
            return;
        }
        for open in self.opens_of_holder(holder) {
            self.open_changed(open);
        }
    }

    /// Notes that a deletion of the file, or of a stream, was asked for or taken back.
    pub(super) fn file_changed(&mut self, file: &FileKey) {
        if self.persistent.count == 0 {
            return;
        }
        let base = self.tables.bases.get(&file.base());
        let streams = base.map_or(&[][..], |base| &base.streams).iter();
        let opens: Vec<_> = streams.flat_map(|stream| stream.summary.opens()).collect();
        for open in opens {
            self.open_changed(open);
        }
    }

    fn opens_of_holder(&self, holder: Holder) -> Vec<OpenId> {
        match holder {
            Holder::Oplock(open) => vec![open],
            Holder::Lease(name) => {
                let held = self.leases.get(name);
                held.map_or_else(Vec::new, |held| held.opens.iter().copied().collect())
            }
        }
    }

    /// Returns whether the holder has no open with a client.
    fn is_without_client(&self, holder: Holder) -> bool {
        let opens = self.opens_of_holder(holder).into_iter();
        let mut infos = opens.filter_map(|open| self.info(open));
        infos.all(|info| info.connection.is_none())
    }

    /// Returns whether the file is kept for a persistent open without a client ([MS-SMB2] 3.3.5.9),
    /// whatever is asked for. One that caches its handle keeps nobody off: its caching breaks. But
    /// where it has locks, and may not cache writes, its caching counts for nothing.
    pub(super) fn is_kept_for_absent(&self, request: &OpenRequest) -> bool {
        if self.persistent.count == 0 {
            return false;
        }
        let Some(base) = self.tables.bases.get(&request.file.base()) else {
            return false;
        };
        let keeps = |stream: &Stream, id: OpenId| {
            let Some(open) = self.tables.opens.get(&id).filter(|open| open.is_persistent()) else {
                return false;
            };
            let is_same = stream.name == request.file.stream;
            let is_concerned = is_same || Self::is_denied_by(&request.file, request.mode(), open);
            let is_guarded = self.holds(open, H) && (stream.locks.is_empty() || self.holds(open, W));
            is_concerned && !is_guarded
        };
        let mut streams = base.streams.iter();
        streams.any(|stream| stream.summary.absent().any(|id| keeps(stream, id)))
    }

    /// Returns whether a create with this key made a persistent open that is still there, and asks
    /// for one again.
    pub(super) fn is_persistent_create(&self, request: &OpenRequest, (client, guid): Key) -> bool {
        let asks = matches!(
            request.durable,
            Some(DurableOpenRequest::V2 { persistent: true, .. })
        );
        let opens = self.persistent.by_guid.get(&guid).into_iter().flatten();
        let mut infos = opens.filter_map(|open| self.info(*open));
        asks && infos.any(|info| info.client == client)
    }

    /// Returns the persistent open that a reconnect means, whose file id is unknown ([MS-SMB2]
    /// 3.3.5.9.12).
    pub(super) fn persistent_by_guid(&self, request: &ReconnectRequest) -> Option<OpenId> {
        let guid = request.create_guid.filter(|_| request.persistent)?;
        let opens = self.persistent.by_guid.get(&guid)?;
        let is_it = |id: &&OpenId| {
            let open = self.tables.opens.get(id);
            open.is_some_and(|open| self.check_reconnect(open, request).is_ok())
        };
        // Without one that fits, any of them says what is wrong with the request.
        opens.iter().find(is_it).or(opens.first()).copied()
    }

    /// Handles that a persistent open has lost its client. If that was the holder's last one: the
    /// client is told again of a break in progress when it is back, and with locks, but without
    /// write caching, it caches nothing any more.
    pub(super) fn client_left(&mut self, now: Duration, id: OpenId) {
        let Some(open) = self.tables.opens.get(&id) else {
            return;
        };
        let holder = Self::holder(open);
        if !self.is_without_client(holder) {
            return;
        }
        self.keep_break(holder);
        let has_locks = |open: &OpenId| {
            let open = self.tables.opens.get(open);
            open.is_some_and(|open| open.lock_count > 0)
        };
        let locked = self.opens_of_holder(holder).iter().any(has_locks);
        if locked && !self.caching(holder).is_some_and(|held| held.state.contains(W)) {
            self.revoke(now, holder);
        }
    }

    /// Notes that the client of the holder is to be told of the break when it is back.
    pub(super) fn keep_break(&mut self, holder: Holder) {
        let persists = |id: OpenId| {
            let open = self.tables.opens.get(&id);
            open.is_some_and(Open::is_persistent)
        };
        if !self.opens_of_holder(holder).into_iter().any(persists) {
            return;
        }
        if let Some(breaking) = self.caching_mut(holder).and_then(|held| held.breaking.as_mut()) {
            breaking.unsent = true;
        }
    }

    /// Gives the lease of a persistent open its epoch before its client returns to it. Without
    /// handle caching, the lease counts as granted anew: its epoch follows the one that the client
    /// names, if that is later (smb2.persistent-open-reconnect-contended).
    pub(super) fn renew_lease(&mut self, id: OpenId, asked: Option<&LeaseRequest>) {
        let Some(open) = self.tables.opens.get(&id).filter(|open| open.is_persistent()) else {
            return;
        };
        let (holder, lease) = (Self::holder(open), open.lease);
        let asked = asked.and_then(|asked| asked.v2).map(|v2| v2.epoch);
        if !self.is_without_client(holder) {
            return;
        }
        let (Some(asked), Some(held)) = (asked, lease.and_then(|name| self.leases.get_mut(name))) else {
            return;
        };
        let state = held.caching.state;
        if !state.contains(H)
            && let Some(epoch) = &mut held.epoch
        {
            if asked.wrapping_sub(*epoch) < 0x8000 {
                *epoch = asked;
            }
            *epoch = epoch.wrapping_add(u16::from(state == R));
        }
    }

    /// Sends the break of which the client could not be told. It follows the response.
    pub(super) fn send_kept_break(&mut self, now: Duration, id: OpenId) {
        let Some(holder) = self.tables.opens.get(&id).map(Self::holder) else {
            return;
        };
        let Some(caching) = self.caching_mut(holder) else {
            return;
        };
        let from = caching.state;
        let Some(breaking) = caching.breaking.as_mut().filter(|breaking| breaking.unsent) else {
            return;
        };
        breaking.unsent = false;
        let to = breaking.requested;
        self.send_break(now, holder, BreakNotice { from, to, ack: true });
    }
}
