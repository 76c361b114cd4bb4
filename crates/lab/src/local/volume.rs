//! Fresh file systems in sparse images on loop devices, on which local copies are measured.
//!
//! Fresh, because ext4 skips recently deleted inodes one by one: a tree in a folder where another
//! was just deleted costs many times as much, and the next tool pays for the last one. Without
//! root, plain folders replace them; figures made so must not be published.
//!
//! A [`Volume`] unmounts itself, frees its device and removes its image on drop.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ropeway_peers::program;
use walkdir::WalkDir;

use crate::named::named;

/// Apparent size of an image. Images are sparse: only written blocks take room.
const IMAGE_GIB: f64 = 16.0;
/// Setting of the block layer's throttle (cgroup v1): of the root group, since write-back belongs
/// to no other.
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

named! {
    /// A file system, by its name for `mount -t`.
    pub enum FileSystem: "file system" {
        /// ext4; inode tables are written when it is created.
        Ext4 = "ext4",
        /// XFS.
        Xfs = "xfs",
        /// btrfs.
        Btrfs = "btrfs",
    }
}

impl FileSystem {
    fn make(self) -> Command {
        let mut command = system(&format!("mkfs.{}", self.name()));
        match self {
            // Lazily written inode tables would be written during the measurement.
            Self::Ext4 => command.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Self::Xfs | Self::Btrfs => command.args(["-q", "-f"]),
        };
        command
    }
}

/// Creates volumes below a folder.
#[derive(Clone, Debug)]
pub struct Volumes {
    folder: PathBuf,
    /// `None`: plain folders, for lack of root.
    file_system: Option<FileSystem>,
    image_bytes: u64,
    direct: bool,
}

impl Volumes {
    /// Prepares volumes below `folder` and removes those of a killed call. With `direct` the loop
    /// devices bypass the page cache of their images. A scale above 1 makes bigger images.
    ///
    /// # Errors
    /// Leftovers cannot be removed.
    pub fn new(folder: &Path, file_system: FileSystem, direct: bool, scale: f64) -> io::Result<Self> {
        let root = rustix::process::geteuid().is_root();
        fs::create_dir_all(folder)?;
        if root {
            remove_leftovers(folder)?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            file_system: root.then_some(file_system),
            image_bytes: (IMAGE_GIB * scale.max(1.0)) as u64 * (1 << 30),
            direct,
        })
    }

    /// Description for reports.
    pub fn describe(&self) -> String {
        match self.file_system {
            Some(file_system) if self.direct => format!("{} on loop, direct", file_system.name()),
            Some(file_system) => format!("{} on loop", file_system.name()),
            None => "plain folder".to_owned(),
        }
    }

    /// Short name for keys.
    pub fn name(&self) -> &'static str {
        self.file_system.map_or("folder", FileSystem::name)
    }

    /// Whether volumes are file systems of their own, and caches can be dropped.
    pub fn are_real(&self) -> bool {
        self.file_system.is_some()
    }

    /// Creates an empty volume.
    ///
    /// # Errors
    /// It cannot be created or mounted.
    pub fn create(&self, name: &str) -> io::Result<Volume> {
        let root = self.folder.join(name);
        let mut volume = Volume {
            root: root.clone(),
            image: None,
            device: None,
        };
        let Some(file_system) = self.file_system else {
            remove_tree(&root)?;
            fs::create_dir_all(&root)?;
            return Ok(volume);
        };
        let image = self.folder.join(format!("{name}.img"));
        fs::create_dir_all(&root)?;
        _ = fs::remove_file(&image);
        File::create(&image)?.set_len(self.image_bytes)?;
        volume.image = Some(image.clone());
        output(file_system.make().arg(&image))?;
        let mut losetup = system("losetup");
        losetup.args(["--find", "--show"]);
        if self.direct {
            losetup.arg("--direct-io=on");
        }
        let device = output(losetup.arg(&image))?;
        volume.device = Some(PathBuf::from(device.trim()));
        output(
            system("mount")
                .args(["-t", file_system.name(), device.trim()])
                .arg(&root),
        )?;
        Ok(volume)
    }
}

/// One volume; see the module.
#[derive(Debug)]
pub struct Volume {
    root: PathBuf,
    image: Option<PathBuf>,
    device: Option<PathBuf>,
}

impl Volume {
    /// Top folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Mounts it read-only: no run pays for access times or changes what the next run reads.
    ///
    /// # Errors
    /// The mount cannot be changed.
    pub fn make_read_only(&self) -> io::Result<()> {
        if self.device.is_some() {
            output(system("mount").args(["-o", "remount,ro"]).arg(&self.root))?;
        }
        Ok(())
    }

