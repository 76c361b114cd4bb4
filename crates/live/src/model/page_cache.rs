//! What the page cache still owes the devices, beside the jobs that write to them.

use ropeway_dirty::reading::{DeviceReading, MachineReading, WriterState};
use serde::{Deserialize, Serialize};

/// Dirty pages of the machine and of the devices that jobs write to, at the last look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageCache {
    /// Bytes that are dirty and not yet being written, of the whole machine.
    pub dirty_bytes: u64,
    /// Bytes on the way to some device.
    pub writeback_bytes: u64,
    /// Bytes of both from which the kernel writes back by itself.
    pub background_bytes: u64,
    /// Bytes of both from which writers wait.
    pub held_from_bytes: u64,
    /// Most bytes of both.
    pub limit_bytes: u64,
    /// Whether writers wait: `free`, `would_wait`, `held`, or `unknown`.
    pub writers: String,
    /// Threads of this process that were seen waiting.
    pub threads_held: u64,
    /// Devices that the process's jobs write to, one for each.
    pub devices: Vec<Device>,
}

/// A device that a job writes to. What this process may not know is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Its name: `sdb`, or the type of its file system.
    pub name: String,
    /// Its name in `/sys/class/bdi`.
    pub bdi: String,
    /// Bytes that are dirty and not yet being written.
    pub dirty_bytes: Option<u64>,
    /// Bytes on the way to it.
    pub writeback_bytes: Option<u64>,
    /// Bytes a second that are written back.
    pub rate: Option<f64>,
    /// Seconds until it has everything, if nobody wrote more.
    pub drain_seconds: Option<f64>,
    /// As [`PageCache::writers`], for this device.
    pub writers: String,
    /// Numbers of the jobs.
    pub jobs: Vec<u32>,
}

impl PageCache {
    /// Returns the bytes that some device has not taken yet.
    pub fn backlog_bytes(&self) -> u64 {
        self.dirty_bytes.saturating_add(self.writeback_bytes)
    }

    /// Takes the machine's part of a look; `threads_held` of this process wait.
    pub(crate) fn of_machine(machine: &MachineReading, threads_held: u64) -> Self {
        Self {
            dirty_bytes: machine.dirty_bytes,
            writeback_bytes: machine.writeback_bytes,
            background_bytes: machine.limits.background_bytes,
            held_from_bytes: machine.limits.held_from_bytes,
            limit_bytes: machine.limits.limit_bytes,
            writers: word(machine.writers.state, threads_held),
            threads_held,
            devices: Vec::new(),
        }
    }
}

impl Device {
    /// Takes a device's part of a look.
    pub(crate) fn of_reading(reading: &DeviceReading, jobs: Vec<u32>) -> Self {
        Self {
            name: crate::clean(&reading.name),
            bdi: reading.bdi.clone(),
            dirty_bytes: reading.dirty_bytes,
            writeback_bytes: reading.writeback_bytes,
            rate: reading.rate,
            drain_seconds: reading.drain.as_ref().map(|drain| drain.eta.seconds),
            writers: word(reading.writers.state, 0),
            jobs,
        }
    }

    /// Returns the bytes that it has not taken yet.
    pub fn backlog_bytes(&self) -> Option<u64> {
        Some(self.dirty_bytes?.saturating_add(self.writeback_bytes?))
    }
}

/// Returns the state of writers in a word. Threads that wait are held, whatever the limits say.
fn word(state: WriterState, threads_held: u64) -> String {
    let word = match state {
        _ if threads_held > 0 => "held",
        WriterState::Unknown => "unknown",
        WriterState::Free => "free",
        WriterState::WouldWait => "would_wait",
        WriterState::Held => "held",
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_threads_are_held_writers() {
        let mut machine = MachineReading {
            dirty_bytes: 5,
            writeback_bytes: u64::MAX,
            ..MachineReading::default()
        };
        machine.writers.state = WriterState::Free;
        let cache = PageCache::of_machine(&machine, 0);
        assert_eq!(
            (cache.writers.as_str(), cache.backlog_bytes()),
            ("free", u64::MAX)
        );
        assert_eq!(PageCache::of_machine(&machine, 2).writers, "held");
        machine.writers.state = WriterState::WouldWait;
        assert_eq!(PageCache::of_machine(&machine, 0).writers, "would_wait");
        let device = Device::of_reading(&DeviceReading::default(), vec![3]);
        assert_eq!(
            (device.backlog_bytes(), device.writers.as_str()),
            (None, "unknown")
        );
    }
}
