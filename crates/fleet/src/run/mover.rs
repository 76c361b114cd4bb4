//! Copies files into the stage of a claim: by the copy engine, or by plain reads and writes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_copy::{Handle, Job, JobSpec, ManifestReader, Options, Root, Verification, pool_for};
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::event::Event;
use ropeway_vfs::{
    CacheMode, ContentHash, Create, EndError, ErrorKind, HashAlgorithm, Kind, Metadata, MetadataChange, Name,
    OpenOptions, Pending, Preserve, RelPath, Tree,
};

use crate::budget::Shares;
use crate::catalog::Losses;
use crate::error::{Error, Result};
use crate::task::nanoseconds;

/// Bytes that the folder for hashes must take: about those of the largest slice.
const PROBE: usize = 256 << 10;

/// A node to copy.
#[derive(Clone, Debug)]
pub struct Move {
    /// Its path in the source.
    pub source: RelPath,
    /// Its path in the stage, which is free.
    pub stage: RelPath,
    /// Its attributes as listed.
    pub metadata: Metadata,
}

/// What became of it.
#[derive(Clone, Debug)]
pub enum Moved {
    /// It is in the stage, whole, with its attributes, and durable.
    Copied {
        /// Size of the copied version.
        size: u64,
        /// Its time of last change.
        modified: i64,
        /// BLAKE3 hash of its content.
        hash: Option<ContentHash>,
    },
    /// It failed, with the reason.
    Failed(String),
}

impl Moved {
    /// A node that was listed, and was not there when it was to be read. The source may have been away for a
    /// moment, so it is asked for again by `resume`; what is not there then either has been removed.
    pub(super) fn gone() -> Self {
        Self::Failed("it was not there any more when it was to be copied".to_owned())
    }
}

