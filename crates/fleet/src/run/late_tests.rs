use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;

use ropeway_vfs::clock::simulate;
use ropeway_vfs::{Clock, FileId, MemoryTree, MetadataChange, RelPath, Tree};

use crate::catalog::{Record, SegmentId, State};
use crate::claim::{ClaimId, Epoch};
use crate::error::Error;
use crate::job::{EndRules, JobFile};
use crate::late::Groups;
use crate::run::world::{CATALOG, World, path};
use crate::run::{Ended, WorkOptions};
use crate::source_mark::SourceMark;
use crate::status::Reader;
use crate::store::{Runs, Store};
use crate::task::{Task, Work};
use crate::worker::SliceLimits;
use crate::workers::WorkerId;

fn copies(records: &[Record]) -> usize {
    let is_copy = |record: &&Record| matches!(record.state, State::Copied { .. });
    records.iter().filter(is_copy).count()
}

fn has_failed(records: &[Record]) -> bool {
    let has_failed = |record: &Record| matches!(record.state, State::Failed(_));
    records.iter().any(has_failed)
}

/// Returns the paths of what failed, each once.
fn failures(records: &[Record]) -> Vec<String> {
    let is_failed = |record: &&Record| matches!(record.state, State::Failed(_));
    let failed: BTreeSet<String> = (records.iter().filter(is_failed))
        .map(|record| record.path.to_string())
        .collect();
    failed.into_iter().collect()
}

/// Seed 2649 of the simulation: a lost reply was taken for a file that is not there.
#[test]
fn a_lost_connection_does_not_copy_a_file_with_several_names_again() {
    let world = World::new();
    let (source, target) = (&world.source, &world.target);
    let records = world.run(Arc::clone(source) as _, Arc::clone(target) as _);
    assert_eq!(copies(&records), 1);
    // The first examination of each name is that of the walk.
    for rule in ["path=t/a,nth=2", "path=t/a,nth=3", "path=t/b,nth=2"] {
        let target = world.faulty(target, &format!("stat:{rule},kind=network,times=1"));
        let records = world.run(Arc::clone(source) as _, Arc::clone(&target) as _);
        assert_eq!(target.fired(), [1], "{rule}");
        assert_eq!(copies(&records), 0, "{rule}: {records:?}");
        assert!(!has_failed(&records), "{rule}: {records:?}");
        assert!(world.is_linked(), "{rule}");
    }
}

#[test]
fn a_connection_that_is_lost_at_one_name_fails_no_file() {
    for (end, name) in [("target", "t/a"), ("source", "a")] {
        let world = World::new();
        let rule = format!("stat:path={name},kind=network,times=1");
        let (source, target) = world.faulty_at(end, &rule);
        let records = world.run(Arc::clone(&source) as _, Arc::clone(&target) as _);
        assert_eq!([source.fired(), target.fired()].concat(), [1], "{end}");
        assert!(!has_failed(&records), "{end}: {records:?}");
        assert!(world.is_linked(), "{end}");
    }
}

#[test]
fn a_name_that_cannot_be_examined_is_listed_as_failed() {
    // First by the walk, then by the pass for links.
    for rule in ["nth=1", "nth=2"] {
        for kind in ["permission_denied", "device_error"] {
            let world = World::new();
            let source = world.faulty(&world.source, &format!("stat:path=a,{rule},kind={kind}"));
            let records = world.run(source, Arc::clone(&world.target) as _);
            let is_failed = |record: &&Record| matches!(record.state, State::Failed(_));
            let failed: Vec<&RelPath> = (records.iter().filter(is_failed))
                .map(|record| &record.path)
                .collect();
            assert_eq!(failed, [&path("a")], "{rule} {kind}: {records:?}");
            assert_eq!(world.target.content(&path("t/b")).unwrap(), b"content");
        }
    }
}

