//! Stops a job that hangs.
//!
//! Files have their own time-out; this one is for what hangs outside of files (a folder, a whole volume). Progress is
//! whatever is done, not only bytes: entries listed, folders finished, attributes set.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::context::{Context, RootContext};
use crate::job::STOP_WAIT_MAX;
use crate::status::{Fatal, Status};

/// Time-outs without progress, so that a request that ends by itself is not taken for one that hangs. A guess.
const TIMEOUTS: u32 = 4;
/// Looks before the job is stopped.
const LOOKS: u32 = 8;

/// Stops the job when nothing is done for [`TIMEOUTS`] times `timeout`.
pub(crate) async fn watch(context: Arc<Context>, roots: Vec<Arc<RootContext>>, timeout: Duration) {
    let live = &context.live;
    let done = || {
        [
            &live.bytes_read,
            &live.bytes_sent,
            &live.bytes_landed,
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
    while context.sleep(timeout / LOOKS).await {
        let now = done();
        if now != last {
            (last, since) = (now, live.elapsed());
        } else if live.elapsed().saturating_sub(since) >= timeout {
            let message = format!("nothing moved for {} s", timeout.as_secs());
            let hint = "look whether the source and the target still answer; --timeout sets how long to wait";
            return context.fatal(Fatal::new(status(&context, &roots), message).hint(hint));
        }
    }
}

/// What a silence means: that of a server, if there is one.
fn status(context: &Context, roots: &[Arc<RootContext>]) -> Status {
    let is_remote = |root: &Arc<RootContext>| root.root.source.capabilities().remote;
    match context.target.capabilities().remote || roots.iter().any(is_remote) {
        true => Status::Network,
        false => Status::TargetUnwritable,
    }
}
