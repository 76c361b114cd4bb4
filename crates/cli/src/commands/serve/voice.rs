//! What `serve` says: lines for people, or JSON Lines.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::accounts::Told;
use super::shares::Wanted;
use crate::args::{KerberosUsers, ServeArgs, ServeLoginArgs};
use crate::secrets::VARIABLE;
use crate::ui::messages;

/// Most names of users that are listed.
const NAMES_SHOWN: usize = 8;

/// Says it one way or the other.
pub(super) struct Voice {
    json: bool,
}

impl Voice {
    /// In JSON, or for people.
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// The server listens.
    pub(super) fn listening(
        &self,
        args: &ServeArgs,
        name: &str,
        addresses: &[SocketAddr],
        shares: &[&Wanted],
        told: &Told,
        http: Option<SocketAddr>,
    ) {
        let urls = urls(addresses, name, shares, told.users.first().map(String::as_str));
        if self.json {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let shares: Vec<Value> = shares.iter().map(|share| share_json(share)).collect();
            self.object(&json!({
                "type": "listening",
                "name": name,
                "addresses": addresses,
                "urls": urls,
                "shares": shares,
                "users": told.users,
                "anonymous": args.login.anonymous,
                "guest": args.login.guest,
                "pass_phrase": told.new.as_ref().map(|phrase| phrase.expose()),
                "http": http.map(|http| http.to_string()),
                "pid": std::process::id(),
            }));
            return;
        }
        for (url, share) in urls.iter().zip(shares.iter().cycle()) {
            messages::print_line(&format!("{url}  ({})", share.shown()));
        }
        messages::print_line(&format!("may log in: {}", who(&told.users, &args.login)));
        if let Some(phrase) = &told.new {
            messages::print_line(&format!("pass phrase: {}  (for this run only)", phrase.expose()));
        }
        if told.is_variable {
            messages::print_line(&format!("password: that of {VARIABLE}"));
        }
        messages::print_line(&protection(args));
        if let Some(http) = http {
            messages::print_line(&format!("metrics: http://{http}/metrics"));
        }
        messages::print_line("Ctrl-C ends it");
    }

    /// Users and shares were read again.
    pub(super) fn reloaded(&self, changes: &[String], users: usize, shares: usize) {
        if self.json {
            self.object(&json!({"type": "reloaded", "changes": changes, "users": users, "shares": shares}));
            return;
        }
        if changes.is_empty() {
            messages::print_line("reloaded: nothing changed");
        }
        for change in changes {
            messages::print_line(&format!("reloaded: {change}"));
        }
    }

    /// Something could not be read again, and stays.
    pub(super) fn kept(&self, what: &str, why: &str) {
        if self.json {
            self.object(&json!({"type": "warning", "message": format!("{what} stay as they were: {why}")}));
        } else {
            messages::complain(&format!("warning: {what} stay as they were: {why}"));
        }
    }

    /// Something that should be known.
    pub(super) fn warn(&self, message: &str) {
        if self.json {
            self.object(&json!({"type": "warning", "message": message}));
        } else {
            messages::complain(&format!("warning: {message}"));
        }
    }

    /// A signal came.
    pub(super) fn stopping(&self) {
        if !self.json {
            messages::complain("stopping; what was written is made durable first (again to stop at once)");
        }
    }

    /// All is over.
    pub(super) fn stopped(&self) {
        if self.json {
            self.object(&json!({"type": "stopped", "durable": true}));
        } else {
            messages::print_line("stopped; everything written is durable");
        }
    }

    fn object(&self, object: &Value) {
        messages::print_line(&object.to_string());
    }
}

fn share_json(share: &Wanted) -> Value {
    json!({
        "name": share.name,
        "folder": share.folder.display().to_string(),
        "read_only": share.read_only,
        "encrypt": share.encrypt,
    })
}

/// For each address and share one; where everywhere is listened on, under the server's name.
fn urls(addresses: &[SocketAddr], name: &str, shares: &[&Wanted], user: Option<&str>) -> Vec<String> {
    let user = user.map_or_else(String::new, |user| format!("{}@", encode(user)));
    let mut urls = Vec::new();
    for address in addresses {
        let host = match address.ip() {
            ip if ip.is_unspecified() => name.to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let port = match address.port() {
            445 => String::new(),
            port => format!(":{port}"),
        };
        for share in shares {
            let url = format!("smb://{user}{host}{port}/{}", encode(&share.name));
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
    }
    urls
}

/// RFC 3986: what is no unreserved character is percent-encoded, as the client's URLs take it.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~$".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn who(users: &[String], login: &ServeLoginArgs) -> String {
    let mut names: Vec<&str> = users.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    let more = users.len().saturating_sub(NAMES_SHOWN);
    let more = format!("{more} more");
    if users.len() > NAMES_SHOWN {
        names.push(&more);
    }
    if login.kerberos_users == KerberosUsers::Any {
        names.push("anybody with a ticket");
    }
    if login.guest {
        names.push("guest without a password");
    }
    if login.anonymous {
        names.push("anybody without a name");
    }
    if names.is_empty() {
        names.push("nobody");
    }
    names.join(", ")
}

/// What is signed and encrypted.
fn protection(args: &ServeArgs) -> String {
    use ropeway_smb_client::{Encryption, Signing};
    let sign = match args.protocol.sign {
        Signing::Required => "every request is signed",
        Signing::Offered => "signed where the client wants it",
    };
    let encrypt = match args.protocol.encrypt {
        Encryption::Off => "nothing is encrypted",
        Encryption::Desired => "encrypted where the client wants it",
        Encryption::Required => "everything is encrypted",
    };
    format!("{sign}; {encrypt}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(name: &str) -> Wanted {
        Wanted {
            name: name.to_owned(),
            folder: "/srv".into(),
            read_only: false,
            encrypt: false,
            anonymous: false,
            links: Default::default(),
        }
    }

    #[test]
    fn urls_can_be_pasted() {
        let (one, two) = (share("my photos"), share("b"));
        let addresses = ["127.0.0.1:4450", "[::1]:445", "0.0.0.0:445", "[::]:445"];
        let addresses = addresses.map(|address| address.parse().unwrap());
        assert_eq!(
            urls(&addresses, "nas", &[&one, &two], Some("ann smith")),
            [
                "smb://ann%20smith@127.0.0.1:4450/my%20photos",
                "smb://ann%20smith@127.0.0.1:4450/b",
                "smb://ann%20smith@[::1]/my%20photos",
                "smb://ann%20smith@[::1]/b",
                "smb://ann%20smith@nas/my%20photos",
                "smb://ann%20smith@nas/b",
            ]
        );
        assert_eq!(
            urls(&addresses[..1], "nas", &[&two], None),
            ["smb://127.0.0.1:4450/b"]
        );
    }

    #[test]
    fn many_users_are_counted() {
        let users: Vec<String> = (0..10).map(|number| format!("u{number}")).collect();
        let mut login = ServeLoginArgs::none();
        assert!(who(&users, &login).ends_with("u7, 2 more"));
        assert_eq!(who(&[], &login), "nobody");
        login.anonymous = true;
        assert_eq!(who(&users[..1], &login), "u0, anybody without a name");
        login.guest = true;
        assert_eq!(
            who(&[], &login),
            "guest without a password, anybody without a name"
        );
    }
}
