//! Operations on names: removing, renaming, finding without regard to case.

use std::sync::Arc;

use ropeway_smb_wire::{NtStatus, upcase};
use ropeway_vfs::store::Removal;
use ropeway_vfs::{Error, ErrorKind, FileId, Kind, Name, Op, RelPath, Result};

use super::node_cache::Known;
use super::shared::Shared;
use super::shared_file::SharedFile;
use super::writing::{is_lost, is_status};
use crate::error::LostReason;
use crate::login;
use crate::smb_tree::errors::tree_error;
use crate::smb_tree::paths;

/// Prefix of the names of removed files that are still open.
const TEMPORARY: &[u8] = b".ropeway-removed-";

/// Attempts to remove a name whose removal was sent, and its reply lost.
const ATTEMPTS: usize = 3;

/// Whether a name is that of a removed file that is still open.
pub(super) fn is_temporary(name: &Name) -> bool {
    name.as_bytes().starts_with(TEMPORARY)
}

/// Returns a new temporary path in a folder.
pub(super) fn temporary(op: Op, path: &RelPath, folder: &RelPath) -> Result<RelPath> {
    let number: [u8; 8] = login::random().map_err(|error| tree_error(op, path, error))?;
    let name = [
        TEMPORARY,
        format!("{:016x}", u64::from_le_bytes(number)).as_bytes(),
    ]
    .concat();
    let name = Name::new(&name).expect("letters, digits and hyphens are a name");
    Ok(folder.join(&name))
}

impl Shared {
    /// Removes a name.
    pub(super) async fn remove(self: &Arc<Self>, path: &RelPath, directory: bool) -> Result<()> {
        if path.is_root() {
            return Err(Error::new(Op::Remove, path, ErrorKind::Misuse));
        }
        self.give_up_ahead_now(path).await;
        if !directory && let Some(file) = self.open_at(path).await {
            return self.remove_open(&file, path).await;
        }
        if !directory && self.tree.dirty.holds(path) {
            self.tree.flush_linked(path).await?;
        }
        self.changed(path);
        let _barred = match directory {
            true => {
                let barred = self.listings_ahead.bar(path).await;
                self.close_folders_below(path);
                Some(barred)
            }
            false => None,
        };
        self.tree.note_change(path);
        let mut removed = self.tree.remove(path, directory).await;
        for _ in 0..ATTEMPTS {
            if !removed
                .as_ref()
                .is_err_and(|error| is_lost(error, &LostReason::OutcomeUnknown))
            {
                break;
            }
            removed = match self.ask(Op::Remove, path).await {
                Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
                _ => self.tree.remove(path, directory).await,
            };
        }
        if directory && removed.is_err() {
            removed = self.removal_error(path, removed).await;
        }
        self.changed_below(path);
        if removed.is_ok() {
            for file in self.files.at(path) {
                file.removed(path, None);
            }
        }
        removed
    }

    /// Distinguishes a file from a folder that is not empty: some servers refuse both alike.
    async fn removal_error(self: &Arc<Self>, path: &RelPath, refused: Result<()>) -> Result<()> {
        match self.ask(Op::Remove, path).await {
            Ok(stat) if stat.kind != Kind::Directory => {
                Err(Error::new(Op::Remove, path, ErrorKind::NotADirectory))
            }
            _ => refused,
        }
    }

    /// Removes a node if the name is still its own.
    pub(super) async fn remove_node(
        self: &Arc<Self>,
        id: FileId,
        path: &RelPath,
        what: Removal,
    ) -> Result<()> {
        let stat = self.check_id(id, path).await?;
        if what == Removal::EmptyFile && stat.size > 0 {
            return Err(Error::new(Op::Remove, path, ErrorKind::NotEmpty));
        }
        self.remove(path, what == Removal::Directory).await
    }

    /// Returns the file at a path that this store has in use, open on the server as its nodes need it.
    async fn open_at(&self, path: &RelPath) -> Option<Arc<SharedFile>> {
        let mut files = self.files.at(path).into_iter();
        let file = files.find(|file| file.is_open() || file.is_used())?;
        file.open_for_nodes().await.is_ok().then_some(file)
    }

