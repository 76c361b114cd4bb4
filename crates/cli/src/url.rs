//! URLs of SMB servers, shares and paths on them: `smb://[domain;]user@host[:port]/share/path`, and
//! `smb1://…` for servers that speak nothing but SMB 1.
//!
//! Parsing is pure: text in, parts out. A malformed URL is refused with one clause and a hint. No
//! message repeats a password that was written into a URL by mistake.
//!
//! | part | rules |
//! |---|---|
//! | `domain;` `user@` | may be left out; the last `@` before the first `/` ends them; a `:` in them is refused |
//! | `host` | a name, an IPv4 address, or an IPv6 address in brackets, with a zone too (`[fe80::1%eth0]`) |
//! | `:port` | default 445 |
//! | `share` | one component |
//! | `path` | the rest; empty components and `.` are dropped, `..` goes up, never out of the share |
//!
//! `%41` stands for one byte in every part; `%` itself is written `%25`. `?` and `#` are ordinary
//! characters, because paths are not web pages. A component such as `@GMT-2026.01.31-12.00.00` (a
//! snapshot) is parsed like any other.

use std::fmt;
use std::net::Ipv6Addr;

use ropeway_plan::Protocol;
use ropeway_smb_wire::Text;
use ropeway_smb_wire::fsctl::snapshots::token_time;
use ropeway_smb_wire::unc::{PathError, SharePath};
use ropeway_vfs::{Name, RelPath};

/// Registered port of SMB over TCP ([MS-SMB2] 2.1).
pub(crate) const PORT: u16 = 445;
/// Maximum length of a host name in bytes (RFC 1035, 2.3.4).
const HOST_BYTES_MAX: usize = 255;

/// Protocol of a URL. SMB 1 is spoken only where a URL names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    /// SMB 2 and 3.
    #[default]
    Smb,
    /// SMB 1.
    #[cfg(feature = "smb1")]
    Smb1,
}

impl Scheme {
    const SMB1: &'static [u8] = b"smb1://";
    const SMB: &'static [u8] = b"smb://";

    /// Returns the text in front of the host.
    fn text(self) -> &'static str {
        match self {
            Self::Smb => "smb://",
            #[cfg(feature = "smb1")]
            Self::Smb1 => "smb1://",
        }
    }
}

/// A server and the user who logs in to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// Protocol.
    pub(crate) scheme: Scheme,
    /// The user's domain.
    pub(crate) domain: Option<String>,
    /// The user.
    pub(crate) user: Option<String>,
    /// Host name or address in lower case; IPv6 addresses without brackets.
    pub(crate) host: String,
    /// TCP port.
    pub(crate) port: u16,
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SmbUrl {
    /// The server.
    pub(crate) server: Server,
    /// The share; `None` for the server itself.
    pub(crate) share: Option<String>,
    /// The path within the share.
    pub(crate) path: RelPath,
    /// The URL ends with a slash, `.` or `..`, so it can only name a folder.
    pub(crate) must_be_folder: bool,
    /// The URL ends with `.` or `..`, so it stands for the folder's contents.
    pub(crate) nameless: bool,
}

/// Reasons for rejecting a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlError {
    /// One clause.
    pub(crate) message: String,
    /// What to write instead.
    pub(crate) hint: &'static str,
    /// Whether messages may repeat the URL: it contains no password.
    pub(crate) is_quotable: bool,
}

impl UrlError {
    fn new(message: impl Into<String>, hint: &'static str) -> Self {
        Self {
            message: message.into(),
            hint,
            is_quotable: true,
        }
    }
}

const FORM: &str = "the form is smb://[domain;]user@host[:port]/share/path";
const PERCENT: &str = "write a percent sign itself as %25";

/// Returns what follows a prefix, in which case does not matter.
fn after<'a>(argument: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    argument
        .split_at_checked(prefix.len())
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(prefix))
        .map(|(_, rest)| rest)
}

