//! A server: it checks what the client sends to the last bit, and answers in any order it likes.

#[path = "peer/account.rs"]
mod account;
#[path = "peer/handshake.rs"]
mod handshake;
#[path = "peer/hub.rs"]
mod hub;

pub(crate) use hub::{Compounds, Hub};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::seal::{self, Channel};
use crate::ticket::Ticket;
use crate::{Random, content};
use ropeway_smb_proto::auth::Mechanism;
use ropeway_smb_proto::auth::ntlm::{NtlmServer, ServerNames, nt_hash};
use ropeway_smb_proto::auth::spnego::SpnegoServer;
use ropeway_smb_proto::crypto::{Cipher, Preauth, Sender, Signer, SigningAlgorithm};
use ropeway_smb_proto::secret::{Key, Password};
use ropeway_smb_wire::create::CreateRequest;
use ropeway_smb_wire::error::ErrorResponse;
use ropeway_smb_wire::fsctl::validate_negotiate::ValidateNegotiateResponse;
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, SecurityMode};
use ropeway_smb_wire::read::{ReadRequest, ReadResponse};
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_smb_wire::tree_connect::{ShareCapabilities, ShareType, TreeConnectResponse};
use ropeway_smb_wire::write::{WriteRequest, WriteResponse};
use ropeway_smb_wire::{AsyncId, FileId, FileTime, Guid, NtStatus, Reader, SessionId, TreeId, Writer, bare};

pub(crate) const TREE: TreeId = TreeId(7);
/// Files end here.
pub(crate) const END_OF_FILE: u64 = 1 << 40;
/// What CREATE does not find.
pub(crate) const MISSING: &str = "missing";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    AsAsked,
    One,
    /// None as long as the client has some.
    Starving,
}

/// The server's side of the validation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Validation {
    /// The truth, changed by this.
    Told(fn(&mut ValidateNegotiateResponse)),
    Refused(NtStatus),
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) dialect: Dialect,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) signing: SigningAlgorithm,
    pub(crate) signing_required: bool,
    pub(crate) encrypt_data: bool,
    pub(crate) compression: bool,
    pub(crate) large_mtu: bool,
    pub(crate) grant: Grant,
    pub(crate) session_flags: SessionFlags,
    /// Share in percent of answers that come later, with or without an interim one.
    pub(crate) late: usize,
    /// Share in percent of compounds answered in several frames.
    pub(crate) split: usize,
    /// What becomes of the answer to VALIDATE_NEGOTIATE_INFO.
    pub(crate) validation: Validation,
    /// Answers to signed requests are not signed.
    pub(crate) forgets_to_sign: bool,
    /// Users come with tickets instead of passwords.
    pub(crate) tickets: bool,
    /// What becomes of compounds.
    pub(crate) compounds: Compounds,
    /// The share is in DFS.
    pub(crate) dfs: bool,
    /// ECHO is not answered.
    pub(crate) deaf: bool,
    /// Requests may come in another order than their ids, as those of a client do whose workers sign them.
    pub(crate) reorders: bool,
    /// Every name is taken: a renaming that may not replace is refused.
    pub(crate) taken: bool,
    /// There is no room for any content, and what is related to the WRITE that finds out goes on.
    pub(crate) full: bool,
    /// The size that CLOSE and QUERY_INFO tell, whatever was written.
    pub(crate) keeps: Option<u64>,
    pub(crate) seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            dialect: Dialect::Smb311,
            cipher: None,
            signing: SigningAlgorithm::AesGmac,
            signing_required: false,
            encrypt_data: false,
            compression: false,
            large_mtu: true,
            grant: Grant::AsAsked,
            session_flags: SessionFlags::default(),
            late: 0,
            split: 0,
            validation: Validation::Told(|_| {}),
            forgets_to_sign: false,
            tickets: false,
            compounds: Compounds::Taken,
            dfs: false,
            deaf: false,
            reorders: false,
            taken: false,
            full: false,
            keeps: None,
            seed: 1,
        }
    }
}

