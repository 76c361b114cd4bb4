//! The `fuzz` step: builds the crate `fuzz/` and runs each target for a few seconds.
//!
//! The targets are libFuzzer binaries. They are built by the stable compiler with the coverage flags that
//! `cargo fuzz` passes, without a sanitizer, so that neither a nightly compiler nor `cargo-fuzz` is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{capture, find_program, run as run_command, side_by_side};
use crate::step::Outcome;
use crate::workspace::Workspace;

/// Seconds for each target: a smoke test, not a campaign.
const SECONDS_EACH: u32 = 5;
/// Number of targets that run at a time.
const AT_ONCE: usize = 2;

/// Coverage flags for libFuzzer, as `cargo fuzz` passes them.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cdebug-assertions";

/// Runs all targets.
///
/// # Errors
/// The crate does not build, or a target finds a fault.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    let Some(mut build) = build_command(workspace)? else {
        return Ok(Outcome::skipped(
            "no C++ compiler for libFuzzer: `apt-get install g++`",
        ));
    };
    let manifest = workspace.root().join("fuzz/Cargo.toml");
    let text = fs::read_to_string(&manifest).context("cannot read fuzz/Cargo.toml")?;
    let targets = targets(&text)?;
    ensure!(!targets.is_empty(), "fuzz/Cargo.toml has no [[bin]]");
    let host = host_triple()?;
    run_command(&mut build)?;
    let built = folder(workspace);
    side_by_side(&targets, AT_ONCE, |target| {
        run_one(workspace, &built.join(&host).join("release"), target)
    })?;
    Ok(Outcome::passed(format!(
        "{} targets, {SECONDS_EACH} s each",
        targets.len()
    )))
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.root().join("fuzz/target")
}

/// Returns the command that builds all targets; `None` without a C++ compiler.
///
/// # Errors
/// The compiler does not name its host.
pub(crate) fn build_command(workspace: &Workspace) -> Result<Option<Command>> {
    if ["c++", "g++", "clang++"]
        .iter()
        .all(|name| find_program(name).is_none())
    {
        return Ok(None);
    }
    let mut build = workspace.cargo(["build", "--release", "--manifest-path"]);
    // With an explicit target the flags do not apply to build scripts.
    build
        .arg(workspace.root().join("fuzz/Cargo.toml"))
        .args(["--target", &host_triple()?, "--target-dir"])
        .arg(folder(workspace))
        .env("RUSTFLAGS", COVERAGE);
    Ok(Some(build))
}

fn run_one(workspace: &Workspace, programs: &Path, target: &str) -> Result<()> {
    let corpus = tempfile::tempdir()?;
    let mut fuzz = Command::new(programs.join(target));
    fuzz.arg(corpus.path());
    let seeds = workspace.root().join("fuzz/corpus").join(target);
    if seeds.is_dir() {
        fuzz.arg(seeds);
    }
    let artifacts = format!("-artifact_prefix={}/", folder(workspace).display());
    fuzz.arg(format!("-max_total_time={SECONDS_EACH}"))
        .args(["-verbosity=0", &artifacts]);
    run_command(&mut fuzz)
}

fn targets(manifest: &str) -> Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse().context("fuzz/Cargo.toml is not valid")?;
    let bins = manifest.get("bin").and_then(toml::Value::as_array);
    Ok(bins
        .into_iter()
        .flatten()
        .filter_map(|bin| Some(bin.get("name")?.as_str()?.to_owned()))
        .collect())
}

fn host_triple() -> Result<String> {
    let text = capture(Command::new("rustc").arg("-vV"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("`rustc -vV` names no host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_bins() {
        let text = "[package]\nname='f'\n[[bin]]\nname='a'\n[[bin]]\nname='b'\n";
        assert_eq!(targets(text).unwrap(), ["a", "b"]);
        assert!(targets("[package]").unwrap().is_empty());
        assert!(targets("[").is_err());
    }
}
