//! A client that sends arbitrary messages, with valid signatures.
#![allow(dead_code, reason = "tests of other crates use parts of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ropeway_smb_proto::auth::Step;
use ropeway_smb_proto::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::crypto::{
    Cipher, KeyContext, Preauth, Sender, SessionKeys, Signer, SigningAlgorithm, signing_key,
};
use ropeway_smb_proto::secret::Password;
use ropeway_smb_wire::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateResponse, ImpersonationLevel,
    OplockLevel, ShareAccess,
};
use ropeway_smb_wire::create_context::RequestContext;
use ropeway_smb_wire::frame::frame_header;
use ropeway_smb_wire::header::{
    Command, FLAGS_OFFSET, HEADER_LEN, Header, HeaderFlags, NEXT_COMMAND_OFFSET, SIGNATURE_LEN,
    SIGNATURE_OFFSET, Target,
};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use ropeway_smb_wire::negotiate_context::{self as contexts, Context, HashAlgorithm};
use ropeway_smb_wire::session_setup::{SessionSetupFlags, SessionSetupRequest, SessionSetupResponse};
use ropeway_smb_wire::tree_connect::TreeConnectRequest;
use ropeway_smb_wire::{
    FileId, FileTime, Guid, MessageId, NtStatus, Reader, SessionId, Text, TreeId, Writer,
};

/// Time after which the server counts as hung: longer than any operation.
const HANG: Duration = Duration::from_secs(20);

/// One connection.
pub(crate) struct Raw {
    pub(crate) socket: TcpStream,
    pub(crate) dialect: Dialect,
    pub(crate) guid: Guid,
    /// `Capabilities` of the NEGOTIATE.
    pub(crate) capabilities: Capabilities,
    /// The next message id.
    pub(crate) next_id: u64,
    /// `CreditCharge` of the next requests.
    pub(crate) charge: u16,
    /// `CreditRequest` of the next requests.
    pub(crate) asks: u16,
    pub(crate) session: SessionId,
    pub(crate) tree: TreeId,
    pub(crate) signer: Option<Signer>,
    /// Algorithm of the signatures in 3.1.1.
    pub(crate) signing: SigningAlgorithm,
    /// `PreviousSessionId` of the next login.
    pub(crate) previous: SessionId,
    /// The keys of the last login in dialect 3.0 and later.
    pub(crate) keys: Option<SessionKeys>,
    /// Whether a silent server counts as a closed connection. Otherwise silence fails the test.
    pub(crate) may_be_silent: bool,
    preauth: Preauth,
}

/// A response: its header, and the whole message.
pub(crate) struct Reply {
    pub(crate) header: Header,
    pub(crate) message: Vec<u8>,
}

impl Reply {
    pub(crate) fn status(&self) -> NtStatus {
        self.header.status
    }

    pub(crate) fn body(&self) -> Reader<'_> {
        Reader::at(&self.message, HEADER_LEN, "reply")
    }
}

