//! Starts a comparison: two trees, or a tree and a manifest.

use std::path::Path;
use std::sync::Arc;

use ropeway_block::Pool;
use ropeway_plan::{NameMap, NamePolicy, Rules, TimeGranularity};
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::event::{Event, Reason};
use ropeway_vfs::{
    CacheMode, ContentHash, End, EndError, Error, ErrorKind, HashAlgorithm, Kind, Op, OpenOptions, Pending,
    RelPath, Tree,
};

use crate::check::folders::Check;
use crate::check::spec::{CheckOutcome, CheckSpec, CheckWatch, item_error};
use crate::job::report::EventSink;
use crate::verify::content::hash_file;
use crate::verify::manifest::{ManifestError, ManifestReader};

/// Blocks for reading the files of a manifest, one after the other.
const BLOCKS: usize = 4;
const BLOCK_SIZE: usize = 1 << 20;

/// Compares two trees.
///
/// # Errors
/// A root cannot be examined.
///
/// Boxed as [`Job::run`](crate::Job::run) is.
pub fn check(spec: CheckSpec, sink: EventSink) -> Pending<'static, Result<CheckOutcome, EndError>> {
    Box::pin(compare(spec, sink))
}

async fn compare(spec: CheckSpec, sink: EventSink) -> Result<CheckOutcome, EndError> {
    let left = spec
        .source
        .metadata(&spec.source_path)
        .await
        .map_err(EndError::on_source)?;
    let right = match spec.target.metadata(&spec.target_path).await {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind == ErrorKind::NotFound => None,
        Err(error) => return Err(EndError::on_target(error)),
    };
    let (source, target) = (spec.source.capabilities(), spec.target.capabilities());
    let names = NameMap::new(source, target, NamePolicy::default());
    let rules = Rules {
        checksum: spec.checksum,
        devices: spec.devices,
        granularity: TimeGranularity::between(source, target).with_window(spec.modify_window),
        ..Rules::between(source, target)
    };
    Ok(Check::new(spec, sink, names, rules).run(left, right).await)
}

/// Compares a tree with a manifest. Finds changed and missing files (bit rot) later on.
///
/// # Errors
/// The manifest cannot be read or is not one.
pub async fn check_manifest(
    (manifest, algorithm): (&Path, HashAlgorithm),
    tree: Arc<dyn Tree>,
    root: &RelPath,
    watch: &CheckWatch,
    sink: EventSink,
) -> Result<CheckOutcome, ManifestError> {
    let pool = Pool::new(BLOCK_SIZE, BLOCKS);
    let mut outcome = CheckOutcome::default();
    for entry in ManifestReader::open(manifest, algorithm)? {
        let entry = entry?;
        let path = root.join_path(&entry.path);
        watch.show(&outcome);
        outcome.files += 1;
        match hash_of_file(algorithm, (&pool, watch.limit()), &*tree, &path).await {
            Ok((hash, size)) if hash == entry.hash => outcome.bytes += size,
            Ok((_, size)) => {
                outcome.differences += 1;
                outcome.tally.add("differs", &[Reason::Content]);
                sink(Event::Item {
                    path: entry.path.to_string(),
                    action: "differs",
                    bytes: size,
                    reasons: vec![Reason::Content],
                });
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                outcome.differences += 1;
                outcome.tally.add("missing", &[]);
                sink(Event::Item {
                    path: entry.path.to_string(),
                    action: "missing",
                    bytes: 0,
                    reasons: Vec::new(),
                });
            }
            Err(error) => {
                outcome.errors += 1;
                sink(item_error(&entry.path, &error, End::Source));
                outcome.tampered = error.kind == ErrorKind::Tampered;
                if outcome.tampered {
                    break;
                }
            }
        }
    }
    Ok(outcome)
}

async fn hash_of_file(
    algorithm: HashAlgorithm,
    (pool, limit): (&Pool, &RateLimit),
    tree: &dyn Tree,
    path: &RelPath,
) -> Result<(ContentHash, u64), Error> {
    let metadata = tree.metadata(path).await?;
    if metadata.kind != Kind::File {
        return Err(Error::new(Op::Open, path, ErrorKind::NotFound));
    }
    let file = tree.open(path, OpenOptions::read(CacheMode::Leave)).await?;
    // Read from the device: cached pages do not show rot.
    file.drop_cache(0, metadata.size).await?;
    Ok((hash_file(algorithm, (pool, limit), &*file).await?, metadata.size))
}
