//! Oplocks ([MS-SMB2] 3.3.5.22.1).

use std::time::Duration;

use super::Hub;
use super::caching::{R, level_of, state_of};
use super::ids::{Holder, OpenId};
use crate::wire::NtStatus;
use crate::wire::create::OplockLevel;
use crate::wire::oplock_break::OplockBreak;

impl Hub {
    /// Returns the oplock level of an open; `Lease` if it has a lease.
    pub fn oplock(&self, open: OpenId) -> Option<OplockLevel> {
        let open = self.tables.opens.get(&open)?;
        Some(match open.lease {
            Some(_) => OplockLevel::Lease,
            None => level_of(open.oplock.state),
        })
    }

    /// Handles the acknowledgment of an oplock break ([MS-SMB2] 3.3.5.22.1) and returns the
    /// response.
    ///
    /// # Errors
    /// `STATUS_FILE_CLOSED` without such an open, `STATUS_INVALID_PARAMETER` for an open with a
    /// lease, `STATUS_INVALID_OPLOCK_PROTOCOL` if no break awaits an acknowledgment. A break of
    /// level II never does (smb2.oplock.levelii500). If the client keeps more than the break left,
    /// it loses the oplock with the same status; with `STATUS_INVALID_PARAMETER` if the level is
    /// not an oplock level.
    pub fn oplock_break_ack(
        &mut self,
        now: Duration,
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
                // Windows treats level II as none if none was left.
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
                self.break_acknowledged(now, Holder::Oplock(id), next.unwrap_or(None));
                Ok(OplockBreak {
                    oplock_level: left,
                    file_id: id.file_id(),
                })
            }
            Err(status) => {
                self.break_ended(now, Holder::Oplock(id));
                Err(status)
            }
        }
    }
}
