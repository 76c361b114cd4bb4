//! Execution of a request, and what follows from its outcome.

use std::sync::Arc;

use ropeway_smb_proto::server::hub::{CountedRequest, WaiterId};
use ropeway_smb_proto::server::{CompoundState, PeerMisbehaved, ReplyFrame, Request, Tree};
use ropeway_smb_wire::header::Header;
use ropeway_smb_wire::{NtStatus, SessionId};

use super::{Driver, DriverError};
use crate::ops;
use crate::ops::context::{Job, Prepared, WriteJob};
use crate::ops::deliver::deliver;
use crate::ops::{Context, Execution, Outcome};
use crate::state::SharedState;
use crate::state::figures::{SessionFigures, Timer};
use crate::state::mailbox::JobReply;
use crate::state::workers::JobClass;

/// Bytes for which a request counts that reads much to answer little: a connection may have eight of them
/// in progress (a guess).
const HASHED_BYTES: usize = 8 << 20;

/// The part of a WRITE that a worker executes once it has the message.
pub(super) type MessageJob = Box<dyn FnOnce(&[u8]) -> ReplyFrame + Send>;

/// A WRITE for a worker, which waits until its frame can be given away.
pub(super) struct OffloadedWrite {
    pub(super) number: u64,
    /// Offset of the message in the frame.
    pub(super) start: usize,
    /// Whether it waits for a far server.
    pub(super) is_far: bool,
    pub(super) job: MessageJob,
}

/// One execution of a request: its message, compound and reply frame.
pub(super) struct Invocation<'a> {
    pub(super) tree: Option<Tree>,
    pub(super) message: &'a [u8],
    /// The messages after it in its compound.
    pub(super) rest: &'a [u8],
    pub(super) compound: &'a mut CompoundState,
    pub(super) frame: &'a mut ReplyFrame,
    /// Number of the pending request, if this is a retry.
    pub(super) retry_of: Option<u64>,
    /// What a thread prepares for it, if it waits for that.
    pub(super) prepared: Option<Prepared>,
    /// The workers for it. Set by its execution.
    pub(super) class: JobClass,
}

impl Driver {
    /// Executes a request that is not the connection's own. Returns `false` if its compound does
    /// not continue now.
    pub(super) fn execute(
        &mut self,
        request: Request,
        mut invocation: Invocation<'_>,
    ) -> Result<bool, DriverError> {
        let number = invocation.retry_of.unwrap_or_else(|| {
            self.last_number += 1;
            self.last_number
        });
        let waiter = WaiterId {
            connection: self.protocol.id(),
            request: number,
        };
        let timer = Timer::begin(request.header.command, self.figures_of(request.session));
        let outcome = match timer.figures().is_ended() {
            true => Err(NtStatus::USER_SESSION_DELETED),
            false => self.attempt(&request, &mut invocation, waiter, timer.figures()),
        };
        match outcome {
            Ok(Execution::Replied) => {}
            // Its wait for other clients says nothing about this server.
            Ok(Execution::Pending) => return self.defer(request, invocation, waiter),
            // What the request has broken so far is told, and kept, before its job may answer.
            Ok(Execution::Offload(header, job)) => {
                deliver(&self.shared);
                self.submit_job(&request, &invocation, number, header, timed(timer, job));
                return Ok(true);
            }
            Ok(Execution::OffloadWrite(job)) => {
                deliver(&self.shared);
                self.prepare_write(&request, &invocation, number, timed_write(timer, job));
                return Ok(true);
            }
            Ok(Execution::Disconnect(fault)) => return Err(PeerMisbehaved(fault).into()),
            Err(status) => self.refuse(status, &request, invocation.compound, invocation.frame),
        }
        timer.end();
        deliver(&self.shared);
        Ok(true)
    }

    /// Returns what the requests of a session are counted in.
    fn figures_of(&mut self, session: SessionId) -> Arc<SessionFigures> {
        if let Some((last, figures)) = &self.figures
            && *last == session
        {
            return Arc::clone(figures);
        }
        match self.shared.figures(session) {
            Some(figures) => {
                self.figures = Some((session, Arc::clone(&figures)));
                figures
            }
            // Without a session the request fails, and nobody asks for its figures.
            None if session == SessionId(0) => Arc::default(),
            // It was there when the request was received.
            None => Arc::new(SessionFigures::of_ended()),
        }
    }

