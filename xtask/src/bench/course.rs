//! Interleaved rounds of several tools over one way to one server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ropeway_lab::link::{Link, Side};
use ropeway_peers::{Rsyncd, Share, Smbd, SmbdBuilder};

use super::remote::{COPY, Client, Direction, Ends, Installed, PASSWORD, SOURCE, TARGET};
use super::report::rotated;
use crate::compare::same_content;
use crate::process::{Usage, check_interrupt, find_program, measure_by};
use crate::worksets::{Cargo, Content, count};

/// A run that takes longer is ended and counts as `> limit`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(pub(super) Duration);

/// The server's processes end a moment after the client; by then their time is complete. A guess.
const SETTLED: Duration = Duration::from_millis(100);

/// The work and the places for it, in memory where possible, removed when dropped.
#[derive(Debug)]
pub(super) struct Ground {
    folder: tempfile::TempDir,
    /// What there is to copy.
    pub(super) content: Content,
}

impl Ground {
    /// Makes the work.
    ///
    /// # Errors
    /// If there is no room, or nothing can be written.
    pub(super) fn new(fallback: &Path, cargo: Cargo, scale: f64) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory } else { fallback };
        let folder = tempfile::Builder::new()
            .prefix("ropeway-bench-")
            .tempdir_in(parent)?;
        println!("making {} in {}", cargo.title(), parent.display());
        let content = cargo.generate(&folder.path().join("source"), scale)?;
        for name in ["near", "far", "scratch"] {
            fs::create_dir(folder.path().join(name))?;
        }
        Ok(Self { folder, content })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An smbd that offers the work and takes copies; the caller adds where it listens and what it demands.
    pub(super) fn smbd(&self) -> SmbdBuilder {
        Smbd::builder()
            .durable_handles(false)
            .user("bench", PASSWORD)
            .share(Share::new(SOURCE, &self.at("source")).read_only())
            .share(Share::new(TARGET, &self.at("far")))
    }

    /// An rsync daemon on the far side of a link with the same.
    ///
    /// # Errors
    /// If rsync is missing or does not start.
    pub(super) fn rsyncd(&self, link: &Link) -> Result<Rsyncd> {
        Ok(Rsyncd::builder()
            .module(SOURCE, &self.at("source"))
            .module(TARGET, &self.at("far"))
            .in_namespace(&link.far_netns_path(), link.far_addr())
            .start()?)
    }
}

/// One measured run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Until the process ended, in seconds.
    pub(super) seconds: f64,
    /// User and system time of the process.
    pub(super) cpu: f64,
    /// The same of the SMB server, meanwhile.
    pub(super) server_cpu: f64,
    /// Peak resident memory of the process.
    pub(super) peak_mib: f64,
}

/// What one tool needed, one way.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    /// The counted runs.
    pub(super) samples: Vec<Sample>,
    /// Why there are no more.
    pub(super) failed: Option<String>,
}

impl Results {
    /// One value of each sample.
    pub(super) fn values(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(of).collect()
    }
}

/// One tool, both ways.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Its name.
    pub(super) name: &'static str,
    /// From the server.
    pub(super) read: Results,
    /// To the server.
    pub(super) write: Results,
}

impl Row {
    fn results(&mut self, direction: Direction) -> &mut Results {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }
}

/// Rounds of all tools, both ways.
pub(super) struct Course<'a> {
    /// The work.
    pub(super) ground: &'a Ground,
    /// The server.
    pub(super) smbd: &'a Smbd,
    /// The other server, if rsync takes part.
    pub(super) rsyncd: Option<&'a Rsyncd>,
    /// The way, if not loopback.
    pub(super) link: Option<&'a Link>,
    /// Patience.
    pub(super) limit: Limit,
    /// Whether the first round is left out of the results.
    pub(super) warm_up: bool,
    /// Counted rounds.
    pub(super) runs: usize,
}

