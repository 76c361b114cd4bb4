//! Which mount is on which backing device of the kernel.
//!
//! The kernel does not say it in one place:
//!
//! | file system | its backing device |
//! |---|---|
//! | on a block device | that of the whole disk: partitions share it |
//! | FUSE on a block device | its own, `MAJ:MIN-fuseblk` |
//! | FUSE, NFS and others with an anonymous device number | `0:MIN` |
//! | btrfs, bcachefs | `TYPE-N`; `/sys/fs/TYPE/UUID` has a link to it, and lists the disks |
//! | cifs, 9p, ceph | `TYPE-N`, known only if there is one |
//! | overlay | that of its upper layer, whose files hold the pages |
//! | tmpfs, proc and the like | none |

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use ropeway_local::{MountInfo, mounts};

use super::disk::{Disk, Number};
use super::link_name;
use super::open_files::OpenFile;
use crate::reading::Medium;

/// Most mounts and most backing devices that are looked at.
const ENTRIES_MAX: usize = 8192;
/// Most overlays upon overlays.
const OVERLAYS_MAX: usize = 8;

/// File systems whose files are in memory, or are not files.
const IN_MEMORY: &[&str] = &[
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "hugetlbfs",
    "proc",
    "sysfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "pstore",
    "bpf",
    "configfs",
    "mqueue",
    "efivarfs",
    "fusectl",
    "binfmt_misc",
    "autofs",
    "nsfs",
    "rpc_pipefs",
    "selinuxfs",
];
/// File systems that are on a server.
const ON_SERVER: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "ceph",
    "afs",
    "coda",
    "fuse.sshfs",
    "fuse.rclone",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.s3fs",
    "fuse.mount-s3",
];

/// One mount and what it is on.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) mount: MountInfo,
    /// Name of its backing device, as in /sys/class/bdi.
    pub(crate) bdi: Option<String>,
    /// Its disk.
    pub(crate) disk: Option<Disk>,
    /// Disks, where there are several (btrfs).
    pub(crate) disks: Vec<String>,
}

/// All mounts and backing devices at one moment.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) places: Vec<Place>,
    pub(crate) bdis: Vec<String>,
    /// Why there are no backing devices, if sysfs cannot be read.
    pub(crate) unreadable: Option<String>,
    by_device: HashMap<Number, usize>,
    by_mount: HashMap<u64, usize>,
}

impl Table {
    pub(crate) fn read() -> Self {
        let folder = fs::read_dir("/sys/class/bdi");
        let unreadable = folder.as_ref().err().map(ToString::to_string);
        let entries = folder.into_iter().flatten().flatten();
        let mut bdis: Vec<String> = entries
            .take(ENTRIES_MAX)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        bdis.sort();
        let all = mounts().unwrap_or_default();
        let mut finder = Finder::new(&all, &bdis);
        let places: Vec<Place> = all
            .iter()
            .take(ENTRIES_MAX)
            .map(|mount| finder.place(mount.clone(), 0))
            .collect();
        let numbered = places.iter().enumerate().filter(|(_, place)| place.bdi.is_some());
        let by_device = numbered
            .map(|(index, place)| (place.mount.device, index))
            .collect();
        let indexed = places.iter().enumerate();
        let by_mount = indexed.map(|(index, place)| (place.mount.id, index)).collect();
        Self {
            places,
            bdis,
            unreadable,
            by_device,
            by_mount,
        }
    }

    /// Returns a mount of the file system with this device number.
    pub(crate) fn by_device(&self, device: Number) -> Option<&Place> {
        self.places.get(*self.by_device.get(&device)?)
    }

    /// Returns a mount of the file system of an open file. Files of btrfs have the device number of
    /// their subvolume, which no mount has, so the mount itself counts first.
    pub(crate) fn of_file(&self, open: &OpenFile) -> Option<&Place> {
        let own = self.by_mount(open.mount);
        own.or_else(|| self.by_device(open.device))
    }

