//! Whole runs of `bench` on a folder and on a tree in memory, without any figure that depends on time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_lab::bench::cell::{Key, Mode, Pattern};
use ropeway_lab::bench::facts;
use ropeway_lab::bench::grid::{Grid, Step};
use ropeway_lab::bench::io::{Cold, Far, Folder, FolderOptions, Ground, NamePass, Pass, PassError};
use ropeway_lab::bench::result::{FILE, NodeOperation, Report, Settings, load};
use ropeway_lab::bench::run::{Ended, Event, Options, run};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::trace::{Observer, Record};
use ropeway_vfs::{Name, RelPath, Tree};

const KIB: u64 = 1 << 10;

fn grid() -> Grid {
    Grid {
        sizes: vec![64 * KIB, 256 * KIB],
        records: vec![4 * KIB, 64 * KIB],
        patterns: Pattern::ALL.to_vec(),
        modes: vec![Mode::Cached, Mode::Fsync],
        depths: vec![1, 4],
    }
}

fn options(grid: Grid, out: Option<&Path>) -> Options {
    Options {
        grid,
        sizes_asked: false,
        runs: 2,
        budget: Duration::from_secs(600),
        pass: Some(Duration::from_secs(60)),
        files: 20,
        seed: 3,
        cold: Cold::DropFile,
        flight_max: 1 << 30,
        out: out.map(Path::to_owned),
        estimate: false,
    }
}

fn report(folder: &Path, options: &Options) -> Report {
    let (target, mut conditions) = facts::of_folder("here", folder);
    // The load changes from call to call.
    conditions.load = 0.0;
    let settings = Settings {
        sizes: options.grid.sizes.clone(),
        records: options.grid.records.clone(),
        runs: options.runs,
        ..Settings::default()
    };
    Report::new(target, conditions, settings, "2026-01-01T00:00:00Z".to_owned())
}

fn folder(dir: &Path, threads: bool) -> Folder {
    let options = FolderOptions {
        seed: 3,
        threads,
        observer: None,
    };
    Folder::open(dir, options).unwrap()
}

fn far(tree: &Arc<MemoryTree>, runtime: &tokio::runtime::Runtime) -> Far {
    let tree = Arc::clone(tree) as Arc<dyn Tree>;
    let name = Name::new(b"own").unwrap();
    Far::open(tree, &RelPath::root(), &name, runtime.handle().clone(), 3).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().count() == 0
}

/// Checks that every cell was measured in every round, with whole files.
fn assert_whole(report: &Report, grid: &Grid, far: bool) {
    let keys: Vec<Key> = grid.steps(u64::MAX).iter().flat_map(Step::keys).collect();
    assert_eq!(report.cells.len(), keys.len());
    for key in keys {
        let cell = report.cell(&key).unwrap_or_else(|| panic!("{key} is missing"));
        assert_eq!(cell.runs.len(), 2, "{key}");
        for run in &cell.runs {
            // Small files are measured several times in a pass.
            let files = ropeway_lab::bench::budget::files(key.size);
            assert!(run.bytes == key.size * files && !run.cut, "{key}: {run:?}");
            assert_eq!(run.operations, key.records() * files, "{key}");
            assert!(
                run.seconds > 0.0 && run.p50_us <= run.p99_us && run.p99_us <= run.max_us,
                "{key}"
            );
            assert_eq!(run.flush_seconds.is_some(), key.mode == Mode::Fsync, "{key}");
            assert!(!far || run.in_memory_before.is_none(), "{key}");
        }
    }
    let names: BTreeSet<(NodeOperation, u32)> = report
        .nodes
        .iter()
        .map(|cell| (cell.operation, cell.depth))
        .collect();
    assert_eq!(names.len(), NodeOperation::ALL.len() * 2);
    assert!(report.complete);
}

#[test]
fn a_folder_is_measured_and_left_as_it_was() {
    for threads in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut ground = folder(dir.path(), threads);
        let options = options(grid(), None);
        let stop = AtomicBool::new(false);
        let new = report(dir.path(), &options);
        let (report, ended) = run(&mut ground, new, &options, &stop, &|_| ()).unwrap();
        assert_eq!(ended, Ended::Done);
        assert_whole(&report, &grid(), false);
        assert!(
            threads == (report.settings.engine == "threads") || !threads,
            "{}",
            report.settings.engine
        );
        assert!(is_empty(dir.path()));
        // What was just read is in the page cache, unless the volume does not tell.
        for cell in report
            .cells
            .iter()
            .filter(|cell| cell.key.pattern == Pattern::Reread)
        {
            assert!(
                cell.known(|run| run.in_memory_before)
                    .is_none_or(|share| share > 0.99),
                "{cell:?}"
            );
        }
    }
}

