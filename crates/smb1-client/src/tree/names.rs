//! Operations on the paths of a tree.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use ropeway_smb_client::common::{Special, basic, change, id, losses, tree_error, wire_name, with_message};
use ropeway_smb_client::{
    Error as ClientError, FileAttributes, LostReason, NtStatus, Result as ClientResult, Text,
};
use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::reparse::{REPARSE_BUFFER_MAX, ReparseData};
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb_wire::upcase;
use ropeway_vfs::{Error, ErrorKind, Loss, Metadata, MetadataChange, Name, Op, RelPath, Result, Space};

use super::Inner;
use super::entries::Smb1Listing;
use crate::calls::{OpenHow, Stat, flush_request};
use crate::share::checked;

/// Queries for single nodes in flight; the server limits them further. A guess.
pub(super) const AT_ONCE: usize = 64;
/// Number of names from which on a folder is listed rather than queried name by name.
const LOOKUP_LISTS_FROM: usize = 32;
/// Longest time to wait for files that are being closed. A guess.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);

impl Inner {
    /// Maps the error of an operation on a path. Distinguishes a path through a file from a path
    /// that does not exist; servers have one status for both.
    pub(super) async fn map_error<T>(&self, op: Op, path: &RelPath, result: ClientResult<T>) -> Result<T> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let is_path = matches!(
            error.status(),
            Some(NtStatus::OBJECT_PATH_NOT_FOUND | NtStatus::OBJECT_PATH_SYNTAX_BAD)
        );
        let mut refined = tree_error(op, path, error);
        if is_path {
            refined.kind = ErrorKind::NotFound;
            let mut at = path.parent();
            while let Some(parent) = at.filter(|parent| !parent.is_root()) {
                let Ok(text) = self.base.text(op, &parent) else {
                    break;
                };
                match self.share.stat(&text, false).await {
                    Ok(stat) if !stat.is_directory => {
                        refined.kind = ErrorKind::NotADirectory;
                        break;
                    }
                    Ok(_) => break,
                    Err(_) => at = parent.parent(),
                }
            }
        }
        Err(refined)
    }

    /// Converts what a query returned.
    pub(super) fn metadata_of(&self, stat: &Stat) -> Metadata {
        Metadata {
            id: stat.index.and_then(|index| id(self.serial, index)),
            links: u64::from(stat.links.max(1)),
            ..basic(&stat.basic, stat.size, stat.allocated)
        }
    }

    /// Returns the metadata of a node, without following a link.
    pub(super) async fn stat(&self, op: Op, path: &RelPath) -> Result<Metadata> {
        let text = self.base.text(op, path)?;
        let stat = self.share.stat(&text, self.has_numbers).await;
        let stat = self.map_error(op, path, stat).await?;
        let mut metadata = self.metadata_of(&stat);
        if stat.basic.attributes.contains(FileAttributes::REPARSE_POINT) {
            self.read_special(op, path, &mut metadata).await?;
        }
        Ok(metadata)
    }

    /// Completes the metadata of a reparse point from its data. A server that does not show the data
    /// shows the content.
    pub(super) async fn read_special(&self, op: Op, path: &RelPath, metadata: &mut Metadata) -> Result<()> {
        if let Ok(Some(special)) = self.special(op, path).await {
            metadata.kind = special.kind;
            metadata.size = special.text.map_or(0, |text| text.len() as u64);
            metadata.device = special.device;
        }
        Ok(())
    }

    async fn special(&self, op: Op, path: &RelPath) -> Result<Option<Special>> {
        let text = self.base.text(op, path)?;
        let control = (CtlCode::GET_REPARSE_POINT.0, &[][..], REPARSE_BUFFER_MAX);
        let access = AccessMask::READ_ATTRIBUTES;
        let read = self
            .share
            .fsctl("read a reparse point", &text, access, control)
            .await;
        let data = self.map_error(op, path, read).await?;
        let decoded = ReparseData::decode(&data).map_err(|fault| tree_error(op, path, fault.into()))?;
        Ok(Special::of(&decoded))
    }

    pub(super) async fn read_link(&self, path: &RelPath) -> Result<Vec<u8>> {
        self.stat(Op::Stat, path).await?;
        let not_a_link = || with_message(Op::Stat, path, ErrorKind::Misuse, "it is not a symbolic link");
        match self.special(Op::Stat, path).await {
            Ok(special) => special.and_then(|special| special.text).ok_or_else(not_a_link),
            Err(error) if error.kind.verdict() == ropeway_vfs::Verdict::Skip => Err(not_a_link()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn lookup(
        self: &std::sync::Arc<Self>,
        dir: &RelPath,
        names: &[Name],
    ) -> Result<Vec<Result<Option<Metadata>>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let listed = match names.len() < LOOKUP_LISTS_FROM {
            true => None,
            false => Some(self.listed(dir, names).await?),
        };
        let listed = &listed;
        let lookups = names.iter().cloned().map(|name| async move {
            // Only the server knows how it folds other letters, and its short names.
            let is_plain = name.as_bytes().is_ascii() && !name.as_bytes().contains(&b'~');
            if let (Some(listed), true) = (listed, is_plain) {
                return Ok(listed.get(&folded(&name)).cloned());
            }
            match self.stat(Op::Stat, &dir.join(&name)).await {
                Ok(metadata) => Ok(Some(metadata)),
                // A name that the server cannot store does not exist.
                Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NameRefused) => Ok(None),
                Err(error) => Err(error),
            }
        });
        let found: Vec<_> = futures_util::stream::iter(lookups)
            .buffered(AT_ONCE)
            .collect()
            .await;
        let not_a_folder = Error::new(Op::Stat, dir, ErrorKind::NotADirectory);
        if found.iter().all(|one| matches!(one, Ok(None))) && listed.is_none() {
            // Either nothing exists or this is not a folder: one more query decides.
            if !self.stat(Op::Stat, dir).await?.is_dir() {
                return Err(not_a_folder);
            }
        }
        let through_file =
            |one: &Result<_>| matches!(one, Err(error) if error.kind == ErrorKind::NotADirectory);
        match found.iter().any(through_file) {
            true => Err(not_a_folder),
            false => Ok(found),
        }
    }

    /// Lists a folder and returns the metadata of these names, by folded name.
    async fn listed(
        self: &std::sync::Arc<Self>,
        dir: &RelPath,
        names: &[Name],
    ) -> Result<HashMap<Text, Metadata>> {
        use ropeway_vfs::Listing as _;
        let wanted: HashSet<Text> = names.iter().map(folded).collect();
        let at_dir = |error: Error| Error {
            op: Op::Stat,
            ..error
        };
        let mut listing = Smb1Listing::start(self, dir).await.map_err(at_dir)?;
        let mut found = HashMap::new();
        loop {
            let batch = listing.next(1024).await.map_err(at_dir)?;
            if batch.is_empty() {
                return Ok(found);
            }
            for entry in batch {
                let key = folded(&entry.name);
                if wanted.contains(&key) {
                    found.insert(key, entry.metadata?);
                }
            }
        }
    }

    pub(super) async fn make_dir(&self, path: &RelPath) -> Result<()> {
        let text = self.base.new_text(Op::MakeDir, path)?;
        if path.is_root() {
            return Err(Error::new(Op::MakeDir, path, ErrorKind::AlreadyExists));
        }
        let mut made = self.share.make_directory(&text).await;
        if made.as_ref().is_err_and(is_unknown) {
            made = match self.share.stat(&text, false).await {
                Ok(stat) if stat.is_directory => Ok(()),
                _ => self.share.make_directory(&text).await,
            };
        }
        self.map_error(Op::MakeDir, path, made).await
    }

    pub(super) async fn make_hard_link(&self, existing: &RelPath, new: &RelPath) -> Result<()> {
        let from = self.base.text(Op::Link, existing)?;
        let to = self.base.new_text(Op::Link, new)?;
        let linked = self.share.link(&from, &to).await;
        self.map_error(Op::Link, new, linked).await
    }

    pub(super) async fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        let text = self.base.text(Op::Remove, path)?;
        if path.is_root() {
            return Err(Error::new(Op::Remove, path, ErrorKind::Misuse));
        }
        self.wait_for_closes().await;
        let mut removed = self.remove_once(&text, directory).await;
        match removed.as_ref().err().and_then(ClientError::status) {
            Some(NtStatus::CANNOT_DELETE | NtStatus::ACCESS_DENIED) if self.make_writable(&text).await => {
                removed = self.remove_once(&text, directory).await;
            }
            _ => {}
        }
        if removed.as_ref().is_err_and(is_unknown) {
            removed = match self.share.stat(&text, false).await {
                Err(error) if is_missing(&error) => Ok(()),
                _ => self.remove_once(&text, directory).await,
            };
        }
        if let Err(error) = &removed {
            // Servers report a wrong kind in several ways.
            let found = self.share.stat(&text, false).await;
            let wrong = match found {
                Ok(stat) if stat.is_directory && !directory => Some(ErrorKind::IsADirectory),
                Ok(stat) if !stat.is_directory && directory => Some(ErrorKind::NotADirectory),
                _ => None,
            };
            if let Some(kind) = wrong {
                return Err(Error {
                    kind,
                    ..tree_error(Op::Remove, path, error.clone())
                });
            }
        }
        if removed.is_ok() {
            self.dirty.forget(path);
        }
        self.map_error(Op::Remove, path, removed).await
    }

    async fn remove_once(&self, text: &Text, directory: bool) -> ClientResult<()> {
        match directory {
            true => self.share.remove_directory(text).await,
            false => self.share.delete(text).await,
        }
    }

    /// Clears the read-only attribute. Returns whether it was set.
    pub(super) async fn make_writable(&self, text: &Text) -> bool {
        let Ok(stat) = self.share.stat(text, false).await else {
            return false;
        };
        if !stat.basic.attributes.contains(FileAttributes::READONLY) {
            return false;
        }
        let attributes = match stat.basic.attributes.difference(FileAttributes::READONLY) {
            none if none.is_empty() => FileAttributes::NORMAL,
            rest => rest,
        };
        let change = FileBasicInformation {
            attributes,
            ..FileBasicInformation::default()
        };
        self.share.set_basic(text, &change).await.is_ok()
    }

    pub(super) async fn set_metadata(&self, path: &RelPath, wanted: &MetadataChange) -> Result<Vec<Loss>> {
        let text = self.base.text(Op::SetAttributes, path)?;
        // Empty attributes of a folder must not become those of a plain file.
        let is_directory = match wanted.dos_attributes {
            Some(_) => self.stat(Op::SetAttributes, path).await?.is_dir(),
            None => false,
        };
        match change(wanted, is_directory) {
            Some(basic) => {
                let mut set = self.share.set_basic(&text, &basic).await;
                if set
                    .as_ref()
                    .is_err_and(|error| error.status() == Some(NtStatus::ACCESS_DENIED))
                {
                    set = self.set_opened(&text, &basic).await;
                }
                self.map_error(Op::SetAttributes, path, set).await?;
            }
            None => self.stat(Op::SetAttributes, path).await.map(drop)?,
        }
        Ok(all_losses(wanted))
    }

    /// Sets attributes through an open with just that right: some servers want more for a path.
    async fn set_opened(&self, text: &Text, basic: &FileBasicInformation) -> ClientResult<()> {
        use ropeway_smb_wire::info::Information as _;
        use ropeway_smb1::wire::trans2::Level;
        let how = OpenHow::existing(AccessMask::WRITE_ATTRIBUTES);
        let data = basic.to_bytes();
        let reply = self
            .share
            .open_for("set attributes", text, &how, |tid, fid| {
                crate::share::Share::set_file_request(tid, fid, Level::BASIC, &data)
            })
            .await?;
        checked("set attributes", reply).map(drop)
    }

    pub(super) async fn space(&self) -> Result<Space> {
        let space = self.share.space().await;
        let (total, available) = space.map_err(|error| tree_error(Op::Stat, &RelPath::root(), error))?;
        Ok(Space {
            total,
            available: available.min(total),
            nodes_available: None,
        })
    }

    /// Waits until all files dropped before are closed. Returns `false` if that takes too long.
    pub(crate) async fn wait_for_closes(&self) -> bool {
        tokio::time::timeout(CLOSE_WAIT_MAX, self.closes.write())
            .await
            .is_ok()
    }

    /// Flushes every file written since its last flush.
    pub(super) async fn sync(&self) -> Result<()> {
        let flush = |path: RelPath| async move { self.flush_path(&path).await };
        self.dirty.flush_all(AT_ONCE, flush).await
    }

    async fn flush_path(&self, path: &RelPath) -> Result<()> {
        let text = self.base.text(Op::Sync, path)?;
        let mut how = OpenHow::existing(AccessMask::WRITE_DATA);
        how.options |= CreateOptions::NON_DIRECTORY_FILE;
        let reply = self.share.open_for("flush", &text, &how, flush_request).await;
        let flushed = reply.and_then(|reply| checked("flush", reply)).map(drop);
        self.map_error(Op::Sync, path, flushed).await
    }
}

/// Returns the parts of a change that this tree cannot store.
pub(super) fn all_losses(wanted: &MetadataChange) -> Vec<Loss> {
    let mut lost = losses(wanted);
    let xattrs = wanted.xattrs.iter().flatten();
    lost.extend(xattrs.map(|xattr| Loss::of_xattr(&xattr.name)));
    lost
}

/// Whether the connection was lost after a request was sent.
pub(super) fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Lost(LostReason::OutcomeUnknown))
}

/// Whether a node does not exist.
pub(super) fn is_missing(error: &ClientError) -> bool {
    matches!(
        error.status(),
        Some(NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND | NtStatus::NO_SUCH_FILE)
    )
}

fn folded(name: &Name) -> Text {
    upcase::fold(&wire_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_cannot_be_kept_are_losses() {
        let wanted = MetadataChange {
            mode: Some(0o644),
            xattrs: Some(vec![ropeway_vfs::Xattr {
                name: b"user.a".to_vec(),
                value: b"1".to_vec(),
            }]),
            ..MetadataChange::default()
        };
        assert_eq!(all_losses(&wanted), [Loss::Mode, Loss::Xattr]);
    }
}
