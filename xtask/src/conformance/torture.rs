//! Runs one suite of smbtorture with a time limit and parses its output.
//!
//! smbtorture writes the subunit protocol as text: `test: NAME`, then `success:`, `failure:`, `error:`, `skip:` or `xfail:`
//! with the name, and the reason between `[` and `]`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ropeway_peers::Instance;

use super::results::{Outcome, Row};
use super::samba::Program;
use super::{PASSWORD, SHARE, USER};
use crate::process::{shown, wait};

/// Name of the test of a suite without results.
pub(super) const NO_TEST: &str = "(none)";

/// Options for clients of SMB 1.
const SMB1: &[&str] = &[
    "--option=client min protocol=NT1",
    "--option=client max protocol=NT1",
];

/// Result of a suite.
#[derive(Debug)]
pub(super) struct Run {
    /// One row for each test, in order.
    pub(super) rows: Vec<Row>,
    /// Time of the run.
    pub(super) took: Duration,
    /// Whether it was ended at the time limit.
    pub(super) cut: bool,
}

/// Settings of all suites.
#[derive(Debug)]
pub(super) struct Torture<'a> {
    /// The smbtorture that runs.
    pub(super) program: &'a Program,
    /// Folder for outputs.
    pub(super) logs: &'a Path,
    /// Folder of the share, for tests that also act as a local program (samba3misc).
    pub(super) folder: &'a Path,
    /// Time limit of a suite.
    pub(super) limit: Duration,
    /// Whether SMB 1 is spoken, and nothing newer.
    pub(super) smb1: bool,
    /// Options that the suite asks for: `torture:filename=testfile`.
    pub(super) options: &'a [&'a str],
}

impl Torture<'_> {
    /// Runs a suite by its full name.
    ///
    /// # Errors
    /// smbtorture cannot start, its output cannot be written, or an interrupt came.
    pub(super) fn run(&self, suite: &str, server: &Instance) -> Result<Run> {
        let path = self.logs.join(format!("{suite}.log"));
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let address = server.address();
        let (mut command, folder) = self.program.command(self.folder);
        command
            .arg(format!("//{}/{}", address.ip(), SHARE))
            .args([
                "-p",
                &address.port().to_string(),
                "-U",
                &format!("{USER}%{PASSWORD}"),
            ])
            .arg(format!("--option=torture:localdir={}", folder.display()))
            .args(self.options.iter().map(|option| format!("--option={option}")))
            .args(if self.smb1 { SMB1 } else { &[] })
            .args(["--fullname", suite])
            .env("LC_ALL", "C.UTF-8")
            .current_dir(self.logs)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        let begun = Instant::now();
        let cut = bounded(&mut command, self.limit)?.is_none();
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        Ok(Run {
            rows: parsed(suite, &text),
            took: begun.elapsed(),
            cut,
        })
    }
}

/// Runs a command in its own group. Returns how it ended; `None` if the group was killed at the limit.
///
/// # Errors
/// The command cannot start, or an interrupt came.
pub(super) fn bounded(command: &mut Command, limit: Duration) -> Result<Option<ExitStatus>> {
    let mut child = command
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    wait(&mut child, limit)
}

/// Returns the tests of an output in order. A test without an end is incomplete. The last result of a test
/// counts.
pub(super) fn parsed(suite: &str, text: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |test: &str, outcome: Outcome| {
        let test = test.trim();
        match rows.iter_mut().find(|row| row.test == test) {
            Some(row) if outcome != Outcome::Incomplete => row.outcome = outcome,
            Some(_) => {}
            None => rows.push(Row::new(suite, test, outcome)),
        }
    };
    for line in text.lines() {
        let Some((word, rest)) = line.split_once(": ") else {
            continue;
        };
        let outcome = match word {
            "test" => Outcome::Incomplete,
            "success" | "xfail" => Outcome::Pass,
            "failure" => Outcome::Fail,
            "error" => Outcome::Error,
            "skip" => Outcome::Skip,
            _ => continue,
        };
        add(rest.trim_end().trim_end_matches(" ["), outcome);
    }
    if rows.is_empty() {
        rows.push(Row::new(suite, NO_TEST, Outcome::Incomplete));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_parsed() {
        let text = "smbtorture 4.17\nUsing seed 1\ntime: 2026\ntest: smb2.lock.valid\nsuccess: smb2.lock.valid\n\
                    test: smb2.lock.big\nwhat it does\nfailure: smb2.lock.big [\nstatus: no\n]\n\
                    test: smb2.lock.not\nskip: smb2.lock.not [\nno such thing\n]\n\
                    test: smb2.lock.bad\nerror: smb2.lock.bad [\n]\ntest: smb2.lock.cut\n";
        let rows = parsed("smb2.lock", text);
        let found: Vec<_> = rows.iter().map(|row| (row.test.as_str(), row.outcome)).collect();
        assert_eq!(
            found,
            [
                ("smb2.lock.valid", Outcome::Pass),
                ("smb2.lock.big", Outcome::Fail),
                ("smb2.lock.not", Outcome::Skip),
                ("smb2.lock.bad", Outcome::Error),
                ("smb2.lock.cut", Outcome::Incomplete),
            ]
        );
    }

    #[test]
    fn silence_is_a_result() {
        let rows = parsed("smb2.x", "cannot connect\n");
        assert_eq!(
            (rows[0].test.as_str(), rows[0].outcome),
            (NO_TEST, Outcome::Incomplete)
        );
    }

    #[test]
    fn a_command_is_ended_at_its_limit() {
        let limit = Duration::from_millis(50);
        assert!(bounded(Command::new("sleep").arg("60"), limit).unwrap().is_none());
        let ended = bounded(&mut Command::new("true"), Duration::from_secs(60)).unwrap();
        assert!(ended.is_some_and(|status| status.success()));
    }
}
