//! Block devices in sysfs: the disk of a partition, whether it is unplugged, what it consists of and what is
//! built on it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{link_name, text, value};
use crate::judge::DiskFacts;
use crate::parse::block::BlockStat;

/// Major and minor number of a device.
pub(crate) type Number = (u32, u32);

/// Most levels of devices upon devices that are followed.
const DEPTH_MAX: usize = 8;
/// Most devices that are collected around one.
const NUMBERS_MAX: usize = 1024;

/// A whole disk, or a volume of the kernel (dm, md, loop).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) number: Number,
    /// Name below /dev.
    pub(crate) name: String,
    folder: PathBuf,
}

impl Disk {
    /// Finds the disk of a device or of one of its partitions.
    pub(crate) fn of(number: Number) -> Option<Self> {
        let mut folder = fs::canonicalize(format!("/sys/dev/block/{}:{}", number.0, number.1)).ok()?;
        if folder.join("partition").exists() {
            folder = folder.parent()?.to_owned();
        }
        Self::in_folder(folder)
    }

    /// Finds a disk by its name in /sys/class/block.
    fn named(name: &str) -> Option<Self> {
        let folder = fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()?;
        Self::of(number_in(&folder)?)
    }

    fn in_folder(folder: PathBuf) -> Option<Self> {
        Some(Self {
            number: number_in(&folder)?,
            // `!` stands for `/` in names like `cciss/c0d0`.
            name: folder.file_name()?.to_string_lossy().replace('!', "/"),
            folder,
        })
    }

    /// Returns the name in /sys/class/bdi.
    pub(crate) fn bdi(&self) -> String {
        link_name(self.folder.join("bdi")).unwrap_or_else(|| format!("{}:{}", self.number.0, self.number.1))
    }

    /// Returns its folder in sysfs.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn stat(&self) -> Option<BlockStat> {
        BlockStat::parse(&text(self.folder.join("stat")).ok()?)
    }

    /// Returns the file that a loop device shows.
    pub(crate) fn image(&self) -> Option<PathBuf> {
        let text = text(self.folder.join("loop/backing_file")).ok()?;
        Some(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
    }

    /// Returns the devices that it consists of, by name.
    pub(crate) fn parts(&self) -> Vec<String> {
        names_in(&self.folder.join("slaves"))
    }

    /// Returns the disks of metal, or loop devices, that it consists of in the end: itself, if it
    /// consists of nothing.
    pub(crate) fn bottom(&self) -> Vec<Self> {
        let mut found = vec![self.clone()];
        for _ in 0..DEPTH_MAX {
            let below = |disk: &Self| -> Vec<Self> {
                let parts: Vec<Self> = disk.parts().iter().filter_map(|name| Self::named(name)).collect();
                if parts.is_empty() {
                    vec![disk.clone()]
                } else {
                    parts
                }
            };
            let mut next: Vec<Self> = found.iter().flat_map(below).take(NUMBERS_MAX).collect();
            next.sort_by_key(|disk| disk.number);
            next.dedup();
            if next == found {
                break;
            }
            found = next;
        }
        found
    }

    /// Returns the numbers of the disk, its partitions, and everything that is built on them.
    pub(crate) fn family(&self) -> BTreeSet<Number> {
        let mut family = BTreeSet::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            let Some(number) = number_in(&folder) else {
                continue;
            };
            if !family.insert(number) || family.len() >= NUMBERS_MAX {
                continue;
            }
            let holders = names_in(&folder.join("holders")).into_iter();
            folders.extend(
                holders.filter_map(|name| fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()),
            );
            let inside = fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(
                inside
                    .map(|entry| entry.path())
                    .filter(|path| path.join("partition").exists()),
            );
        }
        family
    }

    /// Returns what tells a stick from a built-in disk.
    pub(crate) fn facts(&self) -> DiskFacts {
        let mut facts = DiskFacts {
            removable: value(self.folder.join("removable")) == Some(1),
            card: text(self.folder.join("device/type"))
                .ok()
                .map(|kind| kind.trim().to_owned())
                .filter(|kind| matches!(kind.as_str(), "MMC" | "SD" | "SDIO")),
            ..DiskFacts::default()
        };
        for folder in self
            .folder
            .ancestors()
            .take_while(|folder| folder.starts_with("/sys/devices"))
        {
            let Some(bus) = link_name(folder.join("subsystem")) else {
                continue;
            };
            if bus == "usb" && facts.usb.is_none() {
                // Interfaces of a USB device have no such file; the device itself has.
                facts.usb = text(folder.join("removable"))
                    .ok()
                    .map(|kind| kind.trim().to_owned());
            }
            facts.buses.push(bus);
        }
        facts
    }
}

fn number_in(folder: &Path) -> Option<Number> {
    let text = text(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .take(NUMBERS_MAX)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_of_this_machine_is_found_by_its_number_and_its_family_holds_it() {
        for name in names_in(Path::new("/sys/block")) {
            let Some(disk) = Disk::named(&name) else { continue };
            assert_eq!(Disk::of(disk.number).as_ref(), Some(&disk));
            assert!(disk.family().contains(&disk.number));
            assert!(!disk.bottom().is_empty());
            assert!(disk.facts().buses.contains(&"block".to_owned()));
        }
        assert_eq!(Disk::of((4095, 1)), None);
    }
}
