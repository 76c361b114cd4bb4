//! What to type on the machines that use a share.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::printer::encode;

/// SMB's own port. Before Windows 11 24H2, Windows uses no other.
const SMB_PORT: u16 = 445;
/// Maximum number of addresses that are explained.
const ADDRESSES_MAX: usize = 4;

/// Returns the lines to type on Windows, macOS and Linux for a share, at each address that others reach.
/// `interfaces`: the machine's addresses, for a server that listens on all of them.
pub(super) fn instructions(
    addresses: &[SocketAddr],
    interfaces: &[IpAddr],
    share: &str,
    user: Option<&str>,
) -> Vec<String> {
    let mut reached: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        let of_interfaces = interfaces.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
        let all = match address.ip().is_unspecified() {
            true => of_interfaces
                .map(|ip| SocketAddr::new(*ip, address.port()))
                .collect(),
            false => vec![*address],
        };
        let new = all
            .into_iter()
            .filter(|address| !address.ip().is_loopback() && !reached.contains(address));
        let new: Vec<_> = new.collect();
        reached.extend(new);
    }
    if reached.is_empty() && addresses.iter().any(|address| address.ip().is_loopback()) {
        let address = addresses
            .first()
            .map_or(Ipv4Addr::LOCALHOST.into(), SocketAddr::ip);
        let port = addresses.first().map_or(SMB_PORT, SocketAddr::port);
        return vec![format!(
            "{address} is this machine only; --listen 0.0.0.0:{port} lets the network in"
        )];
    }
    let left = reached.len().saturating_sub(ADDRESSES_MAX);
    let mut lines: Vec<String> = reached
        .iter()
        .take(ADDRESSES_MAX)
        .flat_map(|address| lines_for(*address, share, user))
        .collect();
    if left > 0 {
        lines.push(format!("and {left} more addresses"));
    }
    lines
}

fn lines_for(address: SocketAddr, share: &str, user: Option<&str>) -> [String; 3] {
    let port = address.port();
    let is_usual = port == SMB_PORT;
    let (host, unc) = match address.ip() {
        IpAddr::V4(ip) => (ip.to_string(), ip.to_string()),
        // Windows has no colons in names of servers.
        IpAddr::V6(ip) => (
            format!("[{ip}]"),
            format!("{}.ipv6-literal.net", ip.to_string().replace(':', "-")),
        ),
    };
    let windows_user = user.map_or_else(String::new, |user| format!(" /user:{user}"));
    let windows = match is_usual {
        true => format!(r#"net use Z: "\\{unc}\{share}"{windows_user}"#),
        false => format!(
            r#"net use Z: "\\{unc}\{share}"{windows_user} /tcpport:{port}  (Windows 11 24H2; older ones need --listen …:445)"#
        ),
    };
    let mac_user = user.map_or_else(String::new, |user| format!("{}@", encode(user)));
    let mac_port = if is_usual {
        String::new()
    } else {
        format!(":{port}")
    };
    let url = format!("smb://{mac_user}{host}{mac_port}/{}", encode(share));
    [
        format!("  Windows  {windows}"),
        format!("  macOS    open {url}"),
        format!("  Linux    ropeway mount {url} DIR"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn each_system_has_a_line_for_each_address() {
        let lines = instructions(&[at("192.0.2.7:445")], &[], "my photos", Some("ann"));
        assert_eq!(
            lines,
            [
                r#"  Windows  net use Z: "\\192.0.2.7\my photos" /user:ann"#,
                "  macOS    open smb://ann@192.0.2.7/my%20photos",
                "  Linux    ropeway mount smb://ann@192.0.2.7/my%20photos DIR",
            ]
        );
        let lines = instructions(&[at("[2001:db8::1]:4450")], &[], "b", None);
        assert!(
            lines[0].contains(r"\\2001-db8--1.ipv6-literal.net\b"),
            "{lines:?}"
        );
        assert!(lines[0].contains("/tcpport:4450"), "{lines:?}");
        assert!(lines[1].ends_with("smb://[2001:db8::1]:4450/b"), "{lines:?}");
    }

    #[test]
    fn all_addresses_are_those_of_the_machine() {
        let interfaces = ["127.0.0.1", "192.0.2.7", "::1"].map(|ip| ip.parse().unwrap());
        let lines = instructions(&[at("0.0.0.0:445"), at("[::]:445")], &interfaces, "b", None);
        assert_eq!(lines.len(), 3, "{lines:?}");
        let many: Vec<IpAddr> = (1..=9).map(|last| IpAddr::from([192, 0, 2, last])).collect();
        let lines = instructions(&[at("0.0.0.0:445")], &many, "b", None);
        assert_eq!(lines.len(), 3 * ADDRESSES_MAX + 1, "{lines:?}");
    }

    #[test]
    fn loopback_is_this_machine_only() {
        let lines = instructions(&[at("127.0.0.1:4450")], &[], "b", None);
        assert_eq!(
            lines,
            ["127.0.0.1 is this machine only; --listen 0.0.0.0:4450 lets the network in"]
        );
    }
}
