//! Runs one seed: first the job with faults, one to three times, then once in a healthy world. The
//! judge examines the trees after each run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use ropeway_block::Pool;
use ropeway_copy::{
    Durability, Environment, Job, JobKey, JobSpec, JournalSpec, Options, Outcome, Root, Status,
};
use ropeway_plan::Engine;
use ropeway_vfs::RelPath;
use ropeway_vfs::event::{Counters, Event};
use ropeway_vfs::memory::MemoryTree;

use super::journals::MemoryJournals;
use super::judge::{Judge, Moment};
use super::scenario::{RunPlan, Scenario, sizes};
use super::tree::{BLOCK, SimTree};
use super::world::{Fault, Happening, Side, Stop, World};

/// Number of healthy runs within which the job must be done.
const HEALTHY_RUNS_MAX: u32 = 1;

/// The result of a seed.
pub struct Verdict {
    pub faults: Vec<String>,
    pub trace: String,
}

/// The jobs of one run. The rival copies the same source to the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jobs {
    Own,
    Both,
    Rival,
}

/// The result of one run.
pub struct Ended {
    pub outcome: Option<Outcome>,
    pub counters: Counters,
    pub stop: Option<Stop>,
    /// A flush failed, and dirty pages are lost.
    pub has_lost: bool,
    /// Paths that were reported as done, and not as failed after that.
    pub items: BTreeSet<String>,
    pub events: Vec<String>,
    /// Paths that were reported as failed.
    pub failed: BTreeSet<String>,
    /// A file was copied once more, since it had changed meanwhile.
    pub repeats: bool,
}

struct History {
    world: Arc<World>,
    scenario: Scenario,
    target: MemoryTree,
    journals: MemoryJournals,
    boot: u32,
    /// A run with `Durability::None` has ended: what it wrote was not flushed.
    is_unsynced: bool,
    /// The power was cut after that, so that no later run can repair the target.
    is_beyond_help: bool,
}

/// Runs the history of one seed.
pub fn run(seed: u64, traced: bool) -> Verdict {
    let mut random = Rng::with_seed(seed);
    let tick = [1, 4_000_000][random.usize(..2)];
    let world = World::new(random.u64(..), traced, tick);
    let mut scenario = Scenario::new(&mut random, &world);
    world.note(|| format!("seed {seed} {:?} to {:?}", scenario.options, scenario.to));
    world.note(|| format!("target {:?}", ropeway_vfs::Tree::capabilities(&scenario.target)));
    let runs = std::mem::take(&mut scenario.runs);
    let mut history = History {
        target: scenario.target.reopen(),
        journals: MemoryJournals::new(&world),
        world,
        scenario,
        boot: 1,
        is_unsynced: false,
        is_beyond_help: false,
    };
    let mut judge = Judge::new(&history.scenario, &history.target);
    for (number, plan) in runs.into_iter().enumerate() {
        history
            .world
            .note(|| format!("run {number}, boot {}", history.boot));
        let is_over = history.faulty(&mut random, plan, &mut judge);
        if is_over || !judge.faults.is_empty() {
            break;
        }
    }
    if judge.faults.is_empty() && !history.is_beyond_help {
        history.healthy(&mut random, &mut judge);
    }
    Verdict {
        faults: judge.faults,
        trace: history.world.take_trace(),
    }
}

