//! The number of blocks of a job.

use ropeway_block::Pool;
use ropeway_plan::Engine;

/// Blocks for `auto`: eight in flight for each of two files, and some that wait for the hash. 24 x
/// 1 MiB keeps the whole process below 64 MiB.
const BLOCKS_AUTO: usize = 24;
/// The same if an end is a share, which may be far away: what is in flight at the start (24 MiB),
/// and a little more. 36 were measured to be no faster on lines without losses.
const BLOCKS_FAR: usize = 26;
/// Blocks beyond these that a job uses while a long line needs more in flight, as one that loses segments
/// does. With them the process takes up to 150 MiB.
const BLOCKS_SPARE: usize = 36;
/// Blocks for the historic engines: one file at a time, at most 8 in flight (Vista).
const BLOCKS_HISTORIC: usize = 10;
/// Blocks for Windows 7, which has at most 64 small ones in flight.
const BLOCKS_WIN7: usize = 66;

/// Makes the pool of a job's blocks. Make it before opening the trees, so that they can register it
/// with the kernel. `far` is whether an end is a share.
pub fn pool_for(engine: Engine, far: bool) -> Pool {
    let (blocks, spare) = match (engine, far) {
        (Engine::Auto, false) => (BLOCKS_AUTO, 0),
        (Engine::Auto, true) => (BLOCKS_FAR, BLOCKS_SPARE),
        (Engine::Win7Smb1 | Engine::Win7Smb2, _) => (BLOCKS_WIN7, 0),
        _ => (BLOCKS_HISTORIC, 0),
    };
    Pool::with_spare(engine.block_size_max(), blocks, spare)
}
