//! Parses the output of libtest: numbers, times, skipped tests, and the output of failed tests.

use std::time::Duration;

/// Part of libtest's output. The output of a test may contain any line, since tests run other
/// tests. Each list of outputs is followed by a list of names with the same heading.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    #[default]
    Results,
    /// Outputs of passed tests, which are not printed.
    Successes,
    /// Outputs of failed tests.
    Failures,
    /// A list of names.
    Names,
}

/// Results of one program.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
    pub(super) skipped: Vec<String>,
    /// Name and time of each test.
    pub(super) times: Vec<(String, Duration)>,
    /// The failed tests.
    pub(super) failures: Vec<Failure>,
    /// Whether the line with the numbers was found.
    pub(super) is_complete: bool,
    part: Part,
    /// Name of the test whose output is being read.
    test: String,
}

/// A failed test with the first lines of its output.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) test: String,
    pub(super) lines: Vec<String>,
}

/// Largest number of lines of a failed test's output that are printed; the log file has all.
const PRINTED_LINES: usize = 40;

impl Report {
    /// Parses the whole output of a program.
    pub(super) fn of(output: &str) -> Self {
        let mut report = Self::default();
        output.lines().for_each(|line| report.take(line));
        report
    }

    fn take(&mut self, line: &str) {
        let is_output = matches!(self.part, Part::Successes | Part::Failures);
        match line {
            "successes:" if self.part == Part::Successes => self.part = Part::Names,
            "failures:" if self.part == Part::Failures => self.part = Part::Names,
            "successes:" if !is_output => self.part = Part::Successes,
            "failures:" if !is_output => self.part = Part::Failures,
            _ if is_output => self.take_output(line),
            _ => {
                if let Some(timed) = time(line) {
                    self.times.push(timed);
                } else if let Some(result) = line.strip_prefix("test result:") {
                    self.part = Part::Results;
                    self.is_complete = true;
                    self.passed += count(result, "passed");
                    self.failed += count(result, "failed");
                    self.ignored += count(result, "ignored");
                }
            }
        }
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
            if let Some(failure) = failure.filter(|one| one.lines.len() < PRINTED_LINES)
                && !line.trim().is_empty()
            {
                failure.lines.push(line.to_owned());
            }
        } else if line.trim().to_ascii_lowercase().starts_with("skip") {
            self.skipped.push(format!("{}: {}", self.test, line.trim()));
        }
    }

    /// Prints the failed tests.
    pub(super) fn print_failures(&self) {
        for Failure { test, lines } in &self.failures {
            println!("\nfailed: {test}");
            for line in lines {
                println!("    {line}");
            }
        }
    }
}

/// Returns name and time of a line `test a::b ... ok <1.234s>`.
fn time(line: &str) -> Option<(String, Duration)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = rest.strip_suffix("s>")?.rsplit_once('<')?.1.parse().ok()?;
    Some((name.to_owned(), Duration::try_from_secs_f64(seconds).ok()?))
}

/// Returns the number before a word in ` ok. 3 passed; 0 failed; …`.
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
    fn counts_times_and_skips_are_found() {
        let report = Report::of(
            "running 2 tests\ntest a ... ok <0.250s>\ntest b - should panic ... ok <1.5s>\n\nsuccesses:\n\n\
             ---- b stdout ----\nnoise\n\
             skipped: not root\ntest result: ok. 7 passed; 0 failed\ntest n ... ok <9.0s>\n\n\
             successes:\n    a\n    b\n\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!((report.passed, report.failed, report.ignored), (2, 0, 1));
        assert_eq!(report.skipped, ["b: skipped: not root"]);
        let times: Vec<_> = report
            .times
            .iter()
            .map(|(test, took)| (test.as_str(), took.as_millis()))
            .collect();
        assert_eq!(times, [("a", 250), ("b - should panic", 1500)]);
        assert!(report.is_complete);
        assert!(!Report::of("running 2 tests\ntest a ... ok <0.1s>\n").is_complete);
    }

    #[test]
    fn output_of_failures_is_kept() {
        let report = Report::of(
            "successes:\nhidden\nsuccesses:\n    a\nfailures:\n---- c stdout ----\nwhy\n\n\
             ---- d stdout ----\ntest result: ok. 1 passed; 0 failed\nfailures:\n    c\n    d\n\
             test result: FAILED. 1 passed; 2 failed",
        );
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
