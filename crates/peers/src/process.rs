//! A server as a set of processes: started as leader of a session of its own, counted and ended by process ids.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::PeerError;

/// How long killed processes may take to go. A guess; they are gone in milliseconds.
const GONE_MAX: Duration = Duration::from_secs(5);

/// Where a program is: in `PATH` or in the system folders that ordinary users' paths leave out.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

pub(crate) fn require(name: &str, package: &str) -> Result<PathBuf, PeerError> {
    program(name).ok_or_else(|| PeerError::not_installed(name, package))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A running server: its first process, everything in its session, and what names its configuration file.
#[derive(Debug)]
pub(crate) struct Session {
    leader: Child,
    configuration: PathBuf,
}

impl Session {
    /// Starts a server as leader of a new session, in another network namespace if one is given. Its standard input is
    /// a pipe from here: smbd ends when that does. `environment` is added to what is inherited.
    pub(crate) fn start(
        server: &Path,
        arguments: &[&str],
        configuration: &Path,
        environment: &[(&str, PathBuf)],
        namespace: Option<&Path>,
        output: &Path,
    ) -> Result<Self, PeerError> {
        let mut command = Command::new(require("setsid", "util-linux")?);
        if let Some(namespace) = namespace {
            command.arg(require("nsenter", "util-linux")?);
            let mut option = std::ffi::OsString::from("--net=");
            option.push(namespace);
            command.arg(option);
        }
        command.arg(server).args(arguments);
        command.env("LC_ALL", "C.UTF-8").current_dir("/");
        command.envs(environment.iter().map(|(name, value)| (*name, value)));
        let leader = spawn(command, output)
            .map_err(|error| PeerError::failed(format_args!("cannot start {}", server.display()), error))?;
        Ok(Self {
            leader,
            configuration: configuration.to_owned(),
        })
    }

    /// Id of the first process.
    pub(crate) fn id(&self) -> u32 {
        self.leader.id()
    }

    /// Whether the first process has ended, and how.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.leader.try_wait().ok()??;
        Some(status.to_string())
    }

    /// Ids of the processes that live: those of the session, and samba's RPC daemons, which leave it and are known by
    /// this instance's configuration file among their arguments.
    pub(crate) fn pids(&self) -> Vec<u32> {
        all_processes()
            .filter(|process| process.alive && (process.session == self.id() || self.is_helper(process.id)))
            .map(|process| process.id)
            .collect()
    }

    fn is_helper(&self, id: u32) -> bool {
        let Ok(line) = fs::read(format!("/proc/{id}/cmdline")) else {
            return false;
        };
        let wanted = format!("--configfile={}", self.configuration.display());
        line.split(|&byte| byte == 0)
            .any(|word| word == wanted.as_bytes())
    }

    /// User and system time so far, of ended children too.
    pub(crate) fn cpu(&self) -> Duration {
        let ticks: u64 = all_processes()
            .filter(|process| process.session == self.id() || self.is_helper(process.id))
            .map(|process| process.ticks)
            .sum();
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_secs_f64(ticks as f64 / per_second as f64)
    }

    /// SIGKILL to all of it; returns when nothing of it lives.
    pub(crate) fn kill(&mut self) {
        // The leader first: it starts no others then. It may have ended by itself.
        let _ = self.leader.kill();
        let _ = self.leader.wait();
        let end = Instant::now() + GONE_MAX;
        loop {
            let left = self.pids();
            if left.is_empty() || Instant::now() >= end {
                return;
            }
            for id in left {
                kill_id(id);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// SIGKILL to all living processes but these.
    pub(crate) fn kill_all_but(&self, known: &[u32]) {
        for id in self.pids() {
            if !known.contains(&id) {
                kill_id(id);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(mut command: Command, output: &Path) -> std::io::Result<Child> {
    let out = File::options().create(true).append(true).open(output)?;
    command.stdin(Stdio::piped()).stdout(out.try_clone()?).stderr(out);
    command.spawn()
}

fn kill_id(id: u32) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // It may be gone already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// What proc_pid_stat(5) says.
struct Process {
    id: u32,
    alive: bool,
    session: u32,
    ticks: u64,
}

fn all_processes() -> impl Iterator<Item = Process> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|id| {
            let text = fs::read(format!("/proc/{id}/stat")).ok()?;
            parse_stat(id, &String::from_utf8_lossy(&text))
        })
}

fn parse_stat(id: u32, text: &str) -> Option<Process> {
    // The name in parentheses may hold anything; after it: state, parent, group, session, …, fields 14 to 17 the times.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let times = fields.get(11..15)?;
    Some(Process {
        id,
        alive: !matches!(fields[0], "Z" | "X"),
        session: fields[3].parse().ok()?,
        ticks: times.iter().filter_map(|time| time.parse::<u64>().ok()).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_read_whatever_the_name() {
        let text = "7 (a) b (c) S 1 7 5 0 -1 4194560 100 200 0 0 10 20 3 4 20 0 1 0 99 1000 10";
        let process = parse_stat(7, text).unwrap();
        assert!(process.alive);
        assert_eq!((process.session, process.ticks), (5, 37));
        assert!(!parse_stat(7, &text.replace(" S ", " Z ")).unwrap().alive);
        assert!(parse_stat(7, "7 (cut").is_none());
    }

    #[test]
    fn a_session_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let shell = program("sh").unwrap();
        let arguments = ["-c", "sleep 1000 & sleep 1000"];
        let mut session = Session::start(&shell, &arguments, Path::new("/no/conf"), &[], None, &out).unwrap();
        let end = Instant::now() + GONE_MAX;
        while session.pids().len() < 3 && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(session.pids().len(), 3);
        assert!(session.ended().is_none());
        session.kill();
        assert!(session.pids().is_empty());
    }
}
