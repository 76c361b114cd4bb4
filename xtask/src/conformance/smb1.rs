//! `cargo xtask conformance --smb1`: smbtorture's suites for SMB 1, `base` and `raw`, against
//! `ropeway serve --smb1` and beside it against smbd, which also speaks SMB 1.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::results::{Results, Row, Sum};
use super::samba::Samba;
use super::{Arguments, Kind, TestServer, chosen, report};
use crate::process::capture;
use crate::step;
use crate::tools;
use crate::workspace::Workspace;

/// Parts of names of suites that test nothing: they measure, hold files open for people to look, scan for
/// unknown commands, or ask for a second program.
const LEFT_OUT: &[&str] = &["bench", "scan", "hold", "ping-pong", "iometer"];
/// Names of the servers, in the order of the columns.
const NAMES: [&str; 2] = ["ropeway serve --smb1", "smbd"];

/// Runs the chosen suites against both servers and writes the results.
///
/// # Errors
/// smbtorture or smbd is not available, `serve` crashed or hung, or nothing can be written.
pub(super) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let all = suites()?;
    let chosen = chosen(&all, &arguments.suites)?;
    let binary = step::ropeway(workspace, arguments.binary.as_deref())?;
    let limit = Duration::from_secs(arguments.limit);
    let mut faults = Vec::new();
    let mut both = [Results::default(), Results::default()];
    let program = Samba::default().smbtorture(workspace)?;
    for (kind, results) in [Kind::ServeSmb1, Kind::SmbdSmb1].into_iter().zip(&mut both) {
        println!("{kind:?}:");
        let mut server = TestServer::new(workspace, &binary, program.clone(), limit, kind)?;
        for suite in &chosen {
            results.rows.extend(server.suite(suite)?.rows);
        }
        let found = server.end();
        // smbd's own crashes are results.
        faults.extend(found.into_iter().filter(|_| kind == Kind::ServeSmb1));
    }
    for (name, results) in NAMES.iter().zip(&both) {
        println!("{name}: {} passed", Sum::of(&results.rows).pass);
    }
    if !arguments.no_write && chosen.len() == all.len() {
        let path = workspace.root().join("docs/conformance-smb1.md");
        fs::write(
            &path,
            document(
                &both,
                &report::kept_reasons(&path)?,
                &report::environment(&program.version()?),
            ),
        )
        .with_context(|| format!("cannot write {}", path.display()))?;
        println!("written to docs/conformance-smb1.md");
    }
    ensure!(
        faults.is_empty(),
        "THE SERVER CRASHED OR HUNG:\n  {}",
        faults.join("\n  ")
    );
    Ok(())
}

/// Returns the suites that this smbtorture has: the first two parts of the names of its tests.
fn suites() -> Result<Vec<String>> {
    let list = capture(Command::new(tools::require("smbtorture")?).arg("--list"))?;
    Ok(suites_of(&list))
}

fn suites_of(list: &str) -> Vec<String> {
    let mut suites: Vec<String> = list
        .lines()
        .filter(|line| line.starts_with("base.") || line.starts_with("raw."))
        .filter(|line| !LEFT_OUT.iter().any(|part| line.contains(part)))
        .map(|line| line.split('.').take(2).collect::<Vec<_>>().join("."))
        .collect();
    suites.sort();
    suites.dedup();
    suites
}

fn document(both: &[Results; 2], reasons: &BTreeMap<String, String>, environment: &str) -> String {
    let mut text = format!(
        "# Conformance of SMB 1\n\n\
         What Samba's own test program makes of [`ropeway serve --smb1`](smb1.md#serving-old-devices), and of smbd with SMB 1 in its\n\
         default configuration, in the same run: `cargo xtask conformance --smb1`. Everything here is written by that command, but for\n\
         the reasons, which are kept by hand. Suites that measure, scan for unknown commands or wait for people are left out.\n\n\
         Last run: {environment}.\n\n\
         | server | passed | failed | incomplete | skipped |\n|---|--:|--:|--:|--:|\n"
    );
    for (name, results) in NAMES.iter().zip(both) {
        _ = writeln!(text, "| {name} | {} |", report::columns(Sum::of(&results.rows)));
    }
    text.push_str("\n| suite | passed | not passed | smbd | why |\n|---|--:|--:|--:|---|\n");
    for suite in both[0].suites() {
        let [own, other] = both.each_ref().map(|results| Sum::of(results.of(suite)));
        _ = writeln!(
            text,
            "| `{suite}` | {} | {} | {} | {} |",
            own.pass,
            own.fail + own.broken,
            other.pass,
            reasons.get(suite).map_or("", String::as_str)
        );
    }
    text.push_str("\n## Passed by smbd alone\n\n");
    let passes = both[0].passes();
    let lost = |row: &&Row| !passes.contains(&(row.suite.as_str(), row.test.as_str()));
    let names: Vec<String> = both[1]
        .rows
        .iter()
        .filter(|row| row.outcome == super::results::Outcome::Pass)
        .filter(lost)
        .map(|row| format!("`{}`", row.test))
        .collect();
    text.push_str(&names.join(", "));
    text.push_str(".\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::Outcome;
    use super::*;

    #[test]
    fn suites_are_the_first_two_parts_without_benchmarks() {
        let list = "base.delete.deltest1\nbase.delete.deltest2\nraw.bench-open\nsmb2.lock\nraw.read\nbase.scan-ioctl\n";
        assert_eq!(suites_of(list), ["base.delete", "raw.read"]);
    }

    #[test]
    fn reasons_are_kept_by_hand() {
        let both = [Outcome::Fail, Outcome::Pass].map(|outcome| Results {
            rows: vec![Row::new("raw.read", "raw.read.read", outcome)],
        });
        let text = document(&both, &BTreeMap::new(), "today");
        assert!(text.contains("| `raw.read` | 0 | 1 | 1 |  |"), "{text}");
        assert!(text.ends_with("`raw.read.read`.\n"), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.md");
        let by_hand = text.replace("| 1 |  |", "| 1 | no reads |");
        fs::write(&path, &by_hand).unwrap();
        assert_eq!(
            document(&both, &report::kept_reasons(&path).unwrap(), "today"),
            by_hand
        );
    }
}
