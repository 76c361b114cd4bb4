//! The counting walk: totals for the estimate, and checks before the first write.
//!
//! During a copy it runs ahead and keeps its listings for the copying walk. Before a copy
//! (`--preflight`, mirror) it checks names and space.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::names::{Collision, FolderNames};
use ropeway_vfs::{Ancestry, DirEntry, End, Error, ErrorKind, Kind, Metadata, Name, RelPath};
use tokio::time::Instant;

use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::options::is_temporary;
use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;
use crate::job::root::JobRoot;
use crate::walk::balance::Balance;
use crate::walk::list_ahead::{AHEAD_NAMED_MAX, CHUNK, ListAhead};
use crate::walk::listing_cache::ListingCache;
use crate::walk::standing::{STANDING_LARGE_MAX, Standing};

/// Counts all roots during the copy. If they were counted before it, this only lists ahead of the copying
/// walk.
pub(crate) async fn count_during_copy(context: Arc<Context>, roots: Vec<Arc<JobRoot>>) {
    let is_known = context.report.live.count_final.load(Ordering::Acquire);
    // The copying walk lists the folders of a distant source ahead by itself, and finds those of a source that
    // is compared with a distant target.
    let is_compared = |root: &JobRoot| root.digests.as_ref().is_some_and(Balance::is_promising);
    let is_needed =
        |root: &&Arc<JobRoot>| !is_known || !(root.root.source.capabilities().remote || is_compared(root));
    for root in roots.iter().filter(is_needed) {
        let cache = Some(&context.listing_cache);
        let mut count = Count::new(&context.config, &context.report, root, cache);
        count.adds = !is_known;
        if count.run().await.is_err() {
            return;
        }
        if is_known {
            continue;
        }
        warn_of_space(&context.config, &context.report).await;
    }
    context.report.live.count_final.store(true, Ordering::Release);
}

/// Counts all roots before the copy, checks names and space.
///
/// # Errors
/// The copy is impossible; nothing was touched.
pub(crate) async fn preflight(
    config: &JobConfig,
    report: &Report,
    resumed: bool,
    roots: &[Arc<JobRoot>],
) -> Result<(), Fatal> {
    let found = count_all(config, report, roots, false).await?;
    report.live.count_final.store(true, Ordering::Release);
    if found.faults > 0 {
        return Err(Fatal::new(
            Status::Refused,
            format!(
                "the target cannot hold {} of the names; nothing was copied",
                found.faults
            ),
        )
        .hint("rename or exclude them, or let them be mapped with --names map"));
    }
    let space = config
        .target
        .space()
        .await
        .map_err(|error| Fatal::from_error(&error, End::Target))?;
    // A volume without a size (some FUSE file systems) does not report its room either. What an
    // earlier run of this job left under temporary names needs no further room, and is not counted
    // here.
    if !config.options.preflight || resumed || space.total == 0 || found.needed <= space.available {
        return Ok(());
    }
    // Some of it may be there already and need no room. To know that, the whole target is listed.
    let needed = count_all(config, report, roots, true).await?.needed;
    if needed > space.available {
        let message = format!(
            "{needed} bytes are to be copied and the target has room for {}; nothing was copied",
            space.available
        );
        return Err(Fatal::new(Status::TargetUnwritable, message)
            .hint("make room; or run without --preflight to copy what fits"));
    }
    Ok(())
}

/// Counts all roots before the copy. `weighs`: whether files that the target has already need no room.
async fn count_all(
    config: &JobConfig,
    report: &Report,
    roots: &[Arc<JobRoot>],
    weighs: bool,
) -> Result<Found, Fatal> {
    let mut all = Found::default();
    for root in roots {
        let mut count = Count::new(config, report, root, None);
        (count.weighs, count.adds) = (weighs, !weighs);
        let found = count.run().await;
        let found = found.map_err(|error| Fatal::from_error(&error, End::Source))?;
        all.faults += found.faults;
        all.needed += found.needed;
    }
    Ok(all)
}

/// Warns when the totals outgrow the room, and goes on: skipped, sparse or cloned files need none.
async fn warn_of_space(config: &JobConfig, report: &Report) {
    let live = &report.live;
    let left = live
        .counted_bytes
        .load(Ordering::Relaxed)
        .saturating_sub(live.bytes_landed.load(Ordering::Relaxed));
    if let Ok(space) = config.target.space().await
        && space.total > 0
        && left > space.available
    {
        let message = format!(
            "{left} bytes are left to copy and the target has room for {}",
            space.available
        );
        report.note(None, message);
    }
}

