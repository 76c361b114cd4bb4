//! One connection of the storm: it logs in and holds the keys.

use std::collections::HashMap;

use ropeway_smb_proto::auth::Step;
use ropeway_smb_proto::compression::decompress;
use ropeway_smb_proto::crypto::{
    KeyContext, Opener, Preauth, Sealer, Sender, Signer, SigningAlgorithm, TRANSFORM_HEADER_LEN, cipher_keys,
    signing_key,
};
use ropeway_smb_proto::secret::SessionKey;
use ropeway_smb_server::fuzzing::{FrameHost, FrameServer};
use ropeway_smb_wire::frame::FRAME_HEADER_LEN;
use ropeway_smb_wire::header::{
    Command, CompoundMessages, FLAGS_OFFSET, HEADER_LEN, Header, HeaderFlags, NEXT_COMMAND_OFFSET,
    SIGNATURE_LEN, SIGNATURE_OFFSET, Target,
};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use ropeway_smb_wire::negotiate_context::{CompressionFlags, Context, HashAlgorithm};
use ropeway_smb_wire::session_setup::{SessionSetupRequest, SessionSetupResponse};
use ropeway_smb_wire::tree_connect::TreeConnectRequest;
use ropeway_smb_wire::{Guid, MessageId, NtStatus, Reader, SessionId, Text, TreeId, Writer};

use crate::chance::Random;
use crate::session_kind::SessionKind;
use crate::{compress, raw, samples};

/// `CreditRequest` of every request.
const ASKS: u16 = 64;

pub(crate) struct Connection {
    server: Option<FrameServer>,
    pub(crate) kind: SessionKind,
    pub(crate) next_id: u64,
    pub(crate) session: SessionId,
    pub(crate) tree: TreeId,
    signer: Option<Signer>,
    sealing: Option<(Sealer, Opener)>,
    preauth: Preauth,
    /// Requests without a final response, by message id.
    pub(crate) pending: HashMap<u64, Command>,
    /// Whether both ends agree on ids, tree and session.
    pub(crate) clean: bool,
}

/// A response: its header and the whole message.
pub(crate) struct Reply {
    pub(crate) header: Header,
    pub(crate) message: Vec<u8>,
    pub(crate) sealed: bool,
}

impl Reply {
    pub(crate) fn body(&self) -> Reader<'_> {
        Reader::at(&self.message, HEADER_LEN, "reply")
    }
}

impl Connection {
    /// Opens a connection without sending anything.
    pub(crate) fn new(host: &FrameHost, kind: SessionKind) -> Self {
        Self {
            server: Some(host.connect()),
            kind,
            next_id: 0,
            session: SessionId::default(),
            tree: TreeId::default(),
            signer: None,
            sealing: None,
            preauth: Preauth::new(),
            pending: HashMap::new(),
            clean: true,
        }
    }

    /// Opens a connection, logs in, and connects to the share `data`.
    pub(crate) fn enter(host: &FrameHost, kind: SessionKind, random: &mut Random) -> Result<Self, String> {
        let mut line = Self::new(host, kind);
        line.negotiate(random)?;
        line.log_in(random)?;
        line.tree = line.connect_tree(random, "data")?;
        Ok(line)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.server.is_some()
    }

    /// Returns the number of requests that reached the code of their command.
    pub(crate) fn handled(&self) -> u64 {
        self.server.as_ref().map_or(0, FrameServer::handled)
    }

    pub(crate) fn lose(&mut self) {
        if let Some(server) = self.server.take() {
            server.lose();
        }
    }

    /// Returns an unsigned message with a valid header and uses up its id.
    pub(crate) fn message(&mut self, command: Command, body: &[u8]) -> Vec<u8> {
        let mut header = Header::request(command, MessageId(self.next_id));
        if self.kind.dialect == Dialect::Smb202 {
            header.credit_charge = 0;
        }
        header.credits = ASKS;
        header.session_id = self.session;
        header.target = Target::Sync(self.tree);
        self.next_id += u64::from(command != Command::Cancel);
        let mut message = Vec::new();
        header.encode(&mut Writer::new(&mut message));
        message.extend_from_slice(body);
        message
    }

    /// Returns a frame with these messages: signed, compressed and encrypted as the session
    /// requires.
    pub(crate) fn wrap(&mut self, random: &mut Random, mut messages: Vec<Vec<u8>>) -> Vec<u8> {
        let last = messages.len() - 1;
        for (index, message) in messages.iter_mut().enumerate() {
            if index < last {
                message.resize(message.len().next_multiple_of(8), 0);
                let length = (message.len() as u32).to_le_bytes();
                message[NEXT_COMMAND_OFFSET..][..4].copy_from_slice(&length);
            }
            if self.sealing.is_none() {
                self.sign(message);
            }
        }
        let plain = messages.concat();
        self.record(&plain);
        self.protect(random, plain)
    }