impl Raw {
    /// Connects TCP only.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self {
            socket,
            dialect: Dialect::Smb311,
            guid: Guid([9; 16]),
            capabilities: Capabilities::LARGE_MTU | Capabilities::LEASING | Capabilities::DIRECTORY_LEASING,
            next_id: 0,
            charge: 1,
            asks: 64,
            session: SessionId::default(),
            tree: TreeId::default(),
            signer: None,
            signing: SigningAlgorithm::AesCmac,
            previous: SessionId::default(),
            keys: None,
            may_be_silent: false,
            preauth: Preauth::new(),
        }
    }

    /// Connects, logs in as alice, and connects to the share `data`.
    pub(crate) fn ready(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address);
        raw.enter();
        raw
    }

    /// Negotiates, logs in as alice, and connects to the share `data`.
    pub(crate) fn enter(&mut self) {
        assert_eq!(self.negotiate().status(), NtStatus::SUCCESS);
        assert_eq!(self.log_in("alice", "secret"), NtStatus::SUCCESS);
        assert_eq!(self.tree("data"), NtStatus::SUCCESS);
    }

    /// Returns a message, signed if there is a key. The body follows the header as written.
    pub(crate) fn message(&mut self, command: Command, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN];
        body(&mut Writer::within(&mut out, 0));
        let header = self.header(command);
        self.seal_header(&header, &mut out);
        out
    }

    /// Returns the header of the next message and uses up its id.
    pub(crate) fn header(&mut self, command: Command) -> Header {
        let mut header = Header::request(command, MessageId(self.next_id));
        header.credit_charge = self.charge;
        header.credits = self.asks;
        header.session_id = self.session;
        header.target = Target::Sync(self.tree);
        if command != Command::Cancel {
            self.next_id += u64::from(self.charge.max(1));
        }
        header
    }

    /// Writes the header of a message, and signs it.
    pub(crate) fn seal_header(&self, header: &Header, message: &mut [u8]) {
        let mut head = Vec::new();
        header.encode(&mut Writer::new(&mut head));
        message[..HEADER_LEN].copy_from_slice(&head);
        self.sign(message);
    }

    /// Signs a message again, if there is a key.
    pub(crate) fn sign(&self, message: &mut [u8]) {
        if let Some(signer) = &self.signer {
            message[FLAGS_OFFSET] |= HeaderFlags::SIGNED.bits() as u8;
            message[SIGNATURE_OFFSET..][..SIGNATURE_LEN].fill(0);
            let signature = signer.sign(Sender::Client, &[message]);
            message[SIGNATURE_OFFSET..][..SIGNATURE_LEN].copy_from_slice(&signature);
        }
    }

    /// Joins messages to a compound. All but the first are `related` if wanted.
    pub(crate) fn compound(&self, mut messages: Vec<Vec<u8>>, related: bool) -> Vec<u8> {
        let last = messages.len() - 1;
        for (index, message) in messages.iter_mut().enumerate() {
            if index > 0 && related {
                message[FLAGS_OFFSET] |= HeaderFlags::RELATED_OPERATIONS.bits() as u8;
            }
            if index < last {
                message.resize(message.len().next_multiple_of(8), 0);
                let length = (message.len() as u32).to_le_bytes();
                message[NEXT_COMMAND_OFFSET..][..4].copy_from_slice(&length);
            }
            self.sign(message);
        }
        messages.concat()
    }

    /// Sends one frame. A closed connection is no error.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.send_together(&[frame]);
    }

    /// Sends frames with one call, so that they arrive together. A closed connection is no error.
    pub(crate) fn send_together(&mut self, frames: &[impl AsRef<[u8]>]) {
        let mut bytes = Vec::new();
        for frame in frames {
            let frame = frame.as_ref();
            bytes.extend_from_slice(&frame_header(frame.len()));
            bytes.extend_from_slice(frame);
        }
        _ = self.socket.write_all(&bytes);
    }

    /// Receives the next frame; `None` if the connection was closed.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; 4];
        let mut frame = Vec::new();
        let outcome = self.socket.read_exact(&mut head).and_then(|()| {
            frame.resize(u32::from_be_bytes(head) as usize, 0);
            self.socket.read_exact(&mut frame)
        });
        match outcome {
            Ok(()) => Some(frame),
            Err(error) => {
                let is_silent = error.kind() == std::io::ErrorKind::WouldBlock;
                assert!(!is_silent || self.may_be_silent, "the server does not answer");
                None
            }
        }
    }

    /// Receives the next response that is neither a break nor an interim response.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        loop {
            let message = self.receive()?;
            let header = Header::decode(&mut Reader::new(&message, "header")).unwrap();
            let is_break = header.message_id == MessageId::UNSOLICITED;
            if !is_break && header.status != NtStatus::PENDING {
                return Some(Reply { header, message });
            }
        }
    }

    /// Sends a request and receives its response; `None` if the server closes the connection.
    pub(crate) fn try_call(&mut self, command: Command, body: impl FnOnce(&mut Writer<'_>)) -> Option<Reply> {
        let message = self.message(command, body);
        self.send(&message);
        self.reply()
    }

    pub(crate) fn call(&mut self, command: Command, body: impl FnOnce(&mut Writer<'_>)) -> Reply {
        self.try_call(command, body)
            .unwrap_or_else(|| panic!("the server hung up at {command:?}"))
    }

    /// Offers its only dialect.
    pub(crate) fn negotiate(&mut self) -> Reply {
        let signing = Context::Signing(vec![match self.signing {
            SigningAlgorithm::HmacSha256 => contexts::SigningAlgorithm::HMAC_SHA256,
            SigningAlgorithm::AesCmac => contexts::SigningAlgorithm::AES_CMAC,
            SigningAlgorithm::AesGmac => contexts::SigningAlgorithm::AES_GMAC,
        }]);
        self.negotiate_with(vec![self.dialect], vec![signing])
    }

    /// Offers dialects, and in 3.1.1 these contexts after that of the hash.
    pub(crate) fn negotiate_with(&mut self, dialects: Vec<Dialect>, more: Vec<Context<'_>>) -> Reply {
        let mut contexts = Vec::new();
        if dialects.contains(&Dialect::Smb311) {
            contexts.push(Context::PreauthIntegrity {
                hash_algorithms: vec![HashAlgorithm::SHA_512],
                salt: &[5; 32],
            });
            contexts.extend(more);
        }
        let request = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: self.capabilities,
            client_guid: self.guid,
            dialects,
            contexts,
        };
        let message = self.message(Command::Negotiate, |w| request.encode(w));
        self.send(&message);
        let reply = self.reply().expect("an answer to NEGOTIATE");
        self.preauth.update(&[&message]);
        self.preauth.update(&[&reply.message]);
        reply
    }

    /// Logs in with NTLM and returns the status.
    pub(crate) fn log_in(&mut self, user: &str, password: &str) -> NtStatus {
        self.log_in_with(user, password, SessionSetupFlags::default())
            .unwrap_or(NtStatus::CONNECTION_DISCONNECTED)
    }

    pub(crate) fn log_in_with(
        &mut self,
        user: &str,
        password: &str,
        flags: SessionSetupFlags,
    ) -> Option<NtStatus> {
        let mut spnego = spnego(user, password);
        let mut preauth = self.preauth.clone();
        let mut token = spnego.start(&[]).unwrap();
        loop {
            let request = SessionSetupRequest {
                flags,
                security_mode: SecurityMode::SIGNING_ENABLED,
                capabilities: Capabilities::default(),
                previous_session_id: self.previous,
                security_buffer: &token,
            };
            let message = self.message(Command::SessionSetup, |w| request.encode(w));
            self.send(&message);
            preauth.update(&[&message]);
            let reply = self.reply()?;
            let status = reply.status();
            if status.is_error() && status != NtStatus::MORE_PROCESSING_REQUIRED {
                return Some(status);
            }
            let response = SessionSetupResponse::decode(&mut reply.body()).unwrap();
            let step = spnego.step(response.security_buffer).unwrap();
            self.session = reply.header.session_id;
            match step {
                Step::Continue(next) => {
                    assert_eq!(status, NtStatus::MORE_PROCESSING_REQUIRED);
                    preauth.update(&[&reply.message]);
                    token = next;
                }
                Step::Done(established) => {
                    // A renewed login keeps its keys.
                    let is_new = self.signer.is_none() || flags.contains(SessionSetupFlags::BINDING);
                    if !user.is_empty() && is_new {
                        let context = match self.dialect {
                            Dialect::Smb311 => KeyContext::Smb311(preauth.value()),
                            _ => KeyContext::Smb30,
                        };
                        let cipher = Some(Cipher::Aes128Ccm);
                        self.keys = Some(SessionKeys::derive(&established.session_key, context, cipher));
                        self.signer = Some(match self.dialect {
                            Dialect::Smb202 | Dialect::Smb210 => Signer::new(
                                SigningAlgorithm::HmacSha256,
                                &established.session_key.truncated(),
                            ),
                            Dialect::Smb311 => {
                                let context = KeyContext::Smb311(preauth.value());
                                let key = signing_key(&established.session_key, context);
                                Signer::new(self.signing, &key)
                            }
                            _ => {
                                let key = signing_key(&established.session_key, KeyContext::Smb30);
                                Signer::new(SigningAlgorithm::AesCmac, &key)
                            }
                        });
                    }
                    return Some(status);
                }
            }
        }
    }

    /// Connects to a share and uses it from now on.
    pub(crate) fn tree(&mut self, share: &str) -> NtStatus {
        let request = TreeConnectRequest {
            flags: Default::default(),
            path: Text::from(format!("\\\\server\\{share}").as_str()),
        };
        let reply = self.call(Command::TreeConnect, |w| request.encode(w));
        if let Some(tree) = reply.header.tree_id() {
            self.tree = tree;
        }
        reply.status()
    }

    /// Opens a file.
    pub(crate) fn create(&mut self, how: &Create<'_>) -> Result<FileId, NtStatus> {
        let request = how.request();
        let reply = self.call(Command::Create, |w| request.encode(w));
        if reply.status() != NtStatus::SUCCESS {
            return Err(reply.status());
        }
        Ok(CreateResponse::decode(&mut reply.body()).unwrap().file_id)
    }

    pub(crate) fn echo(&mut self) -> NtStatus {
        self.call(Command::Echo, |w| {
            w.u16(4);
            w.u16(0);
        })
        .status()
    }

    pub(crate) fn close(&mut self, file: FileId) -> NtStatus {
        self.call(Command::Close, |w| close_body(w, file)).status()
    }
}

