//! Making the folders of the target, or finding those that an earlier run made.

use ropeway_vfs::{EndError, Error, ErrorKind, Metadata, Op, RelPath};

use super::Walker;
use crate::context::token_of;
use crate::delete;
use crate::folder::{FolderInner, Placement};
use crate::journal::{Made, Token};

impl Walker<'_> {
    /// Makes a folder under its present path; whether it is new. What an earlier run left there is gone on with if it
    /// surely is a folder of this job, and removed otherwise.
    pub(super) async fn make_folder(&self, inner: &FolderInner) -> Result<bool, Error> {
        let context = self.context;
        let (path, token) = (&inner.path, token_of(self.root.index, &inner.source_path));
        let make = || async move {
            let made = context.target.make_dir(path, 0o700).await;
            made.map_err(EndError::on_target)
        };
        let unseen = inner.placement == Placement::Direct;
        if let Some(parent) = inner.parent.as_ref().filter(|_| inner.staging.is_some()) {
            parent.marks(context);
        }
        let made = context.with_retries(token, make).await;
        let made = match made.map_err(|failed| failed.error) {
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                if self.may_adopt(inner, token).await? {
                    return Ok(false);
                }
                if !unseen {
                    return Err(Error::new(Op::MakeDir, path, ErrorKind::NotADirectory));
                }
                delete::clear(context, path).await?;
                let made = context.with_retries(token, make).await;
                made.map_err(|failed| failed.error)
            }
            made => made,
        };
        made?;
        if inner.staging.is_some()
            && context.own_user().is_some()
            && let Some(journal) = &context.journal
        {
            let found = context.target.metadata(path).await?;
            let made = Made::of(&found, context.target.capabilities().stable_ids);
            context.journalled(Some(journal.folder_made(token, made)));
        }
        Ok(true)
    }

    /// Whether what stands where a folder is to be made is a folder that this job may fill.
    async fn may_adopt(&self, inner: &FolderInner, token: Token) -> Result<bool, Error> {
        let context = self.context;
        let found = context.target.metadata(&inner.path).await?;
        if !found.is_dir() {
            return Ok(false);
        }
        let (Some(own), true) = (context.own_user(), inner.staging.is_some()) else {
            return Ok(true);
        };
        let journal = context.journal.as_ref();
        let made = journal.and_then(|journal| journal.memory().folder(token));
        let is_made = match (made, &inner.metadata) {
            (Some(made), Some(source)) => made.is(&found, source),
            _ => false,
        };
        // One that the journal lost is private still, since nothing was finished in it.
        let is_private = found.owner.is_some_and(|owner| owner.user == own)
            && found.mode.is_some_and(|mode| mode & 0o077 == 0);
        if !is_made && !is_private {
            return Ok(false);
        }
        // It may have got its attributes already; until it has its name it is nobody else's.
        let change = ropeway_vfs::MetadataChange {
            mode: Some(0o700),
            ..Default::default()
        };
        // If that is refused, the first write says so.
        let _ = context.target.set_metadata(&inner.path, &change).await;
        Ok(true)
    }

    /// What stands in the way of a mirror's folder goes when that is full, or now where there is no temporary name;
    /// before that the source must be listed.
    pub(super) async fn may_replace(&self, inner: &FolderInner, is_staged: bool) -> Result<(), Error> {
        if self.context.options.delete.is_none() {
            return Err(Error::new(Op::MakeDir, &inner.path, ErrorKind::NotADirectory));
        }
        self.begin_listing(&inner.source_path).await?;
        match is_staged {
            true => Ok(()),
            false => delete::make_way(self.context, &self.root, &inner.path).await,
        }
    }

    /// A folder of ours that we may not write into is opened up; its mode is set again at the end.
    pub(super) async fn open_up(&self, path: &RelPath, existing: &Metadata) {
        let Some(mode) = existing.mode.filter(|mode| mode & 0o700 != 0o700) else {
            return;
        };
        if self.context.options.dry_run || !self.context.target.capabilities().modes {
            return;
        }
        let change = ropeway_vfs::MetadataChange {
            mode: Some(mode | 0o700),
            ..Default::default()
        };
        // If that is refused, the first write says so.
        let _ = self.context.target.set_metadata(path, &change).await;
    }
}
