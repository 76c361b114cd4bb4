//! Random operations, checked against a model: a list of opens and a list of locks.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ropeway_smb_wire::lock::{LockElement, LockFlags};

use super::steps::{Step, step};
use super::*;
use crate::server::hub::caching::{H, W};
use crate::server::hub::share_mode::is_oplock_stat;
use crate::server::hub::summary::OpenSummary;
use crate::server::hub::wait_queue::Wait;

/// A waiting request.
#[derive(Clone, Debug)]
enum Parked {
    Open(Box<OpenRequest>),
    Lock(OpenId, LockElement),
    BreakTrigger(OpenId, FileKey, BreakTrigger),
    Beneath(OpenId),
}

/// The hub and the model.
struct Model {
    world: World,
    opens: BTreeMap<OpenId, OpenInfo>,
    locks: Vec<(OpenId, LockElement)>,
    parked: BTreeMap<WaiterId, Parked>,
    breaks: Vec<BreakNotification>,
}

fn element(offset: u64, length: u64, flags: LockFlags) -> LockElement {
    LockElement {
        offset,
        length,
        flags,
    }
}

impl Model {
    fn nth(&self, number: u8) -> Option<OpenId> {
        let count = self.opens.len().max(1);
        self.opens.keys().nth(usize::from(number) % count).copied()
    }

    fn request(&mut self, step: &Step) -> Option<OpenRequest> {
        let Step::Open {
            client: who,
            file: index,
            stream: named,
            access,
            share,
            caching,
            durable,
            overwrites,
            delete_on_close,
        } = *step
        else {
            return None;
        };
        let base = self.world.request();
        let connection = ConnectionId(u64::from(who));
        let accesses = [
            STAT,
            READ,
            AccessMask::WRITE_DATA,
            AccessMask::DELETE,
            AccessMask::FILE_ALL,
            AccessMask::READ_CONTROL,
        ];
        let states = [NONE, R, RH, RW, RWH];
        let levels = [
            OplockLevel::None,
            OplockLevel::LevelII,
            OplockLevel::Exclusive,
            OplockLevel::Batch,
        ];
        let leased = usize::from(caching)
            .checked_sub(4)
            .and_then(|state| states.get(state));
        // A key names one file.
        let number = 1 + who * 8 + u8::try_from(index).unwrap() * 2 + u8::from(named);
        Some(OpenRequest {
            file: if named { stream(index, "S") } else { file(index) },
            path: format!("file{index}").as_str().into(),
            connection,
            session: SessionId(u64::from(who)),
            client: client(who),
            waiter: WaiterId {
                connection,
                ..base.waiter
            },
            access: accesses[usize::from(access)],
            share_access: ShareAccess::from_bits_retain(share),
            oplock: levels[usize::from(caching) % 4],
            lease: leased.map(|state| lease(number, *state)),
            durable: match durable {
                0 => None,
                1 => Some(DurableOpenRequest::V1),
                _ => Some(DurableOpenRequest::V2 {
                    create_guid: Guid(u128::from(base.waiter.request).to_le_bytes()),
                    timeout_ms: 5000,
                    persistent: false,
                }),
            },
            overwrites,
            delete_on_close,
            ..base
        })
    }

    fn denied(&self, request: &OpenRequest) -> bool {
        let mut access = request.access;
        if request.overwrites {
            access |= AccessMask::WRITE_DATA;
        }
        let denies = |(access, share): (AccessMask, ShareAccess),
                      (other, shares): (AccessMask, ShareAccess)| {
            let needs = |access: AccessMask| {
                let bit = |mask, bit: u32| if access.bits() & mask != 0 { bit } else { 0 };
                bit(0x21, 1) + bit(6, 2) + bit(0x1_0000, 4)
            };
            let (one, two) = (needs(access), needs(other));
            one != 0 && two != 0 && (one & !shares.bits() != 0 || two & !share.bits() != 0)
        };
        // Opens closed to make way are gone, although their events were not polled yet.
        let hub = &self.world.hub;
        let same = self
            .opens
            .values()
            .filter(|info| info.file == request.file && hub.info(info.id).is_some());
        let mut same = same.map(|info| (info.access, info.share_access));
        same.any(|other| denies((access, request.share_access), other))
    }

