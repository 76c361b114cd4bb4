//! Jobs with an end that is far away: small files in one call each, many under way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway_copy::{Durability, JobSpec, Options, Outcome, RuntimeClock, Status, Verification};
use ropeway_vfs::decorate::faults::{FaultRule, Faults};
use ropeway_vfs::decorate::trace::Traced;
use ropeway_vfs::event::Event;
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::trace::{Observer, Record};
use ropeway_vfs::{Capabilities, End, MetadataChange, RelPath, Timestamp, Tree};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a plain path")
}

/// A tree like a share: far away, without owners and modes.
fn far() -> MemoryTree {
    let capabilities = Capabilities {
        time_granularity_ns: 100,
        owners: false,
        modes: false,
        xattrs: false,
        creation_times: true,
        remote: true,
        page_cache: false,
        small_in_flight: 256,
        ..MemoryTree::new().capabilities().clone()
    };
    MemoryTree::new().with_capabilities(capabilities)
}

async fn run(source: Arc<dyn Tree>, target: Arc<dyn Tree>, options: Options) -> (Outcome, Vec<Event>) {
    JobSpec::whole(source, target, path("copy"), options).run().await
}

/// Sizes around every class of blocks, and one that takes the long way.
const SIZES: [usize; 10] = [
    0,
    1,
    4096,
    65_535,
    65_536,
    70_000,
    1 << 20,
    3_333_333,
    4 << 20,
    5_000_000,
];

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 + size) as u8).collect()
}

async fn sample(tree: MemoryTree) -> Arc<MemoryTree> {
    for size in SIZES {
        let at = path(&format!("sub/{size}"));
        tree.insert_file(&at, &content(size)).unwrap();
        let change = MetadataChange {
            modified: Some(Timestamp(1_600_000_000_000_000_000 + size as i128 * 1000)),
            ..MetadataChange::default()
        };
        tree.set_metadata(&at, &change).await.unwrap();
    }
    tree.insert_file(&path("top"), b"top").unwrap();
    tree.insert_file(&path("sub/deep/er/file"), b"deep").unwrap();
    Arc::new(tree)
}

async fn assert_same(target: &MemoryTree) {
    for size in SIZES {
        let at = path(&format!("copy/sub/{size}"));
        assert_eq!(target.content(&at).unwrap(), content(size), "{size}");
        let modified = target.metadata(&at).await.unwrap().modified;
        assert_eq!(
            modified,
            Timestamp(1_600_000_000_000_000_000 + size as i128 * 1000),
            "{size}"
        );
    }
    assert_eq!(target.content(&path("copy/sub/deep/er/file")).unwrap(), b"deep");
    let mut listing = target.list(&path("copy/sub")).await.unwrap();
    let entries = listing.next(100).await.unwrap();
    assert_eq!(entries.len(), SIZES.len() + 1, "nothing is left over");
}

#[tokio::test]
async fn both_directions_and_every_durability_give_the_same_tree() {
    let bytes: u64 = SIZES.iter().map(|size| *size as u64).sum::<u64>() + 7;
    for durability in [Durability::None, Durability::File, Durability::End] {
        for (source, target) in [
            (MemoryTree::new(), far()),
            (far(), MemoryTree::new()),
            (far(), far()),
        ] {
            let (source, target) = (sample(source).await, Arc::new(target));
            let options = Options {
                durability,
                verify: Verification {
                    read_back: true,
                    algorithm: Default::default(),
                    ..Verification::default()
                },
                ..Options::default()
            };
            let (outcome, events) = run(source.clone(), target.clone(), options.clone()).await;
            assert_eq!(outcome.status, Status::Done, "{durability:?}: {events:?}");
            assert_same(&target).await;
            let counters = outcome.summary.counters;
            assert_eq!(counters.files_done, SIZES.len() as u64 + 2);
            assert_eq!(
                (counters.bytes_done, counters.bytes_sent, counters.bytes_read),
                (bytes, bytes, bytes)
            );
            if durability != Durability::None {
                assert_eq!(counters.bytes_durable, bytes, "{durability:?}");
            }
            let (again, _) = run(source, target, options).await;
            assert_eq!(again.summary.counters.bytes_sent, 0, "equal files are skipped");
        }
    }
}

