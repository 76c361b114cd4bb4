//! Runs cases of data loss with ropeway and with other tools that have the feature, for a table.
//!
//! Each case runs on fresh volumes and is judged by the files afterwards. A tool gets the flags that its
//! manual recommends for the purpose.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ropeway_lab::random::SplitMix64 as Rng;
use rustix::process::{Pid, Signal, kill_process_group};

use super::snapshot::{Snapshot, snapshot, temporaries};
use super::testbed::{Host, Kind, Testbed};
use crate::process::{capture, find_program, wait};

const MIB: u64 = 1 << 20;
/// Time limit of a copying program.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program and its flags.
#[derive(Clone, Debug)]
struct Tool {
    name: &'static str,
    program: PathBuf,
    copy: &'static [&'static str],
    mirror: &'static [&'static str],
    backup: &'static [&'static str],
    slow: &'static [&'static str],
}

/// Result of one case for one tool.
struct Verdict(String);

type Case = fn(&mut Host, &Tool) -> Result<Verdict>;

const CASES: &[(&str, Case)] = &[
    (
        "12 files of 9 MB, the device fails in the first run and has room in the second",
        failed_flush,
    ),
    ("power cut right after the copy ended with 0", power_cut),
    ("the same copy twice at once", twice),
    (
        "killed in the middle, run again: temporary names that stay",
        leftovers,
    ),
    (
        "killed in a big file, which is replaced with the same size and time, run again",
        replaced,
    ),
    ("one file onto a FIFO", onto_fifo),
    ("mirror of a source that is empty", empty_source),
    ("mirror while a file was renamed and cannot be read", unreadable),
    ("mirror, another volume mounted on the target, `-x`", mounted),
    (
        "mirror with backups, a file where a folder stood",
        backup_of_folder,
    ),
];

/// Runs all cases and returns the table in Markdown. `rclone`: path of a newer one than the system's, if it
/// exists.
///
/// # Errors
/// A case cannot be set up.
pub(super) fn table(ropeway: &Path, rclone: &Path) -> Result<String> {
    let mut host = Host::new()?;
    let tools = tools(ropeway, rclone);
    let names: Vec<String> = tools.iter().map(version).collect();
    let mut text = format!(
        "| case | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(tools.len())
    );
    for (title, case) in CASES {
        let mut cells = Vec::new();
        for tool in &tools {
            let verdict = case(&mut host, tool).with_context(|| format!("{title}, {}", tool.name))?;
            cells.push(verdict.0);
        }
        let row = format!("| {title} | {} |\n", cells.join(" | "));
        print!("{row}");
        text.push_str(&row);
    }
    Ok(text)
}

fn tools(ropeway: &Path, rclone: &Path) -> Vec<Tool> {
    let mut tools = vec![Tool {
        name: "ropeway",
        program: ropeway.to_owned(),
        copy: &["copy", "-T", "--json"],
        mirror: &["mirror", "--yes", "--json"],
        backup: &["--backup-dir", "kept"],
        slow: &["--bwlimit", "20M"],
    }];
    if let Some(program) = find_program("rsync") {
        tools.push(Tool {
            name: "rsync",
            program,
            copy: &["-aHX", "--partial"],
            mirror: &["-aHX", "--delete"],
            backup: &["--backup", "--backup-dir=kept"],
            slow: &["--bwlimit=20M"],
        });
    }
    let newer = rclone.is_file().then(|| rclone.to_owned());
    if let Some(program) = newer.or_else(|| find_program("rclone")) {
        tools.push(Tool {
            name: "rclone",
            program,
            copy: &["copy", "--links", "--metadata"],
            mirror: &["sync", "--links", "--metadata"],
            backup: &[],
            slow: &["--bwlimit", "20M"],
        });
    }
    tools
}

fn version(tool: &Tool) -> String {
    let said = capture(Command::new(&tool.program).arg("--version")).unwrap_or_default();
    let words = said.lines().next().unwrap_or_default().split_whitespace();
    let number = words
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    format!("{} {}", tool.name, number.unwrap_or_default())
}

impl Tool {
    fn command(&self, flags: &[&str], source: &Path, target: &Path, state: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(flags);
        let is_folder = source.is_dir();
        let mut from = source.as_os_str().to_owned();
        if self.name == "rsync" && is_folder {
            from.push("/");
        }
        command.arg(from).arg(target);
        command.env("XDG_STATE_HOME", state).env("HOME", state);
        quiet(&mut command);
        command
    }

    /// Runs to the end and returns the exit code.
    fn run(&self, flags: &[&str], testbed: &Testbed) -> Result<Option<i32>> {
        self.run_with(flags, &testbed.source(), testbed)
    }

    fn run_with(&self, flags: &[&str], source: &Path, testbed: &Testbed) -> Result<Option<i32>> {
        let state = testbed.folder().join("state");
        fs::create_dir_all(&state)?;
        let mut child = self.command(flags, source, &testbed.target(), &state).spawn()?;
        ended(&mut child)
    }

