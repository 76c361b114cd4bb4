//! What the kernel says of memory: pressure (PSI), limits of groups (cgroups 1 and 2), what is free.
//!
//! Counters are read, not triggers waited for: a trigger needs a right that few have, and a read a
//! second costs nothing. What a system does not have is `None`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::watch::Sight;

/// Time over which shares are measured, at least: less is noise.
const SPAN: Duration = Duration::from_millis(500);
/// A limit of this many bytes is none (PAGE_COUNTER_MAX of version 1 is 2^63 rounded to pages).
const NO_LIMIT: u64 = 1 << 60;
/// Groups above the own one that are looked at, at most.
const ABOVE_MAX: usize = 16;

/// What the files said at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
struct Raw {
    /// Microseconds in which tasks waited for memory: on the machine, in the own group, in those above.
    stalls: Vec<Option<u64>>,
    /// Microseconds in which all that ran waited for disks.
    disks: Option<u64>,
    /// Times that limits were hit.
    limited: u64,
    memory: Option<Memory>,
    groups: Vec<Group>,
}

/// The memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
    free: u64,
}

/// The memory of a group with a limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    limit: u64,
    used: u64,
    /// The part of it that is page cache.
    cache: u64,
}

/// Who looks at memory.
pub(super) trait Look {
    /// Looks. `idle_for`: for how long no program has waited.
    fn look(&mut self, idle_for: Duration) -> Sight;
}

/// Looks, and remembers what it saw.
pub(super) struct Sights {
    places: Places,
    base: Raw,
    base_at: Instant,
    limited: u64,
}

/// Where the files are.
struct Places {
    proc: PathBuf,
    groups: PathBuf,
}

impl Sights {
    pub(super) fn new() -> Self {
        let places = Places {
            proc: "/proc".into(),
            groups: "/sys/fs/cgroup".into(),
        };
        let base = places.read();
        Self {
            limited: base.limited,
            places,
            base,
            base_at: Instant::now(),
        }
    }
}

impl Look for Sights {
    fn look(&mut self, idle_for: Duration) -> Sight {
        let (raw, elapsed) = (self.places.read(), self.base_at.elapsed());
        let sight = Sight {
            was_limited: raw.limited > self.limited,
            idle_for,
            ..between(&self.base, &raw, elapsed)
        };
        self.limited = raw.limited;
        if elapsed >= SPAN {
            (self.base, self.base_at) = (raw, Instant::now());
        }
        sight
    }
}

/// Returns what is seen of two moments.
fn between(before: &Raw, now: &Raw, elapsed: Duration) -> Sight {
    let span = elapsed.max(SPAN).as_micros() as f32;
    let share = |before: Option<u64>, now: Option<u64>| {
        let (before, now) = before.zip(now)?;
        Some(now.saturating_sub(before) as f32 / span)
    };
    let stalls = before.stalls.iter().zip(&now.stalls);
    let of_groups = now.groups.iter().map(|group| {
        let there = group.limit.saturating_sub(group.used) + group.cache;
        there as f32 / group.limit.max(1) as f32
    });
    let of_machine = now
        .memory
        .map(|memory| memory.available as f32 / memory.total.max(1) as f32);
    Sight {
        stalled: stalls
            .filter_map(|(before, now)| share(*before, *now))
            .reduce(f32::max),
        available: of_groups.chain(of_machine).reduce(f32::min),
        disks: share(before.disks, now.disks),
        room: room(now),
        ..Sight::default()
    }
}

/// Returns the bytes that may be filled: at most half of what is available, and three quarters of what
/// is free on the machine and in each group, so that nothing is driven out for it.
fn room(raw: &Raw) -> u64 {
    let Some(memory) = raw.memory else { return 0 };
    let of_machine = (memory.available / 2).min(memory.free / 4 * 3);
    let groups = raw.groups.iter();
    let of_groups = groups.map(|group| group.limit.saturating_sub(group.used) / 4 * 3);
    of_groups.fold(of_machine, u64::min)
}

