//! What was said of a server once. A share that keeps neither owners nor permissions keeps those of no
//! upload, so this is said at the first one.
//!
//! `$XDG_STATE_HOME/ropeway/told` has one line for each: the server, a tab, the loss. Without the file, or if
//! it cannot be written, everything is said again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use ropeway_copy::{private_folder, private_options};
use ropeway_vfs::Loss;

use crate::boot;
use crate::place::Place;

/// Largest file that is read; a larger one begins anew. Some 1,000 servers.
const BYTES_MAX: u64 = 64 << 10;

/// Losses that depend on the server and the login alone. All others are said each time.
const OF_SERVERS: [(Loss, &str); 2] = [(Loss::Owner, "owner"), (Loss::Mode, "mode")];

/// Returns the losses that were said of a target's server before, and remembers that the others are said
/// now.
pub(crate) fn told_before(target: &Place, losses: &BTreeMap<Loss, u64>) -> BTreeSet<Loss> {
    let Place::Remote(url) = target else {
        return BTreeSet::new();
    };
    let Some(file) = boot::jobs_folder().and_then(|jobs| Some(jobs.parent()?.join("told"))) else {
        return BTreeSet::new();
    };
    let known = read(&file).unwrap_or_default();
    let (before, new) = sorted(&known, &url.server.to_string(), losses);
    if !new.is_empty() {
        // Best effort: otherwise it is said again.
        _ = append(&file, &new);
    }
    before
}

/// Sorts losses into those of which the text knows, and the lines to add for the others. Pure.
fn sorted(known: &str, server: &str, losses: &BTreeMap<Loss, u64>) -> (BTreeSet<Loss>, String) {
    let (mut before, mut new) = (BTreeSet::new(), String::new());
    for (loss, name) in OF_SERVERS.iter().filter(|(loss, _)| losses.contains_key(loss)) {
        let line = format!("{server}\t{name}");
        match known.lines().any(|known| known == line) {
            true => _ = before.insert(*loss),
            false => new.push_str(&format!("{line}\n")),
        }
    }
    (before, new)
}

fn read(file: &Path) -> io::Result<String> {
    match fs::metadata(file)?.len() > BYTES_MAX {
        true => {
            fs::remove_file(file)?;
            Ok(String::new())
        }
        false => fs::read_to_string(file),
    }
}

fn append(file: &Path, lines: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        private_folder(folder)?;
    }
    let mut output = private_options().create(true).append(true).open(file)?;
    // One call, so that two runs at once do not mix their lines.
    output.write_all(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_a_server_is_said_once() {
        let losses = BTreeMap::from([(Loss::Owner, 3), (Loss::Mode, 3), (Loss::Acl, 1)]);
        let (before, new) = sorted("", "ann@nas", &losses);
        assert!(before.is_empty());
        assert_eq!(new, "ann@nas\towner\nann@nas\tmode\n");
        let (before, more) = sorted(&new, "ann@nas", &losses);
        assert_eq!(before, BTreeSet::from([Loss::Owner, Loss::Mode]));
        assert_eq!(more, "");
        // Another server, or the same one with another login, is another matter.
        assert!(sorted(&new, "bob@nas", &losses).0.is_empty());
    }
}
