//! Acknowledgments of oplock and lease breaks ([MS-SMB2] 3.3.5.22.1, 3.3.5.22.2).

use std::time::Duration;

use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::oplock_break::{LeaseBreak, OplockBreak};
use ropeway_smb_wire::{Guid, LeaseKey, NtStatus};

use super::Hub;
use super::caching::{AckError, R, level_of, state_of, valid};
use super::ids::{FileKey, Holder, LeaseName, OpenId};

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
    /// lease, `STATUS_INVALID_DEVICE_STATE` or `STATUS_INVALID_OPLOCK_PROTOCOL` if no break awaits an
    /// acknowledgment. If the client keeps more than the break left, it loses the oplock with
    /// `STATUS_INVALID_OPLOCK_PROTOCOL`; with `STATUS_INVALID_PARAMETER` if the level is not an
    /// oplock level.
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
            (None, level) => Err(not_breaking(level_of(open.oplock.state), level)),
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

/// Returns the status of an acknowledgment that no break awaits: `STATUS_INVALID_DEVICE_STATE`
/// ([MS-SMB2] 3.3.5.22.1), if it names a level that a break of the held oplock could have left.
/// Other statuses are those of Microsoft's model OplockOnShareWithoutForceLevel2OrSOFS. It wants
/// `STATUS_INVALID_DEVICE_STATE` after a break of level II too, which awaits no acknowledgment, but
/// smb2.oplock.levelii500 does not.
fn not_breaking(held: OplockLevel, level: OplockLevel) -> NtStatus {
    match (held, level) {
        (_, OplockLevel::Lease) => NtStatus::INVALID_PARAMETER,
        (_, OplockLevel::Exclusive | OplockLevel::Batch)
        | (OplockLevel::LevelII, OplockLevel::LevelII)
        | (OplockLevel::None, _) => NtStatus::INVALID_OPLOCK_PROTOCOL,
        _ => NtStatus::INVALID_DEVICE_STATE,
    }
}

impl Hub {
    /// Returns whether any folder is leased.
    pub fn has_folder_leases(&self) -> bool {
        self.leases.folders() > 0
    }

    /// Returns whether the client uses this lease key for another file ([MS-SMB2] 3.3.5.9.8).
    pub fn is_leased_elsewhere(&self, client: Guid, key: LeaseKey, file: &FileKey) -> bool {
        !self.lease_key_fits(LeaseName { client, key }, file)
    }

    /// Handles the acknowledgment of a lease break ([MS-SMB2] 3.3.5.22.2) and returns the response.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND` without such a lease, `STATUS_UNSUCCESSFUL` if no break is in
    /// progress, `STATUS_REQUEST_NOT_ACCEPTED` if the client keeps more than the break left.
    pub fn lease_break_ack(
        &mut self,
        now: Duration,
        client: Guid,
        ack: &LeaseBreak,
    ) -> Result<LeaseBreak, NtStatus> {
        let name = LeaseName {
            client,
            key: ack.lease_key,
        };
        let held = self.leases.get_mut(name).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let next = held
            .caching
            .acknowledge(ack.lease_state)
            .map_err(|fault| match fault {
                AckError::NotBreaking => NtStatus::UNSUCCESSFUL,
                AckError::KeepsTooMuch => NtStatus::REQUEST_NOT_ACCEPTED,
            })?;
        self.break_acknowledged(now, Holder::Lease(name), next);
        Ok(LeaseBreak {
            lease_key: ack.lease_key,
            lease_state: valid(ack.lease_state),
        })
    }

    /// Returns whether the lease key is unused or names this file ([MS-SMB2] 3.3.5.9.8).
    pub(super) fn lease_key_fits(&self, name: LeaseName, file: &FileKey) -> bool {
        self.leases.get(name).is_none_or(|held| held.file == *file)
    }
}
