//! Opening ([MS-SMB2] 3.3.5.9; [MS-FSA] 2.1.5.1).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Hub;
use super::caching::{Caching, H, NONE, R, W, level_of, valid};
use super::durable::{DurableGrant, DurableWish};
use super::event::Event;
use super::ids::{ConnectionId, FileKey, Holder, LeaseName, OpenId, WaiterId};
use super::lease::{GrantedLease, LeaseRequest};
use super::sequence::Sequence;
use super::share_mode::{Mode, is_lease_stat, is_oplock_stat};
use super::table::{Open, OpenInfo};
use super::wait::Wait;
use ropeway_smb_wire::create::{AccessMask, OplockLevel, ShareAccess};
use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::{Guid, LeaseKey, NtStatus, SessionId, Text, TreeId};

/// A CREATE, after its name was found and its rights were checked, and before the file is emptied or anything else is
/// done to it. A file that does not exist yet is made first.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// What to open.
    pub file: FileKey,
    /// Its path without the stream.
    pub path: Text,
    /// Its share.
    pub share_id: u32,
    /// It is a folder.
    pub directory: bool,
    /// It was there before this request.
    pub existed: bool,
    /// Its length now: locks beyond it do not keep anybody from caching (smb2.lease.lock2).
    pub size: u64,
    /// It will be emptied.
    pub overwrites: bool,
    /// Rights that will be granted, none of them generic.
    pub access: AccessMask,
    /// What others may do meanwhile.
    pub share_access: ShareAccess,
    /// It goes when this open closes.
    pub delete_on_close: bool,
    /// The oplock asked for; not looked at with a lease.
    pub oplock: OplockLevel,
    /// The lease asked for (`oplock_level` said so, and the dialect has it).
    pub lease: Option<LeaseRequest>,
    /// Whether it is to survive a lost connection.
    pub durable: Option<DurableWish>,
    /// `AppInstanceId` ([MS-SMB2] 2.2.13.2.13).
    pub app_instance: Option<Guid>,
    /// `SMB2_FLAGS_REPLAY_OPERATION` is set.
    pub replay: bool,
    /// `ChannelSequence`; 0 before 3.0.
    pub channel_sequence: u16,
    /// Its connection.
    pub connection: ConnectionId,
    /// Its session.
    pub session: SessionId,
    /// Its tree.
    pub tree: TreeId,
    /// The connection's `ClientGuid`.
    pub client: Guid,
    /// Who asks; compared only.
    pub user: Arc<str>,
    /// The request.
    pub waiter: WaiterId,
}

/// An open that was made, found, or found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its number.
    pub open: OpenId,
    /// For the response; `Lease` with a lease.
    pub oplock: OplockLevel,
    /// For the response.
    pub lease: Option<GrantedLease>,
    /// For the response.
    pub durable: Option<DurableGrant>,
    /// It was made by an earlier request, which this one repeats ([MS-SMB2] 3.3.5.9.10): nothing is to be done to the
    /// file.
    pub replayed: bool,
}

/// What becomes of a CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// It is open.
    Granted(Granted),
    /// It fails.
    Refused(NtStatus),
    /// Others have been told to make room; the whole request is executed again after [`Event::Wake`]. If that comes to an
    /// end without another [`Hub::open`], the waiter is to be forgotten.
    Wait,
}

/// What stands in the way of an open.
#[derive(Debug, Default)]
struct Obstacles {
    /// Somebody denies it.
    violation: bool,
    /// Who has to give up what, and keeps what.
    breaks: Vec<(Holder, LeaseState)>,
    /// Those of them that have to answer first.
    waits: Vec<Holder>,
    /// Opens whose client is away.
    absent: BTreeSet<OpenId>,
}

impl OpenRequest {
    fn lease_name(&self) -> Option<LeaseName> {
        let lease = self.lease.as_ref()?;
        lease.sane(self.directory)?;
        Some(LeaseName {
            client: self.client,
            key: lease.key,
        })
    }