/// The finished operations by name, and the bytes they moved.
#[derive(Default)]
struct Counted {
    operations: Mutex<HashMap<&'static str, (u64, u64)>>,
}

impl Counted {
    fn of(&self, kind: &str) -> (u64, u64) {
        self.operations
            .lock()
            .unwrap()
            .get(kind)
            .copied()
            .unwrap_or_default()
    }

    fn count(&self, kind: &str) -> u64 {
        self.of(kind).0
    }

    fn bytes(&self, kind: &str) -> u64 {
        self.of(kind).1
    }
}

impl Observer for Counted {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn record(&self, record: Record<'_>) {
        let mut operations = self.operations.lock().unwrap();
        let (count, bytes) = operations.entry(record.kind).or_default();
        *count += 1;
        *bytes += u64::try_from(record.result).unwrap_or(0);
    }
}

#[tokio::test]
async fn a_small_file_is_one_call_on_each_side() {
    let (source, target) = (MemoryTree::new(), far());
    for number in 0..300 {
        let at = path(&format!("dir{}/file{number}", number % 7));
        source.insert_file(&at, b"some content").unwrap();
    }
    let (read, written) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
    let source = Traced::new(Arc::new(source), read.clone(), End::Source);
    let target = Traced::new(Arc::new(target), written.clone(), End::Target);
    let (outcome, _) = run(source, target, Options::default()).await;
    assert_eq!(outcome.status, Status::Done);
    assert_eq!((read.count("read"), read.count("open")), (300, 0));
    assert_eq!((written.count("write"), written.count("create")), (300, 0));
    assert_eq!(written.bytes("write"), 300 * 12);
    assert!(
        written.count("rename") <= 1,
        "files have their names at once: {:?}",
        written.operations.lock().unwrap()
    );
}

#[tokio::test]
async fn a_replaced_file_is_the_old_or_the_new_one() {
    let source = sample(MemoryTree::new()).await;
    let target = Arc::new(far());
    for size in SIZES {
        target
            .insert_file(&path(&format!("copy/sub/{size}")), b"old")
            .unwrap();
    }
    let rule: FaultRule = "rename:contains=sub/65536,kind=permission_denied"
        .parse()
        .unwrap();
    let faults = Faults::new(target.clone(), vec![rule], Arc::new(RuntimeClock::new()));
    let (outcome, events) = run(source.clone(), faults, Options::default()).await;
    assert_eq!(outcome.summary.errors, 1, "{events:?}");
    assert_eq!(target.content(&path("copy/sub/65536")).unwrap(), b"old");
    assert_eq!(target.content(&path("copy/sub/65535")).unwrap(), content(65_535));
    let mut listing = target.list(&path("copy/sub")).await.unwrap();
    for entry in listing.next(100).await.unwrap() {
        assert!(
            !entry.name.to_string().starts_with(".ropeway"),
            "{entry:?} is left over"
        );
    }
    let (outcome, _) = run(source, target.clone(), Options::default()).await;
    assert_eq!(outcome.status, Status::Done);
    assert_same(&target).await;
}

#[tokio::test(start_paused = true)]
async fn passing_and_lasting_errors_cost_what_they_must() {
    let source = sample(far()).await;
    let target = Arc::new(MemoryTree::new());
    let rules = [
        "read:path=sub/4096,times=2,kind=network",
        "read:path=sub/70000,errno=EIO,times=1000",
    ];
    let rules = rules.iter().map(|rule| rule.parse::<FaultRule>().unwrap());
    let faults = Faults::new(source, rules.collect(), Arc::new(RuntimeClock::new()));
    let (outcome, events) = run(faults, target.clone(), Options::default()).await;
    assert_eq!(outcome.summary.errors, 1, "{events:?}");
    assert_eq!(target.content(&path("copy/sub/4096")).unwrap(), content(4096));
    assert!(
        target.content(&path("copy/sub/70000")).is_err(),
        "the lasting one is missing"
    );
    assert_eq!(outcome.summary.counters.files_done, SIZES.len() as u64 + 1);
}

