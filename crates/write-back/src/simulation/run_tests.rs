//! Tests of the simulation, and runs that it does not come across.

use super::*;

fn creating() -> NodeOpen {
    NodeOpen {
        access: Access::Write,
        create: Some(NewNode {
            directory: false,
            dos_attributes: None,
        }),
        ..NodeOpen::default()
    }
}

fn start(server: &FarServer, disk: &SimulatedDisk, process: &Arc<Process>) -> WriteBackStore {
    let mut space = LogSpace::new(Box::new(disk.clone()), KEY);
    space.part_bytes = 800;
    let options = WriteBackOptions {
        delay: Duration::ZERO,
        workers: 0,
        ..WriteBackOptions::default()
    };
    let far = Arc::new(server.store(Arc::clone(process)));
    WriteBackStore::in_space(far, space, options).expect("the store opens")
}

#[test]
fn nothing_acknowledged_is_lost_or_mixed_up_whatever_ends_the_process() {
    let mut all = Tally::default();
    for seed in 0..3000 {
        let tally = run(seed);
        all.crashes += tally.crashes;
        all.power_cuts += tally.power_cuts;
        all.conflicts += tally.conflicts;
        all.partial += tally.partial;
        all.refused += tally.refused;
    }
    assert!(all.crashes > 3000 && all.power_cuts > 1000, "{all:?}");
    assert!(
        all.conflicts > 100 && all.partial > 10 && all.refused > 100,
        "{all:?}"
    );
}
/// Linux says once that it could not write something, and forgets it: a journal that asked again
/// would take the second answer for the truth.
#[test]
fn a_flush_after_a_failed_sync_is_not_answered_before_the_far_server_has_everything() {
    let (path, how) = (RelPath::parse(b"a").expect("a path"), creating());
    // The failure is noticed by the flush, or by a round before it.
    for is_round_first in [false, true] {
        let server = FarServer::new(1);
        let process = Arc::new(Process::new(u64::MAX));
        let disk = SimulatedDisk::new(2, Arc::clone(&process));
        let store = start(&server, &disk, &process);
        let node = store.open(&path, &how).expect("the file opens").node;
        node.write_at(&[1; 1000], 0).expect("it is written");
        server.refuse(true);
        disk.fail_next_sync();
        if is_round_first {
            store.step();
        }
        for _ in 0..3 {
            assert!(node.sync().is_err(), "nobody has it ({is_round_first})");
        }
        server.refuse(false);
        node.sync().expect("the far server takes it");
        node.write_at(&[2; 1000], 1000).expect("it is written");
        node.sync().expect("it is flushed");
        drop((node, store));
        disk.cut_power();
        let next = Arc::new(Process::new(u64::MAX));
        let store = start(&server, &disk.for_process(Arc::clone(&next)), &next);
        while store.step() {}
        let wanted = [[1; 1000], [2; 1000]].concat();
        assert!(server.content(&path) == Some(wanted), "{is_round_first}");
        assert_eq!(server.paths().len(), 1, "{is_round_first}");
    }
}

#[test]
fn a_process_that_ends_while_a_log_is_removed_whose_end_was_not_noted_cuts_no_far_file() {
    let (path, how) = (RelPath::parse(b"a").expect("a path"), creating());
    for (room, end) in (0..5).flat_map(|room| (0..40).map(move |end| (room, end))) {
        let server = FarServer::new(1);
        let process = Arc::new(Process::new(u64::MAX));
        let disk = SimulatedDisk::new(2, Arc::clone(&process));
        let store = start(&server, &disk, &process);
        let node = store.open(&path, &how).expect("the file opens").node;
        for at in 0..5 {
            node.write_at(&[1; 200], at * 200).expect("it is written");
        }
        drop(node);
        disk.fill_after(room);
        process.end_after(end);
        store.step();
        drop(store);
        disk.set_full(false);
        let next = Arc::new(Process::new(u64::MAX));
        let store = start(&server, &disk.for_process(Arc::clone(&next)), &next);
        while store.step() {}
        let content = server.content(&path).unwrap_or_default();
        let is_whole = content == [1; 1000];
        assert!(
            is_whole || server.paths().len() > 1,
            "{room}, {end}: {} bytes",
            content.len()
        );
    }
}