/// The result of a count.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// Number of names that the target cannot hold.
    faults: u64,
    /// Bytes that need room on the target: those of all files, or of those without an equal there.
    needed: u64,
}

struct Count<'a> {
    config: &'a JobConfig,
    report: &'a Report,
    root: &'a JobRoot,
    /// Where the copying walk beside this one finds the listings. `None` before the copy: then
    /// names are checked, unless it weighs.
    cache: Option<&'a ListingCache>,
    /// Whether it adds to the totals.
    adds: bool,
    /// Whether it asks the target for what is there already and needs no room.
    weighs: bool,
    /// Listings of the folders that are counted next, of both ends.
    sources: ListAhead,
    targets: ListAhead,
    found: Found,
}

impl<'a> Count<'a> {
    fn new(
        config: &'a JobConfig,
        report: &'a Report,
        root: &'a JobRoot,
        cache: Option<&'a ListingCache>,
    ) -> Self {
        let (sources, targets) = ListAhead::of_ends(config, root, false);
        Self {
            config,
            report,
            root,
            cache,
            adds: true,
            weighs: false,
            sources,
            targets,
            found: Found::default(),
        }
    }

    /// Counts one root.
    async fn run(mut self) -> Result<Found, Error> {
        let spec = &self.root.root;
        let metadata = spec.source.metadata(&spec.source_path).await?;
        if !metadata.is_dir() {
            self.count(&metadata);
            self.found.needed += room_for(&metadata);
            return Ok(self.found);
        }
        let volume = metadata.id.map(|id| id.volume);
        let top = Ancestry::begin(&*spec.source, &metadata);
        let mut folders = vec![(spec.source_path.clone(), top)];
        while let Some((dir, ancestry)) = folders.pop() {
            self.report.pass().await;
            if self.report.stopped() || self.report.live.walk_final.load(Ordering::Acquire) {
                break;
            }
            if let Some(cache) = self.cache {
                cache.wait_for_room(!self.adds).await;
            }
            self.list_ahead(&folders);
            let first = folders.len();
            self.folder((&dir, &ancestry), volume, &mut folders).await?;
            // In the order of the copying walk, which finds here what was listed.
            folders[first..].reverse();
        }
        Ok(self.found)
    }

    /// Begins the listings of the folders that are counted next.
    fn list_ahead(&mut self, folders: &[(RelPath, Ancestry)]) {
        let next = || folders.iter().rev().take(AHEAD_NAMED_MAX).map(|(path, _)| path);
        self.sources.want(next().cloned());
        if self.weighs && self.targets.is_far() {
            let targets: Vec<RelPath> = next().filter_map(|path| self.target_dir(path)).collect();
            self.targets.want(targets.into_iter());
        }
    }

    /// Returns the folder of the target for one of the source. `None` if the target cannot hold one of the
    /// names.
    fn target_dir(&self, dir: &RelPath) -> Option<RelPath> {
        let below = dir.strip_prefix(&self.root.root.source_path)?;
        self.root.target_of(&below)
    }

    /// Returns what stands in the target's folder; nothing is known of a folder that cannot be listed.
    async fn standing(&mut self, dir: &RelPath) -> Standing {
        let target_dir = match self.weighs && self.targets.is_far() {
            true => self.target_dir(dir),
            false => None,
        };
        let Some(target_dir) = target_dir else {
            return Standing::Unknown;
        };
        match self.targets.list(&target_dir).await {
            Ok(begun) => Standing::read(begun, STANDING_LARGE_MAX)
                .await
                .unwrap_or(Standing::Unknown),
            Err(error) if error.kind.is_absence() => Standing::Absent,
            Err(_) => Standing::Unknown,
        }
    }

    async fn folder(
        &mut self,
        (dir, ancestry): (&RelPath, &Ancestry),
        volume: Option<u64>,
        folders: &mut Vec<(RelPath, Ancestry)>,
    ) -> Result<(), Error> {
        // The copy itself reports what cannot be listed.
        let (listing, mut entries) = match self.sources.list(dir).await {
            Ok(begun) => begun,
            Err(error) if error.kind == ErrorKind::Gone => return Err(error),
            Err(_) => return Ok(()),
        };
        let mut listing = listing.into_inner();
        let mut standing = self.standing(dir).await;
        let mut names = FolderNames::new(self.config.target.capabilities());
        // Kept for the copying walk. A walk before the copy keeps nothing: it would be too old.
        let began = Instant::now();
        let mut kept = self.cache.map(|cache| (cache, Vec::new()));
        while !entries.is_empty() {
            let live = &self.report.live;
            live.listed.fetch_add(entries.len() as u64, Ordering::Relaxed);
            let mut files = Vec::new();
            for entry in &entries {
                if let Some(file) = self.entry((dir, ancestry), entry, volume, &mut names, folders) {
                    files.push(file);
                }
            }
            if self.weighs {
                self.need(dir, files, &mut standing).await;
            }
            kept = kept.filter(|(cache, kept)| cache.has_room(kept.len() + entries.len()));
            if let Some((_, kept)) = &mut kept {
                kept.extend(entries);
            }
            entries = match listing.next(CHUNK).await {
                Ok(entries) => entries,
                Err(error) if error.kind == ErrorKind::Gone => return Err(error),
                Err(_) => return Ok(()),
            };
        }
        if let Some((cache, kept)) = kept {
            cache.put(self.root.index, dir.clone(), began, kept);
        }
        Ok(())
    }

