//! Results of suites: what was kept, what is new, what others pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

/// What others pass: measured by `smbtorture` of the same package on the same machine.
const PEERS: &str = include_str!("../../conformance/peers.tsv");

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// It passed.
    Pass,
    /// It failed.
    Fail,
    /// It could not be made.
    Error,
    /// It began and did not end.
    Incomplete,
    /// It does not apply.
    Skip,
}

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// `smb2.lock`.
    pub(super) suite: String,
    /// `smb2.lock.valid-request`.
    pub(super) test: String,
    /// How it ended.
    pub(super) outcome: Outcome,
}

/// Tests in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    /// Each test once.
    pub(super) rows: Vec<Row>,
}

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// Passed.
    pub(super) pass: usize,
    /// Failed.
    pub(super) fail: usize,
    /// Could not be made, or began and did not end.
    pub(super) broken: usize,
    /// Do not apply.
    pub(super) skip: usize,
}

impl Outcome {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Pass, "pass"),
        (Self::Fail, "fail"),
        (Self::Error, "error"),
        (Self::Incomplete, "incomplete"),
        (Self::Skip, "skip"),
    ];

    /// Its word in files and tables.
    pub(super) fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(outcome, _)| *outcome == self)
            .map_or("", |(_, word)| word)
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, own)| *own == word)
            .map(|(outcome, _)| *outcome)
    }

    /// Whether it is neither passed nor skipped.
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Fail | Self::Error | Self::Incomplete)
    }
}

impl Row {
    /// One.
    pub(super) fn new(suite: &str, test: &str, outcome: Outcome) -> Self {
        Self {
            suite: suite.to_owned(),
            test: test.to_owned(),
            outcome,
        }
    }
}

impl Sum {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Pass => self.pass += 1,
            Outcome::Fail => self.fail += 1,
            Outcome::Error | Outcome::Incomplete => self.broken += 1,
            Outcome::Skip => self.skip += 1,
        }
    }

    /// Of some rows.
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut sum = Self::default();
        for row in rows {
            sum.add(row.outcome);
        }
        sum
    }
}

impl Results {
    /// Reads what is kept; nothing is kept if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read or understood.
    pub(super) fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| format!("{} is not understood", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let mut rows = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split('\t');
            let row = (|| {
                let (suite, test) = (words.next()?, words.next()?);
                Some(Row::new(suite, test, Outcome::of(words.next()?)?))
            })();
            rows.push(row.with_context(|| format!("{line:?}"))?);
        }
        Ok(Self { rows })
    }

    /// As kept in the file: suite, test, outcome.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("# Written by `cargo xtask conformance`: suite, test, outcome\n");
        for Row { suite, test, outcome } in &self.rows {
            let _ = writeln!(text, "{suite}\t{test}\t{}", outcome.word());
        }
        text
    }

    /// Those of one suite.
    pub(super) fn of(&self, suite: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.suite == suite)
    }

    /// Suites in their order.
    pub(super) fn suites(&self) -> Vec<&str> {
        let mut suites: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !suites.contains(&row.suite.as_str()) {
                suites.push(&row.suite);
            }
        }
        suites
    }

    /// These results, and of the suites that are not among them the older ones; in the order of `order`.
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

    /// Names of the tests that pass.
    pub(super) fn passes(&self) -> BTreeSet<(&str, &str)> {
        self.rows
            .iter()
            .filter(|row| row.outcome == Outcome::Pass)
            .map(|row| (row.suite.as_str(), row.test.as_str()))
            .collect()
    }

    /// Tests of suites that were run that passed before and do not now.
    pub(super) fn lost<'a>(&self, before: &'a Self) -> Vec<&'a Row> {
        let (own, suites) = (self.passes(), self.suites());
        before
            .rows
            .iter()
            .filter(|row| row.outcome == Outcome::Pass && suites.contains(&row.suite.as_str()))
            .filter(|row| !own.contains(&(row.suite.as_str(), row.test.as_str())))
            .collect()
    }

    /// Tests that pass now and did not before.
    pub(super) fn won<'a>(&'a self, before: &Self) -> Vec<&'a Row> {
        let old = before.passes();
        self.rows
            .iter()
            .filter(|row| row.outcome == Outcome::Pass)
            .filter(|row| !old.contains(&(row.suite.as_str(), row.test.as_str())))
            .collect()
    }
}

/// What other servers do in the same tests.
#[derive(Debug)]
pub(super) struct Peers {
    words: BTreeMap<(&'static str, &'static str), [&'static str; 3]>,
}

impl Peers {
    /// Their names: the columns of the file.
    pub(super) const NAMES: [&'static str; 3] =
        ["Samba 4.17.12 plain", "Samba 4.17.12 tuned", "smb-server 0.8"];

    /// From the list in this program.
    pub(super) fn known() -> Self {
        let mut words = BTreeMap::new();
        for line in PEERS.lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.split('\t');
            if let (Some(suite), Some(test)) = (parts.next(), parts.next()) {
                let column = [(); 3].map(|()| parts.next().unwrap_or("-"));
                words.insert((suite, test), column);
            }
        }
        Self { words }
    }

    /// What they do in a test.
    pub(super) fn of(&self, suite: &str, test: &str) -> [&'static str; 3] {
        let found = self
            .words
            .iter()
            .find(|((own_suite, own_test), _)| *own_suite == suite && *own_test == test);
        found.map_or(["-"; 3], |(_, words)| *words)
    }

    /// How many passed, failed, were incomplete and skipped.
    pub(super) fn sums(&self) -> [[usize; 4]; 3] {
        let mut sums = [[0; 4]; 3];
        for words in self.words.values() {
            for (sum, word) in sums.iter_mut().zip(words) {
                match *word {
                    "pass" => sum[0] += 1,
                    "fail" => sum[1] += 1,
                    "skip" => sum[3] += 1,
                    "error" | "incomplete" => sum[2] += 1,
                    _ => {}
                }
            }
        }
        sums
    }

    /// How many tests they pass, in one suite or in all.
    pub(super) fn passes(&self, suite: Option<&str>) -> [usize; 3] {
        let mut counts = [0; 3];
        for ((own_suite, _), words) in &self.words {
            if suite.is_none_or(|suite| suite == *own_suite) {
                for (count, word) in counts.iter_mut().zip(words) {
                    *count += usize::from(*word == "pass");
                }
            }
        }
        counts
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

    #[test]
    fn others_are_as_they_were_measured() {
        let peers = Peers::known();
        assert_eq!(peers.passes(None), [389, 436, 81]);
        assert_eq!(peers.of("smb2.connect", "smb2.connect"), ["pass", "pass", "fail"]);
        assert_eq!(peers.of("smb2.connect", "no such"), ["-"; 3]);
    }
}
