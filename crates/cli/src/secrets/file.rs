//! Credentials files in the format of mount.cifs(8): `username=`, `password=` and `domain=` lines.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ropeway_smb_client::Password;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use super::Secret;
use crate::failure::{Failure, code};
use crate::url::Server;

/// Largest file that is read: far more than three lines need. Bytes.
const BYTES_MAX: usize = 64 << 10;
/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// What a file says.
pub(super) struct Credentials {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) domain: Option<String>,
}

impl Credentials {
    /// Whether it speaks of the user who is to log in there.
    pub(super) fn is_of(&self, server: &Server) -> bool {
        let same = |own: &Option<String>, asked: &Option<String>| match (own, asked) {
            (Some(own), Some(asked)) => own.to_lowercase() == asked.to_lowercase(),
            _ => true,
        };
        same(&self.user, &server.user) && same(&self.domain, &server.domain)
    }
}

/// Reads a file that only its owner may read.
pub(super) fn read(path: &Path) -> Result<Credentials, Failure> {
    let place = path.display();
    let fault = |error: &std::io::Error| {
        let message = format!("cannot read the credentials {place}: {error}");
        Failure::of_end(message, error, code::USAGE).hint("give a file with username= and password= lines")
    };
    let file = File::open(path).map_err(|error| fault(&error))?;
    let metadata = file.metadata().map_err(|error| fault(&error))?;
    if metadata.is_dir() {
        return Err(
            Failure::usage(format!("the credentials {place} are a folder")).hint("give the file in it")
        );
    }
    let owner_is_trusted = metadata.uid() == geteuid().as_raw() || metadata.uid() == 0;
    if metadata.mode() & OTHERS != 0 || !owner_is_trusted {
        return Err(Failure::new(
            code::PERMISSION,
            format!("others may read the credentials {place}, or own them"),
        )
        .hint(format!(
            "chmod 600 {place}; and change the password if it was seen"
        )));
    }
    // Never grows, so no copy of it is left behind; wiped with everything in it.
    let mut text = Zeroizing::new(Vec::with_capacity(BYTES_MAX + 1));
    let read = file.take(BYTES_MAX as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| fault(&error))?;
    if text.len() > BYTES_MAX {
        return Err(
            Failure::usage(format!("the credentials {place} are longer than 64 KiB"))
                .hint("give a file with username= and password= lines"),
        );
    }
    let Ok(text) = std::str::from_utf8(&text) else {
        return Err(
            Failure::usage(format!("the credentials {place} are not UTF-8")).hint("write them as UTF-8 text")
        );
    };
    parse(text).map_err(|line| {
        Failure::usage(format!(
            "{place}:{line}: neither username=, password= nor domain="
        ))
        .hint("one of these a line, as mount.cifs has them; # begins a comment")
    })
}

/// Parses the text; on failure gives the line's number, not the line: it may be a password.
fn parse(text: &str) -> Result<Credentials, usize> {
    let mut credentials = Credentials {
        user: None,
        password: None,
        domain: None,
    };
    // Windows editors begin a file with a byte-order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        // Blanks in front belong to nothing, those behind may belong to a password.
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').ok_or(index + 1)?;
        match key.trim_end().to_ascii_lowercase().as_str() {
            "username" | "user" => {
                // mount.cifs takes `domain\user` and `domain/user` too.
                let (domain, user) = match value.split_once(['\\', '/']) {
                    Some((domain, user)) => (Some(domain), user),
                    None => (None, value),
                };
                credentials.user = Some(user.trim().to_owned());
                if let Some(domain) = domain {
                    credentials.domain = Some(domain.trim().to_owned());
                }
            }
            "password" | "pass" => {
                credentials.password = Some(Secret::Clear(Password::from(value)));
            }
            "domain" | "dom" | "workgroup" => credentials.domain = Some(value.trim().to_owned()),
            _ => return Err(index + 1),
        }
    }
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    credentials.user = filled(credentials.user);
    credentials.domain = filled(credentials.domain);
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn clear(credentials: &Credentials) -> &str {
        match &credentials.password {
            Some(Secret::Clear(password)) => password.expose(),
            _ => panic!("no password"),
        }
    }

    #[test]
    fn lines_as_mount_cifs_has_them() {
        let parsed = parse("# mine\n username=ann\r\npassword= a=b #c \n\ndomain=WORK\n").unwrap();
        assert_eq!(parsed.user.as_deref(), Some("ann"));
        assert_eq!(clear(&parsed), " a=b #c ");
        assert_eq!(parsed.domain.as_deref(), Some("WORK"));
        let parsed = parse("User=WORK\\ann\ndomain=").unwrap();
        assert_eq!((parsed.user.as_deref(), parsed.domain), (Some("ann"), None));
        assert!(parsed.password.is_none());
        assert_eq!(parse("username=ann\nhunter2\n").err(), Some(2));
        assert_eq!(parse("port=1\n").err(), Some(1));
    }

    #[test]
    fn users_and_keys_as_mount_cifs_spells_them() {
        for (text, user, domain) in [
            ("username=WORK\\ann", "ann", Some("WORK")),
            ("username=WORK/ann", "ann", Some("WORK")),
            ("USER = ann \ndom=WORK", "ann", Some("WORK")),
            ("domain=HOME\nuser=WORK\\ann", "ann", Some("WORK")),
            ("user=ann@corp.example", "ann@corp.example", None),
            ("workgroup=WORK\nusername=ann", "ann", Some("WORK")),
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!(parsed.user.as_deref(), Some(user), "{text}");
            assert_eq!(parsed.domain.as_deref(), domain, "{text}");
        }
        for (text, password) in [
            ("pass=a", "a"),
            ("password=", ""),
            ("PASSWORD=#no comment", "#no comment"),
            ("password=a\\b/c,d@e;f%g", "a\\b/c,d@e;f%g"),
            ("password=pässwörd \r\n", "pässwörd "),
        ] {
            assert_eq!(clear(&parse(text).unwrap()), password, "{text}");
        }
    }

    #[test]
    fn what_is_no_text_or_too_much_is_refused_without_being_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        let long = format!("password=hunter2\n#{}", "x".repeat(BYTES_MAX));
        for content in [&b"password=hunter2\xFF"[..], long.as_bytes()] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let failure = read(&path).err().unwrap();
            assert_eq!(failure.code, code::USAGE);
            assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        fs::write(&path, "username=ann\npassword=hunter2\nnonsense hunter2\n").unwrap();
        for (mode, expected) in [
            (0o644, code::PERMISSION),
            (0o640, code::PERMISSION),
            (0o600, code::USAGE),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let failure = read(&path).err().unwrap();
            assert_eq!(failure.code, expected, "{failure:?}");
            assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
            assert!(failure.hint.is_some());
        }
        fs::write(&path, "username=ann\npassword=hunter2\n").unwrap();
        assert_eq!(clear(&read(&path).ok().unwrap()), "hunter2");
        assert_eq!(read(&folder.path().join("none")).err().unwrap().code, code::USAGE);
        assert_eq!(read(folder.path()).err().unwrap().code, code::USAGE);
    }
}