#[test]
fn a_damaged_segment_stops_the_worker_and_is_named() {
    let world = World::new();
    let (source, target) = (Arc::clone(&world.source), Arc::clone(&world.target));
    let tree = |tree: &Arc<MemoryTree>| Arc::clone(tree) as Arc<dyn Tree>;
    let claim = ClaimId {
        task: Task::root().id(),
        epoch: Epoch(1),
    };
    let segment = SegmentId { claim, number: 0 };
    let dead = Store::new(tree(&target), path(CATALOG), WorkerId(9));
    simulate(&world.clock, async {
        dead.create(&JobFile::new("s".to_owned(), "t".to_owned()))
            .await
            .unwrap();
        dead.begin(claim).await.unwrap();
        dead.publish_segment(segment, b"damaged").await.unwrap();
    });
    let (crew, _) = world.crew(tree(&source), tree(&target), WorkOptions::default());
    let error = simulate(&world.clock, crew.work()).unwrap_err();
    assert!(error.to_string().contains(&segment.to_string()), "{error}");
    // Nothing was copied on such ground, and the task is still there.
    assert!(target.content(&path("t/a")).is_err());
    let tasks = simulate(&world.clock, dead.tasks()).unwrap();
    assert_eq!(tasks, [Task::root().id()]);
}

/// The other names became links to the version of the job before.
#[test]
fn a_first_name_that_fails_leaves_no_name_of_the_old_file() {
    for (end, rule) in [
        ("source", "open:path=a,kind=permission_denied"),
        ("target", "rename:path=t/a,kind=permission_denied"),
    ] {
        let world = World::new();
        let (source, target) = (&world.source, &world.target);
        simulate(&world.clock, async {
            target.insert_file(&path("t/a"), b"old").unwrap();
            source.make_hard_link(&path("a"), &path("c")).await.unwrap();
        });
        let (from, to) = world.faulty_at(end, rule);
        let records = world.run(from, to);
        for name in ["t/b", "t/c"] {
            assert!(target.content(&path(name)).is_err(), "{end}: {name}");
        }
        assert_eq!(target.content(&path("t/a")).unwrap(), b"old", "{end}");
        assert_eq!(failures(&records), ["a", "b", "c"], "{end}");
    }
}

/// Machines know one device under different numbers.
#[test]
fn names_listed_with_other_device_numbers_are_one_file() {
    let mut groups = Groups::new(0, 1);
    for (volume, name) in [(1, "a"), (2, "b")] {
        groups.add(FileId { volume, index: 7 }, path(name), 0);
    }
    assert_eq!(
        groups.finish().collect::<Vec<_>>(),
        [[(path("a"), 0), (path("b"), 0)]]
    );
}

/// Seed 7163 of the simulation: a kill cost all of these files, whatever the size of a slice was.
#[test]
fn files_with_several_names_are_copied_in_slices() {
    for (files_max, bytes_max, most) in [(2, 1 << 20, 2), (100, 1, 1)] {
        let world = World::new();
        for number in 0..7 {
            let (first, second) = (path(&format!("f{number}")), path(&format!("g{number}")));
            world.source.insert_file(&first, b"content").unwrap();
            simulate(&world.clock, world.source.make_hard_link(&first, &second)).unwrap();
        }
        let options = WorkOptions {
            slice: SliceLimits {
                files_max,
                bytes_max,
                ..SliceLimits::default()
            },
            ..WorkOptions::default()
        };
        let (source, target) = (&world.source, &world.target);
        let segments = world.segments(Arc::clone(source) as _, Arc::clone(target) as _, options);
        assert!(
            segments.iter().all(|records| copies(records) <= most),
            "{segments:?}"
        );
        let all: Vec<Record> = segments.concat();
        assert_eq!((copies(&all), has_failed(&all)), (8, false));
    }
}

#[test]
fn the_attributes_of_a_folder_are_not_set_on_a_file_in_its_place() {
    let world = World::new();
    let (source, target) = (&world.source, &world.target);
    let mode = || {
        simulate(&world.clock, target.metadata(&path("t/d")))
            .unwrap()
            .mode
    };
    simulate(&world.clock, source.make_dir(&path("d"), 0o711)).unwrap();
    target.insert_file(&path("t/d"), b"of somebody").unwrap();
    let before = mode();
    assert_ne!(before, Some(0o711));
    let records = world.run(Arc::clone(source) as _, Arc::clone(target) as _);
    assert_eq!(mode(), before);
    assert_eq!(failures(&records), ["d"]);
}

