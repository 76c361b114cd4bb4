//! Compares contents: small files of a folder in one call, others block by block.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use ropeway_block::Pool;
use ropeway_plan::Rules;
use ropeway_vfs::event::Reason;
use ropeway_vfs::{CacheMode, CompareBatch, EndError, GetSmall, Kind, Metadata, RelPath, Tree};
use tokio::sync::Semaphore;

use crate::check::folders::{Finding, Row};
use crate::check::spec::{CheckSpec, Difference, Side};
use crate::verify::content::equal_content;

/// Size of the largest file in a batch, as in a copy.
const SMALL_MAX: u64 = 1 << 20;
/// Size of the largest file that is read completely in one call on each side, if calls cost a round
/// trip.
const WHOLE_MAX: u64 = 64 << 10;
/// Room for one byte more, which shows that a file grew.
const WHOLE_BLOCK: usize = (64 << 10) + 4096;
/// Number of such pairs at once: 64 blocks on each side, 9 MiB.
const WHOLE_PAIRS_MAX: usize = 64;
/// The same on this machine, where batches are refused (a model, a bandwidth limit).
const WHOLE_PAIRS_NEAR: usize = 4;
/// Number of pairs of larger files at once. Their blocks come from the devices in one stream each,
/// and two streams overlap.
const BIG_PAIRS: usize = 2;
const BLOCK_SIZE: usize = 1 << 20;

/// Two files, or two links, to compare.
pub(super) struct Pair {
    /// The source's path below its root, for messages.
    pub(super) below: RelPath,
    pub(super) source: RelPath,
    pub(super) target: RelPath,
    /// The target's path below its root.
    pub(super) target_below: RelPath,
    /// Metadata of the source.
    pub(super) metadata: Metadata,
    /// What the target has.
    pub(super) found: Side,
    /// What differs in the metadata.
    pub(super) reasons: Vec<Reason>,
}

impl Pair {
    /// Returns the difference; `same` is whether the content is equal.
    fn difference(mut self, same: bool) -> Difference {
        let content = match self.metadata.kind {
            Kind::Symlink => Reason::Link,
            _ => Reason::Content,
        };
        if !same {
            self.reasons.insert(0, content);
        }
        Difference {
            path: self.below,
            target_path: self.target_below,
            action: if same { "attributes" } else { "differs" },
            source: Some(Side::from(&self.metadata)),
            target: Some(self.found),
            reasons: self.reasons,
        }
    }
}

/// What comparisons share.
pub(super) struct Contents {
    rules: Rules,
    whole: Pool,
    whole_pairs: Semaphore,
    blocks: Pool,
    big_pairs: Semaphore,
}

/// Whether a pair is equal, or why that is not known.
type Equal = Result<bool, EndError>;

impl Contents {
    pub(super) fn new(spec: &CheckSpec, rules: Rules) -> Self {
        let can = [spec.source.capabilities(), spec.target.capabilities()];
        let far = can.iter().filter(|can| can.remote);
        let pairs = far
            .map(|can| can.small_in_flight)
            .min()
            .map_or(WHOLE_PAIRS_NEAR, |wanted| wanted.min(WHOLE_PAIRS_MAX));
        Self {
            rules,
            // Two blocks for each pair with a permit, so nobody holds one block and waits for
            // another.
            whole: Pool::new(WHOLE_BLOCK, 2 * pairs),
            whole_pairs: Semaphore::new(pairs),
            blocks: Pool::new(BLOCK_SIZE, 2 * BIG_PAIRS),
            big_pairs: Semaphore::new(BIG_PAIRS),
        }
    }

    /// Returns the rules, before anything was learned from a folder.
    pub(super) fn rules(&self) -> Rules {
        self.rules
    }

