//! Compares two trees folder by folder.
//!
//! Both ends of a folder are listed at once and matched by name. Nodes are compared in the order of
//! the listing of the source. Contents to compare are collected in batches for a bounded number of
//! tasks. Findings are reported in the order of the nodes all the same: tasks stand in a queue, and
//! the first one is awaited.
//!
//! Memory: one folder of the target up to [`LISTED_MAX`] entries, the rows of [`UNDER_WAY_MAX`]
//! batches, and the blocks of the tasks. A larger folder is looked up name by name.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures_util::future::join;
use ropeway_plan::NameMap;
use ropeway_plan::decide::{Decision, Rules, decide};
use ropeway_plan::names::case_key;
use ropeway_vfs::event::{Event, Reason};
use ropeway_vfs::{Ancestry, DirEntry, EndError, Error, ErrorKind, Kind, Metadata, Name, RelPath};
use tokio::task::JoinHandle;

use crate::check::content::{Contents, Pair};
use crate::check::reasons;
use crate::check::spec::{CheckOutcome, CheckSpec, Difference, Side, item_error};
use crate::job::options::is_temporary;
use crate::job::report::EventSink;
use crate::journal::token::token_of;
use crate::walk::balance::Balance;
use crate::walk::list_ahead::{AHEAD_NAMED_MAX, CHUNK, ListAhead};
use crate::walk::standing::Standing;
use crate::walk::twin::Twins;

/// Largest number of entries of a target folder that are kept to be matched: some 400 bytes each,
/// so 16 MiB.
const LISTED_MAX: usize = 40_000;
/// Number of contents compared in one task.
const BATCH_FILES: usize = 64;
/// Bytes on each side at which a batch is full.
const BATCH_BYTES: u64 = 4 << 20;
/// Rows of a batch. Most need no comparison.
const BATCH_ROWS: usize = 1024;
/// Number of batches under way: enough to cover the small ones of small folders. A guess.
const UNDER_WAY_MAX: usize = 16;

/// A finding about one node.
pub(super) enum Finding {
    Difference(Box<Difference>, u64),
    Error { path: RelPath, failed: EndError },
}

/// One line of a batch, in the order of the nodes.
pub(super) enum Row {
    Known(Finding),
    Compare(Box<Pair>),
}

/// A comparison under way.
pub(super) struct Check {
    spec: Arc<CheckSpec>,
    sink: EventSink,
    names: NameMap,
    rules: Rules,
    contents: Arc<Contents>,
    rows: Vec<Row>,
    rows_bytes: u64,
    rows_compared: usize,
    under_way: VecDeque<JoinHandle<Vec<Finding>>>,
    /// Listings of the folders that are compared next.
    left_listings: ListAhead,
    right_listings: ListAhead,
    outcome: CheckOutcome,
}

/// A folder of both ends, below the roots. The paths differ if names are mapped.
struct Place {
    left: RelPath,
    right: RelPath,
    /// The folders above it in the source.
    ancestry: Ancestry,
}

impl Check {
    pub(super) fn new(spec: CheckSpec, sink: EventSink, names: NameMap, rules: Rules) -> Self {
        let spec = Arc::new(spec);
        let twins = match rules.checksum || rules.sizes_unknown {
            true => Twins::default(),
            false => Twins::between(
                (&spec.source, &spec.source_path),
                (&spec.target, &spec.target_path),
                &Balance::default(),
                None,
            ),
        };
        Self {
            contents: Arc::new(Contents::new(&spec, rules)),
            left_listings: ListAhead::of(&spec.source).with_twin(twins.of_source),
            right_listings: ListAhead::of(&spec.target).with_twin(twins.of_target),
            spec,
            sink,
            names,
            rules,
            rows: Vec::new(),
            rows_bytes: 0,
            rows_compared: 0,
            under_way: VecDeque::new(),
            outcome: CheckOutcome::default(),
        }
    }

