//! Running other programs: found, timed, measured, ended on an interrupt.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Set by the first SIGINT or SIGTERM after [`catch_interrupts`].
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Process group of the running child of [`measure`], 0 when there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Makes SIGINT and SIGTERM end the running child and let this process leave by the ordinary way, so that
/// guards undo what they did (mounts, loop devices).
///
/// # Errors
/// If the handlers cannot be set.
pub(crate) fn catch_interrupts() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut signals = None;
    let mut failure = None;
    ONCE.call_once(|| match Signals::new([SIGINT, SIGTERM]) {
        Ok(made) => signals = Some(made),
        Err(error) => failure = Some(error),
    });
    if let Some(error) = failure {
        return Err(error).context("cannot catch signals");
    }
    if let Some(mut signals) = signals {
        thread::spawn(move || {
            for _ in signals.forever() {
                INTERRUPTED.store(true, Ordering::SeqCst);
                if let Some(pid) = Pid::from_raw(CHILD.load(Ordering::SeqCst)) {
                    // The group may be gone already: nothing to end then.
                    let _ = kill_process_group(pid, Signal::TERM);
                }
            }
        });
    }
    Ok(())
}

/// An error once an interrupt was seen.
///
/// # Errors
/// If this process was told to stop.
pub(crate) fn check_interrupt() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// Where a program is: in `PATH` or in the system folders that ordinary users' paths leave out.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Whether this process is root's.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// How a command is written in a shell, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let mut words: Vec<String> = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), quoted(value?))))
        .collect();
    let program = Path::new(command.get_program());
    words.push(quoted(program.file_name().unwrap_or(program.as_os_str())));
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains(|c: char| c.is_whitespace() || "'\"*$()".contains(c)) {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        word.into_owned()
    }
}

/// Runs a command with this process's own output.
///
/// # Errors
/// If it cannot start or does not end with 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Does this with each item, so many at once, in their order; gives the results in the order in which they ended.
///
/// # Errors
/// The first error of a worker; the others finish the items that are left.
pub(crate) fn side_by_side<I: Send, R: Send>(
    items: impl IntoIterator<Item = I, IntoIter: Send>,
    at_once: usize,
    work: impl Fn(I) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let waiting = Mutex::new(items.into_iter());
    let done = Mutex::new(Vec::new());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || -> Result<()> {
        while let Some(item) = next() {
            let result = work(item)?;
            done.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked")))
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// `wrapper`, which is told to run that command: its program, arguments, environment and folder are added.
pub(crate) fn wrapped(mut wrapper: Command, command: &Command) -> Command {
    wrapper.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapper.env(name, value),
            None => wrapper.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapper.current_dir(folder);
    }
    wrapper
}

/// Runs a command silently and gives what it wrote to its standard output.
///
/// # Errors
/// If it cannot start or does not end with 0; what it wrote to standard error is in the message.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}: {}", shown(command), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What one run of a program cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// From start to exit.
    pub(crate) wall: Duration,
    /// User and system time together, of the process and its children.
    pub(crate) cpu: Duration,
    /// Peak resident memory in KiB.
    pub(crate) peak_kib: u64,
}

/// Runs a command under `/usr/bin/time` (rusage by wait4 without unsafe code) in its own process group; its output
/// goes to `log`.
///
/// # Errors
/// If it cannot start, fails (the end of the log is in the message), or this process is interrupted.
pub(crate) fn measure(command: &Command, log: &Path) -> Result<Usage> {
    measure_by(command, log, Command::spawn)
}

/// [`measure`] with another way to start the process: in a network namespace, for one.
///
/// # Errors
/// As [`measure`].
pub(crate) fn measure_by(
    command: &Command,
    log: &Path,
    spawn: impl FnOnce(&mut Command) -> std::io::Result<Child>,
) -> Result<Usage> {
    check_interrupt()?;
    let time = find_program("time").context("GNU time is missing: `apt-get install time`")?;
    let report = log.with_extension("time");
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut timed = Command::new(time);
    timed.args(["--quiet", "-f", "%U %S %M", "-o"]).arg(&report);
    let mut timed = wrapped(timed, command);
    timed
        .stdin(Stdio::null())
        .stderr(output.try_clone()?)
        .stdout(output);
    timed.process_group(0);
    let start = Instant::now();
    let mut child = spawn(&mut timed).with_context(|| format!("cannot start {}", shown(command)))?;
    CHILD.store(child.id().cast_signed(), Ordering::SeqCst);
    let status = child.wait();
    let wall = start.elapsed();
    CHILD.store(0, Ordering::SeqCst);
    let status = status?;
    check_interrupt()?;
    if !status.success() {
        bail!("`{}` failed: {status}\n{}", shown(command), tail(log, 10));
    }
    let text = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    let (cpu, peak_kib) =
        parse_time(&text).with_context(|| format!("GNU time wrote what is not understood: {text:?}"))?;
    Ok(Usage { wall, cpu, peak_kib })
}

fn parse_time(text: &str) -> Option<(Duration, u64)> {
    let mut words = text.lines().last()?.split_whitespace();
    let user: f64 = words.next()?.parse().ok()?;
    let system: f64 = words.next()?.parse().ok()?;
    let peak = words.next()?.parse().ok()?;
    Some((Duration::try_from_secs_f64(user + system).ok()?, peak))
}

/// The last lines of a file, or a note that it cannot be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let all: Vec<&str> = text.lines().collect();
            all[all.len().saturating_sub(lines)..].join("\n")
        }
        Err(error) => format!("({} cannot be read: {error})", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_gnu_time_are_read() {
        assert_eq!(
            parse_time("0.50 1.25 20480\n"),
            Some((Duration::from_millis(1750), 20480))
        );
        assert_eq!(parse_time("Command exited\n0.0 0.0 7"), Some((Duration::ZERO, 7)));
        assert_eq!(parse_time(""), None);
        assert_eq!(parse_time("-1 0 7"), None);
    }

    #[test]
    fn items_are_done_side_by_side_and_the_first_error_is_told() {
        let mut doubled = side_by_side(1..=20, 3, |item| Ok(item * 2)).unwrap();
        doubled.sort_unstable();
        assert_eq!(doubled, (1..=20).map(|item| item * 2).collect::<Vec<_>>());
        let failed = side_by_side(1..=20, 2, |item| {
            anyhow::ensure!(item != 7, "seven");
            Ok(item)
        });
        assert_eq!(failed.unwrap_err().to_string(), "seven");
    }

    #[test]
    fn a_shown_command_can_be_pasted() {
        let mut command = Command::new("/usr/bin/printf");
        command.args(["a b", "it's", "plain"]);
        assert_eq!(shown(&command), r"printf 'a b' 'it'\''s' plain");
    }

    #[test]
    fn a_measured_command_reports_its_cost_and_its_failure() {
        if find_program("time").is_none() {
            println!("skipped: GNU time is missing");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let usage = measure(Command::new("sh").args(["-c", "sleep 0.05"]), &log).unwrap();
        assert!(usage.wall >= Duration::from_millis(50) && usage.peak_kib > 0);
        let error = measure(Command::new("sh").args(["-c", "echo why; exit 3"]), &log).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
    }
}
