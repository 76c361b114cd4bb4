//! Passes signals on to the command that runs.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::process::Child;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, code};

/// Catches SIGINT, SIGTERM and SIGHUP during its life; signals wait until there is a command.
pub(super) struct ForwardedSignals {
    runtime: Runtime,
    signals: [(tokio::signal::unix::Signal, Signal); 3],
}

impl ForwardedSignals {
    /// Starts catching the signals.
    pub(super) fn catch() -> Result<Self, Failure> {
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

    /// Passes the signals on to a command from now on. The terminal itself sends SIGINT to the
    /// command.
    pub(super) fn forward_to(self, child: &Child) -> io::Result<Runtime> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        for (mut caught, name) in self.signals {
            // The descriptor always means this process, even after its number is reused.
            let target: OwnedFd = pidfd_open(pid, PidfdFlags::empty())?;
            self.runtime.spawn(async move {
                while caught.recv().await.is_some() {
                    if name != Signal::INT || !io::stdin().is_terminal() {
                        // The process may have ended already.
                        _ = pidfd_send_signal(&target, name);
                    }
                }
            });
        }
        Ok(self.runtime)
    }
}
