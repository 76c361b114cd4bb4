//! Input and output of SMB2 IOCTL, one file per family ([MS-SMB2] 2.2.31, 2.2.32; [MS-FSCC] 2.3).
//!
//! Here offsets count from the control's own data, not from the message: `decode` takes the IOCTL's
//! input or output, and `encode` writes into a separate buffer, which the IOCTL then carries.
//! Controls without a file here have no data, or data that is passed on unread: PIPE_TRANSCEIVE
//! carries a pipe's bytes in both directions.

pub mod copy_chunk;
pub mod dfs;
pub mod interfaces;
pub mod pipe;
pub mod private;
pub mod private_folder;
pub mod private_get;
pub mod private_put;
pub mod private_same;
pub mod ranges;
pub mod reparse;
pub mod snapshots;
pub mod validate_negotiate;

use super::codes::codes;
use super::{DecodeErrorKind, Reader, Result, Text, Writer};

codes! {
    /// `CtlCode`: the control ([MS-SMB2] 2.2.31, [MS-FSCC] 2.3).
    pub struct CtlCode(u32) {
        /// Returns the referrals of a DFS path ([MS-DFSC] 2.2.2).
        DFS_GET_REFERRALS = 0x0006_0194;
        /// Returns the referrals of a DFS path for a site ([MS-DFSC] 2.2.3).
        DFS_GET_REFERRALS_EX = 0x0006_01B0;
        /// Reads from a pipe without removing the data.
        PIPE_PEEK = 0x0011_400C;
        /// Waits until a pipe can be opened ([MS-FSCC] 2.3.49).
        PIPE_WAIT = 0x0011_0018;
        /// Writes to a pipe and reads the answer.
        PIPE_TRANSCEIVE = 0x0011_C017;
        /// Copies on the server; the target must be open for reading too ([MS-SMB2] 2.2.31.1).
        SRV_COPYCHUNK = 0x0014_40F2;
        /// Copies on the server; the target may be open for writing only.
        SRV_COPYCHUNK_WRITE = 0x0014_80F2;
        /// Lists the snapshots ([MS-SMB2] 2.2.32.2).
        SRV_ENUMERATE_SNAPSHOTS = 0x0014_4064;
        /// Returns the key that names the source of a server-side copy ([MS-SMB2] 2.2.32.3).
        SRV_REQUEST_RESUME_KEY = 0x0014_0078;
        /// This project's own control ([`private`]): a function number of the vendors' range,
        /// METHOD_BUFFERED, FILE_ANY_ACCESS.
        PRIVATE = 0x0014_229C;
        /// Reads the hashes of content (BranchCache).
        SRV_READ_HASH = 0x0014_41BB;
        /// Makes an open survive a lost connection (2.1).
        LMR_REQUEST_RESILIENCY = 0x0014_01D4;
        /// Lists the server's network interfaces ([MS-SMB2] 2.2.32.5).
        QUERY_NETWORK_INTERFACE_INFO = 0x0014_01FC;
        /// Detects a manipulated negotiation ([MS-SMB2] 2.2.31.4).
        VALIDATE_NEGOTIATE_INFO = 0x0014_0204;
        /// Creates a reparse point ([MS-FSCC] 2.3.81).
        SET_REPARSE_POINT = 0x0009_00A4;
        /// Reads a reparse point ([MS-FSCC] 2.3.29).
        GET_REPARSE_POINT = 0x0009_00A8;
        /// Removes a reparse point.
        DELETE_REPARSE_POINT = 0x0009_00AC;
        /// Makes a file sparse ([MS-FSCC] 2.3.83).
        SET_SPARSE = 0x0009_00C4;
        /// Zeroes a range, deallocating it in a sparse file ([MS-FSCC] 2.3.85).
        SET_ZERO_DATA = 0x0009_80C8;
        /// Lists the allocated ranges ([MS-FSCC] 2.3.51).
        QUERY_ALLOCATED_RANGES = 0x0009_40CF;
        /// Lists the regions with valid data ([MS-FSCC] 2.3.55).
        QUERY_FILE_REGIONS = 0x0009_0284;
        /// Shares a range between two files ([MS-FSCC] 2.3.7).
        DUPLICATE_EXTENTS_TO_FILE = 0x0009_8344;
        /// Shares a range between two files, all or nothing ([MS-FSCC] 2.3.9).
        DUPLICATE_EXTENTS_TO_FILE_EX = 0x0009_83E8;
        /// Declares ranges unused, so that the storage can discard them.
        FILE_LEVEL_TRIM = 0x0009_8208;
        /// Returns the file's object identifier, and creates one if it has none ([MS-FSCC] 2.3.1).
        CREATE_OR_GET_OBJECT_ID = 0x0009_00C0;
        /// Returns how content is compressed.
        GET_COMPRESSION = 0x0009_003C;
        /// Switches the compression of content on or off.
        SET_COMPRESSION = 0x0009_C040;
        /// Returns how content is protected (ReFS).
        GET_INTEGRITY_INFORMATION = 0x0009_027C;
        /// Changes how content is protected (ReFS).
        SET_INTEGRITY_INFORMATION = 0x0009_C280;
        /// Returns a token for a copy inside the storage.
        OFFLOAD_READ = 0x0009_4264;
        /// Copies inside the storage by a token.
        OFFLOAD_WRITE = 0x0009_8268;
    }
}

/// Reads text up to and including its terminating unit of 0.
///
/// # Errors
/// [`DecodeErrorKind::Truncated`] if the message ends first; [`DecodeErrorKind::Bounds`] if the
/// text is longer than `units_max`.
fn terminated(reader: &mut Reader<'_>, units_max: usize) -> Result<Text> {
    let mut units = Vec::new();
    loop {
        match reader.u16()? {
            0 => return Ok(Text::from_units(units)),
            _ if units.len() == units_max => return Err(reader.error(DecodeErrorKind::Bounds)),
            unit => units.push(unit),
        }
    }
}

/// Appends text and a terminating unit of 0.
///
/// # Panics
/// Panics if the text contains a unit of 0.
fn write_terminated(text: &Text, w: &mut Writer<'_>) {
    assert!(!text.units().contains(&0), "0 ends the text");
    text.write(w);
    w.u16(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_print_their_names() {
        assert_eq!(format!("{:?}", CtlCode::SRV_COPYCHUNK), "SRV_COPYCHUNK");
        assert_eq!(format!("{:?}", CtlCode(7)), "CtlCode(0x7)");
    }

    #[test]
    fn terminated_text_ends_at_zero() {
        let bytes = b"a\0b\0\0\0c\0";
        let mut reader = Reader::new(bytes, "test");
        assert_eq!(terminated(&mut reader, 2), Ok("ab".into()));
        assert_eq!(
            terminated(&mut reader, 2).unwrap_err().kind,
            DecodeErrorKind::Truncated
        );
        assert_eq!(
            terminated(&mut Reader::new(bytes, "test"), 1).unwrap_err().kind,
            DecodeErrorKind::Bounds
        );
    }
}
