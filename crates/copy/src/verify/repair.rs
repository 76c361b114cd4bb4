//! Repairs files whose content on the device is not that of the source: copies them again and reads
//! them back once more.
//!
//! A file that was damaged on the device, or that another program changed without changing its
//! time, looks equal by size and time. So no later run would copy it. A file that cannot be traced
//! back to its source (a mapped name), or that differs again, counts as a difference.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_plan::Rules;
use ropeway_vfs::{End, Kind, Metadata, MetadataChange, RelPath, Tree};

use crate::durable::checkpoint::checkpoint;
use crate::durable::control::DurabilityControl;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::counters::Live;
use crate::job::options::Root;
use crate::job::pass::copy_roots;
use crate::job::report::Report;
use crate::job::root::JobRoot;
use crate::verify::hashes::Hashes;
use crate::verify::manifest::ManifestEntry;
use crate::verify::read_back::{report_difference, verify_one};

/// Copies what differs again, and reports what still differs.
pub(crate) async fn repair(
    context: &Arc<Context>,
    roots: &[Arc<JobRoot>],
    hashes: &Hashes,
    differing: Vec<ManifestEntry>,
) {
    let (config, report, durability, resources) = (
        &context.config,
        &context.report,
        &context.durability,
        &context.resources,
    );
    let mut parts = Vec::new();
    for entry in differing {
        match part_of(report, roots, &entry.path).await {
            Some(part) => parts.push((entry, part)),
            None => report_difference(report, &entry),
        }
    }
    if parts.is_empty() {
        return;
    }
    let counted = Counted::of(&report.live);
    let folders = folders_of(&*config.target, parts.iter().map(|(entry, _)| &entry.path)).await;
    hashes.hold_back(true);
    let again: Vec<_> = parts.iter().map(|(_, part)| Arc::clone(part)).collect();
    copy_roots(context, &again).await;
    checkpoint(context).await;
    restore_times(config, durability, report, folders).await;
    if durability.is_touched() {
        checkpoint(context).await;
    }
    hashes.hold_back(false);
    counted.restore(&report.live);
    for (entry, _) in parts {
        if report.stopped() {
            return;
        }
        match verify_one(config, &resources.pool, report, &entry).await {
            Some(true) => {
                report.failures.repaired();
                report.note(
                    Some(&entry.path),
                    "what the device returned differed from the source; copied again, and verified",
                );
            }
            Some(false) => report_difference(report, &entry),
            None => {}
        }
    }
}

/// Returns the folders that hold these files, with their present metadata.
async fn folders_of(target: &dyn Tree, paths: impl Iterator<Item = &RelPath>) -> Vec<(RelPath, Metadata)> {
    let folders: BTreeSet<RelPath> = paths.filter_map(RelPath::parent).collect();
    let mut found = Vec::with_capacity(folders.len());
    for folder in folders {
        if let Ok(metadata) = target.metadata(&folder).await {
            found.push((folder, metadata));
        }
    }
    found
}

/// Restores the times that folders had before files in them were replaced.
async fn restore_times(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    folders: Vec<(RelPath, Metadata)>,
) {
    for (folder, before) in folders {
        let change = MetadataChange::times_of(&before);
        match config.target.set_metadata(&folder, &change).await {
            Ok(losses) => report.lose(&losses),
            Err(error) => report.fail(&folder, error, End::Target).await,
        }
        durability.touch();
    }
}

/// Returns a root for the single file at this path of the target.
async fn part_of(report: &Report, roots: &[Arc<JobRoot>], path: &RelPath) -> Option<Arc<JobRoot>> {
    for root in roots {
        let Some(below) = path.strip_prefix(&root.root.target_path) else {
            continue;
        };
        let source_path = root.root.source_path.join_path(&below);
        let is_file = matches!(
            root.root.source.metadata(&source_path).await,
            Ok(metadata) if metadata.kind == Kind::File
        );
        if root.rules.ignore_existing || !is_file || root.target_of(&below).as_ref() != Some(path) {
            continue;
        }
        let part = Root {
            source: Arc::clone(&root.root.source),
            source_name: root.root.source_name.clone(),
            source_path,
            target_path: path.clone(),
        };
        report.note(Some(path), "differs from its source on the device; copied again");
        return Some(Arc::new(JobRoot {
            index: root.index,
            whole: root.whole.clone(),
            root: part,
            rules: Rules {
                force: true,
                checksum: false,
                ..root.rules
            },
            names: root.names,
            is_repair: true,
            digests: None,
            is_changed: false.into(),
            needs_deletion: true.into(),
        }));
    }
    None
}

/// Counters that a repair would count twice.
struct Counted([u64; 7]);

impl Counted {
    fn counters(live: &Live) -> [&AtomicU64; 7] {
        [
            &live.files_done,
            &live.bytes_done,
            &live.bytes_landed,
            &live.bytes_durable,
            &live.files_durable,
            &live.walked_files,
            &live.walked_bytes,
        ]
    }

    fn of(live: &Live) -> Self {
        Self(Self::counters(live).map(|counter| counter.load(Ordering::Acquire)))
    }

    /// Sets the counters back. Call it when no copy is in progress.
    fn restore(self, live: &Live) {
        for (counter, value) in Self::counters(live).into_iter().zip(self.0) {
            counter.store(value, Ordering::Release);
        }
    }
}
