//! Power cuts, and clocks that are set back, between trees in memory: whatever a later run trusts
//! must be there.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway_copy::{
    Durability, Environment, Job, JobKey, JobSpec, JournalFolder, JournalSpec, Options, Status, WallClock,
};
use ropeway_plan::Backoff;
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::event::Event;
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{Clock, End, Pending, RelPath, Timestamp, Tree};

/// Zero of a memory tree's clock.
const ZERO: i128 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
/// Number of files of each size.
const FILES: u8 = 3;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// The wall clock of a simulated machine, in nanoseconds. It advances by a microsecond at each
/// look.
#[derive(Clone)]
struct Wall(Arc<AtomicI64>);

impl Wall {
    fn at(seconds: i64) -> Self {
        Self(Arc::new(AtomicI64::new(seconds * SECOND)))
    }

    fn set_back(&self, seconds: i64) {
        self.0.fetch_sub(seconds * SECOND, Ordering::Relaxed);
    }

    fn for_journal(&self) -> WallClock {
        let wall = self.clone();
        WallClock::new(move || Timestamp(ZERO + wall.now().as_nanos() as i128))
    }
}

impl Clock for Wall {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.fetch_add(1_000, Ordering::Relaxed).try_into().unwrap())
    }

    fn sleep_until(&self, _: Duration) -> Pending<'static, ()> {
        unreachable!("trees in memory do not wait")
    }
}

/// Files of two sizes, some of which have records of their own in the journal.
fn source() -> MemoryTree {
    let tree = MemoryTree::new();
    for number in 0..FILES {
        let small = vec![number + 1; 9_000];
        tree.insert_file(&path(&format!("sub/small {number}")), &small)
            .unwrap();
        let big = vec![number + 101; (4 << 20) + 5];
        tree.insert_file(&path(&format!("sub/big {number}")), &big)
            .unwrap();
    }
    tree
}

type Machine = (JournalSpec, Environment);

fn spec(
    source: &Arc<MemoryTree>,
    target: Arc<MemoryTree>,
    options: &Options,
    (journal, environment): Machine,
) -> JobSpec {
    JobSpec {
        journal: Some(journal),
        environment,
        ..JobSpec::whole(source.clone(), target, path("copy"), options.clone())
    }
}

