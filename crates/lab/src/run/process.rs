//! Processes of this machine: what they use, which are ours, and servers as sessions that are ended by their ids.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

/// How long killed processes may take to go. A guess; they are gone in milliseconds.
const GONE_MAX: Duration = Duration::from_secs(5);
/// Deepest line of children that is followed.
const DEPTH_MAX: usize = 64;
/// Runs its arguments until its standard input ends: so a server ends with whoever started it, also if that was killed.
const GUARD: &str = "exec 3<&0; (cat <&3 >/dev/null; kill $$) & exec \"$@\" </dev/null 3<&-";

/// What proc_pid_stat(5) says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    parent: u32,
    session: u32,
    alive: bool,
    /// User and system time, of children that were waited for too.
    ticks: u64,
}

/// Where a program is: in `PATH` or in the system folders that ordinary users' paths leave out.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// A command with nothing of the caller's environment but the path of programs, and a home of its own: no run finds
/// another's state, and the user's settings do not count.
pub(crate) fn clean(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command.env("LC_ALL", "C.UTF-8").current_dir("/");
    for (variable, name) in [
        ("HOME", "home"),
        ("XDG_STATE_HOME", "state"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_CACHE_HOME", "cache"),
    ] {
        command.env(variable, home.join(name));
    }
    command
}

/// Processor time so far: of all that this machine did, and of this process and all that descend from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    at: Instant,
    machine: Duration,
    known: Duration,
}

impl Busy {
    /// Until now.
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let all: Vec<Process> = processes().collect();
        Self {
            at: Instant::now(),
            machine: ticks(machine_ticks(&stat)),
            known: ticks(family_ticks(&all, own_id())),
        }
    }

    /// Processors that others kept busy since, on average.
    pub(crate) fn others(&self) -> f64 {
        let now = Self::now();
        let known = now.known.saturating_sub(self.known);
        let others = now.machine.saturating_sub(self.machine).saturating_sub(known);
        let span = now.at.duration_since(self.at).as_secs_f64();
        others.as_secs_f64() / span.max(0.001)
    }
}

/// A process and all that descend from it.
fn family(all: &[Process], root: u32) -> impl Iterator<Item = &Process> {
    let parents: BTreeMap<u32, u32> = all.iter().map(|process| (process.id, process.parent)).collect();
    all.iter().filter(move |process| {
        let line = std::iter::successors(Some(process.id), |id| parents.get(id).copied());
        line.take(DEPTH_MAX).any(|id| id == root)
    })
}

/// Ticks of all of them.
fn family_ticks(all: &[Process], root: u32) -> u64 {
    family(all, root).map(|process| process.ticks).sum()
}

fn own_id() -> u32 {
    getpid().as_raw_nonzero().get().cast_unsigned()
}

/// Kills all that descend from this process; whether there was any that lived.
pub(super) fn kill_descendants() -> bool {
    let all: Vec<Process> = processes().collect();
    let below = family(&all, own_id()).filter(|process| process.alive && process.id != own_id());
    let ids: Vec<u32> = below.map(|process| process.id).collect();
    for id in &ids {
        kill(*id);
    }
    !ids.is_empty()
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// User, nice and system time of all processors (proc_stat(5)).
fn machine_ticks(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let words = line.split_whitespace().skip(1).take(3);
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|id| {
            let text = fs::read(format!("/proc/{id}/stat")).ok()?;
            parse_stat(id, &String::from_utf8_lossy(&text))
        })
}

fn parse_stat(id: u32, text: &str) -> Option<Process> {
    // The name in brackets may hold anything; after it: state, parent, group, session, …, fields 14 to 17 the times.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let times = fields.get(11..15)?;
    Some(Process {
        id,
        parent: fields[1].parse().ok()?,
        session: fields[3].parse().ok()?,
        alive: !matches!(fields[0], "Z" | "X"),
        ticks: times.iter().filter_map(|time| time.parse::<u64>().ok()).sum(),
    })
}

/// A server and all its processes; ended when dropped.
#[derive(Debug)]
pub(crate) struct Session {
    leader: Child,
    /// A word among the arguments of helpers that leave the session (samba's RPC servers).
    mark: OsString,
}

/// How a server wants to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// It ends with its standard input by itself.
    WithInput,
    /// A shell beside it watches the standard input.
    Guarded,
}

impl Session {
    /// Starts a command as leader of a session of its own; its standard input is a pipe from here.
    ///
    /// # Errors
    /// `setsid` or the program is missing.
    pub(super) fn start(
        server: &Command,
        ends: Ends,
        mark: OsString,
        output: &Path,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> io::Result<Self> {
        let missing = |name| io::Error::new(io::ErrorKind::NotFound, format!("{name} is not installed"));
        let mut command = Command::new(program("setsid").ok_or_else(|| missing("setsid"))?);
        if ends == Ends::Guarded {
            command.arg(program("sh").ok_or_else(|| missing("sh"))?);
            command.args(["-c", GUARD, "sh"]);
        }
        command.arg(server.get_program()).args(server.get_args());
        command.env_clear().current_dir("/");
        for (name, value) in server.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let out = File::options().create(true).append(true).open(output)?;
        command.stdin(Stdio::piped()).stdout(out.try_clone()?).stderr(out);
        let leader = spawn(&mut command)?;
        Ok(Self { leader, mark })
    }

    /// Whether the first process has ended, and how.
    pub(super) fn ended(&mut self) -> Option<String> {
        Some(self.leader.try_wait().ok()??.to_string())
    }

    fn members(&self) -> impl Iterator<Item = Process> + '_ {
        processes().filter(|process| process.session == self.leader.id() || self.is_helper(process.id))
    }

