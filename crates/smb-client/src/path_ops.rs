//! Operations on the paths of a share. Each follows DFS referrals and, where the server accepts
//! compounds, takes one round trip.

use std::sync::Arc;

use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::info::{
    FileAllInformation, FileBasicInformation, FileDispositionInformation, FileFsAttributeInformation,
    FileFsFullSizeInformation, FileFsVolumeInformation, FileRenameInformation, FsInformation, Information,
};
use ropeway_smb_wire::query_info::QueryInfoResponse;
use ropeway_smb_wire::{FileId, NtStatus, Text, TreeId};

use crate::dfs::{Route, routed};
use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::open::OpenFile;
use crate::ops;
use crate::reopen::HandleInner;
use crate::replies::{check, nth};
use crate::share::{Share, Volume, check_path};
use crate::tree::Replay;

impl Share {
    /// Opens or creates a file or directory. `path` has backslashes between names and none at
    /// either end; the empty path is the share's root.
    ///
    /// # Errors
    /// [`Error::PeerRefused`], and the errors of any request.
    pub async fn open(&self, path: &Text, open: &OpenFile) -> Result<Handle> {
        routed!(self, path, |share, path| share.open_here(path, open).await)
    }

    pub(crate) async fn open_here(&self, path: &Text, open: &OpenFile) -> Result<Handle> {
        check_path(path)?;
        let (durability, completed) = self.create_durably(path, open).await?;
        let inner = HandleInner::new(self, path, open, durability, &completed)?;
        self.inner().private.learn(&completed.tree, inner.created.private);
        Ok(Handle {
            inner: Arc::new(inner),
        })
    }

    /// Lists the names in a directory that match a pattern, `*` for all. A small directory takes
    /// one round trip.
    ///
    /// # Errors
    /// The directory cannot be opened or listed. If no name matches, the list is empty.
    pub async fn list(&self, path: &Text, pattern: &str) -> Result<Directory> {
        routed!(self, path, |share, path| Directory::open(
            share,
            path,
            &Text::from(pattern),
            true
        )
        .await)
    }

    /// Lists a directory, with a lease on it if `lease` is set and the server grants one. `follow`
    /// lists the target of a link; servers that otherwise list links as their targets list them as
    /// links without it.
    pub(crate) async fn list_leased(&self, path: &Text, follow: bool, lease: bool) -> Result<Directory> {
        routed!(self, path, |share, path| Directory::open_leased(
            share,
            path,
            &Text::from("*"),
            follow,
            lease
        )
        .await)
    }

    /// Lists the names that match a pattern, without following a link.
    pub(crate) async fn list_matching(&self, path: &Text, pattern: &Text) -> Result<Directory> {
        routed!(self, path, |share, path| Directory::open(
            share, path, pattern, false
        )
        .await)
    }

    /// Returns all metadata of a file or directory, in one round trip. Does not follow a reparse
    /// point.
    ///
    /// # Errors
    /// The path does not exist, or access is denied.
    pub async fn stat(&self, path: &Text) -> Result<FileAllInformation> {
        routed!(self, path, |share, path| share.stat_here(path).await)
    }

    async fn stat_here(&self, path: &Text) -> Result<FileAllInformation> {
        let open = OpenFile::metadata(AccessMask::READ_ATTRIBUTES);
        // The fixed part, and the path from the root on.
        let output_max = ops::query_all_len(path);
        let steps = |tree, file| vec![ops::query_file::<FileAllInformation>(tree, file, output_max)];
        let done = self.compound(path, &open, Replay::Safe, steps).await?;
        let reply = nth(&done.replies, 0)?;
        check("query", reply)?;
        Ok(FileAllInformation::decode(
            QueryInfoResponse::decode(&mut reply.body())?.output,
        )?)
    }

    /// Creates a directory, in one round trip.
    ///
    /// # Errors
    /// The name exists already, or access is denied.
    pub async fn make_directory(&self, path: &Text) -> Result<()> {
        routed!(self, path, |share, path| {
            let open = OpenFile::make_directory();
            share
                .compound(path, &open, Replay::Once, |_, _| Vec::new())
                .await
                .map(drop)
        })
    }

