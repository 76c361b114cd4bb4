//! Symbolic links as reparse points ([MS-FSCC] 2.1.2.4, 2.3.29, 2.3.81).
//!
//! | on disk | on the wire |
//! |---|---|
//! | `../a/b` | `..\a\b`, relative |
//! | `/a/b` | `\a\b`, not relative: clients do not follow it, and neither does the server |

use ropeway_smb_wire::create::{AccessMask, CreateAction};
use ropeway_smb_wire::fsctl::reparse::{NfsSpecial, REPARSE_BUFFER_MAX, ReparseData, Symlink, SymlinkFlags};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::store::{NodeOpen, Removal};
use ropeway_vfs::{ErrorKind, Kind};

use super::stored;
use crate::files::links;
use crate::files::output_buffer;
use crate::files::query_file;
use crate::state::open::Open;

/// Longest target on Linux in bytes (PATH_MAX).
const TARGET_LEN_MAX: usize = 4096;

/// FSCTL_GET_REPARSE_POINT.
pub(super) fn get(open: &Open, output_max: usize) -> Result<Vec<u8>, NtStatus> {
    if stored(open.node.stat())?.kind != Kind::Symlink {
        return Err(NtStatus::NOT_A_REPARSE_POINT);
    }
    let target = stored(open.node.link_target())?;
    if target.len() > TARGET_LEN_MAX {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    let data = ReparseData::Symlink(symlink(&target));
    output_buffer::check_length(output_buffer::encoded(|w| data.encode(w)), output_max)
}

/// FSCTL_SET_REPARSE_POINT: replaces the empty file or folder with a link. The open keeps the old
/// node, which no longer has a name. So the open needs the right to delete it, unless it created
/// it. The caller ensures that no other open exists.
pub(super) fn set(open: &Open, input: &[u8]) -> Result<(), NtStatus> {
    let any = AccessMask::WRITE_DATA | AccessMask::WRITE_ATTRIBUTES;
    if !open.access.intersects(any) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // On other file systems the node stays and becomes a link, so they require no right to delete.
    let made = open.action == CreateAction::CREATED;
    if !made && !open.access.contains(AccessMask::DELETE) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if input.len() > usize::try_from(REPARSE_BUFFER_MAX).unwrap_or(usize::MAX) {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    let data = ReparseData::decode(input).map_err(|_| NtStatus::IO_REPARSE_DATA_INVALID)?;
    let target = target(&data)?;
    if open.stream.is_some() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let path = query_file::path(open);
    if path.is_root() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    links::check_new(&open.share, &path, &target)?;
    let stat = stored(open.node.stat())?;
    if stat.kind == Kind::File && stat.size > 0 {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    // Streams of the file would become unreachable.
    if stat.kind == Kind::File && !stored(open.node.streams())?.is_empty() {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    let store = &open.share.store;
    let what = match open.directory {
        // The store refuses a folder that is not empty: STATUS_DIRECTORY_NOT_EMPTY.
        true => Removal::Directory,
        false => Removal::EmptyFile,
    };
    match store.remove_node(open.named_node(), &path, what) {
        // A local program has just written to it.
        Err(error) if error.kind == ErrorKind::NotEmpty && !open.directory => {
            return Err(NtStatus::IO_REPARSE_DATA_INVALID);
        }
        outcome => stored(outcome)?,
    }
    stored(store.symlink(&path, &target))?;
    let itself = NodeOpen {
        link_itself: true,
        ..NodeOpen::default()
    };
    if let Ok(link) = store.open(&path, &itself) {
        // The node was not a link before, so the cell is empty.
        _ = open.state.replaced.set(link.stat.id);
    }
    Ok(())
}

/// Converts a target on disk to the wire format.
pub(crate) fn symlink(target: &[u8]) -> Symlink {
    let mut units = Vec::with_capacity(target.len());
    for (at, part) in target.split(|byte| *byte == b'/').enumerate() {
        if at > 0 {
            units.push(u16::from(b'\\'));
        }
        output_buffer::append(&mut units, &names::to_wire(part, NameMapping::Sfm));
    }
    let name = Text::from_units(units);
    Symlink {
        print_name: name.clone(),
        substitute_name: name,
        flags: match target.first() {
            Some(b'/') => SymlinkFlags::default(),
            _ => SymlinkFlags::RELATIVE,
        },
    }
}

/// Converts a target on the wire to the format on disk.
fn target(data: &ReparseData<'_>) -> Result<Vec<u8>, NtStatus> {
    let target = match data {
        ReparseData::Symlink(link) => from_wire(&link.substitute_name)?,
        ReparseData::Nfs(NfsSpecial::Symlink(text)) => from_wire(text)?,
        ReparseData::LxSymlink(bytes) => bytes.to_vec(),
        _ => return Err(NtStatus::IO_REPARSE_TAG_NOT_HANDLED),
    };
    if target.is_empty() || target.len() >= TARGET_LEN_MAX || target.contains(&0) {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    Ok(target)
}

/// Converts names between backslashes, or slashes from Unix clients. Windows device paths are
/// invalid here.
fn from_wire(name: &Text) -> Result<Vec<u8>, NtStatus> {
    let device: Vec<u16> = r"\??\".encode_utf16().collect();
    if name.units().starts_with(&device) {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    let mut bytes = Vec::with_capacity(name.units().len());
    let separators = [u16::from(b'\\'), u16::from(b'/')];
    for (at, part) in name.units().split(|unit| separators.contains(unit)).enumerate() {
        if at > 0 {
            bytes.push(b'/');
        }
        let part = names::from_wire(&Text::from_units(part.to_vec()), NameMapping::Sfm);
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_go_there_and_back() {
        for path in ["a", "../a/b", "/etc/passwd", "a b/c:d", "x/./y"] {
            let link = symlink(path.as_bytes());
            assert_eq!(target(&ReparseData::Symlink(link)), Ok(path.as_bytes().to_vec()));
        }
        assert_eq!(symlink(b"../a").substitute_name, r"..\a".into());
        assert_eq!(symlink(b"../a").flags, SymlinkFlags::RELATIVE);
        assert_eq!(symlink(b"/a").flags, SymlinkFlags::default());
    }

    #[test]
    fn invalid_targets_are_refused() {
        let link = |name: &str| {
            target(&ReparseData::Symlink(Symlink {
                substitute_name: name.into(),
                ..Symlink::default()
            }))
        };
        assert_eq!(link(r"\??\C:\x"), Err(NtStatus::IO_REPARSE_DATA_INVALID));
        assert_eq!(link(""), Err(NtStatus::IO_REPARSE_DATA_INVALID));
        assert_eq!(link("a\0b"), Err(NtStatus::IO_REPARSE_DATA_INVALID));
        assert_eq!(link(&"x".repeat(5000)), Err(NtStatus::IO_REPARSE_DATA_INVALID));
        assert_eq!(
            target(&ReparseData::Nfs(NfsSpecial::Fifo)),
            Err(NtStatus::IO_REPARSE_TAG_NOT_HANDLED)
        );
    }
}
