//! The entries of one listing: which of them take part in the copy, under which names, and what
//! stands under these names on the target.

use std::sync::atomic::Ordering;

use ropeway_plan::names::Collision;
use ropeway_vfs::{DirEntry, End, Error, ErrorKind, Kind, Loss, Metadata, Name, Op, RelPath, Tree};

use crate::delete::moved::is_probe;
use crate::job::context::Context;
use crate::job::counters::Live;
use crate::job::root::JobRoot;
use crate::place::folder::Folder;
use crate::sweep::others::skips_in_source;
use crate::walk::leftover::Names;
use crate::walk::standing::Standing;

/// An entry that takes part in the copy.
pub(super) struct Admitted {
    /// Its name on the target.
    pub(super) name: Name,
    pub(super) source_path: RelPath,
    pub(super) metadata: Metadata,
}

/// Chooses the entries of one root that take part in the copy.
pub(super) struct EntryFilter<'a> {
    context: &'a Context,
    root: &'a JobRoot,
    /// The volume of the root in the source.
    pub(super) volume: Option<u64>,
}

impl<'a> EntryFilter<'a> {
    pub(super) fn new(context: &'a Context, root: &'a JobRoot) -> Self {
        Self {
            context,
            root,
            volume: None,
        }
    }

    /// Filters and counts one entry, and maps its name. Reports an entry that cannot be copied.
    pub(super) async fn admit(
        &self,
        folder: &Folder,
        dir: &RelPath,
        entry: DirEntry,
        names: &mut Names,
    ) -> Option<Admitted> {
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
                let shown = self.root.shown(&source_path);
                self.context.fail(&shown, error, End::Source).await;
                return None;
            }
        };
        let is_ours = is_probe(&self.context.config, &entry.name, &metadata)
            || skips_in_source(self.context, &entry.name);
        if is_ours || !self.context.config.options.filter.node(&below, &metadata) {
            return None;
        }
        if self.context.config.options.filter.is_listed(&below) {
            self.context.listed_paths.meet(&below);
        }
        if metadata.is_dir() && self.is_other_volume(&metadata) {
            report.note(Some(&below), "another file system; not entered (-x)");
        }
        if !metadata.is_dir() {
            count_walked(&report.live, &metadata);
        }
        if self.context.config.options.preserve.times && !metadata.modified.is_known() {
            report.lose(&[Loss::Times]);
        }
        let fault = match self.root.names.map(&entry.name) {
            Ok(mapped) => {
                if mapped.changed {
                    report.lose(&[Loss::Name]);
                }
                let collision = names.insert(&mapped.name);
                if collision == Some(Collision::Normalization) {
                    report.note(Some(&below), Collision::Normalization.to_string());
                }
                match collision {
                    None | Some(Collision::Normalization) => {
                        return Some(Admitted {
                            name: mapped.name,
                            source_path,
                            metadata,
                        });
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

    /// Whether a node lies on another volume than the root, and stays out (`-x`).
    pub(super) fn is_other_volume(&self, metadata: &Metadata) -> bool {
        self.context.config.options.one_file_system && metadata.id.map(|id| id.volume) != self.volume
    }
}

/// Counts a node that the walk found.
pub(super) fn count_walked(live: &Live, metadata: &Metadata) {
    live.walked_files.fetch_add(1, Ordering::Relaxed);
    if metadata.kind == Kind::File {
        live.walked_bytes.fetch_add(metadata.size, Ordering::Relaxed);
    }
}

/// Returns what stands on the target under the names of these nodes.
pub(super) async fn look_up(
    target: &dyn Tree,
    folder: &Folder,
    nodes: &[Admitted],
    standing: &mut Standing,
) -> Result<Vec<Option<Metadata>>, Error> {
    if folder.inner().fresh {
        return Ok(vec![None; nodes.len()]);
    }
    let names: Vec<Name> = nodes.iter().map(|node| node.name.clone()).collect();
    let place = (&folder.path(), folder.is_left_over());
    let found = standing.look_up(target, place, &names).await?;
    found.into_iter().collect()
}
