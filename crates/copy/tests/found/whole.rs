//! Files that look whole are whole, and what is reported as done or durable is.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway_copy::{Delete, Durability, Options, Status};
use ropeway_vfs::{CacheMode, Create, ErrorKind, Op, OpenOptions, RelPath, Tree};

use super::kit::{Machine, before_open, content, hook, no_hook, path, write};
use crate::simulate::snapshot::now;
use crate::simulate::tree::When;
use crate::simulate::world::FaultKind;

/// Blocks of a file of 20,000 bytes.
const BLOCKS: u32 = 5;
const REFUSED: Option<FaultKind> = Some(FaultKind::Error(ErrorKind::PermissionDenied));

/// A machine with one older file on its target.
fn machine(options: Options) -> Machine {
    let machine = Machine::new(options);
    write(&machine.source, "a", &content(1, 20_000), 2_000);
    write(&machine.target, "copy/a", &content(2, 20_000), 1_000);
    machine.begin();
    machine
}

fn inplace() -> Options {
    Options {
        inplace: true,
        ..Options::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_in_place_has_its_time_after_its_data() {
    let machine = machine(Options {
        durability: Durability::File,
        ..inplace()
    });
    let has_time =
        |when, op, at: &RelPath| when == When::After && op == Op::SetAttributes && *at == path("copy/a");
    let mut looked_whole = 0;
    for cut in machine.run_until(has_time, Machine::cuts).await {
        if cut.has_time("a") {
            looked_whole += 1;
            assert!(cut.content("copy/a") == Some(content(1, 20_000)));
        }
    }
    assert!(looked_whole > 0, "some cuts leave the time");
}

#[tokio::test(start_paused = true)]
async fn holes_that_the_source_got_since_it_was_listed_show_no_old_data() {
    let machine = machine(inplace());
    let source = machine.source.clone();
    let punch = before_open("a", move || {
        let options = OpenOptions::write(Create::No, CacheMode::Keep);
        let file = now(source.open(&path("a"), options)).unwrap();
        now(file.punch_hole(4096, 8192)).unwrap();
    });
    assert_eq!(machine.run_hooked(punch, no_hook()).await.status, Status::Done);
    let mut expected = content(1, 20_000);
    expected[4096..4096 + 8192].fill(0);
    assert!(machine.content("copy/a") == Some(expected));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_stays_half_overwritten_keeps_the_journal() {
    let machine = machine(inplace());
    let writes = AtomicU32::new(0);
    let refuses = hook(move |when, op, at| {
        let is_write = when == When::Before && op == Op::Write && *at == path("copy/a");
        let is_refused = is_write && writes.fetch_add(1, Ordering::Relaxed) > 0;
        REFUSED.filter(|_| is_refused)
    });
    let outcome = machine.run_hooked(no_hook(), refuses).await;
    assert_eq!(outcome.summary.counters.files_failed, 1);
    assert!(machine.has_journal(), "the next run must know of it");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_ends_the_job_without_success() {
    let machine = machine(Options::default());
    let panics = hook(|when, op, at| {
        let is_read = when == When::Before && op == Op::Open && *at == path("a");
        assert!(!is_read, "this test panics here");
        None
    });
    let outcome = machine.run_hooked(panics, no_hook()).await;
    assert_eq!(outcome.status, Status::TargetUnwritable);
    assert!(
        outcome
            .fatal
            .is_some_and(|why| why.contains("fault of this program"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_at_once_does_not_forget_half_overwritten_files() {
    let machine = machine(inplace());
    let has_time =
        |when, op, at: &RelPath| when == When::After && op == Op::SetAttributes && *at == path("copy/a");
    let mut looked_whole = 0;
    for cut in machine.run_until(has_time, Machine::cuts).await {
        let is_damaged = cut.content("copy/a") != Some(content(1, 20_000));
        looked_whole += u32::from(is_damaged && cut.has_time("a"));
        let unseen = hook(|when, op, at| {
            let is_root = when == When::Before && op == Op::Stat && *at == path("copy");
            REFUSED.filter(|_| is_root)
        });
        let outcome = cut.run_hooked(no_hook(), unseen).await;
        assert_ne!(outcome.status, Status::Done);
        assert_eq!(cut.run().await.status, Status::Done);
        assert!(cut.content("copy/a") == Some(content(1, 20_000)));
    }
    assert!(looked_whole > 0, "some cuts damage it");
}

#[tokio::test(start_paused = true)]
async fn nothing_counts_as_durable_after_a_flush_that_failed() {
    let machine = machine(inplace());
    let is_written = AtomicBool::new(false);
    // Only the first flush after the data reports that pages were lost. The next one succeeds.
    let loses = hook(move |when, op, at| {
        match (when, op) {
            (When::After, Op::SetAttributes) if *at == path("copy/a") => {
                is_written.store(true, Ordering::Relaxed);
            }
            (When::Before, Op::Sync) if is_written.swap(false, Ordering::Relaxed) => {
                return Some(FaultKind::FailedFlush);
            }
            _ => {}
        }
        None
    });
    let outcome = machine.run_hooked(no_hook(), loses).await;
    assert_eq!(outcome.status, Status::TargetUnwritable);
    assert_eq!(outcome.summary.counters.bytes_durable, 0);
}

#[tokio::test(start_paused = true)]
async fn a_flush_of_a_version_that_is_overwritten_says_nothing_of_the_next() {
    let machine = Arc::new(machine(inplace()));
    let (writes, cuts) = (AtomicU32::new(0), Arc::new(Mutex::new(Vec::new())));
    let flushes = AtomicU32::new(0);
    let late = |seconds| Some(FaultKind::Late(Duration::from_secs(seconds)));
    let slow = {
        let (machine, cuts) = (Arc::clone(&machine), Arc::clone(&cuts));
        hook(move |when, op, at| match (when, op) {
            (When::Before, Op::Write) if *at == path("copy/a") => {
                match writes.fetch_add(1, Ordering::Relaxed) + 1 {
                    // Its flush begins.
                    BLOCKS => late(3),
                    // The next version, of which nothing is flushed.
                    7 => late(30),
                    _ => None,
                }
            }
            (When::Before, Op::Sync) if at.is_root() && writes.load(Ordering::Relaxed) >= BLOCKS => {
                match flushes.fetch_add(1, Ordering::Relaxed) {
                    0 => {
                        write(&machine.source, "a", &content(3, 20_000), 3_000);
                        return late(10);
                    }
                    1 => *cuts.lock().unwrap() = machine.cuts(),
                    _ => {}
                }
                None
            }
            _ => None,
        })
    };
    machine.run_hooked(no_hook(), slow).await;
    let cuts = std::mem::take(&mut *cuts.lock().unwrap());
    assert!(!cuts.is_empty());
    for cut in cuts {
        assert_eq!(cut.run().await.status, Status::Done);
        assert!(
            cut.content("copy/a") == Some(content(3, 20_000)),
            "two versions are mixed"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_does_not_remove_a_folder_whose_attributes_were_not_copied() {
    let machine = Machine::new(Options {
        move_source: true,
        ..Options::default()
    });
    now(machine.source.make_dir(&path("sub"), 0o700)).unwrap();
    write(&machine.target, "copy/sub/other", &content(1, 10), 1_000);
    machine.begin();
    let refuses = hook(|when, op, at| {
        REFUSED.filter(|_| when == When::Before && op == Op::SetAttributes && *at == path("copy/sub"))
    });
    assert_ne!(machine.run_hooked(no_hook(), refuses).await.status, Status::Done);
    assert!(
        now(machine.source.metadata(&path("sub"))).is_ok(),
        "nothing else has its mode"
    );
    assert_eq!(machine.run().await.status, Status::Done);
    assert_eq!(
        now(machine.target.metadata(&path("copy/sub"))).unwrap().mode,
        Some(0o700)
    );
    assert!(now(machine.source.metadata(&path("sub"))).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_move_that_cannot_read_its_source_again_is_not_done() {
    for refused in [Op::Stat, Op::List] {
        let machine = Machine::new(Options {
            move_source: true,
            ..Options::default()
        });
        write(&machine.source, "a", &content(1, 3_000), 1_000);
        machine.begin();
        let is_copied = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_copied);
        let refuses = hook(move |when, op, _| {
            let is_one = when == When::Before && op == refused && seen.load(Ordering::Relaxed);
            REFUSED.filter(|_| is_one)
        });
        let target = machine.target.clone();
        let copies = hook(move |when, op, at| {
            let has_name = now(target.metadata(&path("copy/a"))).is_ok();
            if when == When::After && op == Op::Sync && at.is_root() && has_name {
                is_copied.store(true, Ordering::Relaxed);
            }
            None
        });
        assert_ne!(machine.run_hooked(refuses, copies).await.status, Status::Done);
        assert!(machine.source.content(&path("a")).is_ok());
        assert_eq!(machine.run().await.status, Status::Done);
        assert!(machine.source.content(&path("a")).is_err());
    }
}

/// A name that vanishes between the pass that counts and the copy is deleted, although nothing else changed.
#[tokio::test(start_paused = true)]
async fn what_vanishes_after_the_count_is_deleted() {
    let machine = Machine::new(Options {
        delete: Some(Delete::default()),
        preflight: true,
        ..Options::default()
    });
    for name in ["a", "b"] {
        write(&machine.source, name, b"x", 1_000);
        write(&machine.target, &format!("copy/{name}"), b"x", 1_000);
    }
    machine.begin();
    let (source, is_done) = (Arc::clone(&machine.source), AtomicBool::new(false));
    // The pass that counts has listed the source's folder by then.
    let on_target = hook(move |when, op, at| {
        let is_then = when == When::Before && op == Op::List && *at == path("copy");
        if is_then && !is_done.swap(true, Ordering::Relaxed) {
            now(source.remove_file(&path("a"))).unwrap();
        }
        None
    });
    let outcome = machine.run_hooked(no_hook(), on_target).await;
    assert_eq!(outcome.status, Status::Done);
    let error = now(machine.target.metadata(&path("copy/a"))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
}