    /// Removes a file or an empty directory, in one round trip. Removes a reparse point itself, not
    /// its target.
    ///
    /// # Errors
    /// The path does not exist, is not empty or is in use, or access is denied.
    pub async fn remove(&self, path: &Text) -> Result<()> {
        let information = FileDispositionInformation { delete_pending: true };
        routed!(self, path, |share, path| {
            let steps = |tree, file| vec![ops::set_file(tree, file, &information)];
            share.remove_here(path, steps).await
        })
    }

    pub(crate) async fn remove_here(
        &self,
        path: &Text,
        steps: impl FnMut(TreeId, FileId) -> Vec<Operation>,
    ) -> Result<()> {
        let open = OpenFile::delete();
        let done = self.compound(path, &open, Replay::Once, steps).await?;
        check("remove", nth(&done.replies, 0)?)
    }

    /// Renames a file or directory, in one round trip. Both paths lie in this share.
    ///
    /// # Errors
    /// The new name exists and `replace` is not set, or access is denied.
    pub async fn rename(&self, from: &Text, to: &Text, replace: bool) -> Result<()> {
        check_path(to)?;
        routed!(self, from, |share, from| {
            let information = FileRenameInformation {
                replace_if_exists: replace,
                name: self.redirected_name("rename", to, share)?,
            };
            share.rename_here(from, &information).await
        })
    }

    /// Returns a path as it is in `share`, to which DFS referred another path of this share.
    pub(crate) fn redirected_name(&self, op: &'static str, name: &Text, share: &Self) -> Result<Text> {
        let route = Route::start(self, name);
        if !std::ptr::eq(route.share.inner(), share.inner()) {
            return Err(Error::refused(op, NtStatus::NOT_SAME_DEVICE));
        }
        Ok(route.path)
    }

    pub(crate) async fn rename_here(&self, from: &Text, to: &FileRenameInformation) -> Result<()> {
        let open = OpenFile::delete();
        let steps = |tree, file| vec![ops::set_file(tree, file, to)];
        let done = self.compound(from, &open, Replay::Once, steps).await?;
        check("rename", nth(&done.replies, 0)?)
    }

    /// Sets a directory's times and attributes and renames it, in one round trip. Returns the
    /// result of each.
    pub(crate) async fn finish_directory(
        &self,
        from: &Text,
        basic: &FileBasicInformation,
        to: &Text,
    ) -> Result<(Result<()>, Result<()>)> {
        check_path(to)?;
        routed!(self, from, |share, from| {
            let rename = FileRenameInformation {
                replace_if_exists: false,
                name: self.redirected_name("rename", to, share)?,
            };
            share.finish_directory_here(from, basic, &rename).await
        })
    }

    async fn finish_directory_here(
        &self,
        from: &Text,
        basic: &FileBasicInformation,
        rename: &FileRenameInformation,
    ) -> Result<(Result<()>, Result<()>)> {
        let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES;
        let mut open = OpenFile::metadata(access);
        open.options |= CreateOptions::DIRECTORY_FILE;
        let steps = |tree, file| {
            vec![
                ops::set_file(tree, file, basic),
                ops::set_file(tree, file, rename),
            ]
        };
        let done = self.compound(from, &open, Replay::Once, steps).await?;
        let set = nth(&done.replies, 0).and_then(|reply| check("set", reply));
        let renamed = nth(&done.replies, 1).and_then(|reply| check("rename", reply));
        Ok((set, renamed))
    }

    /// Returns the properties of the volume, in one round trip.
    ///
    /// # Errors
    /// The errors of any request.
    pub async fn volume(&self) -> Result<Volume> {
        let open = OpenFile::metadata(AccessMask::READ_ATTRIBUTES);
        let steps = |tree, file| {
            vec![
                ops::query_volume::<FileFsVolumeInformation>(tree, file),
                ops::query_volume::<FileFsAttributeInformation>(tree, file),
                ops::query_volume::<FileFsFullSizeInformation>(tree, file),
            ]
        };
        let done = self
            .compound(&Text::default(), &open, Replay::Safe, steps)
            .await?;
        Ok(Volume {
            volume: fs(&done.replies, 0)?,
            attributes: fs(&done.replies, 1)?,
            size: fs(&done.replies, 2)?,
        })
    }
}

fn fs<I: FsInformation>(replies: &[Reply], index: usize) -> Result<I> {
    let reply = nth(replies, index)?;
    check("query the volume", reply)?;
    Ok(I::decode(QueryInfoResponse::decode(&mut reply.body())?.output)?)
}