    fn is_helper(&self, id: u32) -> bool {
        if self.mark.is_empty() {
            return false;
        }
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0)
            .any(|word| word == self.mark.as_encoded_bytes())
    }

    /// User and system time so far, of ended children too.
    pub(super) fn cpu(&self) -> Duration {
        ticks(self.members().map(|process| process.ticks).sum())
    }

    /// Memory of all its processes now, what several share counted once (proc_pid_smaps(5), Pss).
    pub(super) fn memory_bytes(&self) -> u64 {
        let pss = |process: Process| {
            let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", process.id)).unwrap_or_default();
            kib(&text, "Pss:").unwrap_or(0) * 1024
        };
        self.members().map(pss).sum()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The leader first: it starts no others then. It may have ended by itself.
        _ = self.leader.kill();
        let mut known: Vec<u32> = self.members().map(|process| process.id).collect();
        _ = self.leader.wait();
        let end = Instant::now() + GONE_MAX;
        loop {
            let left: Vec<u32> = self
                .members()
                .filter(|process| process.alive)
                .map(|process| process.id)
                .collect();
            known.extend(&left);
            if left.is_empty() || Instant::now() >= end {
                break;
            }
            for id in left {
                kill(id);
            }
            thread::sleep(Duration::from_millis(2));
        }
        // Orphans became our children, where this process adopts them (see `adopt`).
        for pid in known.into_iter().filter_map(pid) {
            _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

fn kill(id: u32) {
    if let Some(pid) = pid(id) {
        // It may be gone already.
        _ = kill_process(pid, Signal::KILL);
    }
}

/// Orphans of our children become ours, so that their processor time is known and their ends are noted.
pub(crate) fn adopt() {
    // Where that is refused they are the system's, and others seem busier than they are.
    _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Most resident memory so far of a process or one of its children.
pub(super) fn peak_bytes(id: u32) -> u64 {
    let peak = |id: u32| {
        let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        kib(&text, "VmHWM:").unwrap_or(0) * 1024
    };
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|word| word.parse().ok());
    children.chain([id]).map(peak).max().unwrap_or(0)
}

/// A line such as `VmHWM:     1234 kB`.
fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_read_whatever_the_name() {
        let text = "7 (a) b (c) S 1 7 5 0 -1 4194560 100 200 0 0 10 20 3 4 20 0 1 0 99 1000 10";
        let process = parse_stat(7, text).unwrap();
        assert!(process.alive);
        assert_eq!((process.parent, process.session, process.ticks), (1, 5, 37));
        assert!(!parse_stat(7, &text.replace(" S ", " Z ")).unwrap().alive);
        assert!(parse_stat(7, "7 (cut").is_none());
        assert_eq!(machine_ticks("cpu  10 2 30 400 5 6\ncpu0 1 1 1\n"), 42);
        assert_eq!(
            kib("Rss: 2000 kB\nPss:     1234 kB\nPss_Dirty: 7 kB\n", "Pss:"),
            Some(1234)
        );
    }

    #[test]
    fn a_family_is_a_process_and_all_below() {
        let process = |id, parent, ticks| Process {
            id,
            parent,
            session: 0,
            alive: true,
            ticks,
        };
        let all = [
            process(1, 0, 1000),
            process(5, 1, 1),
            process(6, 5, 2),
            process(7, 6, 4),
            process(8, 1, 500),
        ];
        assert_eq!(family_ticks(&all, 5), 7);
        let ids: Vec<u32> = family(&all, 6).map(|process| process.id).collect();
        assert_eq!(ids, [6, 7]);
        // A circle cannot be; it must not hang either.
        assert_eq!(family_ticks(&[process(2, 3, 1), process(3, 2, 1)], 9), 0);
    }

    #[test]
    fn a_session_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let mut command = clean(program("sh").unwrap(), folder.path());
        command.args(["-c", "sleep 1000 & sleep 1000"]);
        for ends in [Ends::WithInput, Ends::Guarded] {
            let mut session =
                Session::start(&command, ends, OsString::new(), &out, |command| command.spawn()).unwrap();
            let wanted = if ends == Ends::Guarded { 5 } else { 3 };
            let end = Instant::now() + GONE_MAX;
            while session.members().count() < wanted && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(session.members().count(), wanted);
            assert!(session.ended().is_none() && session.memory_bytes() > 0);
            let id = session.leader.id();
            drop(session);
            assert_eq!(
                processes()
                    .filter(|process| process.session == id && process.alive)
                    .count(),
                0
            );
        }
    }

    #[test]
    fn others_are_seldom_negative_or_more_than_there_are() {
        let before = Busy::now();
        thread::sleep(Duration::from_millis(50));
        let others = before.others();
        assert!((0.0..4096.0).contains(&others), "{others}");
    }
}
