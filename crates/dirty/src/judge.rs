//! What the figures mean: whether a disk is one that people unplug, what state a device is in, whether
//! its writers wait, and whether it may be unplugged. Pure.

use std::path::PathBuf;

use serde::Serialize;

use crate::limits::Limits;
use crate::reading::{DeviceState, Medium, WriterState, lossy};

/// Time without any completed request after which a device counts as stalled, in seconds. A guess:
/// longer than a stick's pauses, shorter than the block layer's time-out of 30 s.
pub const STALL_SECONDS: f64 = 10.0;

/// What sysfs says of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// `removable`: the medium can be taken out.
    pub removable: bool,
    /// Bus types of the devices that it hangs on (`subsystem` links), the disk's own first.
    pub buses: Vec<String>,
    /// `removable` of the USB device (Documentation/ABI/testing/sysfs-bus-usb): `removable`,
    /// `fixed` or `unknown`.
    pub usb: Option<String>,
    /// `type` of a card: `MMC` is soldered in, `SD` is in a slot.
    pub card: Option<String>,
}

impl DiskFacts {
    /// Returns whether people unplug it: its medium is removable, or it hangs on a bus for plugging and
    /// is not built in.
    pub fn medium(&self) -> Medium {
        let has = |names: &[&str]| self.buses.iter().any(|bus| names.contains(&bus.as_str()));
        let plugs = match (self.usb.as_deref(), self.card.as_deref()) {
            (Some("fixed"), _) => false,
            (_, Some(card)) => card != "MMC",
            _ => has(&["usb", "firewire", "ieee1394", "pcmcia", "memstick"]),
        };
        match self.removable || plugs {
            true => Medium::Removable,
            false => Medium::Fixed,
        }
    }
}

/// Returns the state of a device; `idle_seconds` is the time since it completed something, and
/// `drift` the error of its counters in bytes.
pub fn state(dirty: u64, writeback: u64, idle_seconds: f64, drift: u64) -> DeviceState {
    if dirty.saturating_add(writeback) <= drift {
        DeviceState::Clean
    } else if writeback <= drift {
        DeviceState::Waiting
    } else if idle_seconds >= STALL_SECONDS {
        DeviceState::Stalled
    } else {
        DeviceState::Writing
    }
}

/// Returns what is known of writers. `own` is a device's backlog and its own limits.
pub fn writers(threads_seen: u64, machine: (u64, Limits), own: Option<(Option<u64>, Limits)>) -> WriterState {
    if threads_seen > 0 {
        return WriterState::Held;
    }
    let (backlog, limits) = match own {
        Some((None, _)) => return WriterState::Unknown,
        Some((Some(backlog), limits)) => (backlog, limits),
        None => machine,
    };
    match backlog > limits.held_from_bytes && limits.limit_bytes > 0 {
        true => WriterState::WouldWait,
        false => WriterState::Free,
    }
}

/// A file that something may still write to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// Process, or 0 for the kernel (a loop device, swap).
    pub pid: u32,
    /// Name of its program.
    pub name: String,
    /// A file that it may write to.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
}

/// What decides whether data on a device are safe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// What lies below.
    pub medium: Medium,
    /// Bytes that it has not taken yet, where that can be told. Amounts within the error of the
    /// counters are 0.
    pub backlog_bytes: Option<u64>,
    /// Whether something of it is mounted for writing.
    pub mounted: bool,
    /// Who may still write, at most some.
    pub writers: Vec<Writer>,
    /// Processes that this user may not look at.
    pub processes_hidden: u64,
}

/// What may be said of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may be unplugged.
    SafeToUnplug,
    /// It may be unplugged as far as this user can see: others' processes are hidden.
    SafeAsFarAsSeen,
    /// A server has made everything durable.
    FlushedByServer,
    /// There is nothing to write back to.
    InMemory,
    /// Everything is on the device, which nobody unplugs.
    Durable,
    /// Something is dirty again.
    Dirty,
    /// Files are open for writing.
    InUse,
}

impl Condition {
    /// Returns what may be said once a flush has ended well.
    pub fn verdict(&self) -> Verdict {
        match self.medium {
            Medium::Memory => return Verdict::InMemory,
            Medium::Network => return Verdict::FlushedByServer,
            // Others go on writing to a disk that stays; what was dirty before the flush is durable.
            Medium::Fixed | Medium::Program | Medium::Unknown => return Verdict::Durable,
            Medium::Removable => {}
        }
        if self.mounted && !self.writers.is_empty() {
            Verdict::InUse
        } else if self.backlog_bytes.is_some_and(|bytes| bytes > 0) {
            Verdict::Dirty
        } else if self.mounted && self.processes_hidden > 0 {
            Verdict::SafeAsFarAsSeen
        } else {
            Verdict::SafeToUnplug
        }
    }
}