impl Places {
    fn read(&self) -> Raw {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let pressure = self.proc.join("pressure");
        let mut raw = Raw {
            stalls: vec![stalled(&read(pressure.join("memory")), "some")],
            disks: stalled(&read(pressure.join("io")), "full"),
            memory: memory(&read(self.proc.join("meminfo"))),
            ..Raw::default()
        };
        let own = read(self.proc.join("self/cgroup"));
        for folder in self.own_groups(&own, None) {
            raw.stalls
                .push(stalled(&read(folder.join("memory.pressure")), "some"));
            let limit = number(&read(folder.join("memory.max"))).filter(|limit| *limit < NO_LIMIT);
            if let (Some(limit), Some(used)) = (limit, number(&read(folder.join("memory.current")))) {
                let cache = named(&read(folder.join("memory.stat")), &["file"]);
                raw.groups.push(Group { limit, used, cache });
            }
            let events = read(folder.join("memory.events"));
            raw.limited += named(&events, &["high", "max", "oom", "oom_kill"]);
        }
        for folder in self.own_groups(&own, Some("memory")) {
            let limit = number(&read(folder.join("memory.limit_in_bytes")));
            let used = number(&read(folder.join("memory.usage_in_bytes")));
            if let (Some(limit), Some(used)) = (limit.filter(|limit| *limit < NO_LIMIT), used) {
                let cache = named(&read(folder.join("memory.stat")), &["total_cache"]);
                raw.groups.push(Group { limit, used, cache });
                raw.limited += number(&read(folder.join("memory.failcnt"))).unwrap_or(0);
            }
        }
        raw
    }

    /// Returns the folders of the own group and those above: of version 2, or of a controller of version 1.
    fn own_groups(&self, own: &str, controller: Option<&str>) -> Vec<PathBuf> {
        let Some(path) = group_path(own, controller) else {
            return Vec::new();
        };
        let root = match controller {
            Some(name) => self.groups.join(name),
            None if self.groups.join("unified").is_dir() => self.groups.join("unified"),
            None => self.groups.clone(),
        };
        let below = Path::new(path.trim_start_matches('/'));
        let folders = below.ancestors().map(|part| root.join(part));
        folders.filter(|folder| folder.is_dir()).take(ABOVE_MAX).collect()
    }
}