/// A session as all connections of a server know it.
#[derive(Clone)]
pub(crate) struct Master {
    pub(crate) id: SessionId,
    signing: Key,
    ours: Key,
    theirs: Key,
}

struct Late {
    replies: Vec<Vec<u8>>,
    sealed: bool,
    signed: bool,
    credits: Vec<u16>,
}

pub(crate) struct Peer {
    pub(crate) setup: Setup,
    random: Random,
    input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    negotiated: Option<(SecurityMode, Capabilities, Guid, Vec<Dialect>)>,
    preauth: Preauth,
    setup_hash: Preauth,
    spnego: SpnegoServer,
    pub(crate) master: Option<Master>,
    pub(crate) channel: Option<Channel>,
    next_id: u64,
    /// Ids before the next that have not come: where such a range starts, and where it ends.
    gaps: BTreeMap<u64, u64>,
    pub(crate) balance: u32,
    /// Credits in requests without answer.
    in_use: u32,
    late: Vec<Late>,
    watches: BTreeMap<u64, (Header, bool, bool)>,
    /// Interim answers to what is never answered.
    announced: Vec<(Vec<u8>, bool)>,
    files: u64,
    pub(crate) written: u64,
    pub(crate) cancels: u32,
    expired: bool,
    pub(crate) frames: u32,
    pub(crate) sealed_frames: u32,
    /// What all connections of the server know.
    pub(crate) hub: Arc<Mutex<Hub>>,
    /// Nothing but ECHO is answered.
    pub(crate) swallow: bool,
    /// The server has closed the connection.
    pub(crate) closed: bool,
}

const GUID: Guid = Guid([0x5A; 16]);

impl Peer {
    fn mechanisms(setup: &Setup) -> SpnegoServer {
        if setup.tickets {
            return SpnegoServer::new(vec![Ticket::boxed()]);
        }
        let names = ServerNames {
            netbios_computer: "PEER".into(),
            netbios_domain: "PEER".into(),
            dns_computer: "peer".into(),
            dns_domain: "".into(),
        };
        let lookup =
            Box::new(|user: &_, _: &_| (*user == "anna".into()).then(|| nt_hash(&Password::from("secret"))));
        SpnegoServer::new(vec![Box::new(NtlmServer::new(
            names,
            FileTime(7),
            [3; 8],
            true,
            lookup,
        ))])
    }

    /// Answers nothing until the client has logged in again.
    pub(crate) fn expire(&mut self) {
        self.expired = true;
        self.spnego = Self::mechanisms(&self.setup);
    }