    fn empties(&self) -> bool {
        self.overwrites && self.existed
    }

    /// What it does to others: emptying is writing.
    fn mode(&self) -> Mode {
        let mut access = self.access;
        if self.empties() {
            access |= AccessMask::WRITE_DATA;
        }
        Mode {
            access,
            share: self.share_access,
        }
    }

    /// It takes no notice of what that holder caches, and the holder none of it ([MS-FSA] 2.1.4.12).
    fn passes_by(&self, holder: Holder) -> bool {
        !self.empties()
            && match holder {
                Holder::Lease(_) => is_lease_stat(self.access),
                Holder::Oplock(_) => is_oplock_stat(self.access),
            }
    }

    fn create_key(&self) -> Option<(Guid, Guid)> {
        match self.durable {
            Some(DurableWish::V2 { create_guid, .. }) => Some((self.client, create_guid)),
            _ => None,
        }
    }
}

impl Hub {
    /// Opens. A repetition of the same request after [`Event::Wake`] bears the same waiter.
    pub fn open(&mut self, now_ms: u64, request: &OpenRequest) -> OpenOutcome {
        self.unwait(request.waiter);
        let create = request.create_key();
        if let Some(key) = create
            && let Some(outcome) = self.open_again(request, key)
        {
            return outcome;
        }
        let outcome = self.open_new(now_ms, request);
        match (&outcome, create) {
            (OpenOutcome::Wait, Some(key)) => self.creates.wait(key, request.session, request.waiter),
            (OpenOutcome::Granted(granted), Some(key)) => {
                self.creates.made(key, granted.open, request.waiter)
            }
            _ => self.creates.done(request.waiter),
        }
        outcome
    }

    fn open_new(&mut self, now_ms: u64, request: &OpenRequest) -> OpenOutcome {
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
        let mut in_the_way = self.predecessors(request);
        // Each round but the last closes an open.
        loop {
            let mut deleted = false;
            for open in in_the_way {
                deleted |= self.give_up(now_ms, open);
            }
            if deleted {
                // The file goes first, then the request sees what there is.
                self.events.push_back(Event::Wake(request.waiter));
                return OpenOutcome::Wait;
            }
            if self.delete_pending(&request.file) {
                return OpenOutcome::Refused(NtStatus::DELETE_PENDING);
            }
            let obstacles = self.obstacles(request);
            if obstacles.absent.is_empty() {
                return self.pass(now_ms, request, &obstacles);
            }
            in_the_way = obstacles.absent;
        }
    }

    /// Opens of the same application that has moved to another client ([MS-SMB2] 3.3.5.9.13).
    fn predecessors(&self, request: &OpenRequest) -> BTreeSet<OpenId> {
        if request.app_instance.is_none() {
            return BTreeSet::new();
        }
        let opens = self.opens_of(&request.file);
        let same = opens.filter(|info| info.app_instance == request.app_instance);
        let elsewhere =
            same.filter(|info| info.client != request.client && info.share_id == request.share_id);
        elsewhere.map(|info| info.id).collect()
    }

