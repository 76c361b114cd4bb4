//! Folders and shares that the binary has mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Finished, Place, Running, Served, is_root};

/// Unmounts by umount(8), which is refused while a program that another thread starts has what is open here.
#[track_caller]
pub(crate) fn unmount(at: &Path) {
    for left in (0..100).rev() {
        let done = Command::new("umount").arg(at).output().unwrap();
        if done.status.success() {
            return;
        }
        assert!(left > 0, "umount: {done:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A mount, which is taken away on drop.
pub(crate) struct Mounted {
    pub(crate) place: Place,
    pub(crate) running: Option<Running>,
}

impl Mounted {
    /// Mounts the folder `source` of a new place on `mnt`, with these flags.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn new(flags: &[&str]) -> Result<Self, String> {
        Self::of(Place::new(), flags)
    }

    /// Mounts `source` of a place.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn of(place: Place, flags: &[&str]) -> Result<Self, String> {
        can_mount()?;
        fs::create_dir_all(place.join("source")).unwrap();
        fs::create_dir_all(place.join("mnt")).unwrap();
        let run = place.ropeway("mount").arg("--foreground").args(flags);
        let mut running = run.args(["source", "mnt"]).start();
        let is_up = running.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}{}", running.stdout(), running.stderr());
        Ok(Self {
            place,
            running: Some(running),
        })
    }

    /// A path in the mount.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.join("mnt").join(name)
    }

    /// The same path behind the mount.
    pub(crate) fn behind(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.join("source").join(name)
    }

    /// Unmounts by umount(8), and waits for the end of the process.
    #[track_caller]
    pub(crate) fn unmount(&mut self) -> Finished {
        unmount(&self.at(""));
        let finished = self.running.take().unwrap().wait();
        finished.assert_code(&[0]);
        finished
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.running.take());
        detach(&self.at(""));
    }
}

/// A mounted share. The mount goes before its server.
pub(crate) struct MountedShare {
    pub(crate) running: Option<Running>,
    pub(crate) served: Served,
}

impl MountedShare {
    /// Serves a new folder and mounts it on `mnt`, with these flags.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn new(flags: &[&str]) -> Result<Self, String> {
        can_mount()?;
        Ok(Self::served(Served::start(&[]), flags))
    }

    /// Mounts a share that is served.
    pub(crate) fn served(served: Served, flags: &[&str]) -> Self {
        fs::create_dir(served.place.join("mnt")).unwrap();
        let mut running = served
            .run("mount")
            .arg("--foreground")
            .args(flags)
            .args([served.url(""), "mnt".to_owned()])
            .start();
        let is_up = running.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}{}", running.stdout(), running.stderr());
        Self {
            running: Some(running),
            served,
        }
    }

    /// A path in the mount.
    pub(crate) fn at(&self, name: &str) -> std::path::PathBuf {
        self.served.place.join("mnt").join(name)
    }

    /// Unmounts by umount(8), and waits for the end of the process.
    pub(crate) fn unmount(&mut self) -> Finished {
        unmount(&self.at(""));
        self.running.take().unwrap().wait()
    }
}

impl Drop for MountedShare {
    fn drop(&mut self) {
        drop(self.running.take());
        detach(&self.at(""));
    }
}

/// Takes away whatever is mounted on a path.
pub(crate) fn detach(path: &Path) {
    while is_mounted(path) {
        let mut umount = Command::new("umount");
        umount.arg("-l").arg(path).stderr(Stdio::null());
        if !umount.status().is_ok_and(|status| status.success()) {
            break;
        }
    }
}

/// Whether something is mounted on a path.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let path = path.components().collect::<PathBuf>().display().to_string();
    let lines = fs::read_to_string("/proc/self/mountinfo").unwrap();
    lines.lines().any(|line| line.split(' ').nth(4) == Some(&path))
}

/// What is missing for a mount.
///
/// # Errors
/// There is no FUSE, or this is not root.
pub(crate) fn can_mount() -> Result<(), String> {
    if !is_root() {
        return Err("only root mounts here".to_owned());
    }
    match fs::File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("/dev/fuse: {error}")),
    }
}
