//! LOCKING_ANDX ([MS-CIFS] 3.3.5.29). Locks belong to the open file, not to the client's processes,
//! and a lock that is in the way refuses at once, whatever the client would wait.

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::lock::{LockElement, LockFlags};
use ropeway_smb1::wire::locking::{LockType, LockingRequest, Range};
use ropeway_smb1::wire::session_setup::encode_andx;

use crate::conversation::{Call, Conversation, Outcome, done};
use crate::line::Fault;

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

/// Locks from here on, below the sign bit, are those of databases, which are told of a conflict at once:
/// DOS programs lock there what is not in the file.
const DATABASE_LOCKS: std::ops::Range<u64> = 0xEF00_0000..1 << 63;

impl Conversation {
    /// Returns the status of a lock that was refused, as Windows tells it: LOCK_NOT_GRANTED to who tries
    /// once, FILE_LOCK_CONFLICT to who waits or tries the same again.
    fn refused(&mut self, fid: u16, fault: Fault, first: u64, timeout: u32) -> Fault {
        let Fault::Status(NtStatus::LOCK_NOT_GRANTED) = fault else {
            return fault;
        };
        let Some(file) = self.tables.files.get_mut(fid) else {
            return fault;
        };
        let is_again = file.refused_lock.replace(first) == Some(first);
        match is_again || timeout != 0 || DATABASE_LOCKS.contains(&first) {
            true => NtStatus::FILE_LOCK_CONFLICT.into(),
            false => fault,
        }
    }

    pub(crate) fn locking(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = LockingRequest::decode(call.block)?;
        let fid = call.fid(request.words.fid);
        let file = self.file(&call.header, fid)?;
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
                let first = some.first().map_or(0, |range| range.offset);
                return Err(self.refused(fid, fault, first, request.words.timeout));
            }
            locked += some.len();
        }
        done(encode_andx)
    }
}
