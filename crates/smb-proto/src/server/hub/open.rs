//! CREATE on the global tables ([MS-SMB2] 3.3.5.9; [MS-FSA] 2.1.5.1).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_wire::create::{AccessMask, OplockLevel, ShareAccess};
use ropeway_smb_wire::create_context::{AppInstanceVersion, LeaseState};
use ropeway_smb_wire::{Guid, LeaseKey, NtStatus, SessionId, Text, TreeId};

use super::Hub;
use super::caching::{Caching, H, NONE, R, W, level_of, valid};
use super::durability::{DurableGrant, DurableOpenRequest};
use super::event::Event;
use super::ids::{ConnectionId, FileKey, Holder, LeaseName, OpenId, WaiterId};
use super::lease::{GrantedLease, LeaseRequest};
use super::sequence::Sequence;
use super::share_mode::{ShareMode, is_lease_stat, is_oplock_stat};
use super::table::{Open, OpenInfo};
use super::wait_queue::Wait;

/// An application that may move to another client ([MS-SMB2] 2.2.13.2.13, .15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppInstance {
    /// `AppInstanceId`.
    pub id: Guid,
    /// `AppInstanceVersion`, which grows with each move; only 3.1.1 has it.
    pub version: Option<AppInstanceVersion>,
}

/// A CREATE after its name was found and its rights were checked, and before it changes the file. A
/// file that does not exist is created first.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The file.
    pub file: FileKey,
    /// The path, without the stream.
    pub path: Text,
    /// The share.
    pub share_id: u32,
    /// Whether it is a folder.
    pub directory: bool,
    /// Whether the file existed before this request.
    pub existed: bool,
    /// The current length in bytes. Locks beyond it do not prevent caching (smb2.lease.lock2).
    pub size: u64,
    /// Whether the file will be truncated.
    pub overwrites: bool,
    /// The rights to be granted, without generic rights.
    pub access: AccessMask,
    /// The access that other opens may have.
    pub share_access: ShareAccess,
    /// Whether the file is deleted when this open closes.
    pub delete_on_close: bool,
    /// The requested oplock. Ignored if there is a lease.
    pub oplock: OplockLevel,
    /// The requested lease, if `oplock_level` says so and the dialect supports it.
    pub lease: Option<LeaseRequest>,
    /// The request for durability.
    pub durable: Option<DurableOpenRequest>,
    /// The application instance that opens the file.
    pub app_instance: Option<AppInstance>,
    /// Whether `SMB2_FLAGS_REPLAY_OPERATION` is set.
    pub replay: bool,
    /// `ChannelSequence`; 0 before 3.0.
    pub channel_sequence: u16,
    /// The connection.
    pub connection: ConnectionId,
    /// The session.
    pub session: SessionId,
    /// The tree.
    pub tree: TreeId,
    /// The connection's `ClientGuid`.
    pub client: Guid,
    /// The user. Only compared.
    pub user: Arc<str>,
    /// Identifies the request.
    pub waiter: WaiterId,
}

/// An open that was created, replayed or reconnected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its id.
    pub open: OpenId,
    /// The oplock level for the response; `Lease` with a lease.
    pub oplock: OplockLevel,
    /// The lease context for the response.
    pub lease: Option<GrantedLease>,
    /// The durable context for the response.
    pub durable: Option<DurableGrant>,
    /// An earlier request created the open, and this one replays it ([MS-SMB2] 3.3.5.9.10). Do not
    /// touch the file.
    pub replayed: bool,
}

/// The outcome of a CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// The file is open.
    Granted(Granted),
    /// The request fails.
    Refused(NtStatus),
    /// Other holders must break first. Execute the whole request again after [`Event::Wake`]. If
    /// that ends without another [`Hub::open`], call [`Hub::forget`].
    Wait,
}

/// The conflicts of a CREATE with existing opens.
#[derive(Debug, Default)]
struct Conflicts {
    /// Whether the share modes conflict.
    violation: bool,
    /// Holders that must break, and what they keep.
    breaks: Vec<(Holder, LeaseState)>,
    /// Holders whose acknowledgment must come first.
    waits: Vec<Holder>,
    /// Conflicting opens without a connection.
    absent: BTreeSet<OpenId>,
}

