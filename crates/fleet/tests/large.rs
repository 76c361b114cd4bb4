//! Large files that several workers copy at once, with the real engine over local folders.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_block::Pool;
use ropeway_copy::RuntimeClock;
use ropeway_fleet::catalog::{Block, State};
use ropeway_fleet::claim::ClaimId;
use ropeway_fleet::error::Result;
use ropeway_fleet::job::JobFile;
use ropeway_fleet::parts::PartLimits;
use ropeway_fleet::queue::ShareQueue;
use ropeway_fleet::run::{Crew, Ended, Ends, EngineMover, WorkOptions};
use ropeway_fleet::status::Reader;
use ropeway_fleet::store::{Runs, Store};
use ropeway_fleet::task::Work;
use ropeway_fleet::workers::WorkerId;
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::{CacheMode, Clock, Create, File, OpenOptions, Tree};

use crate::engine::path;

const MIB: u64 = 1 << 20;

/// Longer than any pause of a busy machine, and short enough to wait for.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(2);

/// A job that copies `src` to `dst`, and its folder for what is not of the job.
struct Job {
    folder: tempfile::TempDir,
    scratch: tempfile::TempDir,
}

impl Job {
    fn new() -> Self {
        let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(folder.path().join("src/d")).unwrap();
        Self { folder, scratch }
    }

    fn at(&self, inside: &str) -> std::path::PathBuf {
        self.folder.path().join(inside)
    }

    fn target(&self) -> Arc<dyn Tree> {
        LocalTree::open(self.folder.path(), LocalOptions::default()).unwrap()
    }

    async fn submit(&self) {
        let runs = Runs::new(self.target(), path(".ropeway-fleet-dst"), WorkerId(99));
        let job = JobFile::new("src".to_owned(), "dst".to_owned());
        runs.submit(None, 7, &job).await.unwrap().unwrap();
    }

    async fn store(&self, worker: u64) -> Arc<Store> {
        let runs = Runs::new(self.target(), path(".ropeway-fleet-dst"), WorkerId(worker));
        let run = runs.newest().await.unwrap().unwrap();
        Arc::new(runs.join(run).await.unwrap())
    }

    async fn crew(&self, worker: u64, lease: Duration) -> Crew {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
        let store = self.store(worker).await;
        let mut options = WorkOptions {
            lease,
            poll: Duration::from_millis(50),
            ..WorkOptions::default()
        };
        options.slice.parts = PartLimits {
            file_min: MIB,
            length: 256 << 10,
            split_min: 64 << 10,
        };
        let queue = ShareQueue::new(Arc::clone(&store), Arc::clone(&clock), options.lease, worker);
        let source: Arc<dyn Tree> = LocalTree::open(&self.at("src"), LocalOptions::default()).unwrap();
        let target = self.target();
        let scratch = self.scratch.path().join(worker.to_string());
        fs::create_dir(&scratch).unwrap();
        let limit = RateLimit::unlimited(Arc::clone(&clock));
        let mover = EngineMover::new(Arc::clone(&source), Arc::clone(&target), scratch, limit);
        let ends = Ends::new(source, target, path("dst"));
        Crew::new(ends, (store, Arc::new(queue)), Arc::new(mover), clock, options)
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

/// Makes a file of about 5 MiB with a hole of 2 MiB, and attributes. Returns its content.
fn fill(at: &Path) -> Vec<u8> {
    let file = fs::File::create(at).unwrap();
    let (first, last) = (vec![7; MIB as usize], vec![9; (2 * MIB) as usize + 123]);
    file.write_all_at(&first, 0).unwrap();
    file.write_all_at(&last, 3 * MIB).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_500_000_000))
        .unwrap();
    fs::read(at).unwrap()
}

/// Returns the hashes of the large files in the catalog.
async fn hashes(store: &Store) -> Result<Vec<[u8; 32]>> {
    let mut hashes = Vec::new();
    for segment in store.segments(None).await? {
        for block in store.segment(segment).await? {
            if let Block::Records(records) = block {
                let joined = records
                    .iter()
                    .filter(|record| matches!(record.state, State::Joined { .. }));
                hashes.extend(joined.filter_map(|record| record.hash));
            }
        }
    }
    Ok(hashes)
}

