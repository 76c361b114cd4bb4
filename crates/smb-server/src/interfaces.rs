//! Network interfaces that a client may open further channels to ([MS-SMB2] 3.3.5.15.11).
//!
//! The kernel lists the addresses (getifaddrs(3)). /sys/class/net shows state, speed and receive
//! queues of each interface. Both are read for each request, because interfaces come and go.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::{fs, io};

use ropeway_smb_wire::fsctl::interfaces::{InterfaceCapability, NetworkInterfaceInfo};

/// Maximum number of addresses in a response. Their list fits 4 KiB, less than any client offers. A
/// guess.
const ADDRESSES_MAX: usize = 24;
/// Speed of an interface whose speed is unknown, in bits per second: 1 Gbit/s, as in Samba.
const SPEED_BPS: u64 = 1_000_000_000;

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InterfaceAddress {
    /// Index and name of the interface; the name may be empty.
    index: u32,
    name: String,
    address: IpAddr,
}

/// Returns the interfaces to report to a client that connected to the address `local`; that address
/// comes first.
pub(super) fn advertised(listened: &[SocketAddr], local: SocketAddr) -> Vec<NetworkInterfaceInfo> {
    let all = addresses().unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot list the addresses of this machine");
        Vec::new()
    });
    let mut advertised = Vec::new();
    for entry in select(all, listened, local).into_iter().take(ADDRESSES_MAX) {
        let device = match entry.name.as_str() {
            "" => Device::default(),
            name => Device::at(&Path::new("/sys/class/net").join(name)),
        };
        // The first interface is up, because the client uses it.
        if advertised.is_empty() || device.is_up {
            advertised.push(entry.of(device));
        }
    }
    advertised
}

/// Selects the addresses to report: the client's own, and others that listen on the same port.
fn select(
    mut all: Vec<InterfaceAddress>,
    listened: &[SocketAddr],
    local: SocketAddr,
) -> Vec<InterfaceAddress> {
    let same_port = listened.iter().filter(|one| one.port() == local.port());
    let listened: Vec<IpAddr> = same_port.map(|one| one.ip().to_canonical()).collect();
    if all.is_empty() {
        // Without a list from the kernel, each configured address counts as an interface of its
        // own.
        let named = listened.iter().filter(|address| !address.is_unspecified());
        let entries = (1..).zip(named.copied());
        all = entries
            .map(|(index, address)| InterfaceAddress {
                index,
                name: String::new(),
                address,
            })
            .collect();
    }
    // A socket on [::] accepts IPv4 too, unless the system is configured otherwise.
    let is_listened = |address: IpAddr| {
        listened
            .iter()
            .copied()
            .any(|one| one == address || one.is_unspecified() && (one.is_ipv6() || address.is_ipv4()))
    };
    // Link-local addresses need a scope, which the response cannot express.
    let is_of_use = |address: IpAddr| match address {
        IpAddr::V4(address) => !address.is_loopback(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    };
    let own = local.ip().to_canonical();
    let entry = all.iter().find(|entry| entry.address == own);
    let unused = || {
        all.iter()
            .map(|entry| entry.index)
            .max()
            .unwrap_or(0)
            .saturating_add(1)
    };
    let first = InterfaceAddress {
        index: entry.map_or_else(unused, |entry| entry.index),
        name: entry.map_or_else(String::new, |entry| entry.name.clone()),
        address: own,
    };
    let others = all.iter().filter(|entry| entry.address != own).cloned();
    let others = others.filter(|entry| is_of_use(entry.address) && is_listened(entry.address));
    std::iter::once(first).chain(others).collect()
}

impl InterfaceAddress {
    fn of(&self, device: Device) -> NetworkInterfaceInfo {
        NetworkInterfaceInfo {
            if_index: self.index,
            // With several receive queues, several processors can work.
            capability: match device.queues {
                0 | 1 => InterfaceCapability::default(),
                _ => InterfaceCapability::RSS_CAPABLE,
            },
            link_speed_bps: device.speed_bps,
            address: Some(self.address),
        }
    }
}

/// State of an interface as its folder in /sys/class/net shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Device {
    is_up: bool,
    speed_bps: u64,
    /// Number of receive queues.
    queues: usize,
}

impl Default for Device {
    /// An interface of which nothing is known.
    fn default() -> Self {
        Self {
            is_up: true,
            speed_bps: SPEED_BPS,
            queues: 0,
        }
    }
}

impl Device {
    fn at(folder: &Path) -> Self {
        let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
        // In Mbit/s; -1, all ones or an error if it is unknown.
        let speed = text("speed").trim().parse::<u64>().ok();
        let speed = speed.filter(|mbit| (1..u64::from(u32::MAX)).contains(mbit));
        let queues = fs::read_dir(folder.join("queues"))
            .into_iter()
            .flatten()
            .flatten();
        let received = queues.filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-"));
        Self {
            // Some drivers do not report a state.
            is_up: matches!(text("operstate").trim(), "up" | "unknown" | ""),
            speed_bps: speed.map_or(SPEED_BPS, |mbit| mbit * 1_000_000),
            queues: received.count(),
        }
    }
}

