//! Cgroups: which one a process is in, and what its memory controller says.
//!
//! Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. Version 2 has own
//! limits for dirty pages (mm/page-writeback.c, `mdtc_calc_avail`), version 1 has none.

use serde::Serialize;

use super::number;

/// The cgroups of a process that matter here (a file `/proc/PID/cgroup`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Path in the tree of version 2.
    pub unified: Option<String>,
    /// Path in the tree of version 1's memory controller.
    pub memory: Option<String>,
}

impl Membership {
    /// Parses the file.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            // A path that leads upwards lies outside of this process's view of the tree.
            if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
                continue;
            }
            if id == "0" && controllers.is_empty() {
                found.unified = Some(path.to_owned());
            } else if controllers.split(',').any(|name| name == "memory") {
                found.memory = Some(path.to_owned());
            }
        }
        found
    }
}

/// `memory.stat` of a cgroup, with all groups below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupMemory {
    /// Dirty and not yet being written.
    pub dirty_bytes: u64,
    /// On the way to a device.
    pub writeback_bytes: u64,
    /// Pages of files, dirty or clean.
    pub file_bytes: u64,
}

impl GroupMemory {
    /// Parses the file of either version; `None` if it has no dirty pages in it (version 1 of a
    /// kernel without write-back counters).
    pub fn parse(text: &str) -> Option<Self> {
        let first = |names: [&str; 3]| names.into_iter().find_map(|name| number(text, name));
        let dirty_bytes = first(["file_dirty", "total_dirty", "dirty"])?;
        let inactive = first(["total_inactive_file", "inactive_file", ""]);
        let active = first(["total_active_file", "active_file", ""]);
        Some(Self {
            dirty_bytes,
            writeback_bytes: first(["file_writeback", "total_writeback", "writeback"]).unwrap_or(0),
            file_bytes: inactive.unwrap_or(0).saturating_add(active.unwrap_or(0)),
        })
    }
}

/// Parses `memory.max`, `memory.high` and `memory.current`; `None` for `max`, and for what is no
/// number.
pub fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_versions_may_be_mounted_at_once() {
        let text = "12:pids:/a\n9:cpu,memory:/limited/b:c\n1:name=systemd:/x\n0::/user.slice/s\n";
        let found = Membership::parse(text);
        assert_eq!(found.memory.as_deref(), Some("/limited/b:c"));
        assert_eq!(found.unified.as_deref(), Some("/user.slice/s"));
        assert_eq!(
            Membership::parse("0::/../../elsewhere\nx\n"),
            Membership::default()
        );
    }

    #[test]
    fn both_versions_say_what_is_dirty() {
        let new = "anon 5\nfile 9000\nfile_mapped 1\nfile_dirty 4096\nfile_writeback 8192\ninactive_file 6000\nactive_file 3000\n";
        let found = GroupMemory::parse(new).unwrap();
        assert_eq!(
            (found.dirty_bytes, found.writeback_bytes, found.file_bytes),
            (4096, 8192, 9000)
        );
        let old = "cache 1\ndirty 4096\nwriteback 0\ninactive_file 7\nactive_file 8\ntotal_dirty 12288\ntotal_writeback 4096\n\
                   total_inactive_file 70\ntotal_active_file 80\n";
        let found = GroupMemory::parse(old).unwrap();
        assert_eq!(
            (found.dirty_bytes, found.writeback_bytes, found.file_bytes),
            (12288, 4096, 150)
        );
        assert_eq!(GroupMemory::parse("cache 1\n"), None);
        assert_eq!((bytes("max\n"), bytes("512\n")), (None, Some(512)));
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "[a-z0-9:/._ \n-]{0,160}") {
            let found = Membership::parse(&text);
            for path in [found.unified, found.memory].into_iter().flatten() {
                prop_assert!(path.starts_with('/') && !path.contains("/../"));
            }
            _ = (GroupMemory::parse(&text), bytes(&text));
        }
    }
}
