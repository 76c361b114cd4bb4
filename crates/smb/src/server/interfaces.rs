//! Where a client may open further channels to: the addresses of this machine that are listened on ([MS-SMB2] 3.3.5.15.11).
//!
//! Which addresses there are the kernel says (rtnetlink(7)), and /sys/class/net which interface is up, how fast it is and
//! in how many queues it receives. Both are asked each time: interfaces come and go.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

use ropeway_smb_proto::wire::fsctl::interfaces::{InterfaceCapability, NetworkInterfaceInfo};
use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Addresses that are told at most: their list fits 4 KiB, less than any client has room for. A guess.
const ADDRESSES_MAX: usize = 24;
/// What an interface of unknown speed is said to do: 1 Gbit/s, as Samba says.
const SPEED_BPS: u64 = 1_000_000_000;

/// An address of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The interface's number.
    index: u32,
    address: IpAddr,
}

/// What is told to a client that has come to `local`; that address first.
pub(super) fn told(listened: &[SocketAddr], local: SocketAddr) -> Vec<NetworkInterfaceInfo> {
    let (socket, all) = match ask() {
        Ok((socket, all)) => (Some(socket), all),
        Err(error) => {
            tracing::debug!(%error, "the kernel does not say which addresses there are");
            (None, Vec::new())
        }
    };
    let device = |index| {
        let name = index_to_name(socket.as_ref()?, index).ok()?;
        Some(Device::at(&Path::new("/sys/class/net").join(name)))
    };
    let mut told = Vec::new();
    for place in select(all, listened, local).into_iter().take(ADDRESSES_MAX) {
        let device = device(place.index).unwrap_or_default();
        // The first one is up, as the client has come to it.
        if told.is_empty() || device.is_up {
            told.push(place.of(device));
        }
    }
    told
}

/// The addresses to tell of: the client's own way, and others at the same port.
fn select(mut all: Vec<Place>, listened: &[SocketAddr], local: SocketAddr) -> Vec<Place> {
    let same_port = listened.iter().filter(|one| one.port() == local.port());
    let listened: Vec<IpAddr> = same_port.map(|one| one.ip().to_canonical()).collect();
    if all.is_empty() {
        // Those that were named, each as if of an interface of its own.
        let named = listened.iter().filter(|address| !address.is_unspecified());
        let places = (1..).zip(named.copied());
        all = places.map(|(index, address)| Place { index, address }).collect();
    }
    // A socket on [::] takes IPv4 too, unless the system says otherwise.
    let is_listened = |address: IpAddr| {
        listened
            .iter()
            .copied()
            .any(|one| one == address || one.is_unspecified() && (one.is_ipv6() || address.is_ipv4()))
    };
    // Those of one link need to be told which.
    let is_of_use = |address: IpAddr| match address {
        IpAddr::V4(address) => !address.is_loopback(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    };
    let own = local.ip().to_canonical();
    let known = all.iter().find(|place| place.address == own);
    let unused = || {
        all.iter()
            .map(|place| place.index)
            .max()
            .unwrap_or(0)
            .saturating_add(1)
    };
    let first = Place {
        index: known.map_or_else(unused, |place| place.index),
        address: own,
    };
    let others = all.iter().copied().filter(|place| place.address != own);
    let others = others.filter(|place| is_of_use(place.address) && is_listened(place.address));
    std::iter::once(first).chain(others).collect()
}

impl Place {
    fn of(self, device: Device) -> NetworkInterfaceInfo {
        NetworkInterfaceInfo {
            if_index: self.index,
            // One that receives in several queues has several processors at work.
            capability: match device.queues {
                0 | 1 => InterfaceCapability::default(),
                _ => InterfaceCapability::RSS_CAPABLE,
            },
            link_speed_bps: device.speed_bps,
            address: Some(self.address),
        }
    }
}

/// An interface as its folder in /sys/class/net shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Device {
    is_up: bool,
    speed_bps: u64,
    /// In which it receives.
    queues: usize,
}

