//! The world that jobs run in: virtual time, and a list of what goes wrong at which step.
//!
//! Each operation of a tree or a journal is two steps, one before and one after it takes effect. A
//! step may pause for some virtual time, so that the tasks of a job interleave differently with
//! each seed. At a step the power may be cut, the process may be killed, or another program may
//! change a file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use ropeway_copy::{Handle, Randomness, WallClock};
use ropeway_vfs::{Clock, ErrorKind, Op, Pending, RelPath, Timestamp};
use tempfile::TempDir;
use tokio::sync::Notify;

/// Zero of a memory tree's clock, in nanoseconds since 1970.
const ZERO: i128 = 1_700_000_000_000_000_000;

/// Which end of a copy an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Source,
    Target,
    Journal,
}

/// An operation that fails.
#[derive(Clone, Debug)]
pub struct Fault {
    pub side: Side,
    /// `None`: every operation of that side.
    pub op: Option<Op>,
    /// Probability that an operation fails, in thousandths.
    pub per_mille: u32,
    /// Number of failures that are still to come.
    pub times: u32,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The operation fails and has no effect.
    Error(ErrorKind),
    /// The operation has its effect, but its caller gets an error.
    LostAnswer(ErrorKind),
    /// A read returns less than was asked for.
    ShortRead,
    /// Write-back fails: some dirty pages never reach the device. The next flush reports it.
    FailedFlush,
    /// Half of an append to the journal is written.
    TornAppend,
    /// The operation has its effect, and its answer comes so much later.
    Late(Duration),
}

/// How a run is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Kill,
    PowerCut,
    Cancel,
}

/// Something that happens at a step.
pub enum Happening {
    Stop(Stop),
    Change(Box<dyn FnOnce() + Send>),
}

struct State {
    random: fastrand::Rng,
    /// Decides how late a slow device answers. `None` if it is fast.
    slow: Option<fastrand::Rng>,
    steps: u64,
    happenings: Vec<(u64, Happening)>,
    faults: Vec<Fault>,
    stopped: Option<Stop>,
    handle: Option<Handle>,
    /// A flush of this run failed, and what was dirty is lost.
    has_lost: bool,
    trace: Option<String>,
    is_quiet: bool,
}

/// Shared by all trees and journals of a history.
pub struct World {
    state: Mutex<State>,
    over: Notify,
    pub time: Arc<Time>,
    scratch: OnceLock<TempDir>,
}

/// The wall clock of the simulated machine; it follows the virtual time of the runtime.
pub struct Time {
    /// Nanoseconds that the earlier runs took, and a microsecond for each reading of the clock.
    passed: AtomicI64,
    start: Mutex<Option<tokio::time::Instant>>,
    /// Nanoseconds between two ticks. Every time is that of the last tick, as in a file system.
    tick: i64,
}

impl Time {
    fn now_nanos(&self) -> i64 {
        let start = *self.start.lock().unwrap();
        let running = start.map_or(0, |start| start.elapsed().as_nanos() as i64);
        let now = self.passed.fetch_add(1_000, Ordering::Relaxed) + running;
        now - now % self.tick
    }

    /// Advances the clock.
    pub fn pass(&self, span: Duration) {
        self.passed.fetch_add(span.as_nanos() as i64, Ordering::Relaxed);
    }

    pub fn wall(self: &Arc<Self>) -> WallClock {
        let time = Arc::clone(self);
        WallClock::new(move || Timestamp(ZERO + i128::from(time.now_nanos())))
    }
}

impl Clock for Time {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_nanos() as u64)
    }

    fn sleep_until(&self, _: Duration) -> Pending<'static, ()> {
        unreachable!("trees in memory do not wait")
    }
}

