//! Messages from the server: opened, decompressed, checked, and given to whoever awaits them.

use std::sync::Arc;

use ropeway_block::BlockMut;

use super::connection::Connection;
use super::session::Session;
use super::table::{Flight, Owner, Slot};
use super::transmit::Control;
use super::{DropReason, EndReason, Event, Negotiated, PeerMisbehaved, Reply, Ticket};
use crate::compression::decompress;
use crate::crypto::{Sender, Signer, TRANSFORM_HEADER_LEN};
use ropeway_smb_wire::frame::Protocol;
use ropeway_smb_wire::header::{self, Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::read::ReadResponse;
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_smb_wire::transform::TransformHeader;
use ropeway_smb_wire::{Malformed, MessageId, NtStatus, Reader, SessionId, TreeId};

/// What protects an answer.
pub(super) enum Guard {
    /// All there has to be.
    Good,
    /// Its signature, if that is good.
    Signed(Arc<Signer>),
    /// The connection has ended.
    Ended,
}

impl Connection {
    /// A message without its frame header; `sealed` by whose keys, if it was.
    pub(super) fn take_message(
        &mut self,
        bytes: &mut [u8],
        sealed: Option<SessionId>,
    ) -> Result<(), PeerMisbehaved> {
        match Protocol::of(bytes)? {
            Protocol::Smb2 => self.take_chain(bytes, sealed),
            Protocol::Transform if sealed.is_none() => {
                let (session, message) = self.open(bytes)?;
                self.take_message(message, Some(session))
            }
            Protocol::Compression => {
                let compression = self.compressor.compression;
                if !compression.is_some() {
                    return Err(PeerMisbehaved::NotAReply);
                }
                let limit = self.input.frame_max();
                let mut message = decompress(bytes, compression.algorithms, compression.chained, limit)?;
                if Protocol::of(&message)? != Protocol::Smb2 {
                    return Err(PeerMisbehaved::NotAReply);
                }
                self.take_chain(&mut message, sealed)
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

    /// By whose keys a message says it is sealed.
    pub(super) fn sealed_by(&self, bytes: &[u8]) -> Result<&Session, PeerMisbehaved> {
        let transform = TransformHeader::decode(&mut Reader::new(bytes, "SMB2 TRANSFORM_HEADER"))?;
        self.session
            .as_ref()
            .filter(|session| session.id == transform.session_id)
            .ok_or(PeerMisbehaved::Unopenable)
    }

    pub(super) fn take_chain(
        &mut self,
        bytes: &mut [u8],
        sealed: Option<SessionId>,
    ) -> Result<(), PeerMisbehaved> {
        let mut rest = bytes;
        // Each message takes at least its header off.
        while !rest.is_empty() && self.ended.is_none() {
            let length = match header::Chain::new(rest).next() {
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
                // Whatever it says: a session that the server does not know is ended, too.
                self.end(EndReason::LoggedOff);
                Ok(())
            }
            Owner::Chain(ticket, index) => {
                let block = self
                    .table
                    .chain_mut(ticket)
                    .and_then(|sent| sent.slots[index].operation.receive.take());
                let reply = self.reply(&header, message, block)?;
                self.reply_to(ticket, index, reply)
            }
        }
    }

    /// Who awaits this message.
    pub(super) fn awaited(&self, header: &Header) -> Result<Flight, PeerMisbehaved> {
        let flight = self
            .table
            .flight(header.message_id)
            .filter(|flight| !flight.away)
            .ok_or(PeerMisbehaved::Unasked(header.message_id))?;
        if flight.command != header.command {
            return Err(PeerMisbehaved::WrongCommand(header.command));
        }
        Ok(flight)
    }

    /// Whether a message is protected as it has to be. False: the connection has ended.
    fn check(
        &mut self,
        header: &Header,
        flight: Flight,
        message: &mut [u8],
        sealed: Option<SessionId>,
    ) -> Result<bool, PeerMisbehaved> {
        match self.guard(header, flight, sealed)? {
            Guard::Good => Ok(true),
            Guard::Ended => Ok(false),
            Guard::Signed(signer) => self.verify(&signer, message).map(|()| true),
        }
    }

    pub(super) fn verify(&self, signer: &Signer, message: &mut [u8]) -> Result<(), PeerMisbehaved> {
        let verified = signer.verify_contiguous(Sender::Server, message);
        verified.map_err(|_| PeerMisbehaved::BadSignature)
    }

    /// What protects a message, which is what has to ([MS-SMB2] 3.2.5.1.1, 3.2.5.1.3).
    pub(super) fn guard(
        &mut self,
        header: &Header,
        flight: Flight,
        sealed: Option<SessionId>,
    ) -> Result<Guard, PeerMisbehaved> {
        if let Some(session) = sealed {
            let same =
                header.session_id == session || (flight.related && header.session_id == SessionId::RELATED);
            return if same {
                Ok(Guard::Good)
            } else {
                Err(PeerMisbehaved::WrongSession)
            };
        }
        if flight.sealed {
            return self.session_deleted_or(header, PeerMisbehaved::Unencrypted);
        }
        // A login checks its own answers.
        let Some(session) = self
            .session
            .as_ref()
            .filter(|_| flight.owner != Owner::SessionSetup)
        else {
            return Ok(Guard::Good);
        };
        let interim = header.status == NtStatus::PENDING;
        if header.flags.contains(HeaderFlags::SIGNED) && !interim {
            return Ok(match session.signer() {
                Some(signer) => Guard::Signed(Arc::clone(signer)),
                None => Guard::Good,
            });
        }
        let required = session.signs() && (session.sign_all || flight.signed);
        if required && !(interim && matches!(header.target, Target::Async(_))) {
            return self.session_deleted_or(header, PeerMisbehaved::Unsigned);
        }
        Ok(Guard::Good)
    }

    /// A server that knows nothing of the session cannot protect its saying so; believing it is no worse than the loss of
    /// the connection, which anybody on the way could bring about.
    fn session_deleted_or(
        &mut self,
        header: &Header,
        misbehaved: PeerMisbehaved,
    ) -> Result<Guard, PeerMisbehaved> {
        if header.status == NtStatus::USER_SESSION_DELETED {
            self.end(EndReason::SessionDeleted);
            return Ok(Guard::Ended);
        }
        Err(misbehaved)
    }

    /// [MS-SMB2] 3.2.5.1.5: the answer comes later.
    fn take_interim(&mut self, header: &Header, flight: Flight) {
        self.credits.grant(header.credits);
        if !flight.interim {
            self.credits.heard(flight.ask);
        }
        let async_id = match header.target {
            Target::Async(async_id) => Some(async_id),
            Target::Sync(_) => None,
        };
        self.table.note_interim(header.message_id, async_id);
    }

    /// Settles a request's account.
    pub(super) fn answered(&mut self, header: &Header, flight: Flight) -> Result<(), PeerMisbehaved> {
        self.table.remove(header.message_id);
        if !flight.interim {
            self.credits.heard(flight.ask);
        }
        self.credits.done(flight.charge);
        self.credits.grant(header.credits);
        if header.status == NtStatus::NETWORK_SESSION_EXPIRED && !self.expired {
            self.expired = true;
            self.notify(Event::SessionExpired)?;
        }
        Ok(())
    }

    /// An answer that lies in memory that is not its own; a READ's data is copied to its block, or kept until that is
    /// back.
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

    /// Checks the length of a READ's data before anything is done with it.
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

    /// One answer of a chain.
    pub(super) fn reply_to(
        &mut self,
        ticket: Ticket,
        index: usize,
        reply: Reply,
    ) -> Result<(), PeerMisbehaved> {
        let Some(sent) = self.table.chain_mut(ticket) else {
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
            self.entered(tree);
        }
        self.complete(ticket)
    }

    /// A chain is answered, if it has all answers and all blocks.
    pub(super) fn complete(&mut self, ticket: Ticket) -> Result<(), PeerMisbehaved> {
        if !self
            .table
            .chain_mut(ticket)
            .is_some_and(|sent| sent.is_complete())
        {
            return Ok(());
        }
        let Some(mut sent) = self.table.remove_chain(ticket) else {
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

    /// A share was entered: the first one is the occasion to validate the negotiation.
    fn entered(&mut self, tree: TreeId) {
        let due = self.session.as_ref().is_some_and(|session| !session.validated);
        if due && !self.validating {
            self.validating = true;
            self.controls.push_back(Control::Validate(tree));
        }
    }

    /// What nobody asked for ([MS-SMB2] 3.2.5.19): never signed, and sealed only where the server itself demands that
    /// everything is (smbd sends it plain where only the client wants encryption). It says no more than that an open
    /// file is wanted elsewhere.
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
            // [MS-SMB2] 2.2.44.1: that a session was closed; the next answer says so too.
            return Ok(());
        }
        let mut reader = Reader::at(message, HEADER_LEN, "SMB2 OPLOCK_BREAK Notification");
        let notification = BreakNotification::decode(&mut reader)?;
        self.notify(Event::Broke(notification))
    }
}

/// Copies the data of a READ's answer to its block, which is empty after any other; how much of the message is left.
/// The data is no more than was asked for, which was checked.
pub(super) fn copy_data(header: &Header, message: &[u8], block: &mut BlockMut) -> Result<usize, Malformed> {
    block.set_len(0);
    let full = matches!(header.status, NtStatus::SUCCESS | NtStatus::BUFFER_OVERFLOW);
    if header.command != Command::Read || !full {
        return Ok(message.len());
    }
    let mut reader = Reader::at(message, HEADER_LEN, "SMB2 READ Response");
    let (_, payload) = ReadResponse::decode_head(&mut reader)?;
    let data = &message[payload.range(message.len())?];
    block.capacity_mut()[..data.len()].copy_from_slice(data);
    block.set_len(data.len());
    Ok(payload.offset.min(message.len()))
}

/// Whether the server took a request for one from before a channel was lost ([MS-SMB2] 3.3.5.2.10).
fn is_outdated(reply: &Reply) -> bool {
    reply.header.status == NtStatus::FILE_NOT_AVAILABLE
        && matches!(
            reply.header.command,
            Command::Write | Command::SetInfo | Command::Ioctl
        )
}
