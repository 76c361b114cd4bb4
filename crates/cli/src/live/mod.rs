//! What this process tells of itself: its parts for [`ropeway_live`].
//!
//! ```text
//! job      a copy, mirror, comparison or image: from the events that bar, JSON and log get too
//! server   an SMB server: from its report
//! others   mounts, caches, write-back journals, runs of the laboratory and the demo
//! ```

mod job;
mod others;
mod server;

use ropeway_live::Live;

pub(crate) use job::{JobPart, Watched};
pub(crate) use others::{BacklogsPart, CachePart, MountPart, RunPart};
pub(crate) use server::ServerPart;

/// Registers this process under the name of its command.
pub(crate) fn start(command: &'static str) -> Live {
    Live::start(command, std::env::args_os())
}