    /// Returns the mount that a path lies in by its name, without following it: its server might be
    /// dead.
    pub(crate) fn of_path(&self, path: &Path) -> Option<&Place> {
        let places = self
            .places
            .iter()
            .filter(|place| path.starts_with(&place.mount.mount_point));
        // The last one mounted is on top.
        places.max_by_key(|place| (place.mount.mount_point.components().count(), place.mount.id))
    }

    /// Returns the place of a mount by its number in the table.
    pub(crate) fn by_mount(&self, id: u64) -> Option<&Place> {
        self.places.get(*self.by_mount.get(&id)?)
    }
}

/// Whether it is a file system of the kernel on a block device. Only there cachestat(2) may be asked
/// about files: closing a descriptor of a FUSE or NFS file writes it back.
pub(crate) fn on_block_device(mount: &MountInfo) -> bool {
    let fstype = mount.fstype.as_str();
    let own = matches!(fstype, "btrfs" | "bcachefs") || mount.device.0 != 0;
    own && !fstype.starts_with("fuse") && !IN_MEMORY.contains(&fstype)
}

impl Place {
    pub(crate) fn medium(&self) -> Medium {
        let fstype = self.mount.fstype.as_str();
        if IN_MEMORY.contains(&fstype) {
            return Medium::Memory;
        }
        if ON_SERVER.contains(&fstype) {
            return Medium::Network;
        }
        match &self.disk {
            Some(disk) => medium_of(disk),
            None if fstype.starts_with("fuse") => Medium::Program,
            None => Medium::Unknown,
        }
    }
}

/// Returns whether a disk, or any disk that it consists of, is one that people unplug.
pub(crate) fn medium_of(disk: &Disk) -> Medium {
    let bottom = disk.bottom();
    let removable = bottom
        .iter()
        .any(|disk| disk.facts().medium() == Medium::Removable);
    match removable {
        true => Medium::Removable,
        false => Medium::Fixed,
    }
}

/// Finds the backing devices of mounts. What sysfs says of a disk is asked once.
struct Finder<'a> {
    mounts: &'a [MountInfo],
    bdis: &'a [String],
    disks: BTreeMap<Number, Option<Disk>>,
}

impl<'a> Finder<'a> {
    fn new(mounts: &'a [MountInfo], bdis: &'a [String]) -> Self {
        Self {
            mounts,
            bdis,
            disks: BTreeMap::new(),
        }
    }

    fn knows(&self, bdi: &str) -> bool {
        self.bdis
            .binary_search_by(|known| known.as_str().cmp(bdi))
            .is_ok()
    }

    fn disk(&mut self, number: Number) -> Option<Disk> {
        let found = self.disks.entry(number).or_insert_with(|| Disk::of(number));
        found.clone()
    }

    fn place(&mut self, mount: MountInfo, depth: usize) -> Place {
        let (major, minor) = mount.device;
        let fstype = mount.fstype.clone();
        let mut place = Place {
            mount,
            bdi: None,
            disk: None,
            disks: Vec::new(),
        };
        if IN_MEMORY.contains(&fstype.as_str()) {
            return place;
        }
        if fstype == "overlay" {
            self.overlay(&mut place, depth);
        } else if major != 0 {
            place.disk = self.disk((major, minor));
            let own = format!("{major}:{minor}-fuseblk");
            place.bdi = match self.knows(&own) {
                true => Some(own),
                false => place.disk.as_ref().map(Disk::bdi),
            };
        } else if matches!(fstype.as_str(), "btrfs" | "bcachefs") {
            self.many_disks(&mut place, &fstype);
        } else {
            let anonymous = format!("0:{minor}");
            place.bdi = match self.knows(&anonymous) {
                true => Some(anonymous),
                false => self.only_one(&fstype),
            };
        }
        place
    }

    /// The pages of an overlay's files belong to the files of its upper layer.
    fn overlay(&mut self, place: &mut Place, depth: usize) {
        let Some(upper) = upper_folder(&place.mount.super_options) else {
            return;
        };
        let holder = self
            .mounts
            .iter()
            .filter(|mount| upper.starts_with(&mount.mount_point))
            // The last one mounted is on top.
            .max_by_key(|mount| (mount.mount_point.components().count(), mount.id));
        if let Some(holder) = holder
            && depth < OVERLAYS_MAX
            && holder.id != place.mount.id
        {
            let below = self.place(holder.clone(), depth + 1);
            (place.bdi, place.disk, place.disks) = (below.bdi, below.disk, below.disks);
        }
    }