    fn run_open(&mut self, request: OpenRequest) {
        match self.world.outcome(&request) {
            OpenOutcome::Granted(granted) => {
                assert!(!self.denied(&request), "denied by another: {request:?}");
                let info = self.world.hub.info(granted.open).unwrap().clone();
                assert!(self.opens.insert(granted.open, info).is_none());
            }
            OpenOutcome::Refused(NtStatus::DELETE_PENDING) => {
                assert!(self.world.hub.delete_pending(&request.file));
            }
            OpenOutcome::Refused(NtStatus::SHARING_VIOLATION) => {
                let other = self.opens.values().any(|info| {
                    info.file.index == request.file.index && info.file.stream != request.file.stream
                });
                assert!(self.denied(&request) || other, "no open denies {request:?}");
            }
            OpenOutcome::Refused(status) => panic!("{status}"),
            OpenOutcome::Wait => {
                self.parked
                    .insert(request.waiter, Parked::Open(Box::new(request)));
            }
        }
    }

    fn run_lock(&mut self, open: OpenId, element: LockElement, waiter: WaiterId) {
        match self
            .world
            .hub
            .lock_by(self.world.now, open, &[element], None, waiter)
        {
            LockOutcome::Granted => self.locks.push((open, element)),
            LockOutcome::Wait => {
                self.parked.insert(waiter, Parked::Lock(open, element));
            }
            LockOutcome::Refused(status) => {
                assert!(
                    matches!(status, NtStatus::LOCK_NOT_GRANTED | NtStatus::FILE_CLOSED),
                    "{status}"
                );
            }
        }
    }

    fn run_touch(&mut self, open: OpenId, file: FileKey, why: BreakTrigger, waiter: WaiterId) {
        let outcome = self
            .world
            .hub
            .break_caching(self.world.now, Some(open), &file, why, waiter);
        if outcome == BreakOutcome::Wait {
            self.parked.insert(waiter, Parked::BreakTrigger(open, file, why));
        }
    }

    fn run_beneath(&mut self, open: OpenId, waiter: WaiterId) {
        let now = self.world.now;
        match self
            .world
            .hub
            .break_beneath(now, Some(open), 1, &"".into(), waiter)
        {
            BreakOutcome::Ready => {
                let hub = &self.world.hub;
                assert!(
                    self.opens
                        .keys()
                        .all(|other| *other == open || hub.info(*other).is_none())
                );
            }
            BreakOutcome::Wait => {
                self.parked.insert(waiter, Parked::Beneath(open));
            }
            BreakOutcome::Refused(status) => assert_eq!(status, NtStatus::ACCESS_DENIED),
        }
    }

    fn gone(&mut self, closed: &Closed) {
        assert!(self.opens.remove(&closed.open).is_some());
        self.locks.retain(|(open, _)| *open != closed.open);
        let hub = &self.world.hub;
        let same = |info: &&OpenInfo| info.file.index == closed.file.index && hub.info(info.id).is_some();
        if let Some(delete) = &closed.delete {
            let mut left = self.opens.values().filter(same);
            assert!(left.all(|info| delete.file.stream.is_some() && info.file.stream != delete.file.stream));
        }
    }

    fn waiter_of(&mut self, open: OpenId) -> WaiterId {
        let connection = self.world.hub.info(open).and_then(|info| info.connection);
        WaiterId {
            connection: connection.unwrap_or(ConnectionId(0)),
            ..self.world.waiter()
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Open { .. } => {
                if let Some(request) = self.request(step) {
                    self.run_open(request);
                }
            }
            Step::Close(which) => {
                if let Some(open) = self.nth(which) {
                    let closed = self.world.close(open);
                    self.gone(&closed);
                }
            }
            Step::Lock {
                open,
                offset,
                length,
                exclusive,
                waits,
            } => {
                if let Some(open) = self.nth(open) {
                    let kind = if exclusive {
                        LockFlags::EXCLUSIVE_LOCK
                    } else {
                        LockFlags::SHARED_LOCK
                    };
                    let flags = if waits {
                        kind
                    } else {
                        kind | LockFlags::FAIL_IMMEDIATELY
                    };
                    let waiter = self.waiter_of(open);
                    self.run_lock(open, element(offset, length, flags), waiter);
                }
            }
            Step::Unlock(which) => self.unlock(which),
            Step::Acknowledge { which, kept } => self.acknowledge(which, LeaseState::from_bits_retain(kept)),
            Step::BreakTrigger { open, why } => self.break_caching(open, usize::from(why)),
            Step::Delete(which) => {
                if let Some(open) = self.nth(which) {
                    self.world.hub.set_delete_pending(open, which % 2 == 0).unwrap();
                }
            }
            Step::Disconnect(which) => self.disconnect(ConnectionId(u64::from(which % 3))),
            Step::Reconnect(which) => self.reconnect(which),
            Step::Forget(which) => {
                let count = self.parked.len().max(1);
                if let Some(waiter) = self.parked.keys().nth(usize::from(which) % count).copied() {
                    self.parked.remove(&waiter);
                    self.world.hub.forget(waiter);
                }
            }
            Step::Pass(time) => {
                self.world.now += ms(time.into());
                self.world.hub.handle_timeout(self.world.now);
            }
        }
        self.settle();
    }

