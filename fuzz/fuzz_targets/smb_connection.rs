//! A client's connection whose server sends anything: no panic, no ticket answered twice, no block
//! lost, bounded memory.
//!
//! The first byte is a set of flags (see the constants). Steps follow, each a byte and its
//! parameters. A step may be raw bytes from the server, or a reply to a request of the client,
//! framed here so that the fuzzer gets past framing and message ids.

#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use ropeway_block::Pool;
use ropeway_smb_proto::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{
    Compound, CompressionOffer, Config, Connection, Event, Operation, Signing, Ticket,
};
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, frame_header, frame_len};
use ropeway_smb_wire::header::{self, Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, DialectRevision, NegotiateResponse, SecurityMode};
use ropeway_smb_wire::negotiate_context::{CompressionAlgorithm, CompressionFlags, Context, HashAlgorithm};
use ropeway_smb_wire::read::{Channel, ReadFlags, ReadRequest};
use ropeway_smb_wire::session_setup::{SessionFlags, SessionSetupResponse};
use ropeway_smb_wire::write::{WriteFlags, WriteRequest};
use ropeway_smb_wire::{AsyncId, FileId, FileTime, Guid, NtStatus, Reader, SessionId, TreeId, Writer, bare};

/// NEGOTIATE is answered as an honest server would.
const NEGOTIATED: u8 = 1;
/// The login succeeds too, as a guest.
const LOGGED_IN: u8 = 2;
/// The dialect is 2.1, not 3.1.1.
const OLD: u8 = 4;
/// Compression is negotiated.
const COMPRESSED: u8 = 8;

const IO_MAX: u32 = 64 * 1024;
const BLOCKS: usize = 8;
/// More than the client reserves for receiving: twice what it asks for, and its slack.
const ROOM_MAX: usize = 1 << 18;
const SESSION: SessionId = SessionId(5);
const TREE: TreeId = TreeId(7);
const FILE: FileId = FileId {
    persistent: 1,
    volatile: 1,
};

/// An operation of a compound: a READ with its greatest length, or another request.
type Asked = Option<usize>;

struct World<'a> {
    input: &'a [u8],
    client: Connection,
    pool: Pool,
    /// Requests seen on the line.
    requests: Vec<Header>,
    /// Bytes on their way to the client.
    line: Vec<u8>,
    /// The frame in progress.
    frame: Vec<u8>,
    open: BTreeMap<Ticket, Vec<Asked>>,
    newest: Option<Ticket>,
    now: Duration,
}

fn config(flags: u8) -> Config {
    Config {
        signing: Signing::Offered,
        compression: match flags & COMPRESSED {
            0 => CompressionOffer::Off,
            _ => CompressionOffer::On,
        },
        client_guid: Guid([7; 16]),
        host: "peer".into(),
        io_max: IO_MAX,
        credits_target: 64,
        unprotected_allowed: true,
        ..Config::default()
    }
}

fn login() -> SpnegoClient {
    let entropy = NtlmEntropy {
        wall_time: FileTime(7),
        client_challenge: [1; 8],
        session_key: [2; 16].into(),
    };
    let ntlm = NtlmClient::new(Credentials::anonymous(), "here".into(), None, entropy);
    SpnegoClient::new(vec![Box::new(ntlm)])
}

fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    encode(&mut Writer::within(&mut message, 0));
    message.split_off(HEADER_LEN)
}

