//! Makes a scenario from a seed: two trees, options, and what goes wrong in which run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use ropeway_copy::{Backup, Changing, Delete, Durability, Options, Sizes, Verification};
use ropeway_plan::{Backoff, Engine};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{
    CacheMode, Capabilities, ErrorKind, HashAlgorithm, MetadataChange, Op, RelPath, Timestamp, Tree, Xattr,
};

use super::snapshot::{now, path};
use super::world::{Fault, FaultKind, Happening, Side, Stop, World};

/// What the source ever held.
#[derive(Default)]
pub struct Known {
    contents: BTreeMap<Vec<u8>, Vec<Arc<Vec<u8>>>>,
    /// The paths that each file ever had. A job that has opened a file reads the file's new content
    /// also if the path became another file meanwhile.
    paths: BTreeMap<u64, BTreeSet<Vec<u8>>>,
}

impl Known {
    /// Returns every content that a file of this path ever had.
    pub fn of(&self, path: &[u8]) -> &[Arc<Vec<u8>>] {
        self.contents.get(path).map_or(&[], Vec::as_slice)
    }

    /// Whether there ever was a node of this path.
    pub fn has(&self, path: &[u8]) -> bool {
        self.contents.contains_key(path)
    }
}

pub type Versions = Arc<Mutex<Known>>;

/// One run in which something may go wrong.
pub struct RunPlan {
    pub happenings: Vec<(u64, Happening)>,
    pub faults: Vec<Fault>,
    /// Another job copies the same source to the same place meanwhile.
    pub has_rival: bool,
    /// The power is cut after the run, unless the run was interrupted.
    pub cut_after: bool,
    pub changes_source: bool,
}

pub struct Scenario {
    pub options: Options,
    pub source: Arc<MemoryTree>,
    pub target: MemoryTree,
    /// Where the source's root is copied to.
    pub to: RelPath,
    pub runs: Vec<RunPlan>,
    pub versions: Versions,
    pub batches: bool,
    /// The target behaves like a share.
    pub is_remote: bool,
    pub tick: i64,
}

/// Returns sizes with which small files take every path through the program.
pub fn sizes() -> Sizes {
    Sizes {
        journal_min: 9_000,
        journal_every: 8_192,
        small_max: 6_000,
        long_min: 30_000,
        window: 12_288,
        reread_max: 6_000,
        reread_once_max: 40_000,
    }
}

const NAMES: [&str; 11] = [
    "a",
    "b",
    "c d",
    "e~",
    ".f",
    "g\n",
    "\u{fc}",
    ".ropeway-note",
    "h.txt",
    "I",
    "j",
];

fn size(random: &mut Rng) -> usize {
    match random.u8(..10) {
        0 => 0,
        1..5 => random.usize(1..6_000),
        5 => 4096,
        6..9 => random.usize(6_000..25_000),
        _ => random.usize(25_000..60_000),
    }
}

/// Returns random bytes, some of them with a page of zeroes for a hole.
pub fn content(random: &mut Rng, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    ropeway_vfs::memory::synthetic(random.u64(..), 0, &mut bytes);
    if size > 12_288 && random.u8(..4) == 0 {
        bytes[4096..8192].fill(0);
    }
    bytes
}

fn insert(tree: &MemoryTree, at: &RelPath, bytes: &[u8]) -> bool {
    let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    if bytes.len() <= 12_288 || !is_zero(&bytes[4096..8192]) {
        return tree.insert_file(at, bytes).is_ok();
    }
    // The zeroes are a hole.
    if tree.insert_file(at, bytes).is_err() {
        return false;
    }
    let options = ropeway_vfs::OpenOptions::write(ropeway_vfs::Create::No, CacheMode::Keep);
    let file = now(tree.open(at, options)).expect("it was made");
    now(file.punch_hole(4096, 4096)).expect("a hole can be made");
    true
}

fn attributes(random: &mut Rng, tree: &MemoryTree, at: &RelPath, is_dir: bool) {
    attributes_from(random, tree, at, is_dir, 1_600_000_000);
}

fn attributes_from(random: &mut Rng, tree: &MemoryTree, at: &RelPath, is_dir: bool, first: i128) {
    let seconds = first + i128::from(random.u32(..1_000));
    let nanos = [0, 500_000_000, 123_456_789][random.usize(..3)];
    let change = MetadataChange {
        mode: Some(if is_dir {
            0o755
        } else {
            [0o644, 0o600, 0o444][random.usize(..3)]
        }),
        modified: Some(Timestamp(seconds * 1_000_000_000 + nanos)),
        xattrs: (random.u8(..5) == 0).then(|| {
            vec![Xattr {
                name: b"user.note".to_vec(),
                value: vec![random.u8(..); 3],
            }]
        }),
        ..MetadataChange::default()
    };
    let _ = now(tree.set_metadata(at, &change));
}

