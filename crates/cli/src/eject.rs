//! Unmounts a device that people unplug, and switches it off (`--eject`).
//!
//! Nothing but the kernel is needed: umount(2), and `delete` of the SCSI device in sysfs, after which the
//! kernel has flushed the device's cache and lets it go. A USB device that holds nothing else is then
//! switched off at its port (`remove`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use ropeway_dirty::Target;
use ropeway_dirty::reading::Medium;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::failure::{Failure, code};
use crate::place::Place;

/// Tries to unmount, and the time between two: threads of this process may still close their files.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// Most processes that are named as users of a busy device.
const HOLDERS_SHOWN: usize = 5;
/// Mount points that the system needs.
const SYSTEM: [&str; 6] = ["/", "/boot", "/boot/efi", "/usr", "/var", "/home"];

/// Finds the device to eject, before anything is copied.
///
/// # Errors
/// The target is not on a device that people unplug, or the system runs from it.
pub(crate) fn check(target: &Place) -> Result<(), Failure> {
    device(target).map(drop)
}

fn device(target: &Place) -> Result<Target, Failure> {
    let refused = |why: String| Failure::new(code::REFUSED, why).hint("leave --eject out");
    let Place::Local(path) = target else {
        return Err(refused(format!("{target} is a share and cannot be ejected")));
    };
    let found = Target::of(path).map_err(|error| {
        let message = format!("cannot find the device of {}: {error}", path.display());
        Failure::of_end(message, &error, code::TARGET)
    })?;
    let mounts = found.mount_points();
    if let Some(system) = mounts.iter().find(|mount| is_system(mount)) {
        let system = system.display();
        return Err(refused(format!(
            "the device of {} is also {system} and cannot be ejected",
            path.display()
        )));
    }
    if found.medium != Medium::Removable || mounts.is_empty() {
        return Err(refused(format!(
            "{} is not on a device that people unplug",
            path.display()
        )));
    }
    Ok(found)
}

fn is_system(mount: &Path) -> bool {
    SYSTEM.iter().any(|system| mount == Path::new(system))
}

/// Unmounts the device and switches it off. Returns what was done, in one line.
///
/// # Errors
/// Somebody uses it, or this user may not unmount it.
pub(crate) fn eject(target: &Place) -> Result<String, Failure> {
    let found = device(target)?;
    // Not this process by itself.
    _ = std::env::set_current_dir("/");
    let mounts = found.mount_points();
    for mount in &mounts {
        unmount_one(mount)?;
    }
    let folder = found.disk_folder().map(Path::to_owned).unwrap_or_default();
    let name = found.disk_name.unwrap_or_default();
    let shown: Vec<String> = mounts.iter().map(|mount| mount.display().to_string()).collect();
    let unmounted = format!("unmounted {}", shown.join(", "));
    Ok(match switch_off(&folder) {
        Ok(true) => format!("{unmounted}; /dev/{name} is off"),
        Ok(false) => format!("{unmounted}; /dev/{name} has no switch and can be unplugged"),
        Err(error) => {
            format!("{unmounted}; /dev/{name} cannot be switched off ({error}) and can be unplugged")
        }
    })
}

fn unmount_one(mount: &Path) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        let error = match unmount(mount, UnmountFlags::NOFOLLOW) {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) if tries < TRIES => {
                tries += 1;
                sleep(PAUSE);
                continue;
            }
            Err(error) => error,
        };
        let shown = mount.display();
        return Err(match error {
            Errno::BUSY => Failure::new(
                code::SOME_FAILED,
                format!(
                    "everything is copied, but {shown} is in use{}",
                    by(&holders(mount))
                ),
            )
            .hint("end that, then unmount it, or use --eject again"),
            Errno::PERM => Failure::new(
                code::PERMISSION,
                format!("everything is copied, but this user may not unmount {shown}"),
            )
            .hint("as root, or from the desktop"),
            error => Failure::new(
                code::SOME_FAILED,
                format!("everything is copied, but {shown} cannot be unmounted: {error}"),
            ),
        });
    }
}

fn by(holders: &[String]) -> String {
    match holders {
        [] => String::new(),
        holders => format!(" by {}", holders.join(", ")),
    }
}

/// Returns the processes that have something open on a mount, as `vi (1234)`. Those of other users are
/// seen by root only.
fn holders(mount: &Path) -> Vec<String> {
    let Ok(device) = fs::metadata(mount).map(|metadata| metadata.dev()) else {
        return Vec::new();
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found = BTreeSet::new();
    for process in processes {
        let number: Option<u32> = process.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.filter(|pid| *pid != std::process::id()) else {
            continue;
        };
        if uses(&process.path(), device) {
            found.insert(pid);
        }
        if found.len() >= HOLDERS_SHOWN {
            break;
        }
    }
    let name = |pid: &u32| {
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let command: String = command.trim().chars().filter(|c| !c.is_control()).collect();
        format!("{command} ({pid})")
    };
    found.iter().map(name).collect()
}

/// Whether a process has a file, a folder or its program on a device.
fn uses(process: &Path, device: u64) -> bool {
    let is_on = |path: PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.dev() == device);
    ["cwd", "root", "exe"]
        .iter()
        .any(|link| is_on(process.join(link)))
        || fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|file| is_on(file.path()))
}

/// Switches a disk off. Returns `false` for one that has no switch, such as a card or a loop device.
fn switch_off(disk: &Path) -> io::Result<bool> {
    let delete = disk.join("device/delete");
    if !delete.exists() {
        return Ok(false);
    }
    let port = usb_device(disk);
    fs::write(delete, "1")?;
    if let Some(port) = port.filter(|port| port.join("remove").exists()) {
        fs::write(port.join("remove"), "1")?;
    }
    Ok(true)
}

/// Returns the USB device of a disk in sysfs, if no other disk is part of it.
fn usb_device(disk: &Path) -> Option<PathBuf> {
    let device = disk.ancestors().find(|folder| folder.join("idVendor").exists())?;
    let disks = fs::read_dir("/sys/block").ok()?.flatten();
    let inside = disks
        .filter_map(|entry| fs::canonicalize(entry.path()).ok())
        .filter(|other| other.starts_with(device));
    (inside.count() == 1).then(|| device.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_root_file_system_nor_a_share_is_ejected() {
        let failure = check(&Place::Local("/".into())).unwrap_err();
        assert_eq!(failure.code, code::REFUSED);
        let share = Place::parse_end(Path::new("smb://ann@nas/share")).unwrap();
        assert!(check(&share).unwrap_err().message.contains("is a share"));
        assert!(is_system(Path::new("/boot")) && !is_system(Path::new("/mnt/stick")));
    }

    #[test]
    fn a_process_that_stands_in_a_folder_uses_its_device() {
        let device = fs::metadata(".").unwrap().dev();
        assert!(uses(Path::new("/proc/self"), device));
        assert!(!uses(Path::new("/proc/self"), u64::MAX));
    }
}
