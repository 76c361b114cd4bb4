//! Reads every copied file back from the device and compares it with the hash of its source.

use std::io;
use std::path::Path;

use ropeway_block::Pool;
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::{
    CacheMode, ContentHash, End, EndError, Error, ErrorKind, HashAlgorithm, Op, OpenOptions, RelPath, Tree,
};

use crate::job::config::JobConfig;
use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::journal::token::token_of;
use crate::verify::content::hash_file;
use crate::verify::manifest::{ManifestEntry, ManifestError, ManifestReader};

/// Returns the hash of a file's content as the device has it. Drops cached pages first.
async fn hash_from_device(
    algorithm: HashAlgorithm,
    (pool, limit): (&Pool, &RateLimit),
    tree: &dyn Tree,
    path: &RelPath,
) -> Result<ContentHash, Error> {
    let file = tree.open(path, OpenOptions::read(CacheMode::Leave)).await?;
    let size = file.metadata().await?.size;
    file.drop_cache(0, size).await?;
    let hash = hash_file(algorithm, (pool, limit), &*file).await?;
    Ok(hash)
}

/// Reads every copied file back from the device and compares it. Returns what differs, up to
/// [`REPAIRS_MAX`] files, and reports the rest.
pub(crate) async fn read_back(
    config: &JobConfig,
    pool: &Pool,
    report: &Report,
    spool: &Path,
) -> Vec<ManifestEntry> {
    use futures_util::StreamExt;
    let mut differing = Vec::new();
    let entries = match ManifestReader::open(spool, config.options.verify.algorithm) {
        Ok(entries) => entries,
        Err(error) => {
            unverifiable(report, &error);
            return differing;
        }
    };
    let mut running = futures_util::stream::FuturesUnordered::new();
    let mut verified = |(entry, equal): (ManifestEntry, Option<bool>)| match equal {
        Some(false) if differing.len() < REPAIRS_MAX => differing.push(entry),
        Some(false) => report_difference(report, &entry),
        _ => {}
    };
    for entry in entries {
        if report.stopped() {
            break;
        }
        match entry {
            Ok(entry) => running.push(async move {
                let equal = verify_one(config, pool, report, &entry).await;
                (entry, equal)
            }),
            Err(error) => {
                unverifiable(report, &error);
                break;
            }
        }
        if running.len() >= READ_BACK_MAX
            && let Some(done) = running.next().await
        {
            verified(done);
        }
    }
    while let Some(done) = running.next().await {
        verified(done);
    }
    differing
}

/// Number of files read back at once. A guess.
const READ_BACK_MAX: usize = 4;
/// Largest number of files repaired in one run: some MiB of paths. If more differ, the cause is
/// not bit rot. A guess.
const REPAIRS_MAX: usize = 10_000;

/// Stops the job, because the hashes cannot be read.
fn unverifiable(report: &Report, error: &ManifestError) {
    report.fatal(Fatal::new(
        Status::Differs,
        format!("nothing was verified: {error}"),
    ));
}

/// Whether a file of the target has this content on the device. Tries again after an error that may
/// pass. `None`: it could not be read, which is reported.
pub(crate) async fn verify_one(
    config: &JobConfig,
    pool: &Pool,
    report: &Report,
    entry: &ManifestEntry,
) -> Option<bool> {
    let read = || async {
        let algorithm = config.options.verify.algorithm;
        let hash = hash_from_device(algorithm, (pool, &report.limit), &*config.target, &entry.path).await;
        hash.map_err(EndError::on_target)
    };
    match with_retries(&config.options, report, token_of(0, &entry.path), read).await {
        Ok(hash) => Some(hash == entry.hash),
        Err(EndError { error, .. }) => {
            report.fail(&entry.path, error, End::Target).await;
            None
        }
    }
}

/// Reports that a file differs.
pub(crate) fn report_difference(report: &Report, entry: &ManifestEntry) {
    report.failures.difference();
    let mut error = Error::new(Op::Read, &entry.path, ErrorKind::DeviceError);
    error.source = Some(io::Error::other(
        "what the device returns differs from the source (hint: --checksum copies what differs; see dmesg if it comes back)",
    ));
    report.emit(ropeway_vfs::event::Event::ItemError {
        path: entry.path.to_string(),
        op: error.op,
        kind: error.kind,
        message: error.to_string(),
        on_source: false,
        fatal: false,
    });
}