    /// Removes a file that is open: it gets a temporary name, and the server deletes it when it is
    /// closed. At once, the name would stay until then.
    async fn remove_open(self: &Arc<Self>, file: &Arc<SharedFile>, path: &RelPath) -> Result<()> {
        self.keep_links(file, path).await?;
        self.changed(path);
        let hidden = self.hide(Op::Remove, path).await;
        self.changed(path);
        let hidden = hidden.map_err(|error| Error {
            op: Op::Remove,
            path: path.clone(),
            ..error
        })?;
        file.removed(path, Some(&hidden));
        self.tree.note_change(path);
        // Deleted now, it disappears with the last handle.
        self.remove_hidden(&hidden).await
    }

    /// Makes what was written to a file durable if it has other names than the one that is about to
    /// go, and has later writes flushed too.
    pub(super) async fn keep_links(&self, file: &Arc<SharedFile>, path: &RelPath) -> Result<()> {
        if file.kind == Kind::File && self.tree.flush_linked(path).await? {
            file.linked();
            file.sync().await?;
        }
        Ok(())
    }

    /// Gives an open file a temporary name, and returns it: in the topmost folder, so that its own
    /// can be removed or renamed meanwhile, or beside its old name where that is refused.
    pub(super) async fn hide(&self, op: Op, path: &RelPath) -> Result<RelPath> {
        let folder = path.parent().unwrap_or_default();
        if !folder.is_root() {
            let hidden = temporary(op, path, &RelPath::root())?;
            match self.tree.rename(path, &hidden, false).await {
                Ok(()) => return Ok(hidden),
                Err(error) if error.kind == ErrorKind::NotFound => return Err(error),
                // No right to the topmost folder, or it is on another volume.
                Err(error) => tracing::debug!(%error, "a removed file stays in its folder"),
            }
        }
        let hidden = temporary(op, path, &folder)?;
        self.tree.rename(path, &hidden, false).await?;
        Ok(hidden)
    }

    /// Deletes a file with a temporary name, as soon as its last handle is closed.
    pub(super) async fn remove_hidden(&self, hidden: &RelPath) -> Result<()> {
        let removed = self.tree.remove_pending(hidden).await;
        // Nothing of it needs to be flushed any more.
        self.tree.dirty.forget(hidden);
        match removed {
            Err(error) if matches!(error.kind, ErrorKind::NotFound) => Ok(()),
            // Sent twice, as the first reply was lost.
            Err(error) if is_status(&error, NtStatus::DELETE_PENDING) => Ok(()),
            removed => removed,
        }
    }

    /// Renames a node.
    pub(super) async fn rename(self: &Arc<Self>, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        if from.is_root() || to.is_root() {
            return Err(Error::new(Op::Rename, from, ErrorKind::Misuse));
        }
        if to != from && to.strip_prefix(from).is_some() {
            return Err(Error::new(Op::Rename, to, ErrorKind::PermissionDenied));
        }
        self.give_up_ahead_now(from).await;
        self.give_up_ahead_now(to).await;
        let source = self.stat(Op::Rename, from).await?;
        let mut replaced = match replace && from != to {
            true => self.make_way(&source, from, to).await?,
            false => None,
        };
        if replace && from != to && self.tree.dirty.holds(to) {
            self.tree.flush_linked(to).await?;
        }
        self.forget_names(from, to);
        let _barred = match source.kind {
            Kind::Directory => {
                let barred = (
                    self.listings_ahead.bar(from).await,
                    self.listings_ahead.bar(to).await,
                );
                self.close_folders_below(from);
                self.close_folders_below(to);
                Some(barred)
            }
            _ => None,
        };
        let mut renamed = self.tree.rename(from, to, replace).await;
        let is_in_use = |error: &Error| matches!(error.kind, ErrorKind::PermissionDenied | ErrorKind::Busy);
        if renamed.as_ref().is_err_and(is_in_use) && source.kind == Kind::Directory {
            // Servers do not rename a folder while a file beneath it is open.
            for file in self.files.below(from) {
                file.release().await?;
            }
            // A CLOSE may be on another connection than what follows.
            self.tree.wait_for_closes().await;
            renamed = self.tree.rename(from, to, replace).await;
        } else if renamed.as_ref().is_err_and(is_in_use) && replace && replaced.is_none() {
            // A task in the background may have opened the file in the way meanwhile, to write or
            // flush the rest of it.
            replaced = self.make_way(&source, from, to).await?;
            renamed = self.tree.rename(from, to, replace).await;
        }
        self.forget_names(from, to);
        if let Err(error) = renamed {
            if let Some((file, hidden)) = replaced {
                self.restore(&file, &hidden, to).await;
            }
            return Err(error);
        }
        if let Some((_, hidden)) = replaced {
            self.remove_hidden(&hidden).await?;
        }
        self.tree.note_change(from);
        self.tree.note_change(to);
        for file in self.files.at(to) {
            if file.id != source.id {
                file.removed(to, None);
            }
        }
        self.moved_below(from, to);
        if source.kind == Kind::Directory {
            self.close_moved(to).await;
        }
        Ok(())
    }

