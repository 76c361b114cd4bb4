//! Checks the promises after a run. The model knows the flags, and nothing of the program's workings.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use super::plan::{BACKUP_FOLDER, Backup, Command};
use super::snapshot::{Hash, Kind, Node, Snapshot};
use super::tree::History;

/// SMB keeps times in steps of 100 ns.
const GRAIN_NS: u128 = 100;

/// Input of a judgement.
pub(crate) struct Case<'a> {
    pub(crate) command: &'a Command,
    pub(crate) history: &'a History,
    /// Whether both ends are local, so that modes and kinds are kept.
    pub(crate) is_local: bool,
    /// The source before the last run.
    pub(crate) source: &'a Snapshot,
    /// The target before the last run.
    pub(crate) before: &'a Snapshot,
    /// The target after it.
    pub(crate) after: &'a Snapshot,
}

/// Whether `--exclude=*.tmp` leaves a path out.
fn is_excluded(path: &Path) -> bool {
    has_part(path, |name| name.ends_with(".tmp"))
}

/// Whether a name in a path is of some kind.
fn has_part(path: &Path, is_it: impl Fn(&str) -> bool) -> bool {
    path.components()
        .any(|part| is_it(&part.as_os_str().to_string_lossy()))
}

fn is_backup(command: &Command, path: &Path) -> bool {
    match command.backup {
        Backup::None => false,
        Backup::Suffix => has_part(path, |name| name.ends_with('~')),
        Backup::Folder => path.starts_with(BACKUP_FOLDER),
    }
}

/// Whether a part of the path is a temporary name.
pub(crate) fn is_temporary(path: &Path) -> bool {
    has_part(path, |name| name.starts_with(".ropeway-"))
}

/// Checks that every file with a final name is one whole version of that file, at any moment.
///
/// # Errors
/// Names a file that is not.
pub(crate) fn versions_are_whole(command: &Command, history: &History, target: &Snapshot) -> Result<()> {
    if command.inplace {
        return Ok(());
    }
    for (path, node) in target {
        let Some(hash) = node.hash() else { continue };
        if is_temporary(path) || is_backup(command, path) {
            continue;
        }
        // The name is a hard link to a file that looks equal.
        let is_another = || {
            let same = |(other, found): (&PathBuf, &Node)| {
                found.inode == node.inode && history.is_version(other, &hash)
            };
            node.links > 1 && target.iter().any(same)
        };
        ensure!(
            history.is_version(path, &hash) || is_another(),
            "{} ({} bytes) is no version of that file: partial or mixed",
            path.display(),
            node.size
        );
    }
    Ok(())
}

/// Returns the contents of all files.
pub(crate) fn contents(tree: &Snapshot) -> HashSet<Hash> {
    tree.values().filter_map(Node::hash).collect()
}

/// Returns the contents that backups must keep: all except those of temporary names and older backups.
pub(crate) fn worth_keeping(command: &Command, tree: &Snapshot) -> HashSet<Hash> {
    tree.iter()
        .filter(|(path, _)| !is_backup(command, path) && !is_temporary(path))
        .filter_map(|(_, node)| node.hash())
        .collect()
}

/// Checks that a tree did not change.
///
/// # Errors
/// Names the change.
pub(crate) fn untouched(what: &str, before: &Snapshot, after: &Snapshot) -> Result<()> {
    let gone = before.iter().find(|(path, node)| after.get(*path) != Some(node));
    if let Some((path, _)) = gone {
        bail!("{what}: {} was changed or removed", path.display());
    }
    match after.keys().find(|path| !before.contains_key(*path)) {
        Some(path) => bail!("{what}: {} appeared", path.display()),
        None => Ok(()),
    }
}

