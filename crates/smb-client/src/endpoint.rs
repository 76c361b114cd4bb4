//! The address of a server: host and port.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The port of SMB over TCP ([MS-SMB2] 2.1).
pub const PORT: u16 = 445;

/// The host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// A name, an IPv4 address, or an IPv6 address without brackets (a zone may follow after `%`).
    pub host: String,
    /// The port, 445 by default.
    pub port: u16,
}

/// Reasons for rejecting the text of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The host is missing.
    #[error("the host is missing")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("not a port")]
    Port,
    /// `[` has no `]`, or the text between them is not an IPv6 address.
    #[error("not an IPv6 address in brackets")]
    Brackets,
}

impl Endpoint {
    /// Returns the endpoint of a host and a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// Returns the host as a UNC path names it. Colons are not allowed there, so an IPv6 address
    /// becomes `fe80--1.ipv6-literal.net` ([MS-DTYP] 2.2.57 and the Windows convention it follows).
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
    type Err = EndpointError;

    /// Parses `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare IPv6 address.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let is_v6 = |host: &str| {
            let address = host.split('%').next().unwrap_or_default();
            address.parse::<Ipv6Addr>().is_ok()
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or(EndpointError::Brackets)?;
            if !is_v6(host) {
                return Err(EndpointError::Brackets);
            }
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(EndpointError::Port),
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
            return Err(EndpointError::Host);
        }
        let port = match port {
            None => PORT,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(EndpointError::Port),
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
            ("", EndpointError::Host),
            (":445", EndpointError::Host),
            ("a:0", EndpointError::Port),
            ("a:x", EndpointError::Port),
            ("[::1", EndpointError::Brackets),
            ("[::1]x", EndpointError::Port),
            ("[a]", EndpointError::Brackets),
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
