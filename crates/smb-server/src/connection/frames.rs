//! Frames of a connection: from received bytes to messages, and replies back into frames.

use std::time::{Duration, Instant};

use ropeway_smb_proto::server::{
    Admitted, CompoundState, ConnectionOutcome, PeerMisbehaved, ReplyFrame, Request,
};
use ropeway_smb_wire::header::CompoundMessages;
use ropeway_smb_wire::{NtStatus, SessionId};

use super::execute::{Invocation, OffloadedWrite};
use super::input::{Frame, LargeFrame};
use super::{Driver, DriverError};
use crate::state::mailbox::JobReply;
use crate::state::workers::JobClass;
use crate::state::{Counters, SharedState};

/// Replies of this many bytes are sent before the next request is executed, so that the client
/// processes one while the next is made, and replies are still in the processor's cache. Shorter
/// replies are sent together (a guess).
const SEND_MIN: usize = 64 << 10;
/// No reply waits much longer for those to the requests behind it: they may take seconds together, such as
/// digests of large folders. A guess: a system call costs a hundredth of that.
const SEND_AFTER: Duration = Duration::from_millis(1);
/// Replies to a compound are sent together up to this many bytes. With another one of 8 MiB they
/// still fit a frame.
const REPLY_BATCH_MAX: usize = 1 << 20;

/// Returns the span of a request's execution; its parent is that of the connection.
pub(super) fn request_span(request: &Request) -> tracing::Span {
    let header = &request.header;
    tracing::trace_span!("request", command = ?header.command, message_id = header.message_id.0)
}

impl Driver {
    /// Executes received frames as long as the client may have more executed.
    pub(super) fn take_frames(&mut self) -> Result<(), DriverError> {
        self.has_frames = true;
        let mut waits_since = Instant::now();
        while self.accepts_requests() && self.remaining.is_empty() {
            let length_max = self.protocol.frame_len_max();
            match self.input.next(length_max)? {
                None => {
                    self.has_frames = false;
                    return Ok(());
                }
                Some(Frame::Small(range)) => {
                    let mut buffer = self.input.take_buffer();
                    self.frame_is_followed = self.is_behind();
                    let outcome = self.take_frame(&mut buffer[range]);
                    self.input.put_back(buffer);
                    outcome?;
                }
                Some(Frame::Large(mut frame)) => {
                    self.frame_is_large = true;
                    self.frame_is_followed = !self.jobs.is_empty() || self.has_more_input();
                    let outcome = self.take_frame(&mut frame.buffer[frame.range.clone()]);
                    self.frame_is_large = false;
                    outcome?;
                    match self.write.take() {
                        Some(write) => self.submit_write(write, frame),
                        None => self.input.recycle(frame.buffer),
                    }
                }
            }
            // A break that a request caused is sent before the responses to later requests
            // (smb2.lease.rename_wait).
            self.process_messages()?;
            if self.output.waiting() >= SEND_MIN || waits_since.elapsed() >= SEND_AFTER {
                self.output.send(&self.socket)?;
                waits_since = Instant::now();
            }
        }
        Ok(())
    }

    /// Whether the client waits for other replies than that to the current small frame.
    fn is_behind(&self) -> bool {
        !self.jobs.is_empty() || self.output.waiting() > 0 || self.input.has_more()
    }