    fn pass(&mut self, now_ms: u64, request: &OpenRequest, obstacles: &Obstacles) -> OpenOutcome {
        for (holder, keep) in &obstacles.breaks {
            self.take_back(now_ms, *holder, *keep);
        }
        if !obstacles.waits.is_empty() {
            let wait = Wait::Breaks {
                base: request.file.base(),
                holders: obstacles.waits.clone(),
            };
            return match self.wait(request.waiter, wait) {
                true => OpenOutcome::Wait,
                false => OpenOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES),
            };
        }
        if obstacles.violation {
            return OpenOutcome::Refused(NtStatus::SHARING_VIOLATION);
        }
        OpenOutcome::Granted(self.admit(request))
    }

    /// [MS-FSA] 2.1.5.1.2: if somebody denies the open, handle caching is called back, for its holder may not need the
    /// file any more; else write caching, and all caching of a file that is emptied.
    fn obstacles(&self, request: &OpenRequest) -> Obstacles {
        let mut obstacles = Obstacles::default();
        let own = request.lease_name().map(Holder::Lease);
        obstacles.violation = self.is_denied(&request.file, request.mode());
        let demanded = if obstacles.violation { H } else { W };
        // Emptying takes all there is.
        let concerned = if request.empties() { R } else { demanded };
        let mut holders = self.holders(&request.file, concerned, own);
        if obstacles.violation {
            obstacles.absent.extend(self.absent_deniers(request));
            holders.extend(self.handles_across(request));
        }
        for holder in holders {
            let state = self.caching(holder).map_or(NONE, |caching| caching.state);
            let keep = if request.empties() && !obstacles.violation {
                NONE
            } else {
                valid(state.difference(demanded))
            };
            if keep == state || request.passes_by(holder) {
                continue;
            }
            match self.absent(holder) {
                Some(opens) => obstacles.absent.extend(opens),
                None => {
                    obstacles.breaks.push((holder, keep));
                    if state.intersects(demanded) {
                        obstacles.waits.push(holder);
                    }
                }
            }
        }
        obstacles
    }

    /// Whether any open denies an open of that file in that mode.
    pub(super) fn is_denied(&self, file: &FileKey, mode: Mode) -> bool {
        let streams = self.tables.bases.get(&file.base()).map(|base| &base.streams);
        let mut streams = streams.into_iter().flatten();
        streams.any(|stream| match (&file.stream, &stream.name) {
            (one, two) if one == two => stream.crowd.denies(mode),
            (None, Some(_)) => stream.crowd.denies_base(mode),
            (Some(_), None) => stream.crowd.denies_stream(mode),
            _ => false,
        })
    }

    fn is_denied_by(file: &FileKey, mode: Mode, open: &Open) -> bool {
        let other = open.mode();
        match (&file.stream, &open.info.file.stream) {
            (one, two) if one == two => mode.conflicts(other),
            (None, Some(_)) => Mode::conflicts_across(mode, other),
            (Some(_), None) => Mode::conflicts_across(other, mode),
            _ => false,
        }
    }

    /// Opens without a client that deny the request.
    fn absent_deniers(&self, request: &OpenRequest) -> Vec<OpenId> {
        let base = self.tables.bases.get(&request.file.base());
        let streams = base.map_or(&[][..], |base| &base.streams).iter();
        streams
            .flat_map(|stream| stream.crowd.absent())
            .filter_map(|id| self.tables.opens.get(&id))
            .filter(|open| Self::is_denied_by(&request.file, request.mode(), open))
            .map(|open| open.info.id)
            .collect()
    }

    /// Who caches handles of the file's other streams, and denies the request.
    fn handles_across(&self, request: &OpenRequest) -> Vec<Holder> {
        let base = self.tables.bases.get(&request.file.base());
        let streams = base.map_or(&[][..], |base| &base.streams).iter();
        let others = streams.filter(|stream| stream.name != request.file.stream);
        let holders = others.flat_map(|stream| stream.crowd.holding(H));
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

    /// The holder's opens, if none of them has a connection.
    pub(super) fn absent(&self, holder: Holder) -> Option<Vec<OpenId>> {
        let is_absent = |open: OpenId| self.info(open).is_none_or(|info| info.connection.is_none());
        match holder {
            Holder::Oplock(open) => is_absent(open).then(|| vec![open]),
            Holder::Lease(name) => {
                let opens = &self.leases.get(name)?.opens;
                let absent = opens.iter().all(|open| is_absent(*open));
                absent.then(|| opens.iter().copied().collect())
            }
        }
    }

    /// Nothing stands in the way.
    fn admit(&mut self, request: &OpenRequest) -> Granted {
        let name = request.lease_name();
        let wanted = self.wanted(request);
        let can = self.grantable(request, name, wanted);
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
            let solid = !is_oplock_stat(request.access);
            self.leases.join(name, (id, solid), &request.file, ask, can);
        }
        self.recount(name.map_or(Holder::Oplock(id), Holder::Lease));
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
