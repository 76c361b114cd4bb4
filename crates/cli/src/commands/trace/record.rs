//! `trace --run`, `--pid` and `--volume`: records operations of other programs as a trace.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropeway_copy::private_options;
use ropeway_observe::{Chosen, Error, Mechanism, Outcome, Recorder, Target, Volume};
use ropeway_vfs::trace::Record;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::sums::Totals;
use crate::args::{RecordArgs, TraceSource};
use crate::failure::{Failure, code};
use crate::trace_file::{Ending, TraceWriter};
use crate::ui::format;
use crate::ui::messages::print_stderr;

/// Longest time between two looks at what has happened. The kernel's buffer has room for more.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Errors of fanotify_mark(2) for file systems that it cannot watch, and without permission.
const EPERM: i32 = rustix::io::Errno::PERM.raw_os_error();
const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();
const EXDEV: i32 = rustix::io::Errno::XDEV.raw_os_error();
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const EOPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

/// A finished recording.
pub(super) struct Recording {
    /// The trace.
    pub(super) file: File,
    /// Exit code of the command.
    pub(super) code: u8,
    /// Totals by kind.
    pub(super) totals: Totals,
}

/// Records what the arguments say.
///
/// # Errors
/// Nothing can be recorded, or the trace cannot be written.
pub(super) fn record(args: &RecordArgs, source: TraceSource<'_>) -> Result<Recording, Failure> {
    let file = open(args.output.as_deref())?;
    let mut limits = Limits::new(args.duration);
    match source {
        TraceSource::Run(command) => run(args, command, file, &mut limits),
        TraceSource::Process(process) => attach(args, process, file, &mut limits),
        TraceSource::Volume(folder) => volume(folder, file, &mut limits),
        TraceSource::File(_) => Err(Failure::usage("a file is not recorded")),
    }
}

/// Makes the file of the trace: a named one, or one without a name that goes with this process.
fn open(output: Option<&Path>) -> Result<File, Failure> {
    let failed = |what: &str, error: std::io::Error| {
        let message = format!("cannot write the trace {what}: {error}");
        Failure::of_end(message, &error, code::TARGET)
            .hint("give a file in a folder that exists and is writable")
    };
    match output {
        None => tempfile::tempfile().map_err(|error| failed("to a temporary file", error)),
        Some(path) => private_options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(|error| failed(&path.display().to_string(), error)),
    }
}

/// When to stop before the end.
struct Limits {
    end: Option<Instant>,
    stopped: Arc<AtomicBool>,
    runtime: Option<Runtime>,
}

impl Limits {
    fn new(duration: Option<Duration>) -> Self {
        Self {
            end: duration.and_then(|duration| Instant::now().checked_add(duration)),
            stopped: Arc::default(),
            runtime: None,
        }
    }

    /// Catches SIGINT, SIGTERM and SIGHUP from now on. They stop the recording; with `forward` SIGTERM
    /// and SIGHUP go to that process instead, which ends the recording with it. (The terminal itself
    /// sends SIGINT to the command.)
    fn catch(&mut self, forward: Option<u32>) -> Result<(), Failure> {
        let runtime = crate::job::runtime()?;
        let entered = runtime.enter();
        for kind in [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ] {
            let mut caught = signal(kind)
                .map_err(|error| Failure::new(code::USAGE, format!("cannot catch signals: {error}")))?;
            let stopped = Arc::clone(&self.stopped);
            let forward = forward.and_then(|process| Forwarded::new(process, kind));
            runtime.spawn(async move {
                while caught.recv().await.is_some() {
                    match &forward {
                        Some(forward) => forward.send(),
                        None => stopped.store(true, Ordering::Relaxed),
                    }
                }
            });
        }
        drop(entered);
        self.runtime = Some(runtime);
        Ok(())
    }

    fn reached(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.end.is_some_and(|end| Instant::now() >= end)
    }
}

impl Drop for Limits {
    /// The process ends soon: nobody waits for the threads that catch signals.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A signal that is passed on to the command.
struct Forwarded {
    target: std::os::fd::OwnedFd,
    signal: rustix::process::Signal,
    /// Not if the terminal has sent it to the command already.
    is_sent: bool,
}

impl Forwarded {
    fn new(process: u32, kind: SignalKind) -> Option<Self> {
        use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
        let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
        let signal = Signal::from_named_raw(kind.as_raw_value())?;
        let by_terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        Some(Self {
            target: pidfd_open(pid, PidfdFlags::empty()).ok()?,
            signal,
            is_sent: signal != Signal::INT || !by_terminal,
        })
    }

    fn send(&self) {
        if self.is_sent {
            // The process may have ended already.
            let _ = rustix::process::pidfd_send_signal(&self.target, self.signal);
        }
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::NoProcess(_) => Failure::new(code::SOURCE, error.to_string()).hint("`ps -e` lists processes"),
        Error::NotExecuted { source, .. } => {
            let code = match source.kind() {
                std::io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            };
            Failure::new(code, error.to_string()).hint("check the spelling, and that it is a program")
        }
        Error::NoMechanism(refused) => {
            let denied = refused
                .iter()
                .any(|(_, error)| error.kind() == std::io::ErrorKind::PermissionDenied);
            let code = if denied { code::PERMISSION } else { code::USAGE };
            Failure::new(code, error.to_string())
                .hint("as root everything can be recorded; others can record their own programs with --run")
        }
        Error::Failed(_, source) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Failure::new(code::PERMISSION, format!("cannot record the process: {error}")).hint(
                "only root may record the processes of others, or where kernel.yama.ptrace_scope forbids it",
            )
        }
        Error::Failed(..) => Failure::new(code::SOME_FAILED, format!("cannot record: {error}"))
            .hint("another program may trace the process; see also --with"),
    }
}

