//! Converts EAs of SMB ([MS-FSCC] 2.4.16) to extended attributes of a tree, and back. Pure.
//!
//! The EA `NAME` is `user.NAME` in the tree, as in Samba. Names are ASCII and case-insensitive
//! (Windows converts them to upper case). A value has 1 to 65,535 bytes: an empty one deletes the
//! EA. What does not fit is a [`Loss`].
//!
//! Samba shows all attributes of the name space `user` except its own. Of the EAs that a server
//! lists, this module leaves out names with another meaning in a tree (streams, the security
//! descriptor).

use std::collections::BTreeSet;

use ropeway_smb_wire::info::{FileFullEaInformation, FullEa};
use ropeway_vfs::{Loss, SDDL_XATTR, STREAM_XATTR_PREFIX, Xattr};

/// The only name space of SMB.
const SPACE: &[u8] = b"user.";
/// Maximum length of a name: `EaNameLength` is at most 254 ([MS-FSCC] 2.4.16).
const NAME_MAX: usize = 254;
/// Characters that a name may not hold, besides control characters ([MS-FSCC] 2.4.16, footnote;
/// [MS-FSA] 2.1.5.15.4).
const FORBIDDEN: &[u8] = br#"\/:*?"<>|,+=[];"#;
/// Names that Samba uses itself in the same name space, and refuses (as it does streams).
const SAMBA_RESERVED: [&[u8]; 2] = [b"DOSATTRIB", b"SAMBA_PAI"];

/// Returns the name on the share; `None` if there is none.
fn to_share(xattr: &[u8]) -> Option<&[u8]> {
    let name = xattr.strip_prefix(SPACE)?;
    let is_fit = |byte: &u8| matches!(byte, b' '..=b'~') && !FORBIDDEN.contains(byte);
    let fits = (1..=NAME_MAX).contains(&name.len()) && name.iter().all(is_fit);
    let taken = SAMBA_RESERVED
        .iter()
        .any(|taken| name.eq_ignore_ascii_case(taken))
        || is_other(name);
    (fits && !taken).then_some(name)
}

/// Returns whether a name on the share would mean a stream or the security descriptor in the tree.
fn is_other(name: &[u8]) -> bool {
    let starts = |known: &[u8]| {
        let known = &known[SPACE.len()..];
        name.len() >= known.len() && name[..known.len()].eq_ignore_ascii_case(known)
    };
    starts(STREAM_XATTR_PREFIX) || (starts(SDDL_XATTR) && name.len() + SPACE.len() == SDDL_XATTR.len())
}

/// Returns whether a share can store an extended attribute.
pub(crate) fn fits(xattr: &Xattr) -> bool {
    !xattr.value.is_empty() && u16::try_from(xattr.value.len()).is_ok() && to_share(&xattr.name).is_some()
}

/// Converts the EAs of a share. Leaves out names that no tree can have.
pub(crate) fn from_share(list: FileFullEaInformation) -> impl Iterator<Item = Xattr> {
    let shown = |ea: &FullEa| !ea.name.is_empty() && !is_other(&ea.name) && !ea.value.is_empty();
    list.attributes.into_iter().filter(shown).map(|ea| Xattr {
        name: [SPACE, &ea.name].concat(),
        value: ea.value,
    })
}

/// Returns the change that turns the EAs in `there` into those in `wanted`: sets the wanted ones
/// and deletes the others. Adds what does not fit to the losses.
pub(crate) fn change(wanted: &[&Xattr], there: &[Vec<u8>], losses: &mut Vec<Loss>) -> Vec<FullEa> {
    let mut seen = BTreeSet::new();
    let mut change = Vec::new();
    for xattr in wanted {
        let name = to_share(&xattr.name).filter(|_| fits(xattr));
        match name.filter(|name| seen.insert(name.to_ascii_uppercase())) {
            Some(name) => change.push(ea(name, &xattr.value)),
            None => losses.push(Loss::of_xattr(&xattr.name)),
        }
    }
    let gone = there.iter().filter_map(|name| name.strip_prefix(SPACE));
    change.extend(
        gone.filter(|name| !seen.contains(&name.to_ascii_uppercase()))
            .map(|name| ea(name, b"")),
    );
    change
}

/// Copied: attributes are small, and a request may be sent again.
fn ea(name: &[u8], value: &[u8]) -> FullEa {
    FullEa {
        need_ea: false,
        name: name.to_vec(),
        value: value.to_vec(),
    }
}