    /// Notes the new paths of what is in use at and beneath a renamed node.
    fn moved_below(&self, from: &RelPath, to: &RelPath) {
        for file in self.files.below(from) {
            for path in file.names() {
                if let Some(rest) = path.strip_prefix(from) {
                    file.moved(&path, &to.join_path(&rest));
                }
            }
        }
    }

    /// Closes the files beneath a renamed folder; each is opened again when it is needed. smbd may
    /// rename a folder with open files (Samba 4.17: one whose name is not ASCII), but knows these by
    /// their old names then. It would delete one for good when its new name is removed, and refuse to
    /// rename a folder with the old name.
    async fn close_moved(self: &Arc<Self>, folder: &RelPath) {
        for file in self.files.below(folder) {
            // One that was removed could not be opened again.
            if file.path().is_some()
                && let Err(error) = file.release().await
            {
                // The next fsync fails, too.
                tracing::debug!(%error, "a moved file stays open");
            }
        }
    }

    fn forget_names(&self, from: &RelPath, to: &RelPath) {
        self.changed_below(from);
        self.changed_below(to);
    }

    /// Gives an open file in the way of a rename a temporary name: servers do not replace open
    /// files. Returns it with that name.
    async fn make_way(
        self: &Arc<Self>,
        source: &ropeway_vfs::store::NodeStat,
        from: &RelPath,
        to: &RelPath,
    ) -> Result<Option<(Arc<SharedFile>, RelPath)>> {
        let in_the_way = self.open_at(to).await.filter(|file| file.id != source.id);
        let Some(file) = in_the_way.filter(|_| source.kind != Kind::Directory && from != to) else {
            return Ok(None);
        };
        self.keep_links(&file, to).await?;
        let hidden = self.hide(Op::Rename, to).await?;
        file.removed(to, Some(&hidden));
        Ok(Some((file, hidden)))
    }

    /// Gives a file its name back after a failed rename.
    async fn restore(self: &Arc<Self>, file: &Arc<SharedFile>, hidden: &RelPath, to: &RelPath) {
        match self.tree.rename(hidden, to, false).await {
            Ok(()) => file.found_at(to),
            Err(error) => tracing::warn!(%error, "a file keeps a temporary name after a failed rename"),
        }
        self.changed(to);
    }

    /// Finds a path without regard to case. An exact match of a name wins.
    pub(super) async fn resolve(self: &Arc<Self>, path: &RelPath) -> Result<RelPath> {
        let names: Vec<Name> = path.components().collect();
        let mut found = RelPath::root();
        for (index, name) in names.iter().enumerate() {
            let is_last = index + 1 == names.len();
            found = match self.find_name(&found, name).await? {
                Some(name) => found.join(&name),
                None if is_last => found.join(name),
                None => return Err(Error::new(Op::Stat, path, ErrorKind::NotFound)),
            };
        }
        Ok(found)
    }

    /// Finds the spelling of a name in a folder, in one round trip.
    async fn find_name(self: &Arc<Self>, dir: &RelPath, name: &Name) -> Result<Option<Name>> {
        let fold = |name: &Name| upcase::fold(&paths::wire_name(name));
        let wanted = fold(name);
        let listed = self.cache.lock().listing(dir, self.now());
        let names: Vec<Name> = match listed {
            Some(entries) => entries.iter().map(|(name, _)| name.clone()).collect(),
            None => match self.tree.names_matching(dir, name).await {
                Ok(names) => names,
                Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Err(self.is_no_folder(dir, error).await);
                }
                Err(error) if error.kind == ErrorKind::NameRefused => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        if names.contains(name) {
            return Ok(Some(name.clone()));
        }
        Ok(names.into_iter().find(|other| fold(other) == wanted))
    }

    async fn is_no_folder(self: &Arc<Self>, dir: &RelPath, error: Error) -> Error {
        match self.known(dir) {
            Some(Known::There(stat)) if stat.kind != Kind::Directory => {
                Error::new(Op::Stat, dir, ErrorKind::NotADirectory)
            }
            _ => error,
        }
    }
}
