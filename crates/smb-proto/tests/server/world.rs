//! A server without files, and its clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropeway_smb_proto::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy, ServerNames, nt_hash};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::client::{self, Compound as Requests, Event, Operation, Reply, Ticket};
use ropeway_smb_proto::compression::{Algorithms, CompressionLevel, CompressionSampler};
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_proto::server::{
    Accounts, Admitted, CompoundState, Config, Connection, ConnectionId, ConnectionOutcome, PeerMisbehaved,
    ReplyFrame, Request, Sealing, Sessions, Tree,
};
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, frame_len};
use ropeway_smb_wire::fsctl::validate_negotiate::ValidateNegotiateResponse;
use ropeway_smb_wire::header::{Command, CompoundMessages, HEADER_LEN, Target};
use ropeway_smb_wire::ioctl::{IoctlRequest, IoctlResponse};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::read::{READ_RESPONSE_FIXED_LEN, ReadFlags, ReadRequest, ReadResponse};
use ropeway_smb_wire::tree_connect::{ShareType, TreeConnectRequest, TreeConnectResponse};
use ropeway_smb_wire::{FileTime, Guid, NtStatus, Reader, SessionId, Text, TreeId, Writer, bare};

/// Returns a configuration with all features, and the user anna (`secret`).
pub(crate) fn server_config() -> Config {
    let hash = *nt_hash(&Password::from("secret")).expose();
    let accounts: Accounts = Arc::new(move |user: &Text, _: &Text| {
        let users = ["anna", "bert"].map(Text::from);
        users.contains(user).then(|| NtHash::from_bytes(hash))
    });
    let counter = AtomicU64::new(1);
    Config {
        server_guid: Guid([3; 16]),
        names: ServerNames {
            netbios_computer: "PEER".into(),
            netbios_domain: "PEER".into(),
            dns_computer: "peer".into(),
            dns_domain: "".into(),
        },
        dialect_min: Dialect::Smb202,
        dialect_max: Dialect::Smb311,
        signing_required: true,
        sealing: Sealing::Offered,
        anonymous: false,
        guest: false,
        multichannel: true,
        persistent_handles: false,
        leasing: true,
        compression: Algorithms {
            lz4: true,
            lznt1: true,
            pattern_v1: true,
            zstd: true,
        },
        io_max: 1 << 20,
        credits_max: 512,
        sessions_per_connection_max: 4,
        accounts,
        mechanisms: None,
        random: Arc::new(move |bytes: &mut [u8]| {
            for chunk in bytes.chunks_mut(8) {
                let value = counter
                    .fetch_add(1, Ordering::Relaxed)
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15);
                chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
            }
        }),
    }
}

pub(crate) fn client_config() -> client::Config {
    client::Config {
        client_guid: Guid([7; 16]),
        host: "peer".into(),
        io_max: 1 << 20,
        credits_target: 256,
        ..client::Config::default()
    }
}

pub(crate) fn login(user: &str, password: &str) -> SpnegoClient {
    let credentials = match user {
        "" => Credentials::anonymous(),
        _ => Credentials::with_password("", user, &Password::from(password)),
    };
    let entropy = NtlmEntropy {
        wall_time: FileTime(7),
        client_challenge: [1; 8],
        // The client chooses the session key, so each user has another.
        session_key: [user.len() as u8 + user.as_bytes().first().copied().unwrap_or(0); 16].into(),
    };
    SpnegoClient::new(vec![Box::new(NtlmClient::new(
        credentials,
        "here".into(),
        None,
        entropy,
    ))])
}

/// One end of one connection, whose owner only knows trees.
pub(crate) struct Served {
    pub(crate) protocol: Connection,
    /// Number of sealed frames received.
    pub(crate) sealed: u32,
    /// Whether trees demand encryption.
    pub(crate) encrypted_trees: bool,
    /// The requests executed.
    pub(crate) executed: Vec<Command>,
    pub(crate) hung_up: Option<PeerMisbehaved>,
    /// Fills a buffer with the content at an offset.
    pub(crate) content: fn(u64, &mut [u8]),
    sampler: CompressionSampler,
}

impl Served {
    pub(crate) fn new(config: &Arc<Config>, id: u64) -> Self {
        Self {
            protocol: Connection::new(Arc::clone(config), ConnectionId(id)),
            sealed: 0,
            encrypted_trees: false,
            executed: Vec::new(),
            hung_up: None,
            content: |_, _| {},
            sampler: CompressionSampler::default(),
        }
    }

    /// Returns the replies to a frame, which comes without its length.
    pub(crate) fn feed(&mut self, frame: &[u8], sessions: &mut Sessions) -> Vec<Vec<u8>> {
        if self.hung_up.is_some() {
            return Vec::new();
        }
        let outcome = self.take(frame, sessions);
        outcome.unwrap_or_else(|fault| {
            self.hung_up = Some(fault);
            Vec::new()
        })
    }

