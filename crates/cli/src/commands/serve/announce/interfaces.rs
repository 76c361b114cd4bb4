//! Which addresses this machine has, from `/proc/net`.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most interfaces that are announced on. A guess.
const INTERFACES_MAX: usize = 32;

/// The IPv4 addresses of the interfaces that a server listens on, the loopback aside, and the IPv6 addresses it can be reached at.
pub(super) fn listened_on(listened: &[SocketAddr]) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let trie = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let inet6 = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    select(listened, &local_v4(&trie), &local_v6(&inet6))
}

fn select(listened: &[SocketAddr], v4: &[Ipv4Addr], v6: &[Ipv6Addr]) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let ips: Vec<IpAddr> = listened.iter().map(SocketAddr::ip).collect();
    // A socket on [::] takes IPv4 too, unless the system says otherwise.
    let all_v6 = ips.contains(&Ipv6Addr::UNSPECIFIED.into());
    let all_v4 = all_v6 || ips.contains(&Ipv4Addr::UNSPECIFIED.into());
    let v4 = v4
        .iter()
        .copied()
        .filter(|ip| !ip.is_loopback() && !ip.is_multicast() && (all_v4 || ips.contains(&IpAddr::V4(*ip))));
    // Those of one link need to be told which, so they are left out.
    let v6 = v6.iter().copied().filter(|ip| {
        !ip.is_loopback() && !ip.is_unicast_link_local() && (all_v6 || ips.contains(&IpAddr::V6(*ip)))
    });
    (
        v4.take(INTERFACES_MAX).collect(),
        v6.take(INTERFACES_MAX).collect(),
    )
}

/// The kernel's routing trie: below the line of an address, `/32 host LOCAL` says that it is this machine's.
fn local_v4(trie: &str) -> Vec<Ipv4Addr> {
    let mut last: Option<Ipv4Addr> = None;
    let mut found = BTreeSet::new();
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last);
        }
    }
    found.into_iter().collect()
}

/// Lines begin with an address of 32 digits.
fn local_v6(lines: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| u128::from_str_radix(line.split(' ').next()?, 16).ok();
    lines.lines().filter_map(address).map(Ipv6Addr::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
Local:
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
     +-- 192.0.2.0/24 2 0 2
        |-- 192.0.2.7
           /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
     |-- 198.51.100.1
        /32 host LOCAL
";
    const INET6: &str = "\
00000000000000000000000000000001 01 80 10 80       lo
fe800000000000000000000000000007 02 40 20 80     eth0
20010db8000000000000000000000007 02 40 00 80     eth0
";

    #[test]
    fn only_what_is_listened_on() {
        let (v4, v6) = (local_v4(TRIE), local_v6(INET6));
        let chosen = |listened: &[&str]| {
            let listened: Vec<SocketAddr> = listened.iter().map(|text| text.parse().unwrap()).collect();
            let (v4, v6) = select(&listened, &v4, &v6);
            (v4.len(), v6.len())
        };
        assert_eq!(chosen(&["127.0.0.1:445", "[::1]:445"]), (0, 0));
        assert_eq!(chosen(&["192.0.2.7:445"]), (1, 0));
        assert_eq!(chosen(&["0.0.0.0:445"]), (2, 0));
        assert_eq!(chosen(&["[::]:445"]), (2, 1));
        assert_eq!(chosen(&["[2001:db8::7]:445", "127.0.0.1:1"]), (0, 1));
        assert_eq!(local_v4("|-- x\n/32 host LOCAL\n").len(), 0);
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let trie = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        assert!(trie.is_empty() || local_v4(&trie).contains(&Ipv4Addr::LOCALHOST));
    }
}
