//! Asks the guard of a mirror before each deletion.

use ropeway_vfs::{Error, ErrorKind, Op, RelPath};

use crate::job::context::Context;
use crate::job::outcome::{Fatal, Status};

/// Asks the guard of the mirror for one deletion. A refusal stops the job.
pub(crate) fn admit_deletion(context: &Context, path: &RelPath) -> Result<(), Error> {
    let refused = match &mut *context.delete_guard.lock() {
        Some(guard) => guard.admit().err(),
        None => None,
    };
    match refused {
        None => Ok(()),
        Some(refused) => {
            context.fatal(Fatal::new(Status::Refused, refused.to_string()));
            Err(Error::new(Op::Remove, path, ErrorKind::Cancelled))
        }
    }
}
