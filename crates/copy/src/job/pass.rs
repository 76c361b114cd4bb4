//! One pass over roots: walk, copy, name, and wait until all of it is finished.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_vfs::event::{Event, Phase};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::durable::checkpoint::{checkpoint, run_checkpoints};
use crate::job::context::Context;
use crate::job::root::JobRoot;
use crate::name::finish::run_finisher;
use crate::walk::walker::walk;

/// How long a stopped job waits for operations in flight. A guess.
pub(crate) const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Time to wait for other folders of one level, so that one flush covers all of them. A guess.
const SAME_LEVEL: Duration = Duration::from_millis(2);

/// Copies roots, and waits until everything below them is finished and named. Returns when
/// everything was written, before the wait for the device. Each round of a watch uses it as well.
pub(crate) async fn copy_roots(context: &Arc<Context>, roots: &[Arc<JobRoot>]) -> Duration {
    let (finisher, folders) = mpsc::unbounded_channel();
    let finishing = tokio::spawn(run_finisher(Arc::clone(context), folders).in_current_span());
    let (stop, stopped) = oneshot::channel();
    let checkpoints = tokio::spawn(run_checkpoints(Arc::clone(context), stopped).in_current_span());
    let mut done = Vec::new();
    for root in roots {
        // A listing may hang.
        tokio::select! {
            biased;
            walked = walk(context, root, &finisher) => done.extend(walked),
            () = stop_wait_over(&context.cancel) => break,
        }
    }
    drop(finisher);
    context.report.live.walk_final.store(true, Ordering::Release);
    context.listing_cache.close();
    tokio::select! {
        biased;
        () = context.resources.all_idle() => {}
        () = stop_wait_over(&context.cancel) => {}
    }
    let landed = context.report.live.elapsed();
    drop(stop);
    // A checkpoint that runs has taken the waiting names, so it must end before the rest is named.
    let _ = checkpoints.await;
    if context.config.durability.wants_durable() {
        context.report.emit(Event::Phase {
            phase: Phase::Flushing,
        });
    }
    // A folder finishes when the folders below it have their names. So each round names one level
    // and lets the next one finish.
    for mut finished in done {
        while !context.stopped() {
            tokio::select! {
                biased;
                _ = &mut finished => break,
                () = context.cancel.cancelled() => break,
                () = context.durability.has_waiting_names() => {
                    tokio::time::sleep(SAME_LEVEL).await;
                    checkpoint(context).await;
                }
            }
        }
    }
    if !context.stopped() {
        // Ends when every folder is finished.
        let _ = finishing.await;
    }
    landed
}

/// Completes some time after the job was stopped. Operations on a volume that is gone may never
/// return.
async fn stop_wait_over(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(STOP_WAIT_MAX).await;
}