impl OpenRequest {
    fn lease_name(&self) -> Option<LeaseName> {
        let lease = self.lease.as_ref()?;
        lease.supported_state(self.directory)?;
        Some(LeaseName {
            client: self.client,
            key: lease.key,
        })
    }

    fn empties(&self) -> bool {
        self.overwrites && self.existed
    }

    /// Returns the share mode. Truncation counts as writing.
    pub(super) fn mode(&self) -> ShareMode {
        let mut access = self.access;
        if self.empties() {
            access |= AccessMask::WRITE_DATA;
        }
        ShareMode {
            access,
            share: self.share_access,
        }
    }

    /// Returns whether this open and the caching of that holder do not affect each other ([MS-FSA]
    /// 2.1.4.12).
    fn ignores_caching_of(&self, holder: Holder) -> bool {
        !self.empties()
            && match holder {
                Holder::Lease(_) => is_lease_stat(self.access),
                Holder::Oplock(_) => is_oplock_stat(self.access),
            }
    }

    fn create_key(&self) -> Option<(Guid, Guid)> {
        match self.durable {
            Some(DurableOpenRequest::V2 { create_guid, .. }) => Some((self.client, create_guid)),
            _ => None,
        }
    }
}

impl Hub {
    /// Opens a file. The same request, executed again after [`Event::Wake`], carries the same
    /// waiter.
    pub fn open(&mut self, now: Duration, request: &OpenRequest) -> OpenOutcome {
        self.stop_waiting(request.waiter);
        let create = request.create_key();
        if let Some(key) = create
            && let Some(outcome) = self.replay_create(now, request, key)
        {
            return outcome;
        }
        let outcome = self.open_new(now, request);
        match (&outcome, create) {
            (OpenOutcome::Wait, Some(key)) => self.creates.wait(key, request.session, request.waiter),
            (OpenOutcome::Granted(granted), Some(key)) => {
                self.creates.made(key, granted.open, request.waiter)
            }
            _ => self.creates.done(request.waiter),
        }
        outcome
    }

