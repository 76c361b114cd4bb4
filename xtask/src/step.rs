//! The result of a step of `ci`, and the build that several commands share.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::run as run_command;
use crate::workspace::Workspace;

/// Result of a step that did not fail.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// One line for the table.
    pub(crate) note: String,
    /// Whether the step checked nothing.
    pub(crate) skipped: bool,
    /// Parts of the step that were left out, with the reasons.
    pub(crate) left_out: Vec<String>,
}

impl Outcome {
    /// Returns the result of a complete step.
    pub(crate) fn passed(note: impl Into<String>) -> Self {
        Self {
            note: note.into(),
            ..Self::default()
        }
    }

    /// Returns the result of a step that checked nothing, with the reason.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self {
            note: reason.into(),
            skipped: true,
            ..Self::default()
        }
    }
}

/// Returns the command that builds the release binary.
pub(crate) fn build_command(workspace: &Workspace) -> Command {
    workspace.cargo(["build", "--release", "--bin", "ropeway"])
}

/// Builds the release binary.
///
/// # Errors
/// It does not build.
pub(crate) fn build(workspace: &Workspace) -> Result<Outcome> {
    run_command(&mut build_command(workspace))?;
    ensure!(
        workspace.ropeway().is_file(),
        "the build left no {}",
        workspace.short(&workspace.ropeway()).display()
    );
    Ok(Outcome::passed("target/release/ropeway"))
}

/// Builds a release build of an example of the crate smb-client.
///
/// # Errors
/// It cannot be built.
pub(crate) fn example(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    run_command(&mut workspace.cargo([
        "build",
        "--release",
        "--quiet",
        "-p",
        "ropeway-smb-client",
        "--example",
        name,
    ]))?;
    Ok(workspace.target().join("release/examples").join(name))
}

/// Returns the program that users get: `chosen`, or else a new build with the profile `dist`.
///
/// # Errors
/// There is no such file, or the build fails.
pub(crate) fn shipped(workspace: &Workspace, chosen: Option<&Path>) -> Result<PathBuf> {
    shipped_with(workspace, chosen, &[])
}

/// Does the same; a new build gets these features too (`ropeway-cli/nats`).
///
/// # Errors
/// As [`shipped`].
pub(crate) fn shipped_with(
    workspace: &Workspace,
    chosen: Option<&Path>,
    features: &[&str],
) -> Result<PathBuf> {
    if chosen.is_some() {
        return ropeway(workspace, chosen);
    }
    let mut build = workspace.cargo(["build", "--profile", "dist", "--bin", "ropeway"]);
    if !features.is_empty() {
        build.arg(format!("--features={}", features.join(",")));
    }
    run_command(&mut build)?;
    Ok(workspace.target().join("dist/ropeway"))
}

/// Returns the program to test: `chosen`, or else a new release build.
///
/// # Errors
/// There is no such file, or the build fails.
pub(crate) fn ropeway(workspace: &Workspace, chosen: Option<&Path>) -> Result<PathBuf> {
    if let Some(binary) = chosen {
        return binary
            .canonicalize()
            .with_context(|| format!("there is no {}", binary.display()));
    }
    build(workspace)?;
    Ok(workspace.ropeway())
}
