//! Messages from the server: decrypted, decompressed, verified, and passed to the request they
//! answer.

use std::sync::Arc;

use ropeway_block::BlockMut;
use ropeway_smb_wire::frame::Protocol;
use ropeway_smb_wire::header::{self, Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::read::ReadResponse;
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_smb_wire::transform::TransformHeader;
use ropeway_smb_wire::{MessageId, NtStatus, Reader, SessionId, TreeId};

use super::connection::Connection;
use super::control::Control;
use super::read_reply::copy_data;
use super::session::Session;
use super::table::{InFlight, Owner, Slot};
use super::{DropReason, EndReason, Event, Negotiated, PeerMisbehaved, Reply, Ticket};
use crate::compression::{Algorithms, Saved, decompress};
use crate::crypto::{Sender, Signer, TRANSFORM_HEADER_LEN};

/// The outcome of checking a reply's protection.
pub(super) enum ProtectionCheck {
    /// The protection is sufficient.
    Good,
    /// The protection is sufficient if the signature verifies.
    Signed(Arc<Signer>),
    /// The connection has ended.
    Ended,
}

impl Connection {
    /// Handles a frame without its frame header. `sealed` is the session whose keys sealed it, if
    /// any.
    pub(super) fn take_message(
        &mut self,
        bytes: &mut [u8],
        sealed: Option<SessionId>,
    ) -> Result<(), PeerMisbehaved> {
        match Protocol::of(bytes)? {
            Protocol::Smb2 => self.take_compound(bytes, sealed),
            Protocol::Transform if sealed.is_none() => {
                let (session, message) = self.open(bytes)?;
                self.take_message(message, Some(session))
            }
            Protocol::Compression => {
                let mut compression = self.compressor.compression;
                // A library in C decodes it, so it is for servers that have proved themselves.
                compression.algorithms.zstd &= self.session.is_some();
                if !compression.is_some() {
                    return Err(PeerMisbehaved::NotAReply);
                }
                let limit = self.input.frame_max();
                let mut message = decompress(bytes, compression.algorithms, compression.chained, limit)?;
                let saved = Saved::by(Algorithms::of(bytes), message.len(), bytes.len());
                self.saved.add(saved);
                if Protocol::of(&message)? != Protocol::Smb2 {
                    return Err(PeerMisbehaved::NotAReply);
                }
                self.take_compound(&mut message, sealed)
            }
            _ => Err(PeerMisbehaved::NotAReply),
        }
    }

    /// Opens a sealed message in place ([MS-SMB2] 3.2.5.1.1).
    pub(super) fn open<'a>(&self, bytes: &'a mut [u8]) -> Result<(SessionId, &'a mut [u8]), PeerMisbehaved> {
        let unopenable = PeerMisbehaved::Unopenable;
        let session = self.sealed_by(bytes)?;
        let (head, message) = bytes
            .split_first_chunk_mut::<TRANSFORM_HEADER_LEN>()
            .ok_or(unopenable)?;
        session.open(head, message).map_err(|_| unopenable)?;
        Ok((session.id, message))
    }

    /// Returns the session whose keys a transform header names.
    pub(super) fn sealed_by(&self, bytes: &[u8]) -> Result<&Session, PeerMisbehaved> {
        let transform = TransformHeader::decode(&mut Reader::new(bytes, "SMB2 TRANSFORM_HEADER"))?;
        self.session
            .as_ref()
            .filter(|session| session.id == transform.session_id)
            .ok_or(PeerMisbehaved::Unopenable)
    }

    pub(super) fn take_compound(
        &mut self,
        bytes: &mut [u8],
        sealed: Option<SessionId>,
    ) -> Result<(), PeerMisbehaved> {
        let mut rest = bytes;
        // Each pass consumes at least one header.
        while !rest.is_empty() && self.ended.is_none() {
            let length = match header::CompoundMessages::new(rest).next() {
                Some(message) => message?.len(),
                None => return Ok(()),
            };
            let (message, after) = rest.split_at_mut(length);
            self.take_one(message, sealed)?;
            rest = after;
        }
        Ok(())
    }

    fn take_one(&mut self, message: &mut [u8], sealed: Option<SessionId>) -> Result<(), PeerMisbehaved> {
        let header = Header::decode(&mut Reader::new(message, "SMB2 header"))?;
        if !header.is_response() {
            return Err(PeerMisbehaved::NotAReply);
        }
        if header.message_id == MessageId::UNSOLICITED {
            return self.take_notification(&header, message, sealed);
        }
        let flight = self.awaited(&header)?;
        if !self.check(&header, flight, message, sealed)? {
            return Ok(());
        }
        if header.status == NtStatus::PENDING {
            self.take_interim(&header, flight);
            return Ok(());
        }
        self.check_length(&header, message)?;
        self.answered(&header, flight)?;
        match flight.owner {
            Owner::Negotiate if header.status != NtStatus::SUCCESS => {
                Err(PeerMisbehaved::NegotiationRefused(header.status))
            }
            Owner::Negotiate => self.handle_negotiate(message),
            Owner::SessionSetup => self.handle_session_setup(&header, message),
            Owner::Validate => self.handle_validation(&header, message),
            Owner::Echo | Owner::TreeDisconnect => Ok(()),
            Owner::KeepAlive => {
                self.echoing = false;
                Ok(())
            }
            Owner::LogOff => {
                // The status does not matter: a session unknown to the server has ended as well.
                self.end(EndReason::LoggedOff);
                Ok(())
            }
            Owner::Compound(ticket, index) => {
                let block = self
                    .table
                    .compound_mut(ticket)
                    .and_then(|sent| sent.slots[index].operation.receive.take());
                let reply = self.reply(&header, message, block)?;
                self.reply_to(ticket, index, reply)
            }
        }
    }

    /// Returns the request that a message answers.
    pub(super) fn awaited(&self, header: &Header) -> Result<InFlight, PeerMisbehaved> {
        let flight = self
            .table
            .flight(header.message_id)
            .filter(|flight| !flight.with_job)
            .ok_or(PeerMisbehaved::Unasked(header.message_id))?;
        if flight.command != header.command {
            return Err(PeerMisbehaved::WrongCommand(header.command));
        }
        Ok(flight)
    }

    /// Returns whether a message has the required protection. `false` means that the connection has
    /// ended.
    fn check(
        &mut self,
        header: &Header,
        flight: InFlight,
        message: &mut [u8],
        sealed: Option<SessionId>,
    ) -> Result<bool, PeerMisbehaved> {
        match self.check_protection(header, flight, sealed)? {
            ProtectionCheck::Good => Ok(true),
            ProtectionCheck::Ended => Ok(false),
            ProtectionCheck::Signed(signer) => self.verify(&signer, message).map(|()| true),
        }
    }

    pub(super) fn verify(&self, signer: &Signer, message: &mut [u8]) -> Result<(), PeerMisbehaved> {
        let verified = signer.verify_contiguous(Sender::Server, message);
        verified.map_err(|_| PeerMisbehaved::BadSignature)
    }

    /// Determines what is left to verify of a message's protection ([MS-SMB2] 3.2.5.1.1,
    /// 3.2.5.1.3).
    pub(super) fn check_protection(
        &mut self,
        header: &Header,
        flight: InFlight,
        sealed: Option<SessionId>,
    ) -> Result<ProtectionCheck, PeerMisbehaved> {
        if let Some(session) = sealed {
            let same =
                header.session_id == session || (flight.related && header.session_id == SessionId::RELATED);
            return if same {
                Ok(ProtectionCheck::Good)
            } else {
                Err(PeerMisbehaved::WrongSession)
            };
        }
        if flight.sealed {
            return self.session_deleted_or(header, PeerMisbehaved::Unencrypted);
        }
        // The login code verifies its own replies.
        let Some(session) = self
            .session
            .as_ref()
            .filter(|_| flight.owner != Owner::SessionSetup)
        else {
            return Ok(ProtectionCheck::Good);
        };
        let interim = header.status == NtStatus::PENDING;
        if header.flags.contains(HeaderFlags::SIGNED) && !interim {
            return Ok(match session.signer() {
                Some(signer) => ProtectionCheck::Signed(Arc::clone(signer)),
                None => ProtectionCheck::Good,
            });
        }
        let required = session.signs() && (session.sign_all || flight.signed);
        if required && !(interim && matches!(header.target, Target::Async(_))) {
            return self.session_deleted_or(header, PeerMisbehaved::Unsigned);
        }
        Ok(ProtectionCheck::Good)
    }

    /// Accepts an unprotected STATUS_USER_SESSION_DELETED, and fails on any other status. A server
    /// that no longer knows the session cannot protect this reply. Believing it costs no more than
    /// the loss of the connection, which anyone on the network path can cause.
    fn session_deleted_or(
        &mut self,
        header: &Header,
        misbehaved: PeerMisbehaved,
    ) -> Result<ProtectionCheck, PeerMisbehaved> {
        if header.status == NtStatus::USER_SESSION_DELETED {
            self.end(EndReason::SessionDeleted);
            return Ok(ProtectionCheck::Ended);
        }
        Err(misbehaved)
    }

    /// Handles an interim reply ([MS-SMB2] 3.2.5.1.5).
    fn take_interim(&mut self, header: &Header, flight: InFlight) {
        self.credits.grant(header.credits);
        if !flight.interim {
            self.credits.settle_ask(flight.ask);
        }
        let async_id = match header.target {
            Target::Async(async_id) => Some(async_id),
            Target::Sync(_) => None,
        };
        self.table.note_interim(header.message_id, async_id);
    }

    /// Removes an answered request and settles its credits.
    pub(super) fn answered(&mut self, header: &Header, flight: InFlight) -> Result<(), PeerMisbehaved> {
        self.table.remove(header.message_id);
        if !flight.interim {
            self.credits.settle_ask(flight.ask);
        }
        self.credits.done(flight.charge);
        self.credits.grant(header.credits);
        if header.status == NtStatus::NETWORK_SESSION_EXPIRED && !self.expired {
            self.expired = true;
            self.notify(Event::SessionExpired)?;
        }
        Ok(())
    }

    /// Builds a reply from a message in foreign memory. The data of a READ is copied into its
    /// block; if the block is lent, the message keeps the data until the block returns.
    fn reply(
        &mut self,
        header: &Header,
        message: &[u8],
        block: Option<BlockMut>,
    ) -> Result<Reply, PeerMisbehaved> {
        let mut reply = Reply {
            header: *header,
            message: Vec::new(),
            payload: None,
            returned: None,
        };
        let mut kept = message.len();
        if let Some(mut block) = block {
            kept = copy_data(header, message, &mut block)?;
            self.copied += block.len() as u64;
            reply.payload = Some(block);
        }
        reply.message = message[..kept].to_vec();
        Ok(reply)
    }

    /// Checks the length of a READ's data before the data is used.
    fn check_length(&mut self, header: &Header, message: &[u8]) -> Result<(), PeerMisbehaved> {
        let full = matches!(header.status, NtStatus::SUCCESS | NtStatus::BUFFER_OVERFLOW);
        if header.command != Command::Read || !full {
            return Ok(());
        }
        let (_, payload) =
            ReadResponse::decode_head(&mut Reader::at(message, HEADER_LEN, "SMB2 READ Response"))?;
        payload.range(message.len())?;
        match self.table.read_target(header.message_id) {
            Some((_, asked)) if payload.length as usize > asked => Err(PeerMisbehaved::ReadTooLong),
            _ => Ok(()),
        }
    }

    /// Stores one reply of a compound.
    pub(super) fn reply_to(
        &mut self,
        ticket: Ticket,
        index: usize,
        reply: Reply,
    ) -> Result<(), PeerMisbehaved> {
        let Some(sent) = self.table.compound_mut(ticket) else {
            return Err(PeerMisbehaved::Unasked(reply.header.message_id));
        };
        let entered = match (reply.header.command, reply.header.status) {
            (Command::TreeConnect, NtStatus::SUCCESS) => reply.header.tree_id(),
            (Command::TreeDisconnect, NtStatus::SUCCESS) => {
                self.trees.remove(&sent.slots[index].operation.tree);
                None
            }
            _ => None,
        };
        sent.slots[index].reply = Some(reply);
        sent.open -= 1;
        let (open, count) = (sent.open, sent.slots.len());
        self.note_partial(ticket, open, count);
        if let Some(tree) = entered {
            self.trees.insert(tree);
            self.tree_connected(tree);
        }
        self.complete(ticket)
    }

    /// Reports a compound as replied if all its replies and blocks are present.
    pub(super) fn complete(&mut self, ticket: Ticket) -> Result<(), PeerMisbehaved> {
        if !self
            .table
            .compound_mut(ticket)
            .is_some_and(|sent| sent.is_complete())
        {
            return Ok(());
        }
        let Some(mut sent) = self.table.remove_compound(ticket) else {
            return Ok(());
        };
        let outdated = matches!(&sent.slots[..], [slot] if slot.reply.as_ref().is_some_and(is_outdated));
        let replays = self
            .negotiated
            .as_ref()
            .is_some_and(Negotiated::has_channel_sequence);
        if outdated && replays {
            let operations = self.recover(sent);
            return self.notify(Event::Dropped {
                ticket,
                operations,
                sent: true,
                reason: DropReason::Outdated,
            });
        }
        let has_failed = |slot: &Slot| slot.reply.as_ref().is_some_and(|reply| reply.status().is_error());
        if sent.slots.iter().any(has_failed) {
            self.restore(&mut sent);
        } else {
            sent.slots
                .iter_mut()
                .for_each(|slot| slot.operation.payload = None);
        }
        let mut trees = false;
        let mut replies = Vec::with_capacity(sent.slots.len());
        for slot in sent.slots {
            trees |= slot.operation.command == Command::TreeConnect;
            let returned = slot.operation.payload;
            replies.extend(slot.reply.map(|reply| Reply { returned, ..reply }));
        }
        if trees && self.validating {
            self.held.push((ticket, replies));
            return Ok(());
        }
        self.notify(Event::Replied { ticket, replies })
    }

    /// Starts the validation of the negotiation at the first tree connect.
    fn tree_connected(&mut self, tree: TreeId) {
        let due = self.session.as_ref().is_some_and(|session| !session.validated);
        if due && !self.validating {
            self.validating = true;
            self.controls.push_back(Control::Validate(tree));
        }
    }

    /// Handles a message that answers no request ([MS-SMB2] 3.2.5.19). Such a message is never
    /// signed, and is sealed only if the server itself demands encryption; smbd sends it in clear
    /// text if only the client wants encryption. It reveals no more than that another client wants
    /// an open file.
    fn take_notification(
        &mut self,
        header: &Header,
        message: &[u8],
        sealed: Option<SessionId>,
    ) -> Result<(), PeerMisbehaved> {
        let demanded = |session: &Session| session.flags.contains(SessionFlags::ENCRYPT_DATA);
        if sealed.is_none() && self.session.as_ref().is_some_and(demanded) {
            return Err(PeerMisbehaved::Unencrypted);
        }
        if header.command != Command::OplockBreak {
            // [MS-SMB2] 2.2.44.1: the server closed a session. The next reply says so too.
            return Ok(());
        }
        let mut reader = Reader::at(message, HEADER_LEN, "SMB2 OPLOCK_BREAK Notification");
        let notification = BreakNotification::decode(&mut reader)?;
        self.notify(Event::Broke(notification))
    }
}

/// Returns whether the server rejected a request as older than the loss of a channel ([MS-SMB2]
/// 3.3.5.2.10).
fn is_outdated(reply: &Reply) -> bool {
    reply.header.status == NtStatus::FILE_NOT_AVAILABLE
        && matches!(
            reply.header.command,
            Command::Write | Command::SetInfo | Command::Ioctl
        )
}
