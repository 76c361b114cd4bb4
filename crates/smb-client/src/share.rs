//! A share, connected to.

use std::fmt;
use std::sync::Arc;

use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions};
use ropeway_smb_wire::info::{
    FileAllInformation, FileBasicInformation, FileDispositionInformation, FileFsAttributeInformation,
    FileFsFullSizeInformation, FileFsVolumeInformation, FileRenameInformation, FsInformation, Information,
};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::query_info::QueryInfoResponse;
use ropeway_smb_wire::tree_connect::{ShareCapabilities, ShareFlags, ShareType};
use ropeway_smb_wire::{FileId, NtStatus, Text, TreeId};

use crate::dfs::{Route, routed};
use crate::link::Outcome;
use crate::opened::HandleInner;
use crate::tree::{Replay, ShareInner, check, nth};
use crate::{Client, Directory, Error, Handle, LostReason, OpenFile, Operation, Reply, Result, ops};

/// A share, connected to. Clones are the same share. A lost connection is made again, and the share with it.
#[derive(Clone)]
pub struct Share {
    inner: Arc<ShareInner>,
}

/// What one request may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one READ.
    pub read_max: u32,
    /// Bytes of one WRITE.
    pub write_max: u32,
    /// Bytes of one QUERY, SET, IOCTL or listing.
    pub transact_max: u32,
    /// Dialect agreed.
    pub dialect: Dialect,
}

/// What a share's volume is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Volume {
    /// Serial number, label, when made.
    pub volume: FileFsVolumeInformation,
    /// What the file system can do, its name, longest name.
    pub attributes: FileFsAttributeInformation,
    /// Space.
    pub size: FileFsFullSizeInformation,
}

