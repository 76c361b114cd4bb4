//! Oplocks ([MS-SMB2] 3.3.5.22.1).

use super::Hub;
use super::caching::{R, level_of, state_of};
use super::ids::{Holder, OpenId};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::oplock_break::OplockBreak;

impl Hub {
    /// The oplock of an open; `Lease` for one with a lease.
    pub fn oplock(&self, open: OpenId) -> Option<OplockLevel> {
        let open = self.tables.opens.get(&open)?;
        Some(match open.lease {
            Some(_) => OplockLevel::Lease,
            None => level_of(open.oplock.state),
        })
    }

    /// Handles the acknowledgment of an oplock's break ([MS-SMB2] 3.3.5.22.1); the answer is the response.
    ///
    /// # Errors
    /// `STATUS_FILE_CLOSED` without such an open, `STATUS_INVALID_PARAMETER` for an open with a lease,
    /// `STATUS_INVALID_OPLOCK_PROTOCOL` if nothing was asked (also after a break of level II, which asks nothing:
    /// smb2.oplock.levelii500). If more is kept than was left the oplock is lost, with the same status, or
    /// `STATUS_INVALID_PARAMETER` for a level that is none of an oplock.
    pub fn oplock_break_ack(
        &mut self,
        now_ms: u64,
        id: OpenId,
        level: OplockLevel,
    ) -> Result<OplockBreak, NtStatus> {
        let open = self.tables.opens.get_mut(&id).ok_or(NtStatus::FILE_CLOSED)?;
        if open.lease.is_some() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let outcome = match (open.oplock.breaking, level) {
            (None, _) => Err(NtStatus::INVALID_OPLOCK_PROTOCOL),
            (Some(breaking), OplockLevel::None | OplockLevel::LevelII) => {
                // Level II where none was left is taken for none, as on Windows.
                let kept = state_of(level) & breaking.requested;
                Ok(open.oplock.acknowledge(kept))
            }
            (Some(_), wrong) => {
                open.oplock.revoke();
                Err(match wrong {
                    OplockLevel::Lease => NtStatus::INVALID_PARAMETER,
                    _ => NtStatus::INVALID_OPLOCK_PROTOCOL,
                })
            }
        };
        match outcome {
            Ok(next) => {
                let left = level_of(open.oplock.state & R);
                self.acknowledged(now_ms, Holder::Oplock(id), next.unwrap_or(None));
                Ok(OplockBreak {
                    oplock_level: left,
                    file_id: id.file_id(),
                })
            }
            Err(status) => {
                self.settled(now_ms, Holder::Oplock(id));
                Err(status)
            }
        }
    }
}