impl Verdict {
    /// Returns the words for people; empty if nothing needs to be said beyond that data are durable.
    pub fn words(self) -> &'static str {
        match self {
            Self::SafeToUnplug => "SAFE TO UNPLUG",
            Self::SafeAsFarAsSeen => "SAFE TO UNPLUG as far as this user can see",
            Self::FlushedByServer => "flushed by the server",
            Self::InMemory => "in memory only",
            Self::Durable => "",
            Self::Dirty => "NOT SAFE: more was written meanwhile",
            Self::InUse => "NOT SAFE: files are open for writing",
        }
    }

    /// Returns whether nothing keeps the device from being unplugged, or nobody unplugs it.
    pub fn is_good(self) -> bool {
        !matches!(self, Self::Dirty | Self::InUse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(buses: &[&str]) -> DiskFacts {
        DiskFacts {
            buses: buses.iter().map(ToString::to_string).collect(),
            ..DiskFacts::default()
        }
    }

    #[test]
    fn sticks_cards_and_usb_disks_are_unplugged_and_built_in_ones_are_not() {
        let stick = DiskFacts {
            removable: true,
            ..facts(&["block", "scsi", "scsi", "usb", "usb", "pci"])
        };
        assert_eq!(stick.medium(), Medium::Removable);
        let usb_disk = facts(&["block", "scsi", "usb", "pci"]);
        assert_eq!(usb_disk.medium(), Medium::Removable);
        let built_in = DiskFacts {
            usb: Some("fixed".into()),
            ..usb_disk
        };
        assert_eq!(built_in.medium(), Medium::Fixed);
        let card = |kind: &str| DiskFacts {
            card: Some(kind.into()),
            ..facts(&["block", "mmc", "platform"])
        };
        assert_eq!(
            (card("SD").medium(), card("MMC").medium()),
            (Medium::Removable, Medium::Fixed)
        );
        for disk in [
            facts(&["block", "nvme", "pci"]),
            facts(&["block", "virtio"]),
            facts(&[]),
        ] {
            assert_eq!(disk.medium(), Medium::Fixed);
        }
    }

    #[test]
    fn a_device_has_one_state() {
        assert_eq!(state(100, 28, 99.0, 128), DeviceState::Clean);
        assert_eq!(state(1000, 100, 99.0, 128), DeviceState::Waiting);
        assert_eq!(state(0, 1000, 9.9, 128), DeviceState::Writing);
        assert_eq!(state(0, 1000, 10.0, 128), DeviceState::Stalled);
    }

    #[test]
    fn writers_wait_above_the_middle_of_their_own_limits() {
        let limits = Limits::between(200, 100);
        assert_eq!(writers(1, (0, limits), None), WriterState::Held);
        assert_eq!(writers(0, (150, limits), None), WriterState::Free);
        assert_eq!(writers(0, (151, limits), None), WriterState::WouldWait);
        // A device with its own limits is judged by them alone.
        assert_eq!(
            writers(0, (151, limits), Some((Some(10), limits))),
            WriterState::Free
        );
        assert_eq!(
            writers(0, (0, limits), Some((Some(151), limits))),
            WriterState::WouldWait
        );
        assert_eq!(
            writers(0, (0, limits), Some((None, limits))),
            WriterState::Unknown
        );
        assert_eq!(writers(0, (9, Limits::default()), None), WriterState::Free);
    }

    #[test]
    fn only_a_clean_unused_removable_device_may_be_unplugged() {
        let stick = Condition {
            medium: Medium::Removable,
            backlog_bytes: Some(0),
            mounted: true,
            ..Condition::default()
        };
        assert_eq!(stick.verdict(), Verdict::SafeToUnplug);
        let dirty = Condition {
            backlog_bytes: Some(1),
            ..stick.clone()
        };
        assert_eq!(dirty.verdict(), Verdict::Dirty);
        let used = Condition {
            writers: vec![Writer {
                pid: 7,
                name: "cp".into(),
                path: "/mnt/f".into(),
            }],
            ..stick.clone()
        };
        assert_eq!(used.verdict(), Verdict::InUse);
        assert!(!used.verdict().is_good() && !dirty.verdict().is_good());
        let hidden = Condition {
            processes_hidden: 3,
            backlog_bytes: None,
            ..stick.clone()
        };
        assert_eq!(hidden.verdict(), Verdict::SafeAsFarAsSeen);
        // Nobody can have a file open on what is not mounted.
        let unmounted = Condition {
            mounted: false,
            ..hidden
        };
        assert_eq!(unmounted.verdict(), Verdict::SafeToUnplug);
        for (medium, words) in [
            (Medium::Fixed, ""),
            (Medium::Network, "flushed by the server"),
            (Medium::Memory, "in memory only"),
        ] {
            let other = Condition {
                medium,
                ..used.clone()
            };
            assert_eq!(other.verdict().words(), words);
        }
    }
}
