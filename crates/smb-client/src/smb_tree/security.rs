//! Security descriptors as text ([MS-DTYP] 2.5.1): owner, group and DACL, in the extended attribute
//! [`SDDL_XATTR`](ropeway_vfs::SDDL_XATTR).
//!
//! The SACL takes a privilege (SeSecurityPrivilege) that copies do not have: it is neither read nor set. What the text has
//! no words for (conditional and object entries) is told as `0x` and the descriptor's bytes, so that nothing is lost
//! between shares.

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::query_info::SecurityInformation;
use ropeway_smb_wire::security::{ControlFlags, SecurityDescriptor};
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::{Loss, Op, RelPath, Result};

use super::Inner;
use super::compound::{self, Compound};
use crate::{Error as ClientError, OpenFile};

/// Owner, group and DACL: what a user may read of his own files.
pub(super) const PARTS: SecurityInformation = SecurityInformation::OWNER
    .union(SecurityInformation::GROUP)
    .union(SecurityInformation::DACL);
/// Room for a descriptor: an ACL has at most 65,535 bytes ([MS-DTYP] 2.4.5), those of files some hundred.
pub(super) const DESCRIPTOR_MAX: u32 = 64 << 10;

/// A descriptor's text.
pub(super) fn to_text(bytes: &[u8]) -> crate::Result<String> {
    let descriptor = SecurityDescriptor::decode(bytes)?;
    Ok(descriptor.to_sddl().unwrap_or_else(|_| {
        let descriptor = SecurityDescriptor {
            sacl: None,
            control: descriptor.control.difference(ControlFlags::SACL_PRESENT),
            ..descriptor
        };
        let hex = descriptor
            .to_bytes()
            .into_iter()
            .map(|byte| format!("{byte:02x}"));
        format!("0x{}", hex.collect::<String>())
    }))
}

/// The descriptor of a text.
pub(super) fn from_text(text: &[u8]) -> Option<SecurityDescriptor> {
    // Values that other programs set may end with a 0, as strings of C do.
    let text = std::str::from_utf8(text.strip_suffix(&[0]).unwrap_or(text))
        .ok()?
        .trim();
    let Some(hex) = text.strip_prefix("0x") else {
        return SecurityDescriptor::from_sddl(text).ok();
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok())
        .collect();
    SecurityDescriptor::decode(&bytes?).ok()
}

/// What is set of a descriptor, and its bytes.
fn to_set(mut descriptor: SecurityDescriptor) -> (SecurityInformation, Vec<u8>) {
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
        // Asked for, or the server forgets that it holds what was inherited ([MS-DTYP] 2.4.6, `DR`).
        descriptor.control |= ControlFlags::DACL_AUTO_INHERIT_REQ;
    }
    descriptor.control = descriptor.control.difference(ControlFlags::SACL_PRESENT);
    descriptor.sacl = None;
    (parts, descriptor.to_bytes())
}

/// What of `wanted` is not in `found`.
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
    /// Gives a node a security descriptor, and looks whether it has it: servers make of a descriptor what their file
    /// system can hold, and do not say so. What is not there, or not allowed, is a loss. Owner and group take a privilege
    /// if they are others: then the DACL alone is set.
    pub(super) async fn set_sddl(&self, path: &RelPath, sddl: &[u8], losses: &mut Vec<Loss>) -> Result<()> {
        let text = self.base.text(Op::Xattr, path)?;
        let Some(wanted) = from_text(sddl) else {
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
            Err(error) => return self.refined(Op::Xattr, path, Err(error)).await,
        }
        Ok(())
    }

    /// Sets parts of a descriptor; what the node has then.
    async fn set_descriptor(
        &self,
        text: &Text,
        access: AccessMask,
        parts: SecurityInformation,
        bytes: Vec<u8>,
    ) -> crate::Result<SecurityDescriptor> {
        let open = OpenFile::metadata(access);
        let reply = Compound::open("set the security descriptor", text, &open)
            .set_security(parts, bytes)
            .query_security(PARTS, DESCRIPTOR_MAX)
            .run(&self.share)
            .await?;
        Ok(SecurityDescriptor::decode(compound::output(&reply)?)?)
    }
}

/// Whether a refusal says nothing about descriptors.
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
    fn texts_come_back() {
        let descriptor = SecurityDescriptor::from_sddl(SDDL).unwrap();
        assert_eq!(to_text(&descriptor.to_bytes()).unwrap(), SDDL);
        assert_eq!(from_text(SDDL.as_bytes()).as_ref(), Some(&descriptor));
        assert_eq!(from_text(format!("{SDDL}\0").as_bytes()), Some(descriptor));
        for bad in ["", "0x", "0x0", "0xzz", "0x010004", "D:(", "O:BA\u{e4}"] {
            let found = from_text(bad.as_bytes());
            assert!(
                found.is_none_or(|found| found == from_text(b"").unwrap()),
                "{bad}"
            );
        }
    }

    #[test]
    fn entries_without_words_keep_their_bytes() {
        use ropeway_smb_wire::security::{Ace, AceFlags, Acl};
        let mut descriptor = SecurityDescriptor::from_sddl(SDDL).unwrap();
        descriptor.dacl = Some(Acl::new(vec![Ace::Opaque {
            ace_type: 9,
            flags: AceFlags::default(),
            body: vec![1, 2, 3, 4],
        }]));
        let text = to_text(&descriptor.to_bytes()).unwrap();
        assert!(text.starts_with("0x"), "{text}");
        let back = from_text(text.as_bytes()).unwrap();
        assert_eq!(missing(&descriptor, &back), []);
        assert_eq!(to_text(&back.to_bytes()).unwrap(), text);
    }

    #[test]
    fn what_is_missing_is_named() {
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
            "nobody may, or everybody"
        );
        assert_eq!(missing(&of("O:BA"), &of("O:BAG:SYD:")), []);
    }
}
