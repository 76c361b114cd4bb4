//! Formats results for the terminal and for `docs/conformance.md`.
//!
//! The document is rewritten each time, except for the reasons of failures, which are edited by hand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::CONFORMANCE_MIN;
use super::results::{Outcome, Peers, Results, Row, Sum};
use crate::process::capture;
use crate::tools;
use crate::workspace::Workspace;

/// Largest number of lost and won tests that are printed.
const SHOWN_MAX: usize = 60;

/// Returns the text for the terminal: failures, sums, and differences from the kept results.
pub(super) fn summary(results: &Results, kept: &Results) -> String {
    let mut text = String::new();
    let failures: Vec<&Row> = results
        .rows
        .iter()
        .filter(|row| row.outcome.is_failure())
        .collect();
    if !failures.is_empty() {
        text.push_str("not passed:\n");
    }
    for row in failures {
        let _ = writeln!(text, "  {:10} {}", row.outcome.name(), row.test);
    }
    let sum = Sum::of(&results.rows);
    let peers = Peers::known();
    let others = results.suites().iter().fold([0; 3], |mut sums, suite| {
        for (sum, pass) in sums.iter_mut().zip(peers.passes(Some(suite))) {
            *sum += pass;
        }
        sums
    });
    let _ = writeln!(
        text,
        "{} passed, {} failed, {} incomplete, {} skipped; of the same suites {}",
        sum.pass,
        sum.fail,
        sum.broken,
        sum.skip,
        named(others)
    );
    for (what, rows) in [
        ("passed in the kept results and not now", results.lost(kept)),
        ("pass now and not in the kept results", results.won(kept)),
    ] {
        if rows.is_empty() || kept.rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{} {what}:", rows.len());
        for row in rows.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "  {}", row.test);
        }
        if rows.len() > SHOWN_MAX {
            let _ = writeln!(text, "  …");
        }
    }
    text
}