    fn take(&mut self, frame: &[u8], sessions: &mut Sessions) -> Result<Vec<Vec<u8>>, PeerMisbehaved> {
        let now = FileTime(1);
        if frame.len() > self.protocol.frame_len_max() {
            return Err(PeerMisbehaved("a frame that is too long"));
        }
        let mut frame = frame.to_vec();
        let opened = self.protocol.open_frame(&mut frame)?;
        if opened.is_smb1 {
            return Ok(vec![self.protocol.accept_smb1(&frame, now)?]);
        }
        let sealed = opened.sealed;
        self.sealed += u32::from(sealed.is_some());
        let messages = opened.decompressed.as_deref().unwrap_or(&frame[opened.start..]);
        let mut compound = CompoundState::new(sealed);
        let mut out = ReplyFrame::new(Vec::new(), sealed.is_some());
        let mut forgets = None;
        for message in CompoundMessages::new(messages) {
            let message = message.map_err(|_| PeerMisbehaved("a malformed compound"))?;
            let session = sessions.snapshot(compound.scope(message));
            match self.protocol.admit(&mut compound, message, session)? {
                Admitted::Cancel(..) | Admitted::Ignored => {}
                Admitted::Refused(request, status) => self.refuse(&request, status, &mut out),
                Admitted::Run(mut request, _) => {
                    let own = self.protocol.run_connection_command(
                        &mut request,
                        message,
                        sealed.is_some(),
                        sessions,
                        now,
                        &mut out,
                    )?;
                    match own {
                        ConnectionOutcome::Execute => {
                            self.execute(&request, message, &mut compound, sessions, &mut out)
                        }
                        ConnectionOutcome::Replied | ConnectionOutcome::LoggedIn { .. } => {}
                        ConnectionOutcome::LoggedOff(session) => forgets = Some(session.id),
                        ConnectionOutcome::LoginFailed(status, ended, _) => {
                            self.refuse(&request, status, &mut out);
                            forgets = ended.map(|session| session.id);
                        }
                        ConnectionOutcome::Failed(status) => self.refuse(&request, status, &mut out),
                    }
                }
            }
        }
        let answers = match out.is_empty() {
            true => Vec::new(),
            false => vec![self.protocol.finish(out, sealed)?],
        };
        if let Some(session) = forgets {
            self.protocol.forget(session);
        }
        Ok(answers)
    }

    fn refuse(&mut self, request: &Request, status: NtStatus, out: &mut ReplyFrame) {
        let header = self.protocol.reply(request, status);
        out.push_error(&header, request.signer);
    }

    fn execute(
        &mut self,
        request: &Request,
        message: &[u8],
        compound: &mut CompoundState,
        sessions: &mut Sessions,
        out: &mut ReplyFrame,
    ) {
        self.executed.push(request.header.command);
        let mut body = Reader::at(message, HEADER_LEN, "request");
        match request.header.command {
            Command::TreeConnect => {
                TreeConnectRequest::decode(&mut body).unwrap();
                let tree = Tree {
                    share: 1,
                    encrypt: self.encrypted_trees,
                };
                let tree = sessions.get_mut(request.session).unwrap().connect(tree).unwrap();
                compound.set_tree(tree);
                let mut header = self.protocol.reply(request, NtStatus::SUCCESS);
                header.target = Target::Sync(tree);
                let response = TreeConnectResponse {
                    share_type: ShareType::Disk,
                    share_flags: Default::default(),
                    capabilities: Default::default(),
                    maximal_access: Default::default(),
                };
                out.push(&header, request.signer, |w| response.encode(w));
            }
            Command::Ioctl => {
                let control = IoctlRequest::decode(&mut body).unwrap();
                let agreed = self.protocol.negotiated().unwrap();
                let told = ValidateNegotiateResponse {
                    capabilities: agreed.capabilities,
                    guid: Guid([3; 16]),
                    security_mode: agreed.security_mode,
                    dialect: agreed.dialect.code(),
                };
                let mut output = Vec::new();
                told.encode(&mut Writer::new(&mut output));
                let response = IoctlResponse {
                    ctl_code: control.ctl_code,
                    file_id: control.file_id,
                    input: &[],
                    output: &output,
                };
                let header = self.protocol.reply(request, NtStatus::SUCCESS);
                out.push(&header, request.signer, |w| response.encode(w));
            }
            Command::Read => {
                let read = ReadRequest::decode(&mut body).unwrap();
                let header = self.protocol.reply(request, NtStatus::SUCCESS);
                let count = read.length as usize;
                out.push_payload(
                    &header,
                    request.signer,
                    READ_RESPONSE_FIXED_LEN,
                    count,
                    |buffer| {
                        (self.content)(read.offset, buffer);
                        Ok(Some(buffer.len()))
                    },
                    |count, w| ReadResponse::default().encode_head(w, count as u32),
                )
                .unwrap();
                if read.flags.contains(ReadFlags::REQUEST_COMPRESSED) {
                    let both = self.protocol.negotiated().unwrap().compression();
                    let algorithms = both.at(CompressionLevel::Strong).algorithms;
                    out.compress_payload(algorithms, count, |data| {
                        self.sampler.is_worthwhile(algorithms, data)
                    });
                }
            }
            _ => self.refuse(request, NtStatus::NOT_SUPPORTED, out),
        }
    }
}

