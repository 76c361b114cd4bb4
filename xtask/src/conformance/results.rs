//! Results of test suites: read and written, summed up, and compared with kept results and with
//! other servers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

ropeway_lab::named! {
    /// Outcome of a test, by its word in files and tables.
    pub(super) enum Outcome: "outcome" {
        /// The test passed.
        Pass = "pass",
        /// The test failed.
        Fail = "fail",
        /// The test could not be run.
        Error = "error",
        /// The test began and did not end.
        Incomplete = "incomplete",
        /// The test does not apply to the server.
        Skip = "skip",
    }
}

/// Result of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Name of the suite: `smb2.lock`.
    pub(super) suite: String,
    /// Name of the test: `smb2.lock.valid-request`.
    pub(super) test: String,
    /// Outcome of the test.
    pub(super) outcome: Outcome,
}

/// Results of tests, in the order of the runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    /// One row for each test.
    pub(super) rows: Vec<Row>,
}

/// Number of tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Passed tests.
    pub(super) pass: usize,
    /// Failed tests.
    pub(super) fail: usize,
    /// Tests that could not be run, or began and did not end.
    pub(super) broken: usize,
    /// Tests that do not apply.
    pub(super) skip: usize,
}

impl Outcome {
    /// Whether the test neither passed nor was skipped.
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Fail | Self::Error | Self::Incomplete)
    }
}

impl Row {
    /// Returns a row.
    pub(super) fn new(suite: &str, test: &str, outcome: Outcome) -> Self {
        Self {
            suite: suite.to_owned(),
            test: test.to_owned(),
            outcome,
        }
    }

    /// Parses a line of suite, test and one or several outcomes. `None` if it has no such outcome.
    fn parse(line: &str, outcome: usize) -> Option<Self> {
        let words: Vec<&str> = line.split('\t').collect();
        let (suite, test) = (words.first()?, words.get(1)?);
        Some(Self::new(suite, test, words.get(2 + outcome)?.parse().ok()?))
    }
}

impl Sum {
    /// Counts some rows.
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut sum = Self::default();
        for row in rows {
            match row.outcome {
                Outcome::Pass => sum.pass += 1,
                Outcome::Fail => sum.fail += 1,
                Outcome::Error | Outcome::Incomplete => sum.broken += 1,
                Outcome::Skip => sum.skip += 1,
            }
        }
        sum
    }
}

/// Returns the lines of a file of results, without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

impl Results {
    /// Reads a file; without a file there are no results.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub(super) fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| format!("{} has another format", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let rows = lines(text).map(|line| Row::parse(line, 0).with_context(|| format!("{line:?}")));
        Ok(Self {
            rows: rows.collect::<Result<_>>()?,
        })
    }

    /// Returns the text of the file.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("# Written by `cargo xtask conformance`: suite, test, outcome\n");
        for Row { suite, test, outcome } in &self.rows {
            let _ = writeln!(text, "{suite}\t{test}\t{}", outcome.name());
        }
        text
    }

    /// Returns the rows of one suite.
    pub(super) fn of(&self, suite: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.suite == suite)
    }

    /// Returns the names of the suites, in the order of their first rows.
    pub(super) fn suites(&self) -> Vec<&str> {
        let mut suites: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !suites.contains(&row.suite.as_str()) {
                suites.push(&row.suite);
            }
        }
        suites
    }

    /// Returns these results, with the older ones of suites that have none here, in this order of
    /// suites.
    pub(super) fn over(&self, older: &Self, order: &[String]) -> Self {
        let mut rows = Vec::new();
        for suite in order {
            let fresh: Vec<&Row> = self.of(suite).collect();
            match fresh.is_empty() {
                false => rows.extend(fresh.into_iter().cloned()),
                true => rows.extend(older.of(suite).cloned()),
            }
        }
        Self { rows }
    }

    /// Returns suite and name of the tests that pass.
    pub(super) fn passes(&self) -> BTreeSet<(&str, &str)> {
        self.rows
            .iter()
            .filter(|row| row.outcome == Outcome::Pass)
            .map(|row| (row.suite.as_str(), row.test.as_str()))
            .collect()
    }

    /// Returns the tests of these suites that passed before and do not pass now.
    pub(super) fn lost<'a>(&self, before: &'a Self) -> Vec<&'a Row> {
        let (own, suites) = (self.passes(), self.suites());
        before
            .rows
            .iter()
            .filter(|row| row.outcome == Outcome::Pass && suites.contains(&row.suite.as_str()))
            .filter(|row| !own.contains(&(row.suite.as_str(), row.test.as_str())))
            .collect()
    }

    /// Returns the tests that pass now and did not pass before.
    pub(super) fn won<'a>(&'a self, before: &Self) -> Vec<&'a Row> {
        let old = before.passes();
        self.rows
            .iter()
            .filter(|row| row.outcome == Outcome::Pass)
            .filter(|row| !old.contains(&(row.suite.as_str(), row.test.as_str())))
            .collect()
    }
}

