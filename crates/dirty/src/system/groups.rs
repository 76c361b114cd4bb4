//! Memory groups (cgroups) of processes: what they owe, and their own limits.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ropeway_local::MountInfo;

use super::table::Table;
use super::text;
use crate::limits::Memory;
use crate::parse::cgroup::{GroupMemory, Membership, bytes};
use crate::reading::GroupReading;

/// Most groups that are listed.
const GROUPS_MAX: usize = 8;
/// Most groups above a group.
const DEPTH_MAX: usize = 32;

/// Returns the groups of some processes that owe something or have limits of their own.
pub(crate) fn groups(pids: &[u32], table: &Table, memory: &Memory, backlog: u64) -> Vec<GroupReading> {
    let tree = |fstype: &str, option: Option<&str>| {
        let has = |mount: &MountInfo| {
            let mut options = mount.super_options.split(',');
            mount.fstype == fstype && option.is_none_or(|wanted| options.any(|option| option == wanted))
        };
        table
            .places
            .iter()
            .map(|place| &place.mount)
            .find(|mount| has(mount))
    };
    let (unified, version_1) = (tree("cgroup2", None), tree("cgroup", Some("memory")));
    let (mut known, mut found) = (BTreeSet::new(), Vec::new());
    for pid in pids {
        if found.len() >= GROUPS_MAX {
            break;
        }
        let Ok(text) = text(format!("/proc/{pid}/cgroup")) else {
            continue;
        };
        let member = Membership::parse(&text);
        for (version, mount, path) in [(2, unified, member.unified), (1, version_1, member.memory)] {
            let (Some(mount), Some(path)) = (mount, path) else {
                continue;
            };
            if known.insert((version, path.clone())) {
                found.extend(group(version, mount, path, memory, backlog));
            }
        }
    }
    found
}

fn group(
    version: u32,
    mount: &MountInfo,
    path: String,
    memory: &Memory,
    backlog: u64,
) -> Option<GroupReading> {
    // The root group is the machine.
    let inside = Path::new(&path).strip_prefix(&mount.root).ok()?;
    if inside.as_os_str().is_empty() {
        return None;
    }
    let folder = mount.mount_point.join(inside);
    let stat = GroupMemory::parse(&text(folder.join("memory.stat")).ok()?)?;
    let limits = (version == 2).then(|| {
        let headroom = headroom(&folder, &mount.mount_point);
        memory.limits_of_group(&stat, headroom, backlog)
    });
    Some(GroupReading {
        path,
        version,
        dirty_bytes: stat.dirty_bytes,
        writeback_bytes: stat.writeback_bytes,
        limits,
    })
}

/// Returns the room up to the lowest limit of a group and those above it.
fn headroom(folder: &Path, top: &Path) -> u64 {
    let room = |folder: PathBuf| {
        let value = |name: &str| bytes(&text(folder.join(name)).ok()?);
        let limit = value("memory.max")
            .into_iter()
            .chain(value("memory.high"))
            .min()?;
        Some(limit.saturating_sub(value("memory.current")?))
    };
    let above = folder
        .ancestors()
        .take(DEPTH_MAX)
        .take_while(|folder| *folder != top);
    above
        .filter_map(|folder| room(folder.to_owned()))
        .min()
        .unwrap_or(u64::MAX)
}
