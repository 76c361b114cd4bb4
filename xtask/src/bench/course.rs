//! Interleaved rounds of several tools over one way to one server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropeway_lab::link::{Link, Side};
use ropeway_peers::{Rsyncd, Share, Smbd, SmbdBuilder};

use super::floor;
use super::record::{Ending, Pace, Sample, Store};
use super::remote_client::{COPY, Client, Direction, Ends, Installed, PASSWORD, SOURCE, TARGET};
use super::report::rotated;
use crate::compare::same_content;
use crate::process::{Usage, check_interrupt, find_program, measure_by};
use crate::worksets::{Cargo, Content, count};

/// The server's processes end a moment after the client; by then their time is complete. A guess.
pub(super) const SETTLED: Duration = Duration::from_millis(100);
/// How long the server may serve a tool that was ended: what is still on the line. A guess.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// Of the folders' names; the id of their process follows.
pub(super) const PREFIX: &str = "ropeway-bench-";

/// The work and the places for it, in memory where possible, removed when dropped.
#[derive(Debug)]
pub(super) struct Ground {
    folder: tempfile::TempDir,
    /// What it is.
    pub(super) cargo: Cargo,
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
        remove_leftovers(parent);
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .tempdir_in(parent)?;
        println!("making {} in {}", cargo.title(), parent.display());
        let content = cargo.generate(&folder.path().join("source"), scale)?;
        for name in ["near", "far", "scratch"] {
            fs::create_dir(folder.path().join(name))?;
        }
        Ok(Self {
            folder,
            cargo,
            content,
        })
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

/// The servers of a row, and the way to them. The link goes last.
#[derive(Debug)]
pub(super) struct Stage {
    /// The server.
    pub(super) smbd: Smbd,
    /// The other server, if rsync takes part.
    pub(super) rsyncd: Option<Rsyncd>,
    /// The way, if not loopback.
    pub(super) link: Option<Link>,
}

impl Stage {
    fn server_cpu(&self) -> Duration {
        self.smbd.cpu() + self.rsyncd.as_ref().map(Rsyncd::cpu).unwrap_or_default()
    }

    /// Waits until the SMB server has given up whoever was ended.
    fn quiet(&self) {
        let end = Instant::now() + QUIET_MAX;
        while self.smbd.connections() > 0 && Instant::now() < end {
            thread::sleep(SETTLED);
        }
    }
}

/// Rounds of all tools, both ways.
pub(super) struct Course<'a> {
    /// The work.
    pub(super) ground: &'a Ground,
    /// The servers.
    pub(super) stage: &'a Stage,
    /// How often.
    pub(super) pace: Pace,
}

