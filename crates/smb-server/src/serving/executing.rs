//! Executing a request, and what comes of it.

use std::sync::Arc;

use ropeway_smb_proto::server::hub::{Ticket, WaiterId};
use ropeway_smb_proto::server::{Compound, Hangup, ReplyFrame, Request, Tree};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::header::{Command, Header};

use super::waiting::Parked;
use super::{Ended, Serving};
use crate::mailbox::Answer;
use crate::ops::context::{Job, WriteJob};
use crate::ops::{self, Context, Done, Outcome};
use crate::shared::Shared;

/// What the pool does with a message, once it has it.
pub(super) type WriteOf = Box<dyn FnOnce(&[u8]) -> ReplyFrame + Send>;

/// A WRITE that the pool is to do, once its frame can be given away.
pub(super) struct BigWrite {
    pub(super) number: u64,
    /// Where the message begins in the frame.
    pub(super) start: usize,
    pub(super) job: WriteOf,
}

/// Where a request stands.
pub(super) struct Step<'a> {
    pub(super) tree: Option<Tree>,
    pub(super) message: &'a [u8],
    /// What comes after it in its compound.
    pub(super) rest: &'a [u8],
    pub(super) compound: &'a mut Compound,
    pub(super) frame: &'a mut ReplyFrame,
    /// The number of one that has waited.
    pub(super) again: Option<u64>,
}

impl Serving {
    /// Executes a request that is not the connection's own; `false` if its compound does not go on now.
    pub(super) fn execute(&mut self, request: Request, mut step: Step<'_>) -> Result<bool, Ended> {
        let number = step.again.unwrap_or_else(|| {
            self.number_last += 1;
            self.number_last
        });
        let waiter = WaiterId {
            connection: self.protocol.id(),
            request: number,
        };
        let outcome = self.attempt(&request, &mut step, waiter);
        match outcome {
            Ok(Done::Replied) => {}
            Ok(Done::Wait) => return self.wait_for(request, step, waiter),
            Ok(Done::Job(header, job)) => {
                self.have_done(&request, &step, number, header, job);
                return Ok(true);
            }
            Ok(Done::Write(job)) => {
                self.have_written_later(&request, &step, number, job);
                return Ok(true);
            }
            Ok(Done::Hangup(fault)) => return Err(Hangup(fault).into()),
            Err(status) => self.refuse(status, &request, step.compound, step.frame),
        }
        self.shared.deliver();
        Ok(true)
    }

    fn attempt(&mut self, request: &Request, step: &mut Step<'_>, waiter: WaiterId) -> Outcome {
        let may_offload = step.rest.is_empty() && step.compound.count() == 1;
        let mut context = Context {
            shared: &self.shared,
            protocol: &mut self.protocol,
            peer: self.peer,
            local: self.local,
            request,
            tree: step.tree.as_ref(),
            message: step.message,
            compound: step.compound,
            frame: step.frame,
            waiter,
            may_offload,
            may_offload_write: may_offload && self.big_frame,
            again: step.again.is_some(),
            ticket: None,
        };
        let outcome = ops::execute(&mut context);
        let mut ticket = context.ticket.take();
        let was_counted = ticket.is_some();
        let outcome = match outcome {
            Ok(Done::Write(job)) => {
                // It is under way until it is written ([MS-SMB2] 3.3.5.2.10).
                let under_way = UnderWay(Arc::clone(&self.shared), ticket.take());
                Ok(Done::Write(Box::new(move |message, frame, header, signer| {
                    let reply = job(message, frame, header, signer);
                    drop(under_way);
                    reply
                })))
            }
            other => other,
        };
        if was_counted || step.again.is_some() {
            let mut hub = self.shared.hub();
            if let Some(ticket) = ticket {
                hub.end_request(ticket);
            }
            if !matches!(outcome, Ok(Done::Wait)) {
                hub.forget(waiter);
            }
        }
        outcome
    }

    /// The request waits for others, if it may.
    fn wait_for(&mut self, mut request: Request, step: Step<'_>, waiter: WaiterId) -> Result<bool, Ended> {
        let refused = if !self.has_room_for(step.message.len() + step.rest.len()) {
            Some(NtStatus::INSUFFICIENT_RESOURCES)
        } else if !step.rest.is_empty()
            && matches!(request.header.command, Command::ChangeNotify | Command::Lock)
        {
            // In the middle of a compound nothing may wait that perhaps never comes ([MS-SMB2] 3.3.4.2;
            // smb2.compound.interim2).
            Some(NtStatus::INTERNAL_ERROR)
        } else {
            None
        };
        if let Some(status) = refused {
            self.shared.hub().forget(waiter);
            self.refuse(status, &request, step.compound, step.frame);
            self.shared.deliver();
            return Ok(true);
        }
        if request.async_id.is_none() {
            let sealed = step.compound.sealed;
            let before = std::mem::replace(step.frame, ReplyFrame::new(Vec::new(), sealed.is_some()));
            self.push(before, sealed)?;
            let header = self.protocol.interim(&mut request);
            step.frame.push_error(&header, request.signer);
        }
        let parked = Parked {
            session: request.session,
            request,
            message: step.message.to_vec(),
            rest: step.rest.to_vec(),
            compound: step.compound.clone(),
        };
        self.parked.insert(waiter.request, parked);
        self.shared.deliver();
        Ok(false)
    }

    fn have_done(
        &mut self,
        request: &Request,
        step: &Step<'_>,
        number: u64,
        header: Option<Header>,
        job: Job,
    ) {
        let header = header.unwrap_or_else(|| self.protocol.reply(request, NtStatus::SUCCESS));
        let reply = self.frame(step.compound.sealed);
        self.jobs.insert(number, (step.compound.sealed, paid(request)));
        let answer = Answer::of(number, &self.mailbox);
        let signer = request.signer;
        let run = Box::new(move || answer.send(job(reply, header, signer), None));
        Arc::clone(&self.shared).pool.run(run);
    }

    fn have_written_later(&mut self, request: &Request, step: &Step<'_>, number: u64, job: WriteJob) {
        let header = self.protocol.reply(request, NtStatus::SUCCESS);
        let reply = self.frame(step.compound.sealed);
        self.jobs.insert(number, (step.compound.sealed, paid(request)));
        let signer = request.signer;
        self.write = Some(BigWrite {
            number,
            start: 0,
            job: Box::new(move |message| job(message, reply, header, signer)),
        });
    }
}

/// Bytes that a request has paid for ([MS-SMB2] 3.1.5.2).
fn paid(request: &Request) -> usize {
    usize::from(request.header.credit_charge.max(1)) << 16
}

/// A request that the hub counts until this goes.
struct UnderWay(Arc<Shared>, Option<Ticket>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(ticket) = self.1.take() {
            self.0.hub().end_request(ticket);
        }
    }
}
