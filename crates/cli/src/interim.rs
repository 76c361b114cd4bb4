//! Until the tree of shares is merged.
use ropeway_smb::{Error, Share};
#[derive(Default)]
pub(crate) struct SmbTreeOptions {
    pub(crate) description: Option<String>,
    pub(crate) acls: bool,
}
pub(crate) struct SmbTree;
impl SmbTree {
    pub(crate) async fn open(
        _: Share,
        _: &str,
        options: SmbTreeOptions,
    ) -> Result<ropeway_vfs::MemoryTree, Error> {
        let _ = (options.description, options.acls);
        Err(Error::Misuse("not yet"))
    }
}