    /// Records the requests as the server will see them, so that their responses are recognized.
    pub(crate) fn record(&mut self, plain: &[u8]) {
        for message in CompoundMessages::new(plain).map_while(Result::ok) {
            let Ok(header) = Header::decode(&mut Reader::new(message, "header")) else {
                continue;
            };
            if header.command != Command::Cancel {
                self.pending.insert(header.message_id.0, header.command);
            }
        }
    }

    /// Compresses and encrypts signed messages.
    fn protect(&mut self, random: &mut Random, mut plain: Vec<u8>) -> Vec<u8> {
        if let Some(how) = self.kind.compression
            && self.signer.is_some()
            && random.percent(60)
        {
            plain = compress::pack(random, how, plain);
        }
        self.seal(plain)
    }

    /// Encrypts, if the session does.
    pub(crate) fn seal(&mut self, mut plain: Vec<u8>) -> Vec<u8> {
        if let Some((sealer, _)) = &mut self.sealing {
            let header = sealer
                .ticket()
                .expect("enough nonces")
                .seal(self.session, &mut plain);
            plain.splice(..0, header);
        }
        plain
    }

    fn sign(&self, message: &mut [u8]) {
        if let Some(signer) = &self.signer
            && message.len() >= HEADER_LEN
        {
            message[FLAGS_OFFSET] |= HeaderFlags::SIGNED.bits() as u8;
            message[SIGNATURE_OFFSET..][..SIGNATURE_LEN].fill(0);
            let signature = signer.sign(Sender::Client, &[message]);
            message[SIGNATURE_OFFSET..][..SIGNATURE_LEN].copy_from_slice(&signature);
        }
    }

