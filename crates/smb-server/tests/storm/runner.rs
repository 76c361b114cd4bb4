//! Parallel sessions: their counters, and limits for the whole process.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Plan;
use crate::chance::Random;

/// Limit for resident memory in bytes: two sessions with both ends and buffers of up to 8 MiB.
/// Measured: below 150 MiB.
const RESIDENT_MAX: u64 = 512 << 20;
/// Time after which a session counts as stuck.
const STUCK: Duration = Duration::from_secs(120);
/// Number of descriptors that a process opens once and keeps. Leaks of hundreds of sessions would
/// exceed it.
const DESCRIPTORS_KEPT: usize = 16;
/// Number of frames between two lines of progress.
const PROGRESS: u64 = 50_000;
/// Maximum number of threads.
const THREADS_MAX: usize = 8;

/// The current session and frame of each thread.
static POSITIONS: [(AtomicU64, AtomicU64); THREADS_MAX] =
    [const { (AtomicU64::new(u64::MAX), AtomicU64::new(0)) }; THREADS_MAX];
static SEED: OnceLock<(String, u64)> = OnceLock::new();

/// One session of a storm.
pub(crate) struct Session<'a> {
    pub(crate) random: Random,
    /// Its own empty folder.
    pub(crate) folder: &'a Path,
    thread: usize,
}

impl Session<'_> {
    /// Records the current frame, so that a panic can name it.
    pub(crate) fn at(&self, frame: u64) {
        POSITIONS[self.thread].1.store(frame, Ordering::Relaxed);
    }
}

/// Counters by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Frames that reached the code behind signature and encryption.
    pub(crate) reached: u64,
    by_name: BTreeMap<&'static str, u64>,
}

impl Counts {
    pub(crate) fn add(&mut self, name: &'static str, count: u64) {
        *self.by_name.entry(name).or_default() += count;
    }

    fn merge(&mut self, other: &Self) {
        self.reached += other.reached;
        for (name, count) in &other.by_name {
            self.add(name, *count);
        }
    }
}

/// Outcome of a storm.
pub(crate) struct Report {
    counts: Counts,
    sessions: u64,
    took: Duration,
    resident_most: u64,
    descriptors: (usize, usize),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        let mut text = String::new();
        for (name, count) in &self.counts.by_name {
            write!(text, "\n  {name:44} {count:>10}")?;
        }
        write!(
            f,
            "reached {} frames in {} sessions, {seconds:.1} s ({:.0} a second); resident memory at most {} MiB; descriptors {} \
             before, {} after{text}",
            self.counts.reached,
            self.sessions,
            self.counts.reached as f64 / seconds,
            self.resident_most >> 20,
            self.descriptors.0,
            self.descriptors.1,
        )
    }
}

/// Installs a panic hook that reports the position of the storm and ends the process.
pub(crate) fn end_by_panic(side: &str) {
    let side = side.to_owned();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        println!("PANIC: {panic}");
        report_positions(&side);
        std::process::exit(101);
    }));
}

fn report_positions(side: &str) {
    let seed = SEED.get().map_or(0, |(_, seed)| *seed);
    for (session, frame) in &POSITIONS {
        let (session, frame) = (session.load(Ordering::Relaxed), frame.load(Ordering::Relaxed));
        if session != u64::MAX {
            println!(
                "at frame {frame} of session {session}: cargo xtask attack {side} --seed {seed} --session {session} --frames 1"
            );
        }
    }
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs sessions until enough frames have arrived.
pub(crate) fn storm(
    plan: &Plan,
    play: fn(&mut Session<'_>) -> Result<Counts, String>,
) -> Result<Report, String> {
    _ = SEED.set((String::new(), plan.seed));
    let begun = Instant::now();
    let before = descriptors();
    let (next, over) = (AtomicU64::new(plan.session), AtomicBool::new(false));
    let total = Mutex::new(Counts::default());
    let failed = Mutex::new(None);
    let most = AtomicU64::new(resident());
    let threads = usize::try_from(plan.threads).unwrap().clamp(1, THREADS_MAX);
    std::thread::scope(|scope| {
        for (thread, position) in POSITIONS.iter().enumerate().take(threads) {
            let (next, over, total, failed) = (&next, &over, &total, &failed);
            scope.spawn(move || {
                let folder = plan.folder.join(format!("thread{thread}"));
                while !over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let outcome = one(plan, number, thread, &folder, play);
                    let mut total = total.lock();
                    match outcome {
                        Ok(counts) => {
                            let before = total.reached / PROGRESS;
                            total.merge(&counts);
                            if total.reached / PROGRESS > before {
                                println!(
                                    "{} frames after {:.0} s",
                                    total.reached,
                                    begun.elapsed().as_secs_f64()
                                );
                            }
                        }
                        Err(fault) => {
                            *failed.lock() = Some((number, fault));
                            over.store(true, Ordering::Relaxed);
                        }
                    }
                    let late = begun.elapsed().as_secs() > plan.seconds_max;
                    if total.reached >= plan.frames || late {
                        over.store(true, Ordering::Relaxed);
                    }
                }
                position.0.store(u64::MAX, Ordering::Relaxed);
            });
        }
        scope.spawn(|| watch(&most));
    });
    let (counts, sessions) = (total.into_inner(), next.into_inner() - plan.session);
    if let Some((number, fault)) = failed.into_inner() {
        let seed = plan.seed;
        return Err(format!(
            "{fault}\nrepeat it: --seed {seed} --session {number} --frames 1"
        ));
    }
    let report = Report {
        counts,
        sessions,
        took: begun.elapsed(),
        resident_most: most.into_inner(),
        descriptors: (before, descriptors()),
    };
    if report.descriptors.1 > before + DESCRIPTORS_KEPT {
        return Err(format!("descriptors stay open: {report}"));
    }
    Ok(report)
}

fn one(
    plan: &Plan,
    number: u64,
    thread: usize,
    folder: &Path,
    play: fn(&mut Session<'_>) -> Result<Counts, String>,
) -> Result<Counts, String> {
    POSITIONS[thread].1.store(0, Ordering::Relaxed);
    POSITIONS[thread].0.store(number, Ordering::Relaxed);
    _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir(folder).map_err(|error| format!("no folder: {error}"))?;
    let mut session = Session {
        // Consecutive numbers yield different random streams.
        random: Random::new((plan.seed << 32) ^ number.wrapping_mul(0x9E37_79B9)),
        folder,
        thread,
    };
    let outcome = play(&mut session);
    _ = std::fs::remove_dir_all(folder);
    outcome
}

/// Watches memory and progress until all threads have ended.
fn watch(most: &AtomicU64) {
    let mut seen = [(u64::MAX, 0, Instant::now()); THREADS_MAX];
    let mut begun = false;
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let resident = resident();
        most.fetch_max(resident, Ordering::Relaxed);
        assert!(
            resident < RESIDENT_MAX,
            "resident memory of {} MiB",
            resident >> 20
        );
        let mut busy = false;
        for (seen, (session, frame)) in seen.iter_mut().zip(&POSITIONS) {
            let now = (session.load(Ordering::Relaxed), frame.load(Ordering::Relaxed));
            busy |= now.0 != u64::MAX;
            if (seen.0, seen.1) != now {
                *seen = (now.0, now.1, Instant::now());
            }
            assert!(
                now.0 == u64::MAX || seen.2.elapsed() < STUCK,
                "nothing happens any more in session {}",
                now.0
            );
        }
        if begun && !busy {
            return;
        }
        begun |= busy;
    }
}
