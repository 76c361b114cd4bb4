//! Tries an operation again after an error that may pass.

use std::sync::atomic::Ordering;

use ropeway_vfs::{EndError, ErrorKind, Verdict};

use crate::job::options::Options;
use crate::job::report::Report;

/// Runs `operation` until it succeeds, fails for good, or has no tries left. `seed` spreads the
/// pauses of different items.
pub(crate) async fn with_retries<T, F, Fut>(
    options: &Options,
    report: &Report,
    seed: u64,
    mut operation: F,
) -> Result<T, EndError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, EndError>>,
{
    let mut attempt = 0;
    loop {
        attempt += 1;
        let EndError { end, error } = match operation().await {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        // An operation that hung for all of --timeout still holds its blocks, so it gets no other
        // try.
        let hung = error.kind == ErrorKind::TimedOut && options.timeout.is_some();
        let pause = match error.verdict() {
            Verdict::Retry if !report.stopped() && !hung => options.retry.delay(attempt, seed),
            _ => None,
        };
        let Some(pause) = pause else {
            return Err(EndError { end, error });
        };
        report.live.retries.fetch_add(1, Ordering::Relaxed);
        if !report.sleep(pause).await {
            return Err(EndError { end, error });
        }
    }
}
