//! Others change, replace or remove the far file in the middle of a round.

use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::RelPath;
use ropeway_vfs::store::{Access, NewNode, Node, NodeOpen, Store as _};

use super::Process;
use super::disk::SimulatedDisk;
use super::far::{FarServer, OthersChange};
use crate::log::LogSpace;
use crate::{WriteBackOptions, WriteBackStore};

const THEIRS: &[u8] = b"what somebody else has written";

fn path(name: &str) -> RelPath {
    RelPath::parse(name.as_bytes()).expect("a path")
}

fn start(server: &FarServer) -> WriteBackStore {
    let process = Arc::new(Process::new(u64::MAX));
    start_on(server, SimulatedDisk::new(2, Arc::clone(&process)), process)
}

fn start_on(server: &FarServer, disk: SimulatedDisk, process: Arc<Process>) -> WriteBackStore {
    let options = WriteBackOptions {
        delay: Duration::ZERO,
        workers: 0,
        ..WriteBackOptions::default()
    };
    let space = LogSpace::new(Box::new(disk), [7; 32]);
    let far = Arc::new(server.store(process));
    WriteBackStore::in_space(far, space, options).expect("the store opens")
}

/// Writes a file in small pieces.
fn written(store: &WriteBackStore, bytes: &[u8]) -> Arc<dyn Node> {
    let how = NodeOpen {
        access: Access::Write,
        create: Some(NewNode {
            directory: false,
            dos_attributes: None,
        }),
        ..NodeOpen::default()
    };
    let node = store.open(&path("f"), &how).expect("the file opens").node;
    for (at, bytes) in bytes.chunks(100).enumerate() {
        node.write_at(bytes, at as u64 * 100).expect("it is written");
    }
    node
}

/// Runs the change before each of the requests that bring a backlog to the far file. Ours must be saved
/// whole beside it, since the far server did not have all of it by then.
fn ours_is_kept(has_leases: bool, others: &OthersChange) {
    let (mut count, ours) = (0, (0..1000).map(|at| at as u8 | 1).collect::<Vec<u8>>());
    for requests in 0.. {
        let server = FarServer::new(1);
        if has_leases {
            server.grant_leases();
        }
        let store = start(&server);
        let node = written(&store, &ours);
        node.sync().expect("it is flushed");
        drop(node);
        server.others_change_after(requests, others.clone());
        while store.step() {}
        if server.is_change_to_come() {
            break;
        }
        count += 1;
        let saved: Vec<RelPath> = server.paths().into_iter().filter(|at| *at != path("f")).collect();
        let whole = saved
            .iter()
            .filter(|at| server.content(at).as_ref() == Some(&ours));
        assert_eq!(whole.count(), 1, "before request {requests}: {saved:?}");
        let theirs = server.content(&path("f"));
        if !others.in_place {
            assert_eq!(theirs, others.bytes, "before request {requests}");
        }
    }
    assert!(count > 10, "{count}");
}

#[test]
fn a_file_that_is_removed_in_the_middle_of_a_round_is_saved_beside() {
    for has_leases in [false, true] {
        let others = OthersChange {
            path: path("f"),
            bytes: None,
            in_place: false,
        };
        ours_is_kept(has_leases, &others);
    }
}

#[test]
fn a_file_that_is_replaced_in_the_middle_of_a_round_is_saved_beside() {
    for has_leases in [false, true] {
        let others = OthersChange {
            path: path("f"),
            bytes: Some(THEIRS.to_vec()),
            in_place: false,
        };
        ours_is_kept(has_leases, &others);
    }
}

#[test]
fn a_file_that_is_written_in_the_middle_of_a_round_is_saved_beside() {
    let others = OthersChange {
        path: path("f"),
        bytes: Some(THEIRS.to_vec()),
        in_place: true,
    };
    ours_is_kept(true, &others);
}

/// A server without a clock of its own begins in the past. What others write then is older than what the
/// process had noted, but it is theirs.
#[test]
fn what_others_write_while_the_far_clock_is_set_back_stays() {
    let ours = vec![1; 1000];
    for end in 0..60 {
        let server = FarServer::new(1);
        let process = Arc::new(Process::new(u64::MAX));
        let disk = SimulatedDisk::new(2, Arc::clone(&process));
        let store = start_on(&server, disk.clone(), Arc::clone(&process));
        let node = written(&store, &ours);
        process.end_after(end);
        while store.step() && !process.is_dead() {}
        let is_due = server.content(&path("f")).as_ref() != Some(&ours);
        drop((node, store));
        server.set_clock_back();
        server.others_change(&path("f"), Some(THEIRS.to_vec()), true);
        let next = Arc::new(Process::new(u64::MAX));
        let store = start_on(&server, disk.for_process(Arc::clone(&next)), next);
        while store.step() {}
        assert_eq!(server.content(&path("f")).as_deref(), Some(THEIRS), "{end}");
        let saved = server.paths().into_iter().filter(|at| *at != path("f"));
        let whole = saved.filter(|at| server.content(at).as_ref() == Some(&ours));
        assert!(!is_due || whole.count() == 1, "{end}");
    }
}

/// A client that is closed while the server ends, and a share that is taken away, answer that all is gone.
/// That says nothing about the file.
#[test]
fn a_server_that_is_gone_is_no_change_by_others() {
    let ours: Vec<u8> = (0..1000).map(|at| at as u8 | 1).collect();
    for has_leases in [false, true] {
        for requests in 0.. {
            let server = FarServer::new(1);
            if has_leases {
                server.grant_leases();
            }
            let store = start(&server);
            let node = written(&store, &ours);
            node.sync().expect("it is flushed");
            drop(node);
            server.goes_after(requests);
            for _ in 0..4 {
                store.step();
            }
            let was_gone = server.comes_back();
            while store.step() {}
            assert_eq!(server.paths(), [path("f")], "gone before request {requests}");
            assert_eq!(
                server.content(&path("f")).as_ref(),
                Some(&ours),
                "gone before request {requests}"
            );
            if !was_gone {
                assert!(requests > 10, "{requests}");
                break;
            }
        }
    }
}