    /// Starts the program and kills it after some time, with all its processes (rsync has three).
    fn kill(&self, testbed: &Testbed, state: &str, after: Duration) -> Result<()> {
        let state = testbed.folder().join(state);
        fs::create_dir_all(&state)?;
        let flags = [self.copy, self.slow].concat();
        let mut child = self
            .command(&flags, &testbed.source(), &testbed.target(), &state)
            .spawn()?;
        thread::sleep(after);
        kill_process_group(Pid::from_child(&child), Signal::KILL)?;
        child.wait()?;
        // The other processes need a moment to end.
        thread::sleep(Duration::from_millis(100));
        Ok(())
    }
}

/// Gives a command its own process group, no input and no output.
fn quiet(command: &mut Command) {
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
}

/// Waits for a program and returns its exit code; `None` if it hangs.
fn ended(child: &mut Child) -> Result<Option<i32>> {
    Ok(wait(child, PATIENCE)?.and_then(|status| status.code()))
}

fn code(code: Option<i32>) -> String {
    code.map_or_else(|| "hangs".to_owned(), |code| format!("exit {code}"))
}

/// Returns the verdict of a case that has one good result.
fn verdict(is_good: bool, good: &str, bad: &str, exit: Option<i32>) -> Verdict {
    let text = if is_good {
        good.to_owned()
    } else {
        format!("**{bad}**")
    };
    Verdict(format!("{text} ({})", code(exit)))
}

fn fill(path: &Path, size: u64, seed: u64) -> Result<()> {
    let mut bytes = vec![0; usize::try_from(size)?];
    Rng::new(seed).fill(&mut bytes);
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Returns the number of files of the source that are missing or different on the target.
fn damaged(source: &Snapshot, target: &Snapshot) -> usize {
    let is_wrong = |(path, node): &(&PathBuf, &super::snapshot::Node)| {
        node.is_file() && target.get(*path).map(|found| &found.kind) != Some(&node.kind)
    };
    source.iter().filter(is_wrong).count()
}

fn said(damaged: usize, of: usize, exit: Option<i32>) -> Verdict {
    let bad = format!("{damaged} of {of} damaged or missing");
    verdict(damaged == 0, "whole", &bad, exit)
}

fn files(testbed: &Testbed, count: u64, size: u64) -> Result<Snapshot> {
    fs::create_dir_all(testbed.source())?;
    for number in 0..count {
        fill(&testbed.source().join(format!("f{number}")), size, number + 1)?;
    }
    snapshot(&testbed.source())
}

fn failed_flush(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let mut testbed = Testbed::new(host, Kind::Xfs, true, &tool.program)?;
    let source = files(&testbed, 12, 9 * MIB)?;
    fs::create_dir(testbed.target())?;
    testbed.fail_flushes(24 * MIB)?;
    let first = tool.run(tool.copy, &testbed)?;
    // Writes the dirty pages back while the device fails, as happens soon after any copy.
    let _ = testbed.sync();
    testbed.grow()?;
    let second = tool.run(tool.copy, &testbed)?;
    testbed.reboot(host)?;
    let damaged = damaged(&source, &snapshot(&testbed.target())?);
    let Verdict(text) = said(damaged, 12, second);
    Ok(Verdict(format!("first {}; then {text}", code(first))))
}

fn power_cut(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let mut testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
    let source = files(&testbed, 200, MIB / 8)?;
    let exit = tool.run(tool.copy, &testbed)?;
    let found = testbed.after_a_cut(host, snapshot)?;
    Ok(said(damaged(&source, &found), 200, exit))
}

fn twice(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let mut worst = 0;
    let mut exits = Vec::new();
    for _ in 0..3 {
        let testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
        let source = files(&testbed, 8, 6 * MIB)?;
        fs::create_dir(testbed.target())?;
        let start = |state: &str| -> Result<Child> {
            let state = testbed.folder().join(state);
            fs::create_dir_all(&state)?;
            let mut command = tool.command(tool.copy, &testbed.source(), &testbed.target(), &state);
            Ok(command.spawn()?)
        };
        let (mut one, mut other) = (start("one")?, start("other")?);
        exits.extend([ended(&mut one)?, ended(&mut other)?]);
        worst = worst.max(damaged(&source, &snapshot(&testbed.target())?));
    }
    Ok(said(worst, 8, exits.into_iter().max().flatten()))
}

fn leftovers(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
    let source = files(&testbed, 30, MIB)?;
    fs::create_dir(testbed.target())?;
    tool.kill(&testbed, "lost state", Duration::from_millis(700))?;
    let exit = tool.run(tool.copy, &testbed)?;
    let target = snapshot(&testbed.target())?;
    let further = target.keys().filter(|path| !source.contains_key(*path)).count();
    let further = further.max(temporaries(&testbed.target())?.len());
    Ok(verdict(further == 0, "none", &further.to_string(), exit))
}

fn replaced(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
    files(&testbed, 1, 40 * MIB)?;
    fs::create_dir(testbed.target())?;
    let file = testbed.source().join("f0");
    let time = SystemTime::now() - Duration::from_secs(100_000);
    File::open(&file)?.set_modified(time)?;
    tool.kill(&testbed, "state", Duration::from_millis(1_200))?;
    fill(&file, 40 * MIB, 77)?;
    File::open(&file)?.set_modified(time)?;
    let source = snapshot(&testbed.source())?;
    let exit = tool.run(tool.copy, &testbed)?;
    Ok(said(damaged(&source, &snapshot(&testbed.target())?), 1, exit))
}

fn onto_fifo(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
    files(&testbed, 1, MIB)?;
    capture(Command::new("mkfifo").arg(testbed.target()))?;
    let words: &[&str] = if tool.name == "rclone" {
        &["copyto"]
    } else {
        tool.copy
    };
    let exit = tool.run_with(words, &testbed.source().join("f0"), &testbed)?;
    let is_fifo =
        fs::symlink_metadata(testbed.target()).is_ok_and(|found| !found.is_file() && !found.is_dir());
    Ok(verdict(is_fifo, "stays", "replaced by a file", exit))
}

fn empty_source(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
    files(&testbed, 5, MIB / 8)?;
    tool.run(tool.copy, &testbed)?;
    fs::remove_dir_all(testbed.source())?;
    fs::create_dir_all(testbed.source().join("lost+found"))?;
    let exit = tool.run(tool.mirror, &testbed)?;
    let left = snapshot(&testbed.target())?
        .values()
        .filter(|node| node.is_file())
        .count();
    let bad = format!("{} of 5 deleted", 5 - left.min(5));
    Ok(verdict(left == 5, "refused", &bad, exit))
}

/// The user who mirrors cannot read the renamed file.
fn unreadable(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
    files(&testbed, 5, MIB / 8)?;
    tool.run(tool.copy, &testbed)?;
    fs::rename(testbed.source().join("f4"), testbed.source().join("renamed"))?;
    fs::set_permissions(
        testbed.source().join("renamed"),
        fs::Permissions::from_mode(0o000),
    )?;
    let state = testbed.folder().join("state of nobody");
    fs::create_dir(&state)?;
    for path in [testbed.target(), state.clone()] {
        capture(Command::new("chown").args(["-R", "65534:65534"]).arg(path))?;
    }
    let inner = tool.command(tool.mirror, &testbed.source(), &testbed.target(), &state);
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
    ]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.env("XDG_STATE_HOME", &state).env("HOME", &state);
    quiet(&mut command);
    let exit = ended(&mut command.spawn()?)?;
    let there = ["f4", "renamed"]
        .iter()
        .any(|name| testbed.target().join(name).exists());
    Ok(verdict(
        there,
        "kept under the old name",
        "gone under both names",
        exit,
    ))
}

