//! A server's connection, logged in, to which anything is sent: no panic, no session left behind, answers that are SMB 2.
//!
//! The input is steps, each a byte and what it takes. Most begin with a well-formed request of some command and change
//! bytes of it, so that the fuzzer gets past framing, message ids and structure sizes; frames of any bytes come too. Files
//! are in memory; the operations are the real ones.

#![no_main]

#[allow(dead_code, reason = "the tests of the server need more of it")]
#[path = "../../crates/smb-server/tests/hard/raw.rs"]
mod raw;
#[allow(dead_code, reason = "the tests of the server need more of it")]
#[path = "../../crates/smb-server/tests/hard/samples.rs"]
mod samples;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use ropeway_smb_proto::auth::Step;
use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_proto::server::Accounts;
use ropeway_smb_server::ServerOptions;
use ropeway_smb_server::fuzzing::FrameServer;
use ropeway_smb_wire::create::{CreateOptions, CreateResponse};
use ropeway_smb_wire::frame::FRAME_HEADER_LEN;
use ropeway_smb_wire::header::{
    Chain, Command, FLAGS_OFFSET, HEADER_LEN, Header, HeaderFlags, NEXT_COMMAND_OFFSET, Target,
};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use ropeway_smb_wire::session_setup::{SessionSetupRequest, SessionSetupResponse};
use ropeway_smb_wire::{FileId, Guid, MessageId, NtStatus, Reader, SessionId, Text, TreeId, Writer};

/// Messages of one input.
const MESSAGES_MAX: usize = 64;

struct World {
    server: Option<FrameServer>,
    next_id: u64,
    session: SessionId,
    tree: TreeId,
    file: FileId,
    folder: FileId,
}

fn options() -> ServerOptions {
    let hash = *nt_hash(&Password::from("secret")).expose();
    let accounts: Accounts = Arc::new(move |_: &Text, _: &Text| Some(NtHash::from_bytes(hash)));
    let mut options = ServerOptions::new("server", accounts);
    let count = AtomicU64::new(1);
    // The same for every input.
    options.config.random = Arc::new(move |bytes: &mut [u8]| {
        for chunk in bytes.chunks_mut(8) {
            let value = count
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
        }
    });
    options.config.signing_required = false;
    options.limits.opens_max = 1000;
    options
}

impl World {
    fn new() -> Self {
        Self {
            server: Some(FrameServer::new(options())),
            next_id: 0,
            session: SessionId::default(),
            tree: TreeId::default(),
            file: FileId::default(),
            folder: FileId::default(),
        }
    }

    /// A message with a valid header.
    fn message(&mut self, command: Command, body: &[u8]) -> Vec<u8> {
        let mut header = Header::request(command, MessageId(self.next_id));
        header.credits = 64;
        header.session_id = self.session;
        header.target = Target::Sync(self.tree);
        self.next_id += u64::from(command != Command::Cancel);
        let mut message = Vec::new();
        header.encode(&mut Writer::new(&mut message));
        message.extend_from_slice(body);
        message
    }

    /// Sends a frame; the messages of the answers. What is no SMB 2 is a fault of the server.
    fn send(&mut self, frame: &[u8]) -> Vec<(Header, Vec<u8>)> {
        let Some(server) = &mut self.server else {
            return Vec::new();
        };
        let Some(answers) = server.frame(frame) else {
            self.end();
            return Vec::new();
        };
        let mut all = Vec::new();
        for answer in answers {
            for message in Chain::new(&answer[FRAME_HEADER_LEN..]) {
                let message = message.expect("an answer is a chain");
                let header =
                    Header::decode(&mut Reader::new(message, "header")).expect("an answer has a header");
                assert!(header.is_response());
                if header.command == Command::Create
                    && let Ok(created) =
                        CreateResponse::decode(&mut Reader::at(message, HEADER_LEN, "CREATE"))
                    && header.status == NtStatus::SUCCESS
                {
                    self.file = created.file_id;
                }
                all.push((header, message.to_vec()));
            }
        }
        all
    }

    fn end(&mut self) {
        if let Some(server) = self.server.take() {
            assert_eq!(server.lose(), 0, "no session is left behind");
        }
    }