impl Share {
    pub(crate) fn new(inner: ShareInner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn inner(&self) -> &ShareInner {
        &self.inner
    }

    /// Its name, as given.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The client it belongs to.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Disk, pipe or printer.
    pub fn share_type(&self) -> ShareType {
        self.inner.last().share_type
    }

    /// How it is to be cached, and whether it is in DFS or sealed.
    pub fn flags(&self) -> ShareFlags {
        self.inner.last().flags
    }

    /// What it is capable of.
    pub fn capabilities(&self) -> ShareCapabilities {
        self.inner.last().capabilities
    }

    /// What one request may carry.
    pub fn limits(&self) -> Limits {
        let session = self.client().link().last();
        let negotiated = &session.negotiated;
        Limits {
            read_max: negotiated.max_read,
            write_max: negotiated.max_write,
            transact_max: negotiated.max_transact,
            dialect: negotiated.dialect,
        }
    }

    /// Opens or makes a file or directory. `path` has backslashes between names and none at either end; empty is the
    /// share's root.
    ///
    /// # Errors
    /// [`Error::PeerRefused`] and what any request may meet.
    pub async fn open(&self, path: &Text, open: &OpenFile) -> Result<Handle> {
        routed!(self, path, |share, path| share.open_here(path, open).await)
    }

    pub(crate) async fn open_here(&self, path: &Text, open: &OpenFile) -> Result<Handle> {
        check_path(path)?;
        let (durability, ran) = self.create_durably(path, open).await?;
        let inner = HandleInner::new(self, path, open, durability, &ran)?;
        Ok(Handle {
            inner: Arc::new(inner),
        })
    }

    /// Sends requests of the caller's own making, as one compound. The tree of each operation is filled in. They are sent
    /// once; what a lost connection did to them, the caller has to find out.
    ///
    /// # Errors
    /// The requests did not get there or back; what the server says to each is in its [`Reply`].
    pub async fn chain(&self, mut operations: Vec<Operation>, related: bool) -> Result<Vec<Reply>> {
        let (session, tree) = self.inner.tree().await?;
        for operation in &mut operations {
            operation.tree = tree.id;
        }
        let mut chain = tree.chain(operations);
        chain.related = related;
        match session.exchange(chain, 0).await {
            Outcome::Replied(replies) => Ok(replies),
            Outcome::Lost { sent: false, .. } => Err(Error::Lost(LostReason::Closed)),
            Outcome::Lost { sent: true, .. } => Err(Error::Lost(LostReason::OutcomeUnknown)),
            Outcome::Failed { error, .. } => Err(error),
        }
    }

    /// Lists a directory, `*` for all. A small one takes one round trip.
    ///
    /// # Errors
    /// The directory cannot be opened or listed. One without a matching name is an empty list.
    pub async fn list(&self, path: &Text, pattern: &str) -> Result<Directory> {
        routed!(self, path, |share, path| Directory::open(
            share, path, pattern, true
        )
        .await)
    }

    /// The same of a directory itself: a link is none, and servers that else list links as what they lead to list them as
    /// links.
    pub(crate) async fn list_itself(&self, path: &Text) -> Result<Directory> {
        routed!(self, path, |share, path| Directory::open(share, path, "*", false)
            .await)
    }

    /// Of a directory itself, what matches a pattern.
    pub(crate) async fn list_matching(&self, path: &Text, pattern: &str) -> Result<Directory> {
        routed!(self, path, |share, path| Directory::open(
            share, path, pattern, false
        )
        .await)
    }

    /// All about a file or directory, in one round trip; a reparse point is not followed.
    ///
    /// # Errors
    /// It is not there, or the user may not.
    pub async fn stat(&self, path: &Text) -> Result<FileAllInformation> {
        routed!(self, path, |share, path| share.stat_here(path).await)
    }

    async fn stat_here(&self, path: &Text) -> Result<FileAllInformation> {
        let open = OpenFile::metadata(AccessMask::READ_ATTRIBUTES);
        // The fixed part, and the name, which servers give from the root on.
        let output_max = ops::query_all_len(path);
        let steps = |tree, file| vec![ops::query_file::<FileAllInformation>(tree, file, output_max)];
        let done = self.compound(path, &open, Replay::Safe, steps).await?;
        let reply = nth(&done.replies, 0)?;
        check("query", reply)?;
        Ok(FileAllInformation::decode(
            QueryInfoResponse::decode(&mut reply.body())?.output,
        )?)
    }

    /// Makes a directory, in one round trip.
    ///
    /// # Errors
    /// The name is taken, or the user may not.
    pub async fn make_directory(&self, path: &Text) -> Result<()> {
        routed!(self, path, |share, path| {
            let open = OpenFile::make_directory();
            share
                .compound(path, &open, Replay::Once, |_, _| Vec::new())
                .await
                .map(drop)
        })
    }

    /// Removes a file or an empty directory, in one round trip; a reparse point itself, not what it leads to.
    ///
    /// # Errors
    /// It is not there, not empty, in use, or the user may not.
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

    /// Renames, in one round trip. Both paths lie in this share.
    ///
    /// # Errors
    /// The new name is taken and `replace` is not set, or the user may not.
    pub async fn rename(&self, from: &Text, to: &Text, replace: bool) -> Result<()> {
        check_path(to)?;
        routed!(self, from, |share, from| {
            let information = FileRenameInformation {
                replace_if_exists: replace,
                name: self.led_to("rename", to, share)?,
            };
            share.rename_here(from, &information).await
        })
    }

    /// A name as it is in the share to which DFS led the other name.
    pub(crate) fn led_to(&self, op: &'static str, name: &Text, share: &Self) -> Result<Text> {
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

    /// Sets a directory's times and attributes and renames it, in one round trip: what came of each.
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
                name: self.led_to("rename", to, share)?,
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

    /// What the volume is, and its space, in one round trip.
    ///
    /// # Errors
    /// What any request may meet.
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

/// A path that a CREATE can carry, and a referral's question, which a unit of 0 would end.
pub(crate) fn check_path(path: &Text) -> Result<()> {
    if path.units().len() > ops::PATH_UNITS_MAX {
        return Err(Error::refused("open", NtStatus::NAME_TOO_LONG));
    }
    if path.units().contains(&0) {
        return Err(Error::refused("open", NtStatus::OBJECT_NAME_INVALID));
    }
    Ok(())
}

/// Whether CREATE may be sent again when nobody knows whether it was done.
pub(crate) fn replay_of(open: &OpenFile) -> Replay {
    match open.disposition {
        CreateDisposition::Create => Replay::Once,
        _ => Replay::Safe,
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({}/{})", self.client().endpoint(), self.name())
    }
}