    /// Limits the writes of its device to so many bytes a second.
    ///
    /// # Errors
    /// There is no device, or the kernel has no such throttle (cgroup v1).
    pub fn throttle(&self, bytes_per_second: u64) -> io::Result<Throttle> {
        let Some(device) = &self.device else {
            return Err(io::Error::other("a plain folder cannot be throttled"));
        };
        let number = rustix::fs::stat(device)?.st_rdev;
        let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        fs::write(THROTTLE, format!("{device} {bytes_per_second}"))?;
        Ok(Throttle { device })
    }
}

/// A limit on a volume's device; lifted on drop.
#[derive(Debug)]
pub struct Throttle {
    device: String,
}

impl Drop for Throttle {
    fn drop(&mut self) {
        _ = fs::write(THROTTLE, format!("{} 0", self.device));
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.image.is_none() {
            if let Err(error) = remove_tree(&self.root) {
                tracing::warn!(%error, path = %self.root.display(), "a folder is left behind");
            }
            return;
        }
        unmount(&self.root);
        if let Some(device) = &self.device {
            // Fails harmlessly after a lazy unmount: the kernel frees the device at the last close.
            _ = output(system("losetup").arg("-d").arg(device));
        }
        if let Some(image) = &self.image {
            _ = fs::remove_file(image);
        }
        _ = fs::remove_dir(&self.root);
    }
}

/// Writes all dirty pages of the machine back.
pub fn settle() {
    rustix::fs::sync();
}

/// Writes all dirty pages back and drops the page cache (needs root).
///
/// # Errors
/// The kernel refuses.
pub fn drop_caches() -> io::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Reads every regular file below a folder, so that the page cache holds it.
///
/// # Errors
/// Something cannot be read.
pub fn read_all(root: &Path) -> io::Result<()> {
    for entry in WalkDir::new(root) {
        let entry = entry?;
        if entry.file_type().is_file() {
            io::copy(&mut File::open(entry.path())?, &mut io::sink())?;
        }
    }
    Ok(())
}

fn unmount(root: &Path) {
    if output(system("umount").arg(root)).is_err() {
        _ = output(system("umount").arg("-l").arg(root));
    }
}

fn system(name: &str) -> Command {
    Command::new(program(name).unwrap_or_else(|| PathBuf::from(name)))
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> io::Result<String> {
    let done = command.stdin(Stdio::null()).output()?;
    if !done.status.success() {
        let errors = String::from_utf8_lossy(&done.stderr);
        let name = command.get_program().to_string_lossy().into_owned();
        return Err(io::Error::other(format!(
            "{name} failed: {}: {}",
            done.status,
            errors.trim()
        )));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn remove_tree(root: &Path) -> io::Result<()> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Unmounts and frees the volumes that a killed call left below the folder.
fn remove_leftovers(folder: &Path) -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    for mount in mounts_below(&mounts, folder) {
        unmount(&mount);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "img") {
            let devices = output(system("losetup").arg("-j").arg(&path)).unwrap_or_default();
            for device in devices.lines().filter_map(|line| line.split(':').next()) {
                _ = output(system("losetup").args(["-d", device]));
            }
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Returns the mount points below a folder, the last mounted first. Spaces are `\040` there.
fn mounts_below(mounts: &str, folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(|path| PathBuf::from(path.replace("\\040", " ")))
        .filter(|path| path.starts_with(folder) && path != folder)
        .collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_below_the_folder_are_leftovers() {
        let mounts = "a /x ext4 rw 0 0\nb /x/bench ext4 rw 0 0\nc /x/bench/so\\040urce ext4 rw 0 0\n\
                      d /x/bench/target xfs rw 0 0\ne /x/benches/t xfs rw 0 0\n";
        let found = mounts_below(mounts, Path::new("/x/bench"));
        let wanted = ["/x/bench/target", "/x/bench/so urce"].map(PathBuf::from);
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_volume_is_empty_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = Volumes::new(folder.path(), FileSystem::Ext4, false, 1.0).unwrap();
        let volume = match volumes.create("one") {
            Ok(volume) => volume,
            Err(error) => {
                println!("skipped: no loop file systems here: {error}");
                return;
            }
        };
        fs::write(volume.root().join("file"), "content").unwrap();
        if volumes.are_real() {
            volume.make_read_only().unwrap();
            assert!(fs::write(volume.root().join("other"), "").is_err());
        }
        drop(volume);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
