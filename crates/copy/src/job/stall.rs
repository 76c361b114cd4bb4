//! Stops a job that hangs.
//!
//! Each file has its own time-out. This one is for everything else: a folder, or a whole volume.
//! Any counter that moves is progress: bytes, entries listed, folders finished. A pause, or a
//! `--bwlimit` of zero, is no stall.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_vfs::Tree;

use crate::job::context::Context;
use crate::job::outcome::{Fatal, Status};
use crate::job::pass::STOP_WAIT_MAX;
use crate::job::root::JobRoot;

/// Number of time-outs without progress after which the job counts as hanging. A request that ends
/// by itself needs one. A guess.
const TIMEOUTS: u32 = 4;
/// Number of checks in this time.
const CHECKS: u32 = 8;

/// Stops the job if it makes no progress for [`TIMEOUTS`] times `timeout`.
pub(crate) async fn watch_for_stall(context: Arc<Context>, roots: Vec<Arc<JobRoot>>, timeout: Duration) {
    let live = &context.report.live;
    let done = || {
        [
            &live.bytes_read,
            &live.bytes_sent,
            &live.bytes_landed,
            &live.bytes_compared,
            &live.bytes_durable,
            &live.files_done,
            &live.files_skipped,
            &live.files_failed,
            &live.directories,
            &live.walked_files,
            &live.counted_files,
            &live.listed,
            &live.retries,
        ]
        .map(|counter| counter.load(Ordering::Relaxed))
    };
    let (mut last, mut since) = (done(), live.elapsed());
    let timeout = timeout * TIMEOUTS + STOP_WAIT_MAX;
    while context.report.sleep(timeout / CHECKS).await {
        let now = done();
        let limit = &context.report.limit;
        if now != last || limit.is_closed() || limit.free_for().is_none() {
            (last, since) = (now, live.elapsed());
        } else if live.elapsed().saturating_sub(since) >= timeout {
            let message = format!("nothing moved for {} s", timeout.as_secs());
            let hint = "look whether the source and the target still answer; --timeout sets how long to wait";
            return context.fatal(Fatal::new(status(&*context.config.target, &roots), message).hint(hint));
        }
    }
}

/// Returns the status of a job that hangs: that of the network, if an end is a server.
fn status(target: &dyn Tree, roots: &[Arc<JobRoot>]) -> Status {
    let is_remote = |root: &Arc<JobRoot>| root.root.source.capabilities().remote;
    match target.capabilities().remote || roots.iter().any(is_remote) {
        true => Status::Network,
        false => Status::TargetUnwritable,
    }
}
