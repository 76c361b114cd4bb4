//! A target that becomes full at any moment, and a source that a worker may not read any more: workers stop in
//! order, and the job goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ropeway_fleet::job::{EndRules, JobFile};
use ropeway_fleet::partition::WalkLimits;
use ropeway_fleet::parts::PartLimits;
use ropeway_fleet::queue::ShareQueue;
use ropeway_fleet::run::{Crew, Ended, Ends, PlainMover, WorkOptions};
use ropeway_fleet::source_mark::SourceMark;
use ropeway_fleet::status::Reader;
use ropeway_fleet::store::Store;
use ropeway_fleet::worker::SliceLimits;
use ropeway_fleet::workers::{Activity, WorkerId};
use ropeway_vfs::clock::simulate;
use ropeway_vfs::decorate::{Action, Call, Done, Layer, Layered, Operation};
use ropeway_vfs::{Clock, MemoryTree, RelPath, Result, Tree, VirtualClock};

use crate::engine::path;

const CATALOG: &str = ".ropeway-fleet-t";
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

const EACCES: i32 = 13;

fn refused(call: &Call<'_>, errno: i32) -> ropeway_vfs::Error {
    let error = std::io::Error::from_raw_os_error(errno);
    ropeway_vfs::Error::from_io(call.action.op(), call.path, error)
}

/// A volume that is full after some operations that need room.
struct Full {
    left: Arc<AtomicI64>,
    /// A full ext4 may refuse a rename, too: a folder grows.
    renames_too: bool,
    errno: i32,
}

impl Layer for Full {
    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        let needs_room = match call.action {
            Action::Create
            | Action::MakeDir
            | Action::Symlink
            | Action::HardLink
            | Action::Write
            | Action::PutSmall
            | Action::SetLength => true,
            Action::Rename => self.renames_too,
            _ => false,
        };
        if needs_room && self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(refused(&call, self.errno));
        }
        operation().await
    }
}

/// Names of files with their content; the last one is large. The first gets a further name in [`World::new`].
fn files() -> Vec<(String, String)> {
    let mut files: Vec<_> = (0..12)
        .map(|number| {
            let name = match number % 3 {
                0 => format!("f{number}"),
                1 => format!("d/f{number}"),
                _ => format!("d/e/f{number}"),
            };
            let content = format!("content of {number}");
            (name, content)
        })
        .collect();
    files.push(("large".to_owned(), "0123456789abcdef".repeat(400)));
    files
}

struct World {
    clock: VirtualClock,
    source: Arc<MemoryTree>,
    target: Arc<MemoryTree>,
}

impl World {
    fn new() -> Self {
        let clock = VirtualClock::new();
        let (source, target) = (Arc::new(MemoryTree::new()), Arc::new(MemoryTree::new()));
        simulate(&clock, async {
            source.make_dir(&path("d"), 0o755).await.unwrap();
            source.make_dir(&path("d/e"), 0o755).await.unwrap();
            target.make_dir(&path("t"), 0o755).await.unwrap();
        });
        for (name, content) in files() {
            source.insert_file(&path(&name), content.as_bytes()).unwrap();
        }
        target.insert_file(&path("t/old"), b"only there").unwrap();
        simulate(&clock, source.make_hard_link(&path("f0"), &path("d/again"))).unwrap();
        Self {
            clock,
            source,
            target,
        }
    }

    fn crew(&self, worker: u64, target: &Arc<dyn Tree>) -> Crew {
        let source = Arc::clone(&self.source) as Arc<dyn Tree>;
        self.crew_of(worker, source, target)
    }

    fn crew_of(&self, worker: u64, source: Arc<dyn Tree>, target: &Arc<dyn Tree>) -> Crew {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let store = Arc::new(Store::new(Arc::clone(target), path(CATALOG), WorkerId(worker)));
        let options = WorkOptions {
            walk: WalkLimits {
                entries_max: 5,
                held_max: 8,
                split_min: 1,
            },
            slice: SliceLimits {
                files_max: 3,
                bytes_max: 1 << 20,
                parts: PartLimits {
                    file_min: 3_000,
                    length: 2_048,
                    split_min: 1_024,
                },
            },
            ..WorkOptions::default()
        };
        let queue = ShareQueue::new(Arc::clone(&store), Arc::clone(&clock), options.lease, worker);
        let mover = PlainMover::with_blocks(Arc::clone(&source), Arc::clone(target), 512);
        let ends = Ends::new(source, Arc::clone(target), path("t"));
        Crew::new(ends, (store, Arc::new(queue)), Arc::new(mover), clock, options)
    }

    /// What has a name is whole.
    fn is_whole(&self, all: bool) {
        let mut files = files();
        files.push(("d/again".to_owned(), files[0].1.clone()));
        for (name, content) in files {
            match self.target.content(&path(&format!("t/{name}"))) {
                Ok(copy) => assert_eq!(copy, content.as_bytes(), "{name}"),
                Err(error) => assert!(!all, "{name}: {error}"),
            }
        }
    }
}