fn named(passes: [usize; 3]) -> String {
    let parts = Peers::NAMES
        .iter()
        .zip(passes)
        .map(|(name, pass)| format!("{name} passes {pass}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Writes the document.
///
/// # Errors
/// It cannot be read or written.
pub(super) fn write(workspace: &Workspace, results: &Results) -> Result<()> {
    let path = workspace.root().join("docs/conformance.md");
    fs::write(&path, document(results, &kept_reasons(&path)?, &environment()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("written to docs/conformance.md");
    Ok(())
}

/// Returns date, version of smbtorture and machine.
pub(super) fn environment() -> String {
    let line = |command: &mut Command| {
        let text = capture(command).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().to_owned()
    };
    let torture = tools::require("smbtorture").map(|path| line(Command::new(path).arg("--version")));
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    format!(
        "{}, smbtorture {}, Linux {}, {} processors, folder in memory",
        line(Command::new("date").args(["-u", "+%F"])),
        torture.unwrap_or_default(),
        read("/proc/sys/kernel/osrelease"),
        std::thread::available_parallelism().map_or(0, usize::from),
    )
}

/// Returns the reasons of an older document, by test or suite; none without a document.
///
/// # Errors
/// It cannot be read.
pub(super) fn kept_reasons(path: &Path) -> Result<BTreeMap<String, String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(reasons(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn reasons(text: &str) -> BTreeMap<String, String> {
    let mut reasons = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // An empty cell before and behind, the reason last: `| test | ends | Samba | reason |`.
        if let ["", test, .., reason, ""] = cells[..]
            && test.starts_with('`')
            && !reason.is_empty()
        {
            reasons.insert(test.trim_matches('`').to_owned(), reason.to_owned());
        }
    }
    reasons
}

fn document(results: &Results, reasons: &BTreeMap<String, String>, environment: &str) -> String {
    let (sum, peers) = (Sum::of(&results.rows), Peers::known());
    let mut text = format!(
        "# Conformance\n\n\
         What Samba's own test program makes of `ropeway serve`. Repeat it with `cargo xtask conformance`, or with\n\
         `cargo xtask conformance SUITE…` for some suites; the quick ones run in `cargo xtask ci` (step `conformance`), which fails\n\
         if one of their tests that passed does not pass any more. Everything here is written by that command, but for the reasons\n\
         beside the failures: those are kept by hand.\n\n\
         Last run: {environment}. At least {CONFORMANCE_MIN} tests must pass.\n\n\
         | server | passed | failed | incomplete | skipped |\n|---|--:|--:|--:|--:|\n\
         | **ropeway serve** | **{}** | {} | {} | {} |\n",
        sum.pass, sum.fail, sum.broken, sum.skip
    );
    for (name, sum) in Peers::NAMES.iter().zip(peers.sums(None)) {
        let _ = writeln!(text, "| {name} | {} |", columns(sum));
    }
    text.push_str(
        "\nThe others were measured with the same package and suites on the same kind of machine, suite by suite, with 420 s\n\
         each (`xtask/conformance/peers.tsv` has every test). *Plain* is Samba's default configuration; *tuned* has streams_xattr,\n\
         acl_xattr, DOS attributes, strict locking, FSCTL_SMBTORTURE and multichannel. *Incomplete*: it began and did not end, or\n\
         could not be made. No server passes all: many tests ask for what only Windows or a domain has, or for a configuration of\n\
         their own.\n\n## By suite\n\n\
         | suite | passed | failed | incomplete | skipped | Samba plain | Samba tuned | smb-server |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for suite in results.suites() {
        let sum = Sum::of(results.of(suite));
        let [plain, tuned, krate] = peers.passes(Some(suite));
        let _ = writeln!(
            text,
            "| {suite} | {} | {plain} | {tuned} | {krate} |",
            columns(sum)
        );
    }
    text.push_str(
        "\n## What does not pass\n\n*Samba*: the same test with Samba, plain and tuned.\n\n\
         | test | ends | Samba | reason |\n|---|---|---|---|\n",
    );
    for row in results.rows.iter().filter(|row| row.outcome.is_failure()) {
        failure(&mut text, row, &peers, reasons);
    }
    text.push_str("\n## What is skipped\n\n");
    let skipped: Vec<String> = results
        .rows
        .iter()
        .filter(|row| row.outcome == Outcome::Skip)
        .map(|row| format!("`{}`", row.test))
        .collect();
    text.push_str(&skipped.join(", "));
    text.push_str(".\n");
    text
}

/// Returns the columns of the tables that count tests.
pub(super) fn columns(sum: Sum) -> String {
    format!("{} | {} | {} | {}", sum.pass, sum.fail, sum.broken, sum.skip)
}

fn failure(text: &mut String, row: &Row, peers: &Peers, reasons: &BTreeMap<String, String>) {
    // A test without the prefix is the suite itself.
    let test = match row.test.starts_with("smb2.") {
        true => row.test.clone(),
        false => format!("{} {}", row.suite, row.test),
    };
    let [plain, tuned, _] = peers.of(&row.suite, &row.test);
    let samba = match plain == tuned {
        true => plain.to_owned(),
        false => format!("{plain}, {tuned}"),
    };
    let reason = reasons.get(&test).map_or("", String::as_str);
    let _ = writeln!(text, "| `{test}` | {} | {samba} | {reason} |", row.outcome.name());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Results {
        Results {
            rows: vec![
                Row::new("smb2.connect", "smb2.connect", Outcome::Pass),
                Row::new("smb2.lock", "smb2.lock.valid-request", Outcome::Fail),
                Row::new("smb2.lock", "(none)", Outcome::Incomplete),
                Row::new("smb2.lock", "smb2.lock.x", Outcome::Skip),
            ],
        }
    }

    #[test]
    fn reasons_are_kept_by_hand() {
        let none = document(&some(), &BTreeMap::new(), "today");
        assert!(
            none.contains("| `smb2.lock.valid-request` | fail | pass |  |"),
            "{none}"
        );
        assert!(
            none.contains("| `smb2.lock (none)` | incomplete | - |  |"),
            "{none}"
        );
        let by_hand = none.replace("fail | pass |  |", "fail | pass | byte 0 is odd |");
        let again = document(&some(), &reasons(&by_hand), "tomorrow");
        assert_eq!(again, by_hand.replace("today", "tomorrow"));
    }

    #[test]
    fn the_sums_of_others_are_shown() {
        let text = document(&some(), &BTreeMap::new(), "today");
        for line in [
            "| **ropeway serve** | **1** | 1 | 1 | 1 |",
            "| Samba 4.17.12 plain | 389 | 122 | 3 | 49 |",
            "| Samba 4.17.12 tuned | 436 |",
            "| smb-server 0.8 | 81 |",
            "| smb2.connect | 1 | 0 | 0 | 0 | 1 | 1 | 0 |",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        let mut before = some();
        before.rows[1].outcome = Outcome::Pass;
        let text = summary(&some(), &before);
        assert!(
            text.contains("1 passed in the kept results and not now:\n  smb2.lock.valid-request"),
            "{text}"
        );
    }
}
