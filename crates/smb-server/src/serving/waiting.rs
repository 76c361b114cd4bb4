//! What waits for others, and what comes after it.

use ropeway_smb_proto::server::hub::WaiterId;
use ropeway_smb_proto::server::{Cancel, Compound, Request};
use ropeway_smb_wire::change_notify::FileNotifyInformation;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{NtStatus, SessionId};

use super::executing::Step;
use super::{Ended, Serving};
use crate::ops;

/// Requests of one connection that wait: as many as Windows lets be asynchronous ([MS-SMB2] 3.3.4.2).
const PARKED_MAX: usize = 512;
/// Bytes of them, and of what comes after them in their compounds. A guess: two large compounds.
const PARKED_BYTES_MAX: usize = 16 << 20;

/// A request that waits, and what comes after it.
pub(super) struct Parked {
    pub(super) request: Request,
    pub(super) message: Vec<u8>,
    pub(super) rest: Vec<u8>,
    pub(super) compound: Compound,
    pub(super) session: SessionId,
}

impl Parked {
    fn len(&self) -> usize {
        self.message.len() + self.rest.len()
    }
}

impl Serving {
    /// Whether one more may wait, with so many bytes.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        let parked: usize = self.parked.values().map(Parked::len).sum();
        self.parked.len() < PARKED_MAX && parked + bytes <= PARKED_BYTES_MAX
    }

    /// The rest of a compound goes on when nothing else is under way: not at once, because it may end what waits, whose
    /// rest goes on then.
    fn go_on_with(&mut self, rest: Vec<u8>, compound: Compound) {
        if !rest.is_empty() {
            self.rests.push_back((rest, compound));
        }
    }

    /// Executes a request again that waited.
    pub(super) fn wake(&mut self, number: u64) -> Result<(), Ended> {
        let Some(mut parked) = self.parked.remove(&number) else {
            return Ok(());
        };
        let mut frame = self.frame(parked.compound.sealed);
        let tree = {
            let sessions = self.shared.sessions();
            let session = sessions.get(parked.request.session);
            session.and_then(|session| session.tree(parked.request.tree).cloned())
        };
        let goes_on = if tree.is_none() {
            let status = status_of_gone(&parked.request, NtStatus::NETWORK_NAME_DELETED);
            self.refuse(status, &parked.request, &mut parked.compound, &mut frame);
            true
        } else {
            let step = Step {
                tree,
                message: &parked.message,
                rest: &parked.rest,
                compound: &mut parked.compound,
                frame: &mut frame,
                again: Some(number),
            };
            self.execute(parked.request, step)?
        };
        let sealed = parked.compound.sealed;
        self.push(frame, sealed)?;
        if goes_on {
            self.go_on_with(parked.rest, parked.compound);
        }
        Ok(())
    }

    pub(super) fn notify(
        &mut self,
        number: u64,
        status: NtStatus,
        changes: &[FileNotifyInformation],
    ) -> Result<(), Ended> {
        let Some(mut parked) = self.parked.remove(&number) else {
            return Ok(());
        };
        let mut frame = self.frame(parked.compound.sealed);
        parked.compound.status = status;
        ops::notify::answer(
            &mut self.protocol,
            &parked.request,
            &parked.message,
            status,
            changes,
            &mut frame,
        );
        self.push(frame, parked.compound.sealed)?;
        self.go_on_with(parked.rest, parked.compound);
        Ok(())
    }

    /// [MS-SMB2] 3.3.5.16.
    pub(super) fn cancel(&mut self, session: SessionId, cancel: Cancel) -> Result<(), Ended> {
        let mut parked = self.parked.iter().filter(|(_, parked)| parked.session == session);
        let found = parked.find(|(_, parked)| match cancel {
            Cancel::Async(id) => parked.request.async_id == Some(id),
            Cancel::Sync(id) => parked.request.header.message_id == id,
        });
        let Some(number) = found.map(|(number, _)| *number) else {
            return Ok(());
        };
        let Some(mut parked) = self.parked.remove(&number) else {
            return Ok(());
        };
        self.shared.hub().forget(WaiterId {
            connection: self.protocol.id(),
            request: number,
        });
        let mut frame = self.frame(parked.compound.sealed);
        self.refuse(
            NtStatus::CANCELLED,
            &parked.request,
            &mut parked.compound,
            &mut frame,
        );
        self.push(frame, parked.compound.sealed)?;
        self.go_on_with(parked.rest, parked.compound);
        Ok(())
    }

    /// Answers all that still waits of a session that has ended.
    pub(super) fn answer_parked(&mut self, session: SessionId) -> Result<(), Ended> {
        let connection = self.protocol.id();
        let of_session = self.parked.iter().filter(|(_, parked)| parked.session == session);
        let numbers: Vec<u64> = of_session.map(|(number, _)| *number).collect();
        for number in numbers {
            self.shared.hub().forget(WaiterId {
                connection,
                request: number,
            });
            let Some(mut parked) = self.parked.remove(&number) else {
                continue;
            };
            let mut frame = self.frame(parked.compound.sealed);
            let status = status_of_gone(&parked.request, NtStatus::USER_SESSION_DELETED);
            self.refuse(status, &parked.request, &mut parked.compound, &mut frame);
            self.push(frame, parked.compound.sealed)?;
        }
        Ok(())
    }
}

/// What a request is answered with that waited for something that is gone: a lock was never there.
fn status_of_gone(request: &Request, status: NtStatus) -> NtStatus {
    match request.header.command {
        Command::Lock => NtStatus::RANGE_NOT_LOCKED,
        Command::ChangeNotify => NtStatus::NOTIFY_CLEANUP,
        _ => status,
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let connection = self.protocol.id();
        let mut hub = self.shared.hub();
        for number in self.parked.keys() {
            hub.forget(WaiterId {
                connection,
                request: *number,
            });
        }
    }
}
