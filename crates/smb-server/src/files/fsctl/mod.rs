//! FSCTLs ([MS-SMB2] 3.3.5.15, [MS-FSCC] 2.3) that need one open or two, and no connection.
//!
//! ```text
//! mod.rs      one open: sparse files, ranges, compression, object ids, resume keys;
//!             no open: interfaces, VALIDATE_NEGOTIATE_INFO
//! copy.rs     two opens: COPYCHUNK, DUPLICATE_EXTENTS
//! private.rs  one open: private controls
//! folder.rs   one folder: the private control for its digest
//! reparse.rs  symbolic links
//! ```

mod copy;
mod folder;
mod private;
mod reparse;

use ropeway_smb_proto::server::DIALECTS_MAX;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::copy_chunk::{ResumeKey, ResumeKeyResponse};
use ropeway_smb_wire::fsctl::interfaces::{NetworkInterfaceInfo, encode_interfaces};
use ropeway_smb_wire::fsctl::ranges::{AllocatedRange, SetSparse, SetZeroData};
use ropeway_smb_wire::fsctl::snapshots::SnapshotArray;
use ropeway_smb_wire::fsctl::validate_negotiate::{ValidateNegotiateRequest, ValidateNegotiateResponse};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{FileAttributes, NtStatus};
use ropeway_vfs::store::NodeChange;

use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;
use crate::files::{attributes, set_file, status};
use crate::state::open::Open;

pub(crate) use copy::{CopyView, copy_chunks, duplicate_extents, resume_id};
pub(crate) use private::{is_folder_digest, offer as private_offer, private, reply as private_reply};

/// A range of a file that an FSCTL reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) length: u64,
    /// Whether the range is written.
    pub(crate) write: bool,
}

/// Whether a byte-range lock of another open or program prevents access to a range.
pub(crate) type Locked<'a> = &'a dyn Fn(&Open, Range) -> bool;

/// Executes an FSCTL for one open.
///
/// # Errors
/// STATUS_INVALID_DEVICE_REQUEST for unknown FSCTLs, and the errors of each.
pub(crate) fn control(
    open: &Open,
    code: CtlCode,
    input: &[u8],
    output_max: usize,
    locked: Locked<'_>,
) -> OutputResult {
    let done = |()| (NtStatus::SUCCESS, Vec::new());
    let whole = |bytes| (NtStatus::SUCCESS, bytes);
    match code {
        CtlCode::QUERY_ALLOCATED_RANGES => allocated_ranges(open, input, output_max),
        CtlCode::SET_SPARSE => set_sparse(open, SetSparse::decode(input)).map(done),
        CtlCode::SET_ZERO_DATA => zero_data(open, input, locked).map(done),
        CtlCode::GET_REPARSE_POINT => reparse::get(open, output_max).map(whole),
        CtlCode::SET_REPARSE_POINT => reparse::set(open, input).map(done),
        CtlCode::DELETE_REPARSE_POINT => Err(NtStatus::NOT_SUPPORTED),
        CtlCode::GET_COMPRESSION => compression(output_max).map(whole),
        CtlCode::SET_COMPRESSION => set_compression(open, input).map(done),
        CtlCode::SRV_ENUMERATE_SNAPSHOTS => snapshots(open, output_max).map(whole),
        CtlCode::CREATE_OR_GET_OBJECT_ID => object_id(open, output_max).map(whole),
        CtlCode::SRV_REQUEST_RESUME_KEY => resume_key(open, output_max).map(whole),
        _ => Err(NtStatus::INVALID_DEVICE_REQUEST),
    }
}