    /// Sends a frame. Returns the responses, or `None` if the server closed the connection.
    ///
    /// # Errors
    /// A response that is not protected as negotiated or is not SMB 2.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Result<Option<Vec<Reply>>, String> {
        let Some(server) = &mut self.server else {
            return Ok(None);
        };
        let Some(answers) = server.frame(frame) else {
            self.lose();
            return Ok(None);
        };
        let mut all = Vec::new();
        for answer in answers {
            self.open(&answer, &mut all)?;
        }
        Ok(Some(all))
    }

    fn open(&self, answer: &[u8], all: &mut Vec<Reply>) -> Result<(), String> {
        let length = u32::from_be_bytes(answer[..FRAME_HEADER_LEN].try_into().unwrap()) as usize;
        let mut bytes = answer[FRAME_HEADER_LEN..].to_vec();
        if length != bytes.len() {
            return Err("an answer of another length than it says".into());
        }
        let mut sealed = false;
        if bytes.starts_with(b"\xFDSMB") {
            let (_, opener) = self.sealing.as_ref().ok_or("a sealed answer without keys")?;
            let (head, message) = bytes
                .split_first_chunk_mut::<TRANSFORM_HEADER_LEN>()
                .ok_or("a cut transform header")?;
            opener
                .open(head, message)
                .map_err(|_| "an answer that does not open")?;
            bytes.drain(..TRANSFORM_HEADER_LEN);
            sealed = true;
        }
        if bytes.starts_with(b"\xFCSMB") {
            let (algorithms, chained) = self.kind.compression.ok_or("compressed without being asked")?;
            bytes = decompress(&bytes, algorithms, chained, 1 << 24)
                .map_err(|error| format!("an answer that does not decompress: {error:?}"))?;
        }
        for message in CompoundMessages::new(&bytes) {
            let message = message.map_err(|error| format!("an answer that is no chain: {error}"))?;
            let header = Header::decode(&mut Reader::new(message, "header"))
                .map_err(|error| format!("an answer without header: {error}"))?;
            if !header.is_response() {
                return Err("an answer that is a request".into());
            }
            if sealed && header.signature != [0; SIGNATURE_LEN] {
                return Err(format!("a signature in a sealed answer: {header:?}"));
            }
            // The server refuses what it cannot verify with the client's own signature.
            if header.flags.contains(HeaderFlags::SIGNED)
                && !header.status.is_error()
                && let Some(signer) = &self.signer
                && signer.verify(Sender::Server, &[message]).is_err()
            {
                return Err(format!("an answer that is signed wrongly: {header:?}"));
            }
            let message = message.to_vec();
            all.push(Reply {
                header,
                message,
                sealed,
            });
        }
        Ok(())
    }

    /// Sends one valid request and returns its response.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn call(
        &mut self,
        random: &mut Random,
        command: Command,
        body: &[u8],
    ) -> Result<Reply, String> {
        let message = self.message(command, body);
        let id = self.next_id - 1;
        let frame = self.wrap(random, vec![message]);
        let replies = self.send(&frame)?;
        let replies = replies.ok_or_else(|| format!("the server hung up at {command:?}"))?;
        let mut own = replies
            .into_iter()
            .filter(|reply| reply.header.message_id.0 == id && reply.header.status != NtStatus::PENDING);
        own.next().ok_or_else(|| format!("no answer to {command:?}"))
    }

    fn negotiate(&mut self, random: &mut Random) -> Result<(), String> {
        let kind = self.kind;
        let mut contexts = vec![
            Context::PreauthIntegrity {
                hash_algorithms: vec![HashAlgorithm::SHA_512],
                salt: &[5; 32],
            },
            Context::Signing(vec![kind.wire_signing()]),
        ];
        contexts.extend(kind.wire_cipher().map(|cipher| Context::Encryption(vec![cipher])));
        if let Some((_, chained)) = kind.compression {
            contexts.push(Context::Compression {
                flags: match chained {
                    true => CompressionFlags::CHAINED,
                    false => CompressionFlags::default(),
                },
                algorithms: kind.wire_compression(),
            });
        }
        if kind.dialect != Dialect::Smb311 {
            contexts.clear();
        }
        let request = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::LARGE_MTU
                | Capabilities::LEASING
                | Capabilities::DIRECTORY_LEASING
                | Capabilities::ENCRYPTION,
            client_guid: Guid([random.below(3) as u8; 16]),
            dialects: vec![kind.dialect],
            contexts,
        };
        let body = samples::body(|w| request.encode(w));
        let message = self.message(Command::Negotiate, &body);
        let replies = self.send(&message)?.ok_or("the server hung up at NEGOTIATE")?;
        let reply = replies.first().ok_or("no answer to NEGOTIATE")?;
        if reply.header.status != NtStatus::SUCCESS {
            return Err(format!("NEGOTIATE failed: {:?}", reply.header.status));
        }
        self.preauth.update(&[&message]);
        self.preauth.update(&[&reply.message]);
        Ok(())
    }

    fn log_in(&mut self, random: &mut Random) -> Result<(), String> {
        let mut spnego = raw::spnego("alice", "secret");
        let mut preauth = self.preauth.clone();
        let mut token = spnego.start(&[]).map_err(|error| format!("{error}"))?;
        loop {
            let request = SessionSetupRequest {
                flags: Default::default(),
                security_mode: SecurityMode::SIGNING_ENABLED,
                capabilities: Capabilities::default(),
                previous_session_id: SessionId::default(),
                security_buffer: &token,
            };
            let body = samples::body(|w| request.encode(w));
            let message = self.message(Command::SessionSetup, &body);
            preauth.update(&[&message]);
            let frame = self.wrap(random, vec![message]);
            let replies = self.send(&frame)?.ok_or("the server hung up at SESSION_SETUP")?;
            let reply = replies.first().ok_or("no answer to SESSION_SETUP")?;
            let status = reply.header.status;
            if status.is_error() && status != NtStatus::MORE_PROCESSING_REQUIRED {
                return Err(format!("the login failed: {status:?}"));
            }
            let response =
                SessionSetupResponse::decode(&mut reply.body()).map_err(|error| error.to_string())?;
            self.session = reply.header.session_id;
            match spnego
                .step(response.security_buffer)
                .map_err(|error| error.to_string())?
            {
                Step::Continue(next) => {
                    preauth.update(&[&reply.message]);
                    token = next;
                }
                Step::Done(established) => {
                    self.set_keys(&established.session_key, &preauth);
                    return Ok(());
                }
            }
        }
    }

    fn set_keys(&mut self, session_key: &SessionKey, preauth: &Preauth) {
        let kind = self.kind;
        if kind.dialect < Dialect::Smb300 {
            let key = session_key.truncated();
            self.signer = Some(Signer::new(SigningAlgorithm::HmacSha256, &key));
            return;
        }
        let context = || match kind.dialect {
            Dialect::Smb311 => KeyContext::Smb311(preauth.value()),
            _ => KeyContext::Smb30,
        };
        self.signer = Some(Signer::new(kind.signing, &signing_key(session_key, context())));
        self.sealing = kind.cipher.map(|cipher| {
            let (ours, theirs) = cipher_keys(session_key, context(), cipher);
            (Sealer::new(cipher, &ours, 0), Opener::new(cipher, &theirs))
        });
    }

    /// Connects to a share.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) fn connect_tree(&mut self, random: &mut Random, share: &str) -> Result<TreeId, String> {
        let request = TreeConnectRequest {
            flags: Default::default(),
            path: Text::from(format!("\\\\server\\{share}").as_str()),
        };
        let reply = self.call(
            random,
            Command::TreeConnect,
            &samples::body(|w| request.encode(w)),
        )?;
        let tree = reply
            .header
            .tree_id()
            .filter(|_| reply.header.status == NtStatus::SUCCESS);
        tree.ok_or_else(|| format!("no share {share}: {:?}", reply.header.status))
    }

    /// Returns whether responses must be signed, and whether they must be encrypted.
    pub(crate) fn protection(&self) -> (bool, bool) {
        (self.signer.is_some(), self.sealing.is_some())
    }
}
