//! The sessions at far servers, kept so that the next process can end them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::journal::{JournalError, folder_of_all, io_error, replace};

const NAME: &str = "sessions";
/// Longest file that is read, in bytes.
const BYTES_MAX: u64 = 64 << 10;

/// The numbers of the last sessions at far servers: `DIR/write-back/sessions`, a line each.
///
/// What a killed process had sent may still be on the line when the next one writes. By the number of the
/// old session the far server ends it first, and refuses what arrives late.
#[derive(Debug)]
pub struct SessionFile {
    folder: PathBuf,
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    /// Of earlier processes. Each is given out once: the sessions of this process must go on.
    before: BTreeMap<String, u64>,
    /// What the file says.
    noted: BTreeMap<String, u64>,
}

impl SessionFile {
    /// Opens the file of a cache's folder, which this process must hold.
    ///
    /// # Errors
    /// The folder cannot be used, or the file cannot be read.
    pub fn open(cache: &Path) -> Result<Self, JournalError> {
        let folder = folder_of_all(cache)?;
        let mut text = String::new();
        match File::open(folder.join(NAME)) {
            Ok(file) => {
                let read = file.take(BYTES_MAX).read_to_string(&mut text);
                read.map_err(|error| io_error(&folder.join(NAME), error))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(&folder.join(NAME), error)),
        }
        let before = parse(&text);
        let sessions = Mutex::new(Sessions {
            noted: before.clone(),
            before,
        });
        Ok(Self { folder, sessions })
    }

    /// Returns the session that an earlier process had with a login (a server and a user), once.
    pub fn last(&self, login: &str) -> Option<u64> {
        self.sessions.lock().before.remove(login)
    }

    /// Notes the session of a login, durably.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begins(&self, login: &str, session: u64) -> io::Result<()> {
        if login.contains('\n') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut sessions = self.sessions.lock();
        sessions.noted.insert(login.to_owned(), session);
        let lines = sessions.noted.iter();
        let text: String = lines.map(|(login, id)| format!("{id:016x} {login}\n")).collect();
        replace(&self.folder, NAME, text.as_bytes())
    }
}

/// Reads the file. Lines that are none of ours say nothing: then no session is ended.
fn parse(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(id, login)| Some((login.to_owned(), u64::from_str_radix(id, 16).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_given_to_the_next_process_once() {
        let cache = tempfile::tempdir().unwrap();
        let first = SessionFile::open(cache.path()).unwrap();
        assert_eq!(first.last("nas:445"), None);
        first.begins("nas:445", 7).unwrap();
        first.begins("other", 0xFEDC_BA98_7654_3210).unwrap();
        first.begins("nas:445", 9).unwrap();
        // Not its own.
        assert_eq!(first.last("nas:445"), None);
        let second = SessionFile::open(cache.path()).unwrap();
        assert_eq!((second.last("nas:445"), second.last("nas:445")), (Some(9), None));
        second.begins("nas:445", 10).unwrap();
        let third = SessionFile::open(cache.path()).unwrap();
        assert_eq!(third.last("other"), Some(0xFEDC_BA98_7654_3210));
        assert_eq!(third.last("nas:445"), Some(10));
    }

    #[test]
    fn a_damaged_file_ends_no_session() {
        let cache = tempfile::tempdir().unwrap();
        let folder = folder_of_all(cache.path()).unwrap();
        std::fs::write(folder.join(NAME), "zz nas\n5\n\n 1 nas\n0000000000000003 b\n").unwrap();
        let file = SessionFile::open(cache.path()).unwrap();
        assert_eq!((file.last("nas"), file.last("b")), (None, Some(3)));
    }
}
