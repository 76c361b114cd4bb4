//! Security descriptors of new files ([MS-DTYP] 2.5.3.4).

use ropeway_smb_proto::server::rules::create::generic_to_specific;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::security::{Ace, AceFlags, Acl, ControlFlags, SecurityDescriptor, Sid};

use ropeway_vfs::Kind;
use ropeway_vfs::store::NodeStat;

use super::access::with_specific_rights;
use super::{LEN_MAX, dacl_control, mode, sacl_control};
use crate::sids::{group_sid, owner_sid, sid};
use crate::token::Token;

/// Decodes the descriptor of a CREATE ([MS-SMB2] 2.2.13.2.2).
///
/// # Errors
/// STATUS_INVALID_SECURITY_DESCR.
pub(crate) fn explicit(bytes: &[u8]) -> Result<SecurityDescriptor, NtStatus> {
    if bytes.len() > LEN_MAX {
        return Err(NtStatus::INVALID_SECURITY_DESCR);
    }
    SecurityDescriptor::decode(bytes).map_err(|_| NtStatus::INVALID_SECURITY_DESCR)
}

/// Returns the descriptor to store for a new node. `parent` is the folder's stored descriptor.
/// Returns `None` if neither the client nor the folder has one; then the mode decides.
pub(crate) fn for_new(
    parent: Option<&SecurityDescriptor>,
    explicit: Option<SecurityDescriptor>,
    token: &Token,
    directory: bool,
) -> Option<SecurityDescriptor> {
    if parent.is_none() && explicit.is_none() {
        return None;
    }
    let explicit = explicit.unwrap_or_default();
    let creator = Creator {
        owner: explicit.owner.clone().unwrap_or_else(|| token.user.clone()),
        group: explicit.group.clone().unwrap_or_else(|| token.group.clone()),
        directory,
    };
    let mut new = SecurityDescriptor {
        rm_control: explicit.rm_control,
        ..SecurityDescriptor::default()
    };
    if explicit.control.contains(ControlFlags::DACL_PRESENT) {
        new.control |= dacl_control(explicit.control);
        new.dacl = explicit.dacl.map(with_specific_rights);
    } else {
        let inherited = parent.and_then(|parent| {
            let auto = parent.control.contains(ControlFlags::DACL_AUTO_INHERITED);
            let list = creator.inherited(parent.dacl.as_ref()?, auto);
            (!list.aces.is_empty()).then_some((list, auto))
        });
        new.control |= ControlFlags::DACL_PRESENT;
        match inherited {
            Some((list, auto)) => {
                if auto {
                    new.control |= ControlFlags::DACL_AUTO_INHERITED;
                }
                new.dacl = Some(list);
            }
            None => new.dacl = Some(creator.default_list()),
        }
    }
    if explicit.control.contains(ControlFlags::SACL_PRESENT) {
        new.control |= sacl_control(explicit.control);
        new.sacl = explicit.sacl.map(with_specific_rights);
    } else if let Some(parent) = parent
        && let Some(sacl) = &parent.sacl
    {
        let auto = parent.control.contains(ControlFlags::SACL_AUTO_INHERITED);
        let list = creator.inherited(sacl, auto);
        if !list.aces.is_empty() {
            if auto {
                new.control |= ControlFlags::SACL_AUTO_INHERITED;
            }
            new.sacl = Some(list);
        }
    }
    new.owner = Some(creator.owner);
    new.group = Some(creator.group);
    Some(new)
}

/// Returns the descriptor that a node without one would have inherited from its folder; `None` if
/// the folder has no inheritable entries.
pub(super) fn as_if_inherited(parent: &SecurityDescriptor, stat: &NodeStat) -> Option<SecurityDescriptor> {
    let creator = Creator {
        owner: owner_sid(stat.owner.user),
        group: group_sid(stat.owner.group),
        directory: stat.kind == Kind::Directory,
    };
    let list = creator.inherited(parent.dacl.as_ref()?, true);
    (!list.aces.is_empty()).then(|| SecurityDescriptor {
        control: ControlFlags::DACL_PRESENT | ControlFlags::DACL_AUTO_INHERITED,
        dacl: Some(list),
        owner: Some(creator.owner),
        group: Some(creator.group),
        ..SecurityDescriptor::default()
    })
}

