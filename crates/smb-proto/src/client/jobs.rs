//! Work on big frames that may be done elsewhere: signing, verifying, sealing and opening.
//!
//! What can be checked before is checked before; what a job finds is believed only when it is handed back. A job owns the
//! block and shares the keys, which are wiped when the last who has them drops them. While a job is out, the requests in
//! it are not answerable: to whatever claims to answer them the rule of unasked answers applies.
//!
//! A connection that ends takes the jobs that nobody has taken back, and waits for the others: its last events come with
//! the last [`CryptoDone`], so that every block comes back.
//!
//! There are no more jobs than chains in flight. Answers that come while [`WAITING_MAX`] jobs wait for somebody to take
//! them are verified and opened at once: whoever cannot keep up with the line lets the line wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ropeway_block::BlockMut;

use super::connection::Connection;
use super::frame::Piece;
use super::loans::LoanId;
use super::table::Flight;
use super::{EndReason, PeerMisbehaved, Ticket};
use crate::crypto::{Cipher, Opener, SealTicket, Sender, Signer, TRANSFORM_HEADER_LEN};
use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::header::Header;
use ropeway_smb_wire::read::READ_DATA_OFFSET;

/// Jobs that wait while answers still become jobs. A guess: what two dozen cores take at once.
const WAITING_MAX: usize = 24;

/// Work for any thread. Run it and hand in what comes of it: the connection that gave it waits for that.
#[must_use = "the connection waits for what comes of it"]
pub struct CryptoJob(Work);

/// What came of a job, for [`Connection::job_done`].
#[must_use = "the connection waits for it"]
pub struct CryptoDone(Outcome);

pub(super) enum Work {
    /// Of a READ's answer that lies in its block, behind its head.
    Verify {
        loan: LoanId,
        block: BlockMut,
        data_len: usize,
        answer: (Header, Flight),
        signer: Arc<Signer>,
    },
    /// A sealed frame, its first `head` bytes in the headroom.
    Open {
        loan: LoanId,
        block: BlockMut,
        head: usize,
        session: SessionId,
        opener: Opener,
    },
    /// A frame around the payload of the chain's operation `index`.
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
        answer: (Header, Flight),
        is_good: bool,
    },
    Opened {
        loan: LoanId,
        block: BlockMut,
        head: usize,
        /// By whose keys, if it opened.
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
    /// Does it: nothing but computing.
    pub fn run(self) -> CryptoDone {
        let mut work = self.0;
        let is_good = work.run();
        CryptoDone(work.outcome(is_good))
    }
}

impl Work {
    /// Computes, in the block; whether what came from the server is what it says, or what goes there is sealed.
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

    /// What came of it; `is_good` as [`run`](Self::run) said, or false if it was in vain: nothing was computed.
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

/// Jobs of a connection.
#[derive(Default)]
pub(super) struct JobQueue {
    waiting: VecDeque<Work>,
    /// Taken and not handed in.
    out: usize,
    /// Frames to be sent, among all of them.
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
    /// A job, to be run anywhere, in any order, and handed in by [`job_done`](Self::job_done); none: nothing more.
    pub fn poll_job(&mut self) -> Option<CryptoJob> {
        let work = self.jobs.waiting.pop_front()?;
        self.jobs.out += 1;
        Some(CryptoJob(work))
    }

    /// Jobs not handed in, whether they were taken or not.
    pub fn jobs(&self) -> usize {
        self.jobs.waiting.len() + self.jobs.out
    }

    /// What came of a job of this connection; poll events, transmits and jobs afterwards. Also after the connection has
    /// ended.
    ///
    /// # Errors
    /// [`PeerMisbehaved`]: the connection has ended, events say the rest.
    ///
    /// # Panics
    /// If no job is out.
    pub fn job_done(&mut self, now: Duration, done: CryptoDone) -> Result<(), PeerMisbehaved> {
        assert!(self.jobs.are_out(), "no more jobs are handed in than were taken");
        self.jobs.out -= 1;
        self.now = self.now.max(now);
        if self.ended.is_some() {
            self.lay_down(done.0);
            return Ok(());
        }
        let outcome = self.take_done(done.0);
        if self.table.is_empty() {
            // Nothing is awaited: the silence that follows does not count.
            self.heard();
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
                self.table.set_away(answer.0.message_id, false);
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
                Some(session) => self.landed(loan, block, head, session),
                None => self.refuse_read(loan, block, PeerMisbehaved::Unopenable),
            },
            Outcome::Sendable {
                ticket,
                index,
                piece,
                is_sealed,
            } => {
                self.jobs.sends -= 1;
                self.table.set_chain_away(ticket, false);
                let mut finished = piece.into_finished(is_sealed);
                if let Some(sent) = self.table.chain_mut(ticket) {
                    sent.keep(index, &mut finished);
                    self.ready.push_back(finished);
                }
                Ok(())
            }
        }
    }

    /// The connection has ended: only the block counts.
    fn lay_down(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Verified { loan, block, .. } | Outcome::Opened { loan, block, .. } => {
                // What is wrong with an answer that waited for the block is of no matter any more.
                let _ = self.bring_back(loan, block);
            }
            Outcome::Sendable {
                ticket,
                index,
                piece,
                is_sealed,
            } => {
                self.jobs.sends -= 1;
                if let Some(sent) = self.table.chain_mut(ticket) {
                    sent.keep(index, &mut piece.into_finished(is_sealed));
                }
            }
        }
    }

    /// Takes back what nobody has taken.
    pub(super) fn recall_jobs(&mut self) {
        while let Some(work) = self.jobs.waiting.pop_front() {
            self.lay_down(work.outcome(false));
        }
    }

    /// Whether there may be a job for one more answer.
    pub(super) fn takes_answers(&self) -> bool {
        self.jobs.waiting.len() < WAITING_MAX
    }

    /// Whether a message of so many bytes is signed or verified by a job.
    pub(super) fn signs_by_job(&self, signer: &Signer, length: usize) -> bool {
        self.leaves_to_job(length, signer.algorithm().is_slow())
    }

    /// Whether a sealed frame of so many bytes is sealed or opened by a job.
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