impl World<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.input.split_first()?;
        self.input = rest;
        Some(*byte)
    }

    /// Bytes preceded by their two-byte count.
    fn bytes(&mut self) -> Vec<u8> {
        let Some((length, rest)) = self.input.split_first_chunk() else {
            return Vec::new();
        };
        let (bytes, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        self.input = rest;
        bytes.to_vec()
    }

    /// Takes the client's frames and events.
    fn poll(&mut self) {
        let mut sent = Vec::new();
        while let Some(transmit) = self.client.poll_transmit() {
            for part in &transmit.parts {
                sent.extend_from_slice(part.as_slice());
            }
        }
        let mut rest = &sent[..];
        while let Some((head, after)) = rest.split_first_chunk::<FRAME_HEADER_LEN>() {
            let length = frame_len(*head).expect("the client frames");
            let (frame, after) = after.split_at(length);
            for message in header::CompoundMessages::new(frame).map_while(Result::ok) {
                let header = Header::decode(&mut Reader::new(message, "request"));
                self.requests.extend(header.ok());
            }
            rest = after;
        }
        while let Some(event) = self.client.poll_event() {
            self.take(event);
        }
        let under_way = self.client.in_flight() + self.client.queued();
        assert!(
            under_way <= self.open.len(),
            "nothing is under way that nobody asked for"
        );
        let room = self.client.receive();
        assert!(
            room.first.len() + room.second.len() <= ROOM_MAX,
            "no length is believed"
        );
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Replied { ticket, replies } => {
                let asked = self.open.remove(&ticket).expect("a ticket is answered once");
                assert_eq!(asked.len(), replies.len());
                for (asked, reply) in asked.into_iter().zip(replies) {
                    if let Some(length) = asked {
                        let block = reply.payload.expect("a READ's block comes back");
                        assert!(block.len() <= length, "no more than what was asked for");
                    }
                }
            }
            Event::Dropped {
                ticket, operations, ..
            } => {
                let asked = self.open.remove(&ticket).expect("a ticket is dropped once");
                assert!(operations.is_empty() || operations.len() == asked.len());
                for (asked, operation) in asked.iter().zip(&operations) {
                    assert_eq!(asked.is_some(), operation.receive.is_some(), "blocks come back");
                }
            }
            _ => {}
        }
    }

    /// Delivers the bytes on the line to the client, `chunk` bytes at a time.
    fn deliver(&mut self, chunk: usize) {
        let line = std::mem::take(&mut self.line);
        let mut rest = &line[..];
        while !rest.is_empty() {
            let room = self.client.receive();
            let count = (room.first.len() + room.second.len()).min(rest.len()).min(chunk);
            if count == 0 {
                assert!(self.client.ended().is_some(), "there is always room");
                break;
            }
            let (bytes, after) = rest.split_at(count);
            let (first, second) = bytes.split_at(room.first.len().min(count));
            room.first[..first.len()].copy_from_slice(first);
            room.second[..second.len()].copy_from_slice(second);
            rest = after;
            self.now += Duration::from_millis(1);
            if self.client.received(self.now, count).is_err() {
                assert!(self.client.ended().is_some(), "who misbehaves is left");
                break;
            }
            self.poll();
        }
        self.poll();
    }

    /// Appends a message to the frame, and the frame to the line unless more follows.
    fn answer(&mut self, mut header: Header, body: &[u8], more: bool) {
        if more {
            header.next_command = (HEADER_LEN + body.len()).next_multiple_of(8) as u32;
        }
        header.encode(&mut Writer::new(&mut self.frame));
        self.frame.extend_from_slice(body);
        if more {
            self.frame.resize(self.frame.len().next_multiple_of(8), 0);
        } else {
            self.line.extend_from_slice(&frame_header(self.frame.len()));
            self.line.append(&mut self.frame);
        }
    }

    fn negotiate(&mut self, flags: u8) {
        let dialect = if flags & OLD == 0 {
            Dialect::Smb311
        } else {
            Dialect::Smb210
        };
        let mut contexts = Vec::new();
        if dialect == Dialect::Smb311 {
            contexts.push(Context::PreauthIntegrity {
                hash_algorithms: vec![HashAlgorithm::SHA_512],
                salt: &[3; 32],
            });
            if flags & COMPRESSED != 0 {
                contexts.push(Context::Compression {
                    flags: CompressionFlags::CHAINED,
                    algorithms: vec![
                        CompressionAlgorithm::OWN_ZSTD,
                        CompressionAlgorithm::LZ4,
                        CompressionAlgorithm::PATTERN_V1,
                    ],
                });
            }
        }
        let response = NegotiateResponse {
            security_mode: SecurityMode::SIGNING_ENABLED,
            dialect: DialectRevision::Dialect(dialect),
            server_guid: Guid([9; 16]),
            capabilities: Capabilities::LARGE_MTU,
            max_transact_size: IO_MAX,
            max_read_size: IO_MAX,
            max_write_size: IO_MAX,
            system_time: FileTime(7),
            server_start_time: FileTime(0),
            security_buffer: &[],
            contexts,
        };
        self.reply_to_last(SessionId(0), &encoded(|w| response.encode(w)));
    }

    fn log_in(&mut self) {
        let response = SessionSetupResponse {
            session_flags: SessionFlags::IS_GUEST,
            security_buffer: &[],
        };
        self.reply_to_last(SESSION, &encoded(|w| response.encode(w)));
    }

    fn reply_to_last(&mut self, session: SessionId, body: &[u8]) {
        let request = self.requests.last().expect("the client asked");
        let mut header = request.reply(NtStatus::SUCCESS);
        header.session_id = session;
        header.credits = 16;
        self.answer(header, body, false);
        self.deliver(usize::MAX);
    }

    fn read(&self, length: u32) -> Option<Operation> {
        let request = ReadRequest {
            file_id: FILE,
            offset: 0,
            length,
            minimum_count: 0,
            flags: ReadFlags::default(),
            channel: Channel::NONE,
        };
        let mut operation = Operation::encoded(Command::Read, TREE, |w| request.encode(w));
        operation.receive = Some(self.pool.try_get()?);
        Some(operation)
    }

    fn write(&self, length: u32) -> Option<Operation> {
        let request = WriteRequest {
            file_id: FILE,
            offset: 0,
            flags: WriteFlags::default(),
            channel: Channel::NONE,
        };
        let mut operation = Operation::encoded(Command::Write, TREE, |w| request.encode_head(w, length));
        let mut block = self.pool.try_get()?;
        block.capacity_mut()[..length as usize].fill(0x5A);
        block.set_len(length as usize);
        operation.payload = Some(block.freeze());
        Some(operation)
    }

    /// Two bits for each operation.
    fn submit(&mut self, kinds: u8, length: u8) {
        let length = u32::from(length) * 256 + 1;
        let mut operations = Vec::new();
        for at in 0..4 {
            operations.extend(match kinds >> (2 * at) & 3 {
                0 => None,
                1 => self.read(length),
                2 => self.write(length),
                _ => Some(Operation::encoded(Command::Echo, TreeId(0), |w| {
                    bare::EchoRequest.encode(w);
                })),
            });
        }
        let asked = operations.iter().map(|operation| {
            let is_read = operation.receive.is_some();
            is_read.then_some(length as usize)
        });
        let asked = asked.collect();
        if let Ok(ticket) = self.client.submit(Compound {
            operations,
            ..Compound::default()
        }) {
            assert!(self.open.insert(ticket, asked).is_none(), "tickets are unique");
            self.newest = Some(ticket);
        }
    }

    fn step(&mut self) -> Option<()> {
        let step = self.byte()?;
        match step & 7 {
            // Raw bytes.
            0 => {
                let bytes = self.bytes();
                self.line.extend_from_slice(&bytes);
            }
            // The content of a frame.
            1 => {
                let bytes = self.bytes();
                self.line.extend_from_slice(&frame_header(bytes.len()));
                self.line.extend_from_slice(&bytes);
            }
            // A reply to a request, counted from the newest: its status, flags and body.
            2 | 3 => {
                let (back, status, flags) = (self.byte()?, self.byte()?, self.byte()?);
                let body = self.bytes();
                let place = self.requests.len().checked_sub(1 + usize::from(back))?;
                let mut header = self.requests[place].reply(match status {
                    0 => NtStatus::SUCCESS,
                    1 => NtStatus::PENDING,
                    2 => NtStatus::MORE_PROCESSING_REQUIRED,
                    3 => NtStatus::NETWORK_SESSION_EXPIRED,
                    4 => NtStatus::END_OF_FILE,
                    5 => NtStatus::BUFFER_OVERFLOW,
                    other => NtStatus(0xC000_0000 | u32::from(other)),
                });
                header.credits = u16::from(flags >> 4);
                if flags & 1 != 0 {
                    header.target = Target::Async(AsyncId(u64::from(back) + 1));
                    header.flags |= HeaderFlags::ASYNC_COMMAND;
                }
                if flags & 2 != 0 {
                    header.session_id = SESSION;
                }
                if flags & 8 != 0 {
                    header.flags |= HeaderFlags::SIGNED;
                }
                self.answer(header, &body, flags & 4 != 0);
            }
            4 => {
                let (kinds, length) = (self.byte()?, self.byte()?);
                self.submit(kinds, length);
            }
            5 => {
                if let Some(ticket) = self.newest {
                    self.client.cancel(ticket);
                }
            }
            6 => {
                self.now += Duration::from_secs(u64::from(step >> 3));
                self.client.handle_deadline(self.now);
            }
            _ => {
                let _ = self.client.log_in(login());
            }
        }
        self.poll();
        // The upper bits set how the line splits its bytes, or that it waits.
        match step >> 3 {
            31 => {}
            0 => self.deliver(usize::MAX),
            chunk => self.deliver(usize::from(chunk)),
        }
        Some(())
    }
}

fuzz_target!(|data: &[u8]| {
    let [flags, input @ ..] = data else {
        return;
    };
    let mut world = World {
        input,
        client: Connection::new(config(*flags), [9; 32]),
        pool: Pool::new(IO_MAX as usize, BLOCKS),
        requests: Vec::new(),
        line: Vec::new(),
        frame: Vec::new(),
        open: BTreeMap::new(),
        newest: None,
        now: Duration::ZERO,
    };
    world.client.log_in(login()).expect("nothing is under way");
    world.poll();
    if flags & NEGOTIATED != 0 {
        world.negotiate(*flags);
        assert!(world.client.negotiated().is_some());
        if flags & LOGGED_IN != 0 {
            world.log_in();
            assert!(world.client.session_flags().is_some(), "{:?}", world.client);
        }
    }
    while world.step().is_some() {}
    world.client.closed();
    world.poll();
    assert!(world.open.is_empty(), "every ticket is answered or dropped");
    let World { client, pool, .. } = world;
    drop(client);
    assert_eq!(pool.available(), BLOCKS, "no block is lost");
});