#[test]
fn one_node_that_cannot_be_used_stops_nobody() {
    for kind in ["busy", "device_error"] {
        for (end, rule, name) in [
            ("source", "list:path=d", "d"),
            ("source", "open:path=d/f", "d/f"),
            ("target", "rename:path=t/d/f", "d/f"),
            ("target", "rename:path=t/b", "b"),
            ("target", "set_attributes:path=t/d", "d"),
        ] {
            let world = World::new();
            simulate(&world.clock, world.source.make_dir(&path("d"), 0o755)).unwrap();
            world.source.insert_file(&path("d/f"), b"content").unwrap();
            let rule = format!("{rule},kind={kind}");
            let (source, target) = world.faulty_at(end, &rule);
            let records = world.run(Arc::clone(&source) as _, Arc::clone(&target) as _);
            assert!([source.fired(), target.fired()].concat()[0] > 0, "{rule}");
            assert_eq!(failures(&records), [name], "{rule}: {records:?}");
        }
    }
}

/// A source that was moved, or unmounted and mounted again, within a second left files out of a job that was
/// complete.
#[test]
fn what_is_not_there_for_a_moment_fails_and_is_copied_by_a_resume() {
    let rules = [
        ("list:path=d", "d"),
        ("open:path=d/f", "d/f"),
        ("stat:path=d", "d"),
        ("stat:path=b", "b"),
        ("open:path=a", "a"),
    ];
    for (rule, name) in rules {
        for is_back in [true, false] {
            let world = World::new();
            simulate(&world.clock, world.source.make_dir(&path("d"), 0o755)).unwrap();
            world.source.insert_file(&path("d/f"), b"content").unwrap();
            let source = world.faulty(&world.source, &format!("{rule},kind=not_found,times=1"));
            let target = Arc::clone(&world.target) as Arc<dyn Tree>;
            let (crew, store) = world.crew(Arc::clone(&source) as _, target, WorkOptions::default());
            simulate(&world.clock, async {
                let job = JobFile::new("s".to_owned(), "t".to_owned());
                store.create(&job).await.unwrap();
                assert_eq!(crew.work().await.unwrap(), Ended::Complete);
                assert_eq!(source.fired(), [1], "{rule}");
                let failed = Reader::default().failures(&store).await.unwrap();
                assert!(failed.contains_key(&path(name)), "{rule}: {failed:?}");
                if !is_back {
                    world.source.remove_file(&path("d/f")).await.unwrap();
                    world.source.remove_dir(&path("d")).await.unwrap();
                    world.source.remove_file(&path("b")).await.unwrap();
                }
            });
            let target = Arc::clone(&world.target) as Arc<dyn Tree>;
            let (crew, store) = world.crew(Arc::clone(&world.source) as _, target, WorkOptions::default());
            simulate(&world.clock, async {
                let mut failed = Reader::default().failures(&store).await.unwrap();
                // The folder of a file that was asked for again may be missed for the first time.
                for round in 0..if is_back { 1 } else { 2 } {
                    Reader::default().retry(&store, round).await.unwrap();
                    assert_eq!(crew.work().await.unwrap(), Ended::Complete);
                    failed = Reader::default().failures(&store).await.unwrap();
                }
                assert!(failed.is_empty(), "{rule}: {failed:?}");
            });
            if is_back {
                assert_eq!(
                    world.target.content(&path("t/d/f")).unwrap(),
                    b"content",
                    "{rule}"
                );
                assert!(world.is_linked(), "{rule}");
            }
        }
    }
}

/// A worker whose source was not mounted found empty folders, and reported its tasks as done.
#[test]
fn a_worker_without_the_source_of_the_job_is_refused_and_reports_nothing_as_done() {
    let world = World::new();
    for number in 0..20 {
        let file = path(&format!("f{number}"));
        world.source.insert_file(&file, b"content").unwrap();
    }
    let tree = |tree: &Arc<MemoryTree>| Arc::clone(tree) as Arc<dyn Tree>;
    let full = tree(&world.source);
    let random = &mut fastrand::Rng::with_seed(1);
    let mark = simulate(&world.clock, SourceMark::take(&*full, random)).unwrap();
    let target = tree(&world.target);
    let rules = EndRules::between(full.capabilities(), target.capabilities());
    let job = JobFile::new("s".to_owned(), "t".to_owned()).of_ends(mark, rules);
    let work = |source: Arc<dyn Tree>| {
        let (crew, store) = world.crew(source, tree(&world.target), WorkOptions::default());
        (simulate(&world.clock, crew.work()), store)
    };
    let store = Store::new(Arc::clone(&target), path(CATALOG), WorkerId(7));
    simulate(&world.clock, store.create(&job)).unwrap();
    let (refused, store) = work(Arc::new(MemoryTree::new()));
    assert!(matches!(refused, Err(Error::OtherSource(found)) if found.found == 0));
    assert_eq!(
        simulate(&world.clock, store.claims())
            .unwrap()
            .last(Task::root().id()),
        None
    );
    let ignoring = ropeway_vfs::Capabilities {
        case_sensitive: false,
        ..full.capabilities().clone()
    };
    let other = Arc::new(MemoryTree::new().with_capabilities(ignoring));
    let other_rules = EndRules::between(full.capabilities(), other.capabilities());
    let mark = job.mark.clone();
    let wrong = job.of_ends(mark, other_rules);
    simulate(&world.clock, async {
        store.remove().await.unwrap();
        store.create(&wrong).await.unwrap();
    });
    assert!(matches!(work(Arc::clone(&full)).0, Err(Error::OtherRules)));
}

