//! Operations on names: how many files a second are made, examined, listed, renamed and removed.
//!
//! On a local folder by plain system calls: the threads of [`ropeway_local::LocalTree`] would add a hop
//! to each call, which takes as long as the call. On other trees by the tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ropeway_vfs::trace::{By, Record, SharedObserver};
use ropeway_vfs::{CacheMode, Create, End, Listing, OpenOptions, RelPath, Tree};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, openat, renameat_with, statat};
use tokio::runtime::Handle;

use super::pump::ended;
use super::tally::Tally;
use super::{NamePass, PassError, PassResult, check_stop};
use crate::bench::result::{NodeOperation, Sample};

/// Entries asked for at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// First name of a file.
fn first(number: u64) -> String {
    format!("n{number:07}")
}

/// Name after the renaming.
fn second(number: u64) -> String {
    format!("m{number:07}")
}

/// Measures a new folder on this machine; `inside` is its path in traces.
///
/// # Errors
/// An operation fails, or the run was stopped.
pub(super) fn of_folder(
    dir: &Path,
    inside: &[u8],
    pass: &NamePass<'_>,
    observer: Option<&SharedObserver>,
) -> PassResult<Vec<(NodeOperation, Sample)>> {
    fs::create_dir(dir).map_err(PassError::at("make a folder"))?;
    let folder = LocalNames {
        dir: dir.to_owned(),
        inside: RelPath::parse(inside).unwrap_or_else(RelPath::root),
        observer: observer.cloned(),
    };
    let mut found = Vec::new();
    for operation in NodeOperation::ALL {
        found.push((operation, folder.operation(operation, pass)?.sample(None)));
        check_stop(pass.stop)?;
    }
    Ok(found)
}

struct LocalNames {
    dir: PathBuf,
    inside: RelPath,
    observer: Option<SharedObserver>,
}

impl LocalNames {
    /// Makes one operation on all files, by as many threads as may be in flight.
    fn operation(&self, operation: NodeOperation, pass: &NamePass<'_>) -> PassResult<Tally> {
        let next = AtomicU64::new(0);
        let begun = Instant::now();
        let worker = || -> PassResult<Tally> {
            let mut tally = Tally::default();
            let mut last = begun.elapsed();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                // Each thread lists the folder once.
                let most = if operation == NodeOperation::List {
                    u64::from(pass.depth)
                } else {
                    pass.files
                };
                if number >= most || pass.stop.load(Ordering::Relaxed) {
                    return Ok(tally);
                }
                let count = self
                    .one(operation, number)
                    .map_err(PassError::at(operation.name()))?;
                let now = begun.elapsed();
                add(&mut tally, now, now - last, count);
                self.trace(operation, now - last);
                last = now;
            }
        };
        let depth = u64::from(pass.depth).min(pass.files.max(1));
        if depth == 1 {
            return worker();
        }
        let joined = thread::scope(|scope| {
            let workers: Vec<_> = (0..depth).map(|_| scope.spawn(worker)).collect();
            let ended = workers.into_iter().map(|worker| worker.join());
            ended.collect::<Vec<_>>()
        });
        let mut all = Tally::default();
        for tally in joined {
            all.join(&tally.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    }

    /// Makes one operation, and returns what it counts as.
    fn one(&self, operation: NodeOperation, number: u64) -> io::Result<u64> {
        let path = self.dir.join(first(number));
        match operation {
            NodeOperation::Create => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                drop(openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR)?);
            }
            NodeOperation::Stat => {
                statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            NodeOperation::List => {
                let mut count = 0;
                for entry in fs::read_dir(&self.dir)? {
                    entry?;
                    count += 1;
                }
                return Ok(count);
            }
            NodeOperation::Rename => {
                renameat_with(
                    CWD,
                    &path,
                    CWD,
                    self.dir.join(second(number)),
                    RenameFlags::empty(),
                )?;
            }
            NodeOperation::Remove => fs::remove_file(self.dir.join(second(number)))?,
        }
        Ok(1)
    }

