//! The output side of a connection: from queues to frames.

use std::sync::Arc;

use ropeway_block::Block;
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags, Target};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::read::ReadRequest;
use ropeway_smb_wire::{MessageId, SessionId, TreeId, Writer, bare};

use super::connection::{CALLER_FLAGS, Connection, is_related};
use super::control::Control;
use super::credits::Bought;
use super::crypto_job::Work;
use super::frame::{Finish, Finished, Frame, Piece};
use super::table::{InFlight, Owner, SentCompound, Slot};
use super::{Compound, DropReason, EndReason, Negotiated, Part, PeerMisbehaved, Ticket, Transmit};
use crate::compression::Compression;
use crate::crypto::{SealError, SealTicket, Signer};

/// Length at which a transmit is complete, in bytes. A guess: one `writev` of this length fills any
/// socket buffer.
const COALESCE_MAX: usize = 1 << 20;
/// Number of parts at which a transmit is complete; `writev` takes 1024.
const PARTS_MAX: usize = 256;
/// Maximum number of ECHOs for credits before a compound that costs too much is dropped. A guess.
const CREDIT_ECHOES_MAX: u32 = 8;

/// The protection of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    None,
    Signed,
    Sealed,
}

/// The keys that protect one frame.
type Keys = (Option<Arc<Signer>>, Option<(SealTicket, SessionId)>);

/// What becomes of a frame.
enum Sending {
    Now(Finished),
    /// A job protects it first.
    Later(Piece, Keys),
}

