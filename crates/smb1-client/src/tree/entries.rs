//! Listings of a tree's folders.

use std::collections::VecDeque;
use std::sync::Arc;

use ropeway_smb_client::common::{
    basic, id, kind, name_of, pattern_of, shown_name, tree_error, with_message,
};
use ropeway_smb_client::{FileAttributes, Text};
use ropeway_smb_wire::fsctl::reparse::ReparseTag;
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb1::wire::find::Entry;
use ropeway_vfs::{DirEntry, ErrorKind, Kind, Metadata, Name, Op, Origin, Pending, RelPath, Result};

use super::Inner;
use crate::listing::Listing;

/// A listing of a folder.
pub(super) struct Smb1Listing {
    tree: Arc<Inner>,
    dir: RelPath,
    listing: Listing,
    ready: VecDeque<(Text, Entry)>,
    is_ended: bool,
    /// Numbers of the folder and of its parent.
    dots: (Option<u64>, Option<u64>),
}

impl Smb1Listing {
    pub(super) async fn start(tree: &Arc<Inner>, dir: &RelPath) -> Result<Self> {
        let text = tree.base.text(Op::List, dir)?;
        let mut listing = Smb1Listing {
            tree: Arc::clone(tree),
            dir: dir.clone(),
            listing: Listing::new(&tree.share, &text, &Text::from("*")),
            ready: VecDeque::new(),
            is_ended: false,
            dots: (None, None),
        };
        // The first names, so that a missing folder is reported at once.
        listing.fetch().await?;
        Ok(listing)
    }

    async fn fetch(&mut self) -> Result<()> {
        let found = self.listing.next().await;
        match self.tree.map_error(Op::List, &self.dir, found).await? {
            Some(batch) => {
                for (name, entry) in batch {
                    match name.to_string_lossy().as_str() {
                        "." => self.dots.0 = self.number(&entry),
                        ".." => self.dots.1 = self.number(&entry),
                        _ => self.ready.push_back((name, entry)),
                    }
                }
            }
            None => self.is_ended = true,
        }
        Ok(())
    }

    fn number(&self, entry: &Entry) -> Option<u64> {
        (self.tree.has_numbers && self.listing.has_numbers()).then_some(entry.file_id)
    }

    async fn entry(&self, name: &Text, entry: &Entry) -> Result<DirEntry> {
        let Some(known) = name_of(name) else {
            let shown = shown_name(name);
            let error = with_message(
                Op::List,
                &self.dir.join(&shown),
                ErrorKind::InvalidReply,
                "the server lists a name that no file can have",
            );
            return Ok(DirEntry {
                name: shown,
                metadata: Err(error),
            });
        };
        let metadata = self.metadata(&known, entry).await;
        Ok(DirEntry {
            name: known,
            metadata,
        })
    }

    async fn metadata(&self, name: &Name, entry: &Entry) -> Result<Metadata> {
        let attributes = FileAttributes::from_bits_retain(entry.attributes);
        let times = FileBasicInformation {
            creation_time: entry.creation_time,
            last_access_time: entry.last_access_time,
            last_write_time: entry.last_write_time,
            change_time: entry.change_time,
            attributes,
        };
        let mut metadata = Metadata {
            id: self.number(entry).and_then(|number| id(self.tree.serial, number)),
            ..basic(&times, entry.end_of_file, entry.allocation_size)
        };
        if attributes.contains(FileAttributes::REPARSE_POINT) {
            // The size of extended attributes is the tag ([MS-FSCC] 2.4.17).
            match kind(attributes, Some(ReparseTag(entry.ea_size))) {
                Some(kind @ (Kind::File | Kind::Directory)) => metadata.kind = kind,
                _ => {
                    let path = self.dir.join(name);
                    self.tree.read_special(Op::Stat, &path, &mut metadata).await?;
                }
            }
        }
        Ok(metadata)
    }
}

impl ropeway_vfs::Listing for Smb1Listing {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>> {
        Box::pin(async move {
            while self.ready.is_empty() && !self.is_ended {
                self.fetch().await?;
            }
            let count = max.min(self.ready.len());
            let batch: Vec<_> = self.ready.drain(..count).collect();
            let mut entries = Vec::with_capacity(count);
            for (name, entry) in &batch {
                entries.push(self.entry(name, entry).await?);
            }
            Ok(entries)
        })
    }

    fn origin(&self) -> Option<Origin> {
        let of = |number: Option<u64>| number.and_then(|number| id(self.tree.serial, number));
        Some(Origin {
            own: of(self.dots.0),
            parent: of(self.dots.1),
        })
    }
}

impl Inner {
    /// Returns the names in a folder that start with `prefix`. The server filters them.
    pub(super) async fn names_with_prefix(&self, dir: &RelPath, prefix: &[u8]) -> Result<Vec<Name>> {
        let text = self.base.text(Op::List, dir)?;
        let pattern = pattern_of(prefix);
        let mut listing = Listing::new(&self.share, &text, &pattern);
        let mut found = Vec::new();
        loop {
            let batch = match listing.next().await {
                Ok(batch) => batch,
                // No name matches.
                Err(error) if error.status() == Some(ropeway_smb_client::NtStatus::NO_SUCH_FILE) => None,
                Err(error) => return Err(tree_error(Op::List, dir, error)),
            };
            let Some(batch) = batch else {
                return Ok(found);
            };
            let names = batch.iter().filter_map(|(name, _)| name_of(name));
            found.extend(names.filter(|name| name.as_bytes().starts_with(prefix)));
        }
    }
}
