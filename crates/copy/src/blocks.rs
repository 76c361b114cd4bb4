//! How many blocks a job has.

use ropeway_block::Pool;
use ropeway_plan::Engine;

/// Blocks of the pool for `auto`: two files with eight blocks in flight each, and some that wait for the hash.
/// 24 x 1 MiB, which with everything else keeps the process below 64 MiB.
const BLOCKS_AUTO: usize = 24;
/// The same where an end is a share, which may be far away: what is in flight at the start (24 MiB), and a little. 36 were
/// measured to be no faster.
const BLOCKS_FAR: usize = 26;
/// Blocks for the historic engines: one file at a time, at most 8 in flight (Vista).
const BLOCKS_HISTORIC: usize = 10;

/// The pool of a job's blocks: made before the trees are opened, so that they can register it with the kernel.
/// `far`: an end is a share.
pub fn pool_for(engine: Engine, far: bool) -> Pool {
    let blocks = match (engine, far) {
        (Engine::Auto, false) => BLOCKS_AUTO,
        (Engine::Auto, true) => BLOCKS_FAR,
        _ => BLOCKS_HISTORIC,
    };
    Pool::new(engine.block_size_max(), blocks)
}