    pub(super) async fn run(mut self, left: Metadata, right: Option<Metadata>) -> CheckOutcome {
        let is_dir = left.is_dir();
        self.rules.granularity = self.rules.granularity.learned(
            [left.modified].into_iter(),
            right.iter().map(|right| right.modified),
        );
        let ancestry = Ancestry::begin(&*self.spec.source, &left);
        let matched = self.node(&RelPath::root(), &RelPath::root(), left, right).await;
        if is_dir && matched {
            self.folders(ancestry).await;
        }
        self.flush().await;
        while !self.under_way.is_empty() {
            self.settle_first().await;
        }
        self.spec.watch.show(&self.outcome);
        self.outcome
    }

    async fn folders(&mut self, ancestry: Ancestry) {
        let mut stack = vec![Place {
            left: RelPath::root(),
            right: RelPath::root(),
            ancestry,
        }];
        while let Some(place) = stack.pop() {
            self.spec.watch.show(&self.outcome);
            self.spec.watch.limit().pass().await;
            if self.outcome.tampered {
                return;
            }
            if let Err(failed) = self.folder(&place, &mut stack).await {
                self.found(Finding::Error {
                    path: place.left,
                    failed,
                })
                .await;
            }
        }
    }

    async fn folder(&mut self, place: &Place, stack: &mut Vec<Place>) -> Result<(), EndError> {
        let spec = Arc::clone(&self.spec);
        let left_dir = spec.source_path.join_path(&place.left);
        let right_dir = spec.target_path.join_path(&place.right);
        self.list_ahead(stack);
        let standing = async {
            let begun = self.right_listings.list(&right_dir).await?;
            Standing::read(begun, LISTED_MAX).await
        };
        let (first, standing) = join(self.left_listings.list(&left_dir), standing).await;
        let (listing, mut entries) = first.map_err(EndError::on_source)?;
        let mut listing = listing.into_inner();
        let mut standing = standing.map_err(EndError::on_target)?;
        // The names that were looked up, where the target's folder is too large to be kept.
        let mut asked = HashSet::new();
        while !entries.is_empty() {
            let names: Vec<Name> = entries.iter().map(|entry| self.mapped(&entry.name)).collect();
            if matches!(standing, Standing::Unknown) {
                asked.extend(names.iter().map(|name| self.key(name)));
            }
            let found = standing
                .look_up(&*spec.target, (&right_dir, false), &names)
                .await
                .map_err(EndError::on_target)?;
            let modified = |entry: &DirEntry| entry.metadata.as_ref().ok().map(|metadata| metadata.modified);
            let rules = self.contents.rules();
            self.rules.granularity = rules.granularity.learned(
                entries.iter().filter_map(modified),
                found
                    .iter()
                    .filter_map(|found| found.as_ref().ok()?.as_ref())
                    .map(|metadata| metadata.modified),
            );
            for ((entry, name), found) in entries.into_iter().zip(names).zip(found) {
                self.entry(place, entry, &name, found, stack).await?;
            }
            entries = listing.next(CHUNK).await.map_err(EndError::on_source)?;
        }
        self.extras(&place.right, &right_dir, (standing, asked))
            .await
            .map_err(EndError::on_target)
    }

    /// Begins the listings of the folders that are compared next.
    fn list_ahead(&mut self, stack: &[Place]) {
        let next = || stack.iter().rev().take(AHEAD_NAMED_MAX);
        let (left, right) = (&self.spec.source_path, &self.spec.target_path);
        self.left_listings
            .want(next().map(|place| left.join_path(&place.left)));
        self.right_listings
            .want(next().map(|place| right.join_path(&place.right)));
    }

    fn mapped(&self, name: &Name) -> Name {
        self.names
            .map(name)
            .map_or_else(|_| name.clone(), |mapped| mapped.name)
    }

