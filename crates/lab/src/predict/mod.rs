//! `lab predict`: what predictions gain on a recorded trace, when a fetch takes a while.

mod file;
mod text;

use std::path::Path;

use ropeway_cache::replay::{self, Learned, Prefetch, ReadAhead, S3Fifo, Successor, Tally, Trace, hit_ratio};
use ropeway_cache::{predict, replay::Reference};
use serde::Serialize;

pub use file::PredictError;
pub use text::lines;

/// Delays that are replayed if none is given, in requests.
pub const DELAYS: [u32; 4] = [0, 2, 8, 32];
/// Largest delay in requests.
pub const DELAY_MAX: u32 = predict::LAG_MAX;
/// Bytes of a block: from a sector to 16 MiB.
pub const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=16 << 20;
/// Version of the JSON.
pub const VERSION: u32 = 1;

/// How large the cache is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// In percent of the different blocks of the trace.
    Percent(f64),
    /// In bytes.
    Bytes(u64),
}

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the cache.
    pub cache: CacheSize,
    /// Bytes of a block: a multiple of 512 within [`BLOCK_BYTES`].
    pub block_bytes: u64,
    /// Requests that a prefetch takes: each is a run of its own.
    pub delays: Vec<u32>,
    /// Seed of the policy's random choices.
    pub seed: u64,
}

/// What one method did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Share of requests that found their block in the cache.
    pub hit_ratio: f64,
    /// Share of prefetched blocks that were used in time; none without prefetches.
    pub precision: Option<f64>,
    /// Share of requests that hit within the delay after the miss that fetched their block; none for
    /// methods that are replayed without a delay.
    pub joined_ratio: Option<f64>,
    /// Share of requests that found their block on its way. They count as misses.
    pub late_ratio: f64,
    /// Blocks fetched, as a multiple of those that our policy fetches without predictions.
    pub extra_traffic: f64,
    /// Blocks fetched because a request missed them.
    pub demand_fetches: u64,
    /// Blocks fetched because they were predicted.
    pub prefetches: u64,
}

/// A method and what it did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub method: &'static str,
    /// What it did.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What is known of a source of predictions at the end of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SourceRow {
    /// Its name.
    pub source: &'static str,
    /// Share of its likely predictions that the governor carries out.
    pub budget: f32,
    /// Share of its likely predictions that come true.
    pub precision: f32,
}

/// A replay with one delay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Requests that a prefetch takes.
    pub delay: u32,
    /// Ours: the same as the row `predict`.
    #[serde(flatten)]
    pub ours: Figures,
    /// Bytes of memory of our predictions.
    pub memory_bytes: u64,
    /// Bytes of memory that they may take: 120 for each block of the cache, and 24 KiB.
    pub memory_bytes_max: u64,
    /// The sources of our predictions.
    pub sources: Vec<SourceRow>,
    /// All methods.
    pub methods: Vec<Row>,
}

/// All replays of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Requests for blocks.
    pub requests: u64,
    /// Different blocks.
    pub footprint_blocks: u64,
    /// Blocks of the cache.
    pub cache_blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Seed of the policy's random choices.
    pub seed: u64,
    /// One for each delay.
    #[serde(skip)]
    pub runs: Vec<Run>,
}

/// Fetches nothing.
struct Nothing;

impl Prefetch for Nothing {
    fn request(
        &mut self,
        _: predict::Block,
        _: predict::Found,
        _: &dyn Fn(predict::Block) -> bool,
        _: &mut Vec<predict::Prediction>,
    ) {
    }
}

/// Replays a trace.
///
/// # Errors
/// The file cannot be read, or is not a trace.
///
/// # Panics
/// If the options are out of their bounds.
pub fn run(path: &Path, options: &Options) -> Result<Report, PredictError> {
    let trace = file::read(path, options.block_bytes)?;
    let blocks = capacity(&trace, options);
    let without = replay::replay(&trace, blocks, 0, options.seed, &mut Nothing);
    let optimum = of_hits(&trace, replay::belady(&trace, blocks));
    let mut reference = S3Fifo::new(blocks);
    let hits = hit_ratio(&trace, |block| reference.access(block)) * trace.blocks.len() as f64;
    let s3_fifo = of_hits(&trace, hits.round() as u64);
    let fixed = [("s3-fifo", s3_fifo), ("belady", optimum)];
    let runs = options.delays.iter();
    Ok(Report {
        requests: trace.blocks.len() as u64,
        footprint_blocks: trace.footprint as u64,
        cache_blocks: blocks as u64,
        block_bytes: options.block_bytes,
        seed: options.seed,
        runs: runs
            .map(|delay| one(&trace, blocks, *delay, options.seed, &without, &fixed))
            .collect(),
    })
}

/// Returns the blocks of the cache, at least one.
fn capacity(trace: &Trace, options: &Options) -> usize {
    let blocks = match options.cache {
        // At most the footprint, so the cast is exact.
        CacheSize::Percent(percent) => (trace.footprint as f64 * percent.clamp(0.0, 100.0) / 100.0) as usize,
        CacheSize::Bytes(bytes) => usize::try_from(bytes / options.block_bytes).unwrap_or(usize::MAX),
    };
    // A cache that holds all blocks twice over is as good as any larger one.
    blocks.clamp(1, trace.footprint * 2)
}

fn of_hits(trace: &Trace, hits: u64) -> Tally {
    let requests = trace.blocks.len() as u64;
    Tally {
        requests,
        hits,
        demanded: requests - hits,
        ..Tally::default()
    }
}

fn one(
    trace: &Trace,
    blocks: usize,
    delay: u32,
    seed: u64,
    without: &Tally,
    fixed: &[(&'static str, Tally)],
) -> Run {
    let replay = |by: &mut dyn Prefetch| replay::replay(trace, blocks, delay as usize, seed, by);
    let mut learned = Learned::new(blocks, delay);
    let ours = replay(&mut learned);
    let mut tallies = vec![
        ("predict", ours),
        ("none", replay(&mut Nothing)),
        ("read-ahead", replay(&mut ReadAhead::default())),
        ("successor", replay(&mut Successor::default())),
    ];
    tallies.extend_from_slice(fixed);
    let figures = |tally: &Tally, has_delay: bool| Figures {
        hit_ratio: tally.hit_ratio(),
        joined_ratio: has_delay.then(|| tally.joined_ratio()),
        precision: tally.precision(),
        late_ratio: tally.late_ratio(),
        extra_traffic: tally.traffic(without),
        demand_fetches: tally.demanded,
        prefetches: tally.prefetched,
    };
    let sources = learned.0.blocks.sources();
    Run {
        delay,
        ours: figures(&ours, true),
        memory_bytes: learned.0.memory_bytes() as u64,
        memory_bytes_max: predict::Superfetch::memory_max(blocks) as u64,
        sources: sources
            .iter()
            .map(|state| SourceRow {
                source: state.source.name(),
                budget: state.budget,
                precision: state.precision,
            })
            .collect(),
        methods: tallies
            .iter()
            .map(|(method, tally)| Row {
                method,
                figures: figures(tally, !fixed.iter().any(|(name, _)| name == method)),
            })
            .collect(),
    }
}
