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
    space.part_bytes = 200;
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
