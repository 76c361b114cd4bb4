//! What keeps a long line filled: the next file is read on, writes are gathered, nothing waits
//! without need.

use std::time::{Duration, Instant};

use ropeway_vfs::store::Store as _;

use super::bench::{Bench, CREATE, LOOK, READ, bytes, open, path};
use crate::{alone, asked, files, in_order, lasting, read_pages};

const M: usize = 1 << 20;

fn count(requests: &[String], wanted: &str) -> usize {
    requests.iter().filter(|request| *request == wanted).count()
}

/// `cp -r` of large files: at the end of each the line was idle for a round trip, because nothing but
/// the beginning of the next one had been requested.
#[test]
fn a_large_file_is_read_on_while_the_one_before_it_ends() {
    let _alone = alone();
    let bench = Bench::start();
    let files = files(&bench, &[12 * M; 3]);
    let store = bench.store_with("", lasting());
    let files = in_order(&store, files);
    for (name, data) in &files[..2] {
        assert!(read_pages(&store, name) == *data, "{name}");
    }
    std::thread::sleep(Duration::from_millis(500));
    // The beginning, 8 MiB, was requested when the second one was opened.
    let (read, requests) = asked(|| read_pages(&store, &files[2].0));
    assert!(read == files[2].1);
    assert!(requests.is_empty(), "{requests:?}");
}

/// Somebody who looks at the beginning and the end of large files.
#[test]
fn nothing_is_read_on_without_a_sequence_of_whole_files() {
    let _alone = alone();
    let bench = Bench::start();
    let files = files(&bench, &[12 * M; 4]);
    let store = bench.store_with("", lasting());
    let files = in_order(&store, files);
    let ((), requests) = asked(|| {
        for (name, _) in &files {
            let node = open(&store, name, &READ);
            let mut page = vec![0; 128 << 10];
            for at in [0, page.len(), 12 * M - 2 * page.len(), 12 * M - page.len()] {
                assert_eq!(node.read_at(&mut page, at as u64).unwrap(), page.len());
            }
        }
        std::thread::sleep(Duration::from_millis(300));
    });
    assert_eq!(count(&requests, "Create"), 4, "{requests:?}");
}

/// Before, a short range was sent whenever the one before it had been, once a stream had lasted for 50
/// ms: of 1 GiB a third of the requests carried 128 KiB, and filled the places of full ones.
#[test]
fn a_stream_of_writes_is_sent_in_full_blocks() {
    let _alone = alone();
    let bench = Bench::with_delay(Duration::from_millis(20));
    let store = bench.store_with("", lasting());
    let piece = bytes(128 << 10, 3);
    let node = open(&store, "f", &CREATE);
    let ((), requests) = asked(|| {
        for at in 0..160 {
            node.write_at(&piece, (at * piece.len()) as u64).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        node.write_out().unwrap();
    });
    let writes = count(&requests, "Write");
    assert!((20..=40).contains(&writes), "{writes} writes of 20 MiB");
    assert!(std::fs::read(bench.path().join("f")).unwrap() == piece.repeat(160));
}

/// A program that goes on writing a little, as to a log.
#[test]
fn others_see_the_end_of_a_file_that_grows_slowly() {
    let _alone = alone();
    let bench = Bench::start();
    let store = bench.store_with("", lasting());
    let node = open(&store, "log", &CREATE);
    for at in 0..150_u64 {
        node.write_at(b"a line\n", at * 7).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(std::fs::metadata(bench.path().join("log")).unwrap().len() > 0);
}

/// `umount` asks for the topmost folder right after the last file was closed.
#[test]
fn a_question_for_the_topmost_folder_does_not_wait_for_a_close() {
    let _alone = alone();
    let delay = Duration::from_millis(150);
    let bench = Bench::with_delay(delay);
    std::fs::create_dir(bench.path().join("d")).unwrap();
    let store = bench.store();
    let took = |number: u32| {
        let node = open(&store, &format!("d/f{number}"), &CREATE);
        node.write_at(b"new", 0).unwrap();
        node.write_out().unwrap();
        let top = store.open(&path(""), &LOOK).unwrap().node;
        let begun = Instant::now();
        drop(node);
        top.stat_now().unwrap();
        begun.elapsed()
    };
    // One round trip, or two each time. A busy machine may add to one.
    let quickest = (0..5).map(took).find(|took| *took < delay * 3);
    assert!(quickest.is_some(), "each takes two round trips");
}
