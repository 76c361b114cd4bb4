//! OPLOCK_BREAK: a right to cache is called back ([MS-SMB2] 2.2.23 to 2.2.25).
//!
//! Oplocks and leases share the command; `StructureSize` tells them apart. The server notifies with
//! [`MessageId::UNSOLICITED`](super::MessageId::UNSOLICITED), the client acknowledges with a request of its own, the
//! server responds to that.

use super::create::OplockLevel;
use super::create_context::LeaseState;
use super::cursor::{Fault, Reader, Result, Writer};
use super::ids::{FileId, LeaseKey};
use super::lengths::named;
use bitflags::bitflags;

/// `StructureSize` of all three messages about an oplock ([MS-SMB2] 2.2.23.1, 2.2.24.1, 2.2.25.1).
const OPLOCK_SIZE: u16 = 24;
/// `StructureSize` of a lease's notification ([MS-SMB2] 2.2.23.2).
const LEASE_NOTIFICATION_SIZE: u16 = 44;
/// `StructureSize` of a lease's acknowledgment and response ([MS-SMB2] 2.2.24.2, 2.2.25.2).
const LEASE_SIZE: u16 = 36;

/// An oplock: in a notification what is left of it, in an acknowledgment what the client keeps, in a response what it
/// has ([MS-SMB2] 2.2.23.1, 2.2.24.1, 2.2.25.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OplockBreak {
    /// The level.
    pub oplock_level: OplockLevel,
    /// The file.
    pub file_id: FileId,
}

impl OplockBreak {
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        reader.structure_size(OPLOCK_SIZE)?;
        let fault = reader.fault(Fault::Value);
        let oplock_level = OplockLevel::from_wire(reader.u8()?).ok_or(fault)?;
        reader.skip(5)?;
        Ok(Self {
            oplock_level,
            file_id: FileId::decode(reader)?,
        })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u16(OPLOCK_SIZE);
        w.u8(self.oplock_level.to_wire());
        w.zeros(5);
        self.file_id.encode(w);
    }
}

bitflags! {
    /// `Flags` of a lease's notification ([MS-SMB2] 2.2.23.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct LeaseBreakFlags: u32 {
        /// The server waits for an acknowledgment.
        const ACK_REQUIRED = 0x0000_0001;
        const _ = !0;
    }
}

/// A lease is called back ([MS-SMB2] 2.2.23.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseBreakNotification {
    /// Counts the lease's changes (3.x).
    pub new_epoch: u16,
    /// Flags.
    pub flags: LeaseBreakFlags,
    /// The lease.
    pub lease_key: LeaseKey,
    /// What it was.
    pub current_lease_state: LeaseState,
    /// What is left of it.
    pub new_lease_state: LeaseState,
}

impl LeaseBreakNotification {
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        reader.structure_size(LEASE_NOTIFICATION_SIZE)?;
        let notification = Self {
            new_epoch: reader.u16()?,
            flags: LeaseBreakFlags::from_bits_retain(reader.u32()?),
            lease_key: LeaseKey(reader.array()?),
            current_lease_state: LeaseState::from_bits_retain(reader.u32()?),
            new_lease_state: LeaseState::from_bits_retain(reader.u32()?),
        };
        // BreakReason, AccessMaskHint, ShareMaskHint: reserved.
        reader.skip(12)?;
        Ok(notification)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u16(LEASE_NOTIFICATION_SIZE);
        w.u16(self.new_epoch);
        w.u32(self.flags.bits());
        w.bytes(&self.lease_key.0);
        w.u32(self.current_lease_state.bits());
        w.u32(self.new_lease_state.bits());
        w.zeros(12);
    }
}

/// A lease: in an acknowledgment what the client keeps, in a response what it has ([MS-SMB2] 2.2.24.2, 2.2.25.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseBreak {
    /// The lease.
    pub lease_key: LeaseKey,
    /// What remains.
    pub lease_state: LeaseState,
}

impl LeaseBreak {
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        reader.structure_size(LEASE_SIZE)?;
        reader.skip(6)?;
        let lease_key = LeaseKey(reader.array()?);
        let lease_state = LeaseState::from_bits_retain(reader.u32()?);
        // LeaseDuration: reserved.
        reader.skip(8)?;
        Ok(Self {
            lease_key,
            lease_state,
        })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u16(LEASE_SIZE);
        w.zeros(6);
        w.bytes(&self.lease_key.0);
        w.u32(self.lease_state.bits());
        w.zeros(8);
    }
}

/// What the server sends unasked ([MS-SMB2] 2.2.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakNotification {
    /// Of an oplock.
    Oplock(OplockBreak),
    /// Of a lease.
    Lease(LeaseBreakNotification),
}

