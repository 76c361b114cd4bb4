//! Small file systems on loop devices, in memory and through FUSE. They are always unmounted on
//! drop.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{needs, tool, wait_until};

const MIB: u64 = 1 << 20;

/// A mounted file system with its image.
pub(crate) struct Volume {
    folder: tempfile::TempDir,
    mounted: bool,
    kind: &'static str,
    device: Option<String>,
    /// The process of a FUSE file system.
    server: Option<Child>,
}

impl Volume {
    /// # Errors
    /// The reason why there cannot be one here.
    pub(crate) fn ext4(size_mib: u64) -> Result<Self, String> {
        Self::on_loop("ext4", size_mib, "mkfs.ext4", &["-q", "-F", "-m", "0"])
    }

    /// Makes an ext2 or ext3 with inodes of 128 bytes, which store times in whole seconds.
    ///
    /// # Errors
    /// The reason why there cannot be one here.
    pub(crate) fn seconds(kind: &'static str) -> Result<Self, String> {
        Self::on_loop(kind, 48, &format!("mkfs.{kind}"), &["-q", "-F", "-I", "128"])
    }

    /// # Errors
    /// The reason why there cannot be one here. XFS needs at least 300 MiB.
    pub(crate) fn xfs() -> Result<Self, String> {
        Self::on_loop("xfs", 300, "mkfs.xfs", &["-q", "-f"])
    }

    /// # Errors
    /// The reason why there cannot be one here.
    pub(crate) fn btrfs() -> Result<Self, String> {
        Self::on_loop("btrfs", 256, "mkfs.btrfs", &["-q", "-f"])
    }

    /// # Errors
    /// The reason why there cannot be one here.
    pub(crate) fn tmpfs(size_mib: u64) -> Result<Self, String> {
        needs(true, &["mount"])?;
        let mut volume = Self::empty("tmpfs")?;
        let options = format!("size={size_mib}m,mode=755");
        let root = volume.root();
        tool(
            "mount",
            &[
                "-t".as_ref(),
                "tmpfs".as_ref(),
                "-o".as_ref(),
                options.as_ref(),
                "tmpfs".as_ref(),
                root.as_os_str(),
            ],
        )?;
        volume.mounted = true;
        Ok(volume)
    }