impl Course<'_> {
    /// Runs what the row still wants, each tool once a round; every result is kept at once.
    ///
    /// # Errors
    /// If the floor cannot be measured, the results cannot be kept, or on an interrupt. A tool that fails is no error.
    pub(super) fn run(&self, clients: &[Installed], key: &str, store: &mut Store) -> Result<()> {
        let turns: Vec<(usize, Direction)> = (0..clients.len())
            .flat_map(|index| Direction::ALL.map(|direction| (index, direction)))
            .collect();
        // One round more than counted runs: the first may warm up.
        for round in 0..=self.pace.runs {
            let row = store.row(key);
            let pending = turns.iter().copied().filter(|&(index, direction)| {
                let cell = row.cell(clients[index].client, direction);
                cell.is_some_and(|cell| self.pace.missing(cell) > 0)
            });
            let pending: Vec<_> = pending.collect();
            if pending.is_empty() {
                break;
            }
            if let Some(link) = &self.stage.link {
                floor::measure(link, row, round == 0)?;
                store.save()?;
            }
            for (index, direction) in rotated(&pending, round * 2) {
                self.turn(&clients[index], direction, key, store)?;
            }
        }
        Ok(())
    }

    fn turn(&self, installed: &Installed, direction: Direction, key: &str, store: &mut Store) -> Result<()> {
        let client = installed.client;
        let result = self.one(installed, direction);
        check_interrupt()?;
        let row = store.row(key);
        let cell = row
            .cell_mut(client, direction)
            .context("the row has no such tool")?;
        match result {
            Ok(sample) => {
                cell.ending = None;
                match self.pace.counts(cell, sample.seconds) {
                    true => cell.samples.push(sample),
                    false => cell.warmed = true,
                }
            }
            Err(ending) => {
                match &ending {
                    Ending::Over { seconds, done } => println!(
                        "  {:12} {:5} ended after {seconds:.0} s with {} files, {:.1} MB",
                        client.name(),
                        direction.name(),
                        done.files,
                        done.bytes as f64 / 1e6
                    ),
                    Ending::Failed(reason) => {
                        println!("  {:12} {:5} failed: {reason}", client.name(), direction.name());
                    }
                }
                cell.ending = Some(ending);
                self.stage.quiet();
            }
        }
        store.save()
    }

    /// One copy into an empty place, compared with the source.
    fn one(&self, installed: &Installed, direction: Direction) -> Result<Sample, Ending> {
        let failed = |error: anyhow::Error| Ending::Failed(reason(&error));
        let (near, far, scratch) = (
            self.ground.at("near"),
            self.ground.at("far"),
            self.ground.at("scratch"),
        );
        for folder in [&near, &far, &scratch] {
            empty(folder)
                .with_context(|| format!("cannot empty {}", folder.display()))
                .map_err(failed)?;
        }
        let source = self.ground.at("source");
        let ends = Ends {
            smbd: &self.stage.smbd,
            rsyncd: self.stage.rsyncd.as_ref(),
            source: &source,
            near: &near,
            scratch: &scratch,
        };
        let copy = match direction {
            Direction::Read => near.join(COPY),
            Direction::Write => far.join(COPY),
        };
        let command = bounded(
            &installed.command(&ends, direction).map_err(failed)?,
            self.pace.limit,
        );
        let before = Busy::now(self.stage);
        let measured = measure_by(&command, &scratch.join("log"), |command| match &self.stage.link {
            Some(link) => link.spawn(Side::Near, command),
            None => command.spawn(),
        });
        let usage = measured.map_err(|error| match is_too_slow(&error) {
            true => Ending::Over {
                seconds: self.pace.limit.as_secs_f64(),
                done: count(&copy).unwrap_or_default(),
            },
            false => failed(error),
        })?;
        thread::sleep(SETTLED);
        let sample = before.sample(usage, self.stage);
        println!(
            "  {:12} {:5} {:8.2} s  {:6.2} s of processor",
            installed.client.name(),
            direction.name(),
            sample.seconds,
            sample.cpu
        );
        self.compare(installed.client, &source, &copy).map_err(failed)?;
        Ok(sample)
    }

    fn compare(&self, client: Client, source: &Path, copy: &Path) -> Result<()> {
        let (found, content) = (count(copy)?, self.ground.content);
        ensure!(found == content, "copied {found:?} of {content:?}");
        if client == Client::Ropeway {
            same_content(source, copy).context("ropeway copied wrongly")?;
        }
        Ok(())
    }
}

/// The command under `timeout`, in the foreground: an interrupt must reach it.
pub(super) fn bounded(command: &Command, limit: Duration) -> Command {
    let Some(timeout) = find_program("timeout") else {
        let mut plain = Command::new(command.get_program());
        copy_settings(command, &mut plain);
        return plain;
    };
    let mut bounded = Command::new(timeout);
    bounded.args(["--foreground", "--kill-after=5"]);
    bounded.arg(limit.as_secs_f64().to_string());
    bounded.arg(command.get_program());
    copy_settings(command, &mut bounded);
    bounded
}

/// Processor time so far: of this machine, of this process (the emulated link lives in it), of the servers.
struct Busy {
    at: Instant,
    machine: Duration,
    own: Duration,
    servers: Duration,
}