    fn open_new(&mut self, now: Duration, request: &OpenRequest) -> OpenOutcome {
        if self.tables.opens.len() >= self.limits.opens_max {
            return OpenOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES);
        }
        if self.session_open_count(request.session) >= self.limits.opens_per_session_max {
            return OpenOutcome::Refused(NtStatus::TOO_MANY_OPENED_FILES);
        }
        if let Some(name) = request.lease_name()
            && !self.lease_key_fits(name, &request.file)
        {
            return OpenOutcome::Refused(NtStatus::INVALID_PARAMETER);
        }
        let mut in_the_way = match self.predecessors(request) {
            Ok(predecessors) => predecessors,
            Err(status) => return OpenOutcome::Refused(status),
        };
        // Every pass but the last closes an open.
        loop {
            let mut deleted = false;
            for open in in_the_way {
                deleted |= self.close_absent(now, open);
            }
            if deleted {
                // The file must be deleted before the request is executed again.
                self.events.push_back(Event::Wake(request.waiter));
                return OpenOutcome::Wait;
            }
            if self.is_kept_for_absent(request) {
                return OpenOutcome::Refused(NtStatus::FILE_NOT_AVAILABLE);
            }
            if self.is_name_being_deleted(request) {
                return OpenOutcome::Refused(NtStatus::DELETE_PENDING);
            }
            let conflicts = self.conflicts(request);
            if conflicts.absent.is_empty() {
                return self.resolve(now, request, &conflicts);
            }
            in_the_way = conflicts.absent;
        }
    }

    /// Returns whether the name that is opened disappears at its last close. Other names of the
    /// file (hard links) can be opened, as on Windows and Samba.
    fn is_name_being_deleted(&self, request: &OpenRequest) -> bool {
        let Some(base) = self.tables.bases.get(&request.file.base()) else {
            return false;
        };
        let stream = base.stream(request.file.stream.as_ref());
        let pending = base.pending.iter();
        pending
            .chain(stream.and_then(|stream| stream.pending.as_ref()))
            .any(|deletion| deletion.is_of(request.share_id, &request.path))
    }

    /// Returns the opens of the same application instance on another client, which this request
    /// closes ([MS-SMB2] 3.3.5.9.13).
    ///
    /// # Errors
    /// STATUS_FILE_FORCED_CLOSED: one of them has a version, and the request has no greater one.
    /// The specification lets a request without a version close them too. Windows does not
    /// (Microsoft's case `Negative_AppInstanceVersion_SMB311_NoVersion`).
    fn predecessors(&self, request: &OpenRequest) -> Result<BTreeSet<OpenId>, NtStatus> {
        let mut closes = BTreeSet::new();
        let Some(instance) = request.app_instance else {
            return Ok(closes);
        };
        for info in self.opens_of(&request.file) {
            let same = info.app_instance.filter(|other| other.id == instance.id);
            let Some(other) = same else { continue };
            if info.client == request.client || info.share_id != request.share_id {
                continue;
            }
            // Nothing is less than any version.
            if other.version.is_some() && instance.version <= other.version {
                return Err(NtStatus::FILE_FORCED_CLOSED);
            }
            closes.insert(info.id);
        }
        Ok(closes)
    }

    fn resolve(&mut self, now: Duration, request: &OpenRequest, conflicts: &Conflicts) -> OpenOutcome {
        for (holder, keep) in &conflicts.breaks {
            self.start_break(now, *holder, *keep);
        }
        if !conflicts.waits.is_empty() {
            let wait = Wait::Breaks {
                base: request.file.base(),
                holders: conflicts.waits.clone(),
            };
            return match self.wait(request.waiter, wait) {
                true => OpenOutcome::Wait,
                false => OpenOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES),
            };
        }
        if conflicts.violation {
            return OpenOutcome::Refused(NtStatus::SHARING_VIOLATION);
        }
        OpenOutcome::Granted(self.insert_open(request))
    }

    /// Determines the conflicts of a request ([MS-FSA] 2.1.5.1.2). On a share mode conflict handle
    /// caching breaks, as its holder may no longer need the file; otherwise write caching breaks.
    /// Truncation breaks all caching.
    fn conflicts(&self, request: &OpenRequest) -> Conflicts {
        let mut conflicts = Conflicts::default();
        let own = request.lease_name().map(Holder::Lease);
        conflicts.violation = self.is_denied(&request.file, request.mode());
        let demanded = if conflicts.violation { H } else { W };
        // Truncation affects every holder.
        let concerned = if request.empties() { R } else { demanded };
        let mut holders = self.holders(&request.file, concerned, own);
        if conflicts.violation {
            conflicts.absent.extend(self.absent_deniers(request));
            holders.extend(self.handles_across(request));
        }
        for holder in holders {
            let state = self.caching(holder).map_or(NONE, |caching| caching.state);
            let keep = if request.empties() && !conflicts.violation {
                NONE
            } else {
                valid(state.difference(demanded))
            };
            if keep == state || request.ignores_caching_of(holder) {
                continue;
            }
            match self.absent(holder) {
                Some(opens) => conflicts.absent.extend(opens),
                None => {
                    conflicts.breaks.push((holder, keep));
                    if state.intersects(demanded) {
                        conflicts.waits.push(holder);
                    }
                }
            }
        }
        conflicts
    }

    /// Returns whether an existing open conflicts with one of that file in that mode.
    pub(super) fn is_denied(&self, file: &FileKey, mode: ShareMode) -> bool {
        let streams = self.tables.bases.get(&file.base()).map(|base| &base.streams);
        let mut streams = streams.into_iter().flatten();
        streams.any(|stream| match (&file.stream, &stream.name) {
            (one, two) if one == two => stream.summary.denies(mode),
            (None, Some(_)) => stream.summary.denies_base(mode),
            (Some(_), None) => stream.summary.denies_stream(mode),
            _ => false,
        })
    }

    pub(super) fn is_denied_by(file: &FileKey, mode: ShareMode, open: &Open) -> bool {
        let other = open.mode();
        match (&file.stream, &open.info.file.stream) {
            (one, two) if one == two => mode.conflicts(other),
            (None, Some(_)) => ShareMode::conflicts_across(mode, other),
            (Some(_), None) => ShareMode::conflicts_across(other, mode),
            _ => false,
        }
    }

    /// Returns the durable opens without a connection that conflict with the request.
    fn absent_deniers(&self, request: &OpenRequest) -> Vec<OpenId> {
        let base = self.tables.bases.get(&request.file.base());
        let streams = base.map_or(&[][..], |base| &base.streams).iter();
        streams
            .flat_map(|stream| stream.summary.absent())
            .filter_map(|id| self.tables.opens.get(&id))
            .filter(|open| !open.is_persistent())
            .filter(|open| Self::is_denied_by(&request.file, request.mode(), open))
            .map(|open| open.info.id)
            .collect()
    }

    /// Returns the holders of handle caching on other streams of the file that conflict with the
    /// request.
    fn handles_across(&self, request: &OpenRequest) -> Vec<Holder> {
        let base = self.tables.bases.get(&request.file.base());
        let streams = base.map_or(&[][..], |base| &base.streams).iter();
        let others = streams.filter(|stream| stream.name != request.file.stream);
        let holders = others.flat_map(|stream| stream.summary.holding(H));
        let denies = |open: &OpenId| {
            let open = self.tables.opens.get(open);
            open.is_some_and(|open| Self::is_denied_by(&request.file, request.mode(), open))
        };
        holders
            .filter(|holder| match holder {
                Holder::Oplock(open) => denies(open),
                Holder::Lease(name) => self
                    .leases
                    .get(*name)
                    .is_some_and(|held| held.opens.iter().any(denies)),
            })
            .collect()
    }

    /// Whether an open has no connection, and is closed when it is in the way. A persistent one is
    /// not: it is kept until its time is over.
    pub(super) fn is_disposable(&self, open: OpenId) -> bool {
        let open = self.tables.opens.get(&open);
        open.is_some_and(|open| open.info.connection.is_none() && !open.is_persistent())
    }

    /// Returns the opens of a holder if none of them has a connection, and none is persistent.
    pub(super) fn absent(&self, holder: Holder) -> Option<Vec<OpenId>> {
        let is_absent = |open: OpenId| self.info(open).is_none() || self.is_disposable(open);
        match holder {
            Holder::Oplock(open) => is_absent(open).then(|| vec![open]),
            Holder::Lease(name) => {
                let opens = &self.leases.get(name)?.opens;
                let absent = opens.iter().all(|open| is_absent(*open));
                absent.then(|| opens.iter().copied().collect())
            }
        }
    }

    /// Adds the open to the tables and grants its caching. All conflicts have been resolved.
    fn insert_open(&mut self, request: &OpenRequest) -> Granted {
        let name = request.lease_name();
        let wanted = self.requested_caching(request);
        let emptied = request.overwrites || !request.existed;
        let size = (!emptied).then_some(request.size);
        let can = self.grantable(&request.file, size, name, wanted);
        self.last_open += 1;
        let id = OpenId(self.last_open);
        let oplock = match name {
            Some(_) => NONE,
            None => can,
        };
        self.tables.insert(Open {
            info: request.info(id),
            oplock: Caching {
                state: oplock,
                breaking: None,
            },
            lease: name,
            durable: None,
            sequence: Sequence::new(request.channel_sequence),
            lock_count: 0,
            lock_sequences: None,
        });
        if let (Some(name), Some(ask)) = (name, &request.lease) {
            let non_stat = !is_oplock_stat(request.access);
            self.leases
                .join(name, (id, non_stat), &request.file, ask, can, request.directory);
        }
        self.update_caching(name.map_or(Holder::Oplock(id), Holder::Lease));
        let durable = self.make_durable(id, request);
        Granted {
            open: id,
            oplock: match name {
                Some(_) => OplockLevel::Lease,
                None => level_of(oplock),
            },
            lease: name.and_then(|name| self.leases.granted(name, request.lease.as_ref())),
            durable,
            replayed: false,
        }
    }
}

impl OpenRequest {
    fn info(&self, id: OpenId) -> OpenInfo {
        OpenInfo {
            id,
            file: self.file.clone(),
            connection: Some(self.connection),
            session: self.session,
            tree: self.tree,
            client: self.client,
            user: Arc::clone(&self.user),
            share_id: self.share_id,
            access: self.access,
            share_access: self.share_access,
            directory: self.directory,
            delete_on_close: self.delete_on_close,
            path: self.path.clone(),
            parent_lease: self.parent_lease(),
            app_instance: self.app_instance,
        }
    }

    fn parent_lease(&self) -> Option<LeaseKey> {
        self.lease?.v2?.parent
    }
}
