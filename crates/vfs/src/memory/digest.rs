//! A memory tree as a far end with digests of its folders.

use std::collections::HashMap;

use crate::{DirEntry, FolderDigest, Kind, Metadata, Name, Origin};

/// A digest that keeps what it stands for.
#[derive(Debug)]
pub(super) struct MemoryDigest(pub(super) Vec<(Name, Metadata)>);

impl FolderDigest for MemoryDigest {
    fn entries(&self, twin: &[DirEntry]) -> Option<Vec<DirEntry>> {
        let own: HashMap<&Name, &Metadata> = self.0.iter().map(|(name, metadata)| (name, metadata)).collect();
        if twin.len() != own.len() {
            return None;
        }
        let equal = |one: &Metadata, other: &Metadata| match (one.kind, other.kind) {
            (Kind::File, Kind::File) => (one.size, one.modified) == (other.size, other.modified),
            (one, other) => one == other && one == Kind::Directory,
        };
        let entry = |twin: &DirEntry| {
            let (found, twin_metadata) = (own.get(&twin.name)?, twin.metadata.as_ref().ok()?);
            equal(found, twin_metadata).then(|| DirEntry {
                name: twin.name.clone(),
                metadata: Ok(shown(found)),
            })
        };
        twin.iter().map(entry).collect()
    }

    fn origin(&self) -> Option<Origin> {
        None
    }
}

/// What is known of an entry.
fn shown(found: &Metadata) -> Metadata {
    match found.kind {
        Kind::File => Metadata {
            mode: found.mode,
            owner: found.owner,
            dos_attributes: found.dos_attributes,
            ..Metadata::bare(Kind::File, found.size, found.modified)
        },
        _ => found.clone(),
    }
}
