//! Paths of the workspace and its products.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use walkdir::{DirEntry, WalkDir};

/// The workspace that the current folder is in.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// Searches upwards from the current folder.
    ///
    /// # Errors
    /// No parent folder holds the workspace.
    pub(crate) fn find() -> Result<Self> {
        let here = std::env::current_dir().context("cannot tell the current folder")?;
        for folder in here.ancestors() {
            let manifest = folder.join("Cargo.toml");
            if folder.join("xtask/Cargo.toml").is_file()
                && fs::read_to_string(&manifest).is_ok_and(|text| text.contains("[workspace]"))
            {
                return Ok(Self {
                    root: folder.to_path_buf(),
                });
            }
        }
        bail!(
            "{} is not inside the Ropeway workspace; change into a checkout of it and run `cargo xtask` there",
            here.display()
        )
    }

    /// Returns a workspace at a known path (for tests).
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    /// The top folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target folder.
    pub(crate) fn target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }

    /// The release binary of the product.
    pub(crate) fn ropeway(&self) -> PathBuf {
        self.target().join("release/ropeway")
    }

    /// Returns a cargo command that runs in the top folder.
    pub(crate) fn cargo<I>(&self, arguments: I) -> Command
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        command.args(arguments.into_iter().map(Into::into));
        command
    }

    /// Returns the folders of the member crates: `crates/*` and `xtask`, sorted.
    ///
    /// # Errors
    /// `crates` cannot be listed.
    pub(crate) fn members(&self) -> Result<Vec<PathBuf>> {
        let crates = self.root.join("crates");
        let mut members = Vec::new();
        for entry in fs::read_dir(&crates).with_context(|| format!("cannot list {}", crates.display()))? {
            let path = entry?.path();
            if path.join("Cargo.toml").is_file() {
                members.push(path);
            }
        }
        members.sort();
        members.push(self.root.join("xtask"));
        Ok(members)
    }

    /// Returns a path relative to the top folder.
    pub(crate) fn short<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

/// Returns a text with the part between two markers replaced; `None` if it does not have both.
pub(crate) fn replaced_between(text: &str, begin: &str, end: &str, new: &str) -> Option<String> {
    let (head, rest) = text.split_once(begin)?;
    let (_, tail) = rest.split_once(end)?;
    Some(format!("{head}{begin}{new}{end}{tail}"))
}

/// Returns all Rust sources below a folder, sorted, without `target` and hidden folders.
///
/// # Errors
/// A folder cannot be listed.
pub(crate) fn rust_sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_source = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !entry.file_type().is_dir() || name != "target" && !name.starts_with('.')
    };
    let mut found = Vec::new();
    for entry in WalkDir::new(folder).into_iter().filter_entry(is_source) {
        let path = entry?.into_path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
