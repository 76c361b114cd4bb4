//! `cargo xtask bench local`: the same tree copied by each tool to a fresh file system.
//!
//! Rounds are interleaved and their order rotates, so that a slow moment of the machine hits every tool; the first
//! round warms up and is not counted, but its copies are compared with the source.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::client::{Client, Installed, Purpose, Sample};
use super::ground::{FileSystem, Ground, Volume, drop_caches, settle};
use super::report::{self, Machine, Row, Table, rotated};
use crate::compare::trees_equal;
use crate::worksets::{Content, Work, count, read_all};
use crate::workspace::Workspace;

/// Options of `bench local`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to copy
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Work::Small, Work::Big, Work::Mixed])]
    work: Vec<Work>,
    /// Counted rounds (one more goes first and is not counted, unless this is 1)
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Multiplies the work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Tools to compare
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [Client::Ropeway, Client::Cp, Client::Rsync, Client::Xcp, Client::Cpz])]
    clients: Vec<Client>,
    /// Only with an empty page cache
    #[arg(long)]
    cold: bool,
    /// Only with the source in the page cache
    #[arg(long)]
    warm: bool,
    /// File system of source and target
    #[arg(long, value_enum, default_value_t = FileSystem::Ext4)]
    fs: FileSystem,
    /// Loop devices bypass the page cache of their images
    #[arg(long)]
    loop_direct: bool,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    Warm,
    Cold,
}

/// Everything that stays the same during the rounds of one table.
struct Rounds<'a> {
    ground: &'a Ground,
    source: &'a Path,
    content: Content,
    cache: Cache,
    scratch: &'a Path,
}

/// Measures everything asked for.
///
/// # Errors
/// If ropeway fails or copies wrongly, the ground cannot be prepared, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    ensure!(
        arguments.scale > 0.0 && arguments.scale <= 100.0,
        "--scale must be above 0 and at most 100"
    );
    let (runs, scale) = match arguments.quick {
        true => (1, arguments.scale / 20.0),
        false => (arguments.runs, arguments.scale),
    };
    let ground = Ground::new(folder, arguments.fs, arguments.loop_direct, scale)?;
    let mut caches = vec![Cache::Warm, Cache::Cold];
    caches.retain(|cache| arguments.cold == arguments.warm || (*cache == Cache::Cold) == arguments.cold);
    if !ground.can_be_cold() {
        caches.retain(|cache| *cache == Cache::Warm);
        ensure!(!caches.is_empty(), "--cold needs root, to drop the page cache");
    }
    let (clients, mut notes) = installed(workspace, &arguments.clients)?;
    let machine = Machine::look();
    notes.extend(machine.busy());
    for &work in &arguments.work {
        let volume = ground.volume("source")?;
        let source = volume.place().join("tree");
        println!("making the work set {} on {}", work.name(), ground.describe());
        let content = work.generate(&source, scale)?;
        volume.freeze()?;
        let mut tables = Vec::new();
        for &cache in &caches {
            let scratch = tempfile::Builder::new().prefix("scratch-").tempdir_in(folder)?;
            let rounds = Rounds {
                ground: &ground,
                source: &source,
                content,
                cache,
                scratch: scratch.path(),
            };
            tables.push(rounds.run(&clients, runs)?);
        }
        let text = report::local_section(
            work.name(),
            content,
            &ground.describe(),
            &machine,
            &clients,
            &notes,
            &tables,
        );
        println!("\n{text}");
        report::write(
            workspace,
            &format!("bench local {} {}", work.name(), ground.name()),
            &text,
            scale,
        )?;
    }
    Ok(())
}

/// The tools that are there, and why others are not.
fn installed(workspace: &Workspace, wanted: &[Client]) -> Result<(Vec<Installed>, Vec<String>)> {
    let mut there = Vec::new();
    let mut notes = Vec::new();
    for client in wanted {
        match client.install(workspace) {
            Ok(installed) => there.push(installed),
            Err(error) if *client == Client::Ropeway => return Err(error),
            Err(error) => {
                println!("left out: {}: {error:#}", client.name());
                notes.push(format!("{} was left out: {error:#}", client.name()));
            }
        }
    }
    Ok((there, notes))
}

impl Rounds<'_> {
    fn run(&self, clients: &[Installed], runs: usize) -> Result<Table> {
        let mut rows: Vec<Row> = clients
            .iter()
            .map(|installed| Row::new(installed.client.name()))
            .collect();
        let mut turns: Vec<(usize, Purpose)> = Vec::new();
        for (index, installed) in clients.iter().enumerate() {
            turns.extend(
                installed
                    .client
                    .purposes()
                    .iter()
                    .map(|&purpose| (index, purpose)),
            );
        }
        let warm_up = usize::from(runs > 1);
        for round in 0..runs + warm_up {
            let order = rotated(&turns, round);
            for (index, purpose) in order {
                if rows[index].failed.is_some() {
                    continue;
                }
                let installed = &clients[index];
                match self.one(installed, purpose, round == 0) {
                    Ok(sample) if round >= warm_up => rows[index].add(sample, purpose),
                    Ok(_) => {}
                    Err(error) if installed.client == Client::Ropeway => return Err(error),
                    Err(error) => {
                        crate::process::check_interrupt()?;
                        println!("{} is left out from here: {error:#}", installed.client.name());
                        rows[index].failed = Some(first_line(&error));
                    }
                }
            }
        }
        Ok(Table {
            cache: match self.cache {
                Cache::Warm => "warm",
                Cache::Cold => "cold",
            },
            runs,
            notes: rows.iter().filter_map(Row::noisy).collect(),
            rows,
        })
    }

    /// One copy on a fresh volume; the first of each tool is compared with the source.
    fn one(&self, installed: &Installed, purpose: Purpose, compare: bool) -> Result<Sample> {
        let volume: Volume = self.ground.volume("target")?;
        match self.cache {
            Cache::Cold => drop_caches()?,
            Cache::Warm => {
                settle()?;
                read_all(self.source)?;
            }
        }
        let state = self.scratch.join("state");
        if state.exists() {
            fs::remove_dir_all(&state)?;
        }
        let sample = installed.copy(self.source, &volume, purpose, self.scratch)?;
        println!(
            "  {:9} {:5} perceived {} durable {}",
            installed.client.name(),
            format!("{:?}", self.cache).to_lowercase(),
            report::seconds(sample.perceived),
            report::seconds(sample.durable),
        );
        if compare {
            let copy = volume.place().join("copy");
            if installed.client == Client::Ropeway {
                let note = trees_equal(self.source, &copy).context("ropeway copied wrongly")?;
                if let Some(note) = note {
                    println!("  {note}");
                }
            }
            let found = count(&copy)?;
            ensure!(found == self.content, "copied {found:?} of {:?}", self.content);
        }
        Ok(sample)
    }
}

fn first_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().to_owned()
}
