//! Other names for what is there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::{Error, ErrorKind, Loss, MetadataChange, Name, Op, RelPath, Result};

use super::errors::fault;
use super::names::AT_ONCE;
use super::{Inner, map};
use crate::tree::ATTEMPTS;
use crate::{Error as ClientError, LostReason};

/// A folder is not renamed while a file below it is open, and the task that holds one of ours may be about to let it go.
const IN_USE_PAUSES_MS: [u64; 6] = [2, 5, 10, 20, 50, 100];

fn is_unknown(error: &ClientError) -> bool {
    matches!(error, ClientError::Lost(LostReason::OutcomeUnknown))
}

impl Inner {
    pub(super) async fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
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
        let mut renamed = self.rename_surely(&old, &new, replace).await;
        let in_use = |error: &ClientError| {
            let status = error.status();
            matches!(
                status,
                Some(NtStatus::ACCESS_DENIED | NtStatus::SHARING_VIOLATION)
            )
        };
        let mut pauses = IN_USE_PAUSES_MS.iter();
        while renamed.as_ref().is_err_and(in_use) {
            let has_open = self.opens.load(Ordering::Acquire) > 0;
            if !self.closings_end().await {
                break;
            }
            renamed = self.rename_surely(&old, &new, replace).await;
            let Some(pause) = pauses.next().filter(|_| has_open) else {
                break;
            };
            if renamed.as_ref().is_err_and(in_use) {
                tokio::time::sleep(Duration::from_millis(*pause)).await;
            }
        }
        if let Err(error) = renamed {
            self.rename_anyway(from, to, replace, error).await?;
        }
        self.dirty.renamed(from, to);
        Ok(())
    }

    /// Attributes and final name of a folder in one compound. What is more to it than that goes step by step.
    pub(super) async fn finish_dir(
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
                        Err(error) => self.refined(Op::SetAttributes, path, Err(error)).await,
                    };
                    // What may be in the way, and what helps, the longer way knows.
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

    /// Renames. What is known neither as done nor as not done is looked for, and done again if it was not.
    async fn rename_surely(&self, old: &Text, new: &Text, replace: bool) -> crate::Result<()> {
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

    /// Whether a renaming whose answer was lost was done.
    async fn was_renamed(&self, old: &Text, new: &Text) -> bool {
        let old = self.share.stat(old).await;
        let is_gone = old.is_err_and(|error| error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND));
        is_gone && self.share.stat(new).await.is_ok()
    }

    /// Servers replace neither folders nor read-only files; a tree does.
    async fn rename_anyway(
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
                .refined(Op::Rename, from, self.share.stat(&old).await)
                .await?;
            match (source.standard.directory, target.standard.directory) {
                (true, true) => self.remove(to, true).await.map_err(|error| Error {
                    op: Op::Rename,
                    ..error
                })?,
                (false, true) => return Err(Error::new(Op::Rename, to, ErrorKind::IsADirectory)),
                (true, false) => return Err(Error::new(Op::Rename, to, ErrorKind::NotADirectory)),
                (false, false) if self.make_writable(&new).await => {}
                (false, false) => return Err(fault(Op::Rename, from, error)),
            }
            return self
                .refined(Op::Rename, from, self.share.rename(&old, &new, true).await)
                .await;
        }
        self.refined(Op::Rename, from, Err(error)).await
    }

    pub(super) async fn rename_in(&self, dir: &RelPath, pairs: &[(Name, Name)]) -> Vec<Result<()>> {
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