    /// Whether more bytes have arrived.
    fn has_more_input(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes > 0)
    }

    pub(super) fn take_frame(&mut self, frame: &mut [u8]) -> Result<(), DriverError> {
        let opened = self.protocol.open_frame(frame)?;
        if opened.is_smb1 {
            self.look_for_translator(frame)?;
            let reply = self.protocol.accept_smb1(frame, SharedState::wall_time())?;
            self.output.push(reply);
            return Ok(());
        }
        let mut compound = CompoundState::new(opened.sealed);
        if self.frame_is_large && opened.decompressed.is_none() && opened.sealed.is_none() {
            compound.take_signature(&mut frame[opened.start..]);
        }
        let messages = match &opened.decompressed {
            Some(plain) => {
                self.frame_is_large = false;
                plain
            }
            None => &frame[opened.start..],
        };
        self.run_compound(messages, compound)?;
        if let Some(write) = &mut self.write {
            write.start = opened.start;
        }
        Ok(())
    }

    /// Passes the write of a frame's payload to a worker, which returns the buffer afterwards.
    pub(super) fn submit_write(&mut self, write: OffloadedWrite, frame: LargeFrame) {
        let OffloadedWrite {
            number,
            start,
            is_far,
            job,
        } = write;
        let answer = JobReply::of(number, &self.mailbox);
        self.shared
            .workers_of(is_far, JobClass::Changes)
            .run(Box::new(move || {
                let reply = job(&frame.buffer[frame.range][start..]);
                answer.send(reply, Some(frame.buffer));
            }));
    }

    /// Executes the messages of a frame, or the remaining ones.
    pub(super) fn run_compound(
        &mut self,
        messages: &[u8],
        mut compound: CompoundState,
    ) -> Result<(), DriverError> {
        let mut frame = self.frame(compound.sealed);
        let mut after = 0;
        for message in CompoundMessages::new(messages) {
            let message = message.map_err(|_| PeerMisbehaved("a malformed compound"))?;
            if frame.len() >= REPLY_BATCH_MAX {
                let next = self.frame(compound.sealed);
                self.push(std::mem::replace(&mut frame, next), compound.sealed)?;
            }
            if after > 0 && !self.accepts_requests() {
                self.remaining
                    .push_front((messages[after..].to_vec(), compound.clone()));
                break;
            }
            after += message.len();
            let rest = &messages[after..];
            if !self.run_message(message, rest, &mut compound, &mut frame)? {
                // The rest of the compound continues when this request does.
                break;
            }
        }
        self.push(frame, compound.sealed)
    }

    pub(super) fn frame(&mut self, sealed: Option<SessionId>) -> ReplyFrame {
        let spare = self.output.large_buffer();
        ReplyFrame::new(self.output.buffer(), sealed.is_some()).with_spare(spare)
    }

    pub(super) fn push(
        &mut self,
        mut frame: ReplyFrame,
        sealed: Option<SessionId>,
    ) -> Result<(), DriverError> {
        self.output.reuse(frame.take_spare());
        if frame.is_empty() {
            self.output.reuse(frame.into_buffer());
        } else {
            #[cfg(feature = "fuzzing")]
            if self.push_mutated(&frame, sealed)? {
                return Ok(());
            }
            let finished = self.protocol.finish(frame, sealed)?;
            self.output.push(finished);
        }
        Ok(())
    }

    /// Executes one message. Returns `false` if the compound does not continue now.
    fn run_message(
        &mut self,
        message: &[u8],
        rest: &[u8],
        compound: &mut CompoundState,
        frame: &mut ReplyFrame,
    ) -> Result<bool, DriverError> {
        let session = self.shared.sessions().snapshot(compound.scope(message));
        let admitted = self.protocol.admit(compound, message, session)?;
        Counters::add(&self.shared.counters.requests, 1);
        self.mailbox.used(self.shared.uptime());
        let (mut request, tree) = match admitted {
            Admitted::Run(request, tree) => (request, tree),
            Admitted::Refused(request, status) => {
                let header = self.protocol.reply(&request, status);
                frame.push_error(&header, request.signer);
                return Ok(true);
            }
            Admitted::Cancel(session, cancel) => {
                self.cancel(session, cancel)?;
                return Ok(true);
            }
            Admitted::Ignored => return Ok(true),
        };
        let span = request_span(&request);
        let _entered = span.enter();
        #[cfg(feature = "fuzzing")]
        {
            self.handled += 1;
        }
        let attempt = self.begin_login(&request)?;
        let outcome = {
            let mut sessions = self.shared.sessions();
            let sealed = compound.sealed.is_some();
            self.protocol.run_connection_command(
                &mut request,
                message,
                sealed,
                &mut sessions,
                SharedState::wall_time(),
                frame,
            )?
        };
        if let Some(attempt) = attempt {
            // A new login has its session id now.
            self.attempts.insert(request.session, attempt);
        }
        match outcome {
            ConnectionOutcome::Execute => self.execute(
                request,
                Invocation {
                    tree,
                    message,
                    rest,
                    compound,
                    frame,
                    retry_of: None,
                    prepared: None,
                    class: JobClass::default(),
                },
            ),
            outcome => self
                .finish_connection_command(outcome, &request, compound, frame)
                .map(|()| true),
        }
    }

    pub(super) fn refuse(
        &mut self,
        status: NtStatus,
        request: &Request,
        compound: &mut CompoundState,
        frame: &mut ReplyFrame,
    ) {
        compound.status = status;
        let header = self.protocol.reply(request, status);
        frame.push_error(&header, request.signer);
    }
}