    fn break_caching(&mut self, open: u8, why: usize) {
        let Some(open) = self.nth(open) else {
            return;
        };
        let whys = [
            BreakTrigger::Read,
            BreakTrigger::Write,
            BreakTrigger::Rename,
            BreakTrigger::Delete,
            BreakTrigger::Replace,
        ];
        let file = self.opens[&open].file.clone();
        let waiter = self.waiter_of(open);
        match whys.get(why) {
            Some(why) => self.run_touch(open, file, *why, waiter),
            None => self.run_beneath(open, waiter),
        }
    }

    fn unlock(&mut self, which: u8) {
        if self.locks.is_empty() {
            return;
        }
        let (open, held) = self.locks[usize::from(which) % self.locks.len()];
        // Of equal ranges, the exclusive lock is unlocked first.
        let same = |(other, lock): &(OpenId, LockElement)| {
            *other == open && (lock.offset, lock.length) == (held.offset, held.length)
        };
        let exclusive =
            |one: &(OpenId, LockElement)| same(one) && one.1.flags.contains(LockFlags::EXCLUSIVE_LOCK);
        let place = self
            .locks
            .iter()
            .position(exclusive)
            .or_else(|| self.locks.iter().position(same));
        self.locks.remove(place.unwrap());
        let waiter = self.world.waiter();
        let unlock = element(held.offset, held.length, LockFlags::UNLOCK);
        assert_eq!(
            self.world
                .hub
                .lock_by(Duration::ZERO, open, &[unlock], None, waiter),
            LockOutcome::Granted
        );
    }

    fn acknowledge(&mut self, which: u8, kept: LeaseState) {
        if self.breaks.is_empty() {
            return;
        }
        let which = usize::from(which) % self.breaks.len();
        let now = self.world.now;
        match self.breaks.remove(which) {
            BreakNotification::Oplock(order) => {
                let open = OpenId::from_file_id(order.file_id).unwrap();
                let _ = self.world.hub.oplock_break_ack(now, open, order.oplock_level);
            }
            BreakNotification::Lease(order) => {
                let ack = LeaseBreak {
                    lease_key: order.lease_key,
                    lease_state: order.new_lease_state & kept,
                };
                let owner = client((order.lease_key.0[0] - 1) / 8);
                let _ = self.world.hub.lease_break_ack(now, owner, &ack);
            }
        }
    }

    fn disconnect(&mut self, connection: ConnectionId) {
        self.parked.retain(|waiter, _| waiter.connection != connection);
        for closed in self.world.hub.disconnect(self.world.now, connection, &[]) {
            self.gone(&closed);
        }
    }

    fn reconnect(&mut self, which: u8) {
        let hub = &self.world.hub;
        let absent: Vec<_> = self
            .opens
            .keys()
            .filter(|open| hub.info(**open).unwrap().connection.is_none())
            .collect();
        if absent.is_empty() {
            return;
        }
        let open = *absent[usize::from(which) % absent.len()];
        let info = hub.info(open).unwrap().clone();
        let key = hub.tables.opens[&open].lease.map(|name| name.key);
        let outcome = self.world.hub.reconnect(
            self.world.now,
            &ReconnectRequest {
                file_id: open.file_id(),
                create_guid: None,
                persistent: false,
                lease: key.map(|key| LeaseRequest {
                    key,
                    state: NONE,
                    v2: None,
                }),
                path: info.path,
                share_id: info.share_id,
                connection: ConnectionId(info.session.0),
                session: info.session,
                tree: info.tree,
                client: info.client,
                user: info.user,
                channel_sequence: 0,
            },
        );
        assert_eq!(outcome.map(|granted| granted.open), Ok(open));
    }