/// FSCTL_QUERY_ALLOCATED_RANGES ([MS-FSCC] 2.3.51; [MS-FSA] 2.1.5.10.22).
fn allocated_ranges(open: &Open, input: &[u8], output_max: usize) -> OutputResult {
    if open.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if !open.access.contains(AccessMask::READ_DATA) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let asked = AllocatedRange::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let end = signed_end(asked.file_offset, asked.length)?;
    let stat = stored(open.node.stat())?;
    let end = end.min(stat.size);
    if asked.file_offset >= end {
        return Ok((NtStatus::SUCCESS, Vec::new()));
    }
    let length = end - asked.file_offset;
    let fit = output_max / RANGE_LEN;
    let mut ranges = if attributes::is_sparse(&stat) {
        let extents = stored(
            open.node
                .extents(asked.file_offset, length, fit.saturating_add(1)),
        )?;
        let extents = extents.iter();
        extents
            .map(|extent| AllocatedRange {
                file_offset: extent.offset,
                length: extent.length,
            })
            .collect()
    } else {
        // A file that is not sparse has no holes for clients, whatever the volume stores.
        vec![AllocatedRange {
            file_offset: asked.file_offset,
            length,
        }]
    };
    if fit == 0 && !ranges.is_empty() {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let status = if ranges.len() > fit {
        NtStatus::BUFFER_OVERFLOW
    } else {
        NtStatus::SUCCESS
    };
    ranges.truncate(fit);
    Ok((
        status,
        output_buffer::encoded(|w| ranges.iter().for_each(|range| range.encode(w))),
    ))
}

/// Length of a range in the response, in bytes.
const RANGE_LEN: usize = 16;

/// Returns the end of a range.
///
/// # Errors
/// STATUS_INVALID_PARAMETER if the end exceeds a signed 64-bit offset.
fn signed_end(offset: u64, length: u64) -> Result<u64, NtStatus> {
    offset
        .checked_add(length)
        .filter(|end| i64::try_from(*end).is_ok())
        .ok_or(NtStatus::INVALID_PARAMETER)
}

/// FSCTL_SET_SPARSE ([MS-FSCC] 2.3.83; [MS-FSA] 2.1.5.10.37).
fn set_sparse(open: &Open, set: SetSparse) -> Result<(), NtStatus> {
    let any = AccessMask::WRITE_DATA | AccessMask::WRITE_ATTRIBUTES | AccessMask::APPEND_DATA;
    if !open.access.intersects(any) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if open.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let stat = stored(open.node.stat())?;
    if attributes::is_sparse(&stat) == set.set_sparse {
        return Ok(());
    }
    let none = FileAttributes::default();
    let kept = match set.set_sparse {
        true => attributes::adjusted(&stat, FileAttributes::SPARSE_FILE, none),
        false => attributes::adjusted(&stat, none, FileAttributes::SPARSE_FILE),
    };
    stored(open.node.change(&NodeChange {
        dos_attributes: Some(kept),
        ..NodeChange::default()
    }))
}

/// FSCTL_SET_ZERO_DATA ([MS-FSCC] 2.3.85; [MS-FSA] 2.1.5.10.39). It never changes the length.
fn zero_data(open: &Open, input: &[u8], locked: Locked<'_>) -> Result<(), NtStatus> {
    if open.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if !open.access.contains(AccessMask::WRITE_DATA) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let set = SetZeroData::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let length = set.beyond_final_zero.checked_sub(set.file_offset);
    let length = length.ok_or(NtStatus::INVALID_PARAMETER)?;
    let end = signed_end(set.file_offset, length)?;
    let range = Range {
        offset: set.file_offset,
        length,
        write: true,
    };
    if length > 0 && locked(open, range) {
        return Err(NtStatus::FILE_LOCK_CONFLICT);
    }
    let stat = stored(open.node.stat())?;
    let end = end.min(stat.size);
    if set.file_offset >= end {
        return Ok(());
    }
    let hole = attributes::is_sparse(&stat);
    set_file::keeping_times(open, || {
        stored(open.node.zero(set.file_offset, end - set.file_offset, hole))
    })
}

/// FSCTL_GET_COMPRESSION ([MS-FSCC] 2.3.21): always COMPRESSION_FORMAT_NONE.
fn compression(output_max: usize) -> Result<Vec<u8>, NtStatus> {
    if output_max < 2 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(vec![0, 0])
}

/// FSCTL_SET_COMPRESSION ([MS-FSCC] 2.3.77): only COMPRESSION_FORMAT_NONE is supported.
fn set_compression(open: &Open, input: &[u8]) -> Result<(), NtStatus> {
    let format = input.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
    match format {
        None => Err(NtStatus::INVALID_PARAMETER),
        Some(_) if !open.access.contains(AccessMask::WRITE_DATA) => Err(NtStatus::ACCESS_DENIED),
        Some(0) => Ok(()),
        Some(_) => Err(NtStatus::NOT_SUPPORTED),
    }
}

/// FSCTL_SRV_ENUMERATE_SNAPSHOTS ([MS-SMB2] 3.3.5.15.1). Without enough room for all tokens there are none, and
/// the client asks again with the size that it is told.
fn snapshots(open: &Open, output_max: usize) -> Result<Vec<u8>, NtStatus> {
    /// Minimum length of the output buffer.
    const LEN_MIN: usize = 16;
    if output_max < LEN_MIN {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let tokens = match &open.share.snapshots {
        Some(snapshots) => snapshots.tokens()?,
        None => Vec::new(),
    };
    let all = SnapshotArray::all(tokens);
    let whole = output_buffer::encoded(|w| all.encode(w));
    match whole.len() <= output_max {
        true => Ok(whole),
        false => Ok(output_buffer::encoded(|w| all.without_tokens().encode(w))),
    }
}

/// FSCTL_CREATE_OR_GET_OBJECT_ID ([MS-FSCC] 2.3.1): FILE_OBJECTID_BUFFER made of the file's
/// identity.
fn object_id(open: &Open, output_max: usize) -> Result<Vec<u8>, NtStatus> {
    let stat = stored(open.node.stat())?;
    let id = attributes::guid(stat.id.volume, stat.id.index);
    let volume = attributes::guid(open.share.store.features().volume, 0);
    let bytes = output_buffer::encoded(|w| {
        // Object id, birth volume id, birth object id, domain id.
        for guid in [id, volume, id, [0; 16]] {
            w.bytes(&guid);
        }
    });
    output_buffer::check_length(bytes, output_max)
}

/// FSCTL_SRV_REQUEST_RESUME_KEY ([MS-SMB2] 3.3.5.15.5).
fn resume_key(open: &Open, output_max: usize) -> Result<Vec<u8>, NtStatus> {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&open.id.to_le_bytes());
    let response = ResumeKeyResponse {
        resume_key: ResumeKey(key),
    };
    let bytes = output_buffer::encoded(|w| response.encode(w));
    match bytes.len() <= output_max {
        true => Ok(bytes),
        false => Err(NtStatus::INVALID_PARAMETER),
    }
}

/// FSCTL_QUERY_NETWORK_INTERFACE_INFO ([MS-SMB2] 3.3.5.15.11).
///
/// # Errors
/// STATUS_BUFFER_TOO_SMALL.
pub(crate) fn network_interfaces(
    interfaces: &[NetworkInterfaceInfo],
    output_max: usize,
) -> Result<Vec<u8>, NtStatus> {
    output_buffer::check_length(
        output_buffer::encoded(|w| encode_interfaces(interfaces, w)),
        output_max,
    )
}

/// FSCTL_VALIDATE_NEGOTIATE_INFO ([MS-SMB2] 3.3.5.15.12). `client`: what NEGOTIATE contained;
/// `server`: what the response contained. Returns `None` if the negotiation was tampered with or the
/// input is malformed: the connection must end without a response. Dialects that do not exist are
/// not compared.
pub(crate) fn validate_negotiate(
    input: &[u8],
    output_max: usize,
    client: &ValidateNegotiateRequest,
    server: &ValidateNegotiateResponse,
) -> Option<Vec<u8>> {
    let mut asked = ValidateNegotiateRequest::decode(input).ok()?;
    // What NEGOTIATE keeps of the list.
    asked.dialects.retain(|code| Dialect::from_code(*code).is_some());
    asked.dialects.truncate(DIALECTS_MAX);
    let is_same = asked == *client;
    let bytes = output_buffer::encoded(|w| server.encode(w));
    (is_same && bytes.len() <= output_max).then_some(bytes)
}

fn stored<T>(result: ropeway_vfs::Result<T>) -> Result<T, NtStatus> {
    result.map_err(|error| status::of(&error))
}

#[cfg(test)]
mod tests;
