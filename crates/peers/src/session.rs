//! A server as a set of processes: started as leader of its own session, measured and ended by
//! process ids.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::PeerError;
use crate::procfs::{Process, memory_bytes, processes, program, ticks};

/// Time for killed processes to disappear. A guess; it takes milliseconds.
const GONE_MAX: Duration = Duration::from_secs(5);
/// Time for a server to answer. smbd takes a quarter of a second; a build may share the two cores.
const START_MAX: Duration = Duration::from_secs(30);
/// Pause between two attempts to connect. A guess.
const RETRY: Duration = Duration::from_millis(10);
/// Runs its arguments and ends them with SIGTERM when its standard input ends. So a server also
/// ends when the process that started it was killed.
const GUARD: &str = "exec 3<&0; (cat <&3 >/dev/null; kill $$) & exec \"$@\" </dev/null 3<&-";

/// Returns the path of a program, or an error that names its package.
pub(crate) fn require(name: &str, package: &str) -> Result<PathBuf, PeerError> {
    program(name).ok_or_else(|| PeerError::not_installed(name, package))
}

/// Runs a program with this standard input and returns its output. Passwords go there, since arguments
/// are public.
///
/// # Errors
/// The program cannot be started.
pub fn feed(command: &mut Command, input: &str) -> io::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that fails early does not read its input.
        _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// How a server ends when the process that started it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndsWith {
    /// By itself, with its standard input.
    Input,
    /// By a shell next to it that watches the standard input.
    Guard,
}

/// A server's processes; killed on drop.
#[derive(Debug)]
pub(crate) struct Session {
    leader: Child,
    /// An argument by which helpers that leave the session are known (samba's RPC servers).
    marker: OsString,
}

impl Session {
    /// Starts `server` as leader of a new session, in another network namespace if one is given.
    /// Output goes to the end of the file `output`.
    ///
    /// # Errors
    /// `setsid`, `nsenter` or the server cannot be started.
    pub(crate) fn start(
        server: &Command,
        ends_with: EndsWith,
        marker: OsString,
        namespace: Option<&Path>,
        output: &Path,
    ) -> Result<Self, PeerError> {
        let mut command = Command::new(require("setsid", "util-linux")?);
        if let Some(namespace) = namespace {
            command.arg(require("nsenter", "util-linux")?);
            let mut option = OsString::from("--net=");
            option.push(namespace);
            command.arg(option);
        }
        if ends_with == EndsWith::Guard {
            command.arg(require("sh", "dash")?).args(["-c", GUARD, "sh"]);
        }
        command.arg(server.get_program()).args(server.get_args());
        command.env_clear().current_dir("/");
        command.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let spawned = || -> io::Result<Child> {
            let out = File::options().create(true).append(true).open(output)?;
            command
                .stdin(Stdio::piped())
                .stdout(out.try_clone()?)
                .stderr(out)
                .spawn()
        };
        let shown = server.get_program().to_string_lossy().into_owned();
        let leader =
            { spawned }().map_err(|error| PeerError::failed(format_args!("cannot start {shown}"), error))?;
        Ok(Self { leader, marker })
    }

