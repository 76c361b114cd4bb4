//! Converts reparse points to symbolic links and special nodes ([MS-FSCC] 2.1.2).

use ropeway_smb_wire::fsctl::reparse::{NfsSpecial, REPARSE_BUFFER_MAX, ReparseData, Symlink, SymlinkFlags};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::{Text, Writer};
use ropeway_vfs::Kind;

/// The kind of a reparse point, and the text if it is a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Special {
    /// The kind.
    pub kind: Kind,
    /// The text of a link.
    pub text: Option<Vec<u8>>,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
}

impl Special {
    fn link(text: Vec<u8>) -> Self {
        Self {
            kind: Kind::Symlink,
            text: Some(text),
            device: None,
        }
    }

    fn node(kind: Kind, device: Option<(u32, u32)>) -> Self {
        Self {
            kind,
            text: None,
            device,
        }
    }

    /// Converts reparse data; `None` if the server shows the content (deduplicated, in a cloud, …).
    pub fn of(data: &ReparseData<'_>) -> Option<Self> {
        Some(match data {
            ReparseData::Symlink(link) => Self::link(link_text(link)),
            ReparseData::MountPoint(mount) => {
                Self::link(slashes(visible(&mount.print_name, &mount.substitute_name)))
            }
            ReparseData::LxSymlink(text) => Self::link(text.to_vec()),
            ReparseData::Nfs(NfsSpecial::Symlink(text)) => {
                Self::link(names::from_wire(text, NameMapping::None))
            }
            ReparseData::Nfs(NfsSpecial::CharacterDevice { major, minor }) => {
                Self::node(Kind::CharDevice, Some((*major, *minor)))
            }
            ReparseData::Nfs(NfsSpecial::BlockDevice { major, minor }) => {
                Self::node(Kind::BlockDevice, Some((*major, *minor)))
            }
            ReparseData::Nfs(NfsSpecial::Fifo) => Self::node(Kind::Fifo, None),
            ReparseData::Nfs(NfsSpecial::Socket) => Self::node(Kind::Socket, None),
            ReparseData::Other { tag, .. } => Self::node(super::map::kind_of_tag(*tag)?, None),
        })
    }
}

/// Returns the text of a link with slashes: that of the substitute name if it is relative, that of
/// the print name (`C:/folder`) if it is absolute.
fn link_text(link: &Symlink) -> Vec<u8> {
    if link.flags.contains(SymlinkFlags::RELATIVE) {
        return slashes(&link.substitute_name);
    }
    slashes(visible(&link.print_name, &link.substitute_name))
}

fn visible<'a>(print: &'a Text, substitute: &'a Text) -> &'a Text {
    if print.is_empty() { substitute } else { print }
}

fn slashes(text: &Text) -> Vec<u8> {
    swap(&names::from_wire(text, NameMapping::None), b'\\', b'/')
}

fn swap(text: &[u8], from: u8, to: u8) -> Vec<u8> {
    let swapped = text.iter().map(|byte| if *byte == from { to } else { *byte });
    swapped.collect()
}

/// Returns the reparse data of a link with this text; `None` if it is too long. A text that starts
/// with a slash leads to a path on the server; it becomes an absolute Windows path without a drive.
pub(crate) fn link_data(text: &[u8]) -> Option<Vec<u8>> {
    let name = names::to_wire(&swap(text, b'/', b'\\'), NameMapping::None);
    // Two names, their four numbers and the flags (12 bytes) behind a header of 8 ([MS-FSCC]
    // 2.1.2.4).
    if 2 * name.wire_len() + 20 > REPARSE_BUFFER_MAX as usize {
        return None;
    }
    let relative = text.first() != Some(&b'/');
    let link = Symlink {
        substitute_name: name.clone(),
        print_name: name,
        flags: match relative {
            true => SymlinkFlags::RELATIVE,
            false => SymlinkFlags::default(),
        },
    };
    let mut data = Vec::new();
    ReparseData::Symlink(link).encode(&mut Writer::new(&mut data));
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_texts_survive_a_round_trip() {
        for text in ["file", "../other/ä b", "dir/sub/", "/absolute/path", "."] {
            let data = link_data(text.as_bytes()).unwrap();
            let special = Special::of(&ReparseData::decode(&data).unwrap()).unwrap();
            assert_eq!(special.kind, Kind::Symlink);
            assert_eq!(special.text.as_deref(), Some(text.as_bytes()));
        }
    }

    /// The text may come from another server's reparse data, which hold up to 64 KiB of one name.
    #[test]
    fn a_link_text_that_is_too_long_is_refused_without_a_panic() {
        let longest = (REPARSE_BUFFER_MAX as usize - 20) / 4;
        assert_eq!(link_data(&vec![b'a'; longest]).unwrap().len(), 4 * longest + 20);
        assert_eq!(link_data(&vec![b'a'; longest + 1]), None);
        assert_eq!(link_data(&vec![b'a'; 100_000]), None);
    }

    #[test]
    fn windows_links_show_their_print_name() {
        let absolute = Symlink {
            substitute_name: Text::from("\\??\\C:\\folder"),
            print_name: Text::from("C:\\folder"),
            flags: SymlinkFlags::default(),
        };
        let special = Special::of(&ReparseData::Symlink(absolute)).unwrap();
        assert_eq!(special.text.as_deref(), Some(&b"C:/folder"[..]));
        assert_eq!(
            Special::of(&ReparseData::Nfs(NfsSpecial::Fifo)).unwrap().kind,
            Kind::Fifo
        );
    }
}
