//! Security descriptors as text ([MS-DTYP] 2.5.1): owner, group and DACL, in the extended attribute
//! [`SDDL_XATTR`](ropeway_vfs::SDDL_XATTR).
//!
//! Reading or setting the SACL needs a privilege (SeSecurityPrivilege) that copies do not have, so
//! it is left out. If SDDL cannot express a descriptor (conditional and object entries), the text
//! is `0x` and the descriptor's bytes, so that nothing is lost between shares.

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::query_info::SecurityInformation;
use ropeway_smb_wire::security::{ControlFlags, SecurityDescriptor};
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::{Loss, Op, RelPath, Result};

use super::compound::{self, Compound};
use super::inner::Inner;
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::open::OpenFile;

/// Owner, group and DACL: the parts that the owner of a file may read.
pub(crate) const PARTS: SecurityInformation = SecurityInformation::OWNER
    .union(SecurityInformation::GROUP)
    .union(SecurityInformation::DACL);
/// The parts that only a privilege or the owner may set.
pub(crate) const OWNERS: SecurityInformation = SecurityInformation::OWNER.union(SecurityInformation::GROUP);
/// Maximum bytes of a descriptor: an ACL has at most 65,535 bytes ([MS-DTYP] 2.4.5), and that of a
/// file some hundred.
pub(crate) const DESCRIPTOR_MAX: u32 = 64 << 10;

/// Returns the text of a descriptor.
pub(crate) fn to_text(bytes: &[u8]) -> ClientResult<String> {
    Ok(SecurityDescriptor::decode(bytes)?.to_text())
}

/// Returns the parts of a descriptor to set, and its bytes.
pub(crate) fn to_set(mut descriptor: SecurityDescriptor) -> (SecurityInformation, Vec<u8>) {
    let mut parts = SecurityInformation::default();
    if descriptor.owner.is_some() {
        parts |= SecurityInformation::OWNER;
    }
    if descriptor.group.is_some() {
        parts |= SecurityInformation::GROUP;
    }
    let control = descriptor.full_control();
    if control.contains(ControlFlags::DACL_PRESENT) {
        parts |= SecurityInformation::DACL;
    }
    if control.contains(ControlFlags::DACL_AUTO_INHERITED) {
        // Without this request the server drops the flag that the DACL holds inherited entries
        // ([MS-DTYP] 2.4.6, `DR`).
        descriptor.control |= ControlFlags::DACL_AUTO_INHERIT_REQ;
    }
    descriptor.control = descriptor.control.difference(ControlFlags::SACL_PRESENT);
    descriptor.sacl = None;
    (parts, descriptor.to_bytes())
}

/// Returns the losses: the parts of `wanted` that `found` lacks.
fn missing(wanted: &SecurityDescriptor, found: &SecurityDescriptor) -> Vec<Loss> {
    let mut losses = Vec::new();
    let other = |wanted: &Option<_>, found: &Option<_>| wanted.is_some() && wanted != found;
    if other(&wanted.owner, &found.owner) || other(&wanted.group, &found.group) {
        losses.push(Loss::Owner);
    }
    let list = |of: &SecurityDescriptor| {
        let control = of.full_control();
        let present = control.contains(ControlFlags::DACL_PRESENT);
        let protected = control.contains(ControlFlags::DACL_PROTECTED);
        let aces = of.dacl.as_ref().map(|dacl| dacl.aces.clone());
        (present, present && protected, aces)
    };
    if list(wanted).0 && list(wanted) != list(found) {
        losses.push(Loss::Acl);
    }
    losses
}

fn is_not_allowed(error: &ClientError) -> bool {
    matches!(
        error.status(),
        Some(
            NtStatus::ACCESS_DENIED
                | NtStatus::INVALID_OWNER
                | NtStatus::INVALID_PRIMARY_GROUP
                | NtStatus::PRIVILEGE_NOT_HELD
                | NtStatus::INVALID_SID
                | NtStatus::NONE_MAPPED
        )
    )
}

impl Inner {
    /// Sets a node's security descriptor and reads it back: servers reduce a descriptor to what
    /// their file system can hold, without reporting it. What is missing or not allowed counts as a
    /// loss. Setting another owner or group needs a privilege; if that fails, only the DACL is set.
    pub(crate) async fn set_sddl(&self, path: &RelPath, sddl: &[u8], losses: &mut Vec<Loss>) -> Result<()> {
        let text = self.base.text(Op::Xattr, path)?;
        let Some(wanted) = SecurityDescriptor::from_text(sddl) else {
            losses.push(Loss::Acl);
            return Ok(());
        };
        let (parts, bytes) = to_set(wanted.clone());
        let all = AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER | AccessMask::READ_CONTROL;
        let mut set = self.set_descriptor(&text, all, parts, bytes.clone()).await;
        if set.as_ref().is_err_and(is_not_allowed) && parts.contains(SecurityInformation::DACL) {
            let own = AccessMask::WRITE_DAC | AccessMask::READ_CONTROL;
            set = self
                .set_descriptor(&text, own, SecurityInformation::DACL, bytes)
                .await;
        }
        match set {
            Ok(found) => losses.extend(missing(&wanted, &found)),
            Err(ClientError::PeerRefused { status, .. }) if !is_transient(status) => {
                losses.push(Loss::Acl);
            }
            Err(error) => return self.map_error(Op::Xattr, path, Err(error)).await,
        }
        Ok(())
    }

