//! What may explain figures: the machine, the device below a folder, the interface towards a server.
//! Files of /proc and /sys are read here; their parsers are pure.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use ropeway_local::mount_of;

use crate::bench::result::{Conditions, Device, Link, Target};
use crate::local::dirty::kernel::DirtyPages;
use crate::local::in_memory;
use crate::run::machine::{load, machine};
use crate::run::process::Busy;

/// Options by which btrfs, f2fs, bcachefs and others compress.
const COMPRESSION: [&str; 4] = ["compress", "compress-force", "compression", "compress_algorithm"];

/// Describes a local folder.
pub fn of_folder(shown: &str, path: &Path) -> (Target, Conditions) {
    let mount = mount_of(path).ok();
    let target = Target {
        shown: shown.to_owned(),
        kind: "folder".to_owned(),
        file_system: mount.as_ref().map(|mount| mount.fstype.clone()),
        source: mount.as_ref().map(|mount| mount.source.clone()),
        connection: None,
    };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let far = mount
        .as_ref()
        .is_some_and(|mount| is_network(&mount.fstype, &mount.source));
    let device = mount
        .as_ref()
        .filter(|_| !far)
        .and_then(|mount| device(mount.device));
    let conditions = Conditions {
        device,
        in_memory: fs::File::open(path).is_ok_and(|folder| in_memory(folder.as_fd())),
        compression: mount.as_ref().and_then(|mount| compression(&table, mount.id)),
        link: mount
            .as_ref()
            .filter(|_| far)
            .and_then(|mount| server_of(&mount.source))
            .and_then(|server| link_to(&server)),
        ..of_machine()
    };
    (target, conditions)
}

/// Describes a share of a server; `link` is what is known of the way to it.
pub fn of_share(shown: &str, link: Option<Link>) -> (Target, Conditions) {
    let target = Target {
        shown: shown.to_owned(),
        kind: "share".to_owned(),
        ..Target::default()
    };
    let conditions = Conditions {
        link,
        far: true,
        ..of_machine()
    };
    (target, conditions)
}

fn of_machine() -> Conditions {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    Conditions {
        machine: machine(),
        load: load(),
        virtual_machine: is_virtual(&cpuinfo),
        governor: governor.ok().map(|name| name.trim().to_owned()),
        dirty_background_bytes: DirtyPages::read()
            .ok()
            .map(|dirty| dirty.background_bytes)
            .filter(|bytes| *bytes > 0),
        ..Conditions::default()
    }
}