/// Returns whether the volume became full before the job was complete.
fn run(room: i64, renames_too: bool, errno: i32) -> bool {
    let world = World::new();
    let left = Arc::new(AtomicI64::new(i64::MAX));
    let layer = Full {
        left: Arc::clone(&left),
        renames_too,
        errno,
    };
    let target: Arc<dyn Tree> = Layered::wrap(Arc::clone(&world.target) as _, layer);
    let (first, second) = (world.crew(1, &target), world.crew(2, &target));
    let job = JobFile::new("s".to_owned(), "t".to_owned()).with_deletions(true);
    let case = format!("room for {room} operations, renames {renames_too}");
    let is_full = simulate(&world.clock, async {
        assert!(first.store.create(&job).await.unwrap());
        left.store(room, Ordering::Relaxed);
        match first.work().await {
            Ok(ended) => {
                assert_eq!(ended, Ended::Complete, "{case}");
                false
            }
            Err(error) => {
                assert!(
                    error.is_full() && error.told().starts_with("target: "),
                    "{case}: {error}"
                );
                true
            }
        }
    });
    world.is_whole(!is_full);
    left.store(i64::MAX, Ordering::Relaxed);
    simulate(&world.clock, async {
        assert_eq!(second.work().await.unwrap(), Ended::Complete, "{case}");
        let failures = Reader::default().failures(&second.store).await.unwrap();
        assert!(failures.is_empty(), "{case}: {failures:?}");
    });
    world.is_whole(true);
    assert!(world.target.content(&path("t/old")).is_err(), "{case}");
    is_full
}

#[test]
fn at_whatever_operation_the_target_is_full_the_job_stops_and_goes_on() {
    for (renames_too, errno, step) in [(false, ENOSPC, 1), (true, EDQUOT, 5)] {
        let mut room = 0;
        while run(room, renames_too, errno) {
            room += step;
        }
        assert!(room > 100, "{room}");
    }
}

/// The others see why there is a worker less, and its task is theirs at once.
#[test]
fn a_worker_that_is_full_gives_its_task_back_and_says_why() {
    let world = World::new();
    let layer = FullStage::with_room_for(2);
    let full: Arc<dyn Tree> = Layered::wrap(Arc::clone(&world.target) as _, layer);
    let target: Arc<dyn Tree> = Arc::clone(&world.target) as _;
    let (first, second) = (world.crew(1, &full), world.crew(2, &target));
    let job = JobFile::new("s".to_owned(), "t".to_owned());
    simulate(&world.clock, async {
        assert!(first.store.create(&job).await.unwrap());
        assert!(matches!(first.work().await, Err(error) if error.is_full()));
        let beats = first.store.beats().await.unwrap();
        let (_, beat) = &beats[0];
        assert_eq!(beat.activity, Activity::Left);
        let reason = beat.reason.as_deref().unwrap_or_default();
        assert!(reason.starts_with("target: cannot write"), "{reason}");
        // What was whole makes room for the catalog.
        let stage = first.store.root().join_path(&path("stage"));
        for claim in names(&*target, &stage).await {
            assert_eq!(names(&*target, &claim).await, [], "{claim}");
        }
        let begun = world.clock.now();
        assert_eq!(second.work().await.unwrap(), Ended::Complete);
        assert!(world.clock.now() - begun < second.options.lease);
    });
    world.is_whole(true);
}

/// Returns the paths of the nodes in a folder.
async fn names(tree: &dyn Tree, folder: &RelPath) -> Vec<RelPath> {
    let names = tree.names_with_prefix(folder, b"").await.unwrap();
    names.iter().map(|name| folder.join(name)).collect()
}

/// Has room for the content of a few files, and for the small ones of the catalog.
struct FullStage(AtomicI64);

impl FullStage {
    fn with_room_for(writes: i64) -> Self {
        Self(AtomicI64::new(writes))
    }
}

impl Layer for FullStage {
    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        let stage = RelPath::parse(CATALOG.as_bytes()).is_some_and(|catalog| {
            let stage = catalog.join_path(&path("stage"));
            call.path.as_bytes().starts_with(stage.as_bytes())
        });
        if stage && call.action == Action::Write && self.0.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(refused(&call, ENOSPC));
        }
        operation().await
    }
}

/// An account that loses its rights after some operations that need them.
struct Revoked {
    left: AtomicI64,
    names_too: bool,
}

impl Layer for Revoked {
    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        let needs_rights = match call.action {
            Action::Open | Action::List | Action::GetSmall | Action::ReadLink => true,
            Action::Stat | Action::Lookup => self.names_too,
            _ => false,
        };
        if needs_rights && self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(refused(&call, EACCES));
        }
        operation().await
    }
}

/// Returns whether the worker lost its rights before the job was complete.
fn revoked(rights: i64, names_too: bool) -> bool {
    let world = World::new();
    let source = Arc::clone(&world.source) as Arc<dyn Tree>;
    let target = Arc::clone(&world.target) as Arc<dyn Tree>;
    let layer = Revoked {
        left: AtomicI64::new(rights),
        names_too,
    };
    let first = world.crew_of(1, Layered::wrap(Arc::clone(&source), layer), &target);
    let second = world.crew(2, &target);
    let random = &mut fastrand::Rng::with_seed(1);
    let mark = simulate(&world.clock, SourceMark::take(&*source, random)).unwrap();
    let rules = EndRules::between(source.capabilities(), target.capabilities());
    let job = JobFile::new("s".to_owned(), "t".to_owned()).of_ends(mark, rules);
    let case = format!("rights for {rights} operations, names {names_too}");
    simulate(&world.clock, async {
        assert!(first.store.create(&job).await.unwrap());
        let ended = first.work().await;
        if let Err(error) = &ended {
            let said = error.told();
            assert!(
                said.contains("ermission denied") || said.contains("not the source"),
                "{case}: {said}"
            );
        }
        assert_eq!(second.work().await.unwrap(), Ended::Complete, "{case}");
        let failures = Reader::default().failures(&second.store).await.unwrap();
        assert!(failures.is_empty(), "{case}: {failures:?}");
        world.is_whole(true);
        ended.is_err()
    })
}

/// It reported all further files as failed.
#[test]
fn a_worker_that_loses_its_rights_leaves_its_work_to_others() {
    for names_too in [false, true] {
        let mut rights = 0;
        while revoked(rights, names_too) {
            rights += 1;
        }
        assert!(rights > 20, "{rights}");
    }
}
