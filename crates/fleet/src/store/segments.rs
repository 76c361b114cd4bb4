//! Segments on the tree, in one folder for each first byte of the name of their task:
//!
//! ```text
//!   segments/0a/0a1b….EPOCH.N
//! ```
//!
//! A billion entries make a million segments. What is asked for is nearly always those of one task,
//! and a listing of all of them, twice for each task, would take longer than the copy.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Store;
use crate::catalog::{Block, SegmentId, SegmentReader};
use crate::claim::ClaimId;
use crate::error::{Error, Result};
use crate::files::name;
use crate::task::TaskId;
use ropeway_vfs::RelPath;

/// Folders of segments at most.
pub(crate) const SEGMENT_FOLDERS: usize = 256;

/// A set of folders of segments.
#[derive(Debug, Default)]
pub(super) struct KnownFolders([AtomicU64; SEGMENT_FOLDERS / 64]);

impl KnownFolders {
    fn contains(&self, folder: u8) -> bool {
        let word = self.0[usize::from(folder / 64)].load(Ordering::Relaxed);
        word >> (folder % 64) & 1 == 1
    }

    fn insert(&self, folder: u8) {
        self.0[usize::from(folder / 64)].fetch_or(1 << (folder % 64), Ordering::Relaxed);
    }
}

/// Parses the name of a folder of segments.
fn parse(text: &[u8]) -> Option<u8> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 || !text.iter().all(is_digit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

impl Store {
    fn segment_folder(&self, folder: u8) -> RelPath {
        self.path("segments", format!("{folder:02x}"))
    }

    /// Makes the folder for the segments of a task, and makes it durable.
    async fn make_segment_folder(&self, claim: ClaimId) -> Result<RelPath> {
        let number = claim.task.folder();
        let path = self.segment_folder(number);
        if self.known.contains(number) {
            return Ok(path);
        }
        match self.files.make_dir(&path).await {
            // Also one that is there: whoever made it may have died before it was durable.
            Ok(_) => {}
            Err(error) => return Err(self.lost_or(claim, error).await),
        }
        let synced = self.tree().sync_dir(&self.folder("segments")).await;
        synced.map_err(Error::target)?;
        self.known.insert(number);
        Ok(path)
    }

    /// Publishes a segment: it is durable and part of the catalog when this returns.
    ///
    /// # Errors
    /// [`Error::Claim`] if the claim is over. The segment is then not part of the catalog.
    pub async fn publish_segment(&self, id: SegmentId, bytes: &[u8]) -> Result<()> {
        let text = id.to_string();
        self.write_in_claim(id.claim, &text, bytes).await?;
        let (folder, published) = (self.make_segment_folder(id.claim).await?, name(&text));
        let written = self.own_folder(id.claim).join(&published);
        match self
            .tree()
            .rename(&written, &folder.join(&published), false)
            .await
        {
            Ok(()) => {}
            // Over a network the reply to a rename may be lost, and the rename repeated.
            Err(error) if error.kind.is_absence() => {
                let exists = self.files.exists(&folder, &published).await;
                if !exists.map_err(Error::target)? {
                    return Err(self.lost_or(id.claim, error).await);
                }
            }
            Err(error) => return Err(Error::target(error)),
        }
        self.tree().sync_dir(&folder).await.map_err(Error::target)
    }

    /// Returns the segments of a task, or of all, in the order of claims and numbers.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn segments(&self, task: Option<TaskId>) -> Result<Vec<SegmentId>> {
        if let Some(task) = task {
            return self.segments_with(task.folder(), &format!("{task}.")).await;
        }
        let mut segments = Vec::new();
        for folder in self.segment_folders().await? {
            segments.extend(self.segments_in(folder).await?);
        }
        Ok(segments)
    }

    /// Returns the folders that have segments, in order: the first bytes of names of tasks.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn segment_folders(&self) -> Result<BTreeSet<u8>> {
        let names = self.files.names(&self.folder("segments"), b"").await;
        let names = names.map_err(Error::target)?;
        Ok(names.iter().filter_map(|name| parse(name.as_bytes())).collect())
    }

    /// Returns the segments in one folder, in the order of claims and numbers.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn segments_in(&self, folder: u8) -> Result<Vec<SegmentId>> {
        self.segments_with(folder, "").await
    }

    async fn segments_with(&self, folder: u8, prefix: &str) -> Result<Vec<SegmentId>> {
        let names = self
            .files
            .names(&self.segment_folder(folder), prefix.as_bytes())
            .await;
        let names = names.map_err(Error::target)?;
        let found = names.iter().filter_map(|name| SegmentId::parse(name.as_bytes()));
        let mut segments: Vec<SegmentId> = found.filter(|id| id.claim.task.folder() == folder).collect();
        segments.sort_unstable();
        Ok(segments)
    }

    /// Reads a segment. What it records cannot be found out in another way: files with several
    /// names, folders, tasks that were given away.
    ///
    /// # Errors
    /// The catalog cannot be read, or the segment is damaged.
    pub async fn segment(&self, id: SegmentId) -> Result<Vec<Block>> {
        let bytes = self.segment_bytes(id).await?;
        SegmentReader::all(&bytes).ok_or_else(|| Error::Damaged(format!("segments/{id}")))
    }

    /// Reads a segment, but not the blocks of files that need nothing more: for the late passes.
    ///
    /// # Errors
    /// The catalog cannot be read, or the segment is damaged in what is read.
    pub async fn segment_for_late(&self, id: SegmentId) -> Result<Vec<Block>> {
        let bytes = self.segment_bytes(id).await?;
        SegmentReader::unsettled(&bytes).ok_or_else(|| Error::Damaged(format!("segments/{id}")))
    }

    async fn segment_bytes(&self, id: SegmentId) -> Result<Vec<u8>> {
        let path = self.segment_folder(id.claim.task.folder());
        let bytes = self.files.read(&path.join(&name(&id.to_string()))).await;
        Ok(bytes.map_err(Error::target)?.unwrap_or_default())
    }
}