/// Fills a folder with random nodes. `prefix` begins their names.
fn grow(random: &mut Rng, tree: &MemoryTree, top: &RelPath, nodes: usize, prefix: &str) {
    let mut folders = vec![top.clone()];
    let mut files: Vec<RelPath> = Vec::new();
    let mut all = Vec::new();
    for _ in 0..nodes {
        let dir = folders[random.usize(..folders.len())].clone();
        let name = NAMES[random.usize(..NAMES.len())];
        let name = format!("{prefix}{name}");
        let at = dir.join(&ropeway_vfs::Name::new(name.as_bytes()).expect("a valid name"));
        let made = match random.u8(..20) {
            0..5 if at.components().count() < 4 => {
                let made = now(tree.make_dir(&at, 0o755)).is_ok();
                if made {
                    folders.push(at.clone());
                    all.push((at.clone(), true));
                }
                continue;
            }
            5 | 6 => now(tree.make_symlink(&at, b"some/where")).is_ok(),
            7 | 8 if !files.is_empty() => {
                let existing = &files[random.usize(..files.len())];
                let _ = now(tree.make_hard_link(existing, &at));
                continue;
            }
            _ => {
                let size = size(random);
                let bytes = content(random, size);
                let made = insert(tree, &at, &bytes);
                if made {
                    files.push(at.clone());
                }
                made
            }
        };
        if made {
            all.push((at, false));
        }
    }
    for (at, is_dir) in all.into_iter().rev() {
        attributes(random, tree, &at, is_dir);
    }
}

fn capabilities(random: &mut Rng, is_remote: bool) -> Capabilities {
    let tree = MemoryTree::new();
    let mut can = tree.capabilities().clone();
    can.page_cache = !is_remote;
    can.journals_metadata = random.u8(..4) > 0;
    can.sparse = random.u8(..5) > 0;
    can.creation_times = random.bool();
    can.folder_renames = random.u8(..6) > 0;
    if random.u8(..8) == 0 {
        can.hard_links = false;
    }
    if random.u8(..8) == 0 {
        (can.modes, can.owners) = (false, false);
    }
    if random.u8(..8) == 0 {
        can.xattrs = false;
    }
    can.time_granularity_ns = match random.u8(..10) {
        0 => 2_000_000_000,
        1 | 2 => 100,
        _ => 1,
    };
    if random.u8(..10) == 0 {
        can.stable_ids = false;
    }
    if is_remote {
        can.remote = true;
        can.small_in_flight = 4;
        can.creation_times = true;
        can.journals_metadata = true;
    }
    can
}

fn options(random: &mut Rng, is_remote: bool) -> Options {
    let mut options = Options {
        durability: match random.u8(..10) {
            0..6 => Durability::End,
            6..8 => Durability::File,
            _ => Durability::None,
        },
        inplace: random.u8(..5) == 0,
        checksum: random.u8(..8) == 0,
        force: random.u8(..20) == 0,
        count: random.bool(),
        preflight: random.u8(..10) == 0,
        report_items: true,
        hard_links: random.u8(..6) > 0,
        changing: [Changing::Copy, Changing::Copy, Changing::Skip, Changing::Fail][random.usize(..4)],
        dirty_max: (random.u8(..4) == 0).then_some(20_000),
        cache: [CacheMode::Auto, CacheMode::Auto, CacheMode::Keep][random.usize(..3)],
        retry: Backoff {
            tries_max: random.u32(1..4),
            first: Duration::from_millis(5),
            ..Backoff::default()
        },
        ..Options::default()
    };
    match random.u8(..10) {
        0..3 => options.delete = Some(Delete::default()),
        3..5 => {
            options.move_source = true;
            if options.durability == Durability::None {
                options.durability = Durability::End;
            }
        }
        _ => {}
    }
    if random.u8(..5) == 0 && !is_remote {
        options.backup = Some(match random.bool() {
            true => Backup::Suffix(b".bak".to_vec()),
            false => Backup::Directory {
                base: path(b"old"),
                top: RelPath::root(),
            },
        });
    }
    if random.u8(..8) == 0 {
        options.verify = Verification {
            read_back: true,
            algorithm: HashAlgorithm::ALL[random.usize(..3)],
            manifest: None,
        };
    }
    if random.u8(..20) == 0 {
        options.engine = [Engine::Xp, Engine::Vista, Engine::VistaSp1][random.usize(..3)];
    }
    options
}

