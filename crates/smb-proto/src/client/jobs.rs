//! Cryptography on large frames that other threads can do: signing, verifying, sealing, opening.
//!
//! Every check that needs no cryptography is made before a job is created. The job's result takes
//! effect only when it is handed back. A job owns its block and shares the keys, which are wiped
//! when the last holder drops them. While a request is with a job it cannot be answered: a reply to
//! it counts as unsolicited.
//!
//! A connection that ends takes back the jobs still in its queue and waits for the others. Its
//! final events follow the last [`CryptoDone`], so that every block is returned.
//!
//! There are never more jobs than compounds in flight. While [`WAITING_MAX`] jobs wait to be taken,
//! replies are verified and opened within the call instead, which slows the connection to the
//! owner's pace.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ropeway_block::BlockMut;

use super::connection::Connection;
use super::frame::Piece;
use super::loans::LoanId;
use super::table::InFlight;
use super::{EndReason, PeerMisbehaved, Ticket};
use crate::crypto::{Cipher, Opener, SealTicket, Sender, Signer, TRANSFORM_HEADER_LEN};
use crate::wire::SessionId;
use crate::wire::header::Header;
use crate::wire::read::READ_DATA_OFFSET;

/// Maximum number of waiting jobs before replies stop becoming jobs. A guess: as many as two dozen
/// cores take at once.
const WAITING_MAX: usize = 24;

/// Work for any thread. Run it and hand in the result: the connection waits for it.
#[must_use = "the connection waits for what comes of it"]
pub struct CryptoJob(Work);

/// The result of a job, for [`Connection::job_done`].
#[must_use = "the connection waits for it"]
pub struct CryptoDone(Outcome);

pub(super) enum Work {
    /// Verifies a READ reply that lies in its block, with its header in the headroom.
    Verify {
        loan: LoanId,
        block: BlockMut,
        data_len: usize,
        answer: (Header, InFlight),
        signer: Arc<Signer>,
    },
    /// Opens a sealed frame whose first `head` bytes lie in the headroom.
    Open {
        loan: LoanId,
        block: BlockMut,
        head: usize,
        session: SessionId,
        opener: Opener,
    },
    /// Protects the frame around the payload of the compound's operation `index`.
    Send {
        ticket: Ticket,
        index: usize,
        piece: Piece,
        signer: Option<Arc<Signer>>,
        seal: Option<(SealTicket, SessionId)>,
    },
}

enum Outcome {
    Verified {
        loan: LoanId,
        block: BlockMut,
        data_len: usize,
        answer: (Header, InFlight),
        is_good: bool,
    },
    Opened {
        loan: LoanId,
        block: BlockMut,
        head: usize,
        /// The session whose keys opened it, or `None` if it does not open.
        session: Option<SessionId>,
    },
    Sendable {
        ticket: Ticket,
        index: usize,
        piece: Piece,
        is_sealed: bool,
    },
}

impl CryptoJob {
    /// Runs the job. It only computes.
    pub fn run(self) -> CryptoDone {
        let mut work = self.0;
        let is_good = work.run();
        CryptoDone(work.outcome(is_good))
    }
}

impl Work {
    /// Computes in place. Returns whether the received message is authentic, or whether the
    /// outgoing frame was sealed.
    fn run(&mut self) -> bool {
        match self {
            Self::Verify { block, signer, .. } => {
                let message = block.framed_mut(READ_DATA_OFFSET);
                signer.verify_contiguous(Sender::Server, message).is_ok()
            }
            Self::Open {
                block, head, opener, ..
            } => {
                let parts = block
                    .framed_mut(*head)
                    .split_first_chunk_mut::<TRANSFORM_HEADER_LEN>();
                parts.is_some_and(|(head, message)| opener.open(head, message).is_ok())
            }
            Self::Send {
                piece, signer, seal, ..
            } => {
                let is_sealed = seal.is_some();
                piece.protect(signer.as_deref(), seal.take());
                is_sealed
            }
        }
    }

    /// Returns the outcome. `is_good` is the result of [`run`](Self::run), or `false` if the work
    /// was not run.
    fn outcome(self, is_good: bool) -> Outcome {
        match self {
            Self::Verify {
                loan,
                block,
                data_len,
                answer,
                ..
            } => Outcome::Verified {
                loan,
                block,
                data_len,
                answer,
                is_good,
            },
            Self::Open {
                loan,
                block,
                head,
                session,
                ..
            } => Outcome::Opened {
                loan,
                block,
                head,
                session: is_good.then_some(session),
            },
            Self::Send {
                ticket, index, piece, ..
            } => Outcome::Sendable {
                ticket,
                index,
                piece,
                is_sealed: is_good,
            },
        }
    }
}

/// The jobs of a connection.
#[derive(Default)]
pub(super) struct JobQueue {
    waiting: VecDeque<Work>,
    /// Number of jobs taken and not handed in.
    out: usize,
    /// Number of all jobs that protect outgoing frames.
    sends: usize,
}

impl JobQueue {
    pub(super) fn push(&mut self, work: Work) {
        self.sends += usize::from(matches!(work, Work::Send { .. }));
        self.waiting.push_back(work);
    }

