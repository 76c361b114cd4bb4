//! `cargo xtask bench`: measures the figures of `docs/benchmarks.md` and `docs/bench.md`.
//!
//! The laboratory (`ropeway_lab`) does the measurements: its scenarios `wan`, `smb` and `server`,
//! and its local copies. These commands choose what it measures, and write tables from its
//! documents.

mod check;
mod clients;
mod eta;
mod fleet;
mod local;
mod many;
mod neighbour;
mod network;
mod responsiveness;
mod server;
mod smb;
mod storage;
mod tables;
mod trace;
mod wan;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::{catch_interrupts, check_interrupt};
use crate::workspace::Workspace;

/// The benchmarks.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Task {
    /// Time local copies by ropeway, cp, rsync, xcp and cpz, with their processor time and memory
    Local(local::Arguments),
    /// Time the comparison of equal trees by ropeway, rsync and diff
    Check(check::Arguments),
    /// Measure the reads of another thread while a big file is copied
    Responsiveness(responsiveness::Arguments),
    /// Compare the estimated with the true times of copies to a slow device
    Eta(eta::Arguments),
    /// Time copies over the emulated link by ropeway, smbclient, rclone, rsync and bare TCP
    Wan(wan::Arguments),
    /// Time signed and sealed copies with a server on this machine, by ropeway and smbclient
    Smb(smb::Arguments),
    /// Compare `ropeway bench` with fio and iozone on one file system
    Storage(storage::Arguments),
    /// Compare `ropeway serve` with smbd and the crate smb-server, signed and sealed
    Server(server::Arguments),
    /// Measure many clients of `ropeway serve` and smbd at once, and memory for idle ones
    Clients(clients::Arguments),
    /// Time very many small files over the emulated link, copied and again, by ropeway, rsync, rclone and smbclient
    Many(many::Arguments),
    /// Time a fleet of workers with lines of their own, and fpsync
    Fleet(fleet::Arguments),
    /// Measure how long another client of a NAS waits while ropeway, rclone or smbclient copies from it
    Neighbour(neighbour::Arguments),
    /// Time our own runs with and without --trace, and other programs alone, recorded and under strace
    Trace(trace::Arguments),
}

/// Runs one benchmark.
///
/// # Errors
/// The benchmark cannot be set up, ropeway fails or copies wrongly, or an interrupt came.
pub(crate) fn run(workspace: &Workspace, task: &Task) -> Result<()> {
    catch_interrupts()?;
    let folder = workspace.target().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let lock = fs::File::create(folder.join("lock"))?;
    lock.try_lock()
        .context("another benchmark is running in this workspace")?;
    match task {
        Task::Local(arguments) => local::run(workspace, &folder, arguments),
        Task::Check(arguments) => check::run(workspace, &folder, arguments),
        Task::Responsiveness(arguments) => responsiveness::run(workspace, &folder, arguments),
        Task::Eta(arguments) => eta::run(workspace, &folder, arguments),
        Task::Wan(arguments) => wan::run(workspace, &folder, arguments),
        Task::Smb(arguments) => smb::run(workspace, &folder, arguments),
        Task::Storage(arguments) => storage::run(workspace, &folder, arguments),
        Task::Server(arguments) => server::run(workspace, &folder, arguments),
        Task::Clients(arguments) => clients::run(workspace, arguments),
        Task::Many(arguments) => many::run(workspace, arguments),
        Task::Fleet(arguments) => fleet::run(workspace, arguments),
        Task::Neighbour(arguments) => neighbour::run(workspace, arguments),
        Task::Trace(arguments) => trace::run(workspace, arguments),
    }
}

/// Makes a file of random bytes, the same each time, and flushes it.
///
/// # Errors
/// It cannot be written, or an interrupt came.
fn make_file(path: &Path, bytes: u64) -> Result<()> {
    const BLOCK: u64 = 1 << 20;
    let mut file = fs::File::create(path)?;
    let (mut block, mut random) = (vec![0; BLOCK as usize], fastrand::Rng::with_seed(bytes));
    let mut left = bytes;
    while left > 0 {
        check_interrupt()?;
        random.fill(&mut block);
        let length = left.min(BLOCK);
        file.write_all(&block[..length as usize])?;
        left -= length;
    }
    file.sync_all().context("a file cannot be written")
}
