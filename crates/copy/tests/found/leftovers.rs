//! Nothing that a job made for itself stays, and its removal changes no times of folders.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ropeway_copy::{Options, Status, is_temporary};
use ropeway_plan::Backoff;
use ropeway_vfs::{ErrorKind, Op, RelPath, Timestamp, Tree};

use super::kit::{Machine, content, hook, is_claim_in, no_hook, path, write};
use crate::simulate::snapshot::now;
use crate::simulate::tree::{Hook, When};
use crate::simulate::world::FaultKind;

fn machine(options: Options) -> Machine {
    let machine = Machine::new(options);
    write(&machine.source, "sub/a", &content(1, 3_000), 2_000);
    write(&machine.target, "copy/sub/a", &content(2, 3_000), 1_000);
    machine.begin();
    machine
}

const REFUSED: Option<FaultKind> = Some(FaultKind::Error(ErrorKind::PermissionDenied));
const UNKNOWN: Option<FaultKind> = Some(FaultKind::Error(ErrorKind::Other));
const FAILED: Option<FaultKind> = Some(FaultKind::Error(ErrorKind::DeviceError));

#[tokio::test(start_paused = true)]
async fn a_folder_whose_time_a_claim_changed_is_not_called_done() {
    let machine = machine(Options::default());
    let time = Timestamp(1_500_000_000_000_000_000);
    let change = ropeway_vfs::MetadataChange::times_of(&ropeway_vfs::Metadata::bare(
        ropeway_vfs::Kind::Directory,
        0,
        time,
    ));
    now(machine.source.set_metadata(&path("sub"), &change)).unwrap();
    let (is_refused, is_removed) = (AtomicBool::new(false), AtomicBool::new(false));
    let on_target = hook(move |when, op, at| {
        match (when, op) {
            // So the job makes its claim in the folder below.
            (When::Before, Op::Create)
                if is_claim_in(at, "copy") && !is_refused.swap(true, Ordering::Relaxed) =>
            {
                return REFUSED;
            }
            (When::After, Op::Remove) if is_claim_in(at, "copy/sub") => {
                is_removed.store(true, Ordering::Relaxed);
            }
            (When::Before, Op::SetAttributes) if is_removed.load(Ordering::Relaxed) => return UNKNOWN,
            _ => {}
        }
        None
    });
    let outcome = machine.run_hooked(no_hook(), on_target).await;
    let modified = || now(machine.target.metadata(&path("copy/sub"))).unwrap().modified;
    assert_ne!(modified(), time, "the claim changed it");
    assert_ne!(outcome.status, Status::Done);
    assert_eq!(machine.run().await.status, Status::Done);
    assert_eq!(modified(), time);
}