/// Encodes the body of a CLOSE.
pub(crate) fn close_body(w: &mut Writer<'_>, file_id: FileId) {
    let flags = Default::default();
    ropeway_smb_wire::close::CloseRequest { flags, file_id }.encode(w);
}

/// How to open a file.
#[derive(Clone)]
pub(crate) struct Create<'a> {
    pub(crate) name: Text,
    pub(crate) access: AccessMask,
    pub(crate) disposition: CreateDisposition,
    pub(crate) options: CreateOptions,
    pub(crate) oplock: OplockLevel,
    pub(crate) sharing: ShareAccess,
    pub(crate) contexts: Vec<RequestContext<'a>>,
}

impl Create<'_> {
    pub(crate) fn of(name: impl Into<Text>) -> Self {
        Self {
            name: name.into(),
            access: AccessMask::MAXIMUM_ALLOWED,
            disposition: CreateDisposition::OpenIf,
            options: CreateOptions::default(),
            oplock: OplockLevel::None,
            sharing: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            contexts: Vec::new(),
        }
    }

    pub(crate) fn request(&self) -> CreateRequest<'_> {
        CreateRequest {
            oplock_level: self.oplock,
            impersonation_level: ImpersonationLevel::default(),
            desired_access: self.access,
            file_attributes: Default::default(),
            share_access: self.sharing,
            disposition: self.disposition,
            options: self.options,
            name: self.name.clone(),
            contexts: self.contexts.clone(),
        }
    }
}