/// Exit codes as in shells, env(1) and timeout(1).
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

fn choose(args: &RecordArgs, target: Target) -> Result<Chosen, Failure> {
    let chosen = Chosen::choose(args.with, target).map_err(|error| failure(&error))?;
    for (mechanism, error) in &chosen.refused {
        tracing::info!(%mechanism, %error, "mechanism not used");
    }
    Ok(chosen)
}

fn writer(file: &File, mechanism: Mechanism, unseen: Vec<String>) -> Result<TraceWriter, Failure> {
    let file = file.try_clone();
    let writer = file.and_then(|file| TraceWriter::of_program(file, mechanism.name(), unseen));
    writer.map_err(|error| Failure::of_end(format!("cannot write the trace: {error}"), &error, code::TARGET))
}

fn run(
    args: &RecordArgs,
    command: &[OsString],
    file: File,
    limits: &mut Limits,
) -> Result<Recording, Failure> {
    let chosen = choose(args, Target::Command)?;
    let mechanism = chosen.mechanism();
    let writer = writer(&file, mechanism, chosen.unseen())?;
    let recorder = chosen
        .run(command, writer.zero_ns())
        .map_err(|error| failure(&error))?;
    limits.catch(Some(recorder.process()))?;
    let (outcome, totals) = drive(recorder, &writer, limits)?;
    let code = outcome.status.map_or(code::DONE, exit_code);
    finish(writer, mechanism, outcome, (code, totals))
}

fn attach(args: &RecordArgs, process: u32, file: File, limits: &mut Limits) -> Result<Recording, Failure> {
    let chosen = choose(args, Target::Process(process))?;
    let mechanism = chosen.mechanism();
    let writer = writer(&file, mechanism, chosen.unseen())?;
    limits.catch(None)?;
    let recorder = chosen.attach(writer.zero_ns()).map_err(|error| failure(&error))?;
    let (outcome, totals) = drive(recorder, &writer, limits)?;
    finish(writer, mechanism, outcome, (code::DONE, totals))
}

fn volume(folder: &Path, file: File, limits: &mut Limits) -> Result<Recording, Failure> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot watch the volume of {}: {error}", folder.display());
        Failure::of_end(message, &error, code::SOURCE)
    };
    let mut volume = Volume::watch(folder).map_err(|error| match error.raw_os_error() {
        Some(EOPNOTSUPP | ENODEV | EXDEV | EINVAL) => failed(error)
            .hint("its file system cannot be watched; record single programs with --run or --pid"),
        Some(EPERM) => failed(error).hint("only root may watch a whole volume"),
        _ => failed(error),
    })?;
    let writer = writer(&file, Mechanism::Fanotify, Volume::unseen())?;
    volume.count_from(writer.zero_ns());
    limits.catch(None)?;
    let (observer, mut totals) = (writer.observer(), Totals::default());
    let sink = &mut |record: Record<'_>| {
        totals.add(&record);
        observer.record(record);
    };
    while !limits.reached() {
        volume.poll(LOOK_EVERY, sink).map_err(failed)?;
    }
    volume.drain(sink).map_err(failed)?;
    let outcome = Outcome {
        losses: volume.losses(),
        ..Outcome::default()
    };
    finish(writer, Mechanism::Fanotify, outcome, (code::DONE, totals))
}

/// Records until the end.
fn drive(
    mut recorder: Recorder,
    writer: &TraceWriter,
    limits: &Limits,
) -> Result<(Outcome, Totals), Failure> {
    let (observer, mut totals) = (writer.observer(), Totals::default());
    let sink = &mut |record: Record<'_>| {
        totals.add(&record);
        observer.record(record);
    };
    loop {
        let ended = recorder.poll(LOOK_EVERY, sink);
        if ended.map_err(|error| failure(&error))? || limits.reached() {
            break;
        }
    }
    let outcome = recorder.finish(sink);
    Ok((outcome, totals))
}

fn finish(
    writer: TraceWriter,
    mechanism: Mechanism,
    outcome: Outcome,
    (code, totals): (u8, Totals),
) -> Result<Recording, Failure> {
    let mut notes = Vec::new();
    let losses = outcome.losses;
    if losses.events > 0 {
        notes.push(format!(
            "{} came too fast and are missing",
            format::counted(losses.events, "operation", "operations")
        ));
    }
    if losses.foreign > 0 {
        notes.push(format!(
            "{} of 32-bit programs are missing",
            format::counted(losses.foreign, "call", "calls")
        ));
    }
    if outcome.rings > 0 {
        notes.push(format!(
            "the programs made {}: what they did by them is missing",
            format::counted(outcome.rings, "io_uring", "io_urings")
        ));
    }
    for note in &notes {
        print_stderr(&format!("note: {note} ({mechanism})"));
    }
    let ending = Ending {
        lost: losses.events + losses.foreign,
        notes,
    };
    let file = writer
        .finish_with(ending)
        .map_err(|error| Failure::new(code::SOME_FAILED, format!("the trace is incomplete: {error}")))?;
    Ok(Recording { file, code, totals })
}

/// Returns the exit code of a command: its own, or 128 and the signal that ended it, as in shells.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
