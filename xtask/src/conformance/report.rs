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

use super::results::{Outcome, Peers, Results, Row, Sum};
use super::samba::Samba;
use crate::process::capture;
use crate::workspace::Workspace;

/// Largest number of lost and won tests that are printed.
const SHOWN_MAX: usize = 60;

/// Returns the text for the terminal: failures, sums, and differences from the kept results.
pub(super) fn summary(results: &Results, kept: &Results, peers: &Peers) -> String {
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
    let none = vec![0; peers.names.len()];
    let others = results.suites().iter().fold(none, |mut sums, suite| {
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
        named(peers, &others)
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

fn named(peers: &Peers, passes: &[usize]) -> String {
    let parts = peers
        .names
        .iter()
        .zip(passes)
        .map(|(name, pass)| format!("{name} passes {pass}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Writes the document.
///
/// # Errors
/// It cannot be read or written.
pub(super) fn write(workspace: &Workspace, samba: Samba, results: &Results, environment: &str) -> Result<()> {
    let path = workspace.root().join(samba.document());
    fs::write(
        &path,
        document(samba, results, &kept_reasons(&path)?, environment),
    )
    .with_context(|| format!("cannot write {}", path.display()))?;
    println!("written to {}", samba.document());
    Ok(())
}

/// Returns date, the version that smbtorture names, and machine.
pub(super) fn environment(torture: &str) -> String {
    let line = |command: &mut Command| {
        let text = capture(command).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().to_owned()
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    format!(
        "{}, {torture}, Linux {}, {} processors, folder in memory",
        line(Command::new("date").args(["-u", "+%F"])),
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

/// Returns what the document says above its tables.
fn introduction(samba: Samba, environment: &str) -> String {
    let min = samba.pass_min();
    let last = format!("Last run: {environment}. At least {min} tests must pass.\n\n");
    match samba {
        Samba::V417 => format!(
            "# Conformance\n\n\
             What Samba's own test program makes of `ropeway serve`. Repeat it with `cargo xtask conformance`, or with\n\
             `cargo xtask conformance SUITE…` for some suites; the quick ones run in `cargo xtask ci` (step `conformance`), which fails\n\
             if one of their tests that passed does not pass any more. Everything here is written by that command, but for the reasons\n\
             beside the failures: those are kept by hand. [Results with Samba 4.25](conformance-4.25.md), [of SMB 1](conformance-smb1.md) and\n\
             [Microsoft's suite](conformance-wpts.md) have their own pages.\n\n{last}"
        ),
        Samba::V425 => format!(
            "# Conformance, with Samba 4.25\n\n\
             What the test program of the newest Samba makes of `ropeway serve`: `cargo xtask conformance --samba 4.25`, as root on a\n\
             Debian system (smbtorture is unpacked from the unstable suite). Everything here is written by that command, but for the\n\
             reasons beside the failures: those are kept by hand. [The older suite](conformance.md) also runs in CI.\n\n{last}"
        ),
    }
}

/// Returns how the results of the others came about.
fn about_peers(samba: Samba) -> &'static str {
    match samba {
        Samba::V417 => {
            "The others were measured with the same package and suites on the same kind of machine, suite by suite, with 420 s\n\
             each (`xtask/conformance/peers.tsv` has every test). *Plain* is Samba's default configuration; *tuned* has streams_xattr,\n\
             acl_xattr, DOS attributes, strict locking, FSCTL_SMBTORTURE and multichannel. *Incomplete*: it began and did not end, or\n\
             could not be made. No server passes all: many tests ask for what only Windows or a domain has, or for a configuration of\n\
             their own."
        }
        Samba::V425 => {
            "Samba was measured with the same package and suites on the same kind of machine, suite by suite, with 200 s each\n\
             (`xtask/conformance/peers-4.25.tsv` has every test); *tuned* is explained beside the older suite. Its run had none of the\n\
             options that `set-sparse-ioctl`, `zero-data-ioctl` and `twrp` ask for, and did not demand signatures."
        }
    }
}

fn document(
    samba: Samba,
    results: &Results,
    reasons: &BTreeMap<String, String>,
    environment: &str,
) -> String {
    let (sum, peers) = (Sum::of(&results.rows), samba.peers());
    let mut text = introduction(samba, environment);
    let _ = write!(
        text,
        "| server | passed | failed | incomplete | skipped |\n|---|--:|--:|--:|--:|\n\
         | **ropeway serve** | **{}** | {} | {} | {} |\n",
        sum.pass, sum.fail, sum.broken, sum.skip
    );
    for (name, sum) in peers.names.iter().zip(peers.sums(None)) {
        let _ = writeln!(text, "| {name} | {} |", columns(sum));
    }
    let _ = write!(
        text,
        "\n{}\n\n## By suite\n\n| suite | passed | failed | incomplete | skipped | {} |\n|---|--:|--:|--:|--:|{}\n",
        about_peers(samba),
        peers.names.join(" | "),
        "--:|".repeat(peers.names.len())
    );
    for suite in results.suites() {
        let sum = Sum::of(results.of(suite));
        let others: Vec<String> = peers.passes(Some(suite)).iter().map(usize::to_string).collect();
        let _ = writeln!(text, "| {suite} | {} | {} |", columns(sum), others.join(" | "));
    }
    text.push_str(
        "\n## What does not pass\n\n*Samba*: the same test with Samba (plain and tuned, where both were measured).\n\n\
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
    let outcomes = peers.of(&row.suite, &row.test);
    let of_samba = outcomes
        .iter()
        .zip(peers.names)
        .filter(|(_, name)| name.starts_with("Samba"));
    let mut samba: Vec<&str> = of_samba.map(|(outcome, _)| *outcome).collect();
    samba.dedup();
    let samba = samba.join(", ");
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
        let none = document(Samba::V417, &some(), &BTreeMap::new(), "today");
        assert!(
            none.contains("| `smb2.lock.valid-request` | fail | pass |  |"),
            "{none}"
        );
        assert!(
            none.contains("| `smb2.lock (none)` | incomplete | - |  |"),
            "{none}"
        );
        let by_hand = none.replace("fail | pass |  |", "fail | pass | byte 0 is odd |");
        let again = document(Samba::V417, &some(), &reasons(&by_hand), "tomorrow");
        assert_eq!(again, by_hand.replace("today", "tomorrow"));
    }

    #[test]
    fn the_sums_of_others_are_shown() {
        let text = document(Samba::V417, &some(), &BTreeMap::new(), "today");
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
        let text = summary(&some(), &before, &Samba::V417.peers());
        assert!(
            text.contains("1 passed in the kept results and not now:\n  smb2.lock.valid-request"),
            "{text}"
        );
    }
}
