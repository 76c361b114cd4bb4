//! Worker threads that sign, verify, seal and open large frames where the driver itself would hold
//! the line back.
//!
//! AES-GCM and AES-GMAC keep up with any line, so the driver computes them in place. AES-CMAC,
//! HMAC-SHA256 and AES-CCM do not: a connection that computes them itself carries what one core
//! computes, less what that core needs to receive. Their frames go to blocking threads of the
//! runtime. In the whole process at most as many jobs run at once as there are cores.
//!
//! When other connections hold all permits and this one has no job running, the driver computes the
//! job itself. So it always makes progress, and need not be woken for a permit.

use std::sync::{Arc, LazyLock};

use ropeway_smb_proto::client::{CryptoDone, Jobs};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use super::Driver;
use crate::error::LostReason;

/// Frames of this size or larger go to workers. Measured on two cores under other load
/// (`tests/client/pays.rs` of `smb-proto`): from 256 KiB on two workers carry up to 1.3 times
/// (HMAC), 1.45 times (CMAC) and 1.5 times (CCM) as much when the second core is free, and 3 % less
/// when it is not; at 64 KiB they gain a tenth at best (CCM) and lose up to a fifth (HMAC).
const OFFLOAD_MIN: usize = 256 << 10;

static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));

/// One permit for each running job in the process.
static JOB_PERMITS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(*CORES)));

/// Returns which jobs a connection leaves to workers: none on a machine with one core.
pub(crate) fn jobs() -> Option<Jobs> {
    (*CORES > 1).then_some(Jobs {
        from: OFFLOAD_MIN,
        fast_too: false,
    })
}

/// The running jobs of one connection.
#[derive(Default)]
pub(super) struct Workers(JoinSet<CryptoDone>);

/// The outcome of a job.
pub(super) type FinishedJob = Result<CryptoDone, JoinError>;

impl Workers {
    /// Waits for the next finished job; returns `None` at once if none is running.
    pub(super) async fn done(&mut self) -> Option<FinishedJob> {
        self.0.join_next().await
    }

    pub(super) fn are_busy(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Driver {
    /// Gives jobs to workers. Returns whether the driver computed one itself instead, so that the
    /// connection may have new events.
    pub(super) fn start_jobs(&mut self) -> bool {
        while self.connection.jobs() > self.workers.0.len() {
            let permit = Arc::clone(&JOB_PERMITS).try_acquire_owned().ok();
            if permit.is_none() && self.workers.are_busy() {
                return false;
            }
            let Some(job) = self.connection.poll_job() else {
                return false;
            };
            let Some(permit) = permit else {
                self.finish_job(Ok(job.run()));
                return true;
            };
            self.workers.0.spawn_blocking(move || {
                let done = job.run();
                drop(permit);
                done
            });
        }
        false
    }

    pub(super) fn finish_job(&mut self, finished: FinishedJob) {
        match finished {
            Ok(done) => {
                let now = self.now();
                if let Err(fault) = self.connection.job_done(now, done) {
                    tracing::warn!(%fault, "the server broke the protocol");
                    self.ended = Some(LostReason::Misbehaved(fault));
                }
            }
            Err(fault) => match fault.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down, and with it every waiting task.
                Err(_) => {
                    self.ended.get_or_insert(LostReason::ClientClosed);
                }
            },
        }
    }

    /// Waits for all running jobs.
    pub(super) async fn settle_jobs(&mut self) {
        while let Some(finished) = self.workers.done().await {
            self.finish_job(finished);
        }
    }
}
