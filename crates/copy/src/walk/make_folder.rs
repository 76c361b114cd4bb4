//! Makes the folders of the target, or adopts those that an earlier run made.

use ropeway_plan::{MadeNode, Visibility};
use ropeway_vfs::{EndError, Error, ErrorKind, Metadata, Op, RelPath};

use crate::delete::clear::clear;
use crate::delete::remove::make_way;
use crate::journal::token::{Token, token_of};
use crate::place::folder::FolderInner;
use crate::place::mark::mark_folder;
use crate::walk::walker::Walker;

impl Walker<'_> {
    /// Makes a folder under its present path. Returns whether it is new. A folder that an earlier
    /// run left there is adopted if it surely belongs to this job, and removed otherwise.
    pub(super) async fn make_folder(&self, inner: &FolderInner) -> Result<bool, Error> {
        let context = self.context;
        let (path, token) = (&inner.path, token_of(self.root.index, &inner.source_path));
        let make = || async move {
            let made = context.config.target.make_dir(path, 0o700).await;
            made.map_err(EndError::on_target)
        };
        let unseen = inner.visibility == Visibility::Hidden;
        if let Some(parent) = inner.parent.as_ref().filter(|_| inner.staging.is_some()) {
            mark_folder(context, parent);
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
                clear(context, path).await?;
                let made = context.with_retries(token, make).await;
                made.map_err(|failed| failed.error)
            }
            made => made,
        };
        made?;
        if inner.staging.is_some()
            && context.config.own_user().is_some()
            && let Some(journal) = &context.journal
        {
            let found = context.config.target.metadata(path).await?;
            let made = MadeNode::of(&found, context.config.target.capabilities().stable_ids);
            context.journalled(Some(journal.folder_made(token, made)));
        }
        Ok(true)
    }

    /// Whether this job may adopt what stands where it must make a folder.
    async fn may_adopt(&self, inner: &FolderInner, token: Token) -> Result<bool, Error> {
        let context = self.context;
        let found = context.config.target.metadata(&inner.path).await?;
        if !found.is_dir() {
            return Ok(false);
        }
        let (Some(own), true) = (context.config.own_user(), inner.staging.is_some()) else {
            return Ok(true);
        };
        let journal = context.journal.as_ref();
        let made = journal.and_then(|journal| journal.memory().folder(token));
        let is_made = match (made, &inner.metadata) {
            (Some(made), Some(source)) => made.is(&found, source),
            _ => false,
        };
        // A folder that the journal lost is still private, since nothing in it was finished.
        let is_private = found.owner.is_some_and(|owner| owner.user == own)
            && found.mode.is_some_and(|mode| mode & 0o077 == 0);
        if !is_made && !is_private {
            return Ok(false);
        }
        // It may have its attributes already. Until it has its name, it belongs to this job alone.
        let change = ropeway_vfs::MetadataChange {
            mode: Some(0o700),
            ..Default::default()
        };
        // If this is refused, the first write reports it.
        let _ = context.config.target.set_metadata(&inner.path, &change).await;
        Ok(true)
    }

    /// Checks that a mirror may replace what stands where a folder must go. That is removed when
    /// the folder is full, or now if the folder gets no temporary name. The source must be readable
    /// before.
    pub(super) async fn may_replace(&self, inner: &FolderInner, is_staged: bool) -> Result<(), Error> {
        if self.context.config.options.delete.is_none() {
            return Err(Error::new(Op::MakeDir, &inner.path, ErrorKind::NotADirectory));
        }
        self.begin_listing(&inner.source_path).await?;
        match is_staged {
            true => Ok(()),
            false => make_way(self.context, &self.root, &inner.path).await,
        }
    }

    /// Makes a folder writable for its owner. Its mode is set again at the end.
    pub(super) async fn open_up(&self, path: &RelPath, existing: &Metadata) {
        let Some(mode) = existing.mode.filter(|mode| mode & 0o700 != 0o700) else {
            return;
        };
        if self.context.config.options.dry_run || !self.context.config.target.capabilities().modes {
            return;
        }
        let change = ropeway_vfs::MetadataChange {
            mode: Some(mode | 0o700),
            ..Default::default()
        };
        // If this is refused, the first write reports it.
        let _ = self.context.config.target.set_metadata(path, &change).await;
    }
}