    /// Sets parts of a descriptor, and returns the node's resulting descriptor.
    pub(crate) async fn set_descriptor(
        &self,
        text: &Text,
        access: AccessMask,
        parts: SecurityInformation,
        bytes: Vec<u8>,
    ) -> ClientResult<SecurityDescriptor> {
        let open = OpenFile::metadata(access);
        let reply = Compound::open("set the security descriptor", text, &open)
            .set_security(parts, bytes)
            .query_security(PARTS, DESCRIPTOR_MAX)
            .run(&self.share)
            .await?;
        Ok(SecurityDescriptor::decode(compound::output(&reply)?)?)
    }
}

/// Returns whether a refusal has nothing to do with descriptors.
fn is_transient(status: NtStatus) -> bool {
    matches!(
        status,
        NtStatus::OBJECT_NAME_NOT_FOUND
            | NtStatus::OBJECT_PATH_NOT_FOUND
            | NtStatus::SHARING_VIOLATION
            | NtStatus::DELETE_PENDING
            | NtStatus::DISK_FULL
            | NtStatus::MEDIA_WRITE_PROTECTED
            | NtStatus::INSUFFICIENT_RESOURCES
            | NtStatus::INSUFF_SERVER_RESOURCES
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDDL: &str = "O:BAG:SYD:PAI(A;OICI;FA;;;SY)(D;;FW;;;BU)";

    #[test]
    fn texts_survive_a_round_trip() {
        let descriptor = SecurityDescriptor::from_sddl(SDDL).unwrap();
        assert_eq!(to_text(&descriptor.to_bytes()).unwrap(), SDDL);
        assert_eq!(
            SecurityDescriptor::from_text(SDDL.as_bytes()).as_ref(),
            Some(&descriptor)
        );
        assert_eq!(
            SecurityDescriptor::from_text(format!("{SDDL}\0").as_bytes()),
            Some(descriptor)
        );
        for bad in ["", "0x", "0x0", "0xzz", "0x010004", "D:(", "O:BA\u{e4}"] {
            let found = SecurityDescriptor::from_text(bad.as_bytes());
            assert!(
                found.is_none_or(|found| found == SecurityDescriptor::from_text(b"").unwrap()),
                "{bad}"
            );
        }
    }

    #[test]
    fn entries_without_a_text_form_keep_their_bytes() {
        use ropeway_smb_wire::security::{Ace, AceFlags, Acl};
        let mut descriptor = SecurityDescriptor::from_sddl(SDDL).unwrap();
        descriptor.dacl = Some(Acl::new(vec![Ace::Opaque {
            ace_type: 9,
            flags: AceFlags::default(),
            body: vec![1, 2, 3, 4],
        }]));
        let text = to_text(&descriptor.to_bytes()).unwrap();
        assert!(text.starts_with("0x"), "{text}");
        let back = SecurityDescriptor::from_text(text.as_bytes()).unwrap();
        assert_eq!(missing(&descriptor, &back), []);
        assert_eq!(to_text(&back.to_bytes()).unwrap(), text);
    }

    #[test]
    fn missing_parts_are_reported() {
        let of = |sddl| SecurityDescriptor::from_sddl(sddl).unwrap();
        let wanted = of(SDDL);
        assert_eq!(
            missing(&wanted, &of("O:BAG:SYD:P(A;OICI;FA;;;SY)(D;;FW;;;BU)")),
            []
        );
        assert_eq!(
            missing(&wanted, &of("O:SYG:SYD:P(A;OICI;FA;;;SY)(D;;FW;;;BU)")),
            [Loss::Owner]
        );
        assert_eq!(
            missing(&wanted, &of("O:BAG:SYD:(A;OICI;FA;;;SY)(D;;FW;;;BU)")),
            [Loss::Acl]
        );
        assert_eq!(missing(&wanted, &of("O:BAG:SYD:P(A;OICI;FA;;;SY)")), [Loss::Acl]);
        assert_eq!(
            missing(&of("D:"), &of("O:BAG:SY")),
            [Loss::Acl],
            "an empty DACL denies all, a missing one allows all"
        );
        assert_eq!(missing(&of("O:BA"), &of("O:BAG:SYD:")), []);
    }
}
