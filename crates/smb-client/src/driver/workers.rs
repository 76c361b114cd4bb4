//! Where big frames are signed, verified, sealed and opened when that would hold the line back.
//!
//! AES-GCM and AES-GMAC keep up with any line and are computed where the frames are. AES-CMAC, HMAC-SHA256 and AES-CCM do
//! not: a connection that computes them itself carries what one core computes, less what that core needs to receive. Their
//! frames go to blocking threads of the runtime, no more at once in the whole process than there are cores.
//!
//! When all seats are taken by other connections, and none by this one, the driver computes itself: it always makes
//! progress, and nobody needs to be woken for a seat.

use std::sync::{Arc, LazyLock};

use ropeway_smb_proto::client::{CryptoDone, Jobs};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use super::Driver;
use crate::LostReason;

/// Frames from here on go to workers. Measured on two cores with other load (`tests/client/pays.rs` of `smb-proto`): from
/// 256 KiB on two workers carry up to 1.3 times (HMAC), 1.45 times (CMAC) and 1.5 times (CCM) as much when the second core
/// is free, and 3 % less when it is not; at 64 KiB they gain a tenth at best (CCM) and lose up to a fifth (HMAC).
const FROM: usize = 256 << 10;

static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));

/// One for each job that runs, in the whole process.
static SEATS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(*CORES)));

/// What a connection leaves to workers: nothing where they would only wait for the one core.
pub(crate) fn jobs() -> Option<Jobs> {
    (*CORES > 1).then_some(Jobs {
        from: FROM,
        fast_too: false,
    })
}

/// Jobs that run.
#[derive(Default)]
pub(super) struct Workers(JoinSet<CryptoDone>);

/// What became of one.
pub(super) type Worked = Result<CryptoDone, JoinError>;

impl Workers {
    /// The next that is done; none at once if none runs.
    pub(super) async fn done(&mut self) -> Option<Worked> {
        self.0.join_next().await
    }

    pub(super) fn are_busy(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Driver {
    /// Gives jobs to workers; whether one was done here instead, so that there may be news.
    pub(super) fn hand_out(&mut self) -> bool {
        while self.connection.jobs() > self.workers.0.len() {
            let seat = Arc::clone(&SEATS).try_acquire_owned().ok();
            if seat.is_none() && self.workers.are_busy() {
                return false;
            }
            let Some(job) = self.connection.poll_job() else {
                return false;
            };
            let Some(seat) = seat else {
                self.worked(Ok(job.run()));
                return true;
            };
            self.workers.0.spawn_blocking(move || {
                let done = job.run();
                drop(seat);
                done
            });
        }
        false
    }

    pub(super) fn worked(&mut self, worked: Worked) {
        match worked {
            Ok(done) => {
                let now = self.now();
                if let Err(fault) = self.connection.job_done(now, done) {
                    tracing::warn!(%fault, "the server broke the protocol");
                    self.ended = Some(LostReason::Misbehaved(fault));
                }
            }
            Err(fault) => match fault.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime goes, and with it everybody who waits.
                Err(_) => {
                    self.ended.get_or_insert(LostReason::ClientClosed);
                }
            },
        }
    }

    /// All that run come to their end.
    pub(super) async fn settle_jobs(&mut self) {
        while let Some(worked) = self.workers.done().await {
            self.worked(worked);
        }
    }
}