    fn many_disks(&mut self, place: &mut Place, fstype: &str) {
        let Some(device) = fs::canonicalize(&place.mount.source).ok() else {
            place.bdi = self.only_one(fstype);
            return;
        };
        let name = device.file_name().unwrap_or_default().to_owned();
        let folders = fs::read_dir(Path::new("/sys/fs").join(fstype))
            .into_iter()
            .flatten()
            .flatten();
        for folder in folders.take(ENTRIES_MAX).map(|entry| entry.path()) {
            if !folder.join("devices").join(&name).exists() {
                continue;
            }
            place.bdi = link_name(folder.join("bdi"));
            let devices = fs::read_dir(folder.join("devices"))
                .into_iter()
                .flatten()
                .flatten();
            place.disks = devices
                .take(ENTRIES_MAX)
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
        }
        if place.bdi.is_none() {
            place.bdi = self.only_one(fstype);
        }
        let metadata = rustix::fs::stat(&device).ok();
        place.disk = metadata.and_then(|node| {
            let number = node.st_rdev;
            self.disk((rustix::fs::major(number), rustix::fs::minor(number)))
        });
    }

    /// Returns the backing device `TYPE-N`, if there is one and one file system of the type.
    fn only_one(&self, fstype: &str) -> Option<String> {
        let prefix = format!("{fstype}-");
        let mut found = self.bdis.iter().filter(|bdi| bdi.starts_with(&prefix));
        let first = found.next()?;
        let mut devices = self
            .mounts
            .iter()
            .filter(|mount| mount.fstype == fstype)
            .map(|mount| mount.device);
        let device = devices.next()?;
        (found.next().is_none() && devices.all(|other| other == device)).then(|| first.clone())
    }
}

/// Returns the upper layer among the options of an overlay, in which `\` precedes commas and colons.
fn upper_folder(options: &str) -> Option<PathBuf> {
    let start = match options.find(",upperdir=") {
        Some(at) => at + ",upperdir=".len(),
        None => options.strip_prefix("upperdir=").map(|_| "upperdir=".len())?,
    };
    let mut path = String::new();
    let mut letters = options.get(start..)?.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ',' => break,
            '\\' => path.extend(letters.next()),
            letter => path.push(letter),
        }
    }
    (!path.is_empty()).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_upper_layer_is_found_among_the_options() {
        let options = r"rw,lowerdir=/a:/b,upperdir=/c\,d/upper,workdir=/c/work";
        assert_eq!(upper_folder(options), Some(PathBuf::from("/c,d/upper")));
        assert_eq!(upper_folder("upperdir=/x"), Some(PathBuf::from("/x")));
        assert_eq!(upper_folder("ro,lowerdir=/a:/b"), None);
        assert_eq!(upper_folder("rw,upperdir=,workdir=/c"), None);
    }

    #[test]
    fn the_root_of_this_machine_is_somewhere() {
        let table = Table::read();
        let root = table
            .places
            .iter()
            .find(|place| place.mount.mount_point == Path::new("/"));
        let Some(root) = root else {
            println!("skipped: no root in the mount table");
            return;
        };
        if root.mount.device.0 != 0 {
            let bdi = root.bdi.clone().unwrap();
            assert!(table.bdis.contains(&bdi), "{bdi}");
            assert_eq!(table.by_device(root.mount.device).unwrap().bdi, Some(bdi));
            assert!(on_block_device(&root.mount));
        }
        let proc = table
            .places
            .iter()
            .find(|place| place.mount.fstype == "proc")
            .unwrap();
        assert_eq!((proc.medium(), proc.bdi.as_ref()), (Medium::Memory, None));
        assert!(table.by_mount(proc.mount.id).is_some());
    }

    proptest! {
        #[test]
        fn no_options_break_it(options in "[a-z=,\\\\/]{0,60}") {
            _ = upper_folder(&options);
        }
    }
}
