//! Client, server, and the line between them, which cuts bytes wherever it likes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::peer::{self, END_OF_FILE, MISSING, Peer, Setup, TREE};
use crate::{Random, content};
use ropeway_block::{Block, Pool};
use ropeway_smb_proto::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{
    Chain, Config, Connection, CryptoJob, Event, Jobs, Operation, PeerMisbehaved, Reply, Ticket,
};
use ropeway_smb_proto::secret::Password;
use ropeway_smb_wire::close::{CloseFlags, CloseRequest};
use ropeway_smb_wire::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, ImpersonationLevel, OplockLevel, ShareAccess,
};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest};
use ropeway_smb_wire::tree_connect::TreeConnectRequest;
use ropeway_smb_wire::write::{WriteFlags, WriteRequest};
use ropeway_smb_wire::{FileId, FileTime, Guid, NtStatus, Text, TreeId, bare};

pub(crate) const BLOCK: usize = 256 * 1024;

/// What an operation should come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read(u64, usize),
    Write(u64, usize),
    Create(bool),
    Other(Command),
    Watch,
}

pub(crate) struct World {
    pub(crate) client: Connection,
    pub(crate) peer: Peer,
    pub(crate) random: Random,
    pub(crate) pool: Pool,
    pub(crate) to_client: Vec<u8>,
    pub(crate) to_peer: Vec<u8>,
    pub(crate) open: BTreeMap<Ticket, Vec<Kind>>,
    pub(crate) replied: u32,
    pub(crate) dropped: u32,
    pub(crate) events: Vec<Event>,
    /// Most bytes that the line moves at once.
    pub(crate) chunk: usize,
    pub(crate) now: Duration,
    /// Jobs that wait for a worker.
    pub(crate) jobs: Vec<CryptoJob>,
    pub(crate) jobs_run: u32,
    /// Share in percent of moments at which a worker has time.
    pub(crate) diligence: usize,
    workers: Random,
}

pub(crate) fn login(user: &str, password: &str) -> SpnegoClient {
    let credentials = if user.is_empty() {
        Credentials::anonymous()
    } else {
        Credentials::with_password("", user, &Password::from(password))
    };
    let entropy = NtlmEntropy {
        now: FileTime(7),
        client_challenge: [1; 8],
        session_key: [2; 16].into(),
    };
    SpnegoClient::new(vec![Box::new(NtlmClient::new(
        credentials,
        "here".into(),
        None,
        entropy,
    ))])
}

/// Every frame of so many bytes is left to a job, whatever the algorithm.
pub(crate) fn jobs(from: usize) -> Option<Jobs> {
    Some(Jobs { from, fast_too: true })
}

pub(crate) fn config() -> Config {
    Config {
        client_guid: Guid([7; 16]),
        host: "peer".into(),
        io_max: 1 << 20,
        credits_target: 512,
        ..Config::default()
    }
}

impl World {
    pub(crate) fn new(config: Config, mut setup: Setup) -> Self {
        setup.reorders |= config.jobs.is_some();
        let seed = setup.seed;
        Self {
            client: Connection::new(config, [9; 32]),
            peer: Peer::new(setup),
            random: Random::new(seed ^ 0x5EED),
            pool: Pool::new(BLOCK, 64),
            to_client: Vec::new(),
            to_peer: Vec::new(),
            open: BTreeMap::new(),
            replied: 0,
            dropped: 0,
            events: Vec::new(),
            chunk: usize::MAX,
            now: Duration::ZERO,
            jobs: Vec::new(),
            jobs_run: 0,
            diligence: 40,
            workers: Random::new(seed ^ 0xB0B),
        }
    }

    /// Logged in, in a share.
    pub(crate) fn ready(config: Config, setup: Setup) -> Self {
        let mut world = Self::new(config, setup);
        world.client.log_in(login("anna", "secret")).unwrap();
        world.enter();
        world.settle();
        assert!(world.open.is_empty(), "{:?} {:?}", world.client, world.events);
        world
    }

    pub(crate) fn submit(&mut self, chain: Chain, kinds: Vec<Kind>) -> Option<Ticket> {
        match self.client.submit(chain) {
            Ok(ticket) => {
                assert!(self.open.insert(ticket, kinds).is_none(), "tickets are unique");
                Some(ticket)
            }
            Err(_) => None,
        }
    }