/// Whether the processors are those of a hypervisor (x86 says so in its flags).
fn is_virtual(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// Whether a mount's files are on a server.
pub(super) fn is_network(fstype: &str, source: &str) -> bool {
    let known = ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph", "9p"];
    known.contains(&fstype) || source.starts_with("smb://")
}

/// Returns the server in the source of a network mount: `//host/share`, `host:/export`, or a URL.
fn server_of(source: &str) -> Option<String> {
    let authority = match source.split_once("://") {
        Some((_, rest)) => rest.split('/').next()?,
        None => match source.strip_prefix("//") {
            Some(rest) => rest.split('/').next()?,
            None => source.split_once(":/").map(|(host, _)| host)?,
        },
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // A port follows the last colon, except inside brackets.
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

/// Returns the option by which a mount compresses, from the mount table.
fn compression(table: &str, id: u64) -> Option<String> {
    let line = table.lines().find(|line| {
        let first = line.split(' ').next();
        first.and_then(|word| word.parse().ok()) == Some(id)
    })?;
    let options = line.split(' ').next_back()?;
    let found = options.split(',').find(|option| {
        let name = option.split('=').next().unwrap_or_default();
        COMPRESSION.contains(&name) && !option.ends_with("=no") && !option.ends_with("=none")
    });
    found.map(str::to_owned)
}

/// Describes a block device; `None` for file systems without one.
fn device((major, minor): (u32, u32)) -> Option<Device> {
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has the queue of its disk.
    let disk = match folder.join("partition").exists() {
        true => folder.parent()?.to_owned(),
        false => folder.clone(),
    };
    let read = |name: &str| {
        let text = fs::read_to_string(disk.join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    let name = folder.file_name()?.to_string_lossy().into_owned();
    Some(Device {
        in_page_cache: disk.join("loop").exists() && read("loop/dio").as_deref() == Some("0"),
        rotational: read("queue/rotational").map(|text| text == "1"),
        write_cache: read("queue/write_cache").map(|text| text == "write back"),
        name,
    })
}

/// Returns interface and rate of the way to a server; `None` if it has no known rate. No packet is
/// sent to it, except by the resolver.
pub fn link_to(host: &str) -> Option<Link> {
    let plain = host.trim_matches(['[', ']']);
    let address = match plain.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => {
            use std::net::ToSocketAddrs as _;
            (plain, 9).to_socket_addrs().ok()?.next()?.ip()
        }
    };
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0; 4], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    // Connecting a datagram socket only chooses the route.
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect((address, 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    let name = interface_of(own)?;
    let speed = fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    let megabits: u64 = speed.trim().parse().ok().filter(|speed| *speed > 0)?;
    Some(Link {
        name,
        bits_per_s: megabits.saturating_mul(1_000_000),
    })
}

/// Returns the interface that has an address.
fn interface_of(own: IpAddr) -> Option<String> {
    let all = if_addrs::get_if_addrs().ok()?;
    let found = all
        .into_iter()
        .find(|interface| interface.ip() == own && !interface.is_loopback());
    // The name becomes a part of a path.
    found
        .map(|interface| interface.name)
        .filter(|name| !name.contains('/') && !name.starts_with('.'))
}

/// Watches what else the machine does.
pub(super) struct Noise {
    busy: Busy,
    times: Times,
    at: Instant,
}

/// Processor time of the machine in ticks (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    all: u64,
    steal: u64,
}

impl Noise {
    /// Begins to watch.
    pub(super) fn begin() -> Self {
        Self {
            busy: Busy::now(),
            times: times(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            at: Instant::now(),
        }
    }

    /// Returns the processors that others kept busy, and the share of the time that was stolen.
    /// `None` if the time was too short for the kernel's clock.
    pub(super) fn end(&self) -> Option<(f64, f64)> {
        // A tick is 10 ms.
        if self.at.elapsed().as_millis() < 200 {
            return None;
        }
        let now = times(&fs::read_to_string("/proc/stat").unwrap_or_default());
        let all = now.all.saturating_sub(self.times.all);
        let steal = now.steal.saturating_sub(self.times.steal);
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        Some((round(self.busy.others()), round(steal as f64 / all.max(1) as f64)))
    }
}

fn times(stat: &str) -> Times {
    let line = stat.lines().next().unwrap_or_default();
    let words: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    Times {
        // The last two are parts of the first two.
        all: words.iter().take(8).sum(),
        steal: words.get(7).copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_mounts_are_found() {
        for (source, host) in [
            ("//nas/photos", Some("nas")),
            ("nas.lan:/export/a", Some("nas.lan")),
            ("smb://ann@nas:4450/photos", Some("nas")),
            ("smb://[fe80::1]:445/x", Some("fe80::1")),
            ("/dev/sda1", None),
            ("tmpfs", None),
            ("//", None),
        ] {
            assert_eq!(server_of(source).as_deref(), host, "{source}");
        }
        assert!(is_network("cifs", "//nas/x") && is_network("fuse.ropeway", "smb://nas/x"));
        assert!(!is_network("ext4", "/dev/sda1"));
    }

    #[test]
    fn compression_is_read_from_the_options_of_the_right_mount() {
        let table = "36 35 0:31 / /a rw,noatime shared:1 - btrfs /dev/sda rw,compress=zstd:3,space_cache=v2\n\
                     37 35 8:2 / /b rw - btrfs /dev/sdb rw,compress=no\n\
                     38 35 8:3 / /c rw - ext4 /dev/sdc rw\n";
        assert_eq!(compression(table, 36).as_deref(), Some("compress=zstd:3"));
        for id in [37, 38, 39] {
            assert_eq!(compression(table, id), None);
        }
        assert_eq!(compression("\n36", 36), None);
    }

    #[test]
    fn times_are_summed_without_what_is_counted_twice() {
        let found = times("cpu  10 1 20 100 5 0 2 7 3 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        assert_eq!(found, Times { all: 145, steal: 7 });
        assert_eq!(times(""), Times::default());
    }

    #[test]
    fn hypervisors_are_seen() {
        assert!(is_virtual("processor : 0\nflags\t\t: fpu hypervisor lahf_lm\n"));
        assert!(!is_virtual("flags : fpu lahf_lm\n") && !is_virtual(""));
    }

    #[test]
    fn the_own_folder_is_described() {
        let folder = tempfile::tempdir().unwrap();
        let (target, conditions) = of_folder("x", folder.path());
        assert_eq!((target.shown.as_str(), target.kind.as_str()), ("x", "folder"));
        assert!(target.file_system.is_some() && conditions.machine.memory_bytes > 0);
        assert!(link_to("127.0.0.1").is_none(), "the loopback has no rate");
    }
}
