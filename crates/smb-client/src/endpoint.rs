//! Where a server is.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// SMB over TCP ([MS-SMB2] 2.1).
pub const PORT: u16 = 445;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// A name, an IPv4 address, or an IPv6 address without brackets (a zone may follow after `%`).
    pub host: String,
    /// The port, 445 unless said otherwise.
    pub port: u16,
}

/// Why a text is no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointFault {
    /// No host.
    #[error("the host is missing")]
    Host,
    /// Not a number from 1 to 65535.
    #[error("not a port")]
    Port,
    /// `[` without `]`, or what stands between is no IPv6 address.
    #[error("not an IPv6 address in brackets")]
    Brackets,
}

impl Endpoint {
    /// From its parts.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// The host as `\\host\share` names it: colons cannot stand there, so an IPv6 address becomes
    /// `fe80--1.ipv6-literal.net` ([MS-DTYP] 2.2.57 and the Windows convention it follows).
    pub fn unc_host(&self) -> String {
        if self.host.contains(':') {
            format!(
                "{}.ipv6-literal.net",
                self.host.replace(':', "-").replace('%', "s")
            )
        } else {
            self.host.clone()
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointFault;

    /// `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare IPv6 address.
    fn from_str(text: &str) -> Result<Self, EndpointFault> {
        let is_v6 = |host: &str| {
            let address = host.split('%').next().unwrap_or_default();
            address.parse::<Ipv6Addr>().is_ok()
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or(EndpointFault::Brackets)?;
            if !is_v6(host) {
                return Err(EndpointFault::Brackets);
            }
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(EndpointFault::Port),
            }
        } else if is_v6(text) {
            (text, None)
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        if host.is_empty() {
            return Err(EndpointFault::Host);
        }
        let port = match port {
            None => PORT,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(EndpointFault::Port),
                Ok(port) => port,
            },
        };
        Ok(Self::new(host, port))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_v6 = self.host.contains(':');
        match is_v6 {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        if self.port == PORT {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_endpoints() {
        for (text, host, port) in [
            ("server", "server", 445),
            ("server:1445", "server", 1445),
            ("10.0.0.1:44", "10.0.0.1", 44),
            ("[::1]", "::1", 445),
            ("[fe80::1%eth0]:4450", "fe80::1%eth0", 4450),
            ("2001:db8::1", "2001:db8::1", 445),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint, Endpoint::new(host, port), "{text}");
            assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
        }
        for (text, fault) in [
            ("", EndpointFault::Host),
            (":445", EndpointFault::Host),
            ("a:0", EndpointFault::Port),
            ("a:x", EndpointFault::Port),
            ("[::1", EndpointFault::Brackets),
            ("[::1]x", EndpointFault::Port),
            ("[a]", EndpointFault::Brackets),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(fault), "{text}");
        }
    }

    #[test]
    fn colons_do_not_reach_unc_paths() {
        assert_eq!(
            Endpoint::new("fe80::1", 445).unc_host(),
            "fe80--1.ipv6-literal.net"
        );
        assert_eq!(Endpoint::new("server", 445).unc_host(), "server");
    }
}