fn fault(random: &mut Rng, is_remote: bool) -> Fault {
    use ErrorKind as K;
    let side = match random.u8(..10) {
        0..2 => Side::Source,
        2 => Side::Journal,
        _ => Side::Target,
    };
    let kinds: &[ErrorKind] = match (side, is_remote) {
        (Side::Journal, _) => &[K::NoSpace, K::DeviceError],
        (Side::Source, _) => &[K::DeviceError, K::PermissionDenied, K::Busy, K::NotFound, K::Gone],
        (_, false) => &[
            K::DeviceError,
            K::DeviceError,
            K::NoSpace,
            K::PermissionDenied,
            K::Busy,
            K::Gone,
            K::Other,
            K::ReadOnly,
        ],
        (_, true) => &[
            K::Network,
            K::Network,
            K::TimedOut,
            K::NoSpace,
            K::ServerExhausted,
            K::Gone,
        ],
    };
    let kind = kinds[random.usize(..kinds.len())];
    let kind = match (random.u8(..10), side) {
        (0, Side::Source) => FaultKind::ShortRead,
        (0..3, Side::Target) if !is_remote => FaultKind::FailedFlush,
        (3..5, Side::Target) => FaultKind::LostAnswer(kind),
        (0..4, Side::Journal) => FaultKind::TornAppend,
        _ => FaultKind::Error(kind),
    };
    let ops = [
        Op::Open,
        Op::Create,
        Op::Read,
        Op::Write,
        Op::Sync,
        Op::Stat,
        Op::SetAttributes,
        Op::List,
        Op::MakeDir,
        Op::Remove,
        Op::Rename,
        Op::Link,
        Op::SetLength,
        Op::CopyRange,
    ];
    Fault {
        side,
        op: (random.u8(..4) > 0).then(|| ops[random.usize(..ops.len())]),
        per_mille: [5, 30, 200, 1_000][random.usize(..4)],
        times: [1, 1, 2, 5, u32::MAX][random.usize(..5)],
        kind,
    }
}

/// Returns a random step. Early ones are more frequent.
fn step(random: &mut Rng) -> u64 {
    let bound = 1 << random.u32(3..12);
    random.u64(1..bound)
}

impl Scenario {
    pub fn new(random: &mut Rng, world: &Arc<World>) -> Self {
        let is_remote = random.u8(..5) == 0;
        let can_source = Capabilities {
            hard_links: true,
            xattrs: true,
            modes: true,
            owners: true,
            ..capabilities(random, false)
        };
        let can_target = capabilities(random, is_remote);
        let clock = Arc::clone(&world.time);
        let source = MemoryTree::new()
            .with_clock(clock.clone())
            .with_capabilities(can_source);
        let target = MemoryTree::new()
            .with_clock(clock)
            .with_capabilities(can_target)
            .with_crash_model();
        let options = options(random, is_remote);
        let to = match random.u8(..4) {
            0 if options.delete.is_none() => RelPath::root(),
            _ => path(b"copy"),
        };
        let nodes = random.usize(2..16);
        grow(random, &source, &RelPath::root(), nodes, "");
        if random.u8(..5) > 0 {
            let _ = now(target.make_dir(&path(b"copy"), 0o755));
            seed_target(random, &source, &target, &to);
            let foreign = random.usize(..4);
            grow(random, &target, &to, foreign, "z");
        }
        let _ = now(target.make_dir(&path(b"other"), 0o755));
        grow(random, &target, &path(b"other"), 3, "");
        now(target.sync()).expect("nothing fails yet");
        world.time.pass(Duration::from_secs(60));
        let versions = Versions::default();
        remember(&source, &versions);
        let mut scenario = Self {
            batches: !is_remote && random.u8(..3) > 0,
            source: Arc::new(source),
            target,
            to,
            options,
            runs: Vec::new(),
            versions,
            is_remote,
            tick: 1,
        };
        for _ in 0..random.usize(1..4) {
            let plan = scenario.run_plan(random, world);
            scenario.runs.push(plan);
        }
        scenario
    }

    fn run_plan(&self, random: &mut Rng, world: &Arc<World>) -> RunPlan {
        let mut happenings = Vec::new();
        if random.u8(..3) > 0 {
            let stop = match random.u8(..10) {
                0..4 => Stop::Kill,
                4..9 => Stop::PowerCut,
                _ => Stop::Cancel,
            };
            happenings.push((step(random), Happening::Stop(stop)));
        }
        let changes_source = random.u8(..6) == 0 && !self.options.move_source;
        if changes_source {
            for _ in 0..random.usize(1..4) {
                let (tree, versions) = (Arc::clone(&self.source), Arc::clone(&self.versions));
                let (seed, world) = (random.u64(..), Arc::downgrade(world));
                let change = move || {
                    if let Some(world) = world.upgrade() {
                        // Changes within the time granularity of a tree look like one.
                        world.time.pass(Duration::from_secs(5));
                        let changed = change_source(&mut Rng::with_seed(seed), &tree, &versions);
                        world.note(|| format!("the source changes: {changed:?}"));
                        world.time.pass(Duration::from_secs(5));
                    }
                };
                happenings.push((step(random), Happening::Change(Box::new(change))));
            }
        }
        let faults = match random.u8(..3) {
            0 => 0,
            1 => 1,
            _ => random.usize(1..4),
        };
        RunPlan {
            happenings,
            faults: (0..faults).map(|_| fault(random, self.is_remote)).collect(),
            has_rival: random.u8(..10) == 0
                && !self.options.move_source
                && self.options.delete.is_none()
                && !self.options.inplace
                && self.options.backup.is_none(),
            cut_after: random.bool(),
            changes_source,
        }
    }
}

