//! Decides what may be trusted of an interrupted copy.
//!
//! The page cache survives a killed process but not a power cut. So within the same boot,
//! everything that the journal recorded as written is there. After another boot, or after a flush
//! that failed, only what had been made durable is there. A file that merely looks complete may
//! then be full of zeroes: the file system's journal keeps size and times but not data, since
//! write-back of delayed allocations comes later. The journal of the job decides whether such a
//! file survived.
//!
//! A prefix of a file is useful only if it comes from the same [`Version`] of the source.

use ropeway_vfs::{Metadata, Timestamp};
use serde::{Deserialize, Serialize};

/// Identifies one version of a source file.
///
/// Size and modification time are not enough: `cp -p` over a file keeps both, and a modification
/// time can be set back. No program can choose the change time. The volume is left out, because
/// many volumes have another number after each boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Logical size.
    pub size: u64,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of content or attributes, where the tree knows it.
    pub changed: Option<Timestamp>,
    /// Number of the node on its volume, if that is stable.
    pub index: Option<u64>,
}

impl Version {
    /// Returns the version that `metadata` describes. `stable_ids` is whether the tree keeps the
    /// identities of its nodes.
    pub fn of(metadata: &Metadata, stable_ids: bool) -> Self {
        Self {
            size: metadata.size,
            modified: metadata.modified,
            changed: metadata.changed,
            index: metadata.id.filter(|_| stable_ids).map(|id| id.index),
        }
    }

    /// Whether both are one version, as far as both ends know.
    pub fn is_same(&self, other: &Self) -> bool {
        self.differs_at_most_in_change_time(other) && agree(self.changed, other.changed)
    }

    /// Whether nothing but the change time may distinguish them: the content may be the same.
    pub fn differs_at_most_in_change_time(&self, other: &Self) -> bool {
        (self.size, self.modified) == (other.size, other.modified) && agree(self.index, other.index)
    }
}

/// Whether two values are equal, or one of them is unknown.
fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// What the journal of an unfinished job records of one file, and what is found on the target.
#[derive(Clone, Copy, Debug)]
pub struct JournalFacts<'a> {
    /// Whether the machine has not been rebooted since the journal was written (boot ids are
    /// equal), and no flush failed.
    pub same_boot: bool,
    /// Every byte below this offset was written; 0 if nothing is recorded.
    pub written_upto: u64,
    /// Every byte below this offset was durable; 0 if nothing is recorded.
    pub durable_upto: u64,
    /// Whether everything written to the target's file is known to be there, in the page cache or
    /// durable.
    pub survived: bool,
    /// The file that the journal's offsets refer to: under its temporary name or, if that is gone,
    /// its final one. `None` if there is no such file.
    pub target: Option<&'a Metadata>,
    /// The source as it is now.
    pub source: &'a Metadata,
    /// Whether the source's size, time and identity are those that the journal recorded when the
    /// copy of this file began (true if nothing is recorded for this file).
    pub source_unchanged: bool,
    /// The coarser granularity of both ends' modification times, in nanoseconds.
    pub time_granularity_ns: u64,
    /// The target's modification time may be that of a write, because the source changed about then.
    pub may_be_unfinished: bool,
}

/// Identity of a file or folder that a job made on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeNode {
    /// Number on its volume, where that is stable.
    index: Option<u64>,
    created: Option<Timestamp>,
    /// The owner that it was made with.
    owner: Option<u32>,
}

impl MadeNode {
    /// Returns the identity of a node that was just made. `stable_ids` is whether the tree keeps the
    /// identities of its nodes.
    pub fn of(metadata: &Metadata, stable_ids: bool) -> Self {
        Self {
            index: metadata.id.filter(|_| stable_ids).map(|id| id.index),
            created: metadata.created,
            owner: metadata.owner.map(|owner| owner.user),
        }
    }

    /// Whether the number of the node identifies it.
    pub fn has_number(&self) -> bool {
        self.index.is_some()
    }

    /// Whether `found` is the node that was made. Its owner and its creation time may be those of
    /// `source` by now.
    pub fn is(&self, found: &Metadata, source: &Metadata) -> bool {
        let index = found.id.map(|id| id.index);
        let owner = found.owner.map(|owner| owner.user);
        let given = source.owner.map(|owner| owner.user);
        (self.index.is_none() || self.index == index)
            && (found.created == self.created || found.created == source.created)
            && (owner == self.owner || owner == given)
    }
}

/// Where the copy of a file's data starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first byte.
    Anew,
    /// The bytes below are there.
    At {
        /// Every byte below was written.
        written: u64,
        /// Every byte below is durable.
        durable: u64,
    },
    /// Nowhere: the whole file is there, under its temporary name.
    Complete,
}