#[test]
fn a_large_file_is_copied_in_parts_with_its_holes_attributes_and_hash() {
    let job = Job::new();
    let content = fill(&job.at("src/d/large"));
    fs::write(job.at("src/small"), "small").unwrap();
    run(async {
        job.submit().await;
        let (one, other) = (job.crew(1, LONG).await, job.crew(2, LONG).await);
        let (first, second) = tokio::join!(one.work(), other.work());
        assert_eq!(
            (first.unwrap(), second.unwrap()),
            (Ended::Complete, Ended::Complete)
        );
        let parts = |crew: &Crew| crew.counters.bytes.load(Ordering::Relaxed);
        // The bytes of parts, and of the small file.
        assert_eq!(parts(&one) + parts(&other), content.len() as u64 + 5);
        let store = job.store(3).await;
        assert_eq!(hashes(&store).await.unwrap(), [*blake3_of(&content)]);
        let status = Reader::default().status(&store).await.unwrap().unwrap();
        let sums = status.sums;
        assert_eq!((sums.files, sums.copied, sums.failed), (2, 2, 0));
        assert_eq!(
            (sums.bytes, sums.copied_bytes),
            (content.len() as u64 + 5, content.len() as u64 + 5)
        );
    });
    let copy = job.at("dst/d/large");
    assert!(fs::read(&copy).unwrap() == content);
    let (from, to) = (
        fs::metadata(job.at("src/d/large")).unwrap(),
        fs::metadata(&copy).unwrap(),
    );
    assert_eq!((from.mode(), from.mtime()), (to.mode(), to.mtime()));
    assert!(to.blocks() * 512 < 4 * MIB, "the hole is a hole: {}", to.blocks());
}

fn blake3_of(content: &[u8]) -> Box<[u8; 32]> {
    Box::new(ropeway_vfs::HashAlgorithm::Blake3.hash(content))
}

/// Claims a part as soon as there is one, opens the file that it is written into, and falls asleep.
async fn sleeper(store: &Store) -> Arc<dyn File> {
    let begun = std::time::Instant::now();
    while begun.elapsed() < LONG {
        for id in store.tasks().await.unwrap() {
            let Ok(Some(task)) = store.task(id).await else {
                continue;
            };
            let Work::Part(part) = &task.work else { continue };
            let epoch = store.next_epoch(id).await.unwrap();
            if epoch.0 > 1 || store.begin(ClaimId { task: id, epoch }).await.is_err() {
                continue;
            }
            let options = OpenOptions::write(Create::No, CacheMode::Keep);
            let large = store.large(part.file.id());
            return store.tree().open(&large, options).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the other worker has taken all parts");
}

/// A worker that slept wrote into a file that others had completed and named.
#[test]
fn a_worker_that_wakes_up_cannot_write_into_a_file_that_has_its_name() {
    let job = Job::new();
    let content = fill(&job.at("src/large"));
    run(async {
        job.submit().await;
        let (crew, store) = (job.crew(1, SHORT).await, job.store(2).await);
        let (asleep, worked) = tokio::join!(sleeper(&store), crew.work());
        assert_eq!(worked.unwrap(), Ended::Complete);
        assert_eq!(crew.renewed.load(Ordering::Relaxed), 1);
        let pool = Pool::new(4_096, 1);
        let mut block = pool.get().await;
        block.capacity_mut()[..3].copy_from_slice(b"old");
        block.set_len(3);
        asleep.write_at(block.freeze(), 0).await.unwrap();
        asleep.sync(false).await.unwrap();
    });
    let copy = job.at("dst/large");
    assert!(fs::read(&copy).unwrap() == content);
    // It was copied once more inside the target.
    let blocks = fs::metadata(copy).unwrap().blocks();
    assert!(blocks * 512 < 4 * MIB, "the hole is a hole: {blocks}");
}

/// The parts of a file that changes are of two versions.
#[test]
fn a_file_that_changed_between_its_parts_fails_and_is_copied_by_resume() {
    let job = Job::new();
    fill(&job.at("src/large"));
    let content = run(async {
        job.submit().await;
        let (crew, store) = (job.crew(1, SHORT).await, job.store(2).await);
        let (asleep, worked) = tokio::join!(
            async {
                let asleep = sleeper(&store).await;
                let file = fs::File::options().write(true).open(job.at("src/large")).unwrap();
                file.write_all_at(b"new", 4 * MIB).unwrap();
                asleep
            },
            crew.work()
        );
        drop(asleep);
        assert_eq!(worked.unwrap(), Ended::Complete);
        assert!(!job.at("dst/large").exists());
        let mut reader = Reader::default();
        let failures = reader.failures(&store).await.unwrap();
        assert_eq!(
            failures.keys().map(ToString::to_string).collect::<Vec<_>>(),
            ["large"]
        );
        assert_eq!(reader.status(&store).await.unwrap().unwrap().failed, 1);
        assert_eq!(reader.retry(&store, 0).await.unwrap(), 1);
        assert_eq!(job.crew(3, LONG).await.work().await.unwrap(), Ended::Complete);
        assert_eq!(Reader::default().status(&store).await.unwrap().unwrap().failed, 0);
        fs::read(job.at("src/large")).unwrap()
    });
    assert!(fs::read(job.at("dst/large")).unwrap() == content);
}