#[test]
fn a_tree_is_measured_and_left_as_it_was() {
    let runtime = runtime();
    let tree = Arc::new(MemoryTree::new());
    let mut ground = far(&tree, &runtime);
    let mut wanted = grid();
    wanted.modes.push(Mode::Direct);
    let options = options(wanted, None);
    let mut new = report(Path::new("/"), &options);
    new.conditions.far = true;
    let (report, ended) = run(&mut ground, new, &options, &AtomicBool::new(false), &|_| ()).unwrap();
    assert_eq!(ended, Ended::Done);
    assert_whole(&report, &grid(), true);
    // A share has no direct I/O, which is said once.
    let left: Vec<&str> = report.left_out.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(left, ["mode direct"]);
    let mut listing = runtime.block_on(tree.list(&RelPath::root())).unwrap();
    assert!(runtime.block_on(listing.next(10)).unwrap().is_empty());
}

#[test]
fn a_stopped_run_goes_on_and_a_finished_one_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let options = options(grid(), Some(out.path()));
    let stop = AtomicBool::new(false);
    let steps = Mutex::new(0);
    let notify = |event: &Event<'_>| {
        if matches!(event, Event::Step(..)) {
            *steps.lock() += 1;
            stop.store(*steps.lock() == 5, Ordering::Relaxed);
        }
    };
    let again = || {
        run(
            &mut folder(dir.path(), false),
            report(dir.path(), &options),
            &options,
            &stop,
            &notify,
        )
        .unwrap()
    };
    let (first, ended) = again();
    assert_eq!(ended, Ended::Stopped);
    assert!(!first.complete && is_empty(dir.path()));
    let kept = load(out.path()).unwrap();
    assert_eq!(kept.cells.len(), first.cells.len());
    let done: Vec<f64> = kept
        .cells
        .iter()
        .flat_map(|cell| &cell.runs)
        .map(|run| run.seconds)
        .collect();
    assert!(!done.is_empty());

    stop.store(false, Ordering::Relaxed);
    let (second, ended) = again();
    assert_eq!(ended, Ended::Done);
    assert_whole(&second, &grid(), false);
    let all: Vec<f64> = second
        .cells
        .iter()
        .flat_map(|cell| &cell.runs)
        .map(|run| run.seconds)
        .collect();
    assert!(
        done.iter().all(|seconds| all.contains(seconds)),
        "nothing was measured twice"
    );

    // A third run begins anew, and the results of the second stay.
    stop.store(true, Ordering::Relaxed);
    let third = run(
        &mut folder(dir.path(), false),
        report(dir.path(), &options),
        &options,
        &stop,
        &|_| (),
    );
    assert!(third.is_err());
    assert_eq!(
        load(&out.path().join("bench-1.json")).unwrap().cells,
        second.cells
    );
    assert!(!out.path().join(FILE).exists() && is_empty(dir.path()));
}

fn pass<'a>(pattern: Pattern, mode: Mode, stop: &'a AtomicBool) -> Pass<'a> {
    Pass {
        key: Key {
            size: 1 << 20,
            record: 4 * KIB,
            mode,
            depth: 4,
            pattern,
        },
        files: 1,
        seed: 1,
        number: 1,
        limit: Duration::from_secs(60),
        bytes_max: None,
        cold: Cold::DropFile,
        stop,
    }
}

