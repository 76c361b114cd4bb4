//! The counting walk: totals for the estimate, and everything that can be known before the first write.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_plan::names::{Collision, FolderNames};
use ropeway_vfs::{Error, ErrorKind, Kind, RelPath};

use crate::context::{Context, RootContext};
use crate::status::{Fatal, Status};

/// The counting walk begins after this long: shorter jobs need no estimate.
const COUNT_AFTER: Duration = Duration::from_millis(300);
const CHUNK: usize = 2048;

/// Counts all roots beside the copy.
pub(crate) async fn run_beside(context: Arc<Context>, roots: Vec<Arc<RootContext>>) {
    if !context.sleep(COUNT_AFTER).await {
        return;
    }
    for root in &roots {
        let count = Count {
            context: &context,
            root,
            check_names: false,
            faults: 0,
        };
        if count.run().await.is_err() {
            return;
        }
        warn_of_space(&context).await;
    }
    context.live.count_final.store(true, Ordering::Release);
}

/// Counts all roots before the copy, checks names and space.
///
/// # Errors
/// What makes the copy impossible; nothing was touched.
pub(crate) async fn preflight(context: &Arc<Context>, roots: &[Arc<RootContext>]) -> Result<(), Fatal> {
    let mut faults = 0;
    for root in roots {
        let count = Count {
            context,
            root,
            check_names: true,
            faults: 0,
        };
        faults += count
            .run()
            .await
            .map_err(|error| Fatal::from_error(&error, true))?;
    }
    context.live.count_final.store(true, Ordering::Release);
    if faults > 0 {
        return Err(Fatal::new(
            Status::Refused,
            format!("the target cannot hold {faults} of the names; nothing was copied"),
        )
        .hint("rename or exclude them, or let them be mapped with --names map"));
    }
    let needed = context.live.counted_bytes.load(Ordering::Relaxed);
    let space = context
        .target
        .space()
        .await
        .map_err(|error| Fatal::from_error(&error, false))?;
    if context.options.preflight && needed > space.available {
        let message = format!(
            "the source holds {needed} bytes and the target has room for {}; nothing was copied",
            space.available
        );
        return Err(Fatal::new(Status::TargetUnwritable, message)
            .hint("what is equal already or sparse needs less: run without --preflight to try"));
    }
    Ok(())
}

/// Says early when the totals outgrow the room, and goes on: skipped, sparse or cloned files need none.
async fn warn_of_space(context: &Context) {
    let live = &context.live;
    let left = live
        .counted_bytes
        .load(Ordering::Relaxed)
        .saturating_sub(live.bytes_landed.load(Ordering::Relaxed));
    if let Ok(space) = context.target.space().await
        && left > space.available
    {
        let message = format!(
            "{left} bytes are left to copy and the target has room for {}",
            space.available
        );
        context.note(None, message);
    }
}

struct Count<'a> {
    context: &'a Context,
    root: &'a RootContext,
    check_names: bool,
    faults: u64,
}

impl Count<'_> {
    /// Counts one root; the number of names that the target cannot hold.
    async fn run(mut self) -> Result<u64, Error> {
        let spec = &self.root.root;
        let metadata = spec.source.metadata(&spec.source_path).await?;
        if !metadata.is_dir() {
            self.count(metadata.kind, metadata.size);
            return Ok(0);
        }
        let volume = metadata.id.map(|id| id.volume);
        let mut folders = vec![spec.source_path.clone()];
        while let Some(dir) = folders.pop() {
            if self.context.stopped() || self.context.live.walk_final.load(Ordering::Acquire) {
                break;
            }
            self.folder(&dir, volume, &mut folders).await?;
        }
        Ok(self.faults)
    }

    async fn folder(
        &mut self,
        dir: &RelPath,
        volume: Option<u64>,
        folders: &mut Vec<RelPath>,
    ) -> Result<(), Error> {
        let spec = &self.root.root;
        // What cannot be listed is reported by the copy itself.
        let Ok(mut listing) = spec.source.list(dir).await else {
            return Ok(());
        };
        let mut names = FolderNames::new(self.context.target.capabilities());
        loop {
            let entries = match listing.next(CHUNK).await {
                Ok(entries) if entries.is_empty() => return Ok(()),
                Ok(entries) => entries,
                Err(error) if error.kind == ErrorKind::Gone => return Err(error),
                Err(_) => return Ok(()),
            };
            for entry in entries {
                let Ok(metadata) = entry.metadata else { continue };
                let path = dir.join(&entry.name);
                let Some(below) = path.strip_prefix(&spec.source_path) else {
                    continue;
                };
                let filter = &self.context.options.filter;
                let taken = if metadata.is_dir() {
                    filter.directory(&below)
                } else {
                    filter.node(&below, &metadata)
                };
                if !taken {
                    continue;
                }
                if self.check_names {
                    self.check_name(&below, &entry.name, &mut names);
                }
                if !metadata.is_dir() {
                    self.count(metadata.kind, metadata.size);
                } else if !self.context.options.one_file_system || metadata.id.map(|id| id.volume) == volume {
                    folders.push(path);
                }
            }
        }
    }

    fn check_name(&mut self, below: &RelPath, name: &ropeway_vfs::Name, names: &mut FolderNames) {
        let fault = match self.root.names.map(name) {
            Ok(mapped) => match names.insert(&mapped.name) {
                Some(Collision::Normalization) | None => None,
                Some(collision) => Some(collision.to_string()),
            },
            Err(fault) => Some(fault.to_string()),
        };
        if let Some(fault) = fault {
            self.faults += 1;
            self.context.note(Some(below), fault);
        }
    }

    fn count(&self, kind: Kind, size: u64) {
        self.context.live.counted_files.fetch_add(1, Ordering::Relaxed);
        if kind == Kind::File {
            self.context.live.counted_bytes.fetch_add(size, Ordering::Relaxed);
        }
    }
}