impl Start {
    /// Returns where the next try of a file starts, after an earlier one in this run wrote `written`
    /// bytes, of which `durable` are durable. `may_forget` is whether the target may come back without
    /// what it had not flushed, as a server does. `None`: at the first byte, in a new file.
    pub fn after_try(written: u64, durable: u64, may_forget: bool) -> Option<Self> {
        let (written, durable) = match may_forget {
            true => (durable, durable),
            false => (written, 0),
        };
        (written > 0).then_some(Self::At { written, durable })
    }

    /// Returns where a file starts that an earlier run left. `has_final_name` is whether it stands
    /// under its final name, `durable` how much of it the journal calls durable, `size` the source's
    /// size. `None`: at the first byte, in a new file.
    pub fn after_run(trust: Trust, has_final_name: bool, durable: u64, size: u64) -> Option<Self> {
        match trust {
            Trust::Nothing => None,
            Trust::Prefix(upto) => Some(Self::At {
                written: upto,
                durable: durable.min(upto),
            }),
            Trust::Whole if !has_final_name => Some(Self::Complete),
            // What has its name already and was not taken for equal lacks its attributes at least: its
            // data may be complete, the file is not.
            Trust::Whole if durable >= size => Some(Self::At {
                written: size,
                durable: size,
            }),
            Trust::Whole => None,
        }
    }

    /// Whether something counts as written that may be in the page cache only.
    pub fn relies_on_cache(self) -> bool {
        !matches!(self, Self::At { written, durable } if written == durable)
    }
}

/// How much of the target's file to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// All of it: the file is done.
    Whole,
    /// The bytes below this offset: continue from there.
    Prefix(u64),
    /// None of it: start again.
    Nothing,
}

/// Judges one file of an unfinished job.
pub fn trust(facts: &JournalFacts<'_>) -> Trust {
    let Some(target) = facts.target else {
        return Trust::Nothing;
    };
    // Without a time, nothing shows that this is the version that was begun.
    let is_known = facts.source.modified.is_known();
    if !facts.source_unchanged || !is_known || target.kind != facts.source.kind {
        return Trust::Nothing;
    }
    if looks_complete(facts, target) && survived(facts) {
        return Trust::Whole;
    }
    let upto = if facts.same_boot {
        facts.written_upto.max(facts.durable_upto)
    } else {
        facts.durable_upto
    };
    // The file may have been truncated since.
    match upto.min(target.size).min(facts.source.size) {
        0 => Trust::Nothing,
        upto => Trust::Prefix(upto),
    }
}

/// Whether the file was written to its end: the modification time is set last, so a complete file
/// has the source's size and time.
fn looks_complete(facts: &JournalFacts<'_>, target: &Metadata) -> bool {
    target.size == facts.source.size
        && !facts.may_be_unfinished
        && target
            .modified
            .equal_within(facts.source.modified, facts.time_granularity_ns)
}