/// Copies nodes.
pub trait Mover: Send + Sync {
    /// Copies nodes into a stage, all of one folder there, and makes them durable. Returns what
    /// became of each, in order.
    fn copy<'a>(&'a self, stage: &'a RelPath, moves: &'a [Move]) -> Pending<'a, Result<Vec<Moved>>>;

    /// Returns the blocks through which large files are copied.
    fn pool(&self) -> &Pool;

    /// Returns a number that grows while a slice is copied: bytes that were read, sent and made durable since
    /// the mover was made, and milliseconds that budgets held it back. A slice may be one file that
    /// takes hours.
    fn bytes_moved(&self) -> u64 {
        0
    }

    /// Returns what the target could not keep since this was last asked.
    fn take_losses(&self) -> Losses {
        Losses::default()
    }

    /// Returns the bytes that were read from the source, and those that were written to the target, since the mover
    /// was made.
    fn bytes_read_and_written(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// The copy engine: one job for each slice.
pub struct EngineMover {
    source: Arc<dyn Tree>,
    target: Arc<dyn Tree>,
    pool: Pool,
    limit: Arc<RateLimit>,
    shares: Shares,
    /// Folder for the hashes of a slice.
    scratch: PathBuf,
    number: AtomicU64,
    /// The job of the present slice, and the bytes of those before it.
    running: Mutex<Option<Handle>>,
    moved: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    /// What the target could not keep.
    lost: Mutex<Losses>,
}

impl EngineMover {
    /// Makes a mover that writes its hashes to a folder of this process.
    pub fn new(
        source: Arc<dyn Tree>,
        target: Arc<dyn Tree>,
        scratch: PathBuf,
        limit: Arc<RateLimit>,
    ) -> Self {
        let remote = source.capabilities().remote || target.capabilities().remote;
        Self {
            pool: pool_for(ropeway_plan::Engine::Auto, remote),
            source,
            target,
            limit,
            shares: Shares::default(),
            scratch,
            number: AtomicU64::new(0),
            running: Mutex::default(),
            moved: AtomicU64::new(0),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            lost: Mutex::default(),
        }
    }

    /// Notes the budgets that the trees keep to: a worker that waits for its share is no straggler.
    #[must_use]
    pub fn with_shares(self, shares: Shares) -> Self {
        Self { shares, ..self }
    }

    fn spec(&self, moves: &[Move], manifest: PathBuf) -> JobSpec {
        let root = |moved: &Move| Root {
            source: Arc::clone(&self.source),
            source_name: RelPath::root(),
            source_path: moved.source.clone(),
            target_path: moved.stage.clone(),
        };
        let options = Options {
            verify: Verification {
                read_back: false,
                algorithm: HashAlgorithm::Blake3,
                manifest: Some(manifest),
            },
            hard_links: false,
            count: false,
            ..Options::default()
        };
        let environment = ropeway_copy::Environment {
            scratch: self.scratch.clone(),
            ..ropeway_copy::Environment::default()
        };
        JobSpec {
            roots: moves.iter().map(root).collect(),
            target: Arc::clone(&self.target),
            options,
            environment,
            journal: None,
        }
    }

    async fn copy_all(&self, stage: &RelPath, moves: &[Move]) -> Result<Vec<Moved>> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let manifest = self.scratch.join(format!("slice-{number}"));
        let failed: Arc<Mutex<HashMap<String, String>>> = Arc::default();
        let fatal: Arc<Mutex<Option<EndError>>> = Arc::default();
        let (items, last) = (Arc::clone(&failed), Arc::clone(&fatal));
        let names: HashMap<String, RelPath> = (moves.iter())
            .map(|moved| (moved.stage.to_string(), moved.source.clone()))
            .collect();
        let sink = move |event: Event| {
            if let Event::ItemError {
                path,
                op,
                kind,
                message,
                on_source,
                fatal,
            } = event
            {
                if fatal {
                    let own = RelPath::parse(path.as_bytes());
                    let shown = names.get(&path).or(own.as_ref());
                    let error = ropeway_vfs::Error::new(op, shown.unwrap_or(&RelPath::root()), kind);
                    *last.lock() = Some(match on_source {
                        true => EndError::on_source(error),
                        false => EndError::on_target(error),
                    });
                }
                items.lock().insert(path, message);
            }
        };
        let job = Job::new(self.spec(moves, manifest.clone()))
            .with_pool(self.pool.clone())
            .with_limit(Arc::clone(&self.limit));
        let handle = job.handle();
        *self.running.lock() = Some(handle.clone());
        let outcome = job.run(Arc::new(sink)).await;
        *self.running.lock() = None;
        self.moved.fetch_add(moved_by(&handle), Ordering::Relaxed);
        let counters = handle.counters();
        self.read.fetch_add(counters.bytes_read, Ordering::Relaxed);
        self.written.fetch_add(counters.bytes_sent, Ordering::Relaxed);
        self.lost.lock().add(&Losses(outcome.summary.losses.clone()));
        let hashes = hashes_of(&manifest);
        let _ = std::fs::remove_file(&manifest);
        if let Some(error) = fatal.lock().take() {
            return Err(Error::End(error));
        }
        if let Some(message) = outcome.fatal {
            // A source that vanished ends a job of the engine; here it is one file of many.
            tracing::debug!(message, "the copy of a slice ended early");
            // Then the engine has not flushed what it copied before.
            self.target.sync().await.map_err(Error::target)?;
        }
        let failed = std::mem::take(&mut *failed.lock());
        let moved = self.look(stage, moves, &hashes, &failed).await?;
        if moves.iter().zip(&moved).any(lacks_hash) {
            self.check_scratch().map_err(Error::Scratch)?;
        }
        Ok(moved)
    }

    /// Checks that the hashes of a slice can be written.
    fn check_scratch(&self) -> std::io::Result<()> {
        let probe = self.scratch.join("probe");
        let written = std::fs::write(&probe, vec![0_u8; PROBE]);
        let _ = std::fs::remove_file(probe);
        written
    }

    /// Looks what is in the stage.
    pub(super) async fn look(
        &self,
        stage: &RelPath,
        moves: &[Move],
        hashes: &HashMap<RelPath, ContentHash>,
        failed: &HashMap<String, String>,
    ) -> Result<Vec<Moved>> {
        let names: Vec<Name> = moves.iter().filter_map(|moved| moved.stage.file_name()).collect();
        let found = self.target.lookup(stage, &names).await.map_err(Error::target)?;
        let mut moved = Vec::with_capacity(moves.len());
        for (wanted, found) in moves.iter().zip(found) {
            let reason = failed
                .get(&wanted.stage.to_string())
                .or_else(|| failed.get(&wanted.source.to_string()));
            moved.push(match (found.map_err(Error::target)?, reason) {
                (_, Some(reason)) => Moved::Failed(shown(reason, wanted)),
                // A file that became a folder: what failed below it would not be told.
                (Some(metadata), None) if metadata.kind != wanted.metadata.kind => {
                    Moved::Failed("it is of another kind than when it was listed".to_owned())
                }
                (Some(metadata), None) => Moved::Copied {
                    size: metadata.size,
                    modified: nanoseconds(metadata.modified),
                    hash: hashes.get(&wanted.stage).copied(),
                },
                (None, None) => match self.source.metadata(&wanted.source).await {
                    Err(error) if error.kind.is_absence() => Moved::gone(),
                    Err(error) => Moved::Failed(error.to_string()),
                    Ok(_) => Moved::Failed("it was not copied".to_owned()),
                },
            });
        }
        Ok(moved)
    }
}

/// Whether a file was copied whose hash is not known: its job ended early, or could not write the hashes.
fn lacks_hash((wanted, moved): (&Move, &Moved)) -> bool {
    wanted.metadata.kind == Kind::File && matches!(moved, Moved::Copied { hash: None, .. })
}

/// Returns the bytes that a job has read, sent and made durable.
fn moved_by(job: &Handle) -> u64 {
    let counters = job.counters();
    counters.bytes_read + counters.bytes_sent + counters.bytes_durable
}

/// Names a node of the stage as the user knows it.
fn shown(reason: &str, moved: &Move) -> String {
    reason.replace(&moved.stage.to_string(), &moved.source.to_string())
}