fn mounted(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
    files(&testbed, 3, MIB / 8)?;
    let volume = testbed.target().join("volume");
    fs::create_dir_all(&volume)?;
    capture(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&volume))?;
    fill(&volume.join("data"), 1_000, 1)?;
    let words = [tool.mirror, &["-x"]].concat();
    let exit = tool.run(&words, &testbed)?;
    let there = volume.join("data").exists();
    capture(Command::new("umount").arg(&volume))?;
    Ok(verdict(there, "kept", "deleted", exit))
}

fn backup_of_folder(host: &mut Host, tool: &Tool) -> Result<Verdict> {
    let testbed = Testbed::new(host, Kind::Ext4, false, &tool.program)?;
    files(&testbed, 2, MIB / 8)?;
    fs::create_dir_all(testbed.target().join("f0"))?;
    fill(&testbed.target().join("f0/inside"), 5_000, 9)?;
    let wanted = snapshot(&testbed.target())?;
    let kept = testbed.folder().join("volume/work/kept");
    let target_flag = format!("--backup-dir={}", kept.display());
    let words: Vec<&str> = match tool.name {
        "rclone" => [tool.mirror, &[target_flag.as_str()]].concat(),
        _ => [tool.mirror, tool.backup].concat(),
    };
    let exit = tool.run(&words, &testbed)?;
    let there = super::judge::contents(&snapshot(&testbed.folder().join("volume/work"))?);
    let lost = super::judge::contents(&wanted)
        .iter()
        .filter(|hash| !there.contains(*hash))
        .count();
    Ok(verdict(lost == 0, "kept", "deleted without a backup", exit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn damage_is_counted_by_content() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        for root in [&one, &other] {
            fs::create_dir(root).unwrap();
            fill(&root.join("same"), 10, 1).unwrap();
            fill(&root.join("different"), 10, 2).unwrap();
        }
        fill(&one.join("missing"), 10, 3).unwrap();
        let file = File::options().write(true).open(other.join("different")).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        let (one, other) = (snapshot(&one).unwrap(), snapshot(&other).unwrap());
        assert_eq!(damaged(&one, &other), 2);
        assert_eq!(damaged(&one, &one), 0);
    }
}
