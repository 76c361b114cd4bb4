//! A group of processes with little memory (cgroups, version 1 or 2).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A group that is removed on drop.
pub(super) struct Group {
    path: PathBuf,
}

/// Where memory is limited: the folder of this process's group, and the name of the file.
fn places() -> Vec<(PathBuf, &'static str)> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut places = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|name| name == "memory") {
            places.push((
                Path::new("/sys/fs/cgroup/memory").join(path),
                "memory.limit_in_bytes",
            ));
        } else if controllers.is_empty() {
            // Version 2: a group with processes cannot limit its children, but the one above may.
            let own = Path::new("/sys/fs/cgroup").join(path);
            let above = own.parent().map(Path::to_owned);
            places.push((own, "memory.max"));
            places.extend(above.map(|above| (above, "memory.max")));
        }
    }
    places
}

impl Group {
    /// Makes a group whose processes have so many bytes of memory together, page cache included.
    ///
    /// # Errors
    /// It is not allowed here.
    pub(super) fn new(bytes: u64) -> io::Result<Self> {
        let mut last = io::Error::other("no cgroup limits memory here");
        for (folder, limit) in places() {
            let path = folder.join(format!("ropeway-lab-{}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let group = Self { path };
                    match fs::write(group.path.join(limit), bytes.to_string()) {
                        Ok(()) => return Ok(group),
                        Err(error) => last = error,
                    }
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Moves this process into a group.
///
/// # Errors
/// It is not allowed.
pub(super) fn enter(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.procs"), std::process::id().to_string())
}

/// Returns the bytes of the page cache and of processes in a group.
pub(super) fn usage(path: &Path) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(path.join("memory.stat")).ok()?;
    let value = |names: [&str; 2]| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(name, _)| names.contains(name));
        found.and_then(|(_, value)| value.parse().ok())
    };
    Some((value(["cache", "file"])?, value(["rss", "anon"])?))
}
