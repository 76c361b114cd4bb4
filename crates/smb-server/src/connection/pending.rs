//! Requests that wait for other clients, and the rests of their compounds.

use ropeway_smb_proto::server::hub::WaiterId;
use ropeway_smb_proto::server::{Cancel, CompoundState, ReplyFrame, Request};
use ropeway_smb_wire::change_notify::FileNotifyInformation;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::{NtStatus, SessionId};

use super::execute::Invocation;
use super::frames::request_span;
use super::{Driver, DriverError};
use crate::ops;
use crate::ops::context::Prepared;
use crate::ops::deliver::deliver;
use crate::state::workers::JobClass;

/// Maximum number of waiting requests of a connection: the 512 of Windows count the request that is
/// being executed ([MS-SMB2] 3.3.4.2, note 242; smb2.credits.1conn_notify_max_async_credits).
const PENDING_MAX: usize = 511;
/// Maximum number of their bytes, including the rests of their compounds. A guess: two large
/// compounds.
const PENDING_BYTES_MAX: usize = 16 << 20;

/// A request that waits, and the rest of its compound.
pub(super) struct PendingRequest {
    pub(super) request: Request,
    pub(super) message: Vec<u8>,
    pub(super) rest: Vec<u8>,
    pub(super) compound: CompoundState,
    pub(super) session: SessionId,
    /// What a thread prepares for it.
    prepared: Option<Prepared>,
    /// Replies to the requests before it in its compound, if they are sent with its own.
    held: Option<ReplyFrame>,
}

impl PendingRequest {
    fn len(&self) -> usize {
        let held = self.held.as_ref().map_or(0, ReplyFrame::len);
        self.message.len() + self.rest.len() + held
    }
}

