//! A recording of one program: which mechanism, start, events, end.
//!
//! ```text
//!   Recorder::choose ──> run(COMMAND) or attach(PID) ──> poll, poll, … until it has ended ──> finish
//! ```

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::bpf::Bpf;
use crate::call::RawEvent;
use crate::catalogue::Catalogue;
use crate::decode::{Decoder, Sink};
use crate::mechanism::{Losses, Mechanism};
use crate::proc::{self, Procfs};
use crate::ptrace::{self, Left, Ptrace};
use crate::sys::spawn::{Held, Released};
use crate::tracefs::Tracefs;

/// Most processes of a family that are attached to at the start (a guess: a large server).
const FAMILY_MAX: usize = 4096;
/// How often the threads of a process are listed again while it makes new ones, at most.
const LISTINGS_MAX: usize = 10;

/// What is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A program that this process starts.
    Command,
    /// A process that runs already, its threads and its children.
    Process(u32),
}

/// Why something cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The program cannot be executed.
    #[error("cannot run {name}: {source}")]
    NotExecuted {
        /// As given.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// No mechanism can be used; each with its reason.
    #[error("cannot record other programs: {}", reasons(.0))]
    NoMechanism(Vec<(Mechanism, io::Error)>),
    /// The mechanism failed later.
    #[error("{0}: {1}")]
    Failed(Mechanism, io::Error),
}

fn reasons(refused: &[(Mechanism, io::Error)]) -> String {
    let reasons: Vec<String> = refused
        .iter()
        .map(|(mechanism, error)| format!("{mechanism}: {error}"))
        .collect();
    reasons.join("; ")
}

/// How a recording ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How the command ended; `None` if it still runs, or was attached to.
    pub status: Option<ExitStatus>,
    /// What is missing.
    pub losses: Losses,
    /// io_urings that the programs made.
    pub rings: u64,
}

/// A recording in progress.
#[derive(Debug)]
pub struct Recorder {
    engine: Engine,
    decoder: Decoder<Procfs>,
    /// The process that the recording is about.
    process: u32,
    child: Option<Started>,
    status: Option<ExitStatus>,
    /// Becomes readable when the process ends; `None` if the kernel has no such descriptors (before 5.3).
    end: Option<OwnedFd>,
}

/// The command.
#[derive(Debug)]
enum Started {
    /// Whoever traces it waits for its end.
    Traced(Released),
    Running(Child),
}

#[derive(Debug)]
enum Engine {
    Bpf(Box<Bpf>),
    Tracefs(Box<Tracefs>),
    Ptrace(Box<Ptrace>),
}

/// A mechanism that works here.
#[derive(Debug)]
pub struct Chosen {
    engine: Engine,
    mechanism: Mechanism,
    target: Target,
    /// Mechanisms that would have been better, and why they cannot be used.
    pub refused: Vec<(Mechanism, io::Error)>,
}

impl Chosen {
    /// Returns the mechanism.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Returns what this mechanism cannot show, each in one line.
    pub fn unseen(&self) -> Vec<String> {
        let has_names = match &self.engine {
            Engine::Tracefs(tracefs) => tracefs.has_names(),
            Engine::Bpf(_) | Engine::Ptrace(_) => true,
        };
        self.mechanism.unseen(has_names)
    }

    /// Prepares the wanted mechanism, or else the best that can be used.
    ///
    /// # Errors
    /// None can be used.
    pub fn choose(wanted: Option<Mechanism>, target: Target) -> Result<Self, Error> {
        let catalogue = Catalogue::of_this_machine();
        let all: &[Mechanism] = match &wanted {
            Some(one) => std::slice::from_ref(one),
            None => &Mechanism::BY_PREFERENCE,
        };
        if let Target::Process(process) = target
            && proc::threads(process).is_empty()
        {
            return Err(Error::NoProcess(process));
        }
        let mut refused = Vec::new();
        for mechanism in all {
            match Engine::start(*mechanism, &catalogue, target, wanted.is_some()) {
                Ok(engine) => {
                    return Ok(Self {
                        engine,
                        mechanism: *mechanism,
                        target,
                        refused,
                    });
                }
                Err(error) => refused.push((*mechanism, error)),
            }
        }
        Err(Error::NoMechanism(refused))
    }

