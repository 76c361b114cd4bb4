//! Checks the length of source files. Clippy checks that of functions (`too_many_lines` in
//! `clippy.toml`).

use std::fs;

use anyhow::{Context, Result, bail};

use crate::step::Outcome;
use crate::workspace::{Workspace, rust_sources};

/// Lines at which a file must be split ("Style" of the architecture).
const LINES_MAX: usize = 600;

/// Checks every source file.
///
/// # Errors
/// A file is too long; the message names all of them.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let mut files = 0;
    let mut lines_total = 0;
    let mut too_long = Vec::new();
    for folder in ["crates", "xtask", "fuzz", "rivals"] {
        let folder = workspace.root().join(folder);
        if !folder.is_dir() {
            continue;
        }
        for path in rust_sources(&folder)? {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let lines = text.lines().count();
            files += 1;
            lines_total += lines;
            if lines > LINES_MAX {
                too_long.push(format!("{}: {lines} lines", workspace.short(&path).display()));
            }
        }
    }
    if !too_long.is_empty() {
        bail!(
            "files of more than {LINES_MAX} lines:\n  {}",
            too_long.join("\n  ")
        );
    }
    Ok(Outcome::passed(format!(
        "{files} files, {lines_total} lines, none above {LINES_MAX}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join("crates/a/src");
        fs::create_dir_all(&sources).unwrap();
        fs::write(sources.join("short.rs"), "\n".repeat(LINES_MAX)).unwrap();
        let workspace = Workspace::at(folder.path());
        run(&workspace).unwrap();
        fs::write(sources.join("long.rs"), "\n".repeat(LINES_MAX + 1)).unwrap();
        let error = run(&workspace).unwrap_err().to_string();
        assert!(error.contains("crates/a/src/long.rs: 601 lines"), "{error}");
        assert!(!error.contains("short.rs"), "{error}");
    }
}