impl Course<'_> {
    /// Runs the rounds; `between` is called before each with whether it counts.
    ///
    /// # Errors
    /// If ropeway copies wrongly, `between` fails, or on an interrupt.
    pub(super) fn run(
        &self,
        clients: &[Installed],
        between: &mut dyn FnMut(bool) -> Result<()>,
    ) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = clients
            .iter()
            .map(|installed| Row {
                name: installed.client.name(),
                read: Results::default(),
                write: Results::default(),
            })
            .collect();
        let turns: Vec<(usize, Direction)> = (0..clients.len())
            .flat_map(|index| Direction::ALL.map(|direction| (index, direction)))
            .collect();
        let warm_up = usize::from(self.warm_up);
        for round in 0..self.runs + warm_up {
            between(round >= warm_up)?;
            for (index, direction) in rotated(&turns, round * 2) {
                let results = rows[index].results(direction);
                if results.failed.is_some() {
                    continue;
                }
                match self.one(&clients[index], direction, round == 0) {
                    Ok(sample) if round >= warm_up => results.samples.push(sample),
                    Ok(_) => {}
                    Err(error) => {
                        check_interrupt()?;
                        let name = clients[index].client.name();
                        println!("{name} is left out of {} from here: {error:#}", direction.name());
                        results.failed =
                            Some(format!("{error:#}").lines().next().unwrap_or_default().to_owned());
                    }
                }
            }
        }
        Ok(rows)
    }

    /// One copy into an empty place; the first of each tool and way is compared with the source.
    fn one(&self, installed: &Installed, direction: Direction, compare: bool) -> Result<Sample> {
        let (source, scratch) = (self.ground.at("source"), self.ground.at("scratch"));
        let (near, far) = (self.ground.at("near"), self.ground.at("far"));
        for folder in [&near, &far, &scratch] {
            empty(folder)?;
        }
        let ends = Ends {
            smbd: self.smbd,
            rsyncd: self.rsyncd,
            source: &source,
            near: &near,
            scratch: &scratch,
        };
        let command = self.bounded(&installed.command(&ends, direction)?);
        let before = self.smbd.cpu();
        let measured = measure_by(&command, &scratch.join("log"), |command| match self.link {
            Some(link) => link.spawn(Side::Near, command),
            None => command.spawn(),
        });
        let usage = measured.map_err(|error| self.or_too_slow(error))?;
        std::thread::sleep(SETTLED);
        let sample = Sample::new(usage, self.smbd.cpu().saturating_sub(before));
        println!(
            "  {:20} {:5} {:8.2} s  {:6.2} s of processor",
            installed.client.name(),
            direction.name(),
            sample.seconds,
            sample.cpu
        );
        if compare {
            let copy = match direction {
                Direction::Read => near.join(COPY),
                Direction::Write => far.join(COPY),
            };
            let found = count(&copy)?;
            let content = self.ground.content;
            ensure!(found == content, "copied {found:?} of {content:?}");
            if installed.client == Client::Ropeway {
                same_content(&source, &copy).context("ropeway copied wrongly")?;
            }
        }
        Ok(sample)
    }

    /// The command under `timeout`, in the foreground: an interrupt must reach it.
    fn bounded(&self, command: &Command) -> Command {
        let Some(timeout) = find_program("timeout") else {
            let mut plain = Command::new(command.get_program());
            copy_settings(command, &mut plain);
            return plain;
        };
        let mut bounded = Command::new(timeout);
        bounded.args(["--foreground", "--kill-after=5"]);
        bounded.arg(self.limit.0.as_secs_f64().to_string());
        bounded.arg(command.get_program());
        copy_settings(command, &mut bounded);
        bounded
    }

    fn or_too_slow(&self, error: anyhow::Error) -> anyhow::Error {
        let text = format!("{error:#}");
        let first = text.lines().next().unwrap_or_default();
        // timeout(1): 124 when the time was up, 137 when it had to kill.
        if first.ends_with("exit status: 124") || first.ends_with("exit status: 137") {
            return anyhow::anyhow!("> {:.0} s", self.limit.0.as_secs_f64());
        }
        // The command is long and the reason stands in its log.
        let reason = text.lines().skip(1).last().unwrap_or(first).to_owned();
        anyhow::anyhow!("failed: {reason}")
    }
}

fn copy_settings(from: &Command, to: &mut Command) {
    to.args(from.get_args());
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}

impl Sample {
    fn new(usage: Usage, server: Duration) -> Self {
        Self {
            seconds: usage.wall.as_secs_f64(),
            cpu: usage.cpu.as_secs_f64(),
            server_cpu: server.as_secs_f64(),
            peak_mib: usage.peak_kib as f64 / 1024.0,
        }
    }
}

fn empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}
