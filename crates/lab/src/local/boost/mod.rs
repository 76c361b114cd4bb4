//! `lab boost`: the published ReadyBoost and Superfetch experiment again. Memory hogs throw the working
//! set out of the page cache; how long is it until programs are answered from memory again?
//!
//! ```text
//! run ──> worker (a process in a group with little memory)
//!           readers ─> mount ─> page cache ─> [boost ─> modelled flash] ─> modelled disk ─> files
//!           hogs ────────────────┘
//! ```

mod group;
mod model;
mod normal;
mod report;
mod worker;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use self::group::Group;
use self::worker::READ_BYTES;
pub use self::worker::{Found, Mode, Plan, Task};
use super::{LocalError, Record, folder_with_room, make_out};
use crate::report::{Document, FILE, Outcome, Run};
use crate::run::machine::now;

/// Memory that the worker needs besides the page cache of its programs.
const WORKER_MEMORY: u64 = 160 << 20;
/// Room on the file system in addition to the programs and the flash device.
const ROOM_MORE: u64 = 128 << 20;
/// What a run takes besides the part that is measured, at most. A guess.
const AROUND: Duration = Duration::from_secs(180);
/// Age from which on files are kept in memory and in caches.
const AGE: Duration = Duration::from_secs(5);
/// Bytes of a piece of a program's content: one half is random, the other is empty, as programs
/// compress about two to one.
const CONTENT_PIECE: usize = 4096;

/// What the lab does.
#[derive(Clone, Debug)]
pub struct Options {
    /// This program, which is run for each run.
    pub program: PathBuf,
    /// Folder for the programs and the flash device.
    pub dir: PathBuf,
    /// Programs, and blocks of 64 KiB of each.
    pub programs: usize,
    /// See [`programs`](Self::programs).
    pub blocks: usize,
    /// Programs that start at the same time.
    pub readers: usize,
    /// Runs of each mode.
    pub runs: u32,
    /// Time after which a run has failed.
    pub limit: Duration,
    /// Modes.
    pub modes: Vec<Mode>,
    /// Folder for the report.
    pub out: PathBuf,
}

impl Options {
    fn bytes(&self) -> u64 {
        (self.programs * self.blocks * READ_BYTES) as u64
    }
}

/// Returns the name of a program's file.
fn program(number: usize) -> String {
    format!("program{number:04}")
}

/// Does what the lab has asked this process to do. Prints what a run found.
///
/// # Errors
/// The task is not one, or the run failed.
pub fn work(task: &str) -> io::Result<()> {
    match serde_json::from_str(task)? {
        Task::Hog(bytes) => worker::hog(bytes),
        Task::Run(plan) => println_json(&worker::run(&plan)?)?,
    }
    Ok(())
}

fn println_json(found: &Found) -> io::Result<()> {
    use io::Write as _;
    let line = serde_json::to_string(found)?;
    writeln!(io::stdout().lock(), "{line}")
}

/// Runs the lab.
///
/// # Errors
/// There is too little room, nothing can be mounted, or the lab was interrupted.
pub fn run(options: &Options, stop: &AtomicBool, notify: &dyn Fn(&str)) -> Result<Document, LocalError> {
    let folder = folder_with_room(&options.dir, options.bytes() * 3 + ROOM_MORE)?;
    make_out(&options.out)?;
    let memory = options.bytes() + WORKER_MEMORY;
    let group = Group::new(memory);
    let refused = group.as_ref().err().map(ToString::to_string);
    let mut record = Record {
        document: report::begun(options, memory, refused.as_deref()),
        path: options.out.join(FILE),
        stop,
        notify,
    };
    if let Some(why) = refused {
        record.warn(format!(
            "no group with little memory ({why}): there are no hogs, the page cache is given up by \
             fadvise(2) instead"
        ));
    }
    let group = group.ok();
    let made = make_programs(options, &folder.path().join("disk"));
    let result = made.map_err(LocalError::io("make the programs")).and_then(|()| {
        all_runs(
            options,
            folder.path(),
            group.as_ref().map(|group| (group, memory)),
            &mut record,
        )
    });
    report::conclude(&mut record.document);
    record.finish(result, Some(&options.out))
}

/// Makes the programs' files.
fn make_programs(options: &Options, disk: &Path) -> io::Result<()> {
    fs::create_dir(disk)?;
    for number in 0..options.programs {
        let mut random = fastrand::Rng::with_seed(number as u64);
        let mut content = vec![0; options.blocks * READ_BYTES];
        for piece in content.chunks_mut(CONTENT_PIECE) {
            random.fill(&mut piece[..CONTENT_PIECE / 2]);
        }
        fs::write(disk.join(program(number)), content)?;
    }
    // The kernel keeps nothing of what changed a moment ago.
    std::thread::sleep(AGE);
    Ok(())
}

/// Runs all modes in turns.
fn all_runs(
    options: &Options,
    folder: &Path,
    group: Option<(&Group, u64)>,
    record: &mut Record<'_>,
) -> Result<bool, LocalError> {
    record.save()?;
    for number in 0..options.runs {
        for turn in 0..options.modes.len() {
            record.check_stop()?;
            // Whoever goes first changes from round to round.
            let mode = options.modes[(turn + number as usize) % options.modes.len()];
            let plan = Plan {
                mode,
                folder: folder.to_owned(),
                programs: options.programs,
                blocks: options.blocks,
                readers: options.readers,
                seed: u64::from(number) + 1,
                limit_s: options.limit.as_secs_f64(),
                group: group.map(|(group, bytes)| (group.path().to_owned(), bytes)),
            };
            let started = now();
            let found = one_run(options, &plan, record);
            record.check_stop()?;
            let seconds = found.as_ref().ok().and_then(|found| found.normal_s);
            record.notify(&match (&found, seconds) {
                (Ok(found), Some(seconds)) => report::line(mode, number + 1, seconds, found),
                (Ok(_), None) => format!("{} {}: not normal within the limit", mode.name(), number + 1),
                (Err(why), _) => format!("{} {}: {why}", mode.name(), number + 1),
            });
            let outcome = match (&found, seconds) {
                (Ok(_), Some(_)) => Outcome::Done,
                (Ok(_), None) => Outcome::Failed("not normal within the limit".to_owned()),
                (Err(why), _) => Outcome::Failed(why.clone()),
            };
            let run = Run::of(started, outcome, seconds.unwrap_or(0.0));
            record.add_run(report::cell(options, mode), run);
            if let Ok(found) = found {
                report::add(&mut record.document, mode, number, &found);
            }
            record.save()?;
        }
    }
    Ok(true)
}

/// Does one run in a process of its own.
fn one_run(options: &Options, plan: &Plan, record: &Record<'_>) -> Result<Found, String> {
    let _ = fs::remove_file(plan.folder.join("flash"));
    let task = serde_json::to_string(&Task::Run(plan.clone())).map_err(|error| error.to_string())?;
    let mut worker = Command::new(&options.program)
        .args(["lab", "boost-worker", &task])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run {}: {error}", options.program.display()))?;
    let deadline = Instant::now() + options.limit + AROUND;
    while matches!(worker.try_wait(), Ok(None)) && Instant::now() < deadline && !record.is_stopping() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Nothing happens to one that has ended.
    let _ = worker.kill();
    let output = worker.wait_with_output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        // What it mounted may still be there.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(plan.folder.join("mnt"))
            .output();
    }
    match output.status.success() {
        true => serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, said.trim()))
        }
    }
}
