//! The chunks of a file: cut here from a near file, or told by the far end.

use std::ops::Range;
use std::sync::atomic::Ordering;

use futures_util::stream::{Stream, StreamExt as _};
use ropeway_block::Block;
use ropeway_plan::delta::parts;
use ropeway_vfs::chunks::{Chunk, Cutter, chunk_hash};
use ropeway_vfs::{
    ContentHash, ContentHasher, Error, ErrorKind, FarContent, File, HashAlgorithm, Op, Pending,
};

use crate::job::context::Context;
use crate::job::outcome::cancelled;

/// Parts that are cut here at once: more than one, so that reading and cutting overlap.
const NEAR_AT_ONCE: usize = 2;

/// Parts about which the far end is asked at once. At 1 GB/s a part takes 34 ms, so these keep two
/// processors busy over a round trip of 100 ms.
const FAR_AT_ONCE: usize = 8;

/// Bytes that are cut at once. The cut that depends on what follows begins anew with it.
const CUT_MIN: usize = 2 << 20;

/// Times the expected number of chunks that a far end may return. Beyond, it wants memory and not
/// speed.
const CHUNKS_FACTOR: u64 = 4;

/// A part of a file and its chunks.
pub(super) struct Part {
    pub(super) range: Range<u64>,
    pub(super) chunks: Vec<Chunk>,
    /// BLAKE3 hash of the whole part, if it was cut here.
    pub(super) hash: Option<ContentHash>,
    /// Whether it was compared with a part of the old file, and too little was known.
    pub(super) was_planned: bool,
}

/// Cuts a near file from `start` on. The part at the file's end is shorter, if that comes earlier
/// than expected.
pub(super) fn near<'a>(
    context: &'a Context,
    file: &'a dyn File,
    (start, size): (u64, u64),
    cutter: Cutter,
) -> impl Stream<Item = Result<Part, Error>> + Send + 'a {
    let cut = move |range| -> Pending<'a, _> { Box::pin(cut_part(context, file, range, Some(cutter))) };
    let cut = futures_util::stream::iter(parts(start, size)).map(cut);
    cut.buffered(NEAR_AT_ONCE)
}

/// Returns the BLAKE3 hash of a range of a near file; `None` if the file is shorter.
pub(super) async fn near_hash(
    context: &Context,
    file: &dyn File,
    range: Range<u64>,
) -> Result<Option<ContentHash>, Error> {
    let end = range.end;
    let part = cut_part(context, file, range, None).await?;
    Ok(part.hash.filter(|_| part.range.end == end))
}

/// Returns the hash of the first `size` bytes of a near file.
pub(super) async fn near_content_hash(
    context: &Context,
    file: &dyn File,
    size: u64,
    algorithm: HashAlgorithm,
) -> Result<ContentHash, Error> {
    let mut cutting = Cutting::new(None, algorithm);
    read_through(context, file, 0..size, &mut cutting).await?;
    Ok(cutting.hasher.finish())
}

async fn cut_part(
    context: &Context,
    file: &dyn File,
    range: Range<u64>,
    cutter: Option<Cutter>,
) -> Result<Part, Error> {
    let mut cutting = Cutting::new(cutter, HashAlgorithm::Blake3);
    let end = read_through(context, file, range.clone(), &mut cutting).await?;
    cutting.cut(true);
    Ok(Part {
        range: range.start..end,
        chunks: cutting.chunks,
        hash: Some(cutting.hasher.finish()),
        was_planned: false,
    })
}

