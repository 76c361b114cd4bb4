//! The entries of one folder: filtered, counted, mapped and looked up on the target.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::names::Collision;
use ropeway_vfs::{DirEntry, End, Error, ErrorKind, Kind, Loss, Metadata, Name, Op, RelPath};

use crate::delete::moved::is_probe;
use crate::place::folder::Folder;
use crate::place::task::FileTask;
use crate::sweep::others::skips_in_source;
use crate::walk::leftover::Names;
use crate::walk::walker::Walker;

impl Walker<'_> {
    /// Decides on a part of a folder's entries and starts their work.
    pub(super) async fn chunk(
        &mut self,
        folder: &Arc<Folder>,
        dir: &RelPath,
        entries: Vec<DirEntry>,
        names: &mut Names,
    ) {
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(node) = self.admit(folder, dir, entry, names).await {
                nodes.push(node);
            }
        }
        let existing = match self.existing(folder, &nodes).await {
            Ok(existing) => existing,
            Err(error) => {
                names.miss_all(nodes.iter().map(|(name, ..)| name));
                return self.context.fail(&folder.inner().shown, error, End::Target).await;
            }
        };
        self.rules.granularity = self.root.rules.granularity.learned(
            nodes.iter().map(|(.., metadata)| metadata.modified),
            existing.iter().flatten().map(|existing| existing.modified),
        );
        let mut batch = Vec::new();
        for ((name, source_path, metadata), existing) in nodes.into_iter().zip(existing) {
            let task = FileTask {
                folder: Arc::clone(folder),
                source_path,
                name,
                metadata,
                existing,
                existing_is_own: false,
                link: None,
            };
            self.node(task, &mut batch).await;
        }
        self.flush(&mut batch).await;
    }

    /// Filters, counts and maps one entry. Returns its name on the target, its source path and its
    /// metadata.
    async fn admit(
        &self,
        folder: &Folder,
        dir: &RelPath,
        entry: DirEntry,
        names: &mut Names,
    ) -> Option<(Name, RelPath, Metadata)> {
        let report = &self.context.report;
        let source_path = dir.join(&entry.name);
        let below = source_path.strip_prefix(&self.root.whole.0)?;
        let metadata = match entry.metadata {
            Ok(metadata) => metadata,
            // It was removed after the listing, so there is nothing to copy.
            Err(error) if error.kind == ErrorKind::NotFound => {
                names.miss();
                return None;
            }
            Err(error) => {
                names.miss();
                report.live.files_failed.fetch_add(1, Ordering::Relaxed);
                self.context
                    .fail(&folder.shown(&entry.name), error, End::Source)
                    .await;
                return None;
            }
        };
        let is_ours =
            is_probe(self.context, &entry.name, &metadata) || skips_in_source(self.context, &entry.name);
        if is_ours || !self.context.config.options.filter.node(&below, &metadata) {
            return None;
        }
        if metadata.is_dir() && self.is_other_volume(&metadata) {
            report.note(Some(&below), "another file system; not entered (-x)");
        }
        if !metadata.is_dir() {
            self.count(&metadata);
        }
        if self.context.config.options.preserve.times && !metadata.modified.is_known() {
            report.lose(&[Loss::Times]);
        }
        let fault = match self.root.names.map(&entry.name) {
            Ok(mapped) => {
                if mapped.changed {
                    report.lose(&[Loss::Name]);
                }
                match names.insert(&mapped.name) {
                    None => return Some((mapped.name, source_path, metadata)),
                    Some(Collision::Normalization) => {
                        report.note(Some(&below), Collision::Normalization.to_string());
                        return Some((mapped.name, source_path, metadata));
                    }
                    Some(collision) => collision.to_string(),
                }
            }
            Err(fault) => fault.to_string(),
        };
        report.live.files_failed.fetch_add(1, Ordering::Relaxed);
        let mut error = Error::new(Op::Create, &below, ErrorKind::NameRefused);
        error.source = Some(std::io::Error::other(fault));
        self.context
            .fail(&folder.shown(&entry.name), error, End::Target)
            .await;
        None
    }

    pub(super) fn count(&self, metadata: &Metadata) {
        self.context
            .report
            .live
            .walked_files
            .fetch_add(1, Ordering::Relaxed);
        if metadata.kind == Kind::File {
            self.context
                .report
                .live
                .walked_bytes
                .fetch_add(metadata.size, Ordering::Relaxed);
        }
    }

    /// Returns what stands on the target under these names.
    async fn existing(
        &self,
        folder: &Folder,
        nodes: &[(Name, RelPath, Metadata)],
    ) -> Result<Vec<Option<Metadata>>, Error> {
        if folder.inner().fresh {
            return Ok(vec![None; nodes.len()]);
        }
        let names: Vec<Name> = nodes.iter().map(|(name, ..)| name.clone()).collect();
        let found = self.context.config.target.lookup(&folder.path(), &names).await?;
        found.into_iter().collect()
    }
}