    /// Counts one entry, or adds it to the folders to visit. Returns the name and metadata of a
    /// file, if its room must be checked.
    fn entry(
        &mut self,
        (dir, ancestry): (&RelPath, &Ancestry),
        entry: &DirEntry,
        volume: Option<u64>,
        names: &mut FolderNames,
        folders: &mut Vec<(RelPath, Ancestry)>,
    ) -> Option<(Name, Metadata)> {
        let metadata = entry.metadata.as_ref().ok()?;
        let path = dir.join(&entry.name);
        let below = path.strip_prefix(&self.root.root.source_path)?;
        if !self.config.options.filter.node(&below, metadata) || is_temporary(&entry.name) {
            return None;
        }
        if self.cache.is_none() && !self.weighs {
            self.check_name(&below, &entry.name, names);
        }
        if metadata.is_dir() {
            if !self.config.options.one_file_system || metadata.id.map(|id| id.volume) == volume {
                // The copy reports a folder that contains itself.
                let inside = ancestry.enter(&path, metadata).ok();
                folders.extend(inside.map(|inside| (path, inside)));
            }
            return None;
        }
        self.count(metadata);
        if !self.weighs {
            self.found.needed += room_for(metadata);
            return None;
        }
        Some((entry.name.clone(), metadata.clone()))
    }

    /// Adds the room that these files of one folder need.
    async fn need(&mut self, dir: &RelPath, files: Vec<(Name, Metadata)>, standing: &mut Standing) {
        let target_dir = self.target_dir(dir);
        let names: Vec<Name> = files
            .iter()
            .map(|(name, _)| {
                self.root
                    .names
                    .map(name)
                    .map_or(name.clone(), |mapped| mapped.name)
            })
            .collect();
        let there = match &target_dir {
            Some(dir) => standing
                .look_up(&*self.config.target, (dir, false), &names)
                .await
                .unwrap_or_default(),
            None => Vec::new(),
        };
        let mut there: Vec<_> = there.into_iter().map(|found| found.ok().flatten()).collect();
        let grain = self.root.rules.granularity.learned(
            files.iter().map(|(_, metadata)| metadata.modified),
            there.iter().flatten().map(|found| found.modified),
        );
        there.resize(files.len(), None);
        for ((_, metadata), found) in files.iter().zip(there) {
            let equal = found.is_some_and(|found| {
                let known = metadata.modified.is_known() && found.modified.is_known();
                found.size == metadata.size && (!known || grain.equal(metadata.modified, found.modified))
            });
            if !equal {
                self.found.needed += room_for(metadata);
            }
        }
    }

    fn check_name(&mut self, below: &RelPath, name: &Name, names: &mut FolderNames) {
        let fault = match self.root.names.map(name) {
            Ok(mapped) => match names.insert(&mapped.name) {
                Some(Collision::Normalization) | None => None,
                Some(collision) => Some(collision.to_string()),
            },
            Err(fault) => Some(fault.to_string()),
        };
        if let Some(fault) = fault {
            self.found.faults += 1;
            self.report.note(Some(below), fault);
        }
    }

    fn count(&self, metadata: &Metadata) {
        if !self.adds {
            return;
        }
        let live = &self.report.live;
        live.counted_files.fetch_add(1, Ordering::Relaxed);
        if metadata.kind == Kind::File {
            live.counted_bytes.fetch_add(metadata.size, Ordering::Relaxed);
        }
    }
}

/// Returns the bytes that a copy of a node needs. Holes need none.
fn room_for(metadata: &Metadata) -> u64 {
    match metadata.kind {
        Kind::File => metadata
            .allocated
            .map_or(metadata.size, |allocated| allocated.min(metadata.size)),
        _ => 0,
    }
}
