//! Our flash cache beside the hybrid-cache crate foyer: recorded traces, and three faults.
//!
//! ```text
//! cargo run --release --manifest-path rivals/Cargo.toml -- traces [--dir DIR] [--content half|random] [TRACE…]
//! cargo run --release --manifest-path rivals/Cargo.toml -- faults [--dir DIR]        (as root)
//! ```
//!
//! `traces` replays P2, P6 and cloudPhysicsIO (`../shared/traces` beside the checkout) with both
//! engines: blocks of 64 KiB, the same content, flash for 1, 5, 10 and 20 % of the footprint,
//! memory for an eighth of that. Each run has a process of its own, so that its memory can be seen.
//! Both engines write in the background; both are waited for after every eighth insertion.

mod faults;
mod ours;
mod theirs;

/// Traces, their content, and reference policies: those of the cache's own tests.
#[path = "../../crates/cache/tests/replay/mod.rs"]
mod replay;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use replay::engine::{Content, content};
use replay::{SIZES, Trace};
use ropeway_cache::BLOCK_BYTES;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Insertions between two waits for what is written in the background.
const PACE: u64 = 8;

/// What one replay did.
struct Replay {
    hits: u64,
    inserted: u64,
    written: u64,
}

/// Flash and memory of a run in bytes.
#[derive(Clone, Copy)]
struct Budget {
    flash: usize,
    memory: usize,
}

impl Budget {
    fn of(trace: &Trace, percent: usize) -> Self {
        let flash = trace.footprint * percent / 100 * BLOCK_BYTES / 4096 * 4096;
        Self {
            flash,
            memory: flash / 8,
        }
    }
}

/// An engine that blocks are looked up in.
trait Engine {
    fn has(&mut self, block: u32) -> Outcome<bool>;
    fn insert(&mut self, block: u32, bytes: &[u8]) -> Outcome<()>;
    /// Waits until the work in the background is done.
    fn settle(&mut self) -> Outcome<()>;
    /// Returns the bytes written to the device.
    fn written(&mut self) -> u64;
}

fn replay_with(engine: &mut dyn Engine, trace: &Trace, kind: Content) -> Outcome<Replay> {
    let mut bytes = vec![0; BLOCK_BYTES];
    let (mut hits, mut inserted) = (0, 0);
    for block in &trace.blocks {
        if engine.has(*block)? {
            hits += 1;
            continue;
        }
        content(*block, kind, &mut bytes);
        engine.insert(*block, &bytes)?;
        inserted += 1;
        if inserted % PACE == 0 {
            engine.settle()?;
        }
    }
    engine.settle()?;
    Ok(Replay {
        hits,
        inserted,
        written: engine.written(),
    })
}

/// One run, in this process: `one ENGINE TRACE PERCENT CONTENT DIR`. Prints a row.
fn one(arguments: &[String]) -> Outcome<()> {
    let [engine, name, percent, kind, dir] = arguments else {
        return Err("one ENGINE TRACE PERCENT CONTENT DIR".into());
    };
    let trace = Trace::load(name).ok_or("the trace is not there")?;
    let before = memory("VmRSS");
    let percent: usize = percent.parse()?;
    let budget = Budget::of(&trace, percent);
    let kind = kind_of(kind)?;
    let folder = tempfile::tempdir_in(dir)?;
    let start = Instant::now();
    let mut engine_run: Box<dyn Engine> = match engine.as_str() {
        "ropeway" => Box::new(ours::Ours::new(folder.path(), budget)?),
        "foyer" => Box::new(theirs::Theirs::new(folder.path(), budget)?),
        other => return Err(format!("no engine {other}").into()),
    };
    let replay = replay_with(&mut *engine_run, &trace, kind)?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "| {name} | {percent} % | {engine} | {:.4} | {:.2} | {:.1} | {:.0} | {:.1} | {:.1} |",
        replay.hits as f64 / trace.blocks.len() as f64,
        replay.written as f64 / (replay.inserted * BLOCK_BYTES as u64) as f64,
        replay.written as f64 / 1e9,
        (memory("VmHWM").saturating_sub(before)) as f64 / 1024.0,
        seconds,
        processor_seconds(),
    );
    Ok(())
}

fn kind_of(name: &str) -> Outcome<Content> {
    match name {
        "half" => Ok(Content::Half),
        "random" => Ok(Content::Random),
        other => Err(format!("no content {other}").into()),
    }
}

/// Returns a line of /proc/self/status in KiB.
fn memory(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok());
    number.unwrap_or(0)
}

/// Returns the processor time of this process (proc_pid_stat(5), 100 ticks a second).
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// All runs, each in a process of its own.
fn traces(dir: &Path, kind: &str, names: &[String]) -> Outcome<()> {
    println!(
        "| trace | flash | engine | hit ratio | written for each byte taken in | GB written | memory, MiB | seconds | \
         processor seconds |\n|---|---|---|---|---|---|---|---|---|"
    );
    for name in names {
        for percent in SIZES {
            for engine in ["ropeway", "foyer"] {
                let mut run = Command::new(std::env::current_exe()?);
                run.args(["one", engine, name, &percent.to_string(), kind])
                    .arg(dir);
                let status = run.status()?;
                if !status.success() {
                    println!("| {name} | {percent} % | {engine} | {status} |");
                }
            }
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "one") {
        return one(&arguments[1..]);
    }
    let mut take = |name: &str, otherwise: &str| {
        let Some(at) = arguments.iter().position(|argument| argument == name) else {
            return otherwise.to_owned();
        };
        let value = arguments.get(at + 1).cloned();
        arguments.drain(at..(at + 2).min(arguments.len()));
        value.unwrap_or_else(|| otherwise.to_owned())
    };
    let dir = PathBuf::from(take("--dir", "."));
    let kind = take("--content", "half");
    match arguments.split_first() {
        Some((first, names)) if first == "traces" => {
            let all = ["P2", "P6", "cloudPhysicsIO"].map(str::to_owned);
            traces(&dir, &kind, if names.is_empty() { &all } else { names })
        }
        Some((first, [])) if first == "faults" => faults::all(&dir),
        _ => Err("traces [--dir DIR] [--content half|random] [TRACE…], or faults [--dir DIR]".into()),
    }
}
