//! LOCKING_ANDX ([MS-CIFS] 3.3.5.29). Locks belong to the open file, not to the client's processes,
//! and a lock that is in the way refuses at once, whatever the client would wait.

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::lock::{LockElement, LockFlags};
use ropeway_smb1::wire::locking::{LockType, LockingRequest, Range};
use ropeway_smb1::wire::session_setup::encode_andx;

use crate::conversation::{Call, Conversation, Outcome, done};

/// Maximum number of ranges in one request on the line: as many as the server takes at once.
const RANGES_MAX: usize = 64;

fn elements(ranges: &[Range], flags: LockFlags) -> Vec<LockElement> {
    let element = |range: &Range| LockElement {
        offset: range.offset,
        length: range.length,
        flags,
    };
    ranges.iter().map(element).collect()
}

impl Conversation {
    pub(crate) fn locking(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = LockingRequest::decode(call.block)?;
        let file = self.file(&call.header, call.fid(request.words.fid))?;
        let kind = request.words.lock_type;
        // No lock ever waits, so there is nothing to cancel; types cannot change in one step.
        if kind.intersects(LockType::CHANGE_LOCKTYPE | LockType::CANCEL_LOCK) {
            return Err(NtStatus::NOT_SUPPORTED.into());
        }
        for some in request.unlocks.chunks(RANGES_MAX) {
            self.line
                .lock(file.place, file.id, elements(some, LockFlags::UNLOCK))?;
        }
        let flags = match kind.contains(LockType::SHARED_LOCK) {
            true => LockFlags::SHARED_LOCK,
            false => LockFlags::EXCLUSIVE_LOCK,
        };
        let mut locked = 0;
        for some in request.locks.chunks(RANGES_MAX) {
            let wanted = elements(some, flags | LockFlags::FAIL_IMMEDIATELY);
            if let Err(fault) = self.line.lock(file.place, file.id, wanted) {
                // All or none.
                for some in request.locks[..locked].chunks(RANGES_MAX) {
                    self.line
                        .lock(file.place, file.id, elements(some, LockFlags::UNLOCK))?;
                }
                return Err(fault);
            }
            locked += some.len();
        }
        done(encode_andx)
    }
}
