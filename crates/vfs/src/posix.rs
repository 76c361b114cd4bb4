//! What a mounted file system asks of a [`Store`](crate::store::Store) beyond what a file server
//! needs: nodes of every kind with mode and owner, rename(2) with its flags, extended attributes by
//! full name.

use crate::metadata::Owner;
use crate::store::Access;

/// The kind of a node to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link with this target, which is stored as given.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// The name of a local socket.
    Socket,
    /// A character device: major and minor number.
    CharDevice(u32, u32),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
}

/// A node to make, as open(2), mkdir(2), mknod(2) and symlink(2) make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPosix<'a> {
    /// Its kind.
    pub kind: NewKind<'a>,
    /// Permission bits (0o7777) before `umask` is applied.
    pub mode: u32,
    /// Bits to leave out, unless the folder has a default ACL (umask(2)).
    pub umask: u32,
    /// Owner; `None` leaves the node to the process's own user. In a folder with the set-group-id
    /// bit the group is the folder's.
    pub owner: Option<Owner>,
    /// Access of the returned node; only files have content.
    pub access: Access,
}

/// What a rename does with a node that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The rename fails (RENAME_NOREPLACE).
    Keep,
    /// A file replaces a file, a folder replaces an empty folder.
    Replace,
    /// Both nodes exchange their names (RENAME_EXCHANGE).
    Exchange,
}

/// Permission bits and owner to set; `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Permission bits (0o7777). Symbolic links have none.
    pub mode: Option<u32>,
    /// User id.
    pub user: Option<u32>,
    /// Group id.
    pub group: Option<u32>,
}

/// Whether an extended attribute must exist before it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrSet {
    /// It is made or replaced.
    #[default]
    Any,
    /// It must not exist (XATTR_CREATE).
    Create,
    /// It must exist (XATTR_REPLACE).
    Replace,
}
