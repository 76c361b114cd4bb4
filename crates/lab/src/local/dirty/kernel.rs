//! Limits of the kernel for dirty pages, as this lab compares them with what it measures.
//!
//! The limits themselves are those of [`ropeway_dirty::limits`].

use std::fs;
use std::io;

pub use ropeway_dirty::limits::{Memory, Share as Device};
use ropeway_dirty::parse::block::BlockStat;
use ropeway_dirty::parse::vmstat::Vmstat;
use serde::Serialize;

/// Expected limits, in bytes that are dirty or being written back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// Start of write-back.
    pub background_bytes: f64,
    /// Amount from which writers wait.
    pub held_from_bytes: f64,
    /// Largest amount.
    pub limit_bytes: f64,
    /// Whether these are the limits of the device.
    pub strict: bool,
}

impl Expected {
    /// Returns the expected limits for writers to a device.
    pub fn of(memory: &Memory, device: Option<&Device>) -> Self {
        let own = device.and_then(|device| memory.limits_of(device));
        let limits = own.unwrap_or_else(|| memory.limits());
        Self {
            background_bytes: limits.background_bytes as f64,
            held_from_bytes: limits.held_from_bytes as f64,
            limit_bytes: limits.limit_bytes as f64,
            strict: own.is_some(),
        }
    }

    /// Returns the bytes written until writers wait, with those that the device completes meanwhile.
    /// `others` bytes are dirty already. `None` if the device keeps up, so that no writer waits.
    pub fn written_bytes(&self, memory_bps: f64, device_bps: f64, others: f64) -> Option<f64> {
        // Other files count for the machine, but not against the limit of the device.
        let others = if self.strict { 0.0 } else { others };
        let (from, to) = (self.background_bytes - others, self.held_from_bytes - others);
        if to <= 0.0 {
            return Some(0.0);
        }
        let gain = memory_bps - device_bps;
        (gain > 0.0).then(|| {
            let quiet = from.max(0.0);
            quiet + (to - quiet) * memory_bps / gain
        })
    }
}

/// Dirty pages and the limits at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyPages {
    /// Bytes of the machine that are dirty or being written back.
    pub bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
    /// Start of write-back.
    pub background_bytes: u64,
}

impl DirtyPages {
    /// Reads the current values.
    ///
    /// # Errors
    /// /proc/vmstat cannot be read.
    pub fn read() -> io::Result<Self> {
        let vmstat = Vmstat::read()?;
        Ok(Self {
            bytes: vmstat.backlog_bytes(),
            limit_bytes: vmstat.limit_bytes,
            background_bytes: vmstat.background_bytes,
        })
    }
}

/// Returns the bytes that a block device has read and written so far; `None` if the kernel does not count
/// them.
pub fn device_moved(major: u32, minor: u32) -> Option<[u64; 2]> {
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let stat = BlockStat::parse(&text)?;
    Some([stat.read_bytes, stat.written_bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_completed_meanwhile_are_added() {
        let expected = Expected {
            background_bytes: 100.0,
            held_from_bytes: 200.0,
            limit_bytes: 300.0,
            strict: false,
        };
        assert_eq!(expected.written_bytes(10.0, 5.0, 0.0), Some(300.0));
        assert_eq!(expected.written_bytes(10.0, 5.0, 150.0), Some(100.0));
        assert_eq!(expected.written_bytes(10.0, 5.0, 250.0), Some(0.0));
        assert_eq!(expected.written_bytes(10.0, 10.0, 0.0), None);
    }

    #[test]
    fn a_strict_device_ignores_what_others_owe() {
        let memory = Memory {
            kernel_limit_bytes: 1_000_000_000,
            kernel_background_bytes: 500_000_000,
            ..Memory::default()
        };
        let strict = Device {
            max_bytes: Some(680_000_000),
            strict: true,
            ..Device::default()
        };
        let own = Expected::of(&memory, Some(&strict));
        assert!(own.strict && (own.held_from_bytes - 510e6).abs() < 1.0, "{own:?}");
        assert_eq!(own.written_bytes(1e9, 0.0, 1e12), Some(own.held_from_bytes));
        assert!(!Expected::of(&memory, None).strict);
    }
}
