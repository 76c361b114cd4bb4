//! Block devices as targets: their users, exclusive opening, flushing.
//!
//! A device is opened with `O_EXCL`. The kernel refuses that (`EBUSY`) while the device or one of its
//! partitions is mounted or claimed by a driver (open(2)). [`users`] finds out beforehand, so that the
//! message can name the user of the device.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};

use crate::{mounts, sys};

/// A block device, opened for this process alone.
#[derive(Debug)]
pub struct BlockDevice {
    file: File,
    size: u64,
}

impl BlockDevice {
    /// Opens a device for writing.
    ///
    /// # Errors
    /// The device is in use, cannot be written, or has no medium.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlags::EXCL.bits() as i32)
            .open(path)?;
        if !file.metadata()?.file_type().is_block_device() {
            return Err(io::Error::other("not a block device"));
        }
        let size = (&file).seek(SeekFrom::End(0))?;
        Ok(Self { file, size })
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// The device refuses.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Reads at an offset; short only at the end of the device.
    ///
    /// # Errors
    /// The device refuses.
    pub fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Starts write-back of a range, and awaits it if `wait`.
    ///
    /// # Errors
    /// The device failed to take it.
    pub fn write_back(&self, offset: u64, length: u64, wait: bool) -> io::Result<()> {
        sys::sync_file_range(self.file.as_fd(), offset, length, wait)
    }

    /// Makes everything durable, including the device's own cache, and drops the page cache: the next
    /// read comes from the device.
    ///
    /// # Errors
    /// A write did not reach the device.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_all()?;
        sys::flush_block_device(self.file.as_fd())
    }
}

/// Returns a phrase that says what uses a block device or a part of it; `None` if nothing does.
///
/// # Errors
/// The device or the system's tables cannot be read.
pub fn users(path: &Path) -> io::Result<Option<String>> {
    let device = fs::metadata(path)?.rdev();
    let parts = parts(device);
    for mount in mounts::mounts()? {
        let (major, minor) = mount.device;
        // btrfs has device numbers of its own, and names its device as the source.
        let source = fs::metadata(&mount.source).ok().filter(is_block);
        let is_source = source.is_some_and(|source| parts.contains(&number(source.rdev())));
        if is_source || parts.contains(&(major, minor)) {
            return Ok(Some(format!("mounted on {}", mount.mount_point.display())));
        }
    }
    // proc_swaps(5): a heading, then a path in each line.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for line in swaps.lines().skip(1) {
        let swap = line.split_ascii_whitespace().next().map(fs::metadata);
        if let Some(Ok(swap)) = swap
            && is_block(&swap)
            && parts.contains(&number(swap.rdev()))
        {
            return Ok(Some("used as swap".to_owned()));
        }
    }
    for (major, minor) in parts {
        let holders = format!("/sys/dev/block/{major}:{minor}/holders");
        if let Some(Ok(holder)) = fs::read_dir(holders).ok().and_then(|mut entries| entries.next()) {
            return Ok(Some(format!(
                "used by {}",
                Path::new("/dev").join(holder.file_name()).display()
            )));
        }
    }
    Ok(None)
}

fn is_block(metadata: &fs::Metadata) -> bool {
    metadata.file_type().is_block_device()
}

fn number(device: u64) -> (u32, u32) {
    (major(device), minor(device))
}

/// Returns the numbers of a device, of its partitions, and of the device that it is a partition of.
fn parts(device: u64) -> BTreeSet<(u32, u32)> {
    let (major, minor) = number(device);
    let mut parts = BTreeSet::from([(major, minor)]);
    let Ok(folder) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return parts;
    };
    let read = |folder: PathBuf| -> Option<(u32, u32)> {
        let text = fs::read_to_string(folder.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    if folder.join("partition").exists()
        && let Some(whole) = folder.parent()
    {
        parts.extend(read(whole.to_owned()));
    }
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            parts.extend(read(entry.path()));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_is_in_use_and_no_file_is_a_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(BlockDevice::open(file.path()).is_err());
        let mounted = mounts::mounts().unwrap().into_iter().find(|mount| {
            fs::metadata(&mount.source).is_ok_and(|source| is_block(&source) && mount.fstype != "btrfs")
        });
        if let Some(mount) = mounted {
            let user = users(Path::new(&mount.source)).unwrap();
            assert!(user.is_some_and(|user| user.starts_with("mounted on")));
        }
    }
}