    fn call(&mut self, command: Command, body: &[u8]) -> (Header, Vec<u8>) {
        let message = self.message(command, body);
        self.send(&message)
            .pop()
            .expect("a well-formed request is answered")
    }

    fn log_in(&mut self) {
        let negotiate = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::default(),
            client_guid: Guid([1; 16]),
            dialects: vec![Dialect::Smb302],
            contexts: Vec::new(),
        };
        self.call(Command::Negotiate, &samples::body(|w| negotiate.encode(w)));
        let mut spnego = raw::spnego("alice", "secret");
        let mut token = spnego.start(&[]).expect("a token");
        loop {
            let setup = SessionSetupRequest {
                flags: Default::default(),
                security_mode: SecurityMode::SIGNING_ENABLED,
                capabilities: Capabilities::default(),
                previous_session_id: SessionId::default(),
                security_buffer: &token,
            };
            let (header, message) = self.call(Command::SessionSetup, &samples::body(|w| setup.encode(w)));
            self.session = header.session_id;
            let body = &mut Reader::at(&message, HEADER_LEN, "SESSION_SETUP");
            let response = SessionSetupResponse::decode(body).expect("an answer");
            match spnego.step(response.security_buffer).expect("a login") {
                Step::Continue(next) => token = next,
                Step::Done(_) => break,
            }
        }
        let (_, connect) = samples::all(FileId::default(), FileId::default()).swap_remove(0);
        let (header, _) = self.call(Command::TreeConnect, &connect);
        self.tree = header.tree_id().expect("a tree");
        let mut folder = raw::Create::of("folder");
        folder.options = CreateOptions::DIRECTORY_FILE;
        self.call(Command::Create, &samples::body(|w| folder.request().encode(w)));
        self.folder = self.file;
        let file = raw::Create::of("file");
        self.call(Command::Create, &samples::body(|w| file.request().encode(w)));
        assert_ne!(self.folder, self.file);
    }

    /// A message as the input says.
    fn made(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let samples = samples::all(self.file, self.folder);
        let (mut command, mut body) = samples[usize::from(input.byte()) % samples.len()].clone();
        let how = input.byte();
        if how & 0x80 != 0 {
            body = input.some().to_vec();
        }
        if how & 0x40 != 0 {
            command = Command::from_code(u16::from(input.byte()) % 0x16);
        }
        if how & 0x20 != 0 {
            body.truncate(usize::from(input.byte()));
        }
        let mut message = self.message(command, &body);
        for _ in 0..how & 0x0F {
            let at = usize::from(u16::from_le_bytes([input.byte(), input.byte()]));
            let length = message.len();
            // The body, mostly.
            let at = if how & 0x10 != 0 || length == HEADER_LEN {
                at % length
            } else {
                HEADER_LEN + at % (length - HEADER_LEN)
            };
            message[at] = input.byte();
        }
        message
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *byte
    }

    fn some(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (some, rest) = self.0.split_at(length);
        self.0 = rest;
        some
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let mut world = World::new();
    let first = input.byte();
    if first & 1 == 0 {
        world.log_in();
    }
    let mut messages = 0;
    while !input.0.is_empty() && messages < MESSAGES_MAX && world.server.is_some() {
        let step = input.byte();
        match step % 8 {
            0 => {
                let frame = input.some();
                world.send(frame);
                messages += 1;
            }
            1 | 2 => {
                let count = 2 + usize::from(step >> 5);
                let mut frame = Vec::new();
                for index in 0..count {
                    let mut message = world.made(&mut input);
                    if index > 0 && step % 8 == 2 {
                        message[FLAGS_OFFSET] |= HeaderFlags::RELATED_OPERATIONS.bits() as u8;
                    }
                    if index + 1 < count {
                        message.resize(message.len().next_multiple_of(8), 0);
                        let next = (message.len() as u32).to_le_bytes();
                        message[NEXT_COMMAND_OFFSET..][..4].copy_from_slice(&next);
                    }
                    frame.extend_from_slice(&message);
                }
                world.send(&frame);
                messages += count;
            }
            _ => {
                let message = world.made(&mut input);
                world.send(&message);
                messages += 1;
            }
        }
    }
    world.end();
});