    async fn entry(
        &mut self,
        place: &Place,
        entry: DirEntry,
        name: &Name,
        found: Result<Option<Metadata>, Error>,
        stack: &mut Vec<Place>,
    ) -> Result<(), EndError> {
        let (below, mirrored) = (place.left.join(&entry.name), place.right.join(name));
        let failed = match (entry.metadata, found) {
            (Ok(metadata), Ok(found)) => {
                let is_data = !is_temporary(&entry.name)
                    && metadata.kind != Kind::Socket
                    && (self.spec.devices || !metadata.kind.is_device());
                if !is_data || !self.spec.filter.node(&below, &metadata) {
                    return Ok(());
                }
                let inside = metadata.is_dir().then(|| place.ancestry.enter(&below, &metadata));
                match inside.transpose() {
                    // There are more folders than can wait: the rest of this one is skipped.
                    Err(error) if error.kind == ErrorKind::PeerMisbehaved => {
                        return Err(EndError::on_source(error));
                    }
                    Err(error) => EndError::on_source(error),
                    Ok(inside) => {
                        let matched = self.node(&below, &mirrored, metadata, found).await;
                        stack.extend(inside.filter(|_| matched).map(|ancestry| Place {
                            left: below,
                            right: mirrored,
                            ancestry,
                        }));
                        return Ok(());
                    }
                }
            }
            (Err(error), _) => EndError::on_source(error),
            (_, Err(error)) => EndError::on_target(error),
        };
        self.found(Finding::Error { path: below, failed }).await;
        Ok(())
    }

    /// Reports what only the target has.
    async fn extras(
        &mut self,
        right: &RelPath,
        dir: &RelPath,
        (standing, asked): (Standing, HashSet<u64>),
    ) -> Result<(), Error> {
        if let Standing::Listed { entries, .. } = standing {
            for entry in entries.into_iter().flatten() {
                self.extra(right, &entry).await;
            }
            return Ok(());
        }
        let spec = Arc::clone(&self.spec);
        let mut listing = spec.target.list(dir).await?;
        loop {
            let entries = listing.next(CHUNK).await?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in &entries {
                if !asked.contains(&self.key(&entry.name)) {
                    self.extra(right, entry).await;
                }
            }
        }
    }

    /// Returns the key of a name among those that were looked up: one for all names that are the same
    /// to the target.
    fn key(&self, name: &Name) -> u64 {
        match self.spec.target.capabilities().case_sensitive {
            true => hash_of(name),
            false => hash_of(&case_key(name)),
        }
    }

    async fn extra(&mut self, right: &RelPath, entry: &DirEntry) {
        let path = right.join(&entry.name);
        let is_dir = entry.metadata.as_ref().is_ok_and(Metadata::is_dir);
        if !is_temporary(&entry.name) && !self.spec.filter.excluded(&path, is_dir) {
            let difference = Difference {
                path: path.clone(),
                target_path: path,
                action: "extra",
                source: None,
                target: entry.metadata.as_ref().ok().map(Side::from),
                reasons: Vec::new(),
            };
            self.found(Finding::Difference(Box::new(difference), 0)).await;
        }
    }

    /// Compares one node. Returns whether both exist and are of one kind.
    async fn node(
        &mut self,
        left: &RelPath,
        right: &RelPath,
        metadata: Metadata,
        found: Option<Metadata>,
    ) -> bool {
        match metadata.is_dir() {
            true => self.outcome.folders += 1,
            false => self.outcome.files += 1,
        }
        if metadata.kind == Kind::File {
            self.outcome.bytes += metadata.size;
        }
        let Some(found) = found else {
            self.difference((left, right), (&metadata, None), "missing", metadata.size)
                .await;
            return false;
        };
        let sides = (&metadata, Some(&found));
        if found.kind != metadata.kind {
            self.difference((left, right), sides, "differs", metadata.size)
                .await;
            return false;
        }
        let preserve = self.spec.preserve;
        let capabilities = self.spec.target.capabilities();
        let reasons = self.reasons(&metadata, &found);
        match decide(&metadata, Some(&found), &self.rules, &preserve, capabilities) {
            Decision::Skip => {}
            Decision::AttributesOnly => self.difference((left, right), sides, "attributes", 0).await,
            // There is nothing to read on either side.
            Decision::CompareContent
                if metadata.kind == Kind::File && metadata.size == 0 && !self.rules.sizes_unknown =>
            {
                if !reasons.is_empty() {
                    self.difference((left, right), sides, "attributes", 0).await;
                }
            }
            Decision::CompareContent => {
                let pair = Pair {
                    below: left.clone(),
                    source: self.spec.source_path.join_path(left),
                    target: self.spec.target_path.join_path(right),
                    reasons,
                    target_below: right.clone(),
                    found: Side::from(&found),
                    metadata,
                };
                self.compare(pair).await;
            }
            _ => {
                self.difference((left, right), sides, "differs", metadata.size)
                    .await;
            }
        }
        true
    }

