//! Deletions by a mirror, a backup, a move or a watch.

use std::path::{Path, PathBuf};

use crate::support::{Finished, Place, walk};

/// Backups are complete and survive.
mod backup;
/// Guards that keep a mirror from deleting.
mod guard;
/// Hard links that converge.
mod links;
/// Moves.
mod moves;
/// Rounds of a watch.
mod watch;

/// Writes a file and creates its parent folders.
pub(crate) fn put(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

pub(crate) fn reads(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs `mirror --json --yes FLAGS source target`.
pub(crate) fn mirror(place: &Place, flags: &[&str]) -> Finished {
    let run = place.ropeway("mirror").args(["--json", "--yes"]);
    run.args(flags).args(["source", "target"]).run()
}

/// Returns everything below a folder, relative to it.
pub(crate) fn below(root: &Path) -> Vec<PathBuf> {
    let nodes = walk(root);
    nodes
        .iter()
        .map(|path| path.strip_prefix(root).unwrap().to_owned())
        .collect()
}