impl History {
    /// Runs the job with faults. Returns whether the history ends here.
    fn faulty(&mut self, random: &mut Rng, plan: RunPlan, judge: &mut Judge) -> bool {
        let RunPlan {
            happenings,
            faults,
            has_rival,
            cut_after,
            changes_source,
        } = plan;
        judge.source_changes |= changes_source;
        judge.had_rival |= has_rival;
        judge.has_rival = has_rival;
        judge.before_run(&self.scenario.source);
        let jobs = if has_rival { Jobs::Both } else { Jobs::Own };
        let ended = self.once(happenings, faults, jobs);
        self.world.time.pass(Duration::from_secs(1));
        let moment = Moment {
            ended: &ended,
            target: &self.target,
            source: &self.scenario.source,
            seed: random.u64(..),
            has_journal: self.has_journal(),
        };
        judge.after_run(&moment);
        let is_done = ended.outcome.is_some();
        let is_none = self.scenario.options.durability == Durability::None;
        self.is_unsynced |= is_none && is_done && !self.has_journal();
        // The other job may be done, too.
        self.is_unsynced |= is_none && has_rival && !self.has_journal_of("rival");
        let cut = ended.stop == Some(Stop::PowerCut) || (is_done && cut_after);
        if cut {
            // The journal was removed when the job was done, so no later run knows what to doubt.
            if self.is_unsynced {
                self.is_beyond_help = true;
                return true;
            }
            self.world.note(|| "cut".to_owned());
            self.target = self.target.crash(random.u64(..));
            self.journals.cut(random.u64(..));
            self.boot += 1;
            self.world.time.pass(Duration::from_secs(30));
            judge.after_cut(&self.target);
        }
        false
    }

    fn has_journal(&self) -> bool {
        self.has_journal_of("source")
    }

    fn has_journal_of(&self, name: &str) -> bool {
        let key = JobKey::new(&[name.to_owned()], "copy");
        ropeway_copy::JournalStore::has_journal(&self.journals, &key.id())
    }

    /// Runs the job to its end without faults.
    fn healthy(&mut self, random: &mut Rng, judge: &mut Judge) {
        judge.has_rival = false;
        for round in 1..=HEALTHY_RUNS_MAX {
            self.world
                .note(|| format!("healthy run {round}, boot {}", self.boot));
            judge.before_run(&self.scenario.source);
            let ended = self.once(Vec::new(), Vec::new(), Jobs::Own);
            let moment = Moment {
                ended: &ended,
                target: &self.target,
                source: &self.scenario.source,
                seed: random.u64(..),
                has_journal: self.has_journal(),
            };
            judge.after_run(&moment);
            let status = ended.outcome.as_ref().map(|outcome| outcome.status);
            if status == Some(Status::Done) || round == HEALTHY_RUNS_MAX {
                judge.at_end(&moment);
                let is_done = status == Some(Status::Done);
                if is_done && !self.journals.is_empty() && judge.faults.is_empty() && !judge.had_rival {
                    judge
                        .faults
                        .push("the journal of a finished job stays".to_owned());
                }
                if is_done && judge.had_rival && judge.faults.is_empty() {
                    self.healthy_rival(random, judge);
                }
                return;
            }
        }
    }

    /// Runs the other job to its end, so that nothing of it may stay.
    fn healthy_rival(&mut self, random: &mut Rng, judge: &mut Judge) {
        self.world
            .note(|| format!("healthy run of the rival, boot {}", self.boot));
        let ended = self.once(Vec::new(), Vec::new(), Jobs::Rival);
        let moment = Moment {
            ended: &ended,
            target: &self.target,
            source: &self.scenario.source,
            seed: random.u64(..),
            has_journal: false,
        };
        judge.after_rival(&moment);
        if !self.journals.is_empty() && judge.faults.is_empty() {
            judge.faults.push("a journal stays after both jobs".to_owned());
        }
    }

    fn spec(&self, environment: Environment, rival: bool) -> JobSpec {
        let scenario = &self.scenario;
        let world = &self.world;
        let source = SimTree::new(world, Side::Source, &scenario.source, scenario.batches);
        let target = SimTree::new(world, Side::Target, &self.target, scenario.batches);
        let name = if rival { "rival" } else { "source" };
        JobSpec {
            roots: vec![Root {
                source_name: RelPath::root(),
                source,
                source_path: RelPath::root(),
                target_path: scenario.to.clone(),
            }],
            target,
            options: scenario.options.clone(),
            environment,
            journal: Some(JournalSpec {
                store: Arc::new(self.journals.clone()),
                key: JobKey::new(&[name.to_owned()], "copy"),
                sources: vec![name.to_owned()],
                target: "copy".to_owned(),
            }),
        }
    }