/// Returns all addresses of this machine.
fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let all = if_addrs::get_if_addrs()?.into_iter();
    let entries = all.filter_map(|one| {
        Some(InterfaceAddress {
            index: one.index?,
            address: one.ip(),
            name: one.name,
        })
    });
    Ok(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn machine() -> Vec<InterfaceAddress> {
        [
            (1, "127.0.0.1"),
            (2, "192.0.2.7"),
            (3, "198.51.100.7"),
            (1, "::1"),
            (2, "2001:db8::7"),
            (2, "fe80::7"),
        ]
        .into_iter()
        .map(|(index, text)| InterfaceAddress {
            index,
            name: String::new(),
            address: address(text),
        })
        .collect()
    }

    fn selected(all: Vec<InterfaceAddress>, listened: &[&str], local: &str) -> Vec<(u32, String)> {
        let listened: Vec<_> = listened.iter().map(|one| socket(one)).collect();
        let entries = select(all, &listened, socket(local));
        entries
            .into_iter()
            .map(|entry| (entry.index, entry.address.to_string()))
            .collect()
    }

    #[test]
    fn listening_addresses_are_reported() {
        let advertised = |listened: &[&str], local: &str| selected(machine(), listened, local);
        let of = |index: u32, text: &str| (index, text.to_owned());
        let (one, two, six) = (of(2, "192.0.2.7"), of(3, "198.51.100.7"), of(2, "2001:db8::7"));
        // All IPv4 addresses; the loopback address only for clients that use it.
        assert_eq!(
            advertised(&["0.0.0.0:445"], "198.51.100.7:445"),
            [two.clone(), one.clone()]
        );
        assert_eq!(
            advertised(&["0.0.0.0:445"], "127.0.0.1:445"),
            [of(1, "127.0.0.1"), one.clone(), two.clone()]
        );
        // An IPv6 socket shows IPv4 clients by mapped addresses.
        assert_eq!(
            advertised(&["[::]:445"], "[::ffff:192.0.2.7]:445"),
            [one.clone(), two.clone(), six.clone()]
        );
        assert_eq!(
            advertised(&["[::]:445"], "[fe80::7]:445"),
            [of(2, "fe80::7"), one.clone(), two, six.clone()]
        );
        // Only configured addresses with the client's port.
        let named = ["192.0.2.7:445", "198.51.100.7:446", "[2001:db8::7]:445"];
        assert_eq!(advertised(&named, "192.0.2.7:445"), [one, six]);
        assert_eq!(
            advertised(&["127.0.0.2:445", "127.0.0.1:445"], "127.0.0.2:445"),
            [of(4, "127.0.0.2")]
        );
    }

    #[test]
    fn without_a_list_from_the_kernel_configured_addresses_are_reported() {
        let named = ["0.0.0.0:445", "192.0.2.7:445", "198.51.100.7:445"];
        let advertised = selected(Vec::new(), &named, "198.51.100.7:445");
        assert_eq!(
            advertised,
            [(2, "198.51.100.7".to_owned()), (1, "192.0.2.7".to_owned())]
        );
        let advertised = selected(Vec::new(), &["0.0.0.0:445"], "192.0.2.9:445");
        assert_eq!(advertised, [(1, "192.0.2.9".to_owned())]);
    }

    #[test]
    fn device_state_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        assert_eq!(Device::at(folder.path()), Device::default());
        write("operstate", "up\n");
        write("speed", "-1\n");
        fs::create_dir_all(folder.path().join("queues/tx-0")).unwrap();
        fs::create_dir(folder.path().join("queues/rx-0")).unwrap();
        let one = Device::at(folder.path());
        assert_eq!((one.is_up, one.speed_bps, one.queues), (true, SPEED_BPS, 1));
        write("operstate", "down\n");
        write("speed", "10000\n");
        fs::create_dir(folder.path().join("queues/rx-1")).unwrap();
        let two = Device::at(folder.path());
        assert_eq!((two.is_up, two.speed_bps, two.queues), (false, 10_000_000_000, 2));
        let entry = &machine()[1];
        assert_eq!(entry.of(one).capability, InterfaceCapability::default());
        assert_eq!(entry.of(two).capability, InterfaceCapability::RSS_CAPABLE);
    }

    #[test]
    fn this_machine_has_a_loopback() {
        match addresses() {
            Ok(all) => {
                let mut all = all.iter();
                assert!(all.any(|entry| entry.address == address("127.0.0.1")));
            }
            Err(error) => println!("skipped: the kernel says nothing: {error}"),
        }
    }
}