impl Case<'_> {
    /// Judges the last run, which should have finished the job. Returns whether an existing node of another
    /// kind kept it from that.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub(crate) fn judge(&self) -> Result<bool> {
        let mut is_blocked = false;
        for (path, node) in self.source {
            if self.command.exclude && is_excluded(path) {
                continue;
            }
            if self.blocked(path) {
                is_blocked = true;
                continue;
            }
            self.node(path, node)?;
        }
        self.hard_links()?;
        if self.command.mirror && !is_blocked {
            self.no_extras()?;
        }
        if !self.command.mirror {
            self.others_stay()?;
        }
        self.backups()?;
        Ok(is_blocked)
    }

    /// Whether a node of another kind exists that a copy does not replace.
    fn blocked(&self, path: &Path) -> bool {
        if self.command.mirror && !self.command.ignore_existing {
            return self.holds_excluded(path);
        }
        path.ancestors().any(|path| {
            let (Some(source), Some(target)) = (self.source.get(path), self.before.get(path)) else {
                return false;
            };
            let special = target.kind == Kind::Special && source.kind != Kind::Special;
            source.is_folder() != target.is_folder() || special
        })
    }

    /// Whether a folder is in the place of a file and holds excluded nodes, so that it stays.
    fn holds_excluded(&self, path: &Path) -> bool {
        self.command.exclude
            && path.ancestors().any(|path| {
                let folder = self.before.get(path).is_some_and(Node::is_folder);
                let file = self.source.get(path).is_some_and(|node| !node.is_folder());
                let inside = || {
                    self.before
                        .keys()
                        .any(|other| other.starts_with(path) && is_excluded(other))
                };
                folder && file && inside()
            })
    }

    fn node(&self, path: &Path, source: &Node) -> Result<()> {
        let Some(found) = self.after.get(path) else {
            bail!("{} is missing on the target", path.display());
        };
        let stood = self.before.get(path);
        if self.may_stay(path, source) && stood.is_some_and(|stood| stood.kind == found.kind) {
            return Ok(());
        }
        // A killed run left it, and no clock shows that the source has changed since.
        let is_left = !self.is_local && !self.command.checksum && stood.is_none();
        if is_left && looks_equal(source, found) && self.history.stealthy.contains(path) {
            return Ok(());
        }
        if self.is_linked_to_an_equal_one(source, found) {
            return Ok(());
        }
        ensure!(
            found.kind == source.kind,
            "{} differs: {:?} on the source, {:?} on the target",
            path.display(),
            short(source),
            short(found)
        );
        self.attributes(path, source, found)
    }

    /// Whether it is a hard link, as on the source, to a file that was rewritten with the same size and time.
    fn is_linked_to_an_equal_one(&self, source: &Node, found: &Node) -> bool {
        let is_one = |other: &PathBuf| {
            let same =
                |tree: &Snapshot, node: &Node| tree.get(other).is_some_and(|there| there.inode == node.inode);
            same(self.source, source) && same(self.after, found)
        };
        !self.command.checksum
            && looks_equal(source, found)
            && found.links > 1
            && self.history.stealthy.iter().any(is_one)
    }

    fn attributes(&self, path: &Path, source: &Node, found: &Node) -> Result<()> {
        // Additions by a user, a backup or another run change the time of a folder.
        let is_timed = !source.is_folder() && !self.command.ignore_existing;
        ensure!(
            !is_timed || source.modified.abs_diff(found.modified) < GRAIN_NS,
            "{}: modified {} on the source, {} on the target",
            path.display(),
            source.modified,
            found.modified
        );
        let has_mode =
            self.is_local && !matches!(source.kind, Kind::Link(_)) && !self.command.ignore_existing;
        ensure!(
            !has_mode || source.mode == found.mode,
            "{}: mode {:o} on the source, {:o} on the target",
            path.display(),
            source.mode,
            found.mode
        );
        Ok(())
    }

    /// Whether the flags keep the existing node, or it looks equal.
    fn may_stay(&self, path: &Path, source: &Node) -> bool {
        let Some(stood) = self.before.get(path) else {
            return false;
        };
        if source.is_folder() || stood.is_folder() {
            return false;
        }
        let newer = self.command.update && stood.modified > source.modified;
        let unseen =
            looks_equal(source, stood) && !self.command.checksum && self.history.stealthy.contains(path);
        self.command.ignore_existing || newer || unseen
    }

    /// Checks that hard links of one file are hard links of one copy.
    fn hard_links(&self) -> Result<()> {
        let command = self.command;
        if !self.is_local
            || command.no_hard_links
            || command.ignore_existing
            || command.update
            || command.moves
        {
            return Ok(());
        }
        let mut groups: BTreeMap<u64, Vec<&PathBuf>> = BTreeMap::new();
        for (path, node) in self.source {
            let left_out = self.blocked(path) || command.exclude && is_excluded(path);
            if node.is_file() && node.links > 1 && !left_out && !self.history.stealthy.contains(path) {
                groups.entry(node.inode).or_default().push(path);
            }
        }
        for group in groups.values() {
            let inodes: HashSet<u64> = group.iter().map(|path| self.after[*path].inode).collect();
            ensure!(
                inodes.len() == 1,
                "{} and its other names are one file on the source, {} on the target",
                group[0].display(),
                inodes.len()
            );
        }
        Ok(())
    }

    /// Checks that a mirror leaves no node that the source lacks.
    fn no_extras(&self) -> Result<()> {
        let command = self.command;
        for path in self.after.keys() {
            let belongs = self.source.contains_key(path) && !(command.exclude && is_excluded(path));
            let holds_kept = || {
                let kept = |other: &PathBuf| {
                    other.starts_with(path)
                        && (command.exclude && is_excluded(other) || is_backup(command, other))
                };
                self.after.keys().any(kept)
            };
            ensure!(
                belongs || holds_kept(),
                "{} should have been deleted",
                path.display()
            );
        }
        Ok(())
    }

    /// Checks that nodes that the source lacks, or that are excluded, are unchanged.
    fn others_stay(&self) -> Result<()> {
        for (path, node) in self.before {
            let is_ours = self.source.contains_key(path) && !(self.command.exclude && is_excluded(path));
            // The time of a folder changes with its content.
            if is_ours || is_backup(self.command, path) || is_temporary(path) || node.is_folder() {
                continue;
            }
            let found = self.after.get(path);
            ensure!(
                found.is_some_and(|found| found.kind == node.kind),
                "{} stood on the target, not on the source, and is gone or changed",
                path.display()
            );
        }
        Ok(())
    }

    /// Checks that replaced and deleted contents have backups.
    fn backups(&self) -> Result<()> {
        if self.command.backup == Backup::None {
            return Ok(());
        }
        let kept = contents(self.after);
        let mut worth = worth_keeping(self.command, self.before);
        if self.command.inplace {
            // A file that a stopped run left partly written is no version.
            let is_whole = |(path, node): (&PathBuf, &Node)| {
                node.hash().filter(|hash| self.history.is_version(path, hash))
            };
            let whole: HashSet<Hash> = self.before.iter().filter_map(is_whole).collect();
            worth.retain(|hash| whole.contains(hash));
        }
        let lost = worth.iter().filter(|hash| !kept.contains(*hash)).count();
        ensure!(
            lost == 0,
            "{lost} contents that stood on the target have no backup"
        );
        Ok(())
    }
}

