//! What goes into and comes out of SMB2 IOCTL, one file per family ([MS-SMB2] 2.2.31, 2.2.32; [MS-FSCC] 2.3).
//!
//! Here offsets count from the control's own data, not from the message: `decode` takes the IOCTL's input or output,
//! `encode` writes into a buffer of its own, which the IOCTL then carries. Controls that are not here have no data, or
//! data that nobody here looks into: PIPE_TRANSCEIVE carries a pipe's bytes both ways as they are.

pub mod copy_chunk;
pub mod dfs;
pub mod interfaces;
pub mod pipe;
pub mod ranges;
pub mod reparse;
pub mod snapshots;
pub mod validate_negotiate;

use super::codes::codes;
use super::{Fault, Reader, Result, Text, Writer};

codes! {
    /// `CtlCode`: what to do ([MS-SMB2] 2.2.31, [MS-FSCC] 2.3).
    pub struct CtlCode(u32) {
        /// Where a DFS path leads ([MS-DFSC] 2.2.2).
        DFS_GET_REFERRALS = 0x0006_0194;
        /// Where a DFS path leads, for a site ([MS-DFSC] 2.2.3).
        DFS_GET_REFERRALS_EX = 0x0006_01B0;
        /// What waits in a pipe.
        PIPE_PEEK = 0x0011_400C;
        /// Until a pipe can be opened ([MS-FSCC] 2.3.49).
        PIPE_WAIT = 0x0011_0018;
        /// Writes a pipe and reads the answer.
        PIPE_TRANSCEIVE = 0x0011_C017;
        /// Copies on the server; the target is open for reading too ([MS-SMB2] 2.2.31.1).
        SRV_COPYCHUNK = 0x0014_40F2;
        /// Copies on the server; the target is open for writing only.
        SRV_COPYCHUNK_WRITE = 0x0014_80F2;
        /// Which earlier states there are ([MS-SMB2] 2.2.32.2).
        SRV_ENUMERATE_SNAPSHOTS = 0x0014_4064;
        /// Names the source of a copy on the server ([MS-SMB2] 2.2.32.3).
        SRV_REQUEST_RESUME_KEY = 0x0014_0078;
        /// Hashes of content (BranchCache).
        SRV_READ_HASH = 0x0014_41BB;
        /// An open that survives a lost connection (2.1).
        LMR_REQUEST_RESILIENCY = 0x0014_01D4;
        /// The server's network interfaces ([MS-SMB2] 2.2.32.5).
        QUERY_NETWORK_INTERFACE_INFO = 0x0014_01FC;
        /// Was the negotiation tampered with? ([MS-SMB2] 2.2.31.4)
        VALIDATE_NEGOTIATE_INFO = 0x0014_0204;
        /// Makes a reparse point ([MS-FSCC] 2.3.81).
        SET_REPARSE_POINT = 0x0009_00A4;
        /// Reads a reparse point ([MS-FSCC] 2.3.29).
        GET_REPARSE_POINT = 0x0009_00A8;
        /// Removes a reparse point.
        DELETE_REPARSE_POINT = 0x0009_00AC;
        /// Makes a file sparse ([MS-FSCC] 2.3.83).
        SET_SPARSE = 0x0009_00C4;
        /// Zeroes a range, deallocating it in a sparse file ([MS-FSCC] 2.3.85).
        SET_ZERO_DATA = 0x0009_80C8;
        /// Which ranges are allocated ([MS-FSCC] 2.3.51).
        QUERY_ALLOCATED_RANGES = 0x0009_40CF;
        /// Which regions hold valid data ([MS-FSCC] 2.3.55).
        QUERY_FILE_REGIONS = 0x0009_0284;
        /// Shares a range between two files ([MS-FSCC] 2.3.7).
        DUPLICATE_EXTENTS_TO_FILE = 0x0009_8344;
        /// Shares a range between two files, all or nothing ([MS-FSCC] 2.3.9).
        DUPLICATE_EXTENTS_TO_FILE_EX = 0x0009_83E8;
        /// Ranges whose content is no longer needed.
        FILE_LEVEL_TRIM = 0x0009_8208;
        /// The file's object identifier, made if it has none ([MS-FSCC] 2.3.1).
        CREATE_OR_GET_OBJECT_ID = 0x0009_00C0;
        /// Whether content is compressed.
        GET_COMPRESSION = 0x0009_003C;
        /// Compresses content, or not.
        SET_COMPRESSION = 0x0009_C040;
        /// How content is protected (ReFS).
        GET_INTEGRITY_INFORMATION = 0x0009_027C;
        /// Protects content, or not (ReFS).
        SET_INTEGRITY_INFORMATION = 0x0009_C280;
        /// A token for a copy inside the storage.
        OFFLOAD_READ = 0x0009_4264;
        /// A copy inside the storage, by token.
        OFFLOAD_WRITE = 0x0009_8268;
    }
}

/// Text that ends with a unit of 0, which the reader passes.
///
/// # Errors
/// [`Fault::Truncated`] if the message ends first; [`Fault::Bounds`] if the text is longer than `units_max`.
fn terminated(reader: &mut Reader<'_>, units_max: usize) -> Result<Text> {
    let mut units = Vec::new();
    loop {
        match reader.u16()? {
            0 => return Ok(Text::from_units(units)),
            _ if units.len() == units_max => return Err(reader.fault(Fault::Bounds)),
            unit => units.push(unit),
        }
    }
}

/// Appends text and a unit of 0.
///
/// # Panics
/// If the text holds a unit of 0.
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
    fn text_ends_at_zero_or_not_at_all() {
        let bytes = b"a\0b\0\0\0c\0";
        let mut reader = Reader::new(bytes, "test");
        assert_eq!(terminated(&mut reader, 2), Ok("ab".into()));
        assert_eq!(terminated(&mut reader, 2).unwrap_err().fault, Fault::Truncated);
        assert_eq!(
            terminated(&mut Reader::new(bytes, "test"), 1).unwrap_err().fault,
            Fault::Bounds
        );
    }
}
