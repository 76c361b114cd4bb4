//! Files that nobody but their owner may read: passwords, hashes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ropeway_smb_client::Password;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::failure::{Failure, code};

/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;
/// Largest password file that is read: far more than a line needs. Bytes.
const PASSWORD_BYTES_MAX: usize = 64 << 10;

/// A file that only its owner may read, who is this user or root; `None` if there is no such file. `what` is what messages
/// call it: `the password file`.
///
/// # Errors
/// It cannot be opened, or others can read it.
pub(crate) fn file(path: &Path, what: &str) -> Result<Option<File>, Failure> {
    super::keep_private();
    let place = path.display();
    let fault = |error: &io::Error| cannot_read(path, what, error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(&error)),
    };
    let metadata = file.metadata().map_err(|error| fault(&error))?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!("{what} {place} is no ordinary file")).hint("give a file"));
    }
    let owner_is_trusted = metadata.uid() == geteuid().as_raw() || metadata.uid() == 0;
    if metadata.mode() & OTHERS != 0 {
        return Err(
            Failure::new(code::PERMISSION, format!("others may read {what} {place}")).hint(format!(
                "chmod 600 {place}; and change what stands there if it was seen"
            )),
        );
    }
    if !owner_is_trusted {
        return Err(Failure::new(
            code::PERMISSION,
            format!("{what} {place} belongs to another user"),
        )
        .hint("run this as that user, or use a file of your own"));
    }
    Ok(Some(file))
}

fn cannot_read(path: &Path, what: &str, error: &io::Error) -> Failure {
    let message = format!("cannot read {what} {}: {error}", path.display());
    Failure::of_end(message, error, code::USAGE).hint("check the path, and who owns it")
}

/// The text of a file of at most `bytes_max` bytes that only its owner may read, who is this user or root; `None` if there is
/// no such file. `what` is what messages call it: `the password file`.
///
/// # Errors
/// It cannot be read, others can read it, or it is no text.
pub(crate) fn text(path: &Path, what: &str, bytes_max: usize) -> Result<Option<Zeroizing<String>>, Failure> {
    let place = path.display();
    let fault = |error: &io::Error| cannot_read(path, what, error);
    let Some(mut file) = file(path, what)? else {
        return Ok(None);
    };
    let metadata = file.metadata().map_err(|error| fault(&error))?;
    // Never grows, so no copy of it is left behind; wiped however it ends.
    let size = usize::try_from(metadata.len())
        .unwrap_or(usize::MAX)
        .min(bytes_max);
    let mut bytes = Zeroizing::new(Vec::with_capacity(size + 1));
    let read = (&mut file).take(size as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| fault(&error))?;
    if bytes.len() > size {
        return Err(Failure::usage(format!(
            "{what} {place} is longer than {bytes_max} bytes, or grows"
        ))
        .hint("give the right file"));
    }
    match std::str::from_utf8(&bytes) {
        // Windows editors begin a file with a byte-order mark.
        Ok(text) => Ok(Some(Zeroizing::new(
            text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(),
        ))),
        Err(_) => Err(Failure::usage(format!("{what} {place} is not UTF-8")).hint("write it as UTF-8 text")),
    }
}

/// The password in the first line of a file that only its owner may read.
///
/// # Errors
/// There is none, or others may read it.
pub(crate) fn password(path: &Path) -> Result<Password, Failure> {
    let place = path.display();
    let text = text(path, "the password file", PASSWORD_BYTES_MAX)?.ok_or_else(|| {
        Failure::usage(format!("there is no password file {place}"))
            .hint("give a 0600 file whose first line is the password")
    })?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(Password::from(line)),
        None => Err(
            Failure::usage(format!("the password file {place} has no password"))
                .hint("its first line is the password"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_private_line_is_a_password_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        assert_eq!(password(&path).err().unwrap().code, code::USAGE);
        fs::write(&path, " secret \r\nhunter2").unwrap();
        for (mode, expected) in [
            (0o644, Some(code::PERMISSION)),
            (0o620, Some(code::PERMISSION)),
            (0o600, None),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                password(&path).err().map(|failure| failure.code),
                expected,
                "{mode:o}"
            );
        }
        assert_eq!(password(&path).unwrap().expose(), " secret ");
        for content in [&b""[..], b"\nx", b"\xff\xfe"] {
            fs::write(&path, content).unwrap();
            assert_eq!(password(&path).err().unwrap().code, code::USAGE);
        }
        assert_eq!(password(folder.path()).err().unwrap().code, code::USAGE);
        fs::write(&path, "12345").unwrap();
        assert!(text(&path, "it", 4).is_err());
        assert_eq!(text(&path, "it", 5).unwrap().unwrap().as_str(), "12345");
    }
}
