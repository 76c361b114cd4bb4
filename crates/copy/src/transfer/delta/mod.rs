//! Sends only what changed inside a file, where the far end is one of this project (docs/adr/0034).
//!
//! ```text
//!  far end                     this machine
//!  chunks of its file  ──────▶ chunks of the near file          chunks
//!                              what is known, what is not       plan::delta
//!  copies from old to new ◀─── (or here, for a download)        build
//!  new chunks          ◀─────▶ new chunks
//!  hash of each part   ──────▶ compared with that of the source
//! ```
//!
//! The new file is a temporary one like any other, and the old one stays as it is until the rename.
//! What the far end says about chunks only decides what is sent: each part of the new file is
//! compared with the source by its BLAKE3 hash. If anything does not fit, the rest of the file is
//! sent whole.

mod build;
mod chunks;
mod drive;
mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_plan::delta;
use ropeway_plan::durability::FileTry;
use ropeway_plan::{Engine, Visibility};
use ropeway_vfs::{
    CacheMode, ContentHash, EndError, Error, ErrorKind, File, Kind, OpenOptions, Pending, RelPath, Tree,
    Verdict,
};

use self::build::PartPlan;
use crate::job::context::Context;
use crate::job::counters::Landing;
use crate::job::options::DeltaMode;
use crate::place::task::FileTask;
use crate::transfer::stream::{Stream, Streamed};

/// Size in bytes of the smallest file that is compared inside. Smaller ones take a round trip or
/// two as a whole, and the comparison takes four.
const SIZE_MIN: u64 = 1 << 20;

/// Times the size of the new file that the old one may have, beyond [`OLD_MIN`] bytes: comparing it must
/// not take longer than sending the new one. Guesses.
const OLD_TIMES: u64 = 4;
const OLD_MIN: u64 = 64 << 20;

/// Which end is far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// The target.
    Up,
    /// The source.
    Down,
}

/// Why the old file is of no further use.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("the far end does not tell its chunks, or tells what cannot be")]
    Silent,
    #[error("the end that has the old file does not copy from it")]
    NoCopy,
    #[error("the old file has little of the new one")]
    Other,
    #[error("the source is shorter than expected, or what was built differs from it")]
    Differs,
    #[error("{}", .0.error)]
    Failed(EndError),
}

impl From<EndError> for Unusable {
    fn from(failed: EndError) -> Self {
        Self::Failed(failed)
    }
}

/// Returns what an error of the far end means: what it tells is a hint, so nonsense only costs the
/// hint.
fn far_error(direction: Direction, error: Error) -> Unusable {
    let is_nonsense = matches!(
        error.kind,
        ErrorKind::PeerMisbehaved
            | ErrorKind::InvalidReply
            // Of the old file, which is not needed. Sending the whole tells what else is wrong.
            | ErrorKind::DeviceError
            | ErrorKind::Busy
            | ErrorKind::ServerExhausted
    );
    match direction {
        _ if is_nonsense || error.verdict() == Verdict::Skip => Unusable::Silent,
        Direction::Up => EndError::on_target(error).into(),
        Direction::Down => EndError::on_source(error).into(),
    }
}

/// A file of the target that may hold much of the new one.
struct OldFile {
    path: RelPath,
    /// As listed.
    size: u64,
    /// Whether it stands elsewhere: a mirror will delete it there, since it was renamed or moved in the
    /// source.
    is_elsewhere: bool,
}

impl OldFile {
    fn of(context: &Context, task: &FileTask) -> Option<Self> {
        match &task.existing {
            Some(existing) => (existing.kind == Kind::File).then(|| Self {
                path: task.folder.path().join(&task.name),
                size: existing.size,
                is_elsewhere: false,
            }),
            None => {
                let granularity = &task.folder.root().rules.granularity;
                let path = context
                    .extra_files
                    .find(&task.name, &task.metadata, granularity)?;
                Some(Self {
                    path,
                    size: task.metadata.size,
                    is_elsewhere: true,
                })
            }
        }
    }
}

/// What became of a file.
pub(crate) enum Outcome {
    /// It is complete, and compared with the source.
    Done(Streamed),
    /// All from this offset on must be sent.
    Rest(u64),
}

/// A file of which only what changed is sent.
pub(crate) struct Delta<'a> {
    context: &'a Context,
    task: &'a FileTask,
    old: Option<OldFile>,
    landing: &'a Landing<'a>,
    source: Arc<dyn File>,
    target: Arc<dyn File>,
    attempt: FileTry,
    /// Size of the source.
    size: u64,
    /// The bytes below are there already.
    start: u64,
    /// Whether holes of the source stay holes: it is sparse, and nothing was written to the target.
    keeps_holes: bool,
    /// Whether an earlier try may have left bytes in holes of the source. (A file that is not sparse may have
    /// holes: its unwritten extents.)
    is_resumed: bool,
    /// Whether the durability control counts what is dirty.
    is_counted: bool,
    /// Whether a part has failed, so that others need not be sent.
    has_failed: AtomicBool,
}

impl<'a> Delta<'a> {
    /// Prepares what a stream would move. `is_sparse`: the source has holes. `is_new`: nothing was
    /// written to the target yet.
    pub(crate) fn of(stream: &Stream<'a>, task: &'a FileTask, (is_sparse, is_new): (bool, bool)) -> Self {
        Self {
            context: stream.context,
            task,
            old: OldFile::of(stream.context, task),
            landing: stream.landing,
            source: Arc::clone(&stream.source),
            target: Arc::clone(&stream.target),
            attempt: stream.attempt,
            size: stream.size,
            start: stream.start,
            keeps_holes: is_sparse && is_new,
            is_resumed: !is_new && !stream.writes_holes,
            is_counted: stream.is_counted(),
            has_failed: false.into(),
        }
    }

