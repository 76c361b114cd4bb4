//! What is shared, and who asks.

use std::sync::Arc;

use ropeway_smb_proto::wire::security::Sid;
use ropeway_vfs::store::Store;

/// One shared folder.
pub struct Share {
    /// Its name, as clients see it.
    pub name: String,
    /// What it is, for users' eyes.
    pub comment: String,
    /// The folder.
    pub store: Arc<dyn Store>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Only sealed requests are served.
    pub encrypt: bool,
}

/// Who is logged in, as access checks see it ([MS-DTYP] 2.5.3: the token).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name, for logs.
    pub name: String,
    /// The user, owner of what it makes.
    pub user: Sid,
    /// Its group, group of what it makes.
    pub group: Sid,
    /// Further groups: Everyone, Authenticated Users, Network.
    pub groups: Vec<Sid>,
}