impl Default for Device {
    /// One that nothing is known of.
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
        // In Mbit/s; -1, all ones, or an error where it is not known.
        let speed = text("speed").trim().parse::<u64>().ok();
        let speed = speed.filter(|mbit| (1..u64::from(u32::MAX)).contains(mbit));
        let queues = fs::read_dir(folder.join("queues"))
            .into_iter()
            .flatten()
            .flatten();
        let received = queues.filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-"));
        Self {
            // Not all say so.
            is_up: matches!(text("operstate").trim(), "up" | "unknown" | ""),
            speed_bps: speed.map_or(SPEED_BPS, |mbit| mbit * 1_000_000),
            queues: received.count(),
        }
    }
}

// The kernel's messages: linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h. Numbers are in the machine's order.

/// Bytes of `nlmsghdr`.
const HEADER_LEN: usize = 16;
/// Bytes of `ifaddrmsg`.
const ADDRESS_LEN: usize = 8;
/// `NLMSG_ERROR`, `NLMSG_DONE`: the end.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `RTM_NEWADDR`, `RTM_GETADDR`.
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
/// `NLM_F_REQUEST | NLM_F_DUMP`: all there are.
const ALL: u16 = 0x301;
/// `IFA_ADDRESS`, `IFA_LOCAL`: with both, the first is the other end's.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// `IFA_F_DADFAILED | IFA_F_DEPRECATED | IFA_F_TENTATIVE`: nobody should come to it, or not yet.
const NOT_TO_BE_USED: u8 = 0x68;
/// Bytes of an answer, of which there are many: the kernel's own bound.
const ANSWER_LEN: usize = 32 << 10;

/// All addresses that the kernel says there are, and the socket it was asked on.
fn ask() -> rustix::io::Result<(OwnedFd, Vec<Place>)> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut buffer = vec![0_u8; ANSWER_LEN];
    let mut all = Vec::new();
    loop {
        // The kernel has made the answer when it is asked for: there is nothing to wait for.
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
        let mut rest = &buffer[..length];
        while let Some((kind, body, after)) = split(rest) {
            match kind {
                ERROR | DONE => return Ok((socket, all)),
                NEW_ADDRESS => all.extend(place(body)),
                _ => {}
            }
            rest = after;
        }
    }
}

fn request() -> Vec<u8> {
    let mut request = Vec::with_capacity(HEADER_LEN + ADDRESS_LEN);
    request.extend(((HEADER_LEN + ADDRESS_LEN) as u32).to_ne_bytes());
    request.extend(GET_ADDRESS.to_ne_bytes());
    request.extend(ALL.to_ne_bytes());
    // Its number, who asks, and of which family: any.
    request.resize(HEADER_LEN + ADDRESS_LEN, 0);
    request
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// The first message's kind and body, and what comes after it.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let kind = u16_at(bytes, 4)?;
    let body = bytes.get(HEADER_LEN..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, after))
}

/// The value of an attribute (`rtattr`).
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)?;
        let value = bytes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