    /// Waits until `answers` succeeds. `name` and `log` are for the error message.
    ///
    /// # Errors
    /// The server ended, or did not answer in time.
    pub(crate) fn wait_until(
        &mut self,
        name: &str,
        answers: impl Fn() -> io::Result<()>,
        log: impl Fn() -> String,
    ) -> Result<(), PeerError> {
        let end = Instant::now() + START_MAX;
        loop {
            if let Some(status) = self.ended() {
                return Err(PeerError::failed(
                    format_args!("{name} ended ({status})"),
                    tail(&log()),
                ));
            }
            match answers() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= end => {
                    let said = format!("{error}\n{}", tail(&log()));
                    return Err(PeerError::failed(format_args!("{name} does not answer"), said));
                }
                Err(_) => thread::sleep(RETRY),
            }
        }
    }

    /// Process id of the leader.
    pub(crate) fn id(&self) -> u32 {
        self.leader.id()
    }

    /// How the leader ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<String> {
        Some(self.leader.try_wait().ok()??.to_string())
    }

    /// Sends SIGTERM to the leader and waits for it.
    ///
    /// # Errors
    /// It ended with a failure, or not within `limit`.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<(), PeerError> {
        if let Some(pid) = pid(self.id()) {
            // It may be gone already.
            _ = kill_process(pid, Signal::TERM);
        }
        let end = Instant::now() + limit;
        while Instant::now() < end {
            match self.leader.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(PeerError::Failed(format!("it stopped with {status}"))),
                _ => thread::sleep(RETRY),
            }
        }
        Err(PeerError::Failed(format!(
            "it did not stop within {} s",
            limit.as_secs()
        )))
    }

    fn members(&self) -> impl Iterator<Item = Process> + '_ {
        processes().filter(|process| process.session == self.id() || self.is_helper(process.id))
    }

    fn is_helper(&self, id: u32) -> bool {
        if self.marker.is_empty() {
            return false;
        }
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0)
            .any(|word| word == self.marker.as_encoded_bytes())
    }

    /// Ids of the processes that run.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let alive = self.members().filter(|process| process.alive);
        alive.map(|process| process.id).collect()
    }

    /// User and system time so far, with that of children that ended.
    pub(crate) fn cpu(&self) -> Duration {
        ticks(self.members().map(|process| process.ticks).sum())
    }

    /// Memory of all processes now, in bytes; shared pages count once.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.members().map(|process| memory_bytes(process.id)).sum()
    }

    /// Sends SIGKILL to every process and returns when none is left.
    pub(crate) fn kill(&mut self) {
        // The leader first, so that it starts no others. It may have ended by itself.
        _ = self.leader.kill();
        let mut known: Vec<u32> = self.members().map(|process| process.id).collect();
        _ = self.leader.wait();
        let end = Instant::now() + GONE_MAX;
        loop {
            let left = self.pids();
            known.extend(&left);
            if left.is_empty() || Instant::now() >= end {
                break;
            }
            left.into_iter().for_each(kill_id);
            thread::sleep(Duration::from_millis(2));
        }
        // Where this process is a subreaper, orphans are its children now.
        for pid in known.into_iter().filter_map(pid) {
            _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }

    /// Sends SIGKILL to every process that is not in `kept`.
    pub(crate) fn kill_all_but(&self, kept: &[u32]) {
        let others = self.pids().into_iter().filter(|id| !kept.contains(id));
        others.for_each(kill_id);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `work` inside a network namespace, or here if none is given.
///
/// # Errors
/// The namespace cannot be entered, or `work` fails.
pub(crate) fn inside<R: Send>(
    namespace: Option<&Path>,
    work: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<R> {
    let Some(namespace) = namespace else {
        return work();
    };
    // A namespace belongs to a thread; this thread ends with it.
    thread::scope(|scope| {
        let entered = scope.spawn(|| {
            let file = File::open(namespace)?;
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))?;
            work()
        });
        entered
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

fn kill_id(id: u32) {
    if let Some(pid) = pid(id) {
        // It may be gone already.
        _ = kill_process(pid, Signal::KILL);
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::clean;

    #[test]
    fn a_session_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let mut command = clean(program("sh").unwrap(), folder.path());
        command.args(["-c", "sleep 1000 & sleep 1000"]);
        for (ends_with, wanted) in [(EndsWith::Input, 3), (EndsWith::Guard, 5)] {
            let mut session = Session::start(&command, ends_with, OsString::new(), None, &out).unwrap();
            let end = Instant::now() + GONE_MAX;
            while session.pids().len() < wanted && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(session.pids().len(), wanted);
            assert!(session.ended().is_none() && session.memory_bytes() > 0);
            session.kill();
            assert!(session.pids().is_empty());
        }
    }

    #[test]
    fn a_guarded_server_ends_with_its_standard_input() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = clean(program("sleep").unwrap(), folder.path());
        command.arg("1000");
        let out = folder.path().join("out");
        let mut session = Session::start(&command, EndsWith::Guard, OsString::new(), None, &out).unwrap();
        drop(session.leader.stdin.take());
        let end = Instant::now() + GONE_MAX;
        while session.ended().is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(session.ended().unwrap().contains("15"), "it must end by SIGTERM");
    }
}