#[test]
fn a_source_that_is_unmounted_while_a_worker_works_ends_no_task() {
    let world = World::new();
    let tree = |tree: &Arc<MemoryTree>| Arc::clone(tree) as Arc<dyn Tree>;
    let random = &mut fastrand::Rng::with_seed(1);
    let mark = simulate(&world.clock, SourceMark::take(&*world.source, random)).unwrap();
    let rules = EndRules::between(world.source.capabilities(), world.target.capabilities());
    let job = JobFile::new("s".to_owned(), "t".to_owned()).of_ends(mark, rules);
    let (crew, store) = world.crew(tree(&world.source), tree(&world.target), WorkOptions::default());
    simulate(&world.clock, async {
        store.create(&job).await.unwrap();
        crew.check_ends().await.unwrap();
        world.source.remove_file(&path("a")).await.unwrap();
        world.source.remove_file(&path("b")).await.unwrap();
        assert!(matches!(crew.work().await, Err(Error::OtherSource(_))));
        assert_eq!(store.done_tasks().await.unwrap(), []);
    });
}

/// A folder that is divided among tasks, and a resume, copied one of two such names over the other;
/// folders were merged.
#[test]
fn of_names_that_the_target_takes_for_one_the_first_is_copied_and_the_others_fail() {
    let ignores_case = ropeway_vfs::Capabilities {
        case_sensitive: false,
        ..MemoryTree::new().capabilities().clone()
    };
    for entries_max in [3, 4, 5, 100] {
        let world = World::new();
        let world = World {
            target: Arc::new(MemoryTree::new().with_capabilities(ignores_case.clone())),
            ..world
        };
        simulate(&world.clock, world.target.make_dir(&path("t"), 0o700)).unwrap();
        for folder in ["Sub", "sub"] {
            simulate(&world.clock, world.source.make_dir(&path(folder), 0o755)).unwrap();
        }
        let files = ["Name", "m", "n", "nAME", "name", "Sub/one", "sub/two", "zz", "ZZ"];
        for file in files {
            world.source.insert_file(&path(file), file.as_bytes()).unwrap();
        }
        let mut options = WorkOptions::default();
        options.walk.entries_max = entries_max;
        let tree = |tree: &Arc<MemoryTree>| Arc::clone(tree) as Arc<dyn Tree>;
        let (crew, store) = world.crew(tree(&world.source), tree(&world.target), options);
        let check = || {
            let copied = |name: &str| world.target.content(&path(&format!("t/{name}")));
            for (name, content) in [("name", "Name"), ("sub/one", "Sub/one"), ("zz", "ZZ"), ("m", "m")] {
                assert_eq!(copied(name).unwrap(), content.as_bytes(), "{entries_max}: {name}");
            }
            assert!(copied("sub/two").is_err(), "{entries_max}");
            let failed = simulate(&world.clock, Reader::default().failures(&store)).unwrap();
            let failed: Vec<String> = failed.keys().map(ToString::to_string).collect();
            assert_eq!(failed, ["nAME", "name", "sub", "zz"], "{entries_max}");
        };
        simulate(&world.clock, async {
            let job = JobFile::new("s".to_owned(), "t".to_owned());
            store.create(&job).await.unwrap();
            assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        });
        check();
        let (crew, store) = world.crew(tree(&world.source), tree(&world.target), options);
        simulate(&world.clock, async {
            assert_eq!(Reader::default().retry(&store, 0).await.unwrap(), 4);
            assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        });
        check();
    }
}

