//! Where copies are measured: fresh file systems in sparse images on loop devices.
//!
//! Why fresh ones: ext4 skips recently deleted inodes one by one, so a tree made where another one was deleted
//! costs many times as much, and the next tool pays for the last one. Without root a plain folder has to do,
//! and says so.
//!
//! A volume unmounts itself, frees its device and removes its image when dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{capture, check_interrupt, find_program, is_root};

/// Apparent size of an image. Images are sparse: only what is written takes room.
const IMAGE_GIB: f64 = 16.0;

/// A file system to measure on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FileSystem {
    /// ext4, inode tables made at once
    Ext4,
    /// XFS
    Xfs,
    /// btrfs
    Btrfs,
}

impl FileSystem {
    /// Its name for `mount -t`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn make(self) -> Command {
        let program = format!("mkfs.{}", self.name());
        let mut command = Command::new(find_program(&program).unwrap_or_else(|| PathBuf::from(program)));
        match self {
            // Lazily made inode tables would be written during the measurement.
            Self::Ext4 => command.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Self::Xfs | Self::Btrfs => command.args(["-q", "-f"]),
        };
        command
    }
}

/// What volumes are made of.
#[derive(Debug)]
pub(super) struct Ground {
    folder: PathBuf,
    /// `None`: plain folders, for lack of root.
    file_system: Option<FileSystem>,
    image_bytes: u64,
    direct: bool,
}

impl Ground {
    /// Prepares volumes below `folder`; leftovers of a killed run are cleaned up. `direct` makes the loop device
    /// bypass the page cache of the image.
    ///
    /// # Errors
    /// If leftovers cannot be removed.
    pub(super) fn new(folder: &Path, file_system: FileSystem, direct: bool, scale: f64) -> Result<Self> {
        let root = is_root();
        if root {
            clean_leftovers(folder)?;
        } else {
            println!(
                "warning: not root, so there are no loop file systems: runs share one plain folder and slow each \
                 other down, and caches cannot be dropped. Figures made so are not to be published."
            );
        }
        Ok(Self {
            folder: folder.to_path_buf(),
            file_system: root.then_some(file_system),
            image_bytes: (IMAGE_GIB * scale.max(1.0)) as u64 * (1 << 30),
            direct,
        })
    }

    /// What is measured on, for the report.
    pub(super) fn describe(&self) -> String {
        match self.file_system {
            Some(file_system) if self.direct => format!("{} on loop, direct", file_system.name()),
            Some(file_system) => format!("{} on loop", file_system.name()),
            None => "plain folder".to_owned(),
        }
    }

    /// A short name of the same.
    pub(super) fn name(&self) -> &'static str {
        self.file_system.map_or("folder", FileSystem::name)
    }

    /// Whether caches can be dropped.
    pub(super) fn can_be_cold(&self) -> bool {
        self.file_system.is_some()
    }

    /// A fresh, empty volume.
    ///
    /// # Errors
    /// If it cannot be made or mounted.
    pub(super) fn volume(&self, name: &str) -> Result<Volume> {
        let place = self.folder.join(name);
        let Some(file_system) = self.file_system else {
            remove_tree(&place)?;
            fs::create_dir_all(&place)?;
            return Ok(Volume {
                place,
                image: None,
                device: None,
            });
        };
        let image = self.folder.join(format!("{name}.img"));
        fs::create_dir_all(&place)?;
        let _ = fs::remove_file(&image);
        File::create(&image)
            .and_then(|file| file.set_len(self.image_bytes))
            .with_context(|| format!("cannot make {}", image.display()))?;
        let mut volume = Volume {
            place,
            image: Some(image.clone()),
            device: None,
        };
        capture(file_system.make().arg(&image)).context("cannot make a file system")?;
        let mut losetup = system("losetup");
        losetup.args(["--find", "--show"]);
        if self.direct {
            losetup.arg("--direct-io=on");
        }
        let device = capture(losetup.arg(&image)).context("cannot get a loop device")?;
        volume.device = Some(PathBuf::from(device.trim()));
        let mut mount = system("mount");
        mount
            .args(["-t", file_system.name(), device.trim()])
            .arg(&volume.place);
        capture(&mut mount).context("cannot mount")?;
        Ok(volume)
    }
}

/// One volume; see the module.
#[derive(Debug)]
pub(super) struct Volume {
    place: PathBuf,
    image: Option<PathBuf>,
    device: Option<PathBuf>,
}