fn journal(state: &Path, boot: &str, wall: &Wall) -> Machine {
    let journal = JournalSpec {
        store: Arc::new(JournalFolder::new(state)),
        key: JobKey::new(&["source".into()], "copy"),
        sources: vec!["source".into()],
        target: "copy".into(),
    };
    let environment = Environment {
        boot_id: boot.to_owned(),
        clock: wall.for_journal(),
        ..Environment::default()
    };
    (journal, environment)
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// What a run does before the power cut.
#[derive(Clone)]
struct Cut {
    options: Options,
    /// Whether the target is empty before, so that the copy is filled in a hidden folder. Otherwise
    /// every name exists with other content.
    is_new: bool,
    /// Seconds by which the clock is set back after the first file. It is set right after the cut.
    step: i64,
    /// Number of files done at the power cut.
    after: usize,
}

/// Runs a copy, cuts the power while it runs, runs it again after the boot, and judges the outcome.
async fn cut_and_again(cut: &Cut, seed: u64) {
    let (state, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wall = Wall::at(100_000);
    let (source, left) = cut_off(cut, seed, &wall, (state.path(), kept.path())).await;
    wall.set_back(-cut.step - 10);
    let again = spec(
        &source,
        left.clone(),
        &cut.options,
        journal(kept.path(), "two", &wall),
    );
    let (outcome, events) = again.run().await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    let shown = format!("seed {seed}, step {}, after {} files", cut.step, cut.after);
    let damaged = damaged(&source, &left);
    assert!(damaged.is_empty(), "{damaged:?} are damaged or missing ({shown})");
}

/// Runs a copy and cuts the power while it runs. Returns its source, and what the device of the
/// target had then. Copies the state folder of that moment.
async fn cut_off(
    cut: &Cut,
    seed: u64,
    wall: &Wall,
    (state, kept): (&Path, &Path),
) -> (Arc<MemoryTree>, Arc<MemoryTree>) {
    let target = MemoryTree::new()
        .with_clock(Arc::new(wall.clone()))
        .with_crash_model();
    if !cut.is_new {
        let old = source();
        for number in 0..FILES {
            for kind in ["small", "big"] {
                let at = path(&format!("sub/{kind} {number}"));
                let content = vec![7; old.content(&at).unwrap().len()];
                target
                    .insert_file(&path("copy").join_path(&at), &content)
                    .unwrap();
            }
        }
        target.sync().await.unwrap();
    }
    let (source, target) = (Arc::new(source()), Arc::new(target));
    let left = Arc::new(Mutex::new(None));
    let sink = {
        let (done, left, wall) = (AtomicUsize::new(0), Arc::clone(&left), wall.clone());
        let (target, cut) = (Arc::clone(&target), cut.clone());
        let (from, to) = (state.to_owned(), kept.to_owned());
        move |event| {
            let is_file = |action| matches!(action, "copy" | "update");
            let Event::Item { action, .. } = event else { return };
            if !is_file(action) {
                return;
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done == 1 {
                wall.set_back(cut.step);
            }
            if done == cut.after {
                copy_folder(&from, &to);
                *left.lock().unwrap() = Some(target.crash(seed));
            }
        }
    };
    let mut options = cut.options.clone();
    options.report_items = true;
    let first = spec(&source, target.clone(), &options, journal(state, "one", wall));
    Job::new(first).run(Arc::new(sink)).await;
    let left = left.lock().unwrap().take().expect("the power went");
    (source, Arc::new(left))
}

/// Returns the files of the copy that differ from the source. A copy that has no name yet misses
/// none.
fn damaged(source: &MemoryTree, target: &MemoryTree) -> Vec<RelPath> {
    let mut damaged = Vec::new();
    for number in 0..FILES {
        for kind in ["small", "big"] {
            let at = path(&format!("sub/{kind} {number}"));
            let found = target.content(&path("copy").join_path(&at)).ok();
            if found != source.content(&at).ok() {
                damaged.push(at);
            }
        }
    }
    damaged
}

/// Checks what a run with failures left under final names, and what the next run makes of it.
async fn cut_and_failing_and_again(rule: &str, seed: u64) {
    let (state, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wall = Wall::at(100_000);
    let retry = Backoff {
        tries_max: 2,
        first: Duration::from_millis(1),
        ..Backoff::default()
    };
    let cut = Cut {
        options: Options {
            retry,
            ..Options::default()
        },
        is_new: true,
        step: 0,
        after: 4,
    };
    let (source, left) = cut_off(&cut, seed, &wall, (state.path(), kept.path())).await;
    let rules = FaultRule::parse(&format!("{rule},probability=0.3,seed={seed},errno=EIO")).unwrap();
    let (of_target, of_source) = rules.into_iter().partition(|rule| rule.applies_to(End::Target));
    let (two, environment) = journal(kept.path(), "two", &wall);
    let failing = JobSpec {
        journal: Some(two),
        environment,
        ..JobSpec::whole(
            Faults::new(source.clone(), of_source, Arc::new(wall.clone())),
            Faults::new(left.clone(), of_target, Arc::new(wall.clone())),
            path("copy"),
            cut.options.clone(),
        )
    };
    failing.run().await;
    for at in damaged(&source, &left) {
        let found = left.content(&path("copy").join_path(&at));
        assert!(
            found.is_err(),
            "{at} is damaged under its name ({rule}, seed {seed})"
        );
    }
    let last = spec(
        &source,
        left.clone(),
        &cut.options,
        journal(kept.path(), "two", &wall),
    );
    let (outcome, events) = last.run().await;
    assert_eq!(outcome.status, Status::Done, "{rule}, seed {seed}: {events:?}");
    let damaged = damaged(&source, &left);
    assert!(
        damaged.is_empty(),
        "{damaged:?} are damaged or missing ({rule}, seed {seed})"
    );
}

#[tokio::test]
async fn what_a_cut_run_left_gets_no_final_name_from_one_that_fails() {
    let rules = [
        "target.stat:contains=sub",
        "target.list:contains=sub",
        "target.make_dir:contains=sub",
        "target.open:contains=sub",
        "target.write:contains=sub",
        "target.remove:contains=sub",
        "target.any:contains=sub",
        "source.list:contains=sub",
        "source.read:contains=big",
        "source.any:contains=sub",
        "any:contains=sub",
    ];
    for rule in rules {
        for seed in 0..10 {
            cut_and_failing_and_again(rule, seed).await;
        }
    }
}

async fn cuts(options: Options, is_new: bool) {
    for step in [0, 3_600] {
        for after in [2, 5] {
            for seed in 0..3 {
                let cut = Cut {
                    options: options.clone(),
                    is_new,
                    step,
                    after,
                };
                cut_and_again(&cut, seed).await;
            }
        }
    }
}

#[tokio::test]
async fn a_power_cut_in_a_new_folder_whatever_the_clock_shows() {
    cuts(Options::default(), true).await;
}

#[tokio::test]
async fn a_power_cut_in_a_folder_that_exists_whatever_the_clock_shows() {
    cuts(Options::default(), false).await;
}

#[tokio::test]
async fn a_power_cut_in_place_whatever_the_clock_shows() {
    let options = Options {
        inplace: true,
        ..Options::default()
    };
    cuts(options, false).await;
}

#[tokio::test]
async fn a_power_cut_without_durability_whatever_the_clock_shows() {
    let options = Options {
        durability: Durability::None,
        ..Options::default()
    };
    cuts(options.clone(), true).await;
    cuts(options, false).await;
}
