//! Names that come back when a file is replaced through its short name ([MS-FSA] 2.1.1.2).
//!
//! A program that knows only short names saves a file by deleting or renaming the old one and
//! creating a new one with the short name. The new file then gets the long name of the old one, if
//! it comes soon enough.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_smb_wire::{Text, upcase};
use ropeway_vfs::{Name, RelPath};

/// Time for which a name is kept ([MS-FSA] 2.1.1.2).
const KEPT: Duration = Duration::from_secs(15);
/// Maximum number of names; the oldest one goes. A guess: programs that use short names are rare.
const NAMES_MAX: usize = 256;

/// The names of files that were removed through their short names.
#[derive(Debug, Default)]
pub(crate) struct Tunnel(Mutex<VecDeque<Entry>>);

#[derive(Debug)]
struct Entry {
    since: Duration,
    share: u32,
    folder: RelPath,
    short: Text,
    long: Name,
}

impl Entry {
    fn is_for(&self, share: u32, folder: &RelPath, short: &Text) -> bool {
        self.share == share && self.folder == *folder && upcase::equal(&self.short, short)
    }
}

impl Tunnel {
    /// Notes that `short` was the name under which the file at `path` was removed or renamed.
    pub(crate) fn removed(&self, now: Duration, share: u32, path: &RelPath, short: &Text) {
        let (Some(folder), Some(long)) = (path.parent(), path.file_name()) else {
            return;
        };
        let mut names = self.0.lock();
        names.retain(|entry| !entry.is_for(share, &folder, short));
        if names.len() >= NAMES_MAX {
            names.pop_front();
        }
        names.push_back(Entry {
            since: now,
            share,
            folder,
            short: short.clone(),
            long,
        });
    }

    /// Returns the path that a file created at `path` gets, and forgets the name.
    pub(crate) fn restored(
        &self,
        now: Duration,
        share: u32,
        path: &RelPath,
        short: &Text,
    ) -> Option<RelPath> {
        let folder = path.parent()?;
        let mut names = self.0.lock();
        while names.front().is_some_and(|oldest| oldest.since + KEPT < now) {
            names.pop_front();
        }
        let at = names
            .iter()
            .position(|entry| entry.is_for(share, &folder, short))?;
        names.remove(at).map(|entry| folder.join(&entry.long))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_long_name_comes_back_once_and_soon() {
        let (tunnel, second) = (Tunnel::default(), Duration::from_secs);
        let (short, other) = (Text::from("LO~12345.TXT"), Text::from("LO~54321.TXT"));
        let long = path("docs/long name.txt");
        let new = path("docs/LO~12345.TXT");
        tunnel.removed(second(1), 0, &long, &short);
        assert_eq!(tunnel.restored(second(2), 0, &new, &other), None);
        assert_eq!(tunnel.restored(second(2), 1, &new, &short), None);
        assert_eq!(tunnel.restored(second(2), 0, &path("LO~12345.TXT"), &short), None);
        let lower = Text::from("lo~12345.txt");
        assert_eq!(tunnel.restored(second(2), 0, &new, &lower), Some(long.clone()));
        assert_eq!(tunnel.restored(second(2), 0, &new, &short), None);
        tunnel.removed(second(1), 0, &long, &short);
        assert_eq!(tunnel.restored(second(17), 0, &new, &short), None);
    }

    #[test]
    fn it_is_bounded() {
        let tunnel = Tunnel::default();
        for number in 0..2 * NAMES_MAX {
            let short = Text::from(format!("A~{number:05}").as_str());
            tunnel.removed(Duration::ZERO, 0, &path("a/b"), &short);
        }
        assert_eq!(tunnel.0.lock().len(), NAMES_MAX);
    }
}
