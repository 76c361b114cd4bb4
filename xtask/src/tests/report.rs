//! The `test` step: runs all tests and keeps libtest's lines visible, sums them, and lists what tests skipped.
//!
//! A test that lacks something (root, a file system, a program) returns early after printing a line that
//! begins with `skipped:`. Libtest hides the output of passing tests, so it is asked to show it, and only those
//! lines are kept.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

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
    if !status.success() {
        report.print_failures();
        let mut names: Vec<&str> = report.failures.iter().map(|one| one.test.as_str()).collect();
        if names.is_empty() {
            names.push("something did not compile, or a test program ended early");
        }
        bail!("tests failed ({}): {}", report.note(), names.join(", "));
    }
    Ok(())
}

/// Where in libtest's output a line lies. Outputs of tests may hold anything, also those of tests that they run
/// themselves; each list of outputs is followed by one of names, with the same heading.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    #[default]
    Results,
    /// Outputs of passing tests: hidden.
    Successes,
    /// Outputs of failing tests.
    Failures,
    /// A list of names.
    Names,
}

/// What was read of libtest's output so far.
#[derive(Debug, Default)]
struct Report {
    passed: u64,
    failed: u64,
    ignored: u64,
    skipped: Vec<String>,
    /// Of each failing test its name and the beginning of its output.
    failures: Vec<Failure>,
    part: Part,
    /// Whose output it is.
    test: String,
}

/// A test that failed.
#[derive(Debug)]
struct Failure {
    test: String,
    lines: Vec<String>,
}

/// Lines of a failing test's output that are said again at the end.
const REPEATED_LINES: usize = 20;

impl Report {
    /// Takes a line; says whether to print it.
    fn take(&mut self, line: &str) -> bool {
        let is_output = matches!(self.part, Part::Successes | Part::Failures);
        match line {
            "successes:" if self.part == Part::Successes => self.part = Part::Names,
            "failures:" if self.part == Part::Failures => self.part = Part::Names,
            "successes:" if !is_output => self.part = Part::Successes,
            "failures:" if !is_output => self.part = Part::Failures,
            _ if is_output => self.take_output(line),
            _ => {
                if let Some(result) = line.strip_prefix("test result:") {
                    self.part = Part::Results;
                    self.passed += count(result, "passed");
                    self.failed += count(result, "failed");
                    self.ignored += count(result, "ignored");
                }
            }
        }
        self.part != Part::Successes
    }

    fn take_output(&mut self, line: &str) {
        let has_failed = self.part == Part::Failures;
        if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            name.clone_into(&mut self.test);
            if has_failed {
                let (test, lines) = (name.to_owned(), Vec::new());
                self.failures.push(Failure { test, lines });
            }
        } else if has_failed {
            let failure = self.failures.last_mut();
            if let Some(failure) = failure.filter(|one| one.lines.len() < REPEATED_LINES)
                && !line.trim().is_empty()
            {
                failure.lines.push(line.to_owned());
            }
        } else if line.trim().to_ascii_lowercase().starts_with("skip") {
            self.skipped.push(format!("{}: {}", self.test, line.trim()));
        }
    }

    /// What failed and how it began, for the end of the log: the whole is far above.
    fn print_failures(&self) {
        for Failure { test, lines } in &self.failures {
            println!("\nfailed: {test}");
            for line in lines {
                println!("    {line}");
            }
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
                    skipped: not root\ntest result: ok. 7 passed; 0 failed\nstill noise\n\n\
                    successes:\n    a\n    b\n\n\
                    test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let mut report = Report::default();
        let shown: Vec<&str> = text.lines().filter(|line| report.take(line)).collect();
        assert_eq!((report.passed, report.failed, report.ignored), (2, 0, 1));
        assert_eq!(report.skipped, ["b: skipped: not root"]);
        assert!(shown.contains(&"test a ... ok") && shown.iter().all(|line| !line.ends_with("noise")));
        assert!(
            shown
                .last()
                .is_some_and(|line| line.starts_with("test result: ok. 2 passed"))
        );
    }

    #[test]
    fn output_of_failures_is_shown() {
        let mut report = Report::default();
        let text = "successes:\nhidden\nsuccesses:\n    a\nfailures:\n---- c stdout ----\nwhy\n\n\
                    ---- d stdout ----\ntest result: ok. 1 passed; 0 failed\nfailures:\n    c\n    d\n\
                    test result: FAILED. 1 passed; 2 failed";
        let shown = text.lines().filter(|line| report.take(line)).count();
        assert_eq!(shown, text.lines().count() - 2);
        assert_eq!((report.passed, report.failed), (1, 2));
        let failures: Vec<_> = report
            .failures
            .iter()
            .map(|one| (one.test.as_str(), one.lines.len()))
            .collect();
        assert_eq!(failures, [("c", 1), ("d", 1)]);
        assert_eq!(report.failures[0].lines, ["why"]);
    }
}