    pub(super) fn is_sending(&self) -> bool {
        self.sends > 0
    }

    pub(super) fn are_out(&self) -> bool {
        self.out > 0
    }
}

impl Connection {
    /// Returns the next job. Run it anywhere, in any order, and hand in the result with
    /// [`job_done`](Self::job_done).
    pub fn poll_job(&mut self) -> Option<CryptoJob> {
        let work = self.jobs.waiting.pop_front()?;
        self.jobs.out += 1;
        Some(CryptoJob(work))
    }

    /// Returns the number of jobs not handed in, taken or not.
    pub fn jobs(&self) -> usize {
        self.jobs.waiting.len() + self.jobs.out
    }

    /// Hands in the result of one of this connection's jobs. Then poll events, transmits and jobs.
    /// Results are accepted after the connection has ended, too.
    ///
    /// # Errors
    /// [`PeerMisbehaved`]: the connection has ended; poll its events.
    ///
    /// # Panics
    /// If no job is out.
    pub fn job_done(&mut self, now: Duration, done: CryptoDone) -> Result<(), PeerMisbehaved> {
        assert!(self.jobs.are_out(), "no more jobs are handed in than were taken");
        self.jobs.out -= 1;
        self.now = self.now.max(now);
        if self.ended.is_some() {
            self.discard_outcome(done.0);
            return Ok(());
        }
        let outcome = self.take_done(done.0);
        if self.table.is_empty() {
            // No reply is outstanding, so the silence that follows does not count.
            self.note_activity();
        }
        if let Err(misbehaved) = outcome {
            self.end(EndReason::Misbehaved(misbehaved));
        }
        outcome
    }

    fn take_done(&mut self, outcome: Outcome) -> Result<(), PeerMisbehaved> {
        match outcome {
            Outcome::Verified {
                loan,
                block,
                data_len,
                answer,
                is_good,
            } => {
                self.table.set_with_job(answer.0.message_id, false);
                match is_good {
                    true => self.finish_read(loan, block, data_len, answer),
                    false => self.refuse_read(loan, block, PeerMisbehaved::BadSignature),
                }
            }
            Outcome::Opened {
                loan,
                block,
                head,
                session,
            } => match session {
                Some(session) => self.take_sealed_read(loan, block, head, session),
                None => self.refuse_read(loan, block, PeerMisbehaved::Unopenable),
            },
            Outcome::Sendable {
                ticket,
                index,
                piece,
                is_sealed,
            } => {
                self.jobs.sends -= 1;
                self.table.set_compound_with_job(ticket, false);
                let mut finished = piece.into_finished(is_sealed);
                if let Some(sent) = self.table.compound_mut(ticket) {
                    sent.keep(index, &mut finished);
                    self.ready.push_back(finished);
                }
                Ok(())
            }
        }
    }

    /// Takes the block out of a result after the connection has ended.
    fn discard_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Verified { loan, block, .. } | Outcome::Opened { loan, block, .. } => {
                // The connection has ended: an error in the reply that waited for the block no
                // longer matters.
                let _ = self.return_block(loan, block);
            }
            Outcome::Sendable {
                ticket,
                index,
                piece,
                is_sealed,
            } => {
                self.jobs.sends -= 1;
                if let Some(sent) = self.table.compound_mut(ticket) {
                    sent.keep(index, &mut piece.into_finished(is_sealed));
                }
            }
        }
    }

    /// Takes back the jobs that were not taken.
    pub(super) fn recall_jobs(&mut self) {
        while let Some(work) = self.jobs.waiting.pop_front() {
            self.discard_outcome(work.outcome(false));
        }
    }

    /// Returns whether one more reply may become a job.
    pub(super) fn takes_answers(&self) -> bool {
        self.jobs.waiting.len() < WAITING_MAX
    }

    /// Returns whether a message of `length` bytes is signed or verified by a job.
    pub(super) fn signs_by_job(&self, signer: &Signer, length: usize) -> bool {
        self.leaves_to_job(length, signer.algorithm().is_slow())
    }

    /// Returns whether a frame of `length` bytes is sealed or opened by a job.
    pub(super) fn seals_by_job(&self, length: usize) -> bool {
        let cipher = self.session.as_ref().and_then(|session| session.cipher());
        self.leaves_to_job(length, cipher.is_some_and(Cipher::is_slow))
    }

    fn leaves_to_job(&self, length: usize, is_slow: bool) -> bool {
        self.config
            .jobs
            .is_some_and(|jobs| length >= jobs.from && (is_slow || jobs.fast_too))
    }
}

impl std::fmt::Debug for CryptoJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Work::Verify { .. } => "CryptoJob(verify)",
            Work::Open { .. } => "CryptoJob(open)",
            Work::Send { .. } => "CryptoJob(send)",
        })
    }
}

impl std::fmt::Debug for CryptoDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Outcome::Verified { .. } => "CryptoDone(verify)",
            Outcome::Opened { .. } => "CryptoDone(open)",
            Outcome::Sendable { .. } => "CryptoDone(send)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_go_to_other_threads() {
        fn goes<T: Send + 'static>() {}
        goes::<CryptoJob>();
        goes::<CryptoDone>();
    }
}
