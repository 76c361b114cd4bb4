//! `cargo xtask bench`: ropeway beside other tools, on fresh file systems, interleaved.

mod check;
mod client;
mod course;
mod estimate;
mod eta;
mod far;
mod floor;
mod ground;
mod local;
mod record;
mod remote;
mod remote_client;
mod remote_report;
mod report;
mod responsiveness;
mod server;
mod server_record;
mod server_report;
mod smb;
mod smb_report;
mod wan;
mod wan_report;

use std::fs;

use anyhow::{Context, Result};

use crate::process::catch_interrupts;
use crate::workspace::Workspace;

/// The benchmarks.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Task {
    /// Copies between local file systems: time, CPU, memory
    Local(local::Arguments),
    /// Equal trees compared by content, beside rsync and diff
    Check(check::Arguments),
    /// Another process's reads while a big file is copied
    Responsiveness(responsiveness::Arguments),
    /// Estimates of copies to a slow device, beside the truth
    Eta(eta::Arguments),
    /// Copies to and from a server over the emulated link, beside smbclient, rclone, rsync and bare TCP
    Wan(wan::Arguments),
    /// Copies to and from a server on this machine, signed and sealed, beside smbclient
    Smb(smb::Arguments),
    /// `ropeway serve` beside smbd and the crate smb-server: both clients, signed and sealed
    Server(server::Arguments),
}

/// Runs one benchmark.
///
/// # Errors
/// If the ground cannot be prepared, ropeway fails or copies wrongly, or on an interrupt.
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