impl Driver {
    /// Whether another request with this many bytes may wait.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        let pending: usize = self.pending.values().map(PendingRequest::len).sum();
        self.pending.len() < PENDING_MAX && pending + bytes <= PENDING_BYTES_MAX
    }

    /// Makes a request wait for others, if it may.
    pub(super) fn defer(
        &mut self,
        mut request: Request,
        invocation: Invocation<'_>,
        waiter: WaiterId,
    ) -> Result<bool, DriverError> {
        let held_len = if waits_silently(&request) {
            invocation.frame.len()
        } else {
            0
        };
        let len = invocation.message.len() + invocation.rest.len() + held_len;
        let refused = if !self.has_room_for(len) {
            Some(NtStatus::INSUFFICIENT_RESOURCES)
        } else if !invocation.rest.is_empty()
            && matches!(request.header.command, Command::ChangeNotify | Command::Lock)
        {
            // A request that may wait forever must not block the rest of its compound ([MS-SMB2]
            // 3.3.4.2; smb2.compound.interim2).
            Some(NtStatus::INTERNAL_ERROR)
        } else if !invocation.rest.is_empty() && request.header.command == Command::Read {
            // What a READ of an empty pipe waits for may be in that rest.
            Some(NtStatus::PIPE_EMPTY)
        } else {
            None
        };
        if let Some(status) = refused {
            self.shared.hub().forget(waiter);
            self.refuse(status, &request, invocation.compound, invocation.frame);
            deliver(&self.shared);
            return Ok(true);
        }
        let mut held = None;
        if request.async_id.is_none() {
            let sealed = invocation.compound.sealed;
            let mut before =
                std::mem::replace(invocation.frame, ReplyFrame::new(Vec::new(), sealed.is_some()));
            if waits_silently(&request) {
                // Its buffer may be that of a large READ.
                before.shrink();
                held = Some(before).filter(|before| !before.is_empty());
            } else {
                self.push(before, sealed)?;
                let header = self.protocol.interim(&mut request);
                invocation.frame.push_error(&header, request.signer);
            }
        }
        let pending = PendingRequest {
            session: request.session,
            request,
            message: invocation.message.to_vec(),
            rest: invocation.rest.to_vec(),
            compound: invocation.compound.clone(),
            prepared: invocation.prepared,
            held,
        };
        self.pending.insert(waiter.request, pending);
        deliver(&self.shared);
        Ok(false)
    }

    /// Returns the frame for the reply to a request that waited.
    fn frame_of(&mut self, pending: &mut PendingRequest) -> ReplyFrame {
        match pending.held.take() {
            Some(held) => held,
            None => self.frame(pending.compound.sealed),
        }
    }

    /// Queues the rest of a compound. It must not run at once: it may end a waiting request, whose
    /// own rest would then run inside it.
    fn resume_compound(&mut self, rest: Vec<u8>, compound: CompoundState) {
        if !rest.is_empty() {
            self.remaining.push_back((rest, compound));
        }
    }

    /// Executes a request that waited again.
    pub(super) fn retry(&mut self, number: u64) -> Result<(), DriverError> {
        let Some(mut pending) = self.pending.remove(&number) else {
            return Ok(());
        };
        let span = request_span(&pending.request);
        let _entered = span.enter();
        let mut frame = self.frame_of(&mut pending);
        let tree = {
            let sessions = self.shared.sessions();
            let session = sessions.get(pending.request.session);
            session.and_then(|session| session.tree(pending.request.tree).cloned())
        };
        let goes_on = if tree.is_none() {
            let status = status_when_gone(&pending.request, NtStatus::NETWORK_NAME_DELETED);
            self.refuse(status, &pending.request, &mut pending.compound, &mut frame);
            true
        } else {
            let invocation = Invocation {
                tree,
                message: &pending.message,
                rest: &pending.rest,
                compound: &mut pending.compound,
                frame: &mut frame,
                retry_of: Some(number),
                prepared: pending.prepared.take(),
                class: JobClass::default(),
            };
            self.execute(pending.request, invocation)?
        };
        let sealed = pending.compound.sealed;
        self.push(frame, sealed)?;
        if goes_on {
            self.resume_compound(pending.rest, pending.compound);
        }
        Ok(())
    }

    pub(super) fn notify(
        &mut self,
        number: u64,
        status: NtStatus,
        changes: &[FileNotifyInformation],
    ) -> Result<(), DriverError> {
        let Some(mut pending) = self.pending.remove(&number) else {
            return Ok(());
        };
        let mut frame = self.frame_of(&mut pending);
        pending.compound.status = status;
        ops::notify::answer(
            &mut self.protocol,
            &pending.request,
            &pending.message,
            status,
            changes,
            &mut frame,
        );
        self.push(frame, pending.compound.sealed)?;
        self.resume_compound(pending.rest, pending.compound);
        Ok(())
    }

    /// Cancels a waiting request ([MS-SMB2] 3.3.5.16). A CLOSE goes on: its client takes the handle
    /// for closed.
    pub(super) fn cancel(&mut self, session: SessionId, cancel: Cancel) -> Result<(), DriverError> {
        let mut pending = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.session == session);
        let found = pending.find(|(_, pending)| match cancel {
            _ if pending.request.header.command == Command::Close => false,
            Cancel::Async(id) => pending.request.async_id == Some(id),
            Cancel::Sync(id) => pending.request.header.message_id == id,
        });
        let Some(number) = found.map(|(number, _)| *number) else {
            return Ok(());
        };
        let Some(mut pending) = self.pending.remove(&number) else {
            return Ok(());
        };
        self.shared.hub().forget(WaiterId {
            connection: self.protocol.id(),
            request: number,
        });
        let mut frame = self.frame_of(&mut pending);
        self.refuse(
            NtStatus::CANCELLED,
            &pending.request,
            &mut pending.compound,
            &mut frame,
        );
        self.push(frame, pending.compound.sealed)?;
        self.resume_compound(pending.rest, pending.compound);
        Ok(())
    }

    /// Answers all waiting requests of a session that has ended.
    pub(super) fn fail_pending(&mut self, session: SessionId) -> Result<(), DriverError> {
        let connection = self.protocol.id();
        let of_session = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.session == session);
        let numbers: Vec<u64> = of_session.map(|(number, _)| *number).collect();
        for number in numbers {
            self.shared.hub().forget(WaiterId {
                connection,
                request: number,
            });
            let Some(mut pending) = self.pending.remove(&number) else {
                continue;
            };
            let mut frame = self.frame_of(&mut pending);
            let status = status_when_gone(&pending.request, NtStatus::USER_SESSION_DELETED);
            self.refuse(status, &pending.request, &mut pending.compound, &mut frame);
            self.push(frame, pending.compound.sealed)?;
        }
        Ok(())
    }
}

/// Whether a request waits without an interim response. Windows sends none for SET_INFO, and sends
/// the replies to the requests before it together with its own ([MS-SMB2] 3.3.5.13, note 368;
/// smb2.compound_async.rename_last). A CANCEL finds it by its message id.
fn waits_silently(request: &Request) -> bool {
    request.header.command == Command::SetInfo
}

/// Returns the status for a request whose session or tree ended while it waited.
fn status_when_gone(request: &Request, status: NtStatus) -> NtStatus {
    match request.header.command {
        Command::Lock => NtStatus::RANGE_NOT_LOCKED,
        Command::ChangeNotify => NtStatus::NOTIFY_CLEANUP,
        _ => status,
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let connection = self.protocol.id();
        let mut hub = self.shared.hub();
        for number in self.pending.keys() {
            hub.forget(WaiterId {
                connection,
                request: *number,
            });
        }
    }
}
