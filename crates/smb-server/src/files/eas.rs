//! Extended attributes ([MS-FSCC] 2.4.16): list, query by name, set.

use std::sync::atomic::Ordering;

use ropeway_smb_wire::info::{Entries, FileFullEaInformation, FullEa, Information};
use ropeway_smb_wire::query_info::QueryInfoFlags;
use ropeway_smb_wire::{DecodeError, NtStatus, Reader};
use ropeway_vfs::Xattr;
use ropeway_vfs::store::Node;

use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;
use crate::files::query_file::FileView;
use crate::files::status;
use crate::state::open::Open;

/// Length in bytes of an entry before its name, and of the NUL after the name.
const ENTRY_FIXED_LEN: usize = 9;
/// Longest name in bytes ([MS-FSCC] 2.4.16).
const NAME_LEN_MAX: usize = 254;
/// Characters that names must not contain, besides control characters ([MS-FSA] 2.1.5.15.5).
const NAME_FORBIDDEN: &[u8] = b"\"*+,/:;<=>?[\\]|";

/// Returns `EaSize`: the length of all attributes in the format of OS/2 (FEALIST), as in Windows; 0
/// if there are none.
pub(crate) fn size(node: &dyn Node) -> Result<u32, NtStatus> {
    let eas = list(node)?;
    if eas.is_empty() {
        return Ok(0);
    }
    let bytes: usize = eas.iter().map(|ea| 5 + ea.name.len() + ea.value.len()).sum();
    Ok(u32::try_from(bytes + 4).unwrap_or(u32::MAX))
}

