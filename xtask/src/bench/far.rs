//! The servers of `bench server`: ours, smbd, and the crate smb-server behind the arguments of ours.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ropeway_peers::{Share, Smbd};
use serde::{Deserialize, Serialize};

use super::record::Program;
use super::remote_client::PASSWORD;
use super::smb::Protection;
use crate::process::{capture, run as run_command};
use crate::served::{Served, Wish};
use crate::workspace::Workspace;

/// The crate's program: a manifest and a source, built outside the workspace.
const CRATE_MANIFEST: &str = include_str!("../../peers/smb_server.toml");
/// See [`CRATE_MANIFEST`].
const CRATE_SOURCE: &str = include_str!("../../peers/smb_server.rs");
/// How often the memory is looked at. A guess: what lasts less than this is not seen.
const LOOK: Duration = Duration::from_millis(50);
/// The only user.
pub(super) const USER: &str = "bench";
/// The only share.
pub(super) const SHARE: &str = "work";

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Server {
    /// `ropeway serve`
    Ropeway,
    /// Samba's
    Smbd,
    /// The crate smb-server 0.8
    Crate,
}

impl Server {
    /// All, in the order of the tables.
    pub(super) const ALL: [Self; 3] = [Self::Ropeway, Self::Smbd, Self::Crate];

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ropeway => "ropeway serve",
            Self::Smbd => "smbd",
            Self::Crate => "smb-server 0.8",
        }
    }

    /// Finds it; builds what has to be built.
    ///
    /// # Errors
    /// If it is not to be had; the reason is for people.
    pub(super) fn install(self, workspace: &Workspace, ropeway: &Path) -> Result<Installed> {
        let (path, version) = match self {
            Self::Ropeway => (ropeway.to_owned(), version(ropeway)?),
            Self::Smbd => {
                let path = crate::tools::require("smbd")?;
                let version = format!("smbd {}", version(&path)?);
                (path, version)
            }
            Self::Crate => (build_crate(workspace)?, "crate smb-server 0.8.0".to_owned()),
        };
        Ok(Installed {
            server: self,
            program: Program::of(&path, version)?,
            path,
        })
    }
}

fn version(path: &Path) -> Result<String> {
    let text = capture(std::process::Command::new(path).arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn build_crate(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("bench/smb-server");
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), CRATE_MANIFEST)?;
    fs::write(folder.join("src/main.rs"), CRATE_SOURCE)?;
    let mut build = workspace.cargo(["build", "--release", "--quiet"]);
    build
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"));
    run_command(&mut build).context("the crate smb-server does not build")?;
    Ok(folder.join("target/release/far"))
}

/// A server that is there.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    /// Which.
    pub(super) server: Server,
    /// Which build of it.
    pub(super) program: Program,
    path: PathBuf,
}

/// A running server.
#[derive(Debug)]
pub(super) enum Far {
    /// Ours, or the crate's.
    Served(Served),
    /// Samba's.
    Smbd(Box<Smbd>),
}

impl Installed {
    /// Serves a folder as [`SHARE`]; `scratch` is a private folder of this server.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn start(&self, work: &Path, scratch: &Path, protection: Protection) -> Result<Far> {
        fs::create_dir_all(scratch)?;
        let flags: &[&str] = match protection {
            Protection::Signed => &["--sign", "required", "--encrypt", "off"],
            Protection::Sealed => &["--encrypt", "required"],
        };
        Ok(match self.server {
            Server::Ropeway | Server::Crate => Far::Served(Served::start(&Wish {
                program: &self.path,
                scratch,
                shares: &[(SHARE, work)],
                user: USER,
                password: PASSWORD,
                flags,
            })?),
            Server::Smbd => {
                let builder = Smbd::builder()
                    .user(USER, PASSWORD)
                    .share(Share::new(SHARE, work));
                Far::Smbd(Box::new(protection.demand(builder).start()?))
            }
        })
    }
}

impl Far {
    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Served(served) => served.address(),
            Self::Smbd(smbd) => smbd.address(),
        }
    }

    /// User and system time so far, of all its processes.
    pub(super) fn cpu(&self) -> Duration {
        match self {
            Self::Served(served) => served.cpu(),
            Self::Smbd(smbd) => smbd.cpu(),
        }
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Self::Served(served) => vec![served.id()],
            Self::Smbd(smbd) => smbd.pids(),
        }
    }

    /// Memory of all its processes in KiB, what several share counted once (proc(5), Pss).
    fn memory_kib(&self) -> u64 {
        let pss = |id: u32| {
            let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
            pss_kib(&text).unwrap_or(0)
        };
        self.pids().into_iter().map(pss).sum()
    }

    /// Does something and gives the most memory in KiB that the server had meanwhile.
    pub(super) fn watched<T>(&self, job: impl FnOnce() -> T) -> (T, u64) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = self.memory_kib();
                while !done.load(Ordering::Acquire) {
                    thread::sleep(LOOK);
                    most = most.max(self.memory_kib());
                }
                most
            });
            let result = job();
            done.store(true, Ordering::Release);
            // It panics only if it cannot allocate.
            (result, watch.join().unwrap_or(0))
        })
    }
}

fn pss_kib(smaps: &str) -> Option<u64> {
    let line = smaps.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let text = "55e0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    2000 kB\nPss:     1234 kB\nPss_Dirty: 7 kB\n";
        assert_eq!(pss_kib(text), Some(1234));
        assert_eq!(pss_kib(""), None);
    }
}
