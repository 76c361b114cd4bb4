//! Which part of an ended journal goes when.

use ropeway_vfs::{FileId, RelPath};

use super::*;
use crate::record::Version;
use crate::simulation::Process;
use crate::simulation::disk::SimulatedDisk;

fn snapshot(backlog: &Backlog) -> Snapshot {
    let unknown = Timestamp(0);
    let base = Version {
        id: FileId { volume: 1, index: 2 },
        size: 0,
        created: unknown,
        modified: unknown,
        changed: unknown,
    };
    snapshot_of(backlog, &RelPath::parse(b"f").unwrap(), base, None)
}

/// Makes a log of three parts on a disk.
fn three_parts(disk: &SimulatedDisk) -> FileLog {
    let mut space = LogSpace::new(Box::new(disk.clone()), [7; 32]);
    space.part_bytes = 400;
    let mut backlog = Backlog::new(0);
    let mut log = FileLog::create(&Arc::new(space), 9, snapshot(&backlog)).unwrap();
    while log.parts.len() < 3 {
        let (offset, at) = (backlog.size, Timestamp(1));
        let bytes = &[1; 100];
        let place = log
            .append(&Record::Data { offset, at, bytes }, || snapshot(&backlog))
            .unwrap();
        backlog.write(offset, 100, at, place);
        log.sync(backlog.next).unwrap();
    }
    log
}

fn names(disk: &SimulatedDisk) -> Vec<String> {
    let listed = disk.list().unwrap();
    listed.into_iter().map(|(name, _)| name).collect()
}

/// An older part alone would be taken for a backlog after a power cut.
#[test]
fn the_newest_part_of_an_ended_log_goes_after_those_that_a_reader_holds() {
    for released in [None, Some(1), Some(2)] {
        for is_synced in [true, false] {
            let disk = SimulatedDisk::new(1, Arc::new(Process::new(u64::MAX)));
            let mut log = three_parts(&disk);
            let reader = Arc::clone(&log.parts[0]);
            log.release(released);
            log.finish();
            assert_eq!(names(&disk), [name_of(9, 0), name_of(9, 2)], "{released:?}");
            if !is_synced {
                disk.fail_names();
            }
            drop(reader);
            // Without a synced folder the newest part must say on that the older ones are not needed.
            let left = if is_synced { vec![] } else { vec![name_of(9, 2)] };
            assert_eq!(names(&disk), left, "{released:?}");
        }
    }
}

#[test]
fn the_newest_part_of_an_ended_log_stays_if_the_removal_of_the_others_cannot_be_synced() {
    let disk = SimulatedDisk::new(1, Arc::new(Process::new(u64::MAX)));
    let log = three_parts(&disk);
    disk.fail_names();
    log.finish();
    assert_eq!(names(&disk), [name_of(9, 2)]);
}

#[test]
fn a_part_that_cannot_be_read_is_kept_and_one_that_was_never_finished_is_not() {
    let disk = SimulatedDisk::new(1, Arc::new(Process::new(u64::MAX)));
    let lengths = |disk: &SimulatedDisk| {
        let listed = disk.list().unwrap();
        let part = |(name, length): (String, u64)| Some((parse_name(&name)?.1, length));
        listed.into_iter().filter_map(part).collect::<Vec<_>>()
    };
    drop(three_parts(&disk));
    let other = Arc::new(LogSpace::new(Box::new(disk.clone()), [8; 32]));
    assert!(replay(&other, 9, &lengths(&disk)).unwrap().is_none());
    let kept = [0, 1, 2].map(|part| name_of(9, part) + ".damaged");
    assert_eq!(names(&disk), kept);

    let disk = SimulatedDisk::new(1, Arc::new(Process::new(u64::MAX)));
    let space = Arc::new(LogSpace::new(Box::new(disk.clone()), [7; 32]));
    drop(FileLog::create(&space, 9, snapshot(&Backlog::new(0))).unwrap());
    let made = lengths(&disk)[0].1;
    for length in (0..made).rev() {
        disk.truncate(&name_of(9, 0), length).unwrap();
        let zeros = vec![0; 5000];
        disk.write(&name_of(9, 0), length, &zeros).unwrap();
        for length in [length, length + 5000] {
            let read = Replay::default().part(&space, &name_of(9, 0), 9, 0, length);
            assert!(
                matches!(read.unwrap(), Read::Unfinished),
                "{length} of {made} bytes"
            );
        }
    }
}