    fn reasons(&self, source: &Metadata, target: &Metadata) -> Vec<Reason> {
        let capabilities = self.spec.target.capabilities();
        reasons::of_metadata(source, target, (&self.rules, &self.spec.preserve, capabilities))
    }

    async fn compare(&mut self, pair: Pair) {
        self.rows_bytes += pair.metadata.size;
        self.rows_compared += 1;
        self.row(Row::Compare(Box::new(pair))).await;
    }

    async fn difference(
        &mut self,
        (left, right): (&RelPath, &RelPath),
        (source, target): (&Metadata, Option<&Metadata>),
        action: &'static str,
        bytes: u64,
    ) {
        let difference = Difference {
            path: left.clone(),
            target_path: right.clone(),
            action,
            source: Some(source.into()),
            target: target.map(Side::from),
            reasons: target.map_or_else(Vec::new, |target| self.reasons(source, target)),
        };
        self.found(Finding::Difference(Box::new(difference), bytes)).await;
    }

    async fn found(&mut self, finding: Finding) {
        if self.rows.is_empty() && self.under_way.is_empty() {
            return self.report(finding);
        }
        self.row(Row::Known(finding)).await;
    }

    async fn row(&mut self, row: Row) {
        self.rows.push(row);
        let full = self.rows_compared >= BATCH_FILES || self.rows_bytes >= BATCH_BYTES;
        if full || self.rows.len() >= BATCH_ROWS {
            self.flush().await;
        }
    }

    /// Gives the rows to a task, when there is room for one more.
    async fn flush(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        while self.under_way.len() >= UNDER_WAY_MAX {
            self.settle_first().await;
        }
        self.spec.watch.show(&self.outcome);
        self.spec.watch.limit().pass().await;
        let rows = std::mem::take(&mut self.rows);
        (self.rows_bytes, self.rows_compared) = (0, 0);
        let (contents, spec) = (Arc::clone(&self.contents), Arc::clone(&self.spec));
        self.under_way
            .push_back(tokio::spawn(async move { contents.compare(&spec, rows).await }));
    }

    /// Awaits the first task and reports its findings.
    async fn settle_first(&mut self) {
        let Some(task) = self.under_way.pop_front() else {
            return;
        };
        match task.await {
            Ok(findings) => findings.into_iter().for_each(|finding| self.report(finding)),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime ends, and everything with it.
            Err(_) => self.outcome.errors += 1,
        }
    }

    fn report(&mut self, finding: Finding) {
        // It was reported. Whatever else fails, fails for the same reason.
        if self.outcome.tampered {
            return;
        }
        match finding {
            Finding::Difference(difference, bytes) => {
                self.outcome.differences += 1;
                self.outcome.tally.add(difference.action, &difference.reasons);
                self.spec.watch.differs(&difference);
                (self.sink)(Event::Item {
                    path: difference.path.to_string(),
                    action: difference.action,
                    bytes,
                    reasons: difference.reasons,
                });
            }
            Finding::Error { path, failed } => {
                self.outcome.errors += 1;
                self.outcome.tampered = failed.error.kind == ErrorKind::Tampered;
                (self.sink)(item_error(&path, &failed.error, failed.end));
            }
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        // The comparison was interrupted.
        for task in &self.under_way {
            task.abort();
        }
    }
}

fn hash_of(name: &Name) -> u64 {
    token_of(0, &RelPath::root().join(name))
}
