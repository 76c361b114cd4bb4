//! What a path is on: which device, and what lies below it.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ropeway_local::mount_of;
use rustix::fs::{major, minor};

use super::disk::Disk;
use super::open_files::open_regular;
use super::table::{Place, Table, medium_of, on_block_device};
use crate::reading::{Layer, Medium, MountReading};

/// Most images in images that are followed.
const IMAGES_MAX: usize = 4;

/// The device of a path.
#[derive(Clone, Debug)]
pub struct Target {
    /// The path as given.
    pub path: PathBuf,
    /// The mount that holds it; `None` for a block device itself.
    pub mount: Option<MountReading>,
    /// What it is on.
    pub medium: Medium,
    /// Name in /sys/class/bdi.
    pub bdi: Option<String>,
    /// Name of the disk.
    pub disk_name: Option<String>,
    pub(crate) disk: Option<Disk>,
}

impl Target {
    /// Finds the device of a file, folder or block device; follows links.
    ///
    /// # Errors
    /// The path does not exist or may not be looked at, or its mount is not visible.
    pub fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(path)?;
        if metadata.file_type().is_block_device() {
            let number = (major(metadata.rdev()), minor(metadata.rdev()));
            let disk = Disk::of(number);
            return Ok(Self {
                path: path.to_owned(),
                mount: None,
                medium: disk.as_ref().map_or(Medium::Unknown, medium_of),
                bdi: disk.as_ref().map(Disk::bdi),
                disk_name: disk.as_ref().map(|disk| disk.name.clone()),
                disk,
            });
        }
        let mount = mount_of(path)?;
        let table = Table::read();
        let place = table
            .by_mount(mount.id)
            .ok_or_else(|| io::Error::other("the mount is not in this process's mount table"))?;
        Ok(Self {
            path: path.to_owned(),
            mount: Some(MountReading::of(place)),
            medium: place.medium(),
            bdi: place.bdi.clone(),
            disk_name: place.disk.as_ref().map(|disk| disk.name.clone()),
            disk: place.disk.clone(),
        })
    }
}

impl Target {
    /// Returns the mount points of everything on its disk, the innermost first; empty without a disk.
    pub fn mount_points(&self) -> Vec<PathBuf> {
        let Some(disk) = &self.disk else {
            return Vec::new();
        };
        let family = disk.family();
        let mut places = Table::read().places;
        let numbers = |place: &Place| {
            [
                Some(place.mount.device),
                place.disk.as_ref().map(|disk| disk.number),
            ]
        };
        places.retain(|place| {
            numbers(place)
                .iter()
                .flatten()
                .any(|number| family.contains(number))
        });
        // What was mounted last is on top.
        places.sort_by_key(|place| {
            let depth = place.mount.mount_point.components().count();
            std::cmp::Reverse((depth, place.mount.id))
        });
        places.into_iter().map(|place| place.mount.mount_point).collect()
    }

    /// Returns the folder of its disk in sysfs.
    pub fn disk_folder(&self) -> Option<&Path> {
        self.disk.as_ref().map(Disk::folder)
    }
}

impl MountReading {
    pub(crate) fn of(place: &Place) -> Self {
        Self {
            path: place.mount.mount_point.clone(),
            fstype: place.mount.fstype.clone(),
            source: place.mount.source.clone(),
            read_only: place.mount.read_only,
        }
    }
}

/// Returns what lies below a disk: the image of a loop device, the parts of a volume.
pub(crate) fn layers(disk: Option<&Disk>, disks: &[String], table: &Table) -> Vec<Layer> {
    let Some(disk) = disk else { return Vec::new() };
    let mut layers = Vec::new();
    let mut below = disk.clone();
    for _ in 0..IMAGES_MAX {
        let Some(image) = below.image() else { break };
        let (layer, on) = image_layer(image, table);
        layers.push(layer);
        match on {
            Some(next) => below = next,
            None => break,
        }
    }
    let parts = disk.parts();
    let names = if disks.len() > 1 { disks } else { &parts };
    layers.extend(names.iter().map(|name| Layer::Part { name: name.clone() }));
    layers
}

fn image_layer(path: PathBuf, table: &Table) -> (Layer, Option<Disk>) {
    let place = table.of_path(&path);
    let counted = place
        .filter(|place| on_block_device(&place.mount))
        .and_then(|_| open_regular(&path).ok())
        .and_then(|file| ropeway_local::unflushed(file.as_fd()).ok());
    let disk = place.and_then(|place| place.disk.clone());
    let on = match (&disk, place) {
        (Some(disk), _) => Some(disk.name.clone()),
        (None, Some(place)) => Some(place.mount.fstype.clone()),
        (None, None) => None,
    };
    let layer = Layer::Image {
        path,
        on,
        dirty_bytes: counted.map(|[dirty, _]| dirty),
        writeback_bytes: counted.map(|[_, writeback]| writeback),
    };
    (layer, disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_memory_and_what_is_missing_is_an_error() {
        let proc = Target::of(Path::new("/proc/self/status")).unwrap();
        assert_eq!((proc.medium, proc.bdi), (Medium::Memory, None));
        assert!(Target::of(Path::new("/does/not/exist")).is_err());
    }
}