fn remember(source: &MemoryTree, versions: &Versions) {
    let mut versions = versions.lock().unwrap();
    let Known { contents, paths } = &mut *versions;
    for (at, node) in super::snapshot::snapshot(source) {
        contents.entry(at.clone()).or_default();
        let index = node.id.map(|id| id.index);
        let all = index.map(|index| paths.entry(index).or_default());
        let all = match all {
            Some(all) => {
                all.insert(at);
                all.clone()
            }
            None => BTreeSet::from([at]),
        };
        for at in all {
            let known = contents.entry(at).or_default();
            if !known.contains(&node.content) {
                known.push(Arc::clone(&node.content));
            }
        }
    }
}

/// Another program changes a file of the source. Returns which, and how.
fn change_source(random: &mut Rng, tree: &MemoryTree, versions: &Versions) -> Option<(RelPath, u8)> {
    let all: Vec<_> = super::snapshot::snapshot(tree).into_iter().collect();
    let files: Vec<_> = all
        .iter()
        .filter(|(_, node)| node.kind == ropeway_vfs::Kind::File)
        .collect();
    let mut changed = None;
    if !files.is_empty() {
        let (at, node) = files[random.usize(..files.len())];
        let at = path(at);
        let how = random.u8(..5);
        changed = Some((at.clone(), how));
        let open = || {
            let options = ropeway_vfs::OpenOptions::write(ropeway_vfs::Create::No, CacheMode::Keep);
            now(tree.open(&at, options)).expect("it is there")
        };
        match how {
            0 => {
                let _ = now(tree.remove_file(&at));
            }
            1 => {
                let _ = now(open().set_len(node.content.len() as u64 / 2));
            }
            2 => {
                let _ = now(tree.remove_file(&at));
                let size = size(random);
                let bytes = content(random, size);
                insert(tree, &at, &bytes);
            }
            _ => {
                let size = node.content.len().clamp(1, BLOCK_MAX);
                let bytes = content(random, size);
                let pool = ropeway_block::Pool::new(BLOCK_MAX, 1);
                let mut block = pool.try_get().expect("one block is free");
                block.capacity_mut()[..size].copy_from_slice(&bytes);
                block.set_len(size);
                let _ = now(open().write_at(block.freeze(), 0));
            }
        }
    }
    remember(tree, versions);
    changed
}

/// Most bytes that a change of the source writes.
const BLOCK_MAX: usize = 64 << 10;

/// Puts older copies of the source's nodes where the copy goes.
fn seed_target(random: &mut Rng, source: &MemoryTree, target: &MemoryTree, to: &RelPath) {
    for (at, node) in super::snapshot::snapshot(source) {
        let from = path(&at);
        let at = to.join_path(&from);
        let metadata = now(source.metadata(&from)).expect("it is there");
        let made = match (node.kind, random.u8(..6)) {
            (_, 0 | 1) => false,
            (ropeway_vfs::Kind::Directory, _) => now(target.make_dir(&at, 0o755)).is_ok(),
            (ropeway_vfs::Kind::File, 2 | 3) => {
                let made = insert(target, &at, &node.content);
                if made {
                    let xattrs = Some(node.xattrs.clone());
                    let change = MetadataChange::of(&metadata, &Default::default(), xattrs);
                    let _ = now(target.set_metadata(&at, &change));
                }
                continue;
            }
            (ropeway_vfs::Kind::File, 4) => {
                let bytes = content(random, node.content.len());
                insert(target, &at, &bytes)
            }
            (ropeway_vfs::Kind::Symlink, 2) => now(target.make_symlink(&at, b"else/where")).is_ok(),
            _ => {
                let size = size(random);
                let bytes = content(random, size);
                insert(target, &at, &bytes)
            }
        };
        if made {
            // Older than all of the source.
            attributes_from(
                random,
                target,
                &at,
                node.kind == ropeway_vfs::Kind::Directory,
                1_500_000_000,
            );
        }
        if made && node.kind == ropeway_vfs::Kind::File && random.u8(..8) == 0 {
            let name = format!("linked {}", random.u8(..4));
            let name = ropeway_vfs::Name::new(name.as_bytes()).expect("a valid name");
            let _ = now(target.make_hard_link(&at, &to.join(&name)));
        }
    }
}
