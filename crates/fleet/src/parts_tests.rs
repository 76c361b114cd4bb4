use proptest::prelude::*;
use ropeway_vfs::{Kind, Metadata, Timestamp};

use super::*;

fn file(size: u64) -> LargeFile {
    LargeFile {
        round: 0,
        path: RelPath::parse(b"d/f").unwrap(),
        size,
        modified: 7,
        changed: Some(9),
    }
}

fn content(size: u64) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

fn value(content: &[u8], range: &Range<u64>) -> ChainingValue {
    use blake3::hazmat::HasherExt as _;
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(range.start);
    hasher.update(&content[range.start as usize..range.end as usize]);
    hasher.finalize_non_root()
}

fn records(file: &LargeFile, parts: &[Part]) -> Vec<Record> {
    let content = content(file.size);
    let id = file.id();
    let mut records: Vec<Record> = parts
        .iter()
        .map(|part| {
            let start = part.range.start;
            let length = part.range.end - start;
            let mut record = Record::new(file.path.clone(), length, 7, State::Part { file: id, start });
            record.hash = Some(value(&content, &part.range));
            record
        })
        .collect();
    let state = State::Parted {
        file: id,
        changed: file.changed,
    };
    records.push(Record::new(file.path.clone(), file.size, 7, state));
    records
}

fn joined(file: &LargeFile, parts: &[Part], epoch: u32) -> Joining {
    let mut joins = Joins::new(0, 1);
    for record in records(file, parts) {
        joins.add(0, Epoch(epoch), record);
    }
    let mut all: Vec<Joining> = joins.finish().collect();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

proptest! {
    /// Whatever is cut off for idle workers, at whatever place, the hash is that of the whole content.
    #[test]
    fn the_hash_of_a_file_follows_from_its_parts(
        size in 1_025_u64..200_000,
        power in 10_u32..16,
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..40_000), 0..20),
    ) {
        let (file, limits) = (file(size), PartLimits { length: 1 << power, ..PartLimits::default() });
        let mut parts: Vec<Part> = file.parts(limits).collect();
        prop_assume!(parts.len() > 1);
        for (index, taken) in cuts {
            let at = index.index(parts.len());
            let rest = parts[at].split(taken, 1);
            parts.extend(rest);
        }
        let joining = joined(&file, &parts, 1);
        prop_assert_eq!(joining.hash(), Some(*blake3::hash(&content(size)).as_bytes()));
        prop_assert!(!joining.may_be_open);
        for part in &parts {
            let task = part.clone().task();
            prop_assert_eq!(Task::decode(&task.encode()), Some(task));
        }
        // Without one of its parts it is no file.
        let gone = parts.len() / 2;
        parts.remove(gone);
        prop_assert_eq!(joined(&file, &parts, 1).hash(), None);
    }
}

#[test]
fn a_part_that_was_claimed_again_may_be_open_at_a_sleeping_worker() {
    let file = file(5_000);
    let limits = PartLimits {
        length: 1_024,
        ..PartLimits::default()
    };
    let parts: Vec<Part> = file.parts(limits).collect();
    assert!(joined(&file, &parts, 2).may_be_open);
}

#[test]
fn a_part_is_cut_only_behind_what_is_read_and_goes_on_before_what_was_given_away() {
    let file = file(1 << 20);
    let whole = Part {
        file: file.clone(),
        range: 0..1 << 20,
    };
    let mut part = whole.clone();
    assert_eq!(part.split((1 << 19) + 1, 1), None, "the second half is begun");
    assert_eq!(part.split(0, (1 << 19) + 1), None, "the halves are too small");
    let half = part.split(1 << 19, 1).unwrap();
    assert_eq!(
        (part.range.clone(), half.range.clone()),
        (0..1 << 19, 1 << 19..1 << 20)
    );
    let quarter = part.split(0, 1).unwrap();
    assert_eq!(quarter.range, 1 << 18..1 << 19);
    let given = [half.task(), quarter.task()];
    assert_eq!(whole.without(&given).range, 0..1 << 18);
}

#[test]
fn files_of_any_size_have_at_most_1024_parts() {
    for size in [1, 1 << 30, (1 << 30) + 1, 20 << 30, (5 << 40) + 3, u64::MAX >> 1] {
        let file = file(size);
        let parts: Vec<Part> = file.parts(PartLimits::default()).collect();
        assert!(parts.len() <= 1_024, "{size}: {}", parts.len());
        assert_eq!(parts[0].range.start, 0);
        assert!(parts.windows(2).all(|two| two[0].range.end == two[1].range.start));
        assert_eq!(parts[parts.len() - 1].range.end, size);
    }
}

#[test]
fn another_version_is_not_the_file_that_was_listed() {
    let mut metadata = Metadata::bare(Kind::File, 5_000, Timestamp(7));
    let file = file(5_000);
    assert!(file.is(&metadata), "a time that is not known is no difference");
    metadata.changed = Some(Timestamp(9));
    assert!(file.is(&metadata));
    for change in [
        |found: &mut Metadata| found.size = 1,
        |found: &mut Metadata| found.modified = Timestamp(8),
        |found: &mut Metadata| found.changed = Some(Timestamp(10)),
        |found: &mut Metadata| found.kind = Kind::Symlink,
    ] {
        let mut other = metadata.clone();
        change(&mut other);
        assert!(!file.is(&other), "{other:?}");
    }
}

#[test]
fn a_part_that_is_no_subtree_is_refused() {
    for (start, end) in [(0, 0), (5, 9), (1_024, 4_096), (0, 8_193)] {
        let mut task = Part {
            file: file(8_192),
            range: 0..8_192,
        };
        task.range = start..end;
        let task = task.task();
        assert_eq!(Task::decode(&task.encode()), None, "{start}..{end}");
    }
}
