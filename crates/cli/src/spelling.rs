//! Spellings of places that other programs use: UNC names, drive letters, `host:path`, other URLs.
//!
//! A UNC name is another spelling of an `smb://` URL and is accepted. Everything else that names a
//! place this program cannot reach is refused with what to write instead. Otherwise a copy to
//! `nas:backup` would make a local file of that name. A local file whose name looks like this is
//! written with a path before it: `./nas:backup`.
//!
//! Reading is pure: bytes in, a verdict out. Whether a name exists on this machine is asked by the
//! caller ([`Spelling::HostPath`], [`Spelling::Slashes`], [`Spelling::Switch`]).

use crate::habits::robocopy;

/// What the spelling of an argument says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// A path on this machine.
    Path,
    /// A URL that begins with `smb://` or `smb1://`.
    Smb,
    /// A UNC name with backslashes, as a URL.
    Unc(Vec<u8>),
    /// `//server/share`, as a URL. On this machine it is also the path `/server/share`.
    Slashes(Vec<u8>),
    /// `host:path`, as scp, rsync and mount write it, or a local name with a colon.
    HostPath(Refusal),
    /// A switch of Robocopy, or a path.
    Switch(Refusal),
    /// A place that this program cannot reach.
    Refused(Refusal),
}

/// Why a spelling is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What the spelling means elsewhere, as a clause.
    pub(crate) message: String,
    /// What to write instead.
    pub(crate) hint: String,
}

/// Reads the spelling of an argument.
pub(crate) fn spelling(argument: &[u8]) -> Spelling {
    if let Some((scheme, rest)) = scheme(argument) {
        return of_scheme(&scheme, rest, argument);
    }
    if let Some(rest) = argument.strip_prefix(br"\\") {
        return unc(rest, argument);
    }
    if argument.first() == Some(&b'\\') && argument.len() > 1 {
        return Spelling::HostPath(Refusal {
            message: "this begins with one backslash; the shell removes others".to_owned(),
            hint: format!(
                r"put a UNC name into quotes: '\\server\share\path'; {}",
                local_name(argument)
            ),
        });
    }
    if let Some(rest) = argument.strip_prefix(b"//")
        && rest.first().is_some_and(|first| *first != b'/')
        && rest.contains(&b'/')
    {
        return Spelling::Slashes(url_of(rest, b'/'));
    }
    drive(argument)
        .or_else(|| host_path(argument))
        .or_else(|| switch(argument))
        .unwrap_or(Spelling::Path)
}

/// Splits `scheme:` off, if `//` or `\\` follows (RFC 3986, 3.1). The scheme is in lower case.
fn scheme(argument: &[u8]) -> Option<(String, &[u8])> {
    let colon = argument.iter().position(|byte| *byte == b':')?;
    let (scheme, rest) = (&argument[..colon], &argument[colon + 1..]);
    let is_scheme = scheme.len() > 1
        && scheme[0].is_ascii_alphabetic()
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    let is_url = rest.starts_with(b"//") || rest.starts_with(br"\\");
    (is_scheme && is_url).then(|| (String::from_utf8_lossy(scheme).to_ascii_lowercase(), rest))
}

fn of_scheme(scheme: &str, rest: &[u8], argument: &[u8]) -> Spelling {
    if matches!(scheme, "smb" | "smb1") && rest.starts_with(b"//") {
        return Spelling::Smb;
    }
    let after = String::from_utf8_lossy(&rest[2..]).replace('\\', "/");
    let hint = match scheme {
        "smb1" => format!("write smb1://{after}"),
        "smb" | "cifs" => format!("write smb://{after}"),
        "file" => format!("write the path alone: /{}", after.trim_start_matches('/')),
        "sftp" | "scp" | "ssh" => {
            "mount it first, for example with sshfs, or run ropeway on that machine".to_owned()
        }
        "nfs" => "mount it first (mount -t nfs), and give the folder".to_owned(),
        "rsync" => "share the folder on that machine by SMB, or use rsync".to_owned(),
        _ => "ropeway copies between local paths and smb:// shares; mount it first, for example with `rclone mount`"
            .to_owned(),
    };
    Spelling::Refused(Refusal {
        message: match scheme {
            "smb1" => "smb1: URLs are written with slashes".to_owned(),
            "smb" | "cifs" => format!("{scheme}: URLs are written with smb:// and slashes"),
            "file" => "file: URLs are not read".to_owned(),
            _ => format!("{scheme}: URLs are not supported"),
        },
        hint: format!("{hint}; {}", local_name(argument)),
    })
}

