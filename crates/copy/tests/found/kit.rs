//! A machine with a source, a target and journals in memory. A test can see each operation of a
//! job, change the trees meanwhile, and examine what power cuts at one moment leave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway_copy::{
    Environment, Job, JobKey, JobSpec, JournalSpec, JournalStore, Options, Outcome, Root, is_temporary,
};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{
    CacheMode, Capabilities, Create, MetadataChange, Op, OpenOptions, RelPath, Timestamp, Tree,
};

use crate::simulate::journals::MemoryJournals;
use crate::simulate::scenario::sizes;
use crate::simulate::snapshot::{now, snapshot};
use crate::simulate::tree::{Hook, SimTree, When};
use crate::simulate::world::{Fault, FaultKind, Side, World};

/// Number of outcomes of a power cut that are examined.
const CUTS: u64 = 64;

pub fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// Returns a hook that does nothing.
pub fn no_hook() -> Hook {
    Arc::new(|_, _, _| None)
}

pub fn hook(see: impl Fn(When, Op, &RelPath) -> Option<FaultKind> + Send + Sync + 'static) -> Hook {
    Arc::new(see)
}

/// Calls `act` before the first open of a file.
pub fn before_open(at: &str, act: impl Fn() + Send + Sync + 'static) -> Hook {
    let (wanted, is_done) = (path(at), AtomicBool::new(false));
    hook(move |when, op, at| {
        let is_one = when == When::Before && op == Op::Open && *at == wanted;
        if is_one && !is_done.swap(true, Ordering::Relaxed) {
            act();
        }
        None
    })
}

/// Makes a file, or gives it another content, and this modification time.
pub fn write(tree: &MemoryTree, at: &str, content: &[u8], seconds: i128) {
    let at = path(at);
    if tree.insert_file(&at, content).is_err() {
        let file = now(tree.open(&at, OpenOptions::write(Create::Truncate, CacheMode::Keep))).unwrap();
        let pool = ropeway_block::Pool::new(64 << 10, 1);
        let mut block = pool.try_get().unwrap();
        block.capacity_mut()[..content.len()].copy_from_slice(content);
        block.set_len(content.len());
        now(file.write_at(block.freeze(), 0)).unwrap();
    }
    let change = MetadataChange {
        modified: Some(Timestamp(seconds * 1_000_000_000)),
        ..MetadataChange::default()
    };
    now(tree.set_metadata(&at, &change)).unwrap();
}

/// Returns content that differs from that of every other number in each page.
pub fn content(number: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    ropeway_vfs::memory::synthetic(number, 0, &mut bytes);
    bytes
}

#[derive(Clone)]
pub struct Machine {
    pub source: Arc<MemoryTree>,
    pub target: Arc<MemoryTree>,
    pub options: Options,
    journals: MemoryJournals,
    world: Arc<World>,
    boot: u32,
}

impl Machine {
    pub fn new(options: Options) -> Self {
        Self::with(options, |_| {})
    }

    /// Makes a machine whose target has other capabilities.
    pub fn with(options: Options, change: impl FnOnce(&mut Capabilities)) -> Self {
        let world = World::new(1, false, 1);
        let mut can = MemoryTree::new().capabilities().clone();
        can.page_cache = true;
        let source = MemoryTree::new().with_capabilities(can.clone());
        change(&mut can);
        let target = MemoryTree::new().with_capabilities(can);
        Self {
            source: Arc::new(source.with_clock(world.time.clone())),
            target: Arc::new(target.with_clock(world.time.clone()).with_crash_model()),
            options: Options {
                report_items: true,
                ..options
            },
            journals: MemoryJournals::new(&world),
            world,
            boot: 1,
        }
    }

    /// Ends the set-up: what is there becomes durable, and a minute passes.
    pub fn begin(&self) {
        now(self.target.sync()).unwrap();
        self.world.time.pass(Duration::from_secs(60));
    }

    pub fn has_journal(&self) -> bool {
        self.journals
            .has_journal(&JobKey::new(&["source".to_owned()], "copy").id())
    }

    pub async fn run(&self) -> Outcome {
        self.run_hooked(no_hook(), no_hook()).await
    }