/// Splits a change into lists of at most `bytes_max` on the wire. A longer single attribute gets a
/// list of its own. [MS-FSCC] 2.4.16: 8 bytes, the name and a 0, the value, aligned to 4.
pub(crate) fn portions(change: Vec<FullEa>, bytes_max: usize) -> Vec<FileFullEaInformation> {
    let mut portions: Vec<FileFullEaInformation> = Vec::new();
    let mut room = 0;
    for ea in change {
        let length = (8 + ea.name.len() + 1 + ea.value.len()).next_multiple_of(4);
        match portions.last_mut() {
            Some(last) if length <= room => last.attributes.push(ea),
            _ => {
                room = bytes_max.max(length);
                portions.push(FileFullEaInformation { attributes: vec![ea] });
            }
        }
        room -= length;
    }
    portions
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropeway_smb_wire::info::Information as _;

    fn xattr(name: &str, value: &[u8]) -> Xattr {
        Xattr {
            name: name.as_bytes().to_vec(),
            value: value.to_vec(),
        }
    }

    fn plan(wanted: &[Xattr], there: &[&str]) -> (Vec<(String, usize)>, Vec<Loss>) {
        let there: Vec<Vec<u8>> = there.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut losses = Vec::new();
        let change = change(&wanted.iter().collect::<Vec<_>>(), &there, &mut losses);
        let shown = change
            .into_iter()
            .map(|ea| (String::from_utf8(ea.name).unwrap(), ea.value.len()));
        (shown.collect(), losses)
    }

    #[test]
    fn unwanted_attributes_are_deleted_regardless_of_case() {
        let (change, losses) = plan(&[xattr("user.a", b"1")], &["user.A", "user.old"]);
        assert_eq!(change, [("a".to_owned(), 1), ("old".to_owned(), 0)]);
        assert_eq!(losses, []);
    }

    #[test]
    fn attributes_that_do_not_fit_are_reported_as_losses() {
        let long = format!("user.{}", "n".repeat(255));
        for (lost, loss) in [
            (xattr("user.empty", b""), Loss::Xattr),
            (xattr("user.large", &[1; 65_536]), Loss::Xattr),
            (xattr("user.ä", b"x"), Loss::Xattr),
            (xattr("user.a*", b"x"), Loss::Xattr),
            (xattr(&long, b"x"), Loss::Xattr),
            (xattr("trusted.x", b"x"), Loss::Xattr),
            (xattr("user.dosattrib", b"x"), Loss::Xattr),
            (xattr("user.DOSATTRIB", b"x"), Loss::DosAttributes),
            (xattr("system.posix_acl_access", b"x"), Loss::Acl),
            (xattr("user.ropeway.sddl", b"D:"), Loss::Acl),
            (xattr("user.DosStream.a:$DATA", b"x"), Loss::Stream),
        ] {
            let name = String::from_utf8_lossy(&lost.name).into_owned();
            assert_eq!(plan(&[lost], &[]), (vec![], vec![loss]), "{name}");
        }
        let twins = [xattr("user.A", b"1"), xattr("user.a", b"2")];
        let kept = vec![("A".to_owned(), 1)];
        assert_eq!(
            plan(&twins, &[]),
            (kept, vec![Loss::Xattr]),
            "the names are equal on the share"
        );
    }

    #[test]
    fn a_server_cannot_pass_off_eas_as_streams_or_descriptors() {
        let names = [
            "comment",
            "ROPEWAY.SDDL",
            "dosstream.x:$DATA",
            "ropeway.sddl2",
            "",
        ];
        let attributes = names.iter().map(|name| ea(name.as_bytes(), b"v")).collect();
        let shown: Vec<_> = from_share(FileFullEaInformation { attributes })
            .map(|xattr| String::from_utf8(xattr.name).unwrap())
            .collect();
        assert_eq!(shown, ["user.comment", "user.ropeway.sddl2"]);
    }

    proptest! {
        #[test]
        fn portions_lose_nothing_and_fit(sizes in prop::collection::vec(1_usize..3000, 0..40)) {
            let all: Vec<_> = sizes.iter().enumerate()
                .map(|(at, size)| ea(format!("n{at}").as_bytes(), &vec![7; *size])).collect();
            let portions = portions(all.clone(), 2000);
            for portion in &portions {
                prop_assert!(portion.to_bytes().len() <= 2000 || portion.attributes.len() == 1);
            }
            let joined: Vec<_> = portions.into_iter().flat_map(|portion| portion.attributes).collect();
            prop_assert_eq!(joined, all);
        }
    }
}
