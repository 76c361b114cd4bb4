//! What a run takes beside its client: the server's processor time and memory, and what others kept busy meanwhile.

use std::thread;
use std::time::Duration;

use super::measure::Measured;
use super::process::Busy;
use super::server::Served;
use crate::report::{Outcome, Run};

/// A server's processes end a moment after the client; by then their time is complete. A guess.
const SETTLED: Duration = Duration::from_millis(100);
/// How often the memory of servers is looked at.
const MEMORY_LOOK: Duration = Duration::from_millis(500);

/// Looks at the server and at the machine while a client runs.
#[derive(Debug)]
pub(crate) struct Beside<'a> {
    server: &'a Served,
    busy: Busy,
    cpu: Duration,
    memory_bytes: u64,
    looked: Duration,
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// The server's user and system time.
    server_cpu: Duration,
    /// The server's most memory.
    server_memory_bytes: u64,
    /// Processors that neither client, server nor lab kept busy, on average.
    others: f64,
}

impl<'a> Beside<'a> {
    /// The client is about to start.
    pub(crate) fn begin(server: &'a Served) -> Self {
        Self {
            server,
            busy: Busy::now(),
            cpu: server.cpu(),
            memory_bytes: server.memory_bytes(),
            looked: Duration::ZERO,
        }
    }

    /// It has run for so long; looks, if it is time.
    pub(crate) fn look(&mut self, at: Duration) {
        if at >= self.looked + MEMORY_LOOK {
            self.looked = at;
            self.memory_bytes = self.memory_bytes.max(self.server.memory_bytes());
        }
    }

    /// It has ended.
    pub(crate) fn end(self) -> Used {
        thread::sleep(SETTLED);
        Used {
            server_cpu: self.server.cpu().saturating_sub(self.cpu),
            server_memory_bytes: self.memory_bytes.max(self.server.memory_bytes()),
            others: self.busy.others(),
        }
    }
}

impl Used {
    /// The run, as far as it is seen from outside the client.
    pub(crate) fn run(&self, started: String, measured: &Measured, outcome: Outcome) -> Run {
        // Who ended before the first look had some memory too.
        let known = |bytes: u64| (bytes > 0).then_some(bytes);
        Run {
            started,
            discarded: false,
            outcome,
            whole_seconds: measured.whole.as_secs_f64(),
            transfer_seconds: None,
            durable_seconds: None,
            client_cpu_seconds: Some(measured.cpu.as_secs_f64()),
            server_cpu_seconds: Some(self.server_cpu.as_secs_f64()),
            client_memory_bytes: known(measured.peak_bytes),
            server_memory_bytes: known(self.server_memory_bytes),
            others_busy: Some((self.others * 1000.0).round() / 1000.0),
            reads_p99_ms: None,
        }
    }
}
