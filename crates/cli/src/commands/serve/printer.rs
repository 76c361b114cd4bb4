//! Output of `serve`: lines for people, or JSON Lines.

use std::net::{IpAddr, SocketAddr};

use ropeway_page::Page;
use serde_json::{Value, json};

use super::accounts::AccountSummary;
use super::instructions::instructions;
use super::shares::RequestedShare;
use crate::args::{KerberosUsers, ServeArgs, ServeLoginArgs};
use crate::secrets::VARIABLE;
use crate::ui::messages;

/// Maximum number of user names to list.
const NAMES_SHOWN: usize = 8;

/// Prints in one of the two formats.
pub(super) struct Printer {
    json: bool,
}

impl Printer {
    /// Makes the output: JSON Lines, or lines for people.
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Reports that the server listens.
    pub(super) fn listening(
        &self,
        args: &ServeArgs,
        name: &str,
        addresses: &[SocketAddr],
        shares: &[&RequestedShare],
        summary: &AccountSummary,
        page: Option<&Page>,
    ) {
        let urls = urls(addresses, name, shares, summary.users.first().map(String::as_str));
        if self.json {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let shares: Vec<Value> = shares.iter().map(|share| share_json(share)).collect();
            self.object(&json!({
                "type": "listening",
                "name": name,
                "addresses": addresses,
                "urls": urls,
                "shares": shares,
                "users": summary.users,
                "anonymous": args.login.anonymous,
                "guest": args.login.guest,
                "pass_phrase": summary.new.as_ref().map(|phrase| phrase.expose()),
                "http": page.map(|page| page.address().to_string()),
                "http_url": page.map(Page::url),
                "pid": std::process::id(),
            }));
            return;
        }
        for (url, share) in urls.iter().zip(shares.iter().cycle()) {
            messages::print_line(&format!("{url}  ({})", share.shown()));
        }
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let interfaces: Vec<IpAddr> = interfaces.iter().map(if_addrs::Interface::ip).collect();
        if let Some(share) = shares.first() {
            let user = summary.users.first().map(String::as_str);
            for line in instructions(addresses, &interfaces, &share.name, user) {
                messages::print_line(&line);
            }
        }
        messages::print_line(&format!("users: {}", accepted_users(&summary.users, &args.login)));
        if let Some(phrase) = &summary.new {
            messages::print_line(&format!(
                "pass phrase: {}  (valid for this run only)",
                phrase.expose()
            ));
        }
        if summary.is_variable {
            messages::print_line(&format!("password: from {VARIABLE}"));
        }
        messages::print_line(&protection(args));
        if let Some(page) = page {
            messages::print_line(&format!("page: {}", page.url()));
            messages::print_line(&format!("metrics: http://{}/metrics", page.address()));
        }
        messages::print_line("press Ctrl-C to stop");
    }

    /// Reports a reload of users and shares.
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

    /// Reports a part that could not be reloaded and stays as it was.
    pub(super) fn unchanged(&self, what: &str, why: &str) {
        if self.json {
            self.object(&json!({"type": "warning", "message": format!("{what} stay as they were: {why}")}));
        } else {
            messages::print_stderr(&format!("warning: {what} stay as they were: {why}"));
        }
    }

    /// Prints what was done at the start.
    pub(super) fn note(&self, message: &str) {
        if self.json {
            self.object(&json!({"type": "note", "message": message}));
        } else {
            messages::print_line(message);
        }
    }

    /// Prints a warning.
    pub(super) fn warn(&self, message: &str) {
        if self.json {
            self.object(&json!({"type": "warning", "message": message}));
        } else {
            messages::print_stderr(&format!("warning: {message}"));
        }
    }

    /// Reports that a signal stops the server.
    pub(super) fn stopping(&self) {
        if !self.json {
            messages::print_stderr(
                "stopping; written data is made durable first (interrupt again to stop at once)",
            );
        }
    }

    /// Reports that the server has stopped.
    pub(super) fn stopped(&self) {
        if self.json {
            self.object(&json!({"type": "stopped", "durable": true}));
        } else {
            messages::print_line("stopped; all written data is durable");
        }
    }

    fn object(&self, object: &Value) {
        messages::print_line(&object.to_string());
    }
}

fn share_json(share: &RequestedShare) -> Value {
    json!({
        "name": share.name,
        "folder": share.place.to_string(),
        "far": share.is_far(),
        "read_only": share.read_only,
        "encrypt": share.encrypt,
    })
}

/// Returns one URL for each address and share. If the server listens on all addresses, the URL has
/// the server's name.
fn urls(addresses: &[SocketAddr], name: &str, shares: &[&RequestedShare], user: Option<&str>) -> Vec<String> {
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

/// Percent-encodes everything but unreserved characters (RFC 3986), as [`crate::url`] reads it.
pub(super) fn encode(text: &str) -> String {
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

fn accepted_users(users: &[String], login: &ServeLoginArgs) -> String {
    let mut names: Vec<&str> = users.iter().take(NAMES_SHOWN).map(String::as_str).collect();
    let more = users.len().saturating_sub(NAMES_SHOWN);
    let more = format!("{more} more");
    if users.len() > NAMES_SHOWN {
        names.push(&more);
    }
    if login.kerberos_users == KerberosUsers::Any {
        names.push("anyone with a ticket");
    }
    if login.guest {
        names.push("guest without a password");
    }
    if login.anonymous {
        names.push("anonymous");
    }
    if names.is_empty() {
        names.push("nobody");
    }
    names.join(", ")
}

/// Describes signing and encryption.
fn protection(args: &ServeArgs) -> String {
    use ropeway_smb_client::{Encryption, Signing};
    let sign = match args.protocol.sign {
        Signing::Required => "every request is signed",
        Signing::Offered => "signed if the client wants it",
    };
    let encrypt = match args.protocol.encrypt {
        Encryption::Off => "nothing is encrypted",
        Encryption::Desired => "encrypted if the client wants it",
        Encryption::Required => "everything is encrypted",
    };
    format!("{sign}; {encrypt}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(name: &str) -> RequestedShare {
        RequestedShare {
            name: name.to_owned(),
            place: std::path::PathBuf::from("/srv").into(),
            read_only: false,
            encrypt: false,
            time_machine: false,
            available: false,
            bin: None,
            snapshots: None,
            anonymous: false,
            links: Default::default(),
        }
    }

    #[test]
    fn printed_urls_can_be_parsed() {
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
    fn a_long_list_of_users_ends_with_a_count() {
        let users: Vec<String> = (0..10).map(|number| format!("u{number}")).collect();
        let mut login = ServeLoginArgs::none();
        assert!(accepted_users(&users, &login).ends_with("u7, 2 more"));
        assert_eq!(accepted_users(&[], &login), "nobody");
        login.anonymous = true;
        assert_eq!(accepted_users(&users[..1], &login), "u0, anonymous");
        login.guest = true;
        assert_eq!(accepted_users(&[], &login), "guest without a password, anonymous");
    }
}