impl Volume {
    /// Its top folder.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Makes it read-only: no run pays for access times, and no run can change what the next one reads.
    ///
    /// # Errors
    /// If the mount cannot be changed.
    pub(super) fn freeze(&self) -> Result<()> {
        if self.device.is_some() {
            capture(system("mount").args(["-o", "remount,ro"]).arg(&self.place))?;
        }
        Ok(())
    }
}

/// Where the block layer's throttle is set: the root group, for write-back is nobody's.
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// A limit on what a volume's device takes; gone when dropped.
#[derive(Debug)]
pub(super) struct Throttle {
    device: String,
}

impl Volume {
    /// Lets its device take no more than so many bytes a second.
    ///
    /// # Errors
    /// If it has no device, or the kernel has no such throttle (cgroup v1).
    pub(super) fn throttle(&self, bytes_per_second: u64) -> Result<Throttle> {
        let device = self
            .device
            .as_ref()
            .context("a plain folder cannot be throttled")?;
        let number = rustix::fs::stat(device)?.st_rdev;
        let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        fs::write(THROTTLE, format!("{device} {bytes_per_second}"))
            .with_context(|| format!("cannot throttle by {THROTTLE}"))?;
        Ok(Throttle { device })
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = fs::write(THROTTLE, format!("{} 0", self.device));
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.device.is_none() && self.image.is_none() {
            if let Err(error) = remove_tree(&self.place) {
                println!("left behind: {}: {error:#}", self.place.display());
            }
            return;
        }
        unmount(&self.place);
        if let Some(device) = &self.device {
            // Fails harmlessly when the lazy unmount still holds it: the kernel then frees it at the last close.
            let _ = capture(system("losetup").arg("-d").arg(device));
        }
        if let Some(image) = &self.image {
            let _ = fs::remove_file(image);
        }
        let _ = fs::remove_dir(&self.place);
    }
}

fn unmount(place: &Path) {
    if capture(system("umount").arg(place)).is_err() {
        let _ = capture(system("umount").arg("-l").arg(place));
    }
}

fn system(program: &str) -> Command {
    Command::new(find_program(program).unwrap_or_else(|| PathBuf::from(program)))
}

fn remove_tree(place: &Path) -> Result<()> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", place.display()))
        }
        _ => Ok(()),
    }
}

/// Unmounts and frees what a killed run left below the folder.
fn clean_leftovers(folder: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read the mounts")?;
    for mount in mounts_below(&mounts, folder) {
        unmount(&mount);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "img") {
            let devices = capture(system("losetup").arg("-j").arg(&path)).unwrap_or_default();
            for device in devices.lines().filter_map(|line| line.split(':').next()) {
                let _ = capture(system("losetup").args(["-d", device]));
            }
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Mount points below a folder, the last mounted first. Paths with spaces stand there as `\040`.
fn mounts_below(mounts: &str, folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(|place| PathBuf::from(place.replace("\\040", " ")))
        .filter(|place| place.starts_with(folder) && place != folder)
        .collect();
    found.reverse();
    found
}

/// Writes everything back, and where possible forgets all that is cached.
///
/// # Errors
/// If the kernel refuses, or on an interrupt.
pub(super) fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    check_interrupt()?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the caches")
}

/// Writes everything back.
///
/// # Errors
/// On an interrupt.
pub(super) fn settle() -> Result<()> {
    rustix::fs::sync();
    check_interrupt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_below_the_folder_are_leftovers() {
        let mounts = "a /x ext4 rw 0 0\nb /x/bench ext4 rw 0 0\nc /x/bench/so\\040urce ext4 rw 0 0\n\
                      d /x/bench/target xfs rw 0 0\ne /x/benches/t xfs rw 0 0\n";
        let found = mounts_below(mounts, Path::new("/x/bench"));
        assert_eq!(
            found,
            [
                PathBuf::from("/x/bench/target"),
                PathBuf::from("/x/bench/so urce")
            ]
        );
    }

    #[test]
    fn a_volume_is_empty_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let ground = Ground::new(folder.path(), FileSystem::Ext4, false, 1.0).unwrap();
        if ground.can_be_cold() && find_program("losetup").is_none() {
            println!("skipped: losetup is missing");
            return;
        }
        let volume = match ground.volume("one") {
            Ok(volume) => volume,
            Err(error) => {
                println!("skipped: no loop file systems here: {error:#}");
                return;
            }
        };
        fs::write(volume.place().join("file"), "content").unwrap();
        if ground.can_be_cold() {
            volume.freeze().unwrap();
            assert!(fs::write(volume.place().join("other"), "").is_err());
        }
        drop(volume);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
