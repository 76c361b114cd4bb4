//! Counts what a sweep within a job removed.

use std::sync::atomic::Ordering;

use ropeway_vfs::End;

use crate::job::context::Context;
use crate::sweep::removal::Swept;

/// Counts what was removed, and reports what could not be removed.
pub(crate) async fn account_swept(context: &Context, swept: Swept) {
    context
        .temporaries
        .swept
        .fetch_add(swept.names, Ordering::Relaxed);
    if swept.names > 0 {
        context.durability.touch();
    }
    for error in swept.failed {
        let path = error.path.clone();
        context.fail(&path, error, End::Target).await;
    }
}