    /// Sends what is not in the old file, if that is wanted and possible.
    ///
    /// # Errors
    /// What a retry may pass, or what ends the job. After other errors all is to be sent.
    pub(crate) fn run(self) -> Pending<'a, Result<Outcome, EndError>> {
        Box::pin(self.run_once())
    }

    async fn run_once(mut self) -> Result<Outcome, EndError> {
        let Some(direction) = self.direction() else {
            return self.rest().await;
        };
        let done = match self.is_wanted(direction).await {
            Ok(false) => return self.rest().await,
            Ok(true) => self.send_changes(direction).await,
            Err(failed) => Err(failed),
        };
        match done {
            Ok(streamed) => Ok(Outcome::Done(streamed)),
            Err(Unusable::Failed(failed)) if failed.error.verdict() != Verdict::Skip => Err(failed),
            Err(why) => {
                tracing::debug!(path = %self.task.shown(), why = %why, "the rest is sent whole");
                // What was written beyond may be wrong, and holes of the source are not written
                // over.
                let cut = self.target.set_len(self.start).await;
                cut.map_err(EndError::on_target)?;
                Ok(Outcome::Rest(self.start))
            }
        }
    }

    /// Leaves all from here on to be sent. A stream does not write over holes of the source, so what an
    /// earlier try left there must go.
    async fn rest(&self) -> Result<Outcome, EndError> {
        if self.is_resumed {
            let cut = self.target.set_len(self.start).await;
            cut.map_err(EndError::on_target)?;
        }
        Ok(Outcome::Rest(self.start))
    }

    /// Returns which end is far, if there is an old file and only one end is on a network.
    fn direction(&self) -> Option<Direction> {
        let options = &self.context.config.options;
        let old = self.old.as_ref()?;
        let left = self.size.checked_sub(self.start)?;
        let fits = (SIZE_MIN..=delta::SIZE_MAX).contains(&left) && old.size <= delta::SIZE_MAX;
        let is_possible = options.delta != DeltaMode::Off
            && options.engine == Engine::Auto
            && !options.inplace
            && old.size > 0
            && old.size <= left.saturating_mul(OLD_TIMES).max(OLD_MIN)
            // In a folder that is not visible yet, the target is written in its place.
            && (old.is_elsewhere || self.task.folder.visibility() == Visibility::Visible)
            && fits;
        if !is_possible {
            return None;
        }
        let source = &self.task.folder.root().root.source;
        let is_near = |tree: &dyn Tree| !tree.capabilities().on_network;
        if self.target.far_content().is_some() && is_near(&**source) {
            return Some(Direction::Up);
        }
        // The hash of a download is that of the target, so all of it must be compared.
        let hashes_part = self.context.hash_algorithm().is_some() && self.start > 0;
        let is_down =
            !hashes_part && self.source.far_content().is_some() && is_near(&*self.context.config.target);
        is_down.then_some(Direction::Down)
    }

    async fn send_changes(&mut self, direction: Direction) -> Result<Streamed, Unusable> {
        let Some(OldFile { path, size, .. }) = &self.old else {
            return Err(Unusable::NoCopy);
        };
        let (path, expected) = (path.clone(), *size);
        let options = OpenOptions::read(CacheMode::Keep);
        // Whatever is in the way of the old file, the new one can be sent.
        let old = self.context.config.target.open(&path, options).await;
        let old = old.map_err(|_| Unusable::NoCopy)?;
        let metadata = match old.at_open() {
            Some(metadata) => metadata,
            None => old.metadata().await.map_err(|_| Unusable::NoCopy)?,
        };
        if metadata.size > expected.saturating_add(OLD_MIN) {
            // It has grown much since the listing, or the server does not tell the truth.
            return Err(Unusable::Other);
        }
        if self.keeps_holes {
            // A hole at the end of a part is compared, too.
            let grown = self.target.set_len(self.size).await;
            grown.map_err(EndError::on_target)?;
        }
        let (upto, built) = self.build_all(direction, (&*old, metadata.size)).await;
        self.start = upto;
        built?;
        // A server does not replace a file that is open.
        drop(old);
        Ok(Streamed {
            size: self.size,
            end: if self.keeps_holes { 0 } else { self.size },
            hash: self.content_hash(direction).await?,
        })
    }

    /// Notes that a part is there, and all before it.
    fn landed(&self, part: &PartPlan) {
        let (context, upto) = (self.context, part.range.end);
        let length = upto - part.range.start;
        self.landing.add(length);
        let live = &context.report.live;
        live.bytes_reused.fetch_add(part.known(), Ordering::Relaxed);
        if self.is_counted {
            context.durability.wrote(self.attempt, length);
        }
        context.durability.written(self.attempt, upto);
        if let Some(journal) = &context.journal {
            let written = journal.written(self.task.token(), upto);
            context.report.journal_result(Some(written));
        }
    }

    /// Hashes the content, if the job keeps hashes: the near one of two that were compared.
    async fn content_hash(&self, direction: Direction) -> Result<Option<ContentHash>, Unusable> {
        let Some(algorithm) = self.context.hash_algorithm() else {
            return Ok(None);
        };
        let (file, on): (_, fn(Error) -> EndError) = match direction {
            Direction::Up => (&self.source, EndError::on_source),
            Direction::Down => (&self.target, EndError::on_target),
        };
        let hash = chunks::near_content_hash(self.context, &**file, self.size, algorithm).await;
        Ok(Some(hash.map_err(on)?))
    }
}
