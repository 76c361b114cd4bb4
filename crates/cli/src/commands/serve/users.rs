//! The file of users: who may log in, by NT hash.
//!
//! ```text
//! # Users of ropeway serve; `ropeway serve user add|rm|list` keeps this file.
//! ann:8846f7eaee8fb117ad06bdd830b7586c
//! ```
//!
//! NTLM needs the hash, and the hash is as good as the password, so the file is its owner's alone. It is replaced whole, under a
//! lock of its folder: neither a reader nor a second writer sees half of it.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ropeway_smb_proto::secret::NtHash;
use ropeway_smb_wire::Text;
use ropeway_smb_wire::upcase;
use zeroize::Zeroizing;

use crate::failure::{Failure, code};
use crate::secrets::private;

/// Most users. A guess: a directory service is for more.
const USERS_MAX: usize = 10_000;
/// Longest name, in UTF-16 units: Windows logs nobody in with more than 104, and shows 20.
const NAME_UNITS_MAX: usize = 104;
/// Largest file: as many of the longest names, with room. Bytes.
const BYTES_MAX: usize = 4 << 20;
/// What messages call it.
const WHAT: &str = "the file of users";
/// First line.
const HEADING: &str = "# Users of ropeway serve; `ropeway serve user add|rm|list` keeps this file.\n";

/// Users and their hashes, sorted by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Users(Vec<(String, NtHash)>);

impl Users {
    /// Reads the file; a missing one has no users.
    ///
    /// # Errors
    /// Others may read it, it cannot be read, or it is no such file.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        match private::text(path, WHAT, BYTES_MAX)? {
            Some(text) => Self::parse(&text).map_err(|line| {
                Failure::usage(format!("{}:{line}: no line of a user", path.display()))
                    .hint("lines are NAME:HASH, as `ropeway serve user add` writes them")
            }),
            None => Ok(Self::default()),
        }
    }

    /// Parses the text; on failure gives the line's number, not the line.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut users = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line.rsplit_once(':').ok_or(number)?;
            let hash = NtHash::from_hex(hash).ok_or(number)?;
            let is_new = check_name(name).is_ok() && users.find(name).is_none();
            if !is_new || users.0.len() >= USERS_MAX {
                return Err(number);
            }
            users.0.push((name.to_owned(), hash));
        }
        users.sort();
        Ok(users)
    }

    fn sort(&mut self) {
        self.0.sort_by_key(|(name, _)| name.to_lowercase());
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// The folder takes no file.
    fn store(&self, path: &Path) -> Result<(), Failure> {
        let mut text = Zeroizing::new(String::with_capacity(BYTES_MAX.min(256 + self.0.len() * 300)));
        text.push_str(HEADING);
        for (name, hash) in &self.0 {
            _ = write!(text, "{name}:");
            for byte in hash.expose() {
                _ = write!(text, "{byte:02x}");
            }
            text.push('\n');
        }
        replace(path, text.as_bytes()).map_err(|error| cannot_write(path, &error))
    }

    /// The hash of a user; case does not count.
    pub(super) fn find(&self, name: &str) -> Option<&NtHash> {
        let name = Text::from(name);
        let is_it = |(own, _): &&(String, NtHash)| upcase::equal(&Text::from(own.as_str()), &name);
        self.0.iter().find(is_it).map(|(_, hash)| hash)
    }

    /// The names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a user, or gives one another hash; whether it is new.
    pub(super) fn set(&mut self, name: &str, hash: NtHash) -> bool {
        let was_there = self.remove(name);
        self.0.push((name.to_owned(), hash));
        self.sort();
        !was_there
    }

    /// Removes a user; whether there was one.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let name = Text::from(name);
        let before = self.0.len();
        self.0
            .retain(|(own, _)| !upcase::equal(&Text::from(own.as_str()), &name));
        self.0.len() != before
    }
}

