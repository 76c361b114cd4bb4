//! LOCK ([MS-SMB2] 3.3.5.14).

use ropeway_smb_proto::server::hub::{LockOutcome, RangeLockRequest};
use ropeway_smb_proto::server::rules::lock::verifies_sequence;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::lock::{LockRequest, LockResponse};

use super::context::{Context, Execution, Outcome};
use crate::ops::range_locks;

pub(super) fn lock(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(LockRequest::decode)?;
    // If the file was closed while the lock waited, the range counts as never locked
    // (smb2.lock.unlock, cancel).
    let again = context.is_retry;
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
    let is_durable = context.shared.hub().is_durable(id);
    let verifies = verifies_sequence(context.protocol.dialect(), is_durable);
    let locks = RangeLockRequest {
        now: context.shared.uptime(),
        open: id,
        elements: &request.locks,
        sequence: verifies.then_some(request.lock_sequence),
        waiter: context.waiter,
    };
    match range_locks::lock(context.shared, &open, &locks) {
        LockOutcome::Granted => context.reply(|w| LockResponse.encode(w)),
        LockOutcome::Refused(status) => Err(status),
        LockOutcome::Wait => Ok(Execution::Pending),
    }
}