/// The folder is a catalog; a file is somebody's own.
#[test]
fn of_names_like_that_of_a_catalog_only_folders_are_left_out() {
    let world = World::new();
    for folder in ["d", "d/.ropeway-fleet-old"] {
        simulate(&world.clock, world.source.make_dir(&path(folder), 0o755)).unwrap();
    }
    for file in [
        "d/.ropeway-fleet-notes",
        ".ropeway-fleetx",
        "d/.ropeway-fleet-old/job",
    ] {
        world.source.insert_file(&path(file), b"content").unwrap();
    }
    world.run(Arc::clone(&world.source) as _, Arc::clone(&world.target) as _);
    for file in ["t/d/.ropeway-fleet-notes", "t/.ropeway-fleetx"] {
        assert_eq!(world.target.content(&path(file)).unwrap(), b"content", "{file}");
    }
    assert!(world.target.content(&path("t/d/.ropeway-fleet-old/job")).is_err());
}

/// The same tree under two names, as a bind mount or a share makes it.
#[test]
fn a_source_that_holds_the_target_is_refused() {
    let world = World::new();
    let tree = Arc::clone(&world.target) as Arc<dyn Tree>;
    let runs = Runs::new(Arc::clone(&tree), path(CATALOG), WorkerId(7));
    let job = JobFile::new("s".to_owned(), "t".to_owned());
    let store = simulate(&world.clock, runs.submit(None, 5, &job))
        .unwrap()
        .unwrap();
    world.target.insert_file(&path("zz"), b"content").unwrap();
    let crew = world.crew_with(Arc::new(store), Arc::clone(&tree), tree, WorkOptions::default());
    let refused = simulate(&world.clock, crew.work());
    assert!(matches!(refused, Err(Error::Nested)), "{refused:?}");
    assert!(world.target.content(&path("t/zz")).is_err());
}

/// The attributes of folders are set where they are: nothing that is gone keeps a late worker away.
#[test]
fn a_worker_that_slept_sets_no_attributes_after_its_task_was_given_away() {
    let world = World::new();
    for number in 0..100 {
        let folder = path(&format!("d{number:02}"));
        simulate(&world.clock, world.source.make_dir(&folder, 0o750)).unwrap();
    }
    // It sleeps in the attributes of one of the first folders, for two leases.
    let rule = "set_attributes:path=t/d90,delay=120s,times=1";
    let slow = world.faulty(&world.target, rule);
    let tree = |tree: &Arc<MemoryTree>| Arc::clone(tree) as Arc<dyn Tree>;
    let counted = world.faulty(&world.target, "");
    let worker = |id, target: Arc<dyn Tree>| {
        let store = Arc::new(Store::new(Arc::clone(&target), path(CATALOG), WorkerId(id)));
        world.crew_with(store, tree(&world.source), target, WorkOptions::default())
    };
    let (sleeper, other) = (worker(1, slow), worker(2, counted));
    simulate(&world.clock, async {
        let job = JobFile::new("s".to_owned(), "t".to_owned());
        sleeper.store.create(&job).await.unwrap();
        let task = Task {
            round: 0,
            work: Work::FolderTimes,
        };
        // All but the last task is done.
        assert_eq!(other.work().await.unwrap(), Ended::Complete);
        let (done, tasks) = (path(&format!("{CATALOG}/done/{}", task.id())), [task.clone()]);
        world.target.remove_file(&done).await.unwrap();
        for store in [&sleeper.store, &other.store] {
            store.birth(&tasks[0]).await.unwrap();
        }
        let claim = |epoch| ClaimId {
            task: task.id(),
            epoch: Epoch(epoch),
        };
        sleeper.store.begin(claim(1)).await.unwrap();
        let (late, wakes) = (pin!(sleeper.run_folder_times(claim(1), 0)), async {
            world
                .clock
                .sleep_until(world.clock.now() + Duration::from_secs(60))
                .await;
            other.store.begin(claim(2)).await.unwrap();
            other.run_folder_times(claim(2), 0).await.unwrap();
            let change = MetadataChange {
                mode: Some(0o700),
                ..MetadataChange::default()
            };
            for number in 0..70 {
                let folder = path(&format!("t/d{number:02}"));
                world.target.set_metadata(&folder, &change).await.unwrap();
            }
        });
        let (late, ()) = join(late, wakes).await;
        assert!(late.is_err_and(|error| error.ends_claim_only()));
        for number in 0..70 {
            let folder = path(&format!("t/d{number:02}"));
            let mode = world.target.metadata(&folder).await.unwrap().mode;
            assert_eq!(mode, Some(0o700), "{folder}");
        }
    });
}