impl World {
    pub fn new(seed: u64, traced: bool, tick: i64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                random: fastrand::Rng::with_seed(seed),
                // One world of four. Seconds, so that files change and end while a flush runs.
                slow: seed.is_multiple_of(4).then(|| fastrand::Rng::with_seed(!seed)),
                steps: 0,
                happenings: Vec::new(),
                faults: Vec::new(),
                stopped: None,
                handle: None,
                has_lost: false,
                trace: traced.then(String::new),
                is_quiet: true,
            }),
            over: Notify::new(),
            time: Arc::new(Time {
                passed: AtomicI64::new(100_000_000_000_000),
                start: Mutex::default(),
                tick,
            }),
            scratch: OnceLock::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Begins a run. The caller is in the runtime of the run.
    pub fn begin(&self, happenings: Vec<(u64, Happening)>, faults: Vec<Fault>, handle: Handle) {
        *self.time.start.lock().unwrap() = Some(tokio::time::Instant::now());
        let mut state = self.lock();
        state.steps = 0;
        state.happenings = happenings;
        state.faults = faults;
        state.handle = Some(handle);
        state.stopped = None;
        state.has_lost = false;
        state.is_quiet = false;
    }

    /// Adds something that goes wrong.
    pub fn add_fault(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Starts the clock of a run in which nothing goes wrong. The caller is in its runtime.
    pub fn start_time(&self) {
        *self.time.start.lock().unwrap() = Some(tokio::time::Instant::now());
    }

    /// Stops the clock of a run. The caller is in its runtime: elsewhere, tokio's clock is the real
    /// one.
    pub fn stop_time(&self) {
        let start = self.time.start.lock().unwrap().take();
        if let Some(start) = start {
            self.time.pass(start.elapsed());
        }
    }

    /// Ends a run. Nothing goes wrong until the next one begins.
    pub fn end(&self) {
        let mut state = self.lock();
        state.happenings.clear();
        state.faults.clear();
        state.handle = None;
        state.is_quiet = true;
    }

    pub fn stopped(&self) -> Option<Stop> {
        self.lock().stopped
    }

    /// Notes that a flush failed and that dirty pages are lost.
    pub fn lose(&self) {
        self.lock().has_lost = true;
    }

    pub fn has_lost(&self) -> bool {
        self.lock().has_lost
    }

    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Completes when the process is killed or the power is cut.
    pub async fn over(&self) {
        while !self.is_dead() {
            self.over.notified().await;
        }
    }

    fn is_dead(&self) -> bool {
        self.lock().stopped.is_some_and(|stop| stop != Stop::Cancel)
    }

    pub fn note(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.lock().trace {
            let _ = writeln!(trace, "{}", text());
        }
    }

    pub fn take_trace(&self) -> String {
        self.lock().trace.take().unwrap_or_default()
    }

    /// Returns the folder for the scratch files of this world's jobs. No other world may use it:
    /// jobs of the same seed give their files the same names.
    pub fn scratch(&self) -> PathBuf {
        let make = || {
            let shm = Path::new("/dev/shm");
            let mut builder = tempfile::Builder::new();
            builder.prefix("ropeway-simulate-");
            let made = match shm.is_dir() {
                true => builder.tempdir_in(shm),
                false => builder.tempdir(),
            };
            made.expect("a folder can be made")
        };
        self.scratch.get_or_init(make).path().to_owned()
    }

    pub fn randomness(self: &Arc<Self>) -> Randomness {
        let world = Arc::clone(self);
        Randomness::new(move || Ok(world.lock().random.u64(..)))
    }

    pub fn draw(&self) -> u64 {
        self.lock().random.u64(..)
    }

    /// Takes one step. Returns `false` once the process is dead.
    fn advance(&self) -> bool {
        let mut due = Vec::new();
        {
            let mut state = self.lock();
            if state.stopped.is_some_and(|stop| stop != Stop::Cancel) {
                return false;
            }
            state.steps += 1;
            let steps = state.steps;
            let mut at = 0;
            while at < state.happenings.len() {
                match state.happenings[at].0 <= steps {
                    true => due.push(state.happenings.remove(at).1),
                    false => at += 1,
                }
            }
        }
        for happening in due {
            match happening {
                Happening::Change(change) => change(),
                Happening::Stop(stop) => {
                    self.note(|| format!("{stop:?}"));
                    let mut state = self.lock();
                    state.stopped = Some(stop);
                    if stop == Stop::Cancel {
                        if let Some(handle) = &state.handle {
                            handle.cancel();
                        }
                        continue;
                    }
                    drop(state);
                    self.over.notify_one();
                    return false;
                }
            }
        }
        true
    }

    /// Takes one step of an operation that may wait. Never returns once the process is dead.
    pub async fn step(&self) {
        if self.lock().is_quiet {
            return;
        }
        if !self.advance() {
            std::future::pending::<()>().await;
        }
        let pause = {
            let random = &mut self.lock().random;
            match random.u32(..100) {
                0..75 => return,
                75..95 => 0,
                95..99 => random.u64(1..3_000),
                _ => random.u64(3_000..800_000),
            }
        };
        match pause {
            0 => tokio::task::yield_now().await,
            micros => tokio::time::sleep(Duration::from_micros(micros)).await,
        }
        if self.lock().stopped.is_some_and(|stop| stop != Stop::Cancel) {
            std::future::pending::<()>().await;
        }
    }

    /// Takes one step of an operation that cannot wait, such as one of a journal. Returns `false`
    /// once the process is dead.
    pub fn step_now(&self) -> bool {
        self.lock().is_quiet || self.advance()
    }

    /// Decides whether an operation that succeeds is answered late.
    pub fn lateness(&self, side: Side, op: Op) -> Option<FaultKind> {
        let mut state = self.lock();
        if state.is_quiet || side != Side::Target {
            return None;
        }
        let slow = state.slow.as_mut()?;
        let per_cent = match op {
            Op::Sync => 50,
            Op::Write => 5,
            _ => return None,
        };
        let is_late = slow.u32(..100) < per_cent;
        is_late.then(|| FaultKind::Late(Duration::from_millis(slow.u64(500..5_000))))
    }

    /// Decides whether an operation fails, and how.
    pub fn fault(&self, side: Side, op: Op, path: Option<&RelPath>) -> Option<FaultKind> {
        let mut state = self.lock();
        let State { random, faults, .. } = &mut *state;
        for fault in faults.iter_mut() {
            if fault.side != side || fault.times == 0 || fault.op.is_some_and(|wanted| wanted != op) {
                continue;
            }
            let fits = match fault.kind {
                FaultKind::ShortRead => op == Op::Read,
                FaultKind::FailedFlush => op == Op::Sync,
                FaultKind::TornAppend => op == Op::Write && side == Side::Journal,
                _ => true,
            };
            if fits && random.u32(..1_000) < fault.per_mille {
                fault.times -= 1;
                let kind = fault.kind;
                drop(state);
                let shown = || path.map(ToString::to_string).unwrap_or_default();
                self.note(|| format!("{side:?} {op:?} {} fails: {kind:?}", shown()));
                return Some(kind);
            }
        }
        None
    }
}