/// Reads what follows `\\`: `server\share\path`, also as `?\UNC\server\share\path` ([MS-DTYP] 2.2.57).
fn unc(rest: &[u8], argument: &[u8]) -> Spelling {
    let refused = |message: &str, hint: &str| {
        Spelling::Refused(Refusal {
            message: message.to_owned(),
            hint: format!("{hint}; {}", local_name(argument)),
        })
    };
    let long = rest.strip_prefix(br"?\").filter(|rest| {
        rest.get(..4)
            .is_some_and(|begin| begin.eq_ignore_ascii_case(br"UNC\"))
    });
    let name = match long {
        Some(long) => &long[4..],
        None if rest.starts_with(br"?\") || rest.starts_with(br".\") => {
            return refused(
                "a Windows device path, and this is not Windows",
                "give a path of this machine",
            );
        }
        None => rest,
    };
    let server = name.split(|byte| *byte == b'\\').next().unwrap_or_default();
    if server.is_empty() {
        return refused("this UNC name has no server", r"the form is \\server\share\path");
    }
    // `server@SSL` and `server@port` are WebDAV.
    if server.contains(&b'@') || server.contains(&b':') {
        return refused(
            r"a UNC name has no user and no port",
            "write smb://user@server:port/share/path",
        );
    }
    Spelling::Unc(url_of(name, b'\\'))
}

/// Returns the URL of `server/share/path` with another separator.
fn url_of(name: &[u8], separator: u8) -> Vec<u8> {
    let mut url = b"smb://".to_vec();
    for byte in name {
        match byte {
            b'%' => url.extend_from_slice(b"%25"),
            byte if *byte == separator => url.push(b'/'),
            // A backslash in the name of a file, not a separator.
            b'\\' => url.extend_from_slice(b"%5C"),
            byte => url.push(*byte),
        }
    }
    url
}

/// Reads `C:`, `C:\path` and `C:/path`.
fn drive(argument: &[u8]) -> Option<Spelling> {
    let is_drive =
        matches!(argument, [letter, b':'] | [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
    is_drive.then(|| {
        Spelling::HostPath(Refusal {
            message: "this is a drive letter of Windows".to_owned(),
            hint: format!(
                r"give a path of this machine, or the share: smb://user@server/share/path; {}",
                local_name(argument)
            ),
        })
    })
}

/// Reads `[user@]host:path` and `host::module`: a colon before the first slash, behind what can be
/// the name of a host.
fn host_path(argument: &[u8]) -> Option<Spelling> {
    let colon = argument.iter().position(|byte| *byte == b':')?;
    let (before, path) = (&argument[..colon], &argument[colon + 1..]);
    let host = before.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
    let can_be_host = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
    if before.contains(&b'/') || host.is_empty() || !host.iter().all(can_be_host) {
        return None;
    }
    let place = String::from_utf8_lossy(path);
    let place = place.trim_start_matches(':').trim_start_matches(['/', '\\']);
    let share = match place {
        "" => "SHARE".to_owned(),
        place => format!("SHARE/{}", place.replace('\\', "/")),
    };
    let server = match before.contains(&b'@') {
        true => String::from_utf8_lossy(before).into_owned(),
        false => format!("user@{}", String::from_utf8_lossy(before)),
    };
    Some(Spelling::HostPath(Refusal {
        message: "this names a place on another machine as scp and rsync write it".to_owned(),
        hint: format!(
            "for an SMB share write smb://{server}/{share}; {}",
            local_name(argument)
        ),
    }))
}

/// Reads a switch of Robocopy, such as `/MIR`.
fn switch(argument: &[u8]) -> Option<Spelling> {
    let instead = robocopy(argument)?;
    let name = String::from_utf8_lossy(argument);
    Some(Spelling::Switch(Refusal {
        message: "this is a switch of Robocopy".to_owned(),
        hint: format!("{instead}; a path of this name is written /.{name}"),
    }))
}

/// Says how to name a local file so.
fn local_name(argument: &[u8]) -> String {
    format!(
        "a local file of this name is written ./{}",
        String::from_utf8_lossy(argument)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unc_of(text: &str) -> String {
        match spelling(text.as_bytes()) {
            Spelling::Unc(url) | Spelling::Slashes(url) => String::from_utf8(url).unwrap(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn unc_names_are_urls() {
        assert_eq!(unc_of(r"\\nas\photos\f1"), "smb://nas/photos/f1");
        assert_eq!(unc_of(r"\\nas\photos\50%\a b"), "smb://nas/photos/50%25/a b");
        assert_eq!(unc_of(r"\\?\UNC\nas\photos"), "smb://nas/photos");
        assert_eq!(unc_of(r"\\?\unc\nas\photos\"), "smb://nas/photos/");
        assert_eq!(unc_of("//nas/backup"), "smb://nas/backup");
        assert_eq!(unc_of(r"//nas/backup/a\b"), "smb://nas/backup/a%5Cb");
        assert_eq!(unc_of(r"\\nas"), "smb://nas");
    }

    #[test]
    fn paths_stay_paths() {
        for path in [
            "",
            "a",
            "/",
            "/a:b",
            "./nas:backup",
            "a/b:c",
            "///a/b",
            "//a",
            ":a",
            "a b:c",
            "~/x:y",
            ".",
            "..",
            "ü:x",
            "//",
        ] {
            assert_eq!(spelling(path.as_bytes()), Spelling::Path, "{path}");
        }
        assert_eq!(spelling(b"smb://nas/x"), Spelling::Smb);
        assert_eq!(spelling(b"SMB://nas/x"), Spelling::Smb);
        assert_eq!(spelling(b"smb1://nas/x"), Spelling::Smb);
    }

    #[test]
    fn places_that_cannot_be_reached_are_named_with_what_to_write() {
        for (given, message, hint) in [
            ("s3://bucket/x", "s3: URLs", "rclone mount"),
            ("sftp://nas/x", "sftp: URLs", "sshfs"),
            ("nfs://nas/x", "nfs: URLs", "mount -t nfs"),
            ("file:///a/b", "file: URLs", "the path alone: /a/b;"),
            ("cifs://nas/x", "smb://", "write smb://nas/x;"),
            (r"smb:\\nas\x", "smb://", "write smb://nas/x;"),
            (r"\\?\C:\x", "Windows device path", "path of this machine"),
            (r"\\", "has no server", r"\\server\share\path"),
            (r"\\nas@SSL\x", "no user and no port", "smb://user@server:port"),
        ] {
            let Spelling::Refused(refusal) = spelling(given.as_bytes()) else {
                panic!("{given}: {:?}", spelling(given.as_bytes()));
            };
            assert!(refusal.message.contains(message), "{given}: {refusal:?}");
            assert!(refusal.hint.contains(hint), "{given}: {refusal:?}");
            assert!(
                refusal.hint.contains(&format!("./{given}")),
                "{given}: {refusal:?}"
            );
        }
    }

    #[test]
    fn hosts_and_drives_are_refused_unless_a_file_has_that_name() {
        for (given, message, hint) in [
            ("nas:backup", "another machine", "smb://user@nas/SHARE/backup;"),
            ("nas:", "another machine", "smb://user@nas/SHARE;"),
            ("ann@nas:/x", "another machine", "smb://ann@nas/SHARE/x;"),
            (
                "nas::module/x",
                "another machine",
                "smb://user@nas/SHARE/module/x;",
            ),
            ("C:", "drive letter", "smb://user@server/share/path;"),
            (r"C:\x", "drive letter", "./C:\\x"),
            ("d:/x", "drive letter", "./d:/x"),
            (r"\nasphotos", "one backslash", r"'\\server\share\path'"),
        ] {
            let Spelling::HostPath(refusal) = spelling(given.as_bytes()) else {
                panic!("{given}: {:?}", spelling(given.as_bytes()));
            };
            assert!(refusal.message.contains(message), "{given}: {refusal:?}");
            assert!(refusal.hint.contains(hint), "{given}: {refusal:?}");
        }
    }

    proptest! {
        /// A path before a name always makes it a path.
        #[test]
        fn a_path_before_a_name_makes_it_a_path(name in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut local = b"./".to_vec();
            local.extend_from_slice(&name);
            prop_assert_eq!(spelling(&local), Spelling::Path);
            _ = spelling(&name);
        }
    }
}