    /// Starts a command and records it. Times count from `zero_ns` of CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The command cannot be executed.
    pub fn run(self, command: &[OsString], zero_ns: u64) -> Result<Recorder, Error> {
        let name = command.first().cloned().unwrap_or_default();
        let not_executed = |source| Error::NotExecuted {
            name: name.to_string_lossy().into_owned(),
            source,
        };
        let path = find_program(&name).map_err(not_executed)?;
        let filter = match &self.engine {
            Engine::Ptrace(_) => Some(ptrace::filter(&Catalogue::of_this_machine())),
            Engine::Bpf(_) | Engine::Tracefs(_) => None,
        };
        let held = Held::start(path.as_os_str(), command, filter).map_err(not_executed)?;
        let process = held.process;
        let mut recorder = self.recorder(process, zero_ns);
        recorder.watch_all(&[process])?;
        let released = held.release().map_err(not_executed)?;
        recorder.child = Some(match recorder.engine {
            // The child may stop before it executes its program, so this does not wait for that.
            Engine::Ptrace(_) => Started::Traced(released),
            _ => Started::Running(released.wait().map_err(not_executed)?),
        });
        Ok(recorder)
    }

    /// Records a process that runs already.
    ///
    /// # Errors
    /// It has ended, or may not be watched.
    pub fn attach(self, zero_ns: u64) -> Result<Recorder, Error> {
        let Target::Process(process) = self.target else {
            return Err(Error::NoProcess(0));
        };
        let mut recorder = self.recorder(process, zero_ns);
        recorder.watch_all(&proc::family(process, FAMILY_MAX))?;
        Ok(recorder)
    }

    fn recorder(self, process: u32, zero_ns: u64) -> Recorder {
        Recorder {
            engine: self.engine,
            decoder: Decoder::new(Catalogue::of_this_machine(), Procfs, zero_ns),
            process,
            child: None,
            status: None,
            end: descriptor_of(process),
        }
    }
}