/// Splits a URL into its protocol and the rest.
fn split_scheme(argument: &[u8]) -> Result<(Scheme, &[u8]), UrlError> {
    if let Some(rest) = after(argument, Scheme::SMB) {
        return Ok((Scheme::Smb, rest));
    }
    match after(argument, Scheme::SMB1) {
        #[cfg(feature = "smb1")]
        Some(rest) => Ok((Scheme::Smb1, rest)),
        #[cfg(not(feature = "smb1"))]
        Some(_) => Err(UrlError::new(
            "this program was built without SMB 1",
            "build it with its default features, or write smb:// if the server speaks SMB 2",
        )),
        None => Err(UrlError::new("not an smb:// URL", FORM)),
    }
}

impl SmbUrl {
    /// Parses a URL; `argument` begins with `smb://` or `smb1://`.
    ///
    /// # Errors
    /// The URL is malformed.
    pub(crate) fn parse(argument: &[u8]) -> Result<Self, UrlError> {
        let (scheme, rest) = split_scheme(argument)?;
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let server = Server::parse(scheme, authority)?;
        let mut components = rest.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let Some(share) = components.next() else {
            return Ok(Self::of_server(server));
        };
        let share = text(share, "the share's name")?;
        check_share(&server.host, &share)?;
        let (mut names, mut nameless): (Vec<Name>, bool) = (Vec::new(), false);
        for part in components {
            let bytes = decoded(part)?;
            nameless = matches!(bytes.as_slice(), b"." | b"..");
            match bytes.as_slice() {
                b"." => {}
                b".." if names.pop().is_some() => {}
                b".." => {
                    return Err(UrlError::new(
                        "`..` leads out of the share",
                        "give the path from the share's top",
                    ));
                }
                bytes => names.push(name(bytes, part)?),
            }
        }
        Ok(Self {
            server,
            share: Some(share),
            path: names.iter().fold(RelPath::root(), |path, name| path.join(name)),
            must_be_folder: nameless || rest.ends_with(b"/"),
            nameless,
        })
    }

    /// Returns the URL of a share's top folder.
    pub(crate) fn of_share(server: &Server, share: &str) -> Self {
        Self {
            share: Some(share.to_owned()),
            must_be_folder: false,
            ..Self::of_server(server.clone())
        }
    }

    fn of_server(server: Server) -> Self {
        Self {
            server,
            share: None,
            path: RelPath::root(),
            must_be_folder: true,
            nameless: false,
        }
    }

    /// Returns the URL of another path on the same share.
    pub(crate) fn with_path(&self, path: RelPath) -> Self {
        Self {
            path,
            must_be_folder: false,
            nameless: false,
            ..self.clone()
        }
    }

    /// Returns the same place without a slash, `.` or `..` at its end.
    pub(crate) fn plain(&self) -> Self {
        self.with_path(self.path.clone())
    }

    /// Returns the parent folder; `None` for the top of a share and for a server.
    pub(crate) fn parent(&self) -> Option<Self> {
        self.path.parent().map(|parent| self.with_path(parent))
    }

    /// Returns the last name of the path, or the share's name at its top.
    pub(crate) fn file_name(&self) -> Option<Name> {
        let share = || self.share.as_ref().and_then(|share| Name::new(share.as_bytes()));
        self.path.file_name().or_else(share)
    }

    /// Returns the snapshot token in the path, such as `@GMT-2026.01.31-12.00.00`.
    pub(crate) fn snapshot(&self) -> Option<String> {
        let names = self.path.components().map(|name| name.to_string());
        names
            .filter(|name| token_time(&Text::from(name.as_str())).is_some())
            .last()
    }

    /// Returns whether both URLs are on one share of one server, for the same user.
    pub(crate) fn same_share(&self, other: &Self) -> bool {
        let folded = |url: &Self| url.share.as_ref().map(|share| share.to_lowercase());
        self.server == other.server && self.share.is_some() && folded(self) == folded(other)
    }
}