/// Whether everything written is still there.
fn survived(facts: &JournalFacts<'_>) -> bool {
    facts.survived || facts.durable_upto >= facts.source.size && facts.source.size > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropeway_vfs::Kind;

    const SIZE: u64 = 1000;
    const MTIME: Timestamp = Timestamp(5_000_000_000);

    fn node(size: u64, modified: Timestamp, changed: i128) -> Metadata {
        Metadata {
            changed: Some(Timestamp(changed)),
            ..Metadata::bare(Kind::File, size, modified)
        }
    }

    fn facts<'a>(same_boot: bool, source: &'a Metadata, target: &'a Metadata) -> JournalFacts<'a> {
        JournalFacts {
            same_boot,
            written_upto: 600,
            durable_upto: 400,
            survived: same_boot,
            target: Some(target),
            source,
            source_unchanged: true,
            time_granularity_ns: 1,
            may_be_unfinished: false,
        }
    }

    #[test]
    fn partial_files() {
        let source = node(SIZE, MTIME, 0);
        let partial = node(700, Timestamp(9), 200);
        assert_eq!(trust(&facts(true, &source, &partial)), Trust::Prefix(600));
        assert_eq!(trust(&facts(false, &source, &partial)), Trust::Prefix(400));
        let cut = node(300, Timestamp(9), 200);
        assert_eq!(trust(&facts(true, &source, &cut)), Trust::Prefix(300));
        let changed = JournalFacts {
            source_unchanged: false,
            ..facts(true, &source, &partial)
        };
        assert_eq!(trust(&changed), Trust::Nothing);
        let gone = JournalFacts {
            target: None,
            ..facts(true, &source, &partial)
        };
        assert_eq!(trust(&gone), Trust::Nothing);
    }

    #[test]
    fn files_that_look_complete() {
        let source = node(SIZE, MTIME, 0);
        let found = node(SIZE, MTIME, 99);
        assert_eq!(trust(&facts(true, &source, &found)), Trust::Whole);
        assert_eq!(trust(&facts(false, &source, &found)), Trust::Prefix(400));
        let unrecorded = JournalFacts {
            written_upto: 0,
            durable_upto: 0,
            ..facts(false, &source, &found)
        };
        assert_eq!(trust(&unrecorded), Trust::Nothing);
        let whole = JournalFacts {
            durable_upto: SIZE,
            ..facts(false, &source, &found)
        };
        assert_eq!(trust(&whole), Trust::Whole);
    }

    #[test]
    fn versions_differ_in_what_both_ends_know() {
        let version = |changed, index| Version {
            size: SIZE,
            modified: MTIME,
            changed,
            index,
        };
        let first = version(Some(Timestamp(1)), Some(7));
        assert!(first.is_same(&first) && first.is_same(&version(None, None)));
        let touched = version(Some(Timestamp(2)), Some(7));
        assert!(!first.is_same(&touched) && first.differs_at_most_in_change_time(&touched));
        let replaced = version(Some(Timestamp(1)), Some(8));
        assert!(!first.is_same(&replaced) && !first.differs_at_most_in_change_time(&replaced));
        let longer = Version {
            size: SIZE + 1,
            ..first
        };
        assert!(!first.is_same(&longer) && !first.differs_at_most_in_change_time(&longer));
    }

    #[test]
    fn where_a_try_starts() {
        let at = |written, durable| Some(Start::At { written, durable });
        // (written, durable, may forget)
        let table = [
            ((600, 400, false), at(600, 0)),
            ((600, 400, true), at(400, 400)),
            ((600, 0, true), None),
            ((0, 0, false), None),
        ];
        for ((written, durable, may_forget), expected) in table {
            assert_eq!(Start::after_try(written, durable, may_forget), expected);
        }
    }

    #[test]
    fn where_a_run_starts() {
        let at = |written, durable| Some(Start::At { written, durable });
        // (trust, has its final name, durable)
        let table = [
            ((Trust::Nothing, false, SIZE), None),
            ((Trust::Prefix(600), false, 400), at(600, 400)),
            ((Trust::Prefix(300), true, 400), at(300, 300)),
            ((Trust::Whole, false, 0), Some(Start::Complete)),
            ((Trust::Whole, true, SIZE), at(SIZE, SIZE)),
            ((Trust::Whole, true, SIZE - 1), None),
        ];
        for ((trust, has_final_name, durable), expected) in table {
            assert_eq!(Start::after_run(trust, has_final_name, durable, SIZE), expected);
        }
        assert!(Start::Complete.relies_on_cache() && Start::Anew.relies_on_cache());
        assert!(at(600, 400).unwrap().relies_on_cache());
        assert!(!at(400, 400).unwrap().relies_on_cache());
    }

    #[test]
    fn a_made_node_is_recognised_by_its_identity() {
        use ropeway_vfs::FileId;
        let found = |index, created: Option<i128>| Metadata {
            id: Some(FileId { volume: 1, index }),
            created: created.map(Timestamp),
            ..node(SIZE, MTIME, 0)
        };
        let source = found(99, Some(5));
        let made = MadeNode::of(&found(7, Some(2)), true);
        assert!(made.is(&found(7, Some(2)), &source));
        assert!(
            made.is(&found(7, Some(5)), &source),
            "it has the source's time by now"
        );
        assert!(!made.is(&found(7, Some(3)), &source));
        assert!(!made.is(&found(8, Some(2)), &source), "another file");
        let unstable = MadeNode::of(&found(7, Some(2)), false);
        assert!(
            unstable.is(&found(8, Some(2)), &source),
            "numbers mean nothing there"
        );
    }

    proptest! {
        #[test]
        fn another_boot_never_trusts_more_than_what_was_durable(
            same_boot: bool, written in 0..2_000_u64, durable in 0..2_000_u64, target_size in 0..2_000_u64,
            survived: bool, same_time: bool, unchanged: bool,
        ) {
            let source = node(SIZE, MTIME, 0);
            let modified = if same_time { MTIME } else { Timestamp(1) };
            let target = node(target_size, modified, 0);
            let facts = JournalFacts {
                same_boot,
                written_upto: written,
                durable_upto: durable,
                survived,
                target: Some(&target),
                source: &source,
                source_unchanged: unchanged,
                time_granularity_ns: 1,
                may_be_unfinished: false,
            };
            let told = if same_boot { written.max(durable) } else { durable };
            match trust(&facts) {
                Trust::Nothing => {}
                Trust::Prefix(upto) => {
                    prop_assert!(unchanged && upto > 0 && upto <= told.min(target_size).min(SIZE));
                }
                Trust::Whole => {
                    prop_assert!(unchanged && same_time && target_size == SIZE);
                    prop_assert!(survived || durable >= SIZE);
                }
            }
        }
    }
}
