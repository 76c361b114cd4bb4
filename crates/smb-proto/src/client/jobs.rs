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

use std::time::Duration;

use super::connection::Connection;
use super::crypto_job::{CryptoDone, CryptoJob, Outcome, WAITING_MAX};
use super::{EndReason, PeerMisbehaved};
use crate::crypto::{Cipher, Signer};

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