fn looks_equal(source: &Node, target: &Node) -> bool {
    source.is_file()
        && target.is_file()
        && target.size == source.size
        && target.modified.abs_diff(source.modified) < GRAIN_NS
}

fn short(node: &Node) -> String {
    match &node.kind {
        Kind::File(hash) => format!("file of {} bytes, {:02x}{:02x}…", node.size, hash[0], hash[1]),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: u8, modified: i128) -> Node {
        Node {
            kind: Kind::File([content; 32]),
            size: 1,
            mode: 0o644,
            modified,
            inode: u64::from(content),
            links: 1,
        }
    }

    fn tree(nodes: &[(&str, Node)]) -> Snapshot {
        nodes
            .iter()
            .map(|(path, node)| (path.into(), node.clone()))
            .collect()
    }

    fn judge(command: &Command, source: &Snapshot, before: &Snapshot, after: &Snapshot) -> Result<bool> {
        let history = History::default();
        let case = Case {
            command,
            history: &history,
            is_local: true,
            source,
            before,
            after,
        };
        case.judge()
    }

    #[test]
    fn a_wrong_content_a_missing_file_and_an_extra_are_found() {
        let source = tree(&[("a", file(1, 5)), ("b", file(2, 5))]);
        let (empty, plain) = (Snapshot::new(), Command::default());
        let mirror = Command {
            mirror: true,
            ..Command::default()
        };
        assert!(!judge(&plain, &source, &empty, &source).unwrap());
        let mixed = tree(&[("a", file(9, 5)), ("b", file(2, 5))]);
        assert!(judge(&plain, &source, &empty, &mixed).is_err());
        assert!(judge(&plain, &source, &empty, &tree(&[("a", file(1, 5))])).is_err());
        let more = tree(&[("a", file(1, 5)), ("b", file(2, 5)), ("c", file(3, 5))]);
        assert!(judge(&plain, &source, &empty, &more).is_ok());
        assert!(judge(&mirror, &source, &more, &more).is_err());
        assert!(
            judge(&plain, &source, &more, &source).is_err(),
            "a copy deletes nothing"
        );
    }

    #[test]
    fn what_is_replaced_must_be_kept_where_backups_are_asked_for() {
        let command = Command {
            backup: Backup::Suffix,
            ..Command::default()
        };
        let (source, before) = (tree(&[("a", file(1, 5))]), tree(&[("a", file(2, 4))]));
        assert!(judge(&command, &source, &before, &source).is_err());
        let kept = tree(&[("a", file(1, 5)), ("a~", file(2, 4))]);
        assert!(judge(&command, &source, &before, &kept).is_ok());
    }

    #[test]
    fn partial_files_are_no_versions() {
        let mut history = History::default();
        history.learn(&tree(&[("a", file(1, 5))]));
        let command = Command::default();
        assert!(versions_are_whole(&command, &history, &tree(&[("a", file(1, 9))])).is_ok());
        assert!(versions_are_whole(&command, &history, &tree(&[("a", file(2, 9))])).is_err());
        let temporary = tree(&[(".ropeway-1-2", file(2, 9))]);
        assert!(versions_are_whole(&command, &history, &temporary).is_ok());
    }
}
