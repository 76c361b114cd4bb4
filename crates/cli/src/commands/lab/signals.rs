//! Signals while a command runs: they are the command's.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::process::Child;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, code};

/// Catches SIGINT, SIGTERM and SIGHUP as long as it lives; without a command they wait.
pub(super) struct Caught {
    runtime: Runtime,
    signals: [(tokio::signal::unix::Signal, Signal); 3],
}

impl Caught {
    /// Begins.
    pub(super) fn begin() -> Result<Self, Failure> {
        let runtime = crate::job::runtime()?;
        let entered = runtime.enter();
        let catch = |kind, signal_name| -> io::Result<_> { Ok((signal(kind)?, signal_name)) };
        let signals = (|| {
            Ok([
                catch(SignalKind::interrupt(), Signal::INT)?,
                catch(SignalKind::terminate(), Signal::TERM)?,
                catch(SignalKind::hangup(), Signal::HUP)?,
            ])
        })();
        let signals = signals.map_err(|error: io::Error| {
            Failure::new(code::USAGE, format!("cannot catch signals: {error}"))
        })?;
        drop(entered);
        Ok(Self { runtime, signals })
    }

    /// Hands them to a command from now on. The terminal sends SIGINT to the command itself.
    pub(super) fn pass_to(self, child: &Child) -> io::Result<Runtime> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        for (mut caught, name) in self.signals {
            // The descriptor means this process for ever, also when its number is another's.
            let target: OwnedFd = pidfd_open(pid, PidfdFlags::empty())?;
            self.runtime.spawn(async move {
                while caught.recv().await.is_some() {
                    if name != Signal::INT || !io::stdin().is_terminal() {
                        // It may be gone already.
                        _ = pidfd_send_signal(&target, name);
                    }
                }
            });
        }
        Ok(self.runtime)
    }
}
