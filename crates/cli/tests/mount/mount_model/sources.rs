//! What is mounted: a local folder, a share of `ropeway serve`, a share of smbd.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::mount_model::sides::{Can, OLD_FILES, OLD_MAX, old_name};
use crate::support::{Ground, Place, Running, Served, can_mount, detach, unmount};

/// A run may take hours with many steps.
const HANG: Duration = Duration::from_secs(6 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    Served,
    Smbd,
}

/// Who serves, with a place for the mount.
enum Server {
    None(Place),
    Ours(Box<Served>),
    Smbd(Box<Ground>),
}

/// A mounted source.
pub(crate) struct Source {
    // Before the server.
    running: Option<Running>,
    server: Server,
    is_boosted: bool,
}

impl Source {
    /// Mounts it, with files of which some are read and seldom changed if it has a cache.
    /// `waits_for_all`: wait until also a local file counts as unchanged.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn new(kind: Kind, is_boosted: bool, waits_for_all: bool) -> Result<Self, String> {
        can_mount()?;
        let server = match kind {
            Kind::Folder => Server::None(Place::new()),
            Kind::Served => Server::Ours(Box::new(Served::start(&[]))),
            Kind::Smbd => {
                let ground = Ground::sharing(|share| share.streams());
                Server::Smbd(Box::new(ground.map_err(|error| error.to_string())?))
            }
        };
        let mut source = Self {
            running: None,
            server,
            is_boosted,
        };
        let folders = [source.behind(), source.plain(), source.at()];
        for folder in &folders {
            fs::create_dir_all(folder).unwrap();
        }
        if is_boosted {
            let create = source
                .place()
                .ropeway("boost")
                .args(["create", "--size", "128M", "cache"]);
            create.run().assert_code(&[0]);
            old_files(&folders[..2]);
            std::thread::sleep(match (kind, waits_for_all) {
                // The time after which a version counts (docs/boost.md).
                (Kind::Folder, true) => Duration::from_secs(62),
                (Kind::Folder, false) => Duration::ZERO,
                _ => Duration::from_secs(3),
            });
        }
        source.mount();
        Ok(source)
    }

    fn mount(&mut self) {
        let (run, url) = match &self.server {
            Server::None(place) => (place.ropeway("mount"), "source".to_owned()),
            Server::Ours(served) => (served.run("mount"), served.url("")),
            Server::Smbd(ground) => (ground.run("mount"), ground.url("data")),
        };
        let mut run = run.arg("--foreground").hang_after(HANG);
        if self.is_boosted {
            run = run.args(["--boost", "cache", "--boost-sequential", "always"]);
        }
        let mut running = run.args([url, "mnt".to_owned()]).start();
        let is_up = running.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}{}", running.stdout(), running.stderr());
        self.running = Some(running);
    }

    fn place(&self) -> &Place {
        match &self.server {
            Server::None(place) => place,
            Server::Ours(served) => &served.place,
            Server::Smbd(ground) => &ground.place,
        }
    }

    pub(crate) fn can(&self) -> Can {
        Can {
            is_posix: matches!(self.server, Server::None(_)),
            has_symlinks: !matches!(self.server, Server::Smbd(_)),
        }
    }

    /// The mount.
    pub(crate) fn at(&self) -> PathBuf {
        self.place().join("mnt")
    }

    /// The folder behind it.
    pub(crate) fn behind(&self) -> PathBuf {
        let name = match self.server {
            Server::None(_) => "source",
            Server::Ours(_) | Server::Smbd(_) => "data",
        };
        self.place().join(name)
    }

    /// The plain folder beside it.
    pub(crate) fn plain(&self) -> PathBuf {
        self.place().join("plain")
    }

    fn unmount(&self) {
        unmount(&self.at());
    }

    /// Unmounts. Returns the hits of the cache.
    pub(crate) fn end(&mut self) -> u64 {
        self.unmount();
        self.running.take().unwrap().wait().assert_code(&[0]);
        if !self.is_boosted {
            return 0;
        }
        let asked = self
            .place()
            .ropeway("boost")
            .args(["status", "--json", "cache"])
            .run();
        asked.assert_code(&[0]);
        println!("{}", asked.out.trim());
        let status: Value = serde_json::from_str(asked.out.trim()).unwrap();
        let names = ["memory_hits", "device_hits"];
        names.iter().filter_map(|name| status[name].as_u64()).sum()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        drop(self.running.take());
        detach(&self.at());
    }
}

/// Makes the files that are seldom changed, the same in both folders.
fn old_files(folders: &[PathBuf]) {
    let mut random = fastrand::Rng::with_seed(7);
    for number in 0..OLD_FILES {
        let mut content = vec![0; usize::try_from(OLD_MAX).unwrap()];
        random.fill(&mut content);
        for folder in folders {
            let file: &Path = &folder.join(old_name(number));
            fs::write(file, &content).unwrap();
        }
    }
}
