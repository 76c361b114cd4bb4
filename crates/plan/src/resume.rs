//! What may be trusted of a copy that was cut off.
//!
//! The page cache outlives a killed process, not a power cut. So in the same boot everything that the journal recorded
//! as written is there; after another boot only what had been made durable, and a file that merely looks complete may be
//! full of zeroes: size and times are kept by the file system's journal, data is not (write-back of delayed allocations
//! comes later). Such a file is trusted only when its attributes last changed before a moment for which the job had
//! recorded that everything older is durable.

use ropeway_vfs::{Metadata, Timestamp};

/// What the journal of an unfinished job says of one file, and what is found on the target.
#[derive(Clone, Copy, Debug)]
pub struct JournalFacts<'a> {
    /// The machine has not been booted anew since the journal was written (boot ids are equal).
    pub same_boot: bool,
    /// Every byte below was written; 0 if nothing is recorded.
    pub written_upto: u64,
    /// Every byte below was durable; 0 if nothing is recorded.
    pub durable_upto: u64,
    /// Everything on the target that last changed before this moment was durable (taken before the sync began).
    pub durable_before: Option<Timestamp>,
    /// The file as the journal's offsets mean it: under its temporary name or, when that is gone, its final one.
    /// `None`: there is none.
    pub target: Option<&'a Metadata>,
    /// The source as it is now.
    pub source: &'a Metadata,
    /// The source's size, time and identity are those that the journal recorded when the copy of this file began (true
    /// if nothing is recorded for this file).
    pub source_unchanged: bool,
    /// The coarser granularity of modification times of both ends, in nanoseconds.
    pub time_granularity_ns: u64,
}

/// How much of the target's file to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// All of it: it is done.
    Whole,
    /// The bytes below this offset: go on from there.
    Prefix(u64),
    /// None of it: begin anew.
    Nothing,
}

/// Judges one file of an unfinished job.
pub fn trust(facts: &JournalFacts<'_>) -> Trust {
    let Some(target) = facts.target else {
        return Trust::Nothing;
    };
    if !facts.source_unchanged || target.kind != facts.source.kind {
        return Trust::Nothing;
    }
    if looks_complete(facts, target) && survived(facts, target) {
        return Trust::Whole;
    }
    let upto = if facts.same_boot {
        facts.written_upto.max(facts.durable_upto)
    } else {
        facts.durable_upto
    };
    // Somebody may have cut the file.
    match upto.min(target.size).min(facts.source.size) {
        0 => Trust::Nothing,
        upto => Trust::Prefix(upto),
    }
}

/// The modification time is set last, so a file with the source's size and time was written to its end.
fn looks_complete(facts: &JournalFacts<'_>, target: &Metadata) -> bool {
    target.size == facts.source.size
        && target
            .modified
            .equal_within(facts.source.modified, facts.time_granularity_ns)
}

/// What was written is still there. Without a change time (FAT has none) nothing can be told after another boot.
fn survived(facts: &JournalFacts<'_>, target: &Metadata) -> bool {
    facts.same_boot
        || facts.durable_upto >= facts.source.size && facts.source.size > 0
        || matches!((target.changed, facts.durable_before), (Some(changed), Some(before)) if changed < before)
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
            durable_before: Some(Timestamp(100)),
            target: Some(target),
            source,
            source_unchanged: true,
            time_granularity_ns: 1,
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
        let early = node(SIZE, MTIME, 99);
        let late = node(SIZE, MTIME, 100);
        assert_eq!(trust(&facts(true, &source, &late)), Trust::Whole);
        assert_eq!(trust(&facts(false, &source, &early)), Trust::Whole);
        assert_eq!(trust(&facts(false, &source, &late)), Trust::Prefix(400));
        let unrecorded = JournalFacts {
            written_upto: 0,
            durable_upto: 0,
            durable_before: None,
            ..facts(false, &source, &early)
        };
        assert_eq!(trust(&unrecorded), Trust::Nothing);
        let fat = Metadata::bare(Kind::File, SIZE, MTIME);
        assert_eq!(trust(&facts(false, &source, &fat)), Trust::Prefix(400));
        let whole = JournalFacts {
            durable_upto: SIZE,
            ..facts(false, &source, &fat)
        };
        assert_eq!(trust(&whole), Trust::Whole);
    }

    proptest! {
        #[test]
        fn another_boot_never_trusts_more_than_what_was_durable(
            same_boot: bool, written in 0..2_000_u64, durable in 0..2_000_u64, target_size in 0..2_000_u64,
            changed in 0..200_i128, before in proptest::option::of(0..200_i128), same_time: bool, unchanged: bool,
        ) {
            let source = node(SIZE, MTIME, 0);
            let modified = if same_time { MTIME } else { Timestamp(1) };
            let target = node(target_size, modified, changed);
            let facts = JournalFacts {
                same_boot,
                written_upto: written,
                durable_upto: durable,
                durable_before: before.map(Timestamp),
                target: Some(&target),
                source: &source,
                source_unchanged: unchanged,
                time_granularity_ns: 1,
            };
            let told = if same_boot { written.max(durable) } else { durable };
            match trust(&facts) {
                Trust::Nothing => {}
                Trust::Prefix(upto) => {
                    prop_assert!(unchanged && upto > 0 && upto <= told.min(target_size).min(SIZE));
                }
                Trust::Whole => {
                    prop_assert!(unchanged && same_time && target_size == SIZE);
                    prop_assert!(same_boot || durable >= SIZE || before.is_some_and(|before| changed < before));
                }
            }
        }
    }
}
