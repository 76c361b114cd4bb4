//! `cargo xtask bench`: the figures of `docs/benchmarks.md`.
//!
//! The laboratory (`ropeway_lab`) measures: its scenarios `wan`, `smb` and `server`, and its local
//! copies. These commands choose what to measure and write the tables from the lab's documents.

mod check;
mod eta;
mod local;
mod network;
mod responsiveness;
mod server;
mod smb;
mod tables;
mod wan;

use std::fs;

use anyhow::{Context, Result};

use crate::process::catch_interrupts;
use crate::workspace::Workspace;

/// The benchmarks.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Task {
    /// Copies between local file systems: time, CPU, memory
    Local(local::Arguments),
    /// Equal trees compared by content, next to rsync and diff
    Check(check::Arguments),
    /// Reads of another thread while a big file is copied
    Responsiveness(responsiveness::Arguments),
    /// Estimates of copies to a slow device, next to the truth
    Eta(eta::Arguments),
    /// Copies from and to a server over the emulated link, next to smbclient, rclone, rsync and bare TCP
    Wan(wan::Arguments),
    /// Copies from and to a server on this machine, signed and sealed, next to smbclient
    Smb(smb::Arguments),
    /// `ropeway serve` next to smbd and the crate smb-server: two clients, signed and sealed
    Server(server::Arguments),
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
        Task::Server(arguments) => server::run(workspace, &folder, arguments),
    }
}