    /// Compares rows. Returns findings in their order.
    pub(super) async fn compare(self: Arc<Self>, spec: &CheckSpec, rows: Vec<Row>) -> Vec<Finding> {
        let mut equal: Vec<Option<Equal>> = rows.iter().map(|_| None).collect();
        self.in_batches(spec, &rows, &mut equal).await;
        let rest = rows.iter().enumerate().filter_map(|(index, row)| match row {
            Row::Compare(pair) if equal[index].is_none() => Some((index, pair)),
            _ => None,
        });
        let this = &*self;
        let rest = rest.map(|(index, pair)| async move { (index, this.equal(spec, pair).await) });
        for (index, result) in join_all(rest).await {
            equal[index] = Some(result);
        }
        let findings = rows
            .into_iter()
            .zip(equal)
            .filter_map(|(row, equal)| match (row, equal) {
                (Row::Known(finding), _) => Some(finding),
                (Row::Compare(pair), Some(Ok(true))) if pair.reasons.is_empty() => None,
                (Row::Compare(pair), Some(Ok(same))) => {
                    let bytes = if same { 0 } else { pair.metadata.size };
                    Some(Finding::Difference(Box::new(pair.difference(same)), bytes))
                }
                (Row::Compare(pair), Some(Err(failed))) => Some(Finding::Error {
                    path: pair.below,
                    failed,
                }),
                (Row::Compare(_), None) => None,
            });
        findings.collect()
    }

    /// Compares small files folder by folder, if the trees take batches.
    async fn in_batches(&self, spec: &CheckSpec, rows: &[Row], equal: &mut [Option<Equal>]) {
        let small: Vec<(usize, &Pair)> = rows
            .iter()
            .enumerate()
            .filter_map(|(index, row)| match row {
                Row::Compare(pair) if is_small(pair) => Some((index, &**pair)),
                _ => None,
            })
            .collect();
        for group in small.chunk_by(|(_, one), (_, other)| dirs_of(one) == dirs_of(other)) {
            let Some((source_dir, target_dir)) = group.first().and_then(|(_, pair)| dirs_of(pair)) else {
                continue;
            };
            let pair = |(_, pair): &(usize, &Pair)| {
                let names = pair.source.file_name().zip(pair.target.file_name())?;
                Some((names.0, names.1, pair.metadata.clone()))
            };
            let batch = CompareBatch {
                dir: source_dir,
                other_dir: target_dir,
                pairs: group.iter().filter_map(pair).collect(),
            };
            let Some(compared) = spec.source.compare_batch(&*spec.target, batch) else {
                return;
            };
            for ((index, _), result) in group.iter().zip(compared.await) {
                equal[*index] = Some(result);
            }
        }
    }

    async fn equal(&self, spec: &CheckSpec, pair: &Pair) -> Equal {
        let (source, target) = ((&*spec.source, &pair.source), (&*spec.target, &pair.target));
        if pair.metadata.kind == Kind::Symlink {
            return equal_links(source, target).await;
        }
        if pair.metadata.size <= WHOLE_MAX
            && let Some(equal) = self.equal_whole(pair.metadata.size, source, target).await
        {
            return equal;
        }
        let _permit = self.big_pairs.acquire().await;
        equal_content((&self.blocks, spec.watch.limit()), source, target).await
    }

    /// Compares two files that are read in one call each. `None` if one of them changed or grew.
    async fn equal_whole(
        &self,
        size: u64,
        source: (&dyn Tree, &RelPath),
        target: (&dyn Tree, &RelPath),
    ) -> Option<Equal> {
        let _permit = self.whole_pairs.acquire().await;
        let get = |path: &RelPath| GetSmall {
            path: path.clone(),
            size,
            xattrs: false,
            cache: CacheMode::Keep,
            is_known: false,
        };
        let (one, two) = (self.whole.get().await, self.whole.get().await);
        let ((one, left), (two, right)) = join(
            source.0.get_small(get(source.1), one),
            target.0.get_small(get(target.1), two),
        )
        .await;
        match (left, right) {
            (Err(error), _) => Some(Err(EndError::on_source(error))),
            (_, Err(error)) => Some(Err(EndError::on_target(error))),
            (Ok(left), Ok(right)) if left.whole && right.whole => Some(Ok(one[..] == two[..])),
            _ => None,
        }
    }
}

fn is_small(pair: &Pair) -> bool {
    pair.metadata.kind == Kind::File && pair.metadata.size <= SMALL_MAX
}

/// Returns the folders that hold both files.
fn dirs_of(pair: &Pair) -> Option<(RelPath, RelPath)> {
    Some((pair.source.parent()?, pair.target.parent()?))
}

async fn equal_links(source: (&dyn Tree, &RelPath), target: (&dyn Tree, &RelPath)) -> Equal {
    let (one, two) = join(source.0.read_link(source.1), target.0.read_link(target.1)).await;
    let one = one.map_err(EndError::on_source)?;
    Ok(one == two.map_err(EndError::on_target)?)
}
