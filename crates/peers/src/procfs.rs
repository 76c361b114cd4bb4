//! Programs of this machine and what `/proc` says of processes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// System folders that an ordinary user's `PATH` leaves out.
const SYSTEM_FOLDERS: [&str; 5] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// One process, as proc_pid_stat(5) describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub id: u32,
    /// Id of the parent process.
    pub parent: u32,
    /// Id of the session.
    pub session: u32,
    /// Whether it runs: false for zombies.
    pub alive: bool,
    /// User and system time in clock ticks, with that of children it has waited for.
    pub ticks: u64,
}

/// Returns the path of a program, found in `PATH` or in the system folders.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Returns a command whose environment holds only `PATH`, a UTF-8 locale and a home below `home`.
///
/// So no run finds another run's state, no view of the user's programs shows it, and the user's settings
/// do not count.
pub fn clean(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command.env("LC_ALL", "C.UTF-8").current_dir("/");
    // Where a program tells what it does: a user's view of all programs shows the user's own only.
    command.env("XDG_RUNTIME_DIR", home);
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

/// Returns every process that `/proc` shows.
pub fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|id| {
            let text = fs::read(format!("/proc/{id}/stat")).ok()?;
            parse_stat(id, &String::from_utf8_lossy(&text))
        })
}

/// Converts clock ticks to time.
pub fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// Returns the memory of a process in bytes; pages that processes share count in parts
/// (proc_pid_smaps(5), Pss). 0 if the process is gone.
pub fn memory_bytes(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    number(&text, "Pss").unwrap_or(0) * 1024
}

/// Returns the peak resident memory of a process in bytes (proc_pid_status(5), VmHWM). 0 if the
/// process is gone.
pub fn peak_bytes(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    number(&text, "VmHWM").unwrap_or(0) * 1024
}

/// Whether this process is root only inside a user namespace, where other users are unknown.
pub fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // user_namespaces(7): in the initial namespace every id maps to itself.
    !map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns a [`clean`] command that runs without privilege where this process is root only inside
/// a user namespace.
///
/// There, servers that believe to be root switch to other users, and rsync changes owners; both
/// fail. In a nested namespace without an id map they are `nobody`, with the caller's rights over
/// files.
pub fn unprivileged(name: &Path, home: &Path) -> Command {
    if !(rustix::process::geteuid().is_root() && in_user_namespace()) {
        return clean(name, home);
    }
    let unshare = program("unshare").unwrap_or_else(|| PathBuf::from("unshare"));
    let mut command = clean(unshare, home);
    command.args(["--user", "--"]).arg(name);
    command
}

fn parse_stat(id: u32, text: &str) -> Option<Process> {
    // The name in parentheses may hold anything. After it: state, parent, group, session, …;
    // fields 14 to 17 are the times.
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

/// Returns the number of a line of a file in `/proc`, such as `VmHWM:     1234 kB` or `nr_dirty
/// 17`.
pub fn number(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut words =
        lines.find_map(|mut words| (words.next()?.trim_end_matches(':') == name).then_some(words))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_parsed_whatever_the_process_name() {
        let text = "7 (a) b (c) S 1 7 5 0 -1 4194560 100 200 0 0 10 20 3 4 20 0 1 0 99 1000 10";
        let process = parse_stat(7, text).unwrap();
        assert!(process.alive);
        assert_eq!((process.parent, process.session, process.ticks), (1, 5, 37));
        assert!(!parse_stat(7, &text.replace(" S ", " Z ")).unwrap().alive);
        assert!(parse_stat(7, "7 (cut").is_none());
        let smaps = "Rss: 2000 kB\nPss:     1234 kB\nPss_Dirty: 7 kB\n";
        assert_eq!(number(smaps, "Pss"), Some(1234));
        assert_eq!(number("", "Pss"), None);
        assert!(memory_bytes(std::process::id()) > 0 && peak_bytes(std::process::id()) > 0);
    }
}
