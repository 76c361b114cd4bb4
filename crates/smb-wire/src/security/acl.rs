//! Access control lists and their entries ([MS-DTYP] 2.4.4 and 2.4.5).

use super::{AccessMask, Sid};
use crate::{Fault, Reader, Result, Writer};
use bitflags::bitflags;

/// `ACL_REVISION`: lists without object entries.
const REVISION: u8 = 2;
/// `ACL_REVISION_DS`: lists with object entries.
const REVISION_DS: u8 = 4;
/// Bytes before an entry's body, of which `AceSize` is the last two.
const ACE_HEADER_LEN: usize = 4;
/// Bytes before a list's first entry.
const ACL_HEADER_LEN: usize = 8;

/// What an entry that is fully understood does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AceKind {
    /// `ACCESS_ALLOWED_ACE`.
    Allowed,
    /// `ACCESS_DENIED_ACE`.
    Denied,
    /// `SYSTEM_AUDIT_ACE`.
    Audit,
}

impl AceKind {
    fn from_u8(ace_type: u8) -> Option<Self> {
        match ace_type {
            0 => Some(Self::Allowed),
            1 => Some(Self::Denied),
            2 => Some(Self::Audit),
            _ => None,
        }
    }

    fn to_u8(self) -> u8 {
        match self {
            Self::Allowed => 0,
            Self::Denied => 1,
            Self::Audit => 2,
        }
    }
}

bitflags! {
    /// How an entry is passed on, and when it audits ([MS-DTYP] 2.4.4.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct AceFlags: u8 {
        /// Files in a directory inherit it.
        const OBJECT_INHERIT = 0x01;
        /// Directories in a directory inherit it.
        const CONTAINER_INHERIT = 0x02;
        /// What inherits it does not pass it on.
        const NO_PROPAGATE_INHERIT = 0x04;
        /// Only to be inherited: says nothing about the directory itself.
        const INHERIT_ONLY = 0x08;
        /// Was inherited.
        const INHERITED = 0x10;
        /// Audits access that is granted.
        const SUCCESSFUL_ACCESS = 0x40;
        /// Audits access that is refused.
        const FAILED_ACCESS = 0x80;
        const _ = !0;
    }
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ace {
    /// Rights of a user or group.
    Basic {
        /// What it does.
        kind: AceKind,
        /// How it is passed on.
        flags: AceFlags,
        /// The rights.
        mask: AccessMask,
        /// Whose.
        sid: Sid,
    },
    /// An entry kept as it is: of a type not known here (object, callback, label, …), or with bytes after its SID.
    Opaque {
        /// `AceType`.
        ace_type: u8,
        /// How it is passed on.
        flags: AceFlags,
        /// What follows the header.
        body: Vec<u8>,
    },
}

impl Ace {
    /// Bytes on the wire.
    pub fn wire_len(&self) -> usize {
        ACE_HEADER_LEN
            + match self {
                Self::Basic { sid, .. } => 4 + sid.wire_len(),
                Self::Opaque { body, .. } => body.len(),
            }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let ace_type = reader.u8()?;
        let flags = AceFlags::from_bits_retain(reader.u8()?);
        let fault = reader.fault(Fault::Value);
        let length = usize::from(reader.u16()?);
        let body = reader.bytes(length.checked_sub(ACE_HEADER_LEN).ok_or(fault)?)?;
        if let Some(kind) = AceKind::from_u8(ace_type) {
            let mut fields = Reader::new(body, "ACE");
            let mask = AccessMask::from_bits_retain(fields.u32()?);
            let sid = Sid::read(&mut fields)?;
            if fields.remaining() == 0 {
                return Ok(Self::Basic {
                    kind,
                    flags,
                    mask,
                    sid,
                });
            }
        }
        Ok(Self::Opaque {
            ace_type,
            flags,
            body: body.to_vec(),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        let length = u16::try_from(self.wire_len()).expect("an entry has at most 65,535 bytes");
        let (ace_type, flags) = match self {
            Self::Basic { kind, flags, .. } => (kind.to_u8(), flags),
            Self::Opaque { ace_type, flags, .. } => (*ace_type, flags),
        };
        writer.u8(ace_type);
        writer.u8(flags.bits());
        writer.u16(length);
        match self {
            Self::Basic { mask, sid, .. } => {
                writer.u32(mask.bits());
                sid.encode(writer);
            }
            Self::Opaque { body, .. } => writer.bytes(body),
        }
    }
}

/// An access control list. Order matters: the first entry that decides about a right wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// `AclRevision`: 2, or 4 with object entries.
    pub revision: u8,
    /// The entries.
    pub aces: Vec<Ace>,
}

impl Default for Acl {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Acl {
    /// The longest list, in bytes: `AclSize` has 16 bits.
    pub const WIRE_LEN_MAX: usize = u16::MAX as usize;

    /// A list of entries, of the revision that they need.
    pub fn new(aces: Vec<Ace>) -> Self {
        // [MS-DTYP] 2.4.5: object entries (types 5 to 8 and 11 to 16) need revision 4.
        let has_object = aces
            .iter()
            .any(|ace| matches!(ace, Ace::Opaque { ace_type: 5..=8 | 11..=16, .. }));
        Self {
            revision: if has_object { REVISION_DS } else { REVISION },
            aces,
        }
    }

    /// Bytes on the wire.
    pub fn wire_len(&self) -> usize {
        ACL_HEADER_LEN + self.aces.iter().map(Ace::wire_len).sum::<usize>()
    }

    /// Reads it at the reader's position. Bytes of the list after its last entry are ignored.
    ///
    /// # Errors
    /// The bytes are not `AceCount` entries inside `AclSize` bytes.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let signature = reader.fault(Fault::Signature);
        let start = reader.position();
        let revision = reader.u8()?;
        if !matches!(revision, REVISION..=REVISION_DS) {
            return Err(signature);
        }
        reader.skip(1)?;
        let bounds = reader.fault(Fault::Bounds);
        let end = start + usize::from(reader.u16()?);
        let list = reader.message().get(..end).ok_or(bounds)?;
        let count = reader.u16()?;
        reader.skip(2)?;
        let mut entries = Reader::at(list, reader.position(), "ACL");
        let mut aces = Vec::new();
        for _ in 0..count {
            aces.push(Ace::read(&mut entries)?);
        }
        reader.seek(end.max(reader.position()))?;
        Ok(Self { revision, aces })
    }

    /// Appends it.
    ///
    /// # Panics
    /// It is longer than [`Acl::WIRE_LEN_MAX`].
    pub fn encode(&self, writer: &mut Writer<'_>) {
        let length = u16::try_from(self.wire_len()).expect("a list has at most 65,535 bytes");
        writer.u8(self.revision);
        writer.u8(0);
        writer.u16(length);
        writer.u16(u16::try_from(self.aces.len()).expect("entries have at least 4 bytes"));
        writer.u16(0);
        for ace in &self.aces {
            ace.encode(writer);
        }
    }
}