impl Server {
    /// Whether the server speaks SMB 1.
    pub(crate) fn is_smb1(&self) -> bool {
        self.scheme != Scheme::Smb
    }

    /// Returns the protocol.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.is_smb1() {
            true => Protocol::Smb1,
            false => Protocol::Smb2,
        }
    }

    /// Returns the beginning of URLs of this protocol.
    pub(crate) fn prefix(&self) -> &'static str {
        self.scheme.text()
    }

    fn parse(scheme: Scheme, authority: &[u8]) -> Result<Self, UrlError> {
        let (login, address) = match authority.iter().rposition(|byte| *byte == b'@') {
            Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
            None => (None, authority),
        };
        let (domain, user) = login.map_or(Ok((None, None)), parse_login)?;
        let (host, port) = parse_address(address)?;
        Ok(Self {
            scheme,
            domain,
            user,
            host,
            port,
        })
    }
}

type Login = (Option<String>, Option<String>);

fn parse_login(login: &[u8]) -> Result<Login, UrlError> {
    if login.contains(&b':') {
        return Err(UrlError {
            message:
                "no password belongs in a URL: other users see it in the process list and in shell histories"
                    .to_owned(),
            hint: "leave it out; ropeway asks for it, or reads it from ROPEWAY_PASSWORD, --credentials FILE or `ropeway login`; a \
                   colon in a name is %3A",
            is_quotable: false,
        });
    }
    let (domain, user) = match login.iter().position(|byte| *byte == b';') {
        Some(at) => (Some(text(&login[..at], "the domain")?), &login[at + 1..]),
        None => (None, login),
    };
    let user = text(user, "the user's name")?;
    if user.is_empty() {
        return Err(UrlError::new("the user's name is empty", FORM));
    }
    Ok((domain.filter(|domain| !domain.is_empty()), Some(user)))
}

fn parse_address(address: &[u8]) -> Result<(String, u16), UrlError> {
    let bracketed = address.strip_prefix(b"[");
    let (host, port) = if let Some(rest) = bracketed {
        let end = rest.iter().position(|byte| *byte == b']');
        let end = end.ok_or_else(|| UrlError::new("the bracket of the IPv6 address is not closed", FORM))?;
        (ipv6(&rest[..end])?, &rest[end + 1..])
    } else {
        let end = address
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(address.len());
        if address[end..].iter().filter(|byte| **byte == b':').count() > 1 {
            return Err(UrlError::new(
                "an IPv6 address needs brackets",
                "e.g. smb://user@[fd00::7]/share",
            ));
        }
        (host_name(&address[..end])?, &address[end..])
    };
    let port = match port.strip_prefix(b":") {
        None if port.is_empty() => PORT,
        Some(b"") => PORT,
        Some(digits) => parse_port(digits)?,
        None => return Err(UrlError::new("there is text between host and port", FORM)),
    };
    Ok((host, port))
}

fn parse_port(digits: &[u8]) -> Result<u16, UrlError> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let port = std::str::from_utf8(digits)
        .ok()
        .filter(|_| is_number)
        .and_then(|text| text.parse().ok())
        .filter(|port| *port != 0);
    port.ok_or_else(|| {
        UrlError::new(
            "the port is not a number from 1 to 65535",
            "e.g. smb://user@host:1445/share",
        )
    })
}

