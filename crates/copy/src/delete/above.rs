//! What is known of the folder in which a folder was found, before anything in the latter is
//! deleted.

use ropeway_vfs::{Error, ErrorKind, FileId, Listing, Origin, RelPath, Tree, prove_child};

/// Where a folder was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Above {
    /// The user named it, or this job made it: nothing has to be proven.
    Named,
    /// In the listing of the folder of this identity.
    In(Option<FileId>),
}

impl Above {
    /// Of what a listing shows.
    pub(crate) fn of(listing: &dyn Listing) -> Self {
        Self::In(listing.origin().and_then(|origin: Origin| origin.own))
    }

    /// To be asked once the first entries of the folder are there.
    ///
    /// # Errors
    /// The folder is reached through a link that the server follows, or that cannot be told.
    pub(crate) fn prove(self, tree: &dyn Tree, path: &RelPath, listing: &dyn Listing) -> Result<(), Error> {
        match self {
            Self::Named => Ok(()),
            Self::In(above) => prove_child(tree, path, above, listing.origin()),
        }
    }
}

/// Proves that a path leads through no link that the server follows, from a folder that the user
/// named. Asked only of servers that may follow any: it costs a listing for each name.
///
/// # Errors
/// It does, or a folder cannot be listed.
pub(super) async fn prove_path(tree: &dyn Tree, named: &RelPath, below: &RelPath) -> Result<(), Error> {
    if tree.capabilities().links_shown {
        return Ok(());
    }
    let (mut path, mut above) = (named.clone(), Above::Named);
    let mut names = below.components();
    loop {
        let mut listing = tree.list(&path).await?;
        listing.next(1).await?;
        above.prove(tree, &path, &*listing)?;
        above = Above::of(&*listing);
        match names.next() {
            Some(name) => path = path.join(&name),
            None => return Ok(()),
        }
    }
}

/// Whether an error says that a folder was reached through a link.
pub(super) fn is_link(error: &Error) -> bool {
    error.kind == ErrorKind::SymbolicLink
}