#[tokio::test(start_paused = true)]
async fn many_are_under_way_where_each_call_takes_its_time() {
    let source = MemoryTree::new();
    for number in 0..3_000 {
        let at = path(&format!("dir{}/sub{}/file{number}", number % 10, number % 30));
        source.insert_file(&at, &content(1 + number)).unwrap();
    }
    let (source, target) = (Arc::new(source), Arc::new(far()));
    let rule: FaultRule = "any:delay=32ms".parse().unwrap();
    let distant = Faults::new(target.clone(), vec![rule], Arc::new(RuntimeClock::new()));
    let start = tokio::time::Instant::now();
    let (outcome, _) = run(source, distant, Options::default()).await;
    assert_eq!(outcome.status, Status::Done);
    assert_eq!(outcome.summary.counters.files_done, 3_000);
    // The faults split each file into five calls: 3,000 x 5 x 32 ms / 256 is 1.9 s.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// A connection that is lost after the server has carried out a request, and before it replies.
#[tokio::test(start_paused = true)]
async fn what_was_done_though_its_answer_was_lost_is_not_lost() {
    for op in [
        "make_dir",
        "create",
        "write",
        "set_attributes",
        "set_length",
        "rename",
    ] {
        for nth in 1..=8 {
            let rules = FaultRule::parse(&format!("{op}:kind=network,late=yes,nth={nth}")).unwrap();
            let target = Arc::new(far());
            let faulty = Faults::new(target.clone(), rules, Arc::new(RuntimeClock::new()));
            let source = sample(MemoryTree::new()).await;
            let (outcome, events) = run(source, faulty, Options::default()).await;
            assert_eq!(outcome.status, Status::Done, "{op} {nth}: {events:?}");
            assert_same(&target).await;
            let counters = outcome.summary.counters;
            assert_eq!(counters.files_done, SIZES.len() as u64 + 2, "{op} {nth}");
            assert_eq!(counters.bytes_durable, counters.bytes_done, "{op} {nth}");
        }
    }
}

/// What a server had not flushed may be lost with it. The file continues from its last flush, and
/// the job ends well.
#[tokio::test(start_paused = true)]
async fn a_flush_that_fails_costs_what_was_written_since_the_last_one() {
    const SIZE: u64 = 256 << 20;
    let source = Arc::new(MemoryTree::new());
    source.insert_synthetic(&path("big"), SIZE, 7).unwrap();
    let target = Arc::new(far());
    let rules = FaultRule::parse("write:delay=1s; sync:offset=0,nth=4,kind=network").unwrap();
    let faulty = Faults::new(target.clone(), rules, Arc::new(RuntimeClock::new()));
    let (outcome, events) = run(source.clone(), faulty.clone(), Options::default()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert_eq!(faulty.fired()[1], 1, "a flush failed");
    let same = target.content(&path("copy/big")).unwrap() == source.content(&path("big")).unwrap();
    assert!(same, "what was written is what is there");
    let sent = outcome.summary.counters.bytes_sent;
    assert!(sent > SIZE && sent < 2 * SIZE, "{sent} sent of {SIZE}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_flushes_ends_the_job_as_the_network_does() {
    let rules = FaultRule::parse("sync:kind=network").unwrap();
    let target = Arc::new(far());
    let faulty = Faults::new(target.clone(), rules, Arc::new(RuntimeClock::new()));
    let (outcome, events) = run(sample(MemoryTree::new()).await, faulty, Options::default()).await;
    assert_eq!(outcome.status, Status::Network, "{events:?}");
    assert_eq!(outcome.summary.counters.bytes_durable, 0);
}