#[test]
fn wrong_bytes_are_no_result() {
    let stop = AtomicBool::new(false);
    let dir = tempfile::tempdir().unwrap();
    let mut ground = folder(dir.path(), false);
    ground.fill(1 << 20, 1, None, &stop).unwrap();
    for mode in [Mode::Cached, Mode::Direct] {
        match ground.pass(&pass(Pattern::RandomRead, mode, &stop)) {
            Ok(sample) => assert_eq!(sample.operations, 256),
            Err(PassError::Unsupported { why, .. }) => println!("skipped: {why}"),
            Err(error) => panic!("{error}"),
        }
    }
    let file = fs::read_dir(ground.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let file = fs::File::options().write(true).open(file).unwrap();
    file.write_at(&[7; 8], 40 * KIB).unwrap();
    let error = ground
        .pass(&pass(Pattern::Strided, Mode::Cached, &stop))
        .unwrap_err();
    assert!(matches!(error, PassError::Wrong(_)), "{error}");
    assert!(error.to_string().contains("40960"), "{error}");
    // A file that is too short is an error as well.
    file.set_len(100 * KIB).unwrap();
    assert!(
        ground
            .pass(&pass(Pattern::RandomRead, Mode::Cached, &stop))
            .is_err()
    );
}

#[test]
fn a_pass_ends_at_its_limits() {
    let stop = AtomicBool::new(false);
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let tree = Arc::new(MemoryTree::new());
    let grounds: [Box<dyn Ground>; 3] = [
        Box::new(folder(dir.path(), false)),
        Box::new(folder(dir.path(), true)),
        Box::new(far(&tree, &runtime)),
    ];
    for mut ground in grounds {
        ground.fill(1 << 20, 1, None, &stop).unwrap();
        for depth in [1, 4] {
            let mut short = pass(Pattern::RandomWrite, Mode::Cached, &stop);
            short.key.depth = depth;
            short.bytes_max = Some(64 * KIB);
            let sample = ground.pass(&short).unwrap();
            // Requests in flight end.
            assert!(
                sample.cut && (64 * KIB..=80 * KIB).contains(&sample.bytes),
                "{sample:?}"
            );
            short.bytes_max = None;
            short.limit = Duration::ZERO;
            let sample = ground.pass(&short).unwrap();
            assert!(sample.cut && sample.operations == 0, "{sample:?}");
        }
        stop.store(true, Ordering::Relaxed);
        let stopped = ground.pass(&pass(Pattern::Write, Mode::Fsync, &stop));
        assert!(matches!(stopped, Err(PassError::Stopped)), "{stopped:?}");
        let names = NamePass {
            files: 10,
            depth: 2,
            stop: &stop,
        };
        assert!(matches!(ground.names(&names), Err(PassError::Stopped)));
        stop.store(false, Ordering::Relaxed);
        ground.finish();
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn files_that_do_not_fit_are_left_out_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = grid();
    wanted.sizes.push(1 << 60);
    let mut options = options(wanted, None);
    options.estimate = true;
    let stop = AtomicBool::new(false);
    let new = || report(dir.path(), &options);
    let (planned, ended) = run(&mut folder(dir.path(), false), new(), &options, &stop, &|_| ()).unwrap();
    assert_eq!((ended, planned.cells.len()), (Ended::Planned, 0));
    assert!(planned.left_out[0].what.contains("1073741824 GiB") || planned.left_out[0].what.contains("TiB"));
    let asked = Options {
        sizes_asked: true,
        ..options.clone()
    };
    let error = run(&mut folder(dir.path(), false), new(), &asked, &stop, &|_| ()).unwrap_err();
    assert!(error.to_string().contains("does not fit"), "{error}");
    assert!(is_empty(dir.path()));
}

#[test]
fn operations_are_recorded() {
    #[derive(Default)]
    struct Records(Mutex<Vec<(&'static str, String, u64, u64)>>);
    impl Observer for Records {
        fn now(&self) -> Duration {
            Duration::from_secs(1)
        }
        fn record(&self, record: Record<'_>) {
            let path = String::from_utf8_lossy(record.path).into_owned();
            self.0
                .lock()
                .push((record.kind, path, record.offset, record.length));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let records = Arc::new(Records::default());
    let options = FolderOptions {
        observer: Some(Arc::clone(&records) as Arc<dyn Observer>),
        ..FolderOptions::default()
    };
    let mut ground = Folder::open(dir.path(), options).unwrap();
    let stop = AtomicBool::new(false);
    let own = ground.path().file_name().unwrap().to_string_lossy().into_owned();
    for depth in [1, 4] {
        records.0.lock().clear();
        let mut write = pass(Pattern::Write, Mode::Fsync, &stop);
        write.key.depth = depth;
        ground.pass(&write).unwrap();
        let seen = records.0.lock();
        let kinds: Vec<&str> = seen.iter().map(|record| record.0).collect();
        assert_eq!((kinds[0], kinds[257], kinds[258]), ("create", "sync", "remove"));
        assert!(kinds[1..257].iter().all(|kind| *kind == "write"));
        let places: BTreeSet<u64> = seen[1..257].iter().map(|record| record.2).collect();
        assert_eq!(places.len(), 256);
        assert!(
            seen.iter().all(|record| record.1 == format!("{own}/new-0")),
            "{:?}",
            seen[0]
        );
    }
}