impl Busy {
    fn now(stage: &Stage) -> Self {
        Self {
            at: Instant::now(),
            machine: machine_time(),
            own: own_time(),
            servers: stage.server_cpu(),
        }
    }

    fn sample(&self, usage: Usage, stage: &Stage) -> Sample {
        let now = Self::now(stage);
        let server = now.servers.saturating_sub(self.servers);
        let known = usage.cpu + server + now.own.saturating_sub(self.own);
        let others = now.machine.saturating_sub(self.machine).saturating_sub(known);
        let span = now.at.duration_since(self.at).as_secs_f64();
        Sample {
            seconds: usage.wall.as_secs_f64(),
            cpu: usage.cpu.as_secs_f64(),
            server_cpu: server.as_secs_f64(),
            peak_mib: usage.peak_kib as f64 / 1024.0,
            others: others.as_secs_f64() / span.max(f64::MIN_POSITIVE),
        }
    }
}

/// User, nice and system time of all processors so far.
pub(super) fn machine_time() -> Duration {
    ticks(machine_ticks(
        &fs::read_to_string("/proc/stat").unwrap_or_default(),
    ))
}

/// User and system time of this process so far.
pub(super) fn own_time() -> Duration {
    ticks(own_ticks(
        &fs::read_to_string("/proc/self/stat").unwrap_or_default(),
    ))
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// User, nice and system time of all processors (proc(5), /proc/stat).
fn machine_ticks(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let words = line.split_whitespace().skip(1).take(3);
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// User and system time of a process: words 14 and 15, counted behind its name in brackets (proc(5)).
fn own_ticks(stat: &str) -> u64 {
    let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
    let words = rest.split_whitespace().skip(11).take(2);
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// timeout(1): 124 when the time was up, 137 when it had to kill.
fn is_too_slow(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    let first = text.lines().next().unwrap_or_default();
    first.ends_with("exit status: 124") || first.ends_with("exit status: 137")
}

/// The command is long and the reason stands in its log.
pub(super) fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let first = text.lines().next().unwrap_or_default();
    text.lines().skip(1).last().unwrap_or(first).to_owned()
}

/// Removes the folders of calls that were killed: they hold gigabytes of memory.
pub(super) fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some((id, _)) = rest.and_then(|rest| rest.split_once('-')) else {
            continue;
        };
        let dead = id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists();
        if dead && let Err(error) = fs::remove_dir_all(entry.path()) {
            println!("cannot remove {}: {error}", entry.path().display());
        }
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

pub(super) fn empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_where_it_stands() {
        let stat = "cpu  10 2 30 400 5 6 7 8 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(machine_ticks(stat), 42);
        let own = "17 (a) b) S 1 2 3 4 5 6 7 8 9 10 111 222 13 14";
        assert_eq!(own_ticks(own), 333);
        assert_eq!((machine_ticks(""), own_ticks("")), (0, 0));
    }

    #[test]
    fn folders_of_dead_processes_are_removed_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut dead = Command::new("true").spawn().unwrap();
        let id = dead.id();
        dead.wait().unwrap();
        let own = format!("{PREFIX}{}-x", std::process::id());
        let gone = format!("{PREFIX}{id}-x");
        for name in [own.as_str(), gone.as_str(), "ropeway-bench-", "else-1-x"] {
            fs::create_dir_all(folder.path().join(name).join("near")).unwrap();
        }
        remove_leftovers(folder.path());
        assert!(!folder.path().join(gone).exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn who_ran_out_of_time_did_not_fail() {
        let ended = |text: &str| is_too_slow(&anyhow::anyhow!("{text}"));
        assert!(ended("`timeout 1 x` failed: exit status: 124\nlog"));
        assert!(ended("`timeout 1 x` failed: exit status: 137"));
        assert!(!ended("`timeout 1 x` failed: exit status: 1\nexit status: 124"));
        let error = anyhow::anyhow!("`x` failed: exit status: 1\nfirst\nthe reason");
        assert_eq!(reason(&error), "the reason");
    }
}
