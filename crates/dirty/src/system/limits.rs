//! Reads what [`crate::limits`] computes with.

use std::io;
use std::path::Path;

use super::{text, value};
use crate::limits::{Memory, Share};
use crate::parse::vmstat::Vmstat;

/// Returns the bytes of a page.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

impl Vmstat {
    /// Reads the current values.
    ///
    /// # Errors
    /// /proc/vmstat cannot be read.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&text("/proc/vmstat")?, page_bytes()))
    }
}

impl Memory {
    /// Reads the current values.
    ///
    /// # Errors
    /// A file of /proc cannot be read.
    pub fn read() -> io::Result<Self> {
        Self::read_with(&Vmstat::read()?)
    }

    pub(crate) fn read_with(vmstat: &Vmstat) -> io::Result<Self> {
        let setting = |name: &str| -> io::Result<u64> {
            let text = text(Path::new("/proc/sys/vm").join(name))?;
            text.trim().parse().map_err(io::Error::other)
        };
        let settings = [
            setting("dirty_ratio")?,
            setting("dirty_bytes")?,
            setting("dirty_background_ratio")?,
            setting("dirty_background_bytes")?,
        ];
        let meminfo = text("/proc/meminfo")?;
        let zoneinfo = text("/proc/zoneinfo").unwrap_or_default();
        Ok(Self::parse(settings, &meminfo, &zoneinfo, vmstat, page_bytes()))
    }
}

impl Share {
    /// Reads the share of the device with this number; `None` if the kernel knows no such device. A
    /// partition has the share of its disk.
    pub fn read(major: u32, minor: u32) -> Option<Self> {
        let number = format!("{major}:{minor}");
        let block = Path::new("/sys/dev/block").join(&number);
        let folder = [
            block.join("bdi"),
            block.join("../bdi"),
            Path::new("/sys/class/bdi").join(&number),
        ]
        .into_iter()
        .find(|folder| folder.is_dir())?;
        let name = std::fs::canonicalize(&folder).ok();
        let name = name.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
        Some(Self::read_in(&folder, name.unwrap_or(number)))
    }

    /// Reads the share of a device by its name in /sys/class/bdi.
    pub(crate) fn read_named(bdi: &str) -> Self {
        Self::read_in(&Path::new("/sys/class/bdi").join(bdi), bdi.to_owned())
    }

    fn read_in(folder: &Path, name: String) -> Self {
        Self {
            name,
            max_ratio: value(folder.join("max_ratio")),
            max_bytes: value(folder.join("max_bytes")),
            min_ratio: value(folder.join("min_ratio")),
            strict: value(folder.join("strict_limit")) == Some(1),
        }
    }
}
