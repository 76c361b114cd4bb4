//! Selects the addresses to announce.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum number of interfaces for announcements. A guess.
const INTERFACES_MAX: usize = 32;

/// Returns the IPv4 addresses of the interfaces on which the server listens, without loopback
/// addresses, and the IPv6 addresses at which it can be reached.
pub(super) fn listened_on(listened: &[SocketAddr]) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let all: Vec<IpAddr> = match if_addrs::get_if_addrs() {
        Ok(all) => all.iter().map(if_addrs::Interface::ip).collect(),
        Err(error) => {
            tracing::warn!(%error, "cannot list the network addresses");
            Vec::new()
        }
    };
    select(listened, &all)
}

fn select(listened: &[SocketAddr], all: &[IpAddr]) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let v4 = all.iter().filter_map(|ip| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    });
    let v6 = all.iter().filter_map(|ip| match ip {
        IpAddr::V6(ip) => Some(*ip),
        IpAddr::V4(_) => None,
    });
    let ips: Vec<IpAddr> = listened.iter().map(SocketAddr::ip).collect();
    // A socket on [::] accepts IPv4 too, unless the system is configured otherwise.
    let all_v6 = ips.contains(&Ipv6Addr::UNSPECIFIED.into());
    let all_v4 = all_v6 || ips.contains(&Ipv4Addr::UNSPECIFIED.into());
    let v4 =
        v4.filter(|ip| !ip.is_loopback() && !ip.is_multicast() && (all_v4 || ips.contains(&IpAddr::V4(*ip))));
    // Link-local addresses need a zone, so they are left out.
    let v6 = v6.filter(|ip| {
        !ip.is_loopback() && !ip.is_unicast_link_local() && (all_v6 || ips.contains(&IpAddr::V6(*ip)))
    });
    (
        v4.take(INTERFACES_MAX).collect(),
        v6.take(INTERFACES_MAX).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_the_server_listens_on_are_selected() {
        let all: Vec<IpAddr> = [
            "127.0.0.1",
            "192.0.2.7",
            "198.51.100.1",
            "::1",
            "fe80::7",
            "2001:db8::7",
        ]
        .map(|text| text.parse().unwrap())
        .to_vec();
        let chosen = |listened: &[&str]| {
            let listened: Vec<SocketAddr> = listened.iter().map(|text| text.parse().unwrap()).collect();
            let (v4, v6) = select(&listened, &all);
            (v4.len(), v6.len())
        };
        assert_eq!(chosen(&["127.0.0.1:445", "[::1]:445"]), (0, 0));
        assert_eq!(chosen(&["192.0.2.7:445"]), (1, 0));
        assert_eq!(chosen(&["0.0.0.0:445"]), (2, 0));
        assert_eq!(chosen(&["[::]:445"]), (2, 1));
        assert_eq!(chosen(&["[2001:db8::7]:445", "127.0.0.1:1"]), (0, 1));
    }
}
