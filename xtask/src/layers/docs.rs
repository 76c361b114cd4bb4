//! The table of tiers in `CONTRIBUTING.md`, made from the data of [`rules`].

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::rules::{self, Tier};
use crate::workspace::{Workspace, replaced_between};

/// First line of the generated part.
const BEGIN: &str = "<!-- tiers begin: written by `cargo xtask layers --write` -->\n";
/// Last line of the generated part.
const END: &str = "<!-- tiers end -->\n";

/// Writes the table, or checks it. Returns its fault, if there is one.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn check(workspace: &Workspace, crates: &[&str], write: bool) -> Result<Option<String>> {
    let path = workspace.root().join("CONTRIBUTING.md");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let Some(new) = replaced_between(&text, BEGIN, END, &table(crates)) else {
        return Ok(Some(format!("CONTRIBUTING.md has no line `{}`", BEGIN.trim())));
    };
    if new == text {
        return Ok(None);
    }
    if write {
        fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))?;
        println!("CONTRIBUTING.md: the table of tiers is written");
        return Ok(None);
    }
    let hint = "CONTRIBUTING.md: the table of tiers is stale; run `cargo xtask layers --write`";
    Ok(Some(hint.to_owned()))
}

/// Returns the table of these crates.
fn table(crates: &[&str]) -> String {
    let mut text = String::from(
        "| tier | crates (after `->`: those of its own tier that it uses) | rule |\n|---|---|---|\n",
    );
    for tier in Tier::ALL {
        let own = crates.iter().filter(|name| rules::tier(name) == Some(tier));
        let shown = own.map(|name| {
            let used = rules::siblings(name).iter().filter(|used| crates.contains(used));
            let used: Vec<String> = used.map(|used| format!("`{used}`")).collect();
            match used.is_empty() {
                true => format!("`{name}`"),
                false => format!("`{name}` -> {}", used.join(" ")),
            }
        });
        let shown: Vec<String> = shown.collect();
        if !shown.is_empty() {
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                tier.name(),
                shown.join(", "),
                tier.rule()
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_table_is_reported_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(folder.path());
        let path = folder.path().join("CONTRIBUTING.md");
        fs::write(&path, "# Head\n").unwrap();
        assert!(
            check(&workspace, &["vfs"], false)
                .unwrap()
                .unwrap()
                .contains("no line")
        );
        fs::write(&path, format!("# Head\n{BEGIN}old\n{END}tail\n")).unwrap();
        let crates = ["block", "vfs", "lab", "peers"];
        assert!(
            check(&workspace, &crates, false)
                .unwrap()
                .unwrap()
                .contains("stale")
        );
        assert_eq!(check(&workspace, &crates, true).unwrap(), None);
        assert_eq!(check(&workspace, &crates, false).unwrap(), None);
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("| pure | `block`, `vfs` -> `block` | no I/O"),
            "{text}"
        );
        assert!(text.contains("| product | `lab` -> `peers`, `peers` |"), "{text}");
        assert!(text.starts_with("# Head\n") && text.ends_with("tail\n"));
    }
}
