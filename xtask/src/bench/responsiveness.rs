//! `cargo xtask bench responsiveness`: how long another process waits for its reads while a big file is copied.
//!
//! The reader's file lies on the target's file system and is on the device only; the reader is this program again
//! (`probe-reads`). Runs are interleaved; "nothing" shows what the machine gives when idle.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::client::{Client, Installed, Purpose};
use super::ground::{FileSystem, Ground, drop_caches};
use super::report::{self, Machine, ReaderRow};
use crate::probe::Latencies;
use crate::rng::Rng;
use crate::worksets::Work;
use crate::workspace::Workspace;

/// How long the reader reads beside nothing.
const IDLE_SECONDS: u64 = 5;

/// The reader stops by itself after this time: no copy here takes as long.
const READER_SECONDS_MAX: u64 = 3600;

/// Options of `bench responsiveness`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rounds
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Multiplies the 4 GiB that are copied and the 2 GiB that are read from
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Tools to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Client::Ropeway, Client::Cp])]
    clients: Vec<Client>,
    /// File system of source and target
    #[arg(long, value_enum, default_value_t = FileSystem::Ext4)]
    fs: FileSystem,
    /// Loop devices bypass the page cache of their images
    #[arg(long)]
    loop_direct: bool,
}

/// Measures and writes the section.
///
/// # Errors
/// If this is not root, a tool fails, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    ensure!(
        arguments.scale > 0.0 && arguments.scale <= 10.0,
        "--scale must be above 0 and at most 10"
    );
    let ground = Ground::new(folder, arguments.fs, arguments.loop_direct, arguments.scale)?;
    ensure!(
        ground.can_be_cold(),
        "this benchmark needs root, to drop the page cache"
    );
    let machine = Machine::look();
    let volume = ground.volume("source")?;
    let source = volume.place().join("tree");
    println!("making the work set big on {}", ground.describe());
    let content = Work::Big.generate(&source, arguments.scale)?;
    volume.freeze()?;
    let mut turns: Vec<Option<Installed>> = vec![None];
    for client in &arguments.clients {
        turns.push(Some(client.install(workspace).with_context(|| client.name())?));
    }
    let mut rows: Vec<ReaderRow> = turns.iter().map(new_row).collect();
    let probe_bytes = ((2u64 << 30) as f64 * arguments.scale) as u64;
    for round in 0..arguments.runs {
        for turn in 0..turns.len() {
            let index = (turn + round) % turns.len();
            let scratch = tempfile::Builder::new().prefix("scratch-").tempdir_in(folder)?;
            let (latencies, seconds) = one(
                &ground,
                turns[index].as_ref(),
                &source,
                probe_bytes,
                scratch.path(),
            )?;
            let row = &mut rows[index];
            println!(
                "  beside {:9} p99 {:8.2} ms of {} reads",
                row.name, latencies.p99_ms, latencies.reads
            );
            row.p50_ms.push(latencies.p50_ms);
            row.p99_ms.push(latencies.p99_ms);
            row.max_ms.push(latencies.max_ms);
            row.copy_seconds.extend(seconds);
        }
    }
    let notes: Vec<String> = machine.busy().into_iter().collect();
    let text = report::responsiveness_section(content, &ground.describe(), &machine, &notes, &rows);
    println!("\n{text}");
    report::write(
        workspace,
        &format!("bench responsiveness {}", ground.name()),
        &text,
        arguments.scale,
    )
}

fn new_row(turn: &Option<Installed>) -> ReaderRow {
    ReaderRow {
        name: turn
            .as_ref()
            .map_or("nothing", |installed| installed.client.name()),
        p50_ms: Vec::new(),
        p99_ms: Vec::new(),
        max_ms: Vec::new(),
        copy_seconds: Vec::new(),
    }
}

/// One run of reader and copy; the copy's time until durable, if there was one.
fn one(
    ground: &Ground,
    client: Option<&Installed>,
    source: &Path,
    probe_bytes: u64,
    scratch: &Path,
) -> Result<(Latencies, Option<f64>)> {
    let volume = ground.volume("target")?;
    let probed = volume.place().join("probed");
    write_random(&probed, probe_bytes)?;
    drop_caches()?;
    let reader = Reader::start(&probed, scratch)?;
    let seconds = match client {
        None => {
            thread::sleep(Duration::from_secs(IDLE_SECONDS));
            None
        }
        Some(installed) => {
            let purpose = match installed.client {
                Client::Ropeway => Purpose::Durable,
                _ => Purpose::Both,
            };
            installed.copy(source, &volume, purpose, scratch)?.durable
        }
    };
    Ok((reader.finish()?, seconds))
}

fn write_random(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut buffer = vec![0; 1 << 20];
    let mut rng = Rng::new(bytes);
    for _ in 0..bytes.div_ceil(1 << 20) {
        rng.fill(&mut buffer);
        file.write_all(&buffer)?;
    }
    file.sync_all()?;
    Ok(())
}

/// The other process; killed if it is not finished in order.
struct Reader {
    child: Child,
    stop: std::path::PathBuf,
}

impl Reader {
    fn start(file: &Path, scratch: &Path) -> Result<Self> {
        let stop = scratch.join("stop");
        let own = std::env::current_exe().context("cannot tell this program's path")?;
        let child = Command::new(own)
            .arg("probe-reads")
            .arg(file)
            .arg(READER_SECONDS_MAX.to_string())
            .arg("--stop")
            .arg(&stop)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the reader")?;
        Ok(Self { child, stop })
    }

    fn finish(mut self) -> Result<Latencies> {
        fs::write(&self.stop, "")?;
        let mut output = self.child.stdout.take().context("the reader has no output")?;
        let text = std::io::read_to_string(&mut output)?;
        ensure!(self.child.wait()?.success(), "the reader failed");
        serde_json::from_str(text.trim()).with_context(|| format!("the reader said {text:?}"))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Both fail harmlessly when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
