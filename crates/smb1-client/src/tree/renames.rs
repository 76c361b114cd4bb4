//! Renames.
//!
//! RENAME fails if the new name is taken. A server with the levels of NT replaces a file in the same
//! folder in one step (FileRenameInformation); between folders, and on older servers, the file in
//! the way is removed first.

use ropeway_smb_client::common::{tree_error, wire_name};
use ropeway_smb_client::{Error as ClientError, NtStatus, Result as ClientResult, Text};
use ropeway_smb_wire::Writer;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb1::wire::trans2::Level;
use ropeway_vfs::{Error, ErrorKind, Op, RelPath, Result};

use super::Inner;
use super::names::{is_missing, is_unknown};
use crate::calls::{OpenHow, is_unsupported};
use crate::share::{Share, checked};

/// Attempts of a rename whose outcome is unknown.
const ATTEMPTS: usize = 4;

impl Inner {
    pub(super) async fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let old = self.base.text(Op::Rename, from)?;
        let new = self.base.new_text(Op::Rename, to)?;
        if from.is_root() || to.is_root() {
            return Err(Error::new(Op::Rename, from, ErrorKind::Misuse));
        }
        if from == to {
            return self.stat(Op::Rename, from).await.map(drop);
        }
        self.wait_for_closes().await;
        let mut renamed = self.rename_verified(&old, &new).await;
        if let Err(error) = &renamed
            && error.status() == Some(NtStatus::OBJECT_NAME_COLLISION)
            && replace
        {
            renamed = self.replace(from, to, (&old, &new)).await?;
        }
        if renamed.is_ok() {
            self.dirty.renamed(from, to);
        }
        self.map_error(Op::Rename, from, renamed).await
    }

    /// Renames. If the outcome is unknown, looks whether it was done.
    async fn rename_verified(&self, old: &Text, new: &Text) -> ClientResult<()> {
        let mut renamed = self.share.rename(old, new).await;
        for _ in 1..ATTEMPTS {
            if !renamed.as_ref().is_err_and(is_unknown) {
                break;
            }
            renamed = match self.was_renamed(old, new).await {
                true => Ok(()),
                false => self.share.rename(old, new).await,
            };
        }
        renamed
    }

    async fn was_renamed(&self, old: &Text, new: &Text) -> bool {
        let old = self.share.stat(old, false).await;
        old.is_err_and(|error| is_missing(&error)) && self.share.stat(new, false).await.is_ok()
    }

    /// Renames over what has the new name.
    async fn replace(
        &self,
        from: &RelPath,
        to: &RelPath,
        (old, new): (&Text, &Text),
    ) -> Result<ClientResult<()>> {
        let (source, target) = (
            self.stat(Op::Rename, from).await?,
            self.stat(Op::Rename, to).await?,
        );
        match (source.is_dir(), target.is_dir()) {
            (false, true) => return Err(Error::new(Op::Rename, to, ErrorKind::IsADirectory)),
            (true, false) => return Err(Error::new(Op::Rename, to, ErrorKind::NotADirectory)),
            (true, true) => {
                let removed = self.share.remove_directory(new).await;
                removed.map_err(|error| tree_error(Op::Rename, to, error))?;
                return Ok(self.rename_verified(old, new).await);
            }
            (false, false) => {}
        }
        if from.parent() == to.parent() && self.has_passthrough {
            let mut replaced = self.replace_in_folder(old, to).await;
            if replaced
                .as_ref()
                .is_err_and(|error| error.status() == Some(NtStatus::ACCESS_DENIED))
                && self.make_writable(new).await
            {
                replaced = self.replace_in_folder(old, to).await;
            }
            if replaced.as_ref().is_err_and(is_unknown) && self.was_renamed(old, new).await {
                return Ok(Ok(()));
            }
            if !replaced.as_ref().is_err_and(is_unsupported) {
                return Ok(replaced);
            }
        }
        self.make_writable(new).await;
        match self.share.delete(new).await {
            Ok(()) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => return Ok(Err(error)),
        }
        Ok(self.rename_verified(old, new).await)
    }

    /// Gives a file the name of another one in its folder, in one step ([MS-FSCC] 2.4.42.1).
    async fn replace_in_folder(&self, old: &Text, to: &RelPath) -> ClientResult<()> {
        let name = to
            .file_name()
            .ok_or(ClientError::Misuse("the share's top has no name"))?;
        // In the form of the connection's strings, although [MS-FSCC] knows UTF-16 only.
        let name = self.share.server().await?.string(&wire_name(&name))?;
        let mut data = Vec::new();
        let mut w = Writer::new(&mut data);
        w.u32(1);
        w.u32(0);
        w.u32(name.as_bytes().len() as u32);
        w.bytes(name.as_bytes());
        let how = OpenHow::existing(AccessMask::DELETE | AccessMask::READ_ATTRIBUTES);
        // FileRenameInformation.
        let level = Level::passthrough(10);
        let reply = self
            .share
            .open_for("rename", old, &how, |tid, fid| {
                Share::set_file_request(tid, fid, level, &data)
            })
            .await?;
        checked("rename", reply).map(drop)
    }
}
