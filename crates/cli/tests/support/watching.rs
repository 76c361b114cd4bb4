//! Runs with `--watch`.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::{Finished, Run, Running, wait_until};

/// The limit is 2 s; generous here, because a test machine may be busy.
const FOLLOWS: Duration = Duration::from_secs(10);

/// A run that has made its first pass and watches for changes.
pub(crate) struct Watching(Running);

impl Watching {
    /// Starts the run with `--json --watch` and waits for the end of the first pass.
    #[track_caller]
    pub(crate) fn start(run: Run) -> Self {
        let mut running = run.args(["--json", "--watch"]).start();
        let there = |running: &Running| running.stdout().lines().any(|line| line.contains("\"watching\""));
        assert!(
            running.until(there),
            "it never watches: {}\n{}",
            running.stdout(),
            running.stderr()
        );
        Self(running)
    }

    /// Asserts that a condition becomes true soon.
    #[track_caller]
    pub(crate) fn follows(&self, what: &str, done: impl Fn() -> bool) {
        self.follows_within(FOLLOWS, what, done);
    }

    /// Like [`follows`](Self::follows), for longer waits.
    #[track_caller]
    pub(crate) fn follows_within(&self, bound: Duration, what: &str, done: impl Fn() -> bool) {
        assert!(
            wait_until(bound, done),
            "{what} did not follow: {}\n{}",
            self.0.stdout(),
            self.0.stderr()
        );
    }

    /// Asserts that the run prints a text soon.
    #[track_caller]
    pub(crate) fn prints(&self, what: &str) {
        let said = || self.0.stdout().contains(what) || self.0.stderr().contains(what);
        self.follows(&format!("{what:?}"), said);
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Waits until the run ends by itself.
    pub(crate) fn ended(self) -> Finished {
        self.0.wait()
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(self, signal: Signal) -> Finished {
        self.0.signal(signal);
        self.0.wait()
    }
}

/// Returns whether a file has this content.
pub(crate) fn holds(path: &Path, content: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|found| found == content)
}
