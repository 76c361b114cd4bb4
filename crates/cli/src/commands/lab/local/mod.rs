//! `ropeway lab dirty`: labs of this machine's own devices.

mod dirty;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_lab::local::LocalError;
use tokio::runtime::Runtime;

use crate::args::LocalCommand;
use crate::failure::{Failure, code};
use crate::job::{self, Signals};

/// Runs the command; gives its exit code.
///
/// # Errors
/// It cannot be done here, or was interrupted.
pub(super) fn run(command: &LocalCommand) -> Result<u8, Failure> {
    match command {
        LocalCommand::Dirty(args) => dirty::run(args),
    }
}

/// Notes SIGINT and SIGTERM as long as it lives.
struct Stopper {
    runtime: Option<Runtime>,
    stop: Arc<AtomicBool>,
}

impl Stopper {
    /// Begins. Starts threads: whatever asks for a single one comes before.
    fn begin() -> Result<Self, Failure> {
        let runtime = job::runtime()?;
        let mut signals = runtime.block_on(async { Signals::catch() })?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        runtime.spawn(async move {
            loop {
                signals.stop().await;
                told.store(true, Ordering::Release);
            }
        });
        Ok(Self {
            runtime: Some(runtime),
            stop,
        })
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn failure(error: &LocalError) -> Failure {
    match error {
        LocalError::NoRoom { .. } | LocalError::File(_) | LocalError::Report(_) => {
            Failure::new(code::TARGET, error.to_string()).hint(error.hint())
        }
        LocalError::InMemory { .. } => Failure::usage(error.to_string()).hint(error.hint()),
        LocalError::Io { source, .. } => {
            Failure::of_end(error.to_string(), source, code::TARGET).hint(error.hint())
        }
        LocalError::Interrupted => Failure::new(code::INTERRUPTED, error.to_string()).hint(error.hint()),
    }
}