    pub(crate) fn enter(&mut self) {
        let request = TreeConnectRequest {
            flags: Default::default(),
            path: Text::from("\\\\peer\\share"),
        };
        let operation = Operation::encoded(Command::TreeConnect, TreeId(0), |w| request.encode(w));
        self.submit(Chain::one(operation), vec![Kind::Other(Command::TreeConnect)]);
    }

    /// Runs jobs as long as a worker has time, any of them first.
    pub(crate) fn work(&mut self) -> Result<(), PeerMisbehaved> {
        self.jobs.extend(std::iter::from_fn(|| self.client.poll_job()));
        while !self.jobs.is_empty() && self.workers.percent(self.diligence) {
            self.work_once()?;
        }
        Ok(())
    }

    /// Runs one of the jobs.
    pub(crate) fn work_once(&mut self) -> Result<(), PeerMisbehaved> {
        let place = self.workers.below(self.jobs.len());
        let done = self.jobs.swap_remove(place).run();
        self.jobs_run += 1;
        self.now += Duration::from_millis(1);
        let outcome = self.client.job_done(self.now, done);
        self.jobs.extend(std::iter::from_fn(|| self.client.poll_job()));
        outcome
    }

    /// Moves some bytes each way.
    pub(crate) fn step(&mut self) -> Result<(), PeerMisbehaved> {
        self.work()?;
        while let Some(transmit) = self.client.poll_transmit() {
            for part in &transmit.parts {
                self.to_peer.extend_from_slice(part.as_slice());
            }
        }
        let count = self.some(self.to_peer.len());
        let rest = self.to_peer.split_off(count);
        let bytes = std::mem::replace(&mut self.to_peer, rest);
        self.peer.feed(&bytes);
        self.peer.work();
        self.to_client.append(&mut self.peer.output);
        let count = self.some(self.to_client.len());
        let outcome = self.deliver(count);
        self.take_events();
        outcome
    }

    fn some(&mut self, length: usize) -> usize {
        if length <= 1 || self.chunk == usize::MAX {
            return length;
        }
        (1 + self.random.below(self.chunk)).min(length)
    }

    /// Gives the client the first `count` bytes that are on their way.
    pub(crate) fn deliver(&mut self, mut count: usize) -> Result<(), PeerMisbehaved> {
        while count > 0 {
            let receive = self.client.receive();
            let room = receive.first.len() + receive.second.len();
            if room == 0 {
                assert!(self.client.ended().is_some(), "there is always room");
                self.to_client.clear();
                return Ok(());
            }
            let moved = room.min(count);
            let in_first = receive.first.len().min(moved);
            receive.first[..in_first].copy_from_slice(&self.to_client[..in_first]);
            receive.second[..moved - in_first].copy_from_slice(&self.to_client[in_first..moved]);
            self.to_client.drain(..moved);
            count -= moved;
            self.now += Duration::from_millis(1);
            self.client.received(self.now, moved)?;
            self.work()?;
        }
        Ok(())
    }

    /// Until nothing moves.
    pub(crate) fn settle(&mut self) {
        for _ in 0..200_000 {
            self.step().expect("the server behaves");
            let moves = !self.to_peer.is_empty() || !self.to_client.is_empty() || !self.peer.is_idle();
            let still = !moves && self.client.jobs() == 0;
            if still
                && self.client.poll_transmit().is_none_or(|transmit| {
                    for part in &transmit.parts {
                        self.to_peer.extend_from_slice(part.as_slice());
                    }
                    false
                })
            {
                return;
            }
        }
        panic!("no end: {:?}", self.client);
    }

