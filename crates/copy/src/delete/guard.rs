//! Checks each deletion of a mirror against its guard.

use parking_lot::Mutex;
use ropeway_plan::DeleteGuard;
use ropeway_vfs::{Error, ErrorKind, Op, RelPath};

use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;

/// Checks one deletion against the guard of the mirror. A refusal stops the job.
///
/// # Errors
/// The guard refuses.
pub(crate) fn admit_deletion(
    guard: &Mutex<Option<DeleteGuard>>,
    report: &Report,
    path: &RelPath,
) -> Result<(), Error> {
    let refused = match &mut *guard.lock() {
        Some(guard) => guard.admit().err(),
        None => None,
    };
    match refused {
        None => Ok(()),
        Some(refused) => {
            report.fatal(Fatal::new(Status::Refused, refused.to_string()));
            Err(Error::new(Op::Remove, path, ErrorKind::Cancelled))
        }
    }
}
