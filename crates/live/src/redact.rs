//! Command lines without secrets.
//!
//! Passwords are never needed on a command line of ropeway, and every user of the machine could read
//! them there. A snapshot still shows none: not in URLs, not in options, and nothing of a command that
//! ropeway runs for somebody but its name.

use std::ffi::OsStr;

use crate::text::{bounded, clean};

/// Most arguments that are kept, and most characters of each. Guesses: enough to recognize a command.
const ARGUMENTS_MAX: usize = 64;
const ARGUMENT_MAX: usize = 512;

/// What stands for a secret.
const HIDDEN: &str = "***";

/// Names of options whose value is a secret.
const SECRETS: [&str; 9] = [
    "password",
    "passwd",
    "pass",
    "passphrase",
    "secret",
    "token",
    "api-key",
    "apikey",
    "credential",
];

/// Returns a command line without secrets.
pub fn arguments<S: AsRef<OsStr>>(given: impl IntoIterator<Item = S>) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    let mut given = given.into_iter();
    let mut value_is_secret = false;
    while let Some(argument) = given.next() {
        if shown.len() >= ARGUMENTS_MAX {
            shown.push("…".to_owned());
            return shown;
        }
        let text = argument.as_ref().to_string_lossy();
        if text == "--" {
            shown.push(text.into_owned());
            // What follows is another program's, whose options nobody here knows.
            shown.extend(
                given
                    .next()
                    .map(|program| argument_of(&program.as_ref().to_string_lossy())),
            );
            shown.extend(given.next().map(|_| "…".to_owned()));
            return shown;
        }
        shown.push(match value_is_secret {
            true => HIDDEN.to_owned(),
            false => argument_of(&text),
        });
        value_is_secret =
            !value_is_secret && text.starts_with('-') && is_secret(text.trim_start_matches('-'));
    }
    shown
}

/// Returns a text, such as a URL, without the password that it may have.
pub fn text(given: &str) -> String {
    argument_of(given)
}

fn argument_of(given: &str) -> String {
    let parts: Vec<String> = given.split(',').map(value_of_option).collect();
    let joined = parts.join(",");
    bounded(&clean(&without_passwords(&joined)), ARGUMENT_MAX)
}

/// Hides the value of `password=…`, with or without dashes in front.
fn value_of_option(part: &str) -> String {
    match part.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_secret(name.trim_start_matches('-').trim()) => {
            format!("{name}={HIDDEN}")
        }
        _ => part.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

/// Hides the password of each `scheme://user:password@host`.
fn without_passwords(given: &str) -> String {
    let Some(at) = given.find("://") else {
        return given.to_owned();
    };
    let (head, rest) = given.split_at(at + 3);
    let end = rest.find(['/', '?', '#', ' ']).unwrap_or(rest.len());
    let (authority, after) = rest.split_at(end);
    if let Some((login, host)) = authority.rsplit_once('@') {
        let user = login.split(':').next().unwrap_or_default();
        let login = match login.contains(':') {
            true => format!("{user}:{HIDDEN}"),
            false => login.to_owned(),
        };
        return format!("{head}{login}@{host}{}", without_passwords(after));
    }
    // A password with a slash makes no URL, but it is one all the same.
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (authority.split_once(':'), after.rsplit_once('@')) {
        (Some((user, port)), Some((_, host))) if !is_port(port) && !authority.starts_with('[') => {
            format!("{head}{user}:{HIDDEN}@{host}")
        }
        _ => format!("{head}{authority}{}", without_passwords(after)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(line: &str) -> String {
        arguments(line.split(' ')).join(" ")
    }

    #[test]
    fn ordinary_command_lines_stay_as_they_are() {
        for line in [
            "ropeway copy -T --bwlimit 20M a/b smb://ann@nas:4450/share/x@2x.png",
            "ropeway serve --listen 0.0.0.0:445 --password-file /etc/x --keyring user /srv",
            "ropeway mount smb://[::1]:445/s /mnt -o ro,uid=1000",
            "ropeway copy a:b c=d",
        ] {
            assert_eq!(shown(line), line);
        }
    }

    #[test]
    fn passwords_are_hidden() {
        for (line, expected) in [
            ("smb://ann:geheim@nas/s", "smb://ann:***@nas/s"),
            ("smb://dom;ann:ge:h@eim@nas:445/s", "smb://dom;ann:***@nas:445/s"),
            ("smb://ann:ge/heim@nas/s", "smb://ann:***@nas/s"),
            ("--password geheim x", "--password *** x"),
            ("--password=geheim x", "--password=*** x"),
            ("-o ro,password=geheim,uid=1", "-o ro,password=***,uid=1"),
            ("link -- smbclient -U ann%geheim", "link -- smbclient …"),
            ("link -- ls", "link -- ls"),
        ] {
            assert_eq!(shown(line), expected);
        }
    }

    #[test]
    fn a_long_command_line_is_cut() {
        let many = vec!["x".repeat(10_000); 1000];
        let shown = arguments(&many);
        assert_eq!(shown.len(), ARGUMENTS_MAX + 1);
        assert!(
            shown
                .iter()
                .all(|argument| argument.chars().count() <= ARGUMENT_MAX)
        );
    }

    proptest! {
        #[test]
        fn no_password_of_a_url_is_shown(user in "[a-z]{1,8}", secret in "[A-Z][A-Z0-9:@/%;=]{0,12}Q", path in "[a-z/]{0,9}") {
            let url = format!("smb://{user}:{secret}@nas/{path}");
            let shown = arguments(["copy", &url, "x"]).join(" ");
            prop_assert!(!shown.contains(&secret), "{shown}");
        }

        #[test]
        fn no_value_of_a_secret_option_is_shown(secret in "[A-Z0-9:@/%;]{3,12}", at in 0..SECRETS.len(), style in 0..3) {
            let name = SECRETS[at];
            let line: Vec<String> = match style {
                0 => vec![format!("--{name}"), secret.clone()],
                1 => vec![format!("--{name}={secret}")],
                _ => vec!["-o".into(), format!("ro,{name}={secret},rw")],
            };
            let shown = arguments(&line).join(" ");
            prop_assert!(!shown.contains(&secret), "{shown}");
        }

        #[test]
        fn any_command_line_is_bounded(line in proptest::collection::vec(".*", 0..80)) {
            let shown = arguments(&line);
            prop_assert!(shown.len() <= ARGUMENTS_MAX + 1);
            prop_assert!(shown.iter().all(|argument| !argument.chars().any(char::is_control)));
        }
    }
}
