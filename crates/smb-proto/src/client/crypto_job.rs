//! Cryptography on one large frame, as work for any thread, and the queue of such work.

use std::collections::VecDeque;
use std::sync::Arc;

use ropeway_block::BlockMut;
use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::header::Header;
use ropeway_smb_wire::read::READ_DATA_OFFSET;

use super::Ticket;
use super::frame::Piece;
use super::loans::LoanId;
use super::table::InFlight;
use crate::crypto::{Opener, SealTicket, Sender, Signer, TRANSFORM_HEADER_LEN};

/// Maximum number of waiting jobs before replies stop becoming jobs. A guess: as many as two dozen
/// cores take at once.
pub(super) const WAITING_MAX: usize = 24;

/// Work for any thread. Run it and hand in the result: the connection waits for it.
#[must_use = "the connection waits for what comes of it"]
pub struct CryptoJob(pub(super) Work);

/// The result of a job, for [`Connection::job_done`](super::Connection::job_done).
#[must_use = "the connection waits for it"]
pub struct CryptoDone(pub(super) Outcome);

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

pub(super) enum Outcome {
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
    pub(super) fn outcome(self, is_good: bool) -> Outcome {
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
    pub(super) waiting: VecDeque<Work>,
    /// Number of jobs taken and not handed in.
    pub(super) out: usize,
    /// Number of all jobs that protect outgoing frames.
    pub(super) sends: usize,
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