    pub(crate) fn take_events(&mut self) {
        // The end waits for jobs that are out.
        while self.client.ended().is_some() && !self.jobs.is_empty() {
            self.work_once().expect("after the end there is nothing to find");
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Replied { ticket, replies } => {
                    let kinds = self.open.remove(&ticket).expect("a ticket is answered once");
                    self.replied += 1;
                    assert_eq!(kinds.len(), replies.len());
                    let has_failed = replies.iter().any(|reply| reply.status().is_error());
                    for (kind, reply) in kinds.iter().zip(replies) {
                        check(kind, &reply);
                        check_payload(kind, reply.returned.as_ref(), has_failed);
                    }
                }
                Event::Dropped {
                    ticket, operations, ..
                } => {
                    let kinds = self.open.remove(&ticket).expect("a ticket is dropped once");
                    self.dropped += 1;
                    if operations.is_empty() {
                        // A TREE_CONNECT that was held.
                        continue;
                    }
                    assert_eq!(kinds.len(), operations.len());
                    for (kind, operation) in kinds.iter().zip(&operations) {
                        check_returned(kind, operation);
                    }
                }
                other => self.events.push(other),
            }
        }
    }

    /// A block as the file holds it at `offset`.
    pub(crate) fn block(&self, offset: u64, length: usize) -> Option<Block> {
        let mut block = self.pool.try_get()?;
        block.capacity_mut()[..length].copy_from_slice(content(offset, length));
        block.set_len(length);
        Some(block.freeze())
    }

    pub(crate) fn read(&self, file: FileId, offset: u64, length: usize) -> Option<Operation> {
        let request = ReadRequest {
            file_id: file,
            offset,
            length: length as u32,
            minimum_count: 0,
            flags: ReadFlags::default(),
            channel: Channel::NONE,
        };
        let mut operation = Operation::encoded(Command::Read, TREE, |w| request.encode(w));
        operation.receive = Some(self.pool.try_get()?);
        Some(operation)
    }

    pub(crate) fn write(&self, file: FileId, offset: u64, length: usize) -> Option<Operation> {
        let request = WriteRequest {
            file_id: file,
            offset,
            flags: WriteFlags::default(),
            channel: Channel::NONE,
        };
        let mut operation =
            Operation::encoded(Command::Write, TREE, |w| request.encode_head(w, length as u32));
        operation.payload = Some(self.block(offset, length)?);
        Some(operation)
    }
}

pub(crate) fn create(name: &str) -> Operation {
    let request = CreateRequest {
        oplock_level: OplockLevel::None,
        impersonation_level: ImpersonationLevel::default(),
        desired_access: AccessMask::FILE_GENERIC_READ,
        file_attributes: Default::default(),
        share_access: ShareAccess::default(),
        disposition: CreateDisposition::Open,
        options: CreateOptions::default(),
        name: name.into(),
        contexts: Vec::new(),
    };
    Operation::encoded(Command::Create, TREE, |w| request.encode(w))
}

pub(crate) fn close(file_id: FileId) -> Operation {
    let request = CloseRequest {
        flags: CloseFlags::default(),
        file_id,
    };
    Operation::encoded(Command::Close, TREE, |w| request.encode(w))
}

pub(crate) fn echo() -> Operation {
    Operation::encoded(Command::Echo, TreeId(0), |w| bare::EchoRequest.encode(w))
}

/// The played server looks at nothing of it.
pub(crate) fn watch() -> Operation {
    Operation::new(
        Command::ChangeNotify,
        TREE,
        peer::body(|w| {
            w.u16(32);
            w.zeros(30);
        }),
    )
}

fn check(kind: &Kind, reply: &Reply) {
    let status = reply.status();
    match kind {
        Kind::Read(offset, asked) => {
            let block = reply.payload.as_ref().expect("a READ's block comes back");
            if status == NtStatus::SUCCESS {
                assert!(*offset < END_OF_FILE && !block.is_empty() && block.len() <= *asked);
                assert_eq!(
                    block[..],
                    *content(*offset, block.len()),
                    "what is read is what the file holds"
                );
            } else {
                assert!(block.is_empty());
                assert!(
                    matches!(
                        status,
                        NtStatus::END_OF_FILE | NtStatus::FILE_CLOSED | NtStatus::NETWORK_SESSION_EXPIRED
                    ),
                    "{status}"
                );
            }
        }
        Kind::Create(found) => {
            let expected = if *found {
                NtStatus::SUCCESS
            } else {
                NtStatus::OBJECT_NAME_NOT_FOUND
            };
            assert!(status == expected || status == NtStatus::NETWORK_SESSION_EXPIRED);
        }
        Kind::Write(..) => assert_eq!(reply.header.command, Command::Write),
        Kind::Other(command) => assert_eq!(reply.header.command, *command),
        Kind::Watch => assert_eq!(status, NtStatus::CANCELLED),
    }
}

