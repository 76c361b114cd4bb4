//! Decides when data counts as done, and when a finished node gets its final name.
//!
//! [`DurabilityPolicy`] answers both questions from the wanted [`Durability`] and from what the
//! target is. [`DurabilityTracker`] follows what was written and is not yet on the device.
//! [`ClockWatch`] notices when the wall clock was set back, after which change times prove nothing.
//!
//! Invariants:
//! * A node that users see gets its final name only when its data is durable, unless the user asked
//!   for no durability. So a power cut leaves the old or the new content under a name, never a
//!   mixture.
//! * On a server each file is flushed through the open that wrote it. So no name waits for a
//!   checkpoint there.

mod clock_watch;
mod tracker;

use crate::placement::Spot;

pub use clock_watch::ClockWatch;
pub use tracker::{DurabilityTracker, FileTry, Flush, FlushedFile, Reached};

/// When a job counts data as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When the target has accepted it (page cache, memory of the server).
    None,
    /// The job ends when everything is durable; write-back starts early.
    #[default]
    End,
    /// Each file is durable before it appears under its name.
    File,
}

/// When a complete node gets its final name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// The node has it already.
    Present,
    /// As soon as the node is complete.
    Now {
        /// Whether its data must be flushed before.
        flush_first: bool,
    },
    /// After the flush of the next checkpoint.
    AtCheckpoint,
}

/// What a job does for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurabilityPolicy {
    durability: Durability,
    target_is_server: bool,
    inplace: bool,
    names_wait: bool,
}

impl DurabilityPolicy {
    /// Makes the policy of a job. `target_is_server` is whether the target flushes a file through its
    /// open handle, in the round trip that closes it. `inplace` is `--inplace`.
    pub fn new(durability: Durability, target_is_server: bool, inplace: bool) -> Self {
        Self {
            durability,
            target_is_server,
            inplace,
            names_wait: durability == Durability::End && !target_is_server,
        }
    }

    /// Breaks the rule that names wait for a checkpoint. The simulator must notice it.
    #[must_use]
    pub fn with_early_names(mut self) -> Self {
        self.names_wait = false;
        self
    }

    /// Whether data is made durable before the job ends.
    pub fn wants_durable(self) -> bool {
        self.durability != Durability::None
    }

    /// Whether each file is made durable as it is finished.
    pub fn flushes_each(self) -> bool {
        match self.durability {
            Durability::None => false,
            Durability::File => true,
            Durability::End => self.target_is_server,
        }
    }

    /// Whether nodes get their final names only when they are durable. A file of this machine that is
    /// overwritten in place has its name all the time; on a server it is flushed before it looks
    /// complete.
    pub fn names_are_durable(self) -> bool {
        self.wants_durable() && (!self.inplace || self.target_is_server)
    }

    /// Whether finished nodes wait under temporary names for the next checkpoint.
    pub fn names_wait(self) -> bool {
        self.names_wait
    }

    /// Returns when a complete file gets its final name. `needed_now` is whether something depends on
    /// the name at once: other names of the file that are linked to it, or a folder that makes way.
    pub fn naming(self, spot: Spot, needed_now: bool) -> Naming {
        if spot.has_final_name() {
            Naming::Present
        } else if self.names_wait && !needed_now {
            Naming::AtCheckpoint
        } else {
            Naming::Now {
                flush_first: needed_now && self.wants_durable() && !self.flushes_each(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_does() {
        use Durability::{End, File, None};
        // (durability, server, in place) -> (wants, each file, durable names, names wait)
        let table = [
            ((None, false, false), (false, false, false, false)),
            ((None, true, false), (false, false, false, false)),
            ((End, false, false), (true, false, true, true)),
            ((End, false, true), (true, false, false, true)),
            ((End, true, false), (true, true, true, false)),
            ((End, true, true), (true, true, true, false)),
            ((File, false, false), (true, true, true, false)),
            ((File, false, true), (true, true, false, false)),
            ((File, true, true), (true, true, true, false)),
        ];
        for ((durability, server, inplace), expected) in table {
            let policy = DurabilityPolicy::new(durability, server, inplace);
            let found = (
                policy.wants_durable(),
                policy.flushes_each(),
                policy.names_are_durable(),
                policy.names_wait(),
            );
            assert_eq!(
                found, expected,
                "{durability:?} server={server} inplace={inplace}"
            );
        }
    }

    #[test]
    fn when_a_file_gets_its_name() {
        let local = |durability| DurabilityPolicy::new(durability, false, false);
        let (now, flushed) = (
            Naming::Now { flush_first: false },
            Naming::Now { flush_first: true },
        );
        let table = [
            (
                local(Durability::End),
                Spot::Temporary,
                false,
                Naming::AtCheckpoint,
            ),
            (local(Durability::End), Spot::Temporary, true, flushed),
            (local(Durability::File), Spot::Temporary, true, now),
            (local(Durability::None), Spot::Temporary, true, now),
            (local(Durability::None), Spot::Temporary, false, now),
            (local(Durability::End), Spot::Final, true, Naming::Present),
            (local(Durability::End), Spot::InPlace, false, Naming::Present),
            (
                DurabilityPolicy::new(Durability::End, true, false),
                Spot::Temporary,
                false,
                now,
            ),
            (
                local(Durability::End).with_early_names(),
                Spot::Temporary,
                false,
                now,
            ),
        ];
        for (policy, spot, needed_now, expected) in table {
            let found = policy.naming(spot, needed_now);
            assert_eq!(found, expected, "{policy:?} {spot:?} needed_now={needed_now}");
        }
    }
}