    fn environment(&self) -> Environment {
        let boot_id = match self.scenario.is_remote {
            true => String::new(),
            false => format!("boot {}", self.boot),
        };
        Environment {
            clock: self.world.time.wall(),
            random: self.world.randomness(),
            boot_id,
            user: 0,
            scratch: self.scratch(),
            sizes: sizes(),
        }
    }

    /// Returns the folder for the hashes of a verification.
    fn scratch(&self) -> PathBuf {
        match self.scenario.options.verify.read_back {
            true => self.world.scratch(),
            // Nothing is written there.
            false => PathBuf::new(),
        }
    }

    /// Returns a pool of small blocks, so that small files take many. The historic engines have
    /// their own block sizes.
    fn pool(&self) -> Pool {
        match self.scenario.options.engine {
            Engine::Auto => Pool::new(BLOCK, 12),
            engine => ropeway_copy::pool_for(engine, false),
        }
    }

    /// Runs once, as one process.
    fn once(&self, happenings: Vec<(u64, Happening)>, faults: Vec<Fault>, jobs: Jobs) -> Ended {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime can be made");
        let events = Arc::new(Mutex::new(Heard::default()));
        let (outcome, counters) = runtime.block_on(async {
            let job = Job::new(self.spec(self.environment(), jobs == Jobs::Rival)).with_pool(self.pool());
            let handle = job.handle();
            self.world.begin(happenings, faults, handle.clone());
            let (sink, world) = (Arc::clone(&events), Arc::clone(&self.world));
            let sink = Arc::new(move |event: Event| heard(&world, &sink, &event));
            if jobs == Jobs::Both {
                let rival = Job::new(self.spec(self.environment(), true)).with_pool(self.pool());
                tokio::spawn(rival.run(Arc::new(|_| {})));
            }
            let outcome = tokio::select! {
                biased;
                () = self.world.over() => None,
                outcome = job.run(sink) => Some(outcome),
                () = tokio::time::sleep(HANG) => {
                    events.lock().unwrap().messages.push("hangs".to_owned());
                    None
                }
            };
            self.world.stop_time();
            (outcome, handle.counters())
        });
        drop(runtime);
        // A process that is dead reports nothing, even if its job had returned already.
        let is_dead = matches!(self.world.stopped(), Some(Stop::Kill | Stop::PowerCut));
        let outcome = outcome.filter(|_| !is_dead);
        self.world.end();
        let heard = std::mem::take(&mut *events.lock().unwrap());
        self.world
            .note(|| format!("ended {:?} {counters:?}", outcome.as_ref().map(|o| o.status)));
        Ended {
            outcome,
            counters,
            stop: self.world.stopped(),
            has_lost: self.world.has_lost(),
            items: heard.items,
            events: heard.messages,
            failed: heard.failed,
            repeats: heard.repeats,
        }
    }
}

/// Virtual time after which a run counts as hanging.
const HANG: Duration = Duration::from_secs(24 * 3600);

/// What a run reported.
#[derive(Default)]
struct Heard {
    items: BTreeSet<String>,
    messages: Vec<String>,
    failed: BTreeSet<String>,
    repeats: bool,
}

fn heard(world: &World, sink: &Mutex<Heard>, event: &Event) {
    world.note(|| format!("{event:?}"));
    let heard = &mut *sink.lock().unwrap();
    match event {
        Event::Item { path, action, .. } if matches!(*action, "copy" | "update" | "skip" | "link") => {
            heard.items.insert(path.clone());
        }
        Event::ItemError { path, message, .. } => {
            heard.items.remove(path);
            heard.failed.insert(path.clone());
            heard.messages.push(message.clone());
        }
        Event::Note { message, .. } => heard.repeats |= message.contains("copied once more"),
        _ => {}
    }
}