impl Connection {
    /// Returns the bytes to send now, or `None` until something changes. Drop the parts once sent:
    /// they hold blocks.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let mut out = Transmit::default();
        let mut length = 0;
        while self.ended.is_none() && length < COALESCE_MAX && out.parts.len() < PARTS_MAX {
            match self.next_frame() {
                Ok(Some(finished)) => {
                    self.copied += finished.copied as u64;
                    self.saved.add(finished.saved);
                    for part in finished.parts {
                        length += part.as_slice().len();
                        append(&mut out, part);
                    }
                }
                Ok(None) => break,
                Err(reason) => self.end(reason),
            }
        }
        (!out.is_empty()).then_some(out)
    }

    fn next_frame(&mut self) -> Result<Option<Finished>, EndReason> {
        if let Some(finished) = self.next_cancel()? {
            return Ok(Some(finished));
        }
        if let Some(finished) = self.ready.pop_front() {
            return Ok(Some(finished));
        }
        loop {
            if !self.controls.is_empty() {
                if !self.credits.affords(1) {
                    return self.wait_for_credit();
                }
                if let Some(control) = self.controls.pop_front() {
                    return self.send_control(control).map(Some);
                }
            }
            if self.queue.is_empty() && self.begin_logoff() {
                continue;
            }
            // An expired session accepts nothing but a login ([MS-SMB2] 3.3.5.2.9), so the queue
            // waits.
            if self.session.is_none() || self.expired {
                return Ok(None);
            }
            let Some((_, compound)) = self.queue.front() else {
                return Ok(None);
            };
            if compound.encrypt && !self.session.as_ref().is_some_and(|session| session.seals()) {
                if let Some((ticket, compound)) = self.queue.pop_front() {
                    self.drop_queued(ticket, compound, DropReason::NoEncryption);
                }
                continue;
            }
            let charge = self.compound_charge(compound);
            if self.credits.affords(charge) {
                let Some((ticket, compound)) = self.queue.pop_front() else {
                    return Ok(None);
                };
                self.credit_echoes = 0;
                self.credits.unwant(charge);
                match self.send_compound(ticket, compound)? {
                    Some(finished) => return Ok(Some(finished)),
                    None => continue,
                }
            }
            // Replies grant credits. With no reply outstanding, an ECHO must ask for more.
            if self.table.owed() > 0 {
                return Ok(None);
            }
            if !self.credits.affords(1) {
                return self.wait_for_credit();
            }
            if self.credit_echoes < CREDIT_ECHOES_MAX {
                self.credit_echoes += 1;
                self.controls.push_back(Control::Echo);
            } else if let Some((ticket, compound)) = self.queue.pop_front() {
                self.credit_echoes = 0;
                self.drop_queued(ticket, compound, DropReason::CreditsShort);
            }
        }
    }

    /// Waits for a credit, if an outstanding reply may bring one.
    fn wait_for_credit(&self) -> Result<Option<Finished>, EndReason> {
        if self.table.is_empty() {
            return Err(PeerMisbehaved::NoCredits.into());
        }
        Ok(None)
    }

    fn send_control(&mut self, control: Control) -> Result<Finished, EndReason> {
        let (owner, command) = match control {
            Control::Negotiate => (Owner::Negotiate, Command::Negotiate),
            Control::SessionSetup(_) => (Owner::SessionSetup, Command::SessionSetup),
            Control::Validate(_) => (Owner::Validate, Command::Ioctl),
            Control::Echo => (Owner::Echo, Command::Echo),
            Control::KeepAlive => (Owner::KeepAlive, Command::Echo),
            Control::TreeDisconnect(_) => (Owner::TreeDisconnect, Command::TreeDisconnect),
            Control::LogOff => (Owner::LogOff, Command::Logoff),
        };
        let eager = matches!(owner, Owner::Negotiate | Owner::SessionSetup | Owner::Echo);
        let bought = self.credits.buy(1, eager);
        let mut header = self.header(command, bought);
        let mut body = vec![0; HEADER_LEN];
        let protection = self.encode_control(&control, &mut header, &mut Writer::within(&mut body, 0));
        let body = &body[HEADER_LEN..];
        if protection == Protection::Signed {
            header.flags |= HeaderFlags::SIGNED;
        }
        self.register(bought, owner, command, protection, false);
        let mut frame = Frame::new(protection == Protection::Sealed);
        frame.push_bytes(&header, body);
        let finished = match (&self.login, owner) {
            (_, Owner::SessionSetup) => {
                let signer = self.login.signer(self.session.as_ref());
                frame.finish(
                    None,
                    Finish {
                        signer: signer.filter(|_| protection == Protection::Signed),
                        seal: None,
                        compress: None,
                    },
                )
            }
            _ => self.finish(frame, None, protection, None)?,
        };
        if let [Part::Bytes(bytes)] = &finished.parts[..] {
            let message = &bytes[ropeway_smb_wire::frame::FRAME_HEADER_LEN..];
            match owner {
                Owner::Negotiate => self.preauth.update(&[message]),
                Owner::SessionSetup => self.login.hash(message),
                _ => {}
            }
        }
        Ok(finished)
    }

    /// Writes the body of one of the connection's own requests and completes its header.
    fn encode_control(&self, control: &Control, header: &mut Header, w: &mut Writer<'_>) -> Protection {
        match control {
            Control::Negotiate => {
                self.offer().encode(w, &self.config, &self.salt);
                Protection::None
            }
            Control::SessionSetup(token) => {
                header.session_id = self.login.session_id();
                self.login.encode(&self.config, token, w);
                if self.login.signs() {
                    Protection::Signed
                } else {
                    Protection::None
                }
            }
            Control::Validate(tree) => {
                header.target = Target::Sync(*tree);
                self.encode_validation(w);
                self.protection(false, true)
            }
            Control::Echo | Control::KeepAlive => {
                bare::EchoRequest.encode(w);
                self.protection(false, false)
            }
            Control::TreeDisconnect(tree) => {
                header.target = Target::Sync(*tree);
                bare::TreeDisconnectRequest.encode(w);
                self.protection(false, false)
            }
            Control::LogOff => {
                bare::LogoffRequest.encode(w);
                self.protection(false, false)
            }
        }
    }

    /// Builds the frame of a compound. `None` if a job protects it first.
    fn send_compound(
        &mut self,
        ticket: Ticket,
        mut compound: Compound,
    ) -> Result<Option<Finished>, EndReason> {
        self.allow_compressed(&mut compound);
        let compress = self.compression_of(&compound);
        let mut operations = compound.operations.iter();
        let signs = operations.any(|operation| self.must_sign(operation.command));
        let protection = self.protection(compound.encrypt, signs);
        let mut frame = Frame::new(protection == Protection::Sealed);
        let all = 0..compound.operations.len();
        let related: Vec<bool> = all.map(|index| is_related(&compound, index)).collect();
        let mut slots = Vec::with_capacity(related.len());
        let mut payload = None;
        for (index, mut operation) in compound.operations.into_iter().enumerate() {
            let bought = self.credits.buy(self.charge(&operation), false);
            let mut header = self.header(operation.command, bought);
            header.flags |= operation.flags & self.caller_flags();
            if protection == Protection::Signed {
                header.flags |= HeaderFlags::SIGNED;
            }
            header.target = Target::Sync(operation.tree);
            if related[index] {
                // [MS-SMB2] 3.2.4.1.4.
                header.flags |= HeaderFlags::RELATED_OPERATIONS;
                header.target = Target::Sync(TreeId::RELATED);
                header.session_id = SessionId::RELATED;
            }
            frame.push(&header, &operation);
            self.register(
                bought,
                Owner::Compound(ticket, index),
                operation.command,
                protection,
                related[index],
            );
            if payload.is_none() {
                payload = operation.payload.take().map(|block| (index, block));
            }
            slots.push(Slot::sent(bought.id, operation));
        }
        let sent = SentCompound {
            open: related.len(),
            slots,
            sealed_in_place: None,
        };
        self.table.insert_compound(ticket, sent);
        let Some((index, payload)) = payload else {
            return self.finish(frame, None, protection, compress).map(Some);
        };
        Ok(match self.send_payload(frame, payload, protection)? {
            Sending::Now(mut finished) => {
                if let Some(sent) = self.table.compound_mut(ticket) {
                    sent.keep(index, &mut finished);
                }
                Some(finished)
            }
            Sending::Later(piece, (signer, seal)) => {
                self.table.set_compound_with_job(ticket, true);
                self.jobs.push(Work::Send {
                    ticket,
                    index,
                    piece,
                    signer,
                    seal,
                });
                None
            }
        })
    }

    /// Returns how to compress an IOCTL without a payload, if that is worthwhile: its input may be long.
    fn compression_of(&self, compound: &Compound) -> Option<Compression> {
        match &compound.operations[..] {
            [one] if one.command == Command::Ioctl => self.compressor.judge(&one.body),
            _ => None,
        }
    }

    /// Allows compressed replies to READs ([MS-SMB2] 3.2.4.6).
    fn allow_compressed(&self, compound: &mut Compound) {
        if !self.compressor.compression.is_some() {
            return;
        }
        for operation in &mut compound.operations {
            if operation.command == Command::Read {
                ReadRequest::allow_compressed(&mut operation.body);
            }
        }
    }

    /// Builds a frame with a payload. A long one that stays in its block goes to a job.
    fn send_payload(
        &mut self,
        frame: Frame,
        payload: Block,
        protection: Protection,
    ) -> Result<Sending, EndReason> {
        let length = payload.len();
        let by_job = match (protection, &self.session) {
            (Protection::Signed, Some(session)) => session
                .signer()
                .is_some_and(|signer| self.signs_by_job(signer, length)),
            (Protection::Sealed, _) => self.seals_by_job(length),
            _ => false,
        };
        let compress = self.compressor.judge(&payload);
        if !by_job || compress.is_some() {
            let finished = self.finish(frame, Some(payload), protection, compress);
            return finished.map(Sending::Now);
        }
        match frame.into_piece(payload) {
            Ok(piece) => Ok(Sending::Later(piece, self.keys(protection)?)),
            Err((frame, payload)) => {
                let finished = self.finish(frame, Some(payload), protection, None);
                finished.map(Sending::Now)
            }
        }
    }

    /// Returns the next CANCEL. It costs no credit and carries the id of the request that it
    /// cancels ([MS-SMB2] 3.2.4.24).
    fn next_cancel(&mut self) -> Result<Option<Finished>, EndReason> {
        while let Some(ticket) = self.cancels.pop_front() {
            let Some(sent) = self.table.compound_mut(ticket) else {
                continue;
            };
            let open: Vec<MessageId> = sent
                .slots
                .iter()
                .filter(|slot| slot.reply.is_none())
                .map(|slot| slot.id)
                .collect();
            let mut all: Option<Finished> = None;
            for id in open {
                let Some(flight) = self.table.flight(id) else {
                    continue;
                };
                let finished = self.send_cancel(id, flight)?;
                match &mut all {
                    None => all = Some(finished),
                    Some(all) => all.parts.extend(finished.parts),
                }
            }
            if all.is_some() {
                return Ok(all);
            }
        }
        Ok(None)
    }

    fn send_cancel(&mut self, id: MessageId, flight: InFlight) -> Result<Finished, EndReason> {
        let protection = match (flight.sealed, flight.signed) {
            (true, _) => Protection::Sealed,
            (false, true) => Protection::Signed,
            (false, false) => Protection::None,
        };
        let mut header = self.header(
            Command::Cancel,
            Bought {
                id,
                charge: 0,
                ask: 0,
            },
        );
        if protection == Protection::Signed {
            header.flags |= HeaderFlags::SIGNED;
        }
        if let Some(async_id) = flight.async_id {
            header.flags |= HeaderFlags::ASYNC_COMMAND;
            header.target = Target::Async(async_id);
        }
        let mut frame = Frame::new(protection == Protection::Sealed);
        let mut body = vec![0; HEADER_LEN];
        bare::CancelRequest.encode(&mut Writer::within(&mut body, 0));
        frame.push_bytes(&header, &body[HEADER_LEN..]);
        self.finish(frame, None, protection, None)
    }

    /// Returns the header of a request.
    fn header(&self, command: Command, bought: Bought) -> Header {
        let mut header = Header::request(command, bought.id);
        header.credits = bought.ask;
        // [MS-SMB2] 2.2.1.2: the field is reserved without multi-credit requests.
        let counts = self
            .negotiated
            .as_ref()
            .is_some_and(|negotiated| negotiated.multi_credit);
        header.credit_charge = if counts { bought.charge } else { 0 };
        header.session_id = self.session.as_ref().map_or(SessionId(0), |session| session.id);
        if self
            .negotiated
            .as_ref()
            .is_some_and(Negotiated::has_channel_sequence)
        {
            header.set_channel_sequence(self.config.sequence.current());
        }
        header
    }

    /// Returns the header flags that the caller may set on this connection.
    fn caller_flags(&self) -> HeaderFlags {
        // [MS-SMB2] 2.2.1.2: replays exist in 3.x only.
        match &self.negotiated {
            Some(negotiated) if negotiated.has_channel_sequence() => CALLER_FLAGS,
            _ => HeaderFlags::DFS_OPERATIONS,
        }
    }

    /// Returns whether the command must be signed. [MS-SMB2] 3.2.4.1.1 requires it of TREE_CONNECT
    /// in 3.1.1; this client does so in all of 3.x.
    fn must_sign(&self, command: Command) -> bool {
        command == Command::TreeConnect
            && self
                .negotiated
                .as_ref()
                .is_some_and(|negotiated| negotiated.dialect >= Dialect::Smb300)
    }

    fn protection(&self, seal: bool, sign: bool) -> Protection {
        match &self.session {
            Some(session) if session.seals() && (seal || session.seal_all) => Protection::Sealed,
            Some(session) if session.signs() && (sign || session.sign_all) => Protection::Signed,
            _ => Protection::None,
        }
    }

    fn register(
        &mut self,
        bought: Bought,
        owner: Owner,
        command: Command,
        protection: Protection,
        related: bool,
    ) {
        let flight = InFlight {
            owner,
            command,
            charge: bought.charge,
            ask: bought.ask,
            signed: protection == Protection::Signed,
            sealed: protection == Protection::Sealed,
            related,
            interim: false,
            async_id: None,
            with_job: false,
        };
        self.table.insert(bought.id, flight);
    }

    fn finish(
        &mut self,
        frame: Frame,
        payload: Option<Block>,
        protection: Protection,
        compress: Option<Compression>,
    ) -> Result<Finished, EndReason> {
        let (signer, seal) = self.keys(protection)?;
        Ok(frame.finish(
            payload,
            Finish {
                signer: signer.as_deref(),
                seal,
                compress,
            },
        ))
    }

    /// Returns the keys to protect one frame.
    fn keys(&mut self, protection: Protection) -> Result<Keys, EndReason> {
        Ok(match (protection, self.session.as_mut()) {
            (Protection::Signed, Some(session)) => (session.signer().cloned(), None),
            (Protection::Sealed, Some(session)) => {
                let ticket = session.ticket().map_err(|SealError| EndReason::KeysUsedUp)?;
                (None, Some((ticket, session.id)))
            }
            _ => (None, None),
        })
    }
}

/// Appends a part, merging small ones.
fn append(out: &mut Transmit, part: Part) {
    match (out.parts.last_mut(), part) {
        (Some(Part::Bytes(last)), Part::Bytes(bytes)) if bytes.len() < 4096 => last.extend_from_slice(&bytes),
        (_, part) => out.parts.push(part),
    }
}
