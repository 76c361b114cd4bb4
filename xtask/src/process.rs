//! Runs other programs and formats their command lines; turns interrupts into a flag.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Set by SIGINT and SIGTERM after [`catch_interrupts`].
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes SIGINT and SIGTERM set a flag, so that this process ends in order and guards undo what they
/// did (mounts, loop devices).
///
/// # Errors
/// The handlers cannot be set.
pub(crate) fn catch_interrupts() -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&INTERRUPTED)).context("cannot catch signals")?;
    }
    Ok(())
}

/// The flag that SIGINT and SIGTERM set.
pub(crate) fn interrupt_flag() -> &'static AtomicBool {
    &INTERRUPTED
}

/// Returns an error after an interrupt.
///
/// # Errors
/// An interrupt came.
pub(crate) fn check_interrupt() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

pub(crate) use ropeway_peers::program as find_program;

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Formats a command as in a shell, for messages.
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

/// Runs a command, with the output of this process.
///
/// # Errors
/// The command cannot start or fails.
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

/// Interval at which [`wait`] checks whether a process has ended. A guess.
const LOOK: Duration = Duration::from_millis(2);

/// Waits for a process that leads its own group. Returns how it ended; `None` after the limit. Then, and
/// after an interrupt, its whole group is killed.
///
/// # Errors
/// The process cannot be waited for, or an interrupt came.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    wait_and_look(child, limit, |_| ())
}

/// Waits as [`wait`] does, and calls `look` with the process's number at each check.
///
/// # Errors
/// As [`wait`].
pub(crate) fn wait_and_look(
    child: &mut Child,
    limit: Duration,
    mut look: impl FnMut(u32),
) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    let interrupt = loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if let Err(interrupt) = check_interrupt() {
            break Err(interrupt);
        }
        if Instant::now() >= end {
            break Ok(None);
        }
        look(child.id());
        thread::sleep(LOOK);
    };
    kill_group(child)?;
    interrupt
}

/// Kills a process that leads its own group, with the group.
///
/// # Errors
/// The process cannot be waited for.
pub(crate) fn kill_group(child: &mut Child) -> Result<()> {
    // It may end at this moment.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    child.wait()?;
    Ok(())
}

/// Processes the items in order on `at_once` threads. Returns the results in the order in which
/// they ended.
///
/// # Errors
/// The first error of a worker; the others finish the remaining items.
pub(crate) fn side_by_side<I: Send, R: Send>(
    items: impl IntoIterator<Item = I, IntoIter: Send>,
    at_once: usize,
    work: impl Fn(I) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let waiting = Mutex::new(items.into_iter());
    let done = Mutex::new(Vec::new());
    let next = || waiting.lock().next();
    let worker = || -> Result<()> {
        while let Some(item) = next() {
            let result = work(item)?;
            done.lock().push(result);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked")))
    })?;
    Ok(done.into_inner())
}

/// Returns `wrapper` with the program, arguments, environment and folder of `command` added.
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

/// Runs a command and returns its standard output.
///
/// # Errors
/// The command cannot start or fails; its standard error is in the message.
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

/// Returns the last lines of a file, or a note that it cannot be read.
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
    fn items_run_side_by_side_and_the_first_error_is_returned() {
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
}