    fn attempt(
        &mut self,
        request: &Request,
        invocation: &mut Invocation<'_>,
        waiter: WaiterId,
        figures: &Arc<SessionFigures>,
    ) -> Outcome {
        let may_offload = invocation.rest.is_empty() && invocation.compound.count() == 1;
        let mut context = Context {
            shared: &self.shared,
            protocol: &mut self.protocol,
            peer: self.peer,
            local: self.local,
            request,
            tree: invocation.tree.as_ref(),
            message: invocation.message,
            compound: invocation.compound,
            frame: invocation.frame,
            waiter,
            may_offload,
            may_offload_write: may_offload && self.frame_is_large,
            is_followed: self.frame_is_followed,
            is_retry: invocation.retry_of.is_some(),
            prepared: invocation.prepared.take(),
            class: JobClass::default(),
            ticket: None,
            figures,
        };
        let outcome = ops::execute(&mut context);
        let mut ticket = context.ticket.take();
        invocation.prepared = context.prepared.take();
        invocation.class = context.class;
        let was_counted = ticket.is_some();
        let outcome = match outcome {
            Ok(Execution::OffloadWrite(job)) => {
                // The hub counts the request until the data are written ([MS-SMB2] 3.3.5.2.10).
                let counted = CountedWrite(Arc::clone(&self.shared), ticket.take());
                Ok(Execution::OffloadWrite(Box::new(
                    move |message, frame, header, signer| {
                        let reply = job(message, frame, header, signer);
                        drop(counted);
                        reply
                    },
                )))
            }
            other => other,
        };
        if was_counted || invocation.retry_of.is_some() {
            let mut hub = self.shared.hub();
            if let Some(ticket) = ticket {
                hub.end_request(ticket);
            }
            if !matches!(outcome, Ok(Execution::Pending)) {
                hub.forget(waiter);
            }
        }
        outcome
    }

    fn submit_job(
        &mut self,
        request: &Request,
        invocation: &Invocation<'_>,
        number: u64,
        header: Option<Header>,
        job: Job,
    ) {
        let header = header.unwrap_or_else(|| self.protocol.reply(request, NtStatus::SUCCESS));
        let reply = self.frame(invocation.compound.sealed);
        let bytes = match invocation.class {
            JobClass::Hashes => HASHED_BYTES,
            JobClass::Changes | JobClass::Reads | JobClass::MakesFiles | JobClass::ReadsFiles => {
                charged_bytes(request)
            }
        };
        self.jobs.insert(number, (invocation.compound.sealed, bytes));
        let answer = JobReply::of(number, &self.mailbox);
        let signer = request.signer;
        let span = tracing::Span::current();
        let run = Box::new(move || span.in_scope(|| answer.send(job(reply, header, signer), None)));
        let is_far = self.is_far(invocation.tree.as_ref());
        self.shared.workers_of(is_far, invocation.class).run(run);
    }

    fn is_far(&self, tree: Option<&Tree>) -> bool {
        let share = tree.and_then(|tree| self.shared.share(tree.share));
        share.is_some_and(|share| share.far)
    }

    fn prepare_write(&mut self, request: &Request, invocation: &Invocation<'_>, number: u64, job: WriteJob) {
        let header = self.protocol.reply(request, NtStatus::SUCCESS);
        let reply = self.frame(invocation.compound.sealed);
        self.jobs
            .insert(number, (invocation.compound.sealed, charged_bytes(request)));
        let signer = request.signer;
        let span = tracing::Span::current();
        self.write = Some(OffloadedWrite {
            number,
            start: 0,
            is_far: self.is_far(invocation.tree.as_ref()),
            job: Box::new(move |message| span.in_scope(|| job(message, reply, header, signer))),
        });
    }
}

/// Returns a job that counts the request at its end.
fn timed(timer: Timer, job: Job) -> Job {
    Box::new(move |frame, header, signer| {
        let reply = job(frame, header, signer);
        timer.end();
        reply
    })
}

/// As [`timed`], for a job with the message.
fn timed_write(timer: Timer, job: WriteJob) -> WriteJob {
    Box::new(move |message, frame, header, signer| {
        let reply = job(message, frame, header, signer);
        timer.end();
        reply
    })
}

/// Returns the number of bytes that the credits of a request pay for ([MS-SMB2] 3.1.5.2).
fn charged_bytes(request: &Request) -> usize {
    usize::from(request.header.credit_charge.max(1)) << 16
}

/// A request that the hub counts until this is dropped.
struct CountedWrite(Arc<SharedState>, Option<CountedRequest>);

impl Drop for CountedWrite {
    fn drop(&mut self) {
        if let Some(ticket) = self.1.take() {
            self.0.hub().end_request(ticket);
        }
    }
}