#[tokio::test(start_paused = true)]
async fn a_move_that_ends_in_its_last_sweep_loses_no_time_of_a_folder() {
    for is_killed in [false, true] {
        let machine = machine(Options {
            move_source: true,
            ..Options::default()
        });
        let time = now(machine.source.metadata(&path("sub"))).unwrap().modified;
        let (left, this) = (Arc::new(Mutex::new(None)), machine.clone());
        let (slot, is_refused) = (Arc::clone(&left), AtomicBool::new(false));
        let on_target = hook(move |when, op, at| {
            match (when, op) {
                // So the job makes its claim in the folder below.
                (When::Before, Op::Create)
                    if is_claim_in(at, "copy") && !is_refused.swap(true, Ordering::Relaxed) =>
                {
                    return REFUSED;
                }
                (When::After, Op::Remove) if is_claim_in(at, "copy/sub") => {
                    slot.lock().unwrap().get_or_insert_with(|| this.kill());
                }
                (When::Before, Op::SetAttributes) if slot.lock().unwrap().is_some() => return UNKNOWN,
                _ => {}
            }
            None
        });
        machine.run_hooked(no_hook(), on_target).await;
        let killed = left.lock().unwrap().take().expect("the claim is removed");
        let left = if is_killed { killed } else { machine };
        assert_eq!(left.run().await.status, Status::Done);
        let copied = now(left.target.metadata(&path("copy/sub"))).unwrap().modified;
        assert_eq!(copied, time, "killed: {is_killed}");
        assert!(now(left.source.metadata(&path("sub"))).is_err(), "it is moved");
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_became_a_link_does_not_keep_the_job_from_its_end() {
    let machine = machine(Options::default());
    let is_made = |when, op, at: &RelPath| {
        let is_ours = at.file_name().is_some_and(|name| is_temporary(&name));
        when == When::After && op == Op::Write && is_ours && at.parent() == Some(path("copy/sub"))
    };
    let killed = machine.run_until(is_made, Machine::kill).await;
    write(&killed.source, "b", &content(3, 3_000), 2_000);
    for (tree, top) in [(&killed.source, ""), (&killed.target, "copy")] {
        let sub = path(top).join_path(&path("sub"));
        now(tree.rename(&sub, &path("elsewhere"), false)).unwrap();
        now(tree.make_symlink(&sub, b"some/where")).unwrap();
    }
    now(killed.source.remove_file(&path("elsewhere/a"))).unwrap();
    now(killed.source.remove_dir(&path("elsewhere"))).unwrap();
    assert_eq!(killed.run().await.status, Status::Done);
    assert!(!killed.has_journal());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_only_the_sweep_removed_does_not_come_back() {
    let machine = machine(Options::default());
    // A claim is made in each of the two folders, but the job gets errors.
    let tries = AtomicU32::new(0);
    let unheard = hook(move |when, op, at| {
        let is_claim = is_claim_in(at, "copy") || is_claim_in(at, "copy/sub");
        let is_made = when == When::Before && op == Op::Create && is_claim;
        let is_lost = is_made && tries.fetch_add(1, Ordering::Relaxed) < 2;
        is_lost.then_some(FaultKind::LostAnswer(ErrorKind::PermissionDenied))
    });
    let outcome = machine.run_hooked(no_hook(), unheard).await;
    assert_eq!(outcome.status, Status::Done);
    assert!(!machine.has_journal());
    for cut in machine.cuts() {
        assert_eq!(cut.temporaries(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_last_flush_failed_sweeps_again() {
    let machine = machine(Options::default());
    let is_removed = AtomicBool::new(false);
    let last = hook(move |when, op, at| {
        match (when, op) {
            (When::After, Op::Remove) if is_claim_in(at, "copy") => is_removed.store(true, Ordering::Relaxed),
            (When::Before, Op::Sync) if is_removed.load(Ordering::Relaxed) => return FAILED,
            _ => {}
        }
        None
    });
    assert_eq!(machine.run_hooked(no_hook(), last).await.status, Status::Done);
    assert!(machine.has_journal(), "the claim may come back");
    for cut in machine.cuts() {
        assert_eq!(cut.run().await.status, Status::Done);
        assert!(!cut.has_journal());
        assert_eq!(cut.temporaries(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_for_a_file_that_is_overwritten_in_place_is_found_again() {
    let machine = machine(Options {
        inplace: true,
        ..Options::default()
    });
    let (left, this) = (Arc::new(Mutex::new(None)), machine.clone());
    let (slot, is_refused) = (Arc::clone(&left), AtomicBool::new(false));
    let killed = hook(move |when, op, at| {
        match (when, op) {
            (When::Before, Op::Create)
                if is_claim_in(at, "copy") && !is_refused.swap(true, Ordering::Relaxed) =>
            {
                return REFUSED;
            }
            // Everything is durable, and the job begins to clean up.
            (When::Before, Op::Remove) => {
                slot.lock().unwrap().get_or_insert_with(|| this.kill());
            }
            _ => {}
        }
        None
    });
    machine.run_hooked(no_hook(), killed).await;
    let killed = left.lock().unwrap().take().expect("it cleans up");
    assert_eq!(killed.temporaries().len(), 1, "its claim");
    let outcome = killed.run().await;
    assert_eq!(outcome.status, Status::Done);
    assert_eq!(
        outcome.summary.counters.files_skipped, 1,
        "it does not come to that folder"
    );
    assert_eq!(killed.temporaries(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_torn_by_a_power_cut_is_swept_with_its_names_without_a_journal() {
    let machine = machine(Options::default());
    let is_written = |when, op, at: &ropeway_vfs::RelPath| {
        when == When::After && op == Op::SetAttributes && at.parent() == Some(path("copy/sub"))
    };
    let mut left = 0;
    for cut in machine.run_until(is_written, Machine::cuts).await {
        cut.forget();
        left += cut.temporaries().len();
        assert_eq!(cut.run().await.status, Status::Done);
        assert_eq!(cut.temporaries(), [""; 0]);
    }
    assert!(left > 0, "some cuts leave names");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_header_cannot_be_written_does_not_stay() {
    let machine = machine(Options::default());
    let unwritten = hook(|when, op, at| {
        let is_claim = is_claim_in(at, "copy") || is_claim_in(at, "copy/sub");
        FAILED.filter(|_| when == When::Before && op == Op::Write && is_claim)
    });
    assert_eq!(
        machine.run_hooked(no_hook(), unwritten).await.status,
        Status::Done
    );
    assert_eq!(machine.temporaries(), [""; 0]);
}

/// The claim was refused, so only the journal knew of the job, and not of its folder. Meanwhile
/// somebody else has made the target.
#[tokio::test(start_paused = true)]
async fn a_folder_of_a_killed_run_without_a_claim_does_not_stay() {
    let machine = Machine::new(Options::default());
    write(&machine.source, "a", &content(1, 3_000), 2_000);
    machine.begin();
    let killed: Arc<Mutex<Option<Machine>>> = Arc::default();
    let (slot, running) = (Arc::clone(&killed), machine.clone());
    let see = hook(move |when, op, at| {
        if when == When::Before && op == Op::Rename && *at == path("copy") {
            slot.lock().unwrap().get_or_insert_with(|| running.kill());
        }
        FAILED.filter(|_| when == When::Before && op == Op::Write && is_claim_in(at, ""))
    });
    machine.run_hooked(no_hook(), see).await;
    let killed = killed.lock().unwrap().take().expect("its folder gets its name");
    assert_eq!(killed.temporaries().len(), 1, "its folder");
    write(&killed.target, "copy/a", &content(1, 3_000), 2_000);
    assert_eq!(killed.run().await.status, Status::Done);
    assert_eq!(killed.temporaries(), [""; 0]);
}

/// A machine whose job was killed when all was durable, before it removed its claim in `copy`.
async fn killed_before_its_claim_is_removed() -> Machine {
    let is_cleaning =
        |when, op, at: &RelPath| when == When::Before && op == Op::Remove && is_claim_in(at, "copy");
    let killed = machine(Options::default())
        .run_until(is_cleaning, Machine::kill)
        .await;
    assert_eq!(killed.temporaries().len(), 1, "its claim");
    killed
}

/// Fails the first of these operations.
fn fails_once(wanted: Op, fits: impl Fn(&RelPath) -> bool + Send + Sync + 'static) -> Hook {
    let is_done = AtomicBool::new(false);
    hook(move |when, op, at| {
        let is_one = when == When::Before && op == wanted && fits(at);
        UNKNOWN.filter(|_| is_one && !is_done.swap(true, Ordering::Relaxed))
    })
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_a_folder_that_could_not_be_listed_at_first_does_not_stay() {
    let killed = killed_before_its_claim_is_removed().await;
    let unlisted = fails_once(Op::List, |at| *at == path("copy"));
    assert_eq!(killed.run_hooked(no_hook(), unlisted).await.status, Status::Done);
    assert_eq!(killed.temporaries(), [""; 0]);
    assert!(!killed.has_journal());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_could_not_be_taken_at_first_does_not_stay() {
    let killed = killed_before_its_claim_is_removed().await;
    let untaken = fails_once(Op::Create, |at| is_claim_in(at, "copy"));
    assert_eq!(killed.run_hooked(no_hook(), untaken).await.status, Status::Done);
    assert_eq!(killed.temporaries(), [""; 0]);
    assert!(!killed.has_journal());
}

#[tokio::test(start_paused = true)]
async fn a_temporary_name_in_an_unfinished_folder_does_not_stay() {
    let machine = Machine::new(Options {
        force: true,
        retry: Backoff {
            tries_max: 1,
            ..Backoff::default()
        },
        ..Options::default()
    });
    now(machine.source.make_dir(&path("sub"), 0o755)).unwrap();
    now(machine.source.make_symlink(&path("sub/link"), b"some/where")).unwrap();
    now(machine.target.make_dir(&path("copy"), 0o755)).unwrap();
    machine.begin();
    let is_made = |when, op, at: &RelPath| {
        when == When::After && op == Op::Link && at.file_name() == path("link").file_name()
    };
    let killed = machine.run_until(is_made, Machine::kill).await;
    let is_hidden = |at: Option<RelPath>| {
        at.and_then(|at| at.file_name())
            .is_some_and(|at| is_temporary(&at))
    };
    let busy = hook(move |when, op, at| {
        let is_one = is_hidden(Some(at.clone())) && is_hidden(at.parent());
        let is_one = is_one && when == When::Before && op == Op::SetAttributes;
        is_one.then_some(FaultKind::Error(ErrorKind::Busy))
    });
    assert_eq!(
        killed.run_hooked(no_hook(), busy).await.status,
        Status::SomeFailed
    );
    assert_eq!(killed.run().await.status, Status::Done);
    assert_eq!(killed.temporaries(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_half_written_file_whose_source_vanishes_gets_no_final_name() {
    for (is_far, case_sensitive) in [(false, true), (false, false), (true, true), (true, false)] {
        let machine = Machine::with(Options::default(), |can| {
            can.case_sensitive = case_sensitive;
            if is_far {
                (can.far, can.remote, can.page_cache) = (true, true, false);
            }
        });
        half_written_and_vanishing(machine).await;
    }
}

async fn half_written_and_vanishing(machine: Machine) {
    for name in ["a", "b"] {
        write(&machine.source, name, &content(1, 20_000), 1_000);
    }
    // Its spelling changes, and it stays.
    write(&machine.source, "Spelled", &content(2, 100), 1_000);
    machine.begin();
    let is_written = |when, op, at: &RelPath| {
        when == When::After && op == Op::Write && at.file_name() == path("a").file_name()
    };
    let killed = machine.run_until(is_written, Machine::kill).await;
    let source = machine.source.clone();
    now(killed.source.rename(&path("Spelled"), &path("sPELLED"), false)).unwrap();
    let vanishes = hook(move |when, op, at| {
        let is_hidden = at.file_name().is_some_and(|name| is_temporary(&name));
        if when == When::After && op == Op::List && is_hidden {
            // It was compared with the source, which is listed again to be copied.
            let _ = now(source.remove_file(&path("a")));
        }
        None
    });
    assert_eq!(killed.run_hooked(no_hook(), vanishes).await.status, Status::Done);
    assert!(killed.content("copy/b") == Some(content(1, 20_000)));
    assert!(killed.content("copy/a").is_none());
    assert!(killed.content("copy/sPELLED") == Some(content(2, 100)));
}

/// What a run that was killed left at a far end is compared with one listing. What the source lost
/// meanwhile, has as another kind or under another spelling goes; the rest stays.
#[tokio::test(start_paused = true)]
async fn what_a_killed_run_left_at_a_far_end_follows_the_source() {
    for case_sensitive in [true, false] {
        let machine = Machine::with(Options::default(), |can| {
            (can.far, can.remote, can.page_cache) = (true, true, false);
            (can.case_sensitive, can.small_in_flight) = (case_sensitive, 64);
        });
        for folder in ["d", "e", "f"] {
            for name in ["gone", "kind", "Spelled", "stays", "z1", "z2"] {
                let seed = u64::from(folder.as_bytes()[0]);
                write(
                    &machine.source,
                    &format!("{folder}/{name}"),
                    &content(seed, 3_000),
                    1_000,
                );
            }
        }
        machine.begin();
        let count = AtomicU32::new(0);
        // In the middle of the second folder.
        let is_written = move |when, op, _: &RelPath| {
            when == When::After && op == Op::Write && count.fetch_add(1, Ordering::Relaxed) == 9
        };
        let killed = machine.run_until(is_written, Machine::kill).await;
        for folder in ["d", "e"] {
            let at = |name: &str| path(&format!("{folder}/{name}"));
            now(killed.source.remove_file(&at("gone"))).unwrap();
            now(killed.source.remove_file(&at("kind"))).unwrap();
            write(
                &killed.source,
                &format!("{folder}/kind/below"),
                &content(9, 100),
                1_000,
            );
            now(killed.source.rename(&at("Spelled"), &at("sPELLED"), false)).unwrap();
            write(&killed.source, &format!("{folder}/new"), &content(8, 100), 1_000);
        }
        assert_eq!(killed.run().await.status, Status::Done);
        assert_eq!(killed.temporaries(), [""; 0]);
        for folder in ["d", "e"] {
            for (name, seed, size) in [("kind/below", 9, 100), ("new", 8, 100)] {
                let found = killed.content(&format!("copy/{folder}/{name}"));
                assert!(found == Some(content(seed, size)), "{folder}/{name}");
            }
            assert!(killed.content(&format!("copy/{folder}/gone")).is_none());
        }
        let copied = ["kind", "new", "spelled", "stays", "z1", "z2"];
        let untouched = ["gone", "kind", "spelled", "stays", "z1", "z2"];
        for (folder, wanted) in [("d", copied), ("e", copied), ("f", untouched)] {
            let mut listing = now(killed.target.list(&path(&format!("copy/{folder}")))).unwrap();
            let entries = now(listing.next(100)).unwrap();
            let names = entries.iter().map(|entry| entry.name.to_string().to_lowercase());
            let mut names: Vec<_> = names.collect();
            names.sort();
            assert_eq!(names, wanted, "{folder}");
        }
    }
}