/// Passes a range of a file through `cutting`: one block is read while the one before it is cut.
/// Returns where the range or the file ended.
async fn read_through(
    context: &Context,
    file: &dyn File,
    range: Range<u64>,
    cutting: &mut Cutting,
) -> Result<u64, Error> {
    let mut at = range.start;
    let mut ready: Option<Block> = None;
    let mut is_end = false;
    while !is_end || ready.is_some() {
        if context.stopped() {
            return Err(cancelled(Op::Read, file.path()));
        }
        context.pass().await;
        let read = async {
            if is_end || at >= range.end {
                return Ok(None);
            }
            let block = context.resources.pool.get().await;
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let length = block.capacity().min(left);
            let (block, result) = file.examine_at(block, at, length).await;
            result.map(|()| Some(block))
        };
        let cut = async {
            let Some(block) = ready.take() else { return Ok(()) };
            let mut taken = std::mem::take(cutting);
            let work = tokio::task::spawn_blocking(move || {
                taken.add(&block);
                taken
            });
            // It fails only if the runtime ends, and then the job ends as well.
            *cutting = work.await.map_err(|_| cancelled(Op::Read, file.path()))?;
            Ok(())
        };
        let (read, cut): (Result<_, Error>, Result<(), Error>) = futures_util::future::join(read, cut).await;
        cut?;
        match read? {
            Some(block) if !block.is_empty() => {
                at += block.len() as u64;
                compared(context, block.len() as u64);
                ready = Some(block.freeze());
            }
            _ => is_end = true,
        }
    }
    Ok(at)
}

/// A part that is being cut.
struct Cutting {
    cutter: Option<Cutter>,
    hasher: ContentHasher,
    /// Bytes that are not cut yet.
    left: Vec<u8>,
    chunks: Vec<Chunk>,
}

impl Default for Cutting {
    fn default() -> Self {
        Self::new(None, HashAlgorithm::Xxh3)
    }
}

impl Cutting {
    fn new(cutter: Option<Cutter>, algorithm: HashAlgorithm) -> Self {
        Self {
            cutter,
            hasher: algorithm.hasher(),
            left: Vec::new(),
            chunks: Vec::new(),
        }
    }

    fn add(&mut self, content: &[u8]) {
        self.hasher.update(content);
        if self.cutter.is_some() {
            self.left.extend_from_slice(content);
            if self.left.len() >= CUT_MIN {
                self.cut(false);
            }
        }
    }

    fn cut(&mut self, is_end: bool) {
        let Some(cutter) = self.cutter else { return };
        let chunks = &mut self.chunks;
        let done = cutter.cut(&self.left, is_end, |chunk| {
            chunks.push(Chunk {
                // The longest chunk has 1 MiB.
                length: chunk.len() as u32,
                hash: chunk_hash(chunk),
            });
        });
        self.left.drain(..done);
    }
}

/// Asks the far end for the chunks of a file from `start` on. A part about which it does not tell
/// all ends early.
pub(super) fn far<'a>(
    context: &'a Context,
    (file, content): (&'a dyn File, &'a dyn FarContent),
    (start, size): (u64, u64),
    cutter: Cutter,
) -> impl Stream<Item = Result<Part, Error>> + Send + 'a {
    let ask = move |range| -> Pending<'a, _> {
        Box::pin(async move {
            if context.stopped() {
                return Err(cancelled(Op::Read, file.path()));
            }
            context.pass().await;
            let part = ask_part(file, content, range, cutter).await?;
            compared(context, part.range.end - part.range.start);
            Ok(part)
        })
    };
    let ask = futures_util::stream::iter(parts(start, size)).map(ask);
    ask.buffered(FAR_AT_ONCE)
}

fn compared(context: &Context, bytes: u64) {
    let compared = &context.report.live.bytes_compared;
    compared.fetch_add(bytes, Ordering::Relaxed);
}

async fn ask_part(
    file: &dyn File,
    content: &dyn FarContent,
    range: Range<u64>,
    cutter: Cutter,
) -> Result<Part, Error> {
    let expected = (range.end - range.start) / u64::from(cutter.average());
    let chunks_max = expected * CHUNKS_FACTOR + 16;
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let more = content.chunks(at..range.end, cutter).await?;
        if more.is_empty() {
            break;
        }
        at += more.iter().map(|chunk| u64::from(chunk.length)).sum::<u64>();
        chunks.extend(more);
        if at > range.end || chunks.len() as u64 > chunks_max {
            return Err(Error::new(Op::Read, file.path(), ErrorKind::InvalidReply));
        }
    }
    Ok(Part {
        range: range.start..at,
        chunks,
        hash: None,
        was_planned: false,
    })
}