    /// Runs the job to its end.
    pub async fn run_hooked(&self, on_source: Hook, on_target: Hook) -> Outcome {
        let spec = JobSpec {
            roots: vec![Root {
                source_name: RelPath::root(),
                source: SimTree::hooked(&self.world, Side::Source, &self.source, on_source),
                source_path: RelPath::root(),
                target_path: path("copy"),
            }],
            target: SimTree::hooked(&self.world, Side::Target, &self.target, on_target),
            options: self.options.clone(),
            environment: Environment {
                clock: self.world.time.wall(),
                random: self.world.randomness(),
                boot_id: format!("boot {}", self.boot),
                user: 0,
                scratch: self.world.scratch(),
                sizes: sizes(),
            },
            journal: Some(JournalSpec {
                store: Arc::new(self.journals.clone()),
                key: JobKey::new(&["source".to_owned()], "copy"),
                sources: vec!["source".to_owned()],
                target: "copy".to_owned(),
            }),
        };
        self.world.start_time();
        let job = Job::new(spec).with_pool(ropeway_block::Pool::new(4096, 12));
        let outcome = job.run(Arc::new(|_| {})).await;
        self.world.stop_time();
        self.world.time.pass(Duration::from_secs(1));
        outcome
    }

    /// Makes the next append to a journal fail after a half of its bytes.
    pub fn tear_next_record(&self) {
        self.world.add_fault(Fault {
            side: Side::Journal,
            op: None,
            kind: FaultKind::TornAppend,
            per_mille: 1_000,
            times: 1,
        });
    }

    /// Returns what is left if the process is killed now.
    pub fn kill(&self) -> Self {
        now(self.target.sync()).unwrap();
        Self {
            target: Arc::new(self.target.crash(0)),
            journals: self.journals.snapshot(),
            ..self.clone()
        }
    }

    /// Removes the journals of this machine.
    pub fn forget(&self) {
        self.journals.clear();
    }

    /// Returns what power cuts at this moment can leave, after the next boot.
    pub fn cuts(&self) -> Vec<Self> {
        self.world.time.pass(Duration::from_secs(30));
        let cut = |seed| {
            let journals = self.journals.snapshot();
            journals.cut(seed);
            Self {
                target: Arc::new(self.target.crash(seed)),
                journals,
                boot: self.boot + 1,
                ..self.clone()
            }
        };
        (0..CUTS).map(cut).collect()
    }

    /// Runs until `is_moment` holds for an operation of the target, and returns what `left` makes
    /// of that moment.
    pub async fn run_until<T: Send + 'static>(
        &self,
        is_moment: impl Fn(When, Op, &RelPath) -> bool + Send + Sync + 'static,
        left: impl Fn(&Self) -> T + Send + Sync + 'static,
    ) -> T {
        let found: Arc<Mutex<Option<T>>> = Arc::default();
        let (slot, machine) = (Arc::clone(&found), self.clone());
        let see = move |when, op, at: &RelPath| {
            let mut slot = slot.lock().unwrap();
            if slot.is_none() && is_moment(when, op, at) {
                *slot = Some(left(&machine));
            }
            None
        };
        self.run_hooked(no_hook(), hook(see)).await;
        let found = found.lock().unwrap().take();
        found.expect("the moment comes")
    }

    /// Whether a file has the modification time of its source.
    pub fn has_time(&self, name: &str) -> bool {
        let modified =
            |tree: &MemoryTree, at: &str| now(tree.metadata(&path(at))).map(|found| found.modified);
        let copied = modified(&self.target, &format!("copy/{name}"));
        copied.is_ok_and(|time| Some(time) == modified(&self.source, name).ok())
    }

    pub fn content(&self, at: &str) -> Option<Vec<u8>> {
        self.target.content(&path(at)).ok()
    }

    /// Returns the temporary names on the target.
    pub fn temporaries(&self) -> Vec<String> {
        let all = snapshot(&self.target).into_keys();
        let all = all.map(|at| RelPath::parse(&at).unwrap());
        let found = all.filter(|at| at.file_name().is_some_and(|name| is_temporary(&name)));
        found.map(|at| at.to_string()).collect()
    }
}

/// Whether an operation is on the claim of a job in this folder.
pub fn is_claim_in(at: &RelPath, dir: &str) -> bool {
    let is_claim = |name: ropeway_vfs::Name| {
        matches!(
            ropeway_plan::Temporary::parse(&name),
            Some(ropeway_plan::Temporary::Claim { .. })
        )
    };
    at.parent() == Some(path(dir)) && at.file_name().is_some_and(is_claim)
}
