//! Proves, before anything in a folder is deleted, that it is a child of the folder that listed it.

use ropeway_vfs::{Error, ErrorKind, FileId, Listing, Origin, RelPath, Tree, prove_child};

/// Where a folder was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Above {
    /// The user named it, or this job made it: there is nothing to prove.
    Named,
    /// In the listing of the folder with this identity.
    In(Option<FileId>),
}

impl Above {
    /// Returns the place of what a listing shows.
    pub(crate) fn of(listing: &dyn Listing) -> Self {
        Self::In(listing.origin().and_then(|origin: Origin| origin.own))
    }

    /// Proves that a folder is a child of where it was found. Call it when its first entries are
    /// there.
    ///
    /// # Errors
    /// The folder is reached through a link that the server follows, or that is not known.
    pub(crate) fn prove(self, tree: &dyn Tree, path: &RelPath, listing: &dyn Listing) -> Result<(), Error> {
        match self {
            Self::Named => Ok(()),
            Self::In(above) => prove_child(tree, path, above, listing.origin()),
        }
    }
}

/// Proves that a path below a folder that the user named leads through no link that the server
/// follows. Only servers that may follow links are asked: it costs a listing for each name.
///
/// # Errors
/// It leads through one, or a folder cannot be listed.
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
