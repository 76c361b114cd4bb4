//! Resources of a run other than the client's: the processor time and memory of its server, if it
//! has one, and the processors that unrelated processes kept busy.

use std::thread;
use std::time::Duration;

use super::measure::Measured;
use super::process::Busy;
use super::server::Served;
use crate::report::{Outcome, Run};

/// Time after the client's end by which the server's processes have ended, so that their processor
/// time is complete. A guess.
const SETTLED: Duration = Duration::from_millis(100);
/// Interval of samples of a server's memory.
const MEMORY_LOOK: Duration = Duration::from_millis(500);

/// Observes the server and the machine while a client runs.
#[derive(Debug)]
pub(crate) struct RunMonitor<'a> {
    server: Option<&'a Served>,
    busy: Busy,
    cpu: Duration,
    memory_bytes: u64,
    looked: Duration,
}

/// The observations of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// User and system time of the server.
    server_cpu: Option<Duration>,
    /// Peak memory of the server.
    server_memory_bytes: u64,
    /// Processors that unrelated processes kept busy, on average.
    others: f64,
}

impl<'a> RunMonitor<'a> {
    /// Begins before the client starts.
    pub(crate) fn begin(server: Option<&'a Served>) -> Self {
        Self {
            server,
            busy: Busy::now(),
            cpu: server.map(Served::cpu).unwrap_or_default(),
            memory_bytes: server.map_or(0, Served::memory_bytes),
            looked: Duration::ZERO,
        }
    }

    /// Takes a sample if it is time; `at` is the time since the start.
    pub(crate) fn look(&mut self, at: Duration) {
        if at >= self.looked + MEMORY_LOOK {
            self.looked = at;
            self.look_at_memory();
        }
    }

    fn look_at_memory(&mut self) {
        let now = self.server.map_or(0, Served::memory_bytes);
        self.memory_bytes = self.memory_bytes.max(now);
    }

    /// Ends after the client has ended.
    pub(crate) fn end(mut self) -> Used {
        if self.server.is_some() {
            thread::sleep(SETTLED);
        }
        self.look_at_memory();
        Used {
            server_cpu: self.server.map(|server| server.cpu().saturating_sub(self.cpu)),
            server_memory_bytes: self.memory_bytes,
            others: self.busy.others(),
        }
    }
}

impl Used {
    /// Returns the run with everything that is known without the client's own report.
    pub(crate) fn run(&self, started: String, measured: &Measured, outcome: Outcome) -> Run {
        // A client that ended before the first sample has no known memory.
        let known = |bytes: u64| (bytes > 0).then_some(bytes);
        Run {
            client_cpu_seconds: Some(measured.cpu.as_secs_f64()),
            server_cpu_seconds: self.server_cpu.map(|cpu| cpu.as_secs_f64()),
            client_memory_bytes: known(measured.peak_bytes),
            server_memory_bytes: known(self.server_memory_bytes),
            others_busy: Some((self.others * 1000.0).round() / 1000.0),
            ..Run::of(started, outcome, measured.whole.as_secs_f64())
        }
    }
}