fn hashes_of(manifest: &std::path::Path) -> HashMap<RelPath, ContentHash> {
    match ManifestReader::open(manifest, HashAlgorithm::Blake3) {
        Ok(reader) => reader.flatten().map(|entry| (entry.path, entry.hash)).collect(),
        // Nothing of the slice was a file.
        Err(_) => HashMap::new(),
    }
}

impl Mover for EngineMover {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn bytes_moved(&self) -> u64 {
        let running = self.running.lock().as_ref().map_or(0, moved_by);
        // One that waits for its share of a budget is no straggler.
        let waited = (self.limit.held_back() + self.shares.held_back()).as_millis() as u64;
        self.moved.load(Ordering::Relaxed) + running + waited
    }

    fn take_losses(&self) -> Losses {
        std::mem::take(&mut self.lost.lock())
    }

    fn bytes_read_and_written(&self) -> (u64, u64) {
        let running = self.running.lock().as_ref().map(Handle::counters);
        let (read, written) = running.map_or((0, 0), |running| (running.bytes_read, running.bytes_sent));
        (
            self.read.load(Ordering::Relaxed) + read,
            self.written.load(Ordering::Relaxed) + written,
        )
    }

    fn copy<'a>(&'a self, stage: &'a RelPath, moves: &'a [Move]) -> Pending<'a, Result<Vec<Moved>>> {
        Box::pin(async move {
            let mut moved = self.copy_all(stage, moves).await?;
            // A node that vanished ends the job of the engine before the ones behind it.
            for at in 0..moves.len() {
                if matches!(&moved[at], Moved::Failed(reason) if reason == "it was not copied") {
                    let again = self.copy_all(stage, &moves[at..=at]).await?;
                    moved[at] = again.into_iter().next().unwrap_or_else(Moved::gone);
                }
            }
            Ok(moved)
        })
    }
}

/// Reads and writes block by block, one file after the other. For simulations and tests.
pub struct PlainMover {
    source: Arc<dyn Tree>,
    target: Arc<dyn Tree>,
    pool: Pool,
}

impl PlainMover {
    /// Makes a mover between two trees.
    pub fn new(source: Arc<dyn Tree>, target: Arc<dyn Tree>) -> Self {
        Self::with_blocks(source, target, 64 << 10)
    }

    /// Makes a mover between two trees that copies `size` bytes at once.
    pub fn with_blocks(source: Arc<dyn Tree>, target: Arc<dyn Tree>, size: usize) -> Self {
        Self {
            source,
            target,
            pool: Pool::new(size, 2),
        }
    }

    async fn copy_one(&self, moved: &Move) -> Result<Moved> {
        if moved.metadata.kind == Kind::Symlink {
            let text = self
                .source
                .read_link(&moved.source)
                .await
                .map_err(Error::source)?;
            let made = self.target.make_symlink(&moved.stage, &text).await;
            made.map_err(Error::target)?;
            return Ok(Moved::Copied {
                size: text.len() as u64,
                modified: nanoseconds(moved.metadata.modified),
                hash: None,
            });
        }
        let opened = self
            .source
            .open(&moved.source, OpenOptions::read(CacheMode::Keep))
            .await;
        let source = match opened {
            Ok(source) => source,
            Err(error) if error.kind.is_absence() => return Ok(Moved::gone()),
            Err(error) => return Err(Error::source(error)),
        };
        let metadata = source.metadata().await.map_err(Error::source)?;
        let options = OpenOptions::write(Create::New, CacheMode::Keep);
        let target = self
            .target
            .open(&moved.stage, options)
            .await
            .map_err(Error::target)?;
        let (mut at, mut hasher) = (0, HashAlgorithm::Blake3.hasher());
        loop {
            let block = self.pool.get().await;
            let length = block.capacity();
            let (block, read) = source.read_at(block, at, length).await;
            read.map_err(Error::source)?;
            if block.is_empty() {
                break;
            }
            hasher.update(&block);
            let block = block.freeze();
            let written = block.len() as u64;
            target.write_at(block, at).await.map_err(Error::target)?;
            at += written;
        }
        let change = MetadataChange::of(&metadata, &Preserve::default(), None);
        target.finish(&change, true).await.map_err(Error::target)?;
        Ok(Moved::Copied {
            size: at,
            modified: nanoseconds(metadata.modified),
            hash: Some(hasher.finish()),
        })
    }
}

impl Mover for PlainMover {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn copy<'a>(&'a self, _: &'a RelPath, moves: &'a [Move]) -> Pending<'a, Result<Vec<Moved>>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(moves.len());
            for moved in moves {
                all.push(match self.copy_one(moved).await {
                    Err(Error::End(EndError { error, .. })) if is_of_file(error.kind) => {
                        Moved::Failed(error.to_string())
                    }
                    result => result?,
                });
            }
            Ok(all)
        })
    }
}

/// Whether an error concerns one file only.
pub(crate) fn is_of_file(kind: ErrorKind) -> bool {
    super::is_of_node(kind) && !kind.is_absence()
}