    /// Another mechanism than its setup's.
    pub(crate) fn prove_by(&mut self, mechanism: Box<dyn Mechanism>) {
        self.spnego = SpnegoServer::new(vec![mechanism]);
    }

    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            random: Random::new(setup.seed),
            spnego: Self::mechanisms(&setup),
            setup,
            input: Vec::new(),
            output: Vec::new(),
            negotiated: None,
            preauth: Preauth::new(),
            setup_hash: Preauth::new(),
            expired: false,
            master: None,
            channel: None,
            next_id: 0,
            gaps: BTreeMap::new(),
            balance: 1,
            in_use: 0,
            late: Vec::new(),
            watches: BTreeMap::new(),
            announced: Vec::new(),
            files: 0,
            written: 0,
            cancels: 0,
            frames: 0,
            sealed_frames: 0,
            hub: Arc::default(),
            swallow: false,
            closed: false,
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Bytes from the client.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some(head) = self.input.first_chunk::<4>() {
            let length = u32::from_be_bytes(*head) as usize;
            if self.input.len() < 4 + length {
                break;
            }
            let rest = self.input.split_off(4 + length);
            let frame = std::mem::replace(&mut self.input, rest).split_off(4);
            self.frames += 1;
            self.announce_again();
            self.take_frame(frame);
        }
    }

    /// Answers what was put off; which first is chance.
    pub(crate) fn work(&mut self) {
        while !self.late.is_empty() && self.random.percent(70) {
            let place = self.random.below(self.late.len());
            let late = self.late.swap_remove(place);
            self.emit(late);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.late.is_empty()
    }

    fn take_frame(&mut self, frame: Vec<u8>) {
        let (messages, sealed) = seal::unwrap(self.channel.as_ref(), self.setup.compression, frame);
        self.sealed_frames += u32::from(sealed);
        let mut replies = Vec::new();
        let mut credits = Vec::new();
        let (mut file, mut failed) = (FileId::default(), None);
        let mut signed = false;
        if !self.takes(messages.len()) {
            return;
        }
        for (place, message) in messages.iter().enumerate() {
            let header = Header::decode(&mut Reader::new(message, "test")).unwrap();
            if header.command == Command::SessionSetup && header.session_id != SessionId(0) {
                self.take_session(&header);
            }
            signed = self.check_signature(&header, message, sealed);
            if header.command == Command::Cancel {
                self.cancel(&header);
                continue;
            }
            self.check_account(&header);
            let related = header.flags.contains(HeaderFlags::RELATED_OPERATIONS);
            if related {
                assert_eq!(header.session_id, SessionId::RELATED);
                assert_eq!(header.target, Target::Sync(TreeId::RELATED));
            } else {
                (file, failed) = (FileId::default(), None);
            }
            if header.command == Command::ChangeNotify {
                self.watch(header, sealed, signed);
                continue;
            }
            if self.is_swallowed(&header, place) {
                self.announce_for_ever(&header, sealed);
                continue;
            }
            let refused = match self.setup.compounds {
                Compounds::Refused(status) if messages.len() > 1 && (place > 0 || related) => Some(status),
                _ => None,
            };
            let (status, body) = match failed.or(refused) {
                Some(status) => (status, Vec::new()),
                None => self.answer(&header, message, &mut file),
            };
            if status.is_error() && !self.setup.full {
                failed = Some(NtStatus::FILE_CLOSED);
            }
            replies.push(self.reply(&header, status, &body));
            credits.push(header.credits);
            if header.command == Command::SessionSetup {
                self.finish_setup(status, message, &mut replies);
                replies.clear();
                credits.clear();
            }
            if header.command == Command::Negotiate {
                self.preauth.update(&[message]);
                // The credits are a part of what is hashed.
                self.grant_in(&mut replies[0], header.credits);
                credits[0] = u16::MAX;
                self.preauth.update(&[&replies[0]]);
            }
        }
        let late = Late {
            replies,
            sealed,
            signed,
            credits,
        };
        let control = messages.len() == 1 && matches!(messages[0][12], 0 | 1);
        self.say(late, control);
    }

    fn say(&mut self, late: Late, control: bool) {
        if late.replies.is_empty() || self.closed {
            return;
        }
        if !control && self.random.percent(self.setup.late) {
            self.put_off(late);
        } else {
            self.emit(late);
        }
    }

    fn reply(&self, request: &Header, status: NtStatus, body: &[u8]) -> Vec<u8> {
        let mut reply = request.reply(status);
        if let Some(channel) = &self.channel {
            reply.session_id = channel.id;
        } else if request.command == Command::SessionSetup {
            reply.session_id = SessionId(0x77);
        }
        if request.command == Command::TreeConnect {
            reply.target = Target::Sync(TREE);
        }
        encode(&reply, |w| {
            if body.is_empty() {
                ErrorResponse::EMPTY.encode(w);
            } else {
                w.bytes(body);
            }
        })
    }

    fn check_signature(&self, header: &Header, message: &[u8], sealed: bool) -> bool {
        let signed = header.flags.contains(HeaderFlags::SIGNED);
        if signed {
            let signer = match (&self.channel, &self.master) {
                (Some(channel), _) => &channel.signer,
                (None, Some(master)) => &Signer::new(self.setup.signing, &master.signing),
                _ => panic!("signed without keys"),
            };
            signer
                .verify(Sender::Client, &[message])
                .expect("the client signs rightly");
        }
        if self.channel.is_some() && self.setup.signing_required && header.command != Command::SessionSetup {
            assert!(signed || sealed, "{:?} is not protected", header.command);
        }
        if self.setup.encrypt_data && self.channel.is_some() && header.command != Command::SessionSetup {
            assert!(sealed, "{:?} is not sealed", header.command);
        }
        signed
    }

    fn multi_credit(&self) -> bool {
        self.setup.large_mtu && self.setup.dialect >= Dialect::Smb210 && self.negotiated.is_some()
    }

    /// A late answer, perhaps announced.
    fn put_off(&mut self, mut late: Late) {
        if late.replies.len() == 1 && self.random.percent(50) {
            let mut header = Header::decode(&mut Reader::new(&late.replies[0], "test")).unwrap();
            let status = header.status;
            header.flags |= HeaderFlags::ASYNC_COMMAND;
            header.target = Target::Async(AsyncId(header.message_id.0 + 1000));
            header.status = NtStatus::PENDING;
            let mut interim = encode(&header, |w| ErrorResponse::EMPTY.encode(w));
            self.grant_in(&mut interim, late.credits[0]);
            header.status = status;
            let body = late.replies[0].split_off(HEADER_LEN);
            late.replies[0] = encode(&header, |w| w.bytes(&body));
            late.credits[0] = u16::MAX;
            let sealed = late.sealed;
            self.send(vec![interim], sealed, false);
        }
        self.late.push(late);
    }

    fn emit(&mut self, mut late: Late) {
        for (reply, asked) in late.replies.iter_mut().zip(&late.credits) {
            // Already granted.
            if *asked != u16::MAX {
                self.grant_in(reply, *asked);
            }
        }
        if late.replies.len() > 1 && self.random.percent(self.setup.split) {
            for reply in late.replies {
                self.send(vec![reply], late.sealed, late.signed);
            }
        } else {
            self.send(late.replies, late.sealed, late.signed);
        }
    }

    fn send(&mut self, replies: Vec<Vec<u8>>, sealed: bool, signed: bool) {
        let compressed = self.setup.compression && self.channel.is_some();
        let forged = self.hub.lock().unwrap().forged;
        let (signer, sealing) = match &mut self.channel {
            Some(channel) if sealed => {
                let id = channel.id;
                (None, channel.sealing.as_mut().map(|(sealer, _)| (sealer, id)))
            }
            Some(channel) if signed && !self.setup.forgets_to_sign && !forged => {
                (Some(&channel.signer), None)
            }
            _ => (None, None),
        };
        let frame = seal::wrap(replies, signer, sealing, compressed);
        self.output.extend_from_slice(&frame);
    }

    fn watch(&mut self, header: Header, sealed: bool, signed: bool) {
        let mut interim = header.reply(NtStatus::PENDING);
        interim.flags |= HeaderFlags::ASYNC_COMMAND;
        interim.target = Target::Async(AsyncId(header.message_id.0 + 1000));
        interim.session_id = self.channel.as_ref().unwrap().id;
        let mut message = encode(&interim, |w| ErrorResponse::EMPTY.encode(w));
        self.grant_in(&mut message, header.credits);
        self.send(vec![message], sealed, false);
        self.watches
            .insert(header.message_id.0, (interim, sealed, signed));
    }

    fn cancel(&mut self, header: &Header) {
        self.cancels += 1;
        if let Some((mut reply, sealed, signed)) = self.watches.remove(&header.message_id.0) {
            reply.status = NtStatus::CANCELLED;
            let message = encode(&reply, |w| ErrorResponse::EMPTY.encode(w));
            self.send(vec![message], sealed, signed);
        }
    }

    /// Status and body; an error has an empty one.
    fn answer(&mut self, header: &Header, message: &[u8], file: &mut FileId) -> (NtStatus, Vec<u8>) {
        let mut reader = Reader::at(message, HEADER_LEN, "test");
        if self.expired && header.command != Command::SessionSetup {
            return (NtStatus::NETWORK_SESSION_EXPIRED, Vec::new());
        }
        if let Some(status) = self.note(header, message) {
            if status == NtStatus::NETWORK_SESSION_EXPIRED {
                self.expire();
            }
            return (status, Vec::new());
        }
        let body = match header.command {
            Command::Negotiate => return (NtStatus::SUCCESS, self.negotiate(&mut reader)),
            Command::SessionSetup => return self.session_setup(&mut reader, message),
            Command::TreeConnect => {
                let response = TreeConnectResponse {
                    share_type: ShareType::Disk,
                    share_flags: Default::default(),
                    capabilities: match self.setup.dfs {
                        true => ShareCapabilities::DFS,
                        false => ShareCapabilities::default(),
                    },
                    maximal_access: Default::default(),
                };
                body(|w| response.encode(w))
            }
            Command::Ioctl => match self.setup.validation {
                Validation::Told(change) => self.validate(&mut reader, change),
                Validation::Refused(status) => return (status, Vec::new()),
            },
            Command::TreeDisconnect => body(|w| bare::TreeDisconnectResponse.encode(w)),
            Command::Logoff => body(|w| bare::LogoffResponse.encode(w)),
            Command::Flush => body(|w| bare::FlushResponse.encode(w)),
            Command::SetInfo => return self.set_info(&mut reader),
            Command::QueryInfo => return hub::query_info(&mut reader, self.setup.keeps),
            Command::QueryDirectory => return self.list(&mut reader),
            Command::OplockBreak => message[HEADER_LEN..].to_vec(),
            Command::Echo => body(|w| bare::EchoResponse.encode(w)),
            Command::Create => {
                let request = CreateRequest::decode(&mut reader).unwrap();
                if request.name == MISSING.into() {
                    return (NtStatus::OBJECT_NAME_NOT_FOUND, Vec::new());
                }
                self.files += 1;
                *file = FileId {
                    persistent: self.files,
                    volatile: self.files,
                };
                body(|w| hub::created(*file).encode(w))
            }
            Command::Read => return self.read(&ReadRequest::decode(&mut reader).unwrap()),
            Command::Write if self.setup.full => return (NtStatus::DISK_FULL, Vec::new()),
            Command::Write => {
                let (request, data) = WriteRequest::decode(&mut reader).unwrap();
                assert_eq!(
                    data,
                    content(request.offset, data.len()),
                    "what is written is what was given"
                );
                self.written += data.len() as u64;
                let count = data.len() as u32;
                body(|w| WriteResponse { count }.encode(w))
            }
            Command::Close => self.close(),
            _ => return (NtStatus::NOT_SUPPORTED, Vec::new()),
        };
        (NtStatus::SUCCESS, body)
    }

    fn close(&self) -> Vec<u8> {
        body(|w| {
            w.u16(60);
            // The flag that says that the rest is told.
            w.u16(u16::from(self.setup.keeps.is_some()));
            w.zeros(44);
            w.u64(self.setup.keeps.unwrap_or(0));
            w.zeros(4);
        })
    }

    fn read(&mut self, request: &ReadRequest) -> (NtStatus, Vec<u8>) {
        if request.offset >= END_OF_FILE {
            return (NtStatus::END_OF_FILE, Vec::new());
        }
        let mut length = request.length as usize;
        if self.random.percent(15) {
            length = 1 + self.random.below(length);
        }
        let data = content(request.offset, length);
        let mut out = body(|w| ReadResponse::default().encode(w, data));
        if self.random.percent(5) {
            // Not where it is most convenient.
            out[2] += 8;
            out.splice(16..16, [0xEE; 8]);
        }
        (NtStatus::SUCCESS, out)
    }
}

/// A message of a header and what `encode` writes.
pub(crate) fn encode(header: &Header, encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    header.encode(&mut w);
    encode(&mut w);
    message
}

/// A body, offsets counted from a header before it.
pub(crate) fn body(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    encode(&mut Writer::within(&mut message, 0));
    message.split_off(HEADER_LEN)
}
