//! LOCK ([MS-SMB2] 3.3.5.14).

use ropeway_smb_proto::server::hub::{LockOutcome, LockWish};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::lock::{LockRequest, LockResponse};
use ropeway_smb_wire::negotiate::Dialect;

use super::context::{Context, Done, Outcome};
use crate::posix;

pub(super) fn lock(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(LockRequest::decode)?;
    // A lock that waited on what was closed meanwhile was never there (smb2.lock.unlock, cancel).
    let again = context.again;
    let gone = |status| {
        if again && status == NtStatus::FILE_CLOSED {
            NtStatus::RANGE_NOT_LOCKED
        } else {
            status
        }
    };
    let open = context.open(request.file_id).map_err(gone)?;
    if open.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    if request.locks.is_empty() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let id = open.hub_id();
    let dialect = context.protocol.dialect();
    // [MS-SMB2] 3.3.5.14: repetitions are told from new requests where a channel may be lost.
    let verifies =
        dialect >= Dialect::Smb300 || (dialect == Dialect::Smb210 && context.shared.hub().is_durable(id));
    let wish = LockWish {
        now_ms: context.shared.now_ms(),
        open: id,
        elements: &request.locks,
        sequence: verifies.then_some(request.lock_sequence),
        waiter: context.waiter,
    };
    match posix::lock(context.shared, &open, &wish) {
        LockOutcome::Granted => context.reply(|w| LockResponse.encode(w)),
        LockOutcome::Refused(status) => Err(status),
        LockOutcome::Wait => Ok(Done::Wait),
    }
}