/// A client and its end of the server.
pub(crate) struct World {
    pub(crate) client: client::Connection,
    pub(crate) served: Served,
    pub(crate) events: Vec<Event>,
    pub(crate) replies: BTreeMap<Ticket, Vec<Reply>>,
    /// Changes frames in transit: to the server (`true`) or from it.
    pub(crate) tampers: fn(bool, u32, &mut Vec<u8>),
    /// Number of bytes received from the server.
    pub(crate) received: usize,
    frames: u32,
    now: Duration,
}

impl World {
    pub(crate) fn new(client: client::Config, server: &Arc<Config>, id: u64) -> Self {
        Self {
            client: client::Connection::new(client, [9; 32]),
            served: Served::new(server, id),
            events: Vec::new(),
            replies: BTreeMap::new(),
            tampers: |_, _, _| {},
            received: 0,
            frames: 0,
            now: Duration::ZERO,
        }
    }

    /// Returns a world logged in as anna.
    pub(crate) fn ready(client: client::Config, server: &Arc<Config>, sessions: &mut Sessions) -> Self {
        let mut world = Self::new(client, server, 1);
        world.client.log_in(login("anna", "secret")).unwrap();
        world.settle(sessions);
        world
    }

    /// Runs until nothing moves. Returns whether the client found no fault with the server.
    pub(crate) fn settle(&mut self, sessions: &mut Sessions) -> bool {
        let mut line = Vec::new();
        loop {
            while let Some(transmit) = self.client.poll_transmit() {
                for part in &transmit.parts {
                    line.extend_from_slice(part.as_slice());
                }
            }
            let Some(head) = line.first_chunk::<FRAME_HEADER_LEN>() else {
                return true;
            };
            let length = frame_len(*head).unwrap();
            let rest = line.split_off(FRAME_HEADER_LEN + length);
            let mut frame = std::mem::replace(&mut line, rest).split_off(FRAME_HEADER_LEN);
            self.frames += 1;
            (self.tampers)(true, self.frames, &mut frame);
            for mut answer in self.served.feed(&frame, sessions) {
                (self.tampers)(false, self.frames, &mut answer);
                self.received += answer.len();
                if !self.deliver(&answer) {
                    return false;
                }
            }
            if self.served.hung_up.is_some() {
                self.client.closed();
                self.take_events();
                return false;
            }
        }
    }

    fn deliver(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let receive = self.client.receive();
            let first = receive.first.len().min(bytes.len());
            receive.first[..first].copy_from_slice(&bytes[..first]);
            let second = receive.second.len().min(bytes.len() - first);
            receive.second[..second].copy_from_slice(&bytes[first..first + second]);
            let moved = first + second;
            if moved == 0 {
                return false;
            }
            bytes = &bytes[moved..];
            self.now += Duration::from_millis(1);
            let outcome = self.client.received(self.now, moved);
            self.take_events();
            if outcome.is_err() {
                return false;
            }
        }
        true
    }

    fn take_events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Replied { ticket, replies } => {
                    self.replies.insert(ticket, replies);
                }
                other => self.events.push(other),
            }
        }
    }

    /// Submits requests. Returns the statuses of their replies.
    pub(crate) fn ask(&mut self, requests: Requests, sessions: &mut Sessions) -> Vec<NtStatus> {
        let ticket = self.client.submit(requests).unwrap();
        self.settle(sessions);
        let replies = self.replies.remove(&ticket).unwrap_or_default();
        replies.iter().map(Reply::status).collect()
    }

    pub(crate) fn echo(&mut self, sessions: &mut Sessions) -> Vec<NtStatus> {
        self.ask(Requests::one(echo()), sessions)
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, Event::Authenticated { .. }))
    }

    pub(crate) fn session_id(&self, sessions: &Sessions) -> SessionId {
        sessions.iter().next().unwrap().id
    }
}

pub(crate) fn echo() -> Operation {
    Operation::encoded(Command::Echo, TreeId(0), |w| bare::EchoRequest.encode(w))
}

pub(crate) fn tree() -> Operation {
    let request = TreeConnectRequest {
        flags: Default::default(),
        path: "\\\\peer\\share".into(),
    };
    Operation::encoded(Command::TreeConnect, TreeId(0), |w| request.encode(w))
}
