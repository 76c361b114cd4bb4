//! The `test` step: runs all tests and keeps libtest's lines visible, sums them, and lists what tests skipped.
//!
//! A test that lacks something (root, a file system, a program) returns early after printing a line that
//! begins with `skipped:`. Libtest hides the output of passing tests, so it is asked to show it, and only those
//! lines are kept.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::ci::Outcome;
use crate::process::shown;
use crate::tools;
use crate::workspace::Workspace;

/// Tests that need the feature `kerberos`, on top of those that run without it.
const KERBEROS: [&[&str]; 2] = [
    &[
        "test",
        "-p",
        "ropeway-smb",
        "--features",
        "kerberos",
        "--lib",
        "--test",
        "kerberos",
    ],
    &[
        "test",
        "-p",
        "ropeway-cli",
        "--features",
        "kerberos",
        "--test",
        "kerberos",
    ],
];

/// Runs `cargo test --workspace` to its end, whatever fails, and the tests of features that are off by default.
///
/// # Errors
/// If a test fails or does not compile.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let mut report = Report::default();
    let lacks_kerberos = tools::missing_kerberos();
    let with_kerberos = KERBEROS.iter().filter(|_| lacks_kerberos.is_none());
    for arguments in [&["test", "--workspace", "--no-fail-fast"][..]]
        .iter()
        .chain(with_kerberos)
    {
        let command = workspace.cargo(arguments.iter().chain(&["--", "--show-output"]).copied());
        run_one(command, &mut report)?;
    }
    let note = report.note();
    let mut left_out = report.skipped;
    left_out.extend(lacks_kerberos);
    Ok(Outcome {
        note,
        skipped: false,
        left_out,
    })
}

fn run_one(mut command: Command, report: &mut Report) -> Result<()> {
    println!("$ {}", shown(&command));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let output = child.stdout.take().context("no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if report.take(&line) {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "tests failed ({})", report.note());
    Ok(())
}

/// What was read of libtest's output so far.
#[derive(Debug, Default)]
struct Report {
    passed: u64,
    failed: u64,
    ignored: u64,
    skipped: Vec<String>,
    /// Inside the outputs of passing tests; whose.
    successes: bool,
    test: String,
}

impl Report {
    /// Takes a line; says whether to print it.
    fn take(&mut self, line: &str) -> bool {
        if let Some(result) = line.strip_prefix("test result:") {
            self.successes = false;
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            self.ignored += count(result, "ignored");
        } else if line == "failures:" {
            self.successes = false;
        } else if line == "successes:" {
            self.successes = true;
        } else if self.successes {
            self.take_output(line);
        }
        !self.successes
    }

    fn take_output(&mut self, line: &str) {
        let line = line.trim();
        if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.test = name.to_owned();
        } else if line.to_ascii_lowercase().starts_with("skip") {
            self.skipped.push(format!("{}: {line}", self.test));
        }
    }

    fn note(&self) -> String {
        let Self {
            passed,
            failed,
            ignored,
            skipped,
            ..
        } = self;
        format!(
            "{passed} passed, {failed} failed, {ignored} ignored, {} skipped themselves",
            skipped.len()
        )
    }
}

/// The number before a word in ` ok. 3 passed; 0 failed; …`.
fn count(result: &str, word: &str) -> u64 {
    result
        .split([';', '.'])
        .filter_map(|part| part.trim().strip_suffix(word))
        .find_map(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_skips_are_found_and_noise_is_hidden() {
        let text = "running 2 tests\ntest a ... ok\ntest b ... ok\n\nsuccesses:\n\n---- b stdout ----\nnoise\n\
                    skipped: not root\n\n\nsuccesses:\n    a\n    b\n\n\
                    test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let mut report = Report::default();
        let shown: Vec<&str> = text.lines().filter(|line| report.take(line)).collect();
        assert_eq!((report.passed, report.failed, report.ignored), (2, 0, 1));
        assert_eq!(report.skipped, ["b: skipped: not root"]);
        assert!(shown.contains(&"test a ... ok") && !shown.contains(&"noise"));
        assert!(
            shown
                .last()
                .is_some_and(|line| line.starts_with("test result: ok. 2 passed"))
        );
    }

    #[test]
    fn output_of_failures_is_shown() {
        let mut report = Report::default();
        let shown: Vec<&str> = ["successes:", "hidden", "failures:", "---- c stdout ----", "why"]
            .into_iter()
            .filter(|line| report.take(line))
            .collect();
        assert_eq!(shown, ["failures:", "---- c stdout ----", "why"]);
    }
}
