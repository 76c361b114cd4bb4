//! SECURITY_DESCRIPTOR in its self-relative form ([MS-DTYP] 2.4.6).
//!
//! ```text
//! Revision 1 | Sbz1 | Control u16 | OffsetOwner | OffsetGroup | OffsetSacl | OffsetDacl | SIDs and lists, anywhere
//! ```

use super::{Acl, Sid};
use crate::{Fault, Reader, Result, Writer};
use bitflags::bitflags;

/// Bytes of the fixed part.
const HEADER_LEN: usize = 20;

bitflags! {
    /// `Control` of a security descriptor ([MS-DTYP] 2.4.6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ControlFlags: u16 {
        /// The owner was not chosen by anyone.
        const OWNER_DEFAULTED = 0x0001;
        /// The group was not chosen by anyone.
        const GROUP_DEFAULTED = 0x0002;
        /// There is a DACL.
        const DACL_PRESENT = 0x0004;
        /// The DACL was not chosen by anyone.
        const DACL_DEFAULTED = 0x0008;
        /// There is a SACL.
        const SACL_PRESENT = 0x0010;
        /// The SACL was not chosen by anyone.
        const SACL_DEFAULTED = 0x0020;
        /// The DACL is trusted (`DT`).
        const DACL_TRUSTED = 0x0040;
        /// The server makes the DACL from a compound one (`SS`).
        const SERVER_SECURITY = 0x0080;
        /// To set: children are to inherit the DACL.
        const DACL_AUTO_INHERIT_REQ = 0x0100;
        /// To set: children are to inherit the SACL.
        const SACL_AUTO_INHERIT_REQ = 0x0200;
        /// The DACL holds what was inherited.
        const DACL_AUTO_INHERITED = 0x0400;
        /// The SACL holds what was inherited.
        const SACL_AUTO_INHERITED = 0x0800;
        /// The DACL does not inherit.
        const DACL_PROTECTED = 0x1000;
        /// The SACL does not inherit.
        const SACL_PROTECTED = 0x2000;
        /// `Sbz1` means something to a resource manager.
        const RM_CONTROL_VALID = 0x4000;
        /// Offsets, not pointers: always, on the wire.
        const SELF_RELATIVE = 0x8000;
        const _ = !0;
    }
}

/// A security descriptor.
///
/// A list can be in three states, all of which differ: absent (its `PRESENT` flag is not set), present without a list
/// (`None`, a NULL DACL: everything is allowed), and present with entries, perhaps none (nothing is allowed).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityDescriptor {
    /// `Control`; encoding adds `SELF_RELATIVE`, and `PRESENT` for a list that is there.
    pub control: ControlFlags,
    /// `Sbz1`, for resource managers.
    pub rm_control: u8,
    /// Owner.
    pub owner: Option<Sid>,
    /// Primary group; Windows keeps it and makes no use of it.
    pub group: Option<Sid>,
    /// What is audited (system list).
    pub sacl: Option<Acl>,
    /// Who may do what (discretionary list).
    pub dacl: Option<Acl>,
}

impl SecurityDescriptor {
    /// From the bytes of a whole descriptor.
    ///
    /// # Errors
    /// They are not a self-relative descriptor.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "SECURITY_DESCRIPTOR");
        let signature = reader.fault(Fault::Signature);
        if reader.u8()? != 1 {
            return Err(signature);
        }
        let rm_control = reader.u8()?;
        let control = ControlFlags::from_bits_retain(reader.u16()?);
        if !control.contains(ControlFlags::SELF_RELATIVE) {
            return Err(reader.fault(Fault::Value));
        }
        let [owner, group, sacl, dacl] = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let sid = |offset| part(bytes, offset, "SID", Sid::read);
        let acl = |offset, present| match control.contains(present) {
            true => part(bytes, offset, "ACL", Acl::read),
            false => Ok(None),
        };
        Ok(Self {
            control,
            rm_control,
            owner: sid(owner)?,
            group: sid(group)?,
            sacl: acl(sacl, ControlFlags::SACL_PRESENT)?,
            dacl: acl(dacl, ControlFlags::DACL_PRESENT)?,
        })
    }

    /// Appends it. Its offsets count from the writer's present position.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        let start = writer.position();
        writer.u8(1);
        writer.u8(self.rm_control);
        writer.u16(self.full_control().bits());
        writer.zeros(16);
        let begin = |writer: &mut Writer<'_>, field: usize| {
            let offset = u32::try_from(writer.position() - start).expect("descriptors are short");
            writer.patch_u32(start + field, offset);
        };
        if let Some(owner) = &self.owner {
            begin(writer, 4);
            owner.encode(writer);
        }
        if let Some(group) = &self.group {
            begin(writer, 8);
            group.encode(writer);
        }
        if let Some(sacl) = &self.sacl {
            begin(writer, 12);
            sacl.encode(writer);
        }
        if let Some(dacl) = &self.dacl {
            begin(writer, 16);
            dacl.encode(writer);
        }
    }

    /// As new bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut Writer::new(&mut out));
        out
    }

    /// `Control` as it goes to the wire.
    pub fn full_control(&self) -> ControlFlags {
        let mut control = self.control | ControlFlags::SELF_RELATIVE;
        if self.sacl.is_some() {
            control |= ControlFlags::SACL_PRESENT;
        }
        if self.dacl.is_some() {
            control |= ControlFlags::DACL_PRESENT;
        }
        control
    }
}

/// What stands at an offset; nothing, if that is 0.
fn part<'a, T>(
    bytes: &'a [u8],
    offset: u32,
    structure: &'static str,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T>,
) -> Result<Option<T>> {
    if offset == 0 {
        return Ok(None);
    }
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut reader = Reader::at(bytes, at, structure);
    if at < HEADER_LEN || at >= bytes.len() {
        return Err(reader.fault(Fault::Bounds));
    }
    read(&mut reader).map(Some)
}