/// Blocks come back, whatever became of the request, as they were.
fn check_returned(kind: &Kind, operation: &Operation) {
    match kind {
        Kind::Read(..) => assert!(operation.receive.is_some()),
        _ => check_payload(kind, operation.payload.as_ref(), true),
    }
    assert!(!operation.body.is_empty());
}

/// A WRITE's block comes back from what failed, and is not sealed any more.
fn check_payload(kind: &Kind, payload: Option<&Block>, has_failed: bool) {
    match (kind, payload) {
        (Kind::Write(offset, length), Some(payload)) if has_failed => {
            assert_eq!(payload[..], *content(*offset, *length));
        }
        (Kind::Write(..), None) => assert!(!has_failed, "a WRITE's block comes back"),
        (_, payload) => assert!(payload.is_none()),
    }
}

/// One thing among those a client does.
pub(crate) fn anything(world: &mut World) {
    if world.random.percent(8) {
        let ticket = world.submit(Chain::one(watch()), vec![Kind::Watch]);
        if let Some(ticket) = ticket.filter(|_| world.random.percent(40)) {
            world.client.cancel(ticket);
        }
        return;
    }
    // None: no block is free.
    let Some((mut chain, kinds)) = some_chain(world) else {
        return;
    };
    let negotiated = world.client.negotiated();
    let can_seal = negotiated.is_some_and(|negotiated| negotiated.cipher.is_some());
    chain.encrypt = can_seal && world.random.percent(10);
    // Somebody else holds the block sometimes, for a while or for good.
    let held: Vec<Block> = if world.random.percent(20) {
        let payloads = chain
            .operations
            .iter()
            .filter_map(|operation| operation.payload.clone());
        payloads.collect()
    } else {
        Vec::new()
    };
    world.submit(chain, kinds);
    if world.random.percent(50) {
        let _ = world.step();
    }
    drop(held);
}

fn some_chain(world: &mut World) -> Option<(Chain, Vec<Kind>)> {
    let file = FileId {
        persistent: 1,
        volatile: 1,
    };
    let negotiated = world.client.negotiated();
    let large = negotiated.is_some_and(|negotiated| negotiated.multi_credit);
    let length = match world.random.below(10) {
        0 if large => 65_537 + world.random.below(BLOCK - 66_000),
        1 => 30_000 + world.random.below(35_000),
        _ => 1 + world.random.below(6000),
    };
    let offset = world.random.next() % (1 << 19);
    let found = world.random.percent(70);
    let name = if found { "file" } else { MISSING };
    let closed = Kind::Other(Command::Close);
    Some(match world.random.below(11) {
        0..=2 => {
            let read = world.read(file, offset, length)?;
            (Chain::one(read), vec![Kind::Read(offset, length)])
        }
        3..=4 => {
            let write = world.write(file, offset, length)?;
            (Chain::one(write), vec![Kind::Write(offset, length)])
        }
        5 => {
            let read = world.read(file, END_OF_FILE, length)?;
            (Chain::one(read), vec![Kind::Read(END_OF_FILE, length)])
        }
        6 | 7 => {
            let write = world.write(FileId::RELATED, offset, length)?;
            let operations = vec![create(name), write, close(FileId::RELATED)];
            let kinds = vec![Kind::Create(found), Kind::Write(offset, length), closed];
            (Chain::related(operations), kinds)
        }
        8 | 9 => {
            let read = world.read(FileId::RELATED, offset, length)?;
            let operations = vec![create(name), read, close(FileId::RELATED)];
            let kinds = vec![Kind::Create(found), Kind::Read(offset, length), closed];
            (Chain::related(operations), kinds)
        }
        _ => {
            let chain = Chain {
                operations: vec![echo(), create("a"), echo()],
                ..Chain::default()
            };
            let echo = Kind::Other(Command::Echo);
            (chain, vec![echo.clone(), Kind::Create(true), echo])
        }
    })
}

impl World {
    /// The id of the next request.
    pub(crate) fn next_id(&self) -> u64 {
        self.peer.next_id()
    }
}
