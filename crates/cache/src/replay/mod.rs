//! Replays of recorded traces: what a cache and its predictions would have done. Pure.
//!
//! The laboratory (`lab predict`), the tests and the examples of this crate use it.
//!
//! **The model.** A request for a block that is in the cache is a hit. Any other request is a miss,
//! and the program waits for its block: the trace goes on when it is there, as the recorded program
//! did, so the next request finds it. A prefetch takes no one's time, but as long as `delay`
//! requests: started at request i, it is in the cache for request i + delay (without a delay, for
//! the next one). A request that finds its block on its way is *late*: it counts as a miss, and
//! the block is in the cache from then on, without a second fetch.

mod belady;
mod methods;
mod references;
mod run;
mod trace;

pub use belady::belady;
pub use methods::{Learned, Prefetch, ReadAhead, Successor};
pub use references::{Fifo, Lru, Reference, S3Fifo, hit_ratio, references};
pub use run::{Tally, replay};
pub use trace::{Format, REQUESTS_MAX, Trace, TraceError};

/// Sizes of caches in percent of the footprint that tables show.
pub const SIZES: [usize; 4] = [1, 5, 10, 20];