impl Engine {
    /// Prepares a mechanism. `insist`: also if another one would show more.
    fn start(mechanism: Mechanism, catalogue: &Catalogue, target: Target, insist: bool) -> io::Result<Self> {
        if matches!(mechanism, Mechanism::Bpf | Mechanism::Tracefs) && !proc::numbers_are_the_kernels() {
            return Err(io::Error::other(
                "not in a container with process numbers of its own",
            ));
        }
        Ok(match mechanism {
            Mechanism::Bpf => Self::Bpf(Box::new(Bpf::start(catalogue)?)),
            Mechanism::Tracefs => {
                let tracefs = Tracefs::start(catalogue)?;
                if !tracefs.has_names() && !insist {
                    return Err(io::Error::other(
                        "this kernel does not tell it the names of files",
                    ));
                }
                Self::Tracefs(Box::new(tracefs))
            }
            Mechanism::Ptrace => {
                let is_filtered = target == Target::Command;
                Self::Ptrace(Box::new(Ptrace::start(catalogue, is_filtered)?))
            }
            Mechanism::Fanotify => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    fn mechanism(&self) -> Mechanism {
        match self {
            Self::Bpf(_) => Mechanism::Bpf,
            Self::Tracefs(_) => Mechanism::Tracefs,
            Self::Ptrace(_) => Mechanism::Ptrace,
        }
    }

    fn watch(&mut self, process: u32, thread: u32) -> io::Result<()> {
        match self {
            Self::Bpf(bpf) => bpf.watch(thread),
            Self::Tracefs(tracefs) => tracefs.watch(thread),
            Self::Ptrace(ptrace) => ptrace.watch(process, thread),
        }
    }
}

impl Recorder {
    /// Returns the process that the recording is about.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Watches processes with all their threads, and learns what they have open.
    fn watch_all(&mut self, processes: &[u32]) -> Result<(), Error> {
        for process in processes {
            let mut known = Vec::new();
            // New threads of watched threads are watched by themselves; others appear in the list.
            for _ in 0..LISTINGS_MAX {
                let threads = proc::threads(*process);
                let is_new = |thread: &u32| !known.contains(thread);
                let new: Vec<u32> = threads.into_iter().filter(is_new).collect();
                if new.is_empty() {
                    break;
                }
                for thread in new {
                    let watched = self.engine.watch(*process, thread);
                    watched.map_err(|error| Error::Failed(self.engine.mechanism(), error))?;
                    known.push(thread);
                }
            }
            let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
            self.decoder
                .attached(*process, count, &proc::descriptors(*process));
        }
        Ok(())
    }

    /// Waits for events, about `timeout`, and passes on the operations. Returns whether the process
    /// has ended.
    ///
    /// # Errors
    /// The command could not be executed.
    pub fn poll(&mut self, timeout: Duration, sink: Sink<'_>) -> Result<bool, Error> {
        let decoder = &mut self.decoder;
        let end = self.end.as_ref();
        let mut take = |event: RawEvent<'_>| decoder.take(event, sink);
        let has_ended = match &mut self.engine {
            Engine::Bpf(bpf) => {
                let ended = wait_for(end, Some(bpf.fd()), timeout);
                bpf.drain(&mut take);
                ended
            }
            Engine::Tracefs(tracefs) => {
                let ended = wait_for(end, None, timeout);
                tracefs.drain(&mut take);
                ended
            }
            Engine::Ptrace(ptrace) => {
                let left = ptrace.poll(timeout, &mut take);
                self.status = ptrace.status().map(ExitStatus::from_raw);
                return match left {
                    Left::Some => Ok(false),
                    Left::None => self.traced_ended(),
                };
            }
        };
        match &mut self.child {
            // An error means that somebody else has waited for it.
            Some(Started::Running(child)) => match child.try_wait() {
                Ok(Some(status)) => {
                    self.status = Some(status);
                    Ok(true)
                }
                _ => Ok(has_ended),
            },
            // A process that nobody has waited for yet is still listed.
            _ => Ok(has_ended || proc::threads(self.process).is_empty()),
        }
    }

    /// All traced threads have ended: perhaps since the command could not be executed.
    fn traced_ended(&mut self) -> Result<bool, Error> {
        match self.child.take() {
            Some(Started::Traced(released)) => match released.wait() {
                Ok(_) => Ok(true),
                Err(source) => Err(Error::NotExecuted {
                    name: "the command".to_owned(),
                    source,
                }),
            },
            _ => Ok(true),
        }
    }

    /// Stops recording, passes on the last operations, and tells what is missing. Processes go on.
    pub fn finish(mut self, sink: Sink<'_>) -> Outcome {
        let decoder = &mut self.decoder;
        let mut take = |event: RawEvent<'_>| decoder.take(event, sink);
        let losses = match &mut self.engine {
            // What other processes do from now on is not part of it.
            Engine::Bpf(bpf) => {
                bpf.drain(&mut take);
                bpf.losses()
            }
            Engine::Tracefs(tracefs) => {
                tracefs.stop(&mut take);
                tracefs.losses()
            }
            Engine::Ptrace(ptrace) => {
                ptrace.stop(&mut take);
                self.status = ptrace.status().map(ExitStatus::from_raw);
                ptrace.losses()
            }
        };
        if let (Some(Started::Running(child)), None) = (&mut self.child, self.status) {
            // The recording ended before the command.
            self.status = child.wait().ok();
        }
        let outcome = Outcome {
            status: self.status,
            losses,
            rings: self.decoder.rings(),
        };
        if let Engine::Bpf(bpf) = self.engine {
            // Removing programs and ring from the kernel takes a millisecond, which nobody need wait
            // for. If there is no thread, or the process ends first, they are removed all the same.
            let _ = std::thread::Builder::new().spawn(move || drop(bpf));
        }
        outcome
    }
}

/// Returns a descriptor of a process that becomes readable when it ends (pidfd_open(2)).
fn descriptor_of(process: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(process).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits for the end of a process, or until a descriptor is readable, at most `timeout`. Returns whether
/// the process has ended.
fn wait_for(end: Option<&OwnedFd>, readable: Option<&OwnedFd>, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).ok();
    let fds = [end, readable].into_iter().flatten();
    let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    // A signal ends the wait early, which is harmless.
    let _ = poll(&mut fds, timeout.as_ref());
    end.is_some()
        && fds
            .first()
            .is_some_and(|end| end.revents().contains(PollFlags::IN))
}

/// Finds a program as execvp(3) does.
fn find_program(name: &OsStr) -> io::Result<PathBuf> {
    let given = PathBuf::from(name);
    if given.components().count() != 1 || name.as_encoded_bytes().contains(&b'/') {
        return Ok(given);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let is_program = |candidate: &PathBuf| {
        let found = candidate.metadata();
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(&given))
        .find(is_program);
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}