impl BreakNotification {
    /// Reads a notification.
    ///
    /// # Errors
    /// [`Fault`]; [`Fault::Signature`] for a message of another length, such as a response.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 OPLOCK_BREAK Notification");
        match peek(reader)? {
            LEASE_NOTIFICATION_SIZE => LeaseBreakNotification::decode(&mut reader).map(Self::Lease),
            _ => OplockBreak::decode(&mut reader).map(Self::Oplock),
        }
    }

    /// Appends a notification.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Oplock(message) => message.encode(w),
            Self::Lease(message) => message.encode(w),
        }
    }
}

/// The client's acknowledgment, and the server's response to it, which look the same ([MS-SMB2] 2.2.24, 2.2.25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakAcknowledgment {
    /// Of an oplock.
    Oplock(OplockBreak),
    /// Of a lease.
    Lease(LeaseBreak),
}

impl BreakAcknowledgment {
    /// Reads an acknowledgment or a response.
    ///
    /// # Errors
    /// [`Fault`]; [`Fault::Signature`] for a message of another length.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 OPLOCK_BREAK Acknowledgment");
        match peek(reader)? {
            LEASE_SIZE => LeaseBreak::decode(&mut reader).map(Self::Lease),
            _ => OplockBreak::decode(&mut reader).map(Self::Oplock),
        }
    }

    /// Appends an acknowledgment or a response.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Oplock(message) => message.encode(w),
            Self::Lease(message) => message.encode(w),
        }
    }
}

/// The `StructureSize` that comes next.
fn peek(mut reader: Reader<'_>) -> Result<u16> {
    reader.u16()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::HEADER_LEN;
    use crate::hostile;
    use proptest::prelude::*;

    #[test]
    fn known_bytes() {
        let message = BreakNotification::Oplock(OplockBreak {
            oplock_level: OplockLevel::LevelII,
            file_id: FileId {
                persistent: 5,
                volatile: 1,
            },
        });
        let body = b"\x18\0\x01\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0";
        let bytes = hostile::message(|w| message.encode(w));
        assert_eq!(&bytes[HEADER_LEN..], body);

        let message = BreakNotification::Lease(LeaseBreakNotification {
            new_epoch: 2,
            flags: LeaseBreakFlags::ACK_REQUIRED,
            lease_key: LeaseKey(*b"0123456789abcdef"),
            current_lease_state: LeaseState::from_bits_retain(7),
            new_lease_state: LeaseState::from_bits_retain(1),
        });
        let body = b"\x2C\0\x02\0\x01\0\0\x000123456789abcdef\x07\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let bytes = hostile::message(|w| message.encode(w));
        assert_eq!(&bytes[HEADER_LEN..], body);
        assert_eq!(BreakNotification::decode(&mut hostile::body(&bytes)), Ok(message));
        // A notification is no acknowledgment.
        let outcome = BreakAcknowledgment::decode(&mut hostile::body(&bytes));
        assert_eq!(outcome.unwrap_err().fault, Fault::Signature);
    }

    #[test]
    fn hostile_breaks() {
        for size in [OPLOCK_SIZE, LEASE_SIZE, LEASE_NOTIFICATION_SIZE] {
            let bytes = hostile::message(|w| {
                w.u16(size);
                w.zeros(usize::from(size) - 2);
            });
            hostile::attack_body(&bytes, |reader| {
                let _ = BreakNotification::decode(reader);
                let _ = BreakAcknowledgment::decode(reader);
            });
        }
    }

    proptest! {
        #[test]
        fn breaks_round_trip(level in 0..2_usize, ids: (u64, u64), key: [u8; 16], epoch: u16, numbers: [u32; 3]) {
            let oplock = OplockBreak {
                oplock_level: [OplockLevel::None, OplockLevel::LevelII][level],
                file_id: FileId { persistent: ids.0, volatile: ids.1 },
            };
            let lease = LeaseBreak { lease_key: LeaseKey(key), lease_state: LeaseState::from_bits_retain(numbers[0]) };
            let notification = LeaseBreakNotification {
                new_epoch: epoch,
                flags: LeaseBreakFlags::from_bits_retain(numbers[0]),
                lease_key: LeaseKey(key),
                current_lease_state: LeaseState::from_bits_retain(numbers[1]),
                new_lease_state: LeaseState::from_bits_retain(numbers[2]),
            };
            for message in [BreakNotification::Oplock(oplock), BreakNotification::Lease(notification)] {
                let bytes = hostile::message(|w| message.encode(w));
                prop_assert_eq!(BreakNotification::decode(&mut hostile::body(&bytes)), Ok(message));
            }
            for message in [BreakAcknowledgment::Oplock(oplock), BreakAcknowledgment::Lease(lease)] {
                let bytes = hostile::message(|w| message.encode(w));
                prop_assert_eq!(BreakAcknowledgment::decode(&mut hostile::body(&bytes)), Ok(message));
            }
        }
    }
}
