//! New folders that stay open, for a store.

use ropeway_smb_wire::LeaseKey;
use ropeway_smb_wire::create::AccessMask;
use ropeway_vfs::{Error, ErrorKind, Metadata, Op, RelPath, Result};

use super::inner::Inner;
use super::map;
use crate::handle::Handle;
use crate::open::{Created, OpenFile};

impl Inner {
    /// Makes a folder and leaves it open, with a lease on it where the server grants one. `parent` is
    /// the lease on the folder above.
    pub(crate) async fn make_dir_open(&self, path: &RelPath, parent: Option<LeaseKey>) -> Result<Handle> {
        let text = self.base.new_text(Op::MakeDir, path)?;
        if path.is_root() {
            return Err(Error::new(Op::MakeDir, path, ErrorKind::AlreadyExists));
        }
        let mut open = OpenFile::make_directory();
        open.access |= AccessMask::LIST_DIRECTORY;
        open.directory_lease = true;
        open.parent_lease = parent;
        let made = self.share.open(&text, &open).await;
        self.map_error(Op::MakeDir, path, made).await
    }

    /// Returns the metadata in the reply to a CREATE.
    pub(crate) fn at_create(&self, created: &Created) -> Metadata {
        map::created(created, self.volume)
    }
}