/// Parses an address without its brackets; a zone may follow `%` or `%25` (RFC 6874).
fn ipv6(bytes: &[u8]) -> Result<String, UrlError> {
    let fault = || {
        UrlError::new(
            "the text in brackets is not an IPv6 address",
            "e.g. smb://user@[fd00::7]/share",
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| fault())?;
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().map_err(|_| fault())?;
    match zone {
        None => Ok(address.to_string()),
        Some(zone) => {
            let is_name = !zone.is_empty()
                && zone
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
            if is_name {
                Ok(format!("{address}%{zone}"))
            } else {
                Err(fault())
            }
        }
    }
}

fn host_name(bytes: &[u8]) -> Result<String, UrlError> {
    let host = text(bytes, "the host's name")?.to_lowercase();
    if host.is_empty() {
        return Err(UrlError::new("there is no host", FORM));
    }
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    if host.len() > HOST_BYTES_MAX || !host.chars().all(fits) {
        return Err(UrlError::new("the host is neither a name nor an address", FORM));
    }
    Ok(host)
}

fn check_share(host: &str, share: &str) -> Result<(), UrlError> {
    let fault = |message: &str| {
        Err(UrlError::new(
            message,
            "`ropeway ls smb://user@host/` lists the shares",
        ))
    };
    if matches!(share, "." | "..") || share.chars().any(char::is_control) {
        return fault("the name cannot be the name of a share");
    }
    match SharePath::new(host, share) {
        Ok(_) => Ok(()),
        Err(PathError::TooLong) => fault("the share's name is too long"),
        Err(_) => fault("the name cannot be the name of a share"),
    }
}

fn name(bytes: &[u8], part: &[u8]) -> Result<Name, UrlError> {
    if part.contains(&b'\\') {
        return Err(UrlError::new(
            "the path contains a backslash",
            "folders are separated by /; a backslash in a name is %5C",
        ));
    }
    Name::new(bytes).ok_or_else(|| {
        UrlError::new(
            "a name contains a slash or a NUL",
            "%2F and %00 cannot be part of a name",
        )
    })
}

fn text(bytes: &[u8], what: &str) -> Result<String, UrlError> {
    String::from_utf8(decoded(bytes)?).map_err(|_| UrlError::new(format!("{what} is not UTF-8"), FORM))
}

/// Decodes `%XX` (RFC 3986, 2.1); other bytes stay as they are.
fn decoded(bytes: &[u8]) -> Result<Vec<u8>, UrlError> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        if *first != b'%' {
            plain.push(*first);
            rest = tail;
            continue;
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let (Some(high), Some(low)) = (tail.first().and_then(digit), tail.get(1).and_then(digit)) else {
            return Err(UrlError::new(
                "a percent sign is not followed by two hexadecimal digits",
                PERCENT,
            ));
        };
        plain.push(high * 16 + low);
        rest = &tail[2..];
    }
    Ok(plain)
}

/// Writes bytes so that people can read them and [`SmbUrl::parse`] can parse them.
fn encode(bytes: &[u8], special: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '%' || special.contains(c) {
                let mut buffer = [0; 4];
                for byte in c.encode_utf8(&mut buffer).bytes() {
                    write!(f, "%{byte:02X}")?;
                }
            } else {
                write!(f, "{c}")?;
            }
        }
        for byte in chunk.invalid() {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SPECIAL: &str = "/@:;[]\\";
        f.write_str(self.scheme.text())?;
        if let Some(domain) = &self.domain {
            encode(domain.as_bytes(), SPECIAL, f)?;
            f.write_str(";")?;
        }
        if let Some(user) = &self.user {
            encode(user.as_bytes(), SPECIAL, f)?;
            f.write_str("@")?;
        }
        write!(f, "{}", Address(self))
    }
}

/// Shows a server as `host[:port]`.
pub(crate) struct Address<'a>(pub(crate) &'a Server);

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Server { host, port, .. } = self.0;
        if host.contains(':') {
            write!(f, "[{host}]")?;
        } else {
            f.write_str(host)?;
        }
        if *port != PORT {
            write!(f, ":{port}")?;
        }
        Ok(())
    }
}

impl fmt::Display for SmbUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.server)?;
        if let Some(share) = &self.share {
            encode(share.as_bytes(), "/\\", f)?;
        }
        for name in self.path.components() {
            f.write_str("/")?;
            encode(name.as_bytes(), "\\", f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