    /// Handles events until there are none.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let Some(event) = self.world.hub.poll_event() else {
                return;
            };
            match event {
                Event::Break(order) => {
                    assert!(!order.connections.is_empty());
                    self.breaks.push(order.notification);
                }
                Event::Expired(closed) => self.gone(&closed),
                Event::NotifyReady { .. } => panic!("no folder is watched"),
                Event::Wake(waiter) => match self.parked.remove(&waiter) {
                    Some(Parked::Open(request)) => self.run_open(*request),
                    Some(Parked::Lock(open, element)) => self.run_lock(open, element, waiter),
                    Some(Parked::BreakTrigger(open, file, why)) => self.run_touch(open, file, why, waiter),
                    Some(Parked::Beneath(open)) => self.run_beneath(open, waiter),
                    None => panic!("woken twice, or forgotten: {waiter:?}"),
                },
            }
        }
        panic!("no end");
    }

    /// Compares the summaries with a recount.
    fn check_summaries(&self) {
        let hub = &self.world.hub;
        for (key, base) in &hub.tables.bases {
            for stream in &base.streams {
                let mut counted = OpenSummary::default();
                let opens = hub.tables.opens.values();
                for open in
                    opens.filter(|open| open.info.file.base() == *key && open.info.file.stream == stream.name)
                {
                    counted.add(open);
                    let holder = Hub::holder(open);
                    counted.set_caching(holder, hub.caching(holder).unwrap().state);
                }
                assert_eq!(stream.summary, counted);
            }
        }
    }

    /// Checks the invariants in the documentation of the hub.
    fn check(&self) {
        self.check_summaries();
        let hub = &self.world.hub;
        assert_eq!(hub.open_count(), self.opens.len());
        for (number, (one, info)) in self.opens.iter().enumerate() {
            let holder = Hub::holder(&hub.tables.opens[one]);
            let writes = hub.caching(holder).unwrap().state.contains(W);
            for (two, other) in self
                .opens
                .iter()
                .skip(number + 1)
                .filter(|(_, other)| other.file == info.file)
            {
                let mode = |open: &OpenId| hub.tables.opens[open].mode();
                assert!(!mode(one).conflicts(mode(two)), "{info:?} {other:?}");
                let other_holder = Hub::holder(&hub.tables.opens[two]);
                let also = hub.caching(other_holder).unwrap().state.contains(W);
                let stat =
                    |info: &OpenInfo| is_oplock_stat(info.access) || info.access == AccessMask::READ_CONTROL;
                if holder != other_holder {
                    assert!(!(writes && also), "two cache writes");
                    assert!(
                        (!writes || stat(other)) && (!also || stat(info)),
                        "{info:?} {other:?}"
                    );
                }
            }
        }
        for (number, (open, lock)) in self.locks.iter().enumerate() {
            for (other, two) in &self.locks[number + 1..] {
                let exclusive = |lock: &LockElement| lock.flags.contains(LockFlags::EXCLUSIVE_LOCK);
                let bytes = |lock: &LockElement| lock.offset..lock.offset + lock.length;
                let meet = bytes(lock).any(|byte| bytes(two).contains(&byte));
                let excluded = exclusive(lock) && open != other || exclusive(two);
                let same_file = self.opens[open].file == self.opens[other].file;
                assert!(!(same_file && meet && excluded), "{lock:?} {two:?}");
            }
        }
        self.check_waits();
    }

    fn check_waits(&self) {
        let hub = &self.world.hub;
        assert_eq!(hub.waiter_count(), self.parked.len());
        for waiter in self.parked.keys() {
            match hub.waits.get(*waiter).unwrap() {
                Wait::Breaks { holders, .. } => {
                    assert!(
                        holders.iter().any(|holder| hub.is_breaking(*holder)),
                        "waits for nothing"
                    );
                    let timed = |holder: &Holder| hub.due.contains_key(&Timer::Break(*holder));
                    assert!(
                        holders
                            .iter()
                            .all(|holder| !hub.is_breaking(*holder) || timed(holder))
                    );
                }
                Wait::Lock(wanted) => {
                    let file = &self.opens[&wanted.open].file;
                    let stream = hub.tables.stream(file).unwrap();
                    assert!(
                        stream.locks.iter().any(|lock| lock.conflicts_with(wanted)),
                        "waits for nothing"
                    );
                }
                Wait::LocalLock(_) | Wait::Changes(_) | Wait::PipeData(_) => panic!(),
            }
        }
        for open in self.opens.keys() {
            let open = &hub.tables.opens[open];
            if open.info.connection.is_none() {
                assert!(hub.caching(Hub::holder(open)).unwrap().state.contains(H));
            }
        }
    }
}

proptest! {
    #[test]
    fn random_use(steps in proptest::collection::vec(step(), 1..120)) {
        let mut model = Model {
            world: world(),
            opens: BTreeMap::new(),
            locks: Vec::new(),
            parked: BTreeMap::new(),
            breaks: Vec::new(),
        };
        for step in &steps {
            model.run(step);
            model.check();
        }
        // No client acknowledges any more, then all disconnect.
        while let Some(due) = model.world.hub.poll_timeout() {
            model.world.now = due;
            model.world.hub.handle_timeout(due);
            model.settle();
            model.check();
        }
        for connection in 0..3 {
            model.disconnect(ConnectionId(connection));
            model.settle();
        }
        while let Some(due) = model.world.hub.poll_timeout() {
            model.world.hub.handle_timeout(due);
            model.settle();
        }
        model.world.assert_empty();
    }
}