    /// Makes a FAT through FUSE.
    ///
    /// # Errors
    /// The reason why there cannot be one here.
    pub(crate) fn fat(size_mib: u64) -> Result<Self, String> {
        needs(true, &["fusefat", "mkfs.vfat"])?;
        if !Path::new("/dev/fuse").exists() {
            return Err("there is no /dev/fuse".to_owned());
        }
        let mut volume = Self::empty("fuse")?;
        let image = volume.image(size_mib)?;
        tool("mkfs.vfat", &["-F".as_ref(), "32".as_ref(), image.as_os_str()])?;
        let server = Command::new(super::program("fusefat").unwrap())
            .args(["-f", "-o", "rw+"])
            .arg(&image)
            .arg(volume.root())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("fusefat: {error}"))?;
        volume.server = Some(server);
        volume.mounted = true;
        let root = volume.root();
        let up = wait_until(Duration::from_secs(5), || is_mount_point(&root));
        if up {
            Ok(volume)
        } else {
            Err("fusefat did not mount".to_owned())
        }
    }

    /// Makes an exFAT through FUSE: Windows' rules for names, and every character of Unicode
    /// (fusefat supports ASCII only).
    ///
    /// # Errors
    /// The reason why there cannot be one here.
    pub(crate) fn exfat(size_mib: u64) -> Result<Self, String> {
        needs(true, &["mkfs.exfat", "mount.exfat-fuse", "losetup"])?;
        if !Path::new("/dev/fuse").exists() {
            return Err("there is no /dev/fuse".to_owned());
        }
        let mut volume = Self::empty("exfat-fuse")?;
        let image = volume.image(size_mib)?;
        tool("mkfs.exfat", &[image.as_os_str()])?;
        let device = tool(
            "losetup",
            &["--find".as_ref(), "--show".as_ref(), image.as_os_str()],
        )?;
        volume.device = Some(device.trim().to_owned());
        let root = volume.root();
        tool("mount.exfat-fuse", &[device.trim().as_ref(), root.as_os_str()])?;
        volume.mounted = true;
        Ok(volume)
    }

    /// Makes a volume on an image in another volume, which may have less space than the image
    /// claims.
    ///
    /// Its device takes requests of one page. The loop driver reports a request as done even if
    /// its file took only a part of it because it became full, and then data is lost of which the
    /// kernel knows nothing. Requests of one page succeed or fail as a whole.
    ///
    /// # Errors
    /// The reason why there cannot be one here.
    pub(crate) fn within(
        outer: &Self,
        kind: &'static str,
        size_mib: u64,
        maker: &str,
        options: &[&str],
    ) -> Result<Self, String> {
        needs(true, &[maker, "losetup", "mount", "umount"])?;
        let volume = Self::empty_in(&outer.root(), kind)?.on_image(size_mib, maker, options)?;
        let device = volume.device.as_deref().unwrap_or_default();
        let name = device.trim_start_matches("/dev/");
        fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "4")
            .map_err(|error| format!("cannot limit the requests of {device}: {error}"))?;
        Ok(volume)
    }

    /// Changes the size of a tmpfs.
    pub(crate) fn resize(&self, size_mib: u64) {
        let options = format!("remount,size={size_mib}m");
        let root = self.root();
        tool("mount", &["-o".as_ref(), options.as_ref(), root.as_os_str()]).unwrap();
    }

    fn on_loop(kind: &'static str, size_mib: u64, maker: &str, options: &[&str]) -> Result<Self, String> {
        needs(true, &[maker, "losetup", "mount", "umount"])?;
        Self::empty(kind)?.on_image(size_mib, maker, options)
    }

    fn on_image(self, size_mib: u64, maker: &str, options: &[&str]) -> Result<Self, String> {
        let mut volume = self;
        let image = volume.image(size_mib)?;
        let image_text = image.to_str().ok_or("odd temporary folder")?;
        let arguments: Vec<&str> = options.iter().copied().chain([image_text]).collect();
        tool(maker, &arguments)?;
        let device = tool("losetup", &["--find", "--show", image_text])?;
        volume.device = Some(device.trim().to_owned());
        volume.mount()?;
        Ok(volume)
    }

    fn empty(kind: &'static str) -> Result<Self, String> {
        Self::empty_in(&std::env::temp_dir(), kind)
    }

    fn empty_in(parent: &Path, kind: &'static str) -> Result<Self, String> {
        let folder = tempfile::Builder::new()
            .prefix("ropeway-volume-")
            .tempdir_in(parent)
            .map_err(|error| error.to_string())?;
        fs::create_dir(folder.path().join("mnt")).map_err(|error| error.to_string())?;
        Ok(Self {
            folder,
            mounted: false,
            kind,
            device: None,
            server: None,
        })
    }

    fn image(&self, size_mib: u64) -> Result<PathBuf, String> {
        let image = self.folder.path().join("image");
        let file = File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(size_mib * MIB).map_err(|error| error.to_string())?;
        Ok(image)
    }

    /// Returns the mount point.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Mounts the loop device (again).
    ///
    /// # Errors
    /// The message of mount(8).
    pub(crate) fn mount(&mut self) -> Result<(), String> {
        let device = self.device.clone().ok_or("not on a loop device")?;
        let root = self.root();
        tool(
            "mount",
            &[
                "-t".as_ref(),
                self.kind.as_ref(),
                device.as_ref(),
                root.as_os_str(),
            ],
        )?;
        self.mounted = true;
        Ok(())
    }

    /// Unmounts at once, even if files are open.
    pub(crate) fn unmount(&mut self) {
        if std::mem::take(&mut self.mounted) {
            let _ = tool("umount", &["-l".as_ref(), self.root().as_os_str()]);
        }
    }

    /// Unmounts completely, so that the volume can be mounted again.
    pub(crate) fn unmount_completely(&mut self) {
        let root = self.root();
        let gone = wait_until(Duration::from_secs(10), || {
            tool("umount", &[root.as_os_str()]).is_ok()
        });
        assert!(gone, "cannot unmount {}", root.display());
        self.mounted = false;
    }

    /// Kills the process of a FUSE file system: from then on every operation fails with ENOTCONN.
    pub(crate) fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Returns the free bytes for ordinary users.
    pub(crate) fn free(&self) -> u64 {
        let statistics = rustix::fs::statvfs(self.root()).unwrap();
        statistics.f_bavail * statistics.f_frsize
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.unmount();
        if let Some(device) = &self.device {
            let _ = tool("losetup", &["-d", device]);
        }
        if let Some(mut server) = self.server.take() {
            // The process ends with its mount.
            let ended = wait_until(Duration::from_secs(5), || !matches!(server.try_wait(), Ok(None)));
            if !ended {
                let _ = server.kill();
            }
            let _ = server.wait();
        }
    }
}

fn is_mount_point(path: &Path) -> bool {
    let own = rustix::fs::stat(path).map(|stat| stat.st_dev);
    let parent = path
        .parent()
        .map(|parent| rustix::fs::stat(parent).map(|stat| stat.st_dev));
    matches!((own, parent), (Ok(own), Some(Ok(parent))) if own != parent)
}

/// Cuts the power of ext4 or XFS: nothing more reaches the device, and nothing is flushed before.
///
/// Uses `_IOR('X', 125, u32)` (XFS_IOC_GOINGDOWN, EXT4_IOC_SHUTDOWN) with flag 2, no flush of the
/// log. It runs through perl, which every Debian has, since tests must not use unsafe code.
///
/// # Errors
/// The reason why that is not possible here.
pub(crate) fn power_cut(root: &Path) -> Result<(), String> {
    needs(true, &["perl"])?;
    let script = "my $flag = pack('L', 2); open(my $root, '<', $ARGV[0]) or die $!; \
                  ioctl($root, 0x8004587D, $flag) or die $!;";
    tool("perl", &["-e".as_ref(), script.as_ref(), root.as_os_str()]).map(|_| ())
}