/// Answers a query of `FileFullEaInformation`.
///
/// # Errors
/// STATUS_NO_EAS_ON_FILE, STATUS_NO_MORE_EAS, STATUS_NONEXISTENT_EA_ENTRY, STATUS_BUFFER_TOO_SMALL.
pub(crate) fn query(open: &Open, length_max: usize, view: &FileView<'_>) -> OutputResult {
    let all = list(&*open.node)?;
    if !view.input.is_empty() {
        let requested =
            requested(view.input, &all, length_max).map_err(|fault| output_buffer::malformed(&fault))?;
        return fill(requested, length_max, false).map(|(status, bytes, _)| (status, bytes));
    }
    if all.is_empty() {
        return Err(NtStatus::NO_EAS_ON_FILE);
    }
    let index = &open.state.ea_index;
    let start = if view.flags.contains(QueryInfoFlags::INDEX_SPECIFIED) {
        // The index starts at 1 ([MS-FSA] 2.1.5.12.12).
        let start = usize::try_from(view.index.saturating_sub(1)).unwrap_or(usize::MAX);
        if start >= all.len() {
            return Err(NtStatus::NONEXISTENT_EA_ENTRY);
        }
        start
    } else if view.flags.contains(QueryInfoFlags::RESTART_SCAN) {
        0
    } else {
        usize::try_from(index.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    };
    if start >= all.len() {
        return Err(NtStatus::NO_MORE_EAS);
    }
    let single = view.flags.contains(QueryInfoFlags::RETURN_SINGLE_ENTRY);
    let rest = all.into_iter().skip(start).map(entry).collect();
    let (status, bytes, count) = fill(rest, length_max, single)?;
    index.store(
        u32::try_from(start + count).unwrap_or(u32::MAX),
        Ordering::Relaxed,
    );
    Ok((status, bytes))
}

/// Sets attributes from `FileFullEaInformation`; an empty value removes one.
///
/// # Errors
/// STATUS_INVALID_EA_NAME, before anything is set; errors of the store.
pub(crate) fn set(node: &dyn Node, attributes: &[FullEa]) -> Result<(), NtStatus> {
    for attribute in attributes {
        let is_forbidden = |byte: &u8| *byte < 0x20 || NAME_FORBIDDEN.contains(byte);
        if attribute.name.is_empty()
            || attribute.name.len() > NAME_LEN_MAX
            || attribute.name.iter().any(is_forbidden)
        {
            return Err(NtStatus::INVALID_EA_NAME);
        }
    }
    for attribute in attributes {
        match node.set_ea(&attribute.name, &attribute.value) {
            Ok(()) => {}
            // Removing a missing attribute succeeds.
            Err(error) if error.kind == ropeway_vfs::ErrorKind::NotFound && attribute.value.is_empty() => {}
            Err(error) => return Err(status::of(&error)),
        }
    }
    Ok(())
}

/// Returns the attributes that SMB can represent.
fn list(node: &dyn Node) -> Result<Vec<Xattr>, NtStatus> {
    let mut eas = match node.eas() {
        Ok(eas) => eas,
        Err(error) if error.kind == ropeway_vfs::ErrorKind::Unsupported => Vec::new(),
        Err(error) => return Err(status::of(&error)),
    };
    eas.retain(|ea| {
        matches!(ea.name.len(), 1..=NAME_LEN_MAX)
            && !ea.name.contains(&0)
            && u16::try_from(ea.value.len()).is_ok()
    });
    Ok(eas)
}

fn entry(ea: Xattr) -> FullEa {
    FullEa {
        need_ea: false,
        name: ea.name,
        value: ea.value,
    }
}

/// Returns the attributes of a FILE_GET_EA_INFORMATION list ([MS-FSCC] 2.4.16.1), up to the first
/// one that does not fit the response. Missing attributes have an empty value.
fn requested(input: &[u8], all: &[Xattr], length_max: usize) -> Result<Vec<FullEa>, DecodeError> {
    let (mut attributes, mut length) = (Vec::new(), 0);
    for entry in Entries::new(input, 6, "FILE_GET_EA_INFORMATION") {
        let mut entry: Reader<'_> = entry?;
        let name_length = usize::from(entry.u8()?);
        let name = entry.bytes(name_length)?;
        let found = all.iter().find(|ea| ea.name.eq_ignore_ascii_case(name));
        let ea = FullEa {
            need_ea: false,
            name: name.iter().copied().take_while(|byte| *byte != 0).collect(),
            value: found.map(|ea| ea.value.clone()).unwrap_or_default(),
        };
        length += ENTRY_FIXED_LEN + ea.name.len() + ea.value.len();
        attributes.push(ea);
        if length > length_max {
            break;
        }
    }
    Ok(attributes)
}

/// Encodes as many entries as fit, and returns their number.
fn fill(
    mut attributes: Vec<FullEa>,
    length_max: usize,
    single: bool,
) -> Result<(NtStatus, Vec<u8>, usize), NtStatus> {
    if single {
        attributes.truncate(1);
    }
    let lengths = attributes
        .iter()
        .map(|ea| ENTRY_FIXED_LEN + ea.name.len() + ea.value.len());
    let count = output_buffer::count_fitting(lengths, 4, length_max);
    if count == 0 {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let status = if count < attributes.len() {
        NtStatus::BUFFER_OVERFLOW
    } else {
        NtStatus::SUCCESS
    };
    attributes.truncate(count);
    Ok((status, FileFullEaInformation { attributes }.to_bytes(), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_requested_often_is_copied_as_often_as_it_fits() {
        let value = vec![7; 60_000];
        let all = [Xattr {
            name: b"a".to_vec(),
            value,
        }];
        let mut input = Vec::new();
        for number in 0..100_000_u32 {
            let next: u32 = if number == 99_999 { 0 } else { 8 };
            input.extend(next.to_le_bytes());
            input.extend([1, b'a', 0, 0]);
        }
        let found = requested(&input, &all, 64 << 10).unwrap();
        assert_eq!(found.len(), 2, "the second does not fit");
        let (status, bytes, count) = fill(found, 64 << 10, false).unwrap();
        assert_eq!((status, count), (NtStatus::BUFFER_OVERFLOW, 1));
        assert!(bytes.len() <= 64 << 10);
    }
}
