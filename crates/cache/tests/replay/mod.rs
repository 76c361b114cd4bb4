//! Opens the traces of `../shared/traces`.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod engine;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

pub use ropeway_cache::replay::*;

use ropeway_cache::predict::{Block, Found, Prediction};

/// Reads a trace beside the checkout; `None` if it is not there.
pub fn load(name: &str) -> Option<Trace> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let trace = if let Ok(file) = File::open(folder.join(format!("{name}.lis.zst"))) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(file).expect("a zstd frame");
        Trace::read(BufReader::new(decoder), Format::Lis, 65_536)
    } else {
        let file = File::open(folder.join(format!("{name}.csv.gz"))).ok()?;
        let decoder = flate2::read::GzDecoder::new(file);
        Trace::read(BufReader::new(decoder), Format::Csv, 65_536)
    };
    Some(trace.expect("a readable trace"))
}

/// Predicts nothing.
pub struct Nothing;

impl Prefetch for Nothing {
    fn request(&mut self, _: Block, _: Found, _: &dyn Fn(Block) -> bool, _: &mut Vec<Prediction>) {}
}

/// Returns the hit ratio of our policy without predictions.
pub fn ours(trace: &Trace, blocks: usize, seed: u64) -> f64 {
    replay(trace, blocks, 0, seed, &mut Nothing).hit_ratio()
}