/// Returns the path of a process's group in a text like /proc/self/cgroup.
fn group_path<'a>(text: &'a str, controller: Option<&str>) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = match controller {
            Some(name) => controllers.split(',').any(|one| one == name),
            None => controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

/// Returns the microseconds behind `total=` in a line of pressure.
fn stalled(text: &str, kind: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(kind))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Returns the figures of /proc/meminfo.
fn memory(text: &str) -> Option<Memory> {
    let kilobytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let value: u64 = line.split_whitespace().next()?.parse().ok()?;
        value.checked_mul(1024)
    };
    Some(Memory {
        total: kilobytes("MemTotal:")?,
        available: kilobytes("MemAvailable:")?,
        free: kilobytes("MemFree:")?,
    })
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Returns the sum of named values, one a line.
fn named(text: &str, names: &[&str]) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let named = lines.filter(|(name, _)| names.contains(name));
    named.filter_map(|(_, value)| number(value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:  1000 kB\nMemFree:  400 kB\nMemAvailable:  600 kB\nBuffers: 1 kB\n";

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn places(root: &Path) -> Places {
        Places {
            proc: root.join("proc"),
            groups: root.join("groups"),
        }
    }

    fn pressure(microseconds: u64) -> String {
        format!(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total={microseconds}\nfull avg10=0.00 avg60=0.00 \
             avg300=0.00 total=7\n"
        )
    }

    #[test]
    fn a_system_without_any_of_the_files_has_no_figures_and_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let raw = places(folder.path()).read();
        let sight = between(&raw, &raw, Duration::from_secs(1));
        assert_eq!(sight, Sight::default());
    }

    #[test]
    fn a_machine_without_groups_has_its_own_figures() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "proc/meminfo", MEMINFO);
        write(root, "proc/pressure/memory", &pressure(1_000_000));
        write(root, "proc/pressure/io", &pressure(0));
        write(root, "proc/self/cgroup", "0::/\n");
        let before = places(root).read();
        write(root, "proc/pressure/memory", &pressure(1_250_000));
        let sight = between(&before, &places(root).read(), Duration::from_secs(1));
        assert_eq!((sight.stalled, sight.disks), (Some(0.25), Some(0.0)));
        assert_eq!(sight.available, Some(0.6));
        assert_eq!(sight.room, 300 * 1024, "three quarters of what is free");
        // A moment is too short to say that all of it was stalled.
        let sight = between(&before, &places(root).read(), Duration::from_millis(1));
        assert_eq!(sight.stalled, Some(0.5));
    }

    #[test]
    fn the_limits_of_all_groups_above_count() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "proc/meminfo", MEMINFO);
        write(root, "proc/self/cgroup", "4:memory:/\n0::/a/b\n");
        write(root, "groups/a/b/memory.max", "max\n");
        write(root, "groups/a/b/memory.current", "1000\n");
        write(root, "groups/a/b/memory.pressure", &pressure(5));
        write(root, "groups/a/memory.max", "200000\n");
        write(root, "groups/a/memory.current", "150000\n");
        write(root, "groups/a/memory.stat", "anon 9\nfile 50000\n");
        write(
            root,
            "groups/a/memory.events",
            "low 9\nhigh 1\nmax 2\noom 3\noom_kill 4\n",
        );
        let raw = places(root).read();
        assert_eq!(raw.limited, 10);
        assert_eq!(raw.stalls, [None, Some(5), None, None]);
        let sight = between(&raw, &raw, Duration::from_secs(1));
        assert_eq!(sight.room, 37_500, "three quarters of what the group has left");
        assert_eq!(sight.available, Some(0.5));
    }

    #[test]
    fn groups_of_version_1_count_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "proc/meminfo", MEMINFO);
        write(root, "proc/self/cgroup", "5:cpu:/x\n4:memory:/a\n0::/\n");
        write(root, "groups/memory/a/memory.limit_in_bytes", "100000\n");
        write(root, "groups/memory/a/memory.usage_in_bytes", "90000\n");
        write(
            root,
            "groups/memory/a/memory.stat",
            "cache 1\ntotal_cache 10000\n",
        );
        write(root, "groups/memory/a/memory.failcnt", "12\n");
        write(
            root,
            "groups/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        let raw = places(root).read();
        assert_eq!(raw.limited, 12);
        let all = [Group {
            limit: 100_000,
            used: 90_000,
            cache: 10_000,
        }];
        assert_eq!(raw.groups, all);
        assert_eq!(room(&raw), 7500);
    }

    #[test]
    fn damaged_files_have_no_figures() {
        for text in [
            "",
            "some",
            "some total=",
            "some total=x",
            "full total=1",
            "some total=-1",
        ] {
            assert_eq!(stalled(text, "some"), None, "{text}");
        }
        for text in [
            "MemTotal:",
            "MemTotal: 1 kB",
            &format!("MemTotal: {} kB", u64::MAX),
        ] {
            assert_eq!(memory(text), None, "{text}");
        }
        assert_eq!(group_path("nonsense\n1:memory", Some("memory")), None);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let mut sights = Sights::new();
        let sight = sights.look(Duration::from_secs(7));
        assert_eq!(sight.idle_for, Duration::from_secs(7));
        assert!(
            sight.available.is_some_and(|share| (0.0..=1.5).contains(&share)),
            "{sight:?}"
        );
    }
}