/// Results of other servers in the same tests: measured by `smbtorture` of the same package.
#[derive(Debug)]
pub(super) struct Peers {
    /// Names of the servers.
    pub(super) names: &'static [&'static str],
    /// Their results, in the same order.
    results: Vec<Results>,
}

impl Peers {
    /// Parses lines of a suite, a test, and the outcomes of the servers.
    pub(super) fn parse(names: &'static [&'static str], text: &str) -> Self {
        let column = |column| Results {
            rows: lines(text).filter_map(|line| Row::parse(line, column)).collect(),
        };
        Self {
            names,
            results: (0..names.len()).map(column).collect(),
        }
    }

    /// Returns the outcomes of a test as words; `-` where it was not run.
    pub(super) fn of(&self, suite: &str, test: &str) -> Vec<&'static str> {
        let outcome = |results: &Results| {
            let found = results.of(suite).find(|row| row.test == test);
            found.map_or("-", |row| row.outcome.name())
        };
        self.results.iter().map(outcome).collect()
    }

    /// Counts the tests of one suite, or of all.
    pub(super) fn sums(&self, suite: Option<&str>) -> Vec<Sum> {
        let sum = |results: &Results| match suite {
            Some(suite) => Sum::of(results.of(suite)),
            None => Sum::of(&results.rows),
        };
        self.results.iter().map(sum).collect()
    }

    /// Counts the passed tests of one suite, or of all.
    pub(super) fn passes(&self, suite: Option<&str>) -> Vec<usize> {
        self.sums(suite).iter().map(|sum| sum.pass).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(rows: &[(&str, &str, Outcome)]) -> Results {
        let rows = rows
            .iter()
            .map(|(suite, test, outcome)| Row::new(suite, test, *outcome));
        Results { rows: rows.collect() }
    }

    #[test]
    fn results_are_kept_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.tsv");
        assert_eq!(Results::read(&path).unwrap(), Results::default());
        let some = results(&[("a", "a.b c", Outcome::Pass), ("a", "a.d", Outcome::Incomplete)]);
        fs::write(&path, some.text()).unwrap();
        assert_eq!(Results::read(&path).unwrap(), some);
        fs::write(&path, "a\tb\tperhaps\n").unwrap();
        assert!(Results::read(&path).is_err());
    }

    #[test]
    fn only_suites_that_ran_are_compared() {
        use Outcome::{Fail, Pass};
        let before = results(&[("a", "1", Pass), ("a", "2", Pass), ("b", "1", Pass)]);
        let now = results(&[("a", "1", Fail), ("a", "2", Pass), ("a", "3", Pass)]);
        assert_eq!(now.lost(&before), [&before.rows[0]]);
        assert_eq!(now.won(&before), [&now.rows[2]]);
        let order = ["b", "a"].map(str::to_owned);
        let all = now.over(&before, &order);
        assert_eq!(all.suites(), ["b", "a"]);
        assert_eq!(
            Sum::of(&all.rows),
            Sum {
                pass: 3,
                fail: 1,
                ..Sum::default()
            }
        );
    }
}
