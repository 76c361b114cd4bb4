//! Renames.

use std::time::Duration;

use futures_util::StreamExt as _;
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::{Error, ErrorKind, Loss, MetadataChange, Name, Op, RelPath, Result};

use super::errors::tree_error;
use super::inner::Inner;
use super::map;
use super::names::AT_ONCE;
use crate::error::{Error as ClientError, LostReason, Result as ClientResult};
use crate::tree::ATTEMPTS;

/// Maximum time that a rename waits for our own files to be dropped. Servers do not rename a folder
/// while a file below it is open, and a task that holds one may be about to drop it. A guess.
const OPEN_WAIT_MAX: Duration = Duration::from_millis(200);

fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Lost(LostReason::OutcomeUnknown))
}

impl Inner {
    pub(crate) async fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let (old, new) = (
            self.base.text(Op::Rename, from)?,
            self.base.new_text(Op::Rename, to)?,
        );
        if from.is_root() || to.is_root() {
            return Err(Error::new(Op::Rename, from, ErrorKind::Misuse));
        }
        if from == to {
            return self.stat(Op::Rename, from).await.map(drop);
        }
        let mut renamed = self.rename_verified(&old, &new, replace).await;
        let in_use = |error: &ClientError| {
            let status = error.status();
            matches!(
                status,
                Some(NtStatus::ACCESS_DENIED | NtStatus::SHARING_VIOLATION)
            )
        };
        if renamed.as_ref().is_err_and(in_use) && self.wait_for_closes().await {
            renamed = self.rename_verified(&old, &new, replace).await;
        }
        if renamed.as_ref().is_err_and(in_use)
            && self.open_files.wait_for_close(&[&old, &new], OPEN_WAIT_MAX).await
            && self.wait_for_closes().await
        {
            renamed = self.rename_verified(&old, &new, replace).await;
        }
        if let Err(error) = renamed {
            self.rename_over_obstacle(from, to, replace, error).await?;
        }
        self.dirty.renamed(from, to);
        Ok(())
    }

    /// Sets attributes and final name of a folder in one compound, or step by step where that does
    /// not suffice.
    pub(crate) async fn finish_dir(
        &self,
        path: &RelPath,
        change: &MetadataChange,
        to: &RelPath,
    ) -> (Result<Vec<Loss>>, Result<()>) {
        let basic = map::change(change, true).filter(|_| change.xattrs.is_none());
        let texts = self.base.text(Op::SetAttributes, path).ok();
        let texts = texts.zip(self.base.new_text(Op::Rename, to).ok());
        if let (Some(basic), Some((old, new)), false) = (basic, texts, path.is_root() || to.is_root()) {
            match self.share.finish_directory(&old, &basic, &new).await {
                Ok((set, renamed)) => {
                    let losses = match set {
                        Ok(()) => Ok(map::losses(change)),
                        Err(error) => self.map_error(Op::SetAttributes, path, Err(error)).await,
                    };
                    // The full rename handles obstacles.
                    let renamed = match renamed {
                        Ok(()) => {
                            self.dirty.renamed(path, to);
                            Ok(())
                        }
                        Err(_) => self.rename(path, to, false).await,
                    };
                    return (losses, renamed);
                }
                Err(error) if is_unknown(&error) && self.was_renamed(&old, &new).await => {
                    self.dirty.renamed(path, to);
                    return (self.set_metadata(to, change).await, Ok(()));
                }
                Err(_) => {}
            }
        }
        let set = self.set_metadata(path, change).await;
        (set, self.rename(path, to, false).await)
    }

    /// Renames. If the outcome is unknown, checks it, and renames again if necessary.
    async fn rename_verified(&self, old: &Text, new: &Text, replace: bool) -> ClientResult<()> {
        let mut renamed = self.share.rename(old, new, replace).await;
        for _ in 1..ATTEMPTS {
            if !renamed.as_ref().is_err_and(is_unknown) {
                break;
            }
            renamed = match self.was_renamed(old, new).await {
                true => Ok(()),
                false => self.share.rename(old, new, replace).await,
            };
        }
        renamed
    }

    /// Returns whether a rename whose reply was lost was carried out.
    async fn was_renamed(&self, old: &Text, new: &Text) -> bool {
        let old = self.share.stat(old).await;
        let is_gone = old.is_err_and(|error| error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND));
        is_gone && self.share.stat(new).await.is_ok()
    }

    /// Renames over an obstacle: servers replace neither folders nor read-only files, but a tree
    /// does.
    async fn rename_over_obstacle(
        &self,
        from: &RelPath,
        to: &RelPath,
        replace: bool,
        error: ClientError,
    ) -> Result<()> {
        let (old, new) = (
            self.base.text(Op::Rename, from)?,
            self.base.new_text(Op::Rename, to)?,
        );
        let in_the_way = matches!(
            error.status(),
            Some(NtStatus::OBJECT_NAME_COLLISION | NtStatus::ACCESS_DENIED | NtStatus::FILE_IS_A_DIRECTORY)
        );
        if in_the_way
            && replace
            && let Ok(target) = self.share.stat(&new).await
        {
            let source = self
                .map_error(Op::Rename, from, self.share.stat(&old).await)
                .await?;
            match (source.standard.directory, target.standard.directory) {
                (true, true) => self.remove(to, true).await.map_err(|error| Error {
                    op: Op::Rename,
                    ..error
                })?,
                (false, true) => return Err(Error::new(Op::Rename, to, ErrorKind::IsADirectory)),
                (true, false) => return Err(Error::new(Op::Rename, to, ErrorKind::NotADirectory)),
                (false, false) if self.make_writable(&new).await => {}
                (false, false) => return Err(tree_error(Op::Rename, from, error)),
            }
            return self
                .map_error(Op::Rename, from, self.share.rename(&old, &new, true).await)
                .await;
        }
        self.map_error(Op::Rename, from, Err(error)).await
    }

    pub(crate) async fn rename_in(&self, dir: &RelPath, pairs: &[(Name, Name)]) -> Vec<Result<()>> {
        let renames = pairs.iter().cloned().map(|(from, to)| async move {
            let (from, to) = (dir.join(&from), dir.join(&to));
            self.rename(&from, &to, true).await
        });
        futures_util::stream::iter(renames)
            .buffered(AT_ONCE)
            .collect()
            .await
    }
}