/// Owner, group and kind of a new node.
struct Creator {
    owner: Sid,
    group: Sid,
    directory: bool,
}

/// Flags that control inheritance.
const INHERITANCE: AceFlags = AceFlags::from_bits_retain(
    AceFlags::OBJECT_INHERIT.bits()
        | AceFlags::CONTAINER_INHERIT.bits()
        | AceFlags::NO_PROPAGATE_INHERIT.bits()
        | AceFlags::INHERIT_ONLY.bits(),
);

impl Creator {
    /// Returns the DACL that Windows gives to a file that inherits nothing: full access for the
    /// owner and SYSTEM.
    fn default_list(&self) -> Acl {
        let system = sid(5, &[18]);
        let entry = |sid| mode::allow(sid, AccessMask::FILE_ALL, AceFlags::default());
        Acl::new(vec![entry(self.owner.clone()), entry(system)])
    }

    /// Returns the entries that a new node inherits. `auto`: they are marked as inherited.
    fn inherited(&self, list: &Acl, auto: bool) -> Acl {
        let mut aces = Vec::new();
        for ace in &list.aces {
            self.inherit(ace, auto, &mut aces);
        }
        // Entries for CREATOR OWNER are split in two. Entries that exceed the maximum length are
        // dropped.
        let mut length = Acl::default().wire_len();
        aces.retain(|ace| {
            length += ace.wire_len();
            length <= Acl::WIRE_LEN_MAX
        });
        Acl::new(aces)
    }

    fn inherit(&self, ace: &Ace, auto: bool, aces: &mut Vec<Ace>) {
        let flags = match ace {
            Ace::Basic { flags, .. } | Ace::Opaque { flags, .. } => *flags,
        };
        let mark = match auto {
            true => AceFlags::INHERITED,
            false => AceFlags::default(),
        };
        let kept = flags.difference(INHERITANCE.union(AceFlags::INHERITED)) | mark;
        let propagates = !flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
        let passes_on = (flags & (AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT)) | kept;
        if !self.directory {
            if flags.contains(AceFlags::OBJECT_INHERIT) {
                aces.push(self.effective(ace, kept));
            }
        } else if flags.contains(AceFlags::CONTAINER_INHERIT) {
            let effective = self.effective(ace, kept);
            if !propagates {
                aces.push(effective);
            } else if effective == with_flags(ace, kept) {
                aces.push(with_flags(ace, passes_on));
            } else {
                // The effective entry and the inheritable one differ.
                aces.push(effective);
                aces.push(with_flags(ace, passes_on | AceFlags::INHERIT_ONLY));
            }
        } else if flags.contains(AceFlags::OBJECT_INHERIT) && propagates {
            aces.push(with_flags(ace, passes_on | AceFlags::INHERIT_ONLY));
        }
    }

    /// Returns the effective form of an entry: CREATOR OWNER and CREATOR GROUP become the node's
    /// owner and group, generic rights become specific ones.
    fn effective(&self, ace: &Ace, flags: AceFlags) -> Ace {
        match ace {
            Ace::Basic { kind, mask, sid, .. } => Ace::Basic {
                kind: *kind,
                flags,
                mask: generic_to_specific(*mask),
                sid: match (sid.authority(), sid.sub_authorities()) {
                    // [MS-DTYP] 2.4.2.4.
                    (3, [0]) => self.owner.clone(),
                    (3, [1]) => self.group.clone(),
                    _ => sid.clone(),
                },
            },
            Ace::Opaque { .. } => with_flags(ace, flags),
        }
    }
}

/// Returns the entry with other flags.
fn with_flags(ace: &Ace, new: AceFlags) -> Ace {
    let mut ace = ace.clone();
    match &mut ace {
        Ace::Basic { flags, .. } | Ace::Opaque { flags, .. } => *flags = new,
    }
    ace
}