/// Reads the file, lets it be changed, and writes it; nobody else changes it meanwhile. Nothing is written if `change` fails.
///
/// # Errors
/// As reading, changing and writing.
pub(super) fn change<T>(
    path: &Path,
    change: impl FnOnce(&mut Users) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let folder = folder_of(path);
    fs::create_dir_all(folder).map_err(|error| cannot_write(path, &error))?;
    let lock = File::open(folder).map_err(|error| cannot_write(path, &error))?;
    lock.lock().map_err(|error| cannot_write(path, &error))?;
    let mut users = Users::load(path)?;
    let result = change(&mut users)?;
    if users.len() > USERS_MAX {
        return Err(Failure::usage(format!("there are {USERS_MAX} users already")).hint("remove some"));
    }
    users.store(path)?;
    Ok(result)
}

/// Whether a user can be called so; else why not.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    /// What Windows does not let names have, and what would end a line or a field here.
    const FORBIDDEN: &str = "\"/\\[]:;|=,+*?<>@#";
    if name.is_empty() {
        return Err("it is empty");
    }
    if name.encode_utf16().count() > NAME_UNITS_MAX {
        return Err("it is too long");
    }
    if name.trim() != name {
        return Err("blanks stand around it");
    }
    if name.chars().any(|c| c.is_control() || FORBIDDEN.contains(c)) {
        return Err("none of \"/\\[]:;|=,+*?<>@# may be in it");
    }
    if ["anonymous", "guest"].contains(&name.to_lowercase().as_str()) {
        return Err("it stands for nobody");
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot write the file of users {}: {error}", path.display());
    Failure::of_end(message, error, code::TARGET).hint("choose another with --users FILE")
}

/// A new file with that content takes the place of the old one.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = folder_of(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new: PathBuf = folder.join(name);
    // What a killed run of the same number left.
    _ = fs::remove_file(&new);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(folder)?.sync_all()
    })();
    if written.is_err() {
        _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const HASH: &str = "8846f7eaee8fb117ad06bdd830b7586c";

    fn hash() -> NtHash {
        NtHash::from_hex(HASH).unwrap()
    }

    #[test]
    fn users_are_kept_whatever_their_case() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/users");
        assert_eq!(Users::load(&path).unwrap().len(), 0);
        assert!(change(&path, |users| Ok(users.set("Zoë", hash()))).unwrap());
        assert!(change(&path, |users| Ok(users.set("ann", hash()))).unwrap());
        assert!(!change(&path, |users| Ok(users.set("zoË", hash()))).unwrap());
        let users = Users::load(&path).unwrap();
        assert_eq!(users.names().collect::<Vec<_>>(), ["ann", "zoË"]);
        assert_eq!(users.find("ANN").unwrap().expose(), hash().expose());
        assert!(users.find("an").is_none());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path().join("below")).unwrap().count(), 1);
        assert!(change(&path, |users| Ok(users.remove("Ann"))).unwrap());
        assert_eq!(Users::load(&path).unwrap().len(), 1);
    }

    #[test]
    fn a_change_that_fails_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let failed = change::<()>(&path, |users| {
            users.set("ann", hash());
            Err(Failure::usage("no"))
        });
        assert!(failed.is_err() && !path.exists());
    }

    #[test]
    fn lines_that_are_no_users_are_named_by_number() {
        assert_eq!(Users::parse(&format!("# x\n\nann:{HASH}\n")).unwrap().len(), 1);
        for (text, line) in [
            ("ann\n".to_owned(), 1),
            (format!("#\nann:{}\n", &HASH[1..]), 2),
            (format!("ann:{HASH}\nANN:{HASH}\n"), 2),
            (format!(":{HASH}\n"), 1),
            (format!("a:b:{HASH}\n"), 1),
        ] {
            assert_eq!(Users::parse(&text).err(), Some(line), "{text}");
        }
    }

    #[test]
    fn others_must_not_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, format!("ann:{HASH}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let failure = Users::load(&path).unwrap_err();
        assert_eq!(failure.code, code::PERMISSION);
        assert!(!format!("{failure:?}").contains(HASH));
    }

    #[test]
    fn names_that_cannot_be() {
        for bad in [
            "",
            " a",
            "a:b",
            "a\\b",
            "a\nb",
            "Guest",
            "anonymous",
            &"x".repeat(105),
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for good in ["ann", "Ann Smith", "zoë", "a.b-c_d$", &"x".repeat(104)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
    }
}
