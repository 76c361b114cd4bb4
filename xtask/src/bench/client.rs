//! The tools that copy, and how each is called to copy a tree with its attributes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::ground::Volume;
use crate::process::{Usage, capture, check_interrupt, find_program, measure, run as run_command};
use crate::workspace::Workspace;

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Client {
    /// This project's release binary
    Ropeway,
    /// `cp -a`
    Cp,
    /// `rsync -a`
    Rsync,
    /// The crate xcp
    Xcp,
    /// The crate cpz
    Cpz,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Only the time until the process ends.
    Perceived,
    /// Only the time until the data is durable.
    Durable,
    /// Both: the process, then `sync -f`.
    Both,
}

/// A tool that is there.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    /// Which.
    pub(super) client: Client,
    program: PathBuf,
    /// First line of its `--version`.
    pub(super) version: String,
}

/// One measured run, in seconds and KiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Until the process ended, if that was asked.
    pub(super) perceived: Option<f64>,
    /// Until the data was durable, if that was asked.
    pub(super) durable: Option<f64>,
    /// User and system time of the process.
    pub(super) cpu: f64,
    /// Its peak resident memory.
    pub(super) peak_kib: u64,
}

impl Client {
    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ropeway => "ropeway",
            Self::Cp => "cp -a",
            Self::Rsync => "rsync -a",
            Self::Xcp => "xcp",
            Self::Cpz => "cpz",
        }
    }

    /// The runs that one round needs: ropeway is durable by itself, the others are followed by `sync -f`.
    pub(super) fn purposes(self) -> &'static [Purpose] {
        match self {
            Self::Ropeway => &[Purpose::Perceived, Purpose::Durable],
            _ => &[Purpose::Both],
        }
    }

    /// Finds it; builds ropeway, and installs a crate that is missing.
    ///
    /// # Errors
    /// If it is not to be had; the reason is for people.
    pub(super) fn install(self, workspace: &Workspace) -> Result<Installed> {
        let program = match self {
            Self::Ropeway => {
                crate::ci::build(workspace)?;
                workspace.ropeway()
            }
            Self::Cp => find_program("cp").context("there is no cp")?,
            Self::Rsync => find_program("rsync").context("not installed: `apt-get install rsync`")?,
            Self::Xcp => install_crate(workspace, "xcp")?,
            Self::Cpz => install_crate(workspace, "cpz")?,
        };
        let text = capture(Command::new(&program).arg("--version"))?;
        Ok(Installed {
            client: self,
            program,
            version: text.lines().next().unwrap_or_default().trim().to_owned(),
        })
    }
}

fn install_crate(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let root = workspace.target().join("tools");
    let program = root.join("bin").join(name);
    if !program.is_file() {
        let mut install = workspace.cargo(["install", name, "--locked", "--root"]);
        run_command(install.arg(&root)).with_context(|| format!("cannot install the crate {name}"))?;
    }
    Ok(program)
}

impl Installed {
    /// The command that copies the folder `source` as the new folder `target`.
    pub(super) fn command(&self, source: &Path, target: &Path, purpose: Purpose) -> Command {
        let mut command = Command::new(&self.program);
        match self.client {
            Client::Ropeway => {
                command.arg("copy");
                if purpose == Purpose::Perceived {
                    command.args(["--durability", "none", "--cache", "keep"]);
                }
                command.arg(source).arg(target)
            }
            Client::Cp => command.arg("-a").arg(source).arg(target),
            Client::Rsync => command.arg("-a").arg(source.join("")).arg(target.join("")),
            Client::Xcp => command
                .args(["--recursive", "--no-progress"])
                .arg(source)
                .arg(target),
            Client::Cpz => command.arg(source).arg(target),
        };
        command
    }

    /// Copies and measures. `scratch` holds the log and what the tool keeps for itself.
    ///
    /// # Errors
    /// If the tool fails, or on an interrupt.
    pub(super) fn copy(
        &self,
        source: &Path,
        volume: &Volume,
        purpose: Purpose,
        scratch: &Path,
    ) -> Result<Sample> {
        let target = volume.place().join("copy");
        let mut command = self.command(source, &target, purpose);
        // A private state: no run finds another's journal, and the user's settings do not count.
        command.env("XDG_STATE_HOME", scratch.join("state"));
        command.env("XDG_CONFIG_HOME", scratch.join("config"));
        let usage = measure(&command, &scratch.join("log"))?;
        let flushed = match purpose {
            Purpose::Both => sync(&target)?,
            Purpose::Perceived | Purpose::Durable => Duration::ZERO,
        };
        check_interrupt()?;
        Ok(Sample::new(usage, flushed, purpose))
    }
}

impl Sample {
    fn new(usage: Usage, flushed: Duration, purpose: Purpose) -> Self {
        Self {
            perceived: (purpose != Purpose::Durable).then_some(usage.wall.as_secs_f64()),
            durable: (purpose != Purpose::Perceived).then_some((usage.wall + flushed).as_secs_f64()),
            cpu: usage.cpu.as_secs_f64(),
            peak_kib: usage.peak_kib,
        }
    }
}

/// `sync -f`: what a careful user of the other tools has to do.
fn sync(target: &Path) -> Result<Duration> {
    let start = Instant::now();
    capture(Command::new("sync").arg("-f").arg(target))?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shown;

    #[test]
    fn perceived_runs_of_ropeway_wait_for_nothing_and_default_runs_have_no_flag() {
        let ropeway = Installed {
            client: Client::Ropeway,
            program: PathBuf::from("ropeway"),
            version: String::new(),
        };
        let command = |purpose| shown(&ropeway.command(Path::new("s"), Path::new("t"), purpose));
        assert_eq!(
            command(Purpose::Perceived),
            "ropeway copy --durability none --cache keep s t"
        );
        assert_eq!(command(Purpose::Durable), "ropeway copy s t");
        let rsync = Installed {
            client: Client::Rsync,
            program: PathBuf::from("rsync"),
            version: String::new(),
        };
        assert_eq!(
            shown(&rsync.command(Path::new("s"), Path::new("t"), Purpose::Both)),
            "rsync -a s/ t/"
        );
    }

    #[test]
    fn a_sample_holds_what_its_purpose_asks() {
        let usage = Usage {
            wall: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
            peak_kib: 7,
        };
        let both = Sample::new(usage, Duration::from_secs(3), Purpose::Both);
        assert_eq!((both.perceived, both.durable), (Some(2.0), Some(5.0)));
        let durable = Sample::new(usage, Duration::ZERO, Purpose::Durable);
        assert_eq!((durable.perceived, durable.durable), (None, Some(2.0)));
    }
}