pub(crate) fn spnego(user: &str, password: &str) -> SpnegoClient {
    let credentials = match user {
        "" => Credentials::anonymous(),
        _ => Credentials::with_password("", user, &Password::from(password)),
    };
    let entropy = NtlmEntropy {
        wall_time: FileTime(7),
        client_challenge: [1; 8],
        session_key: [2; 16].into(),
    };
    let ntlm = NtlmClient::new(credentials, "here".into(), None, entropy);
    SpnegoClient::new(vec![Box::new(ntlm)])
}

impl Raw {
    /// Sends a frame and an ECHO. Returns the headers of all responses up to that of the ECHO, or
    /// `None` if the server closes the connection.
    pub(crate) fn probe(&mut self, frame: &[u8]) -> Option<Vec<Header>> {
        self.send(frame);
        let last = self.next_id;
        let echo = self.message(Command::Echo, |w| w.u32(4));
        self.send(&echo);
        let mut headers = Vec::new();
        loop {
            let answer = self.receive()?;
            for message in ropeway_smb_wire::header::CompoundMessages::new(&answer) {
                headers.push(Header::decode(&mut Reader::new(message.unwrap(), "header")).unwrap());
            }
            if headers.last().is_some_and(|header| header.message_id.0 == last) {
                return Some(headers);
            }
        }
    }
}
