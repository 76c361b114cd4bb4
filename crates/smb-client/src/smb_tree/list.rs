//! Listings of a tree's folders.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt as _;
use ropeway_smb_wire::FileAttributes;
use ropeway_smb_wire::fsctl::reparse::ReparseTag;
use ropeway_smb_wire::info::{BadRecord, DirectoryRecord};
use ropeway_vfs::{DirEntry, ErrorKind, Kind, Listing, Metadata, Name, Op, Origin, Pending, RelPath, Result};

use super::errors::{tree_error, with_message};
use super::inner::Inner;
use super::names::AT_ONCE;
use super::{map, paths};
use crate::directory::{Directory, DotEntries};
use crate::reopen::HandleInner;

/// A listing of a folder.
pub struct SmbListing {
    tree: Arc<Inner>,
    dir: RelPath,
    /// `None` if the cache had all names.
    directory: Option<Directory>,
    ready: VecDeque<DirectoryRecord>,
    bad: VecDeque<BadRecord>,
    ended: bool,
    /// File numbers from cached names.
    dots: DotEntries,
}

impl SmbListing {
    pub(crate) async fn start(tree: Arc<Inner>, dir: &RelPath) -> Result<Self> {
        Self::start_leased(tree, dir, false).await
    }

    /// Starts a listing, with a lease on the folder if `lease` is set and the server grants one.
    pub(crate) async fn start_leased(tree: Arc<Inner>, dir: &RelPath, lease: bool) -> Result<Self> {
        let text = tree.base.text(Op::List, dir)?;
        if let Some(names) = tree.listing_cache.names(&text) {
            let mut dots = DotEntries::default();
            for record in &names {
                dots.take(record);
            }
            return Ok(Self {
                dir: dir.clone(),
                directory: None,
                ready: names.into(),
                bad: VecDeque::new(),
                ended: true,
                dots,
                tree,
            });
        }
        let follow = tree.is_content_shown(dir);
        let listed = tree.share.list_leased(&text, follow, lease).await;
        let directory = tree.map_error(Op::List, dir, listed).await?;
        Ok(Self {
            dir: dir.clone(),
            directory: Some(directory),
            ready: VecDeque::new(),
            bad: VecDeque::new(),
            ended: false,
            dots: DotEntries::default(),
            tree,
        })
    }

    /// Returns the open folder, unless its names came from a cache.
    pub(crate) fn folder(&self) -> Option<&Arc<HandleInner>> {
        self.directory.as_ref().map(|directory| &directory.handle().inner)
    }

    async fn chunk(&mut self, max: usize) -> Result<Vec<DirEntry>> {
        while self.ready.is_empty() && self.bad.is_empty() && !self.ended {
            let Some(directory) = &mut self.directory else {
                break;
            };
            match directory.next().await {
                Ok(Some(records)) => self.ready.extend(records),
                Ok(None) => self.ended = true,
                Err(error) => return Err(tree_error(Op::List, &self.dir, error)),
            }
            self.bad.extend(directory.take_bad());
        }
        if !self.bad.is_empty() {
            let bad: Vec<BadRecord> = self.bad.drain(..max.min(self.bad.len())).collect();
            return Ok(bad.iter().map(|record| self.bad_entry(record)).collect());
        }
        let count = max.min(self.ready.len());
        let records: Vec<DirectoryRecord> = self.ready.drain(..count).collect();
        let this = &*self;
        let entries = records.into_iter().map(|record| this.entry(record));
        let mut entries = futures_util::stream::iter(entries).buffered(AT_ONCE);
        let mut chunk = Vec::with_capacity(count);
        while let Some(entry) = entries.next().await {
            chunk.extend(entry?);
        }
        Ok(chunk)
    }

    /// Returns one entry; `None` for `.` and `..`. Only links take a request: their size is that of
    /// their text.
    async fn entry(&self, record: DirectoryRecord) -> Result<Option<DirEntry>> {
        if matches!(record.name.to_string_lossy().as_str(), "." | "..") {
            return Ok(None);
        }
        let Some(name) = paths::name_of(&record.name) else {
            let sentence = "the server lists a name that no file can have";
            return Ok(Some(self.senseless(paths::shown_name(&record.name), sentence)));
        };
        let metadata = self.metadata(&record, &self.dir.join(&name)).await;
        Ok(Some(DirEntry { name, metadata }))
    }

    /// Returns the entry of a malformed record.
    fn bad_entry(&self, record: &BadRecord) -> DirEntry {
        let name = paths::marked_name(&record.shown);
        let sentence = format!(
            "the server lists a name that cannot be read ({})",
            record.malformed
        );
        self.senseless(name, &sentence)
    }

    /// Returns a failed entry. Its name only serves for messages; no operation uses it.
    fn senseless(&self, name: Name, sentence: &str) -> DirEntry {
        let error = with_message(Op::List, &self.dir.join(&name), ErrorKind::InvalidReply, sentence);
        DirEntry {
            name,
            metadata: Err(error),
        }
    }

    async fn metadata(&self, record: &DirectoryRecord, path: &RelPath) -> Result<Metadata> {
        let mut metadata = self.tree.record(record);
        if !record.attributes.contains(FileAttributes::REPARSE_POINT) {
            return Ok(metadata);
        }
        let tag = record.reparse_tag().map(ReparseTag);
        match map::kind(record.attributes, tag) {
            Some(kind @ (Kind::File | Kind::Directory)) => {
                metadata.kind = kind;
                self.tree.note_content_shown(path, kind);
            }
            _ => self.tree.read_reparse_kind(Op::Stat, path, &mut metadata).await?,
        }
        Ok(metadata)
    }
}

impl Listing for SmbListing {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>> {
        Box::pin(async move {
            // A batch of only `.` and `..` is not the end.
            loop {
                let chunk = self.chunk(max).await?;
                if !chunk.is_empty() || (self.ended && self.ready.is_empty() && self.bad.is_empty()) {
                    return Ok(chunk);
                }
            }
        })
    }

    fn origin(&self) -> Option<Origin> {
        let dots = self.directory.as_ref().map_or(self.dots, Directory::dots);
        let id = |number: Option<u64>| number.and_then(|number| map::id(self.tree.volume, number));
        Some(Origin {
            own: id(dots.own),
            parent: id(dots.parent),
        })
    }
}

impl std::fmt::Debug for SmbListing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SmbListing({})", self.dir)
    }
}