    fn trace(&self, operation: NodeOperation, took: Duration) {
        if let Some(observer) = &self.observer {
            observer.record(Record {
                start: observer.now().saturating_sub(took),
                duration: took,
                end: Some(End::Target),
                kind: operation.name(),
                path: self.inside.as_bytes(),
                to: &[],
                offset: 0,
                length: 0,
                result: 0,
                by: By::default(),
            });
        }
    }
}

/// Counts an answer that stands for `count` operations: a listing is one request with many entries.
fn add(tally: &mut Tally, now: Duration, took: Duration, count: u64) {
    // Bytes are of no interest; the number of latencies is that of the operations.
    let each = took / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    for _ in 0..count {
        tally.add(now, each, 0);
    }
}

/// Measures a new folder of a tree.
///
/// # Errors
/// An operation fails, or the run was stopped.
pub(super) fn of_tree(
    tree: &Arc<dyn Tree>,
    dir: &RelPath,
    runtime: &Handle,
    pass: &NamePass<'_>,
) -> PassResult<Vec<(NodeOperation, Sample)>> {
    let made = runtime.block_on(tree.make_dir(dir, 0o700));
    made.map_err(|error| failed("make a folder", &error))?;
    let mut found = Vec::new();
    for operation in NodeOperation::ALL {
        let tally = tree_operation(tree, dir, runtime, operation, pass)?;
        found.push((operation, tally.sample(None)));
        check_stop(pass.stop)?;
    }
    Ok(found)
}

fn tree_operation(
    tree: &Arc<dyn Tree>,
    dir: &RelPath,
    runtime: &Handle,
    operation: NodeOperation,
    pass: &NamePass<'_>,
) -> PassResult<Tally> {
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let depth = u64::from(pass.depth).min(pass.files.max(1));
    let most = if operation == NodeOperation::List {
        depth
    } else {
        pass.files
    };
    let over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..depth)
        .map(|_| {
            let (tree, dir) = (Arc::clone(tree), dir.clone());
            let (next, over) = (Arc::clone(&next), Arc::clone(&over));
            runtime.spawn(async move {
                let mut tally = Tally::default();
                let mut last = begun.elapsed();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= most || over.load(Ordering::Relaxed) {
                        return Ok(tally);
                    }
                    let count = tree_one(&*tree, &dir, operation, number).await?;
                    let now = begun.elapsed();
                    add(&mut tally, now, now - last, count);
                    last = now;
                }
            })
        })
        .collect();
    runtime.block_on(async {
        let mut all = Tally::default();
        for worker in workers {
            let tally: PassResult<Tally> = ended(worker, &over, pass.stop).await;
            all.join(&tally?);
        }
        Ok(all)
    })
}

async fn tree_one(tree: &dyn Tree, dir: &RelPath, operation: NodeOperation, number: u64) -> PassResult<u64> {
    let path = |name: String| dir.join(&ropeway_vfs::Name::new(name.as_bytes()).expect("a plain name"));
    let (one, two) = (path(first(number)), path(second(number)));
    let result = match operation {
        NodeOperation::Create => {
            let options = OpenOptions::write(Create::New, CacheMode::Keep);
            tree.open(&one, options).await.map(drop)
        }
        NodeOperation::Stat => tree.metadata(&one).await.map(drop),
        NodeOperation::List => {
            let listing = tree.list(dir).await.map_err(|error| failed("list", &error))?;
            return entries(listing).await;
        }
        NodeOperation::Rename => tree.rename(&one, &two, false).await,
        NodeOperation::Remove => tree.remove_file(&two).await,
    };
    result
        .map(|()| 1)
        .map_err(|error| failed(operation.name(), &error))
}

async fn entries(mut listing: Box<dyn Listing>) -> PassResult<u64> {
    let mut count = 0;
    loop {
        let batch = listing
            .next(ENTRIES_AT_ONCE)
            .await
            .map_err(|error| failed("list", &error))?;
        if batch.is_empty() {
            return Ok(count);
        }
        count += batch.len() as u64;
    }
}

/// Converts an error of a tree.
pub(super) fn failed(what: &str, error: &ropeway_vfs::Error) -> PassError {
    PassError::at(what.to_owned())(io::Error::other(error.to_string()))
}