/// Of an `ifaddrmsg` and its attributes.
fn place(body: &[u8]) -> Option<Place> {
    let flags = *body.get(2)?;
    let index = u32_at(body, 4)?;
    let attributes = body.get(ADDRESS_LEN..)?;
    let value = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
    let v4 = || <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(value).ok().map(IpAddr::from);
    let address = v4().or_else(v6)?;
    (flags & NOT_TO_BE_USED == 0).then_some(Place { index, address })
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

    fn machine() -> Vec<Place> {
        [
            (1, "127.0.0.1"),
            (2, "192.0.2.7"),
            (3, "198.51.100.7"),
            (1, "::1"),
            (2, "2001:db8::7"),
            (2, "fe80::7"),
        ]
        .into_iter()
        .map(|(index, text)| Place {
            index,
            address: address(text),
        })
        .collect()
    }

    fn selected(all: Vec<Place>, listened: &[&str], local: &str) -> Vec<(u32, String)> {
        let listened: Vec<_> = listened.iter().map(|one| socket(one)).collect();
        let places = select(all, &listened, socket(local));
        places
            .into_iter()
            .map(|place| (place.index, place.address.to_string()))
            .collect()
    }

    #[test]
    fn what_is_listened_on_is_told() {
        let told = |listened: &[&str], local: &str| selected(machine(), listened, local);
        let of = |index: u32, text: &str| (index, text.to_owned());
        let (one, two, six) = (of(2, "192.0.2.7"), of(3, "198.51.100.7"), of(2, "2001:db8::7"));
        // All of IPv4, and the loopback only to who comes by it.
        assert_eq!(
            told(&["0.0.0.0:445"], "198.51.100.7:445"),
            [two.clone(), one.clone()]
        );
        assert_eq!(
            told(&["0.0.0.0:445"], "127.0.0.1:445"),
            [of(1, "127.0.0.1"), one.clone(), two.clone()]
        );
        // A socket of IPv6 sees clients of IPv4 by addresses of its own.
        assert_eq!(
            told(&["[::]:445"], "[::ffff:192.0.2.7]:445"),
            [one.clone(), two.clone(), six.clone()]
        );
        assert_eq!(
            told(&["[::]:445"], "[fe80::7]:445"),
            [of(2, "fe80::7"), one.clone(), two, six.clone()]
        );
        // What is named, at the port that the client has come to.
        let named = ["192.0.2.7:445", "198.51.100.7:446", "[2001:db8::7]:445"];
        assert_eq!(told(&named, "192.0.2.7:445"), [one, six]);
        assert_eq!(
            told(&["127.0.0.2:445", "127.0.0.1:445"], "127.0.0.2:445"),
            [of(4, "127.0.0.2")]
        );
    }

    #[test]
    fn without_the_kernel_what_is_named_is_told() {
        let named = ["0.0.0.0:445", "192.0.2.7:445", "198.51.100.7:445"];
        let told = selected(Vec::new(), &named, "198.51.100.7:445");
        assert_eq!(
            told,
            [(2, "198.51.100.7".to_owned()), (1, "192.0.2.7".to_owned())]
        );
        let told = selected(Vec::new(), &["0.0.0.0:445"], "192.0.2.9:445");
        assert_eq!(told, [(1, "192.0.2.9".to_owned())]);
    }

    /// A message of the kernel's.
    fn message(kind: u16, flags: u8, index: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend([2, 24, flags, 0]);
        bytes.extend(index.to_ne_bytes());
        for (kind, value) in attributes {
            bytes.extend((4 + value.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    #[test]
    fn the_kernels_messages_are_understood() {
        let six = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        let label: &[u8] = b"eth0\0";
        let mut bytes = message(
            NEW_ADDRESS,
            0x80,
            2,
            &[
                (IFA_ADDRESS, &[192, 0, 2, 8]),
                (3, label),
                (IFA_LOCAL, &[192, 0, 2, 7]),
            ],
        );
        bytes.extend(message(NEW_ADDRESS, 0, 3, &[(IFA_ADDRESS, &six)]));
        bytes.extend(message(NEW_ADDRESS, 0x40, 3, &[(IFA_ADDRESS, &six)]));
        bytes.extend(message(NEW_ADDRESS, 0, 3, &[(3, label)]));
        bytes.extend(message(DONE, 0, 0, &[]));
        let (mut rest, mut found, mut kinds) = (&bytes[..], Vec::new(), Vec::new());
        while let Some((kind, body, after)) = split(rest) {
            found.push(place(body));
            kinds.push(kind);
            rest = after;
        }
        let is = |index, text| {
            Some(Place {
                index,
                address: address(text),
            })
        };
        assert_eq!(
            found,
            [is(2, "192.0.2.7"), is(3, "2001:db8::7"), None, None, None]
        );
        assert_eq!(kinds, [NEW_ADDRESS, NEW_ADDRESS, NEW_ADDRESS, NEW_ADDRESS, DONE]);
        for length in 0..bytes.len() {
            let mut rest = &bytes[..length];
            while let Some((_, body, after)) = split(rest) {
                let _ = place(body);
                rest = after;
            }
        }
    }

    #[test]
    fn devices_say_how_they_are() {
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
        let place = machine()[1];
        assert_eq!(place.of(one).capability, InterfaceCapability::default());
        assert_eq!(place.of(two).capability, InterfaceCapability::RSS_CAPABLE);
    }

    #[test]
    fn this_machine_has_a_loopback() {
        match ask() {
            Ok((_, all)) => {
                let mut all = all.iter();
                assert!(all.any(|place| place.address == address("127.0.0.1")));
            }
            Err(error) => println!("skipped: the kernel says nothing: {error}"),
        }
    }
}
