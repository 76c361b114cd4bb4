//! Asks the guard of a mirror before each deletion.

use parking_lot::Mutex;
use ropeway_plan::DeleteGuard;
use ropeway_vfs::{Error, ErrorKind, Op, RelPath};

use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;

/// Asks the guard of the mirror for one deletion. A refusal stops the job.
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
