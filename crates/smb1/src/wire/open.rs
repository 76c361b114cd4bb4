//! OPEN_ANDX ([MS-CIFS] 2.2.4.41) and TRANS2_OPEN2 (2.2.6.1), which have modes instead of rights.

use bitflags::bitflags;
use ropeway_smb_wire::{Result, Writer};

use crate::message::{AndX, Block, write_block};
use crate::strings::Str;
use crate::words::{Reserved, flag_fields, words};

bitflags! {
    /// `Flags` of the request.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpenFlags: u16 {
        /// The response holds more than the FID.
        const ADDITIONAL_INFO = 0x0001;
        /// The client asks for an exclusive oplock.
        const OPLOCK = 0x0002;
        /// The client asks for a batch oplock.
        const OPBATCH = 0x0004;
        /// The response holds the size of extended attributes (OPEN2).
        const EA_LENGTH = 0x0008;
        /// The response may have the words of [MS-SMB].
        const EXTENDED_RESPONSE = 0x0010;
        const _ = !0;
    }
}

flag_fields!(OpenFlags: u16);

/// `AccessMode`: what the client does, and what others may do meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessMode(pub u16);

impl AccessMode {
    /// Reads.
    pub const READ: u16 = 0;
    /// Writes.
    pub const WRITE: u16 = 1;
    /// Reads and writes.
    pub const READ_WRITE: u16 = 2;
    /// Executes.
    pub const EXECUTE: u16 = 3;
    /// Sharing as DOS programs without sharing have it.
    pub const SHARE_COMPATIBLE: u16 = 0;
    /// Others do nothing.
    pub const DENY_ALL: u16 = 1;
    /// Others do not write.
    pub const DENY_WRITE: u16 = 2;
    /// Others do not read.
    pub const DENY_READ: u16 = 3;
    /// Others do what they want.
    pub const DENY_NONE: u16 = 4;
    /// The mode of files that the server opens for a file control block.
    pub const FCB: u16 = 0xFF;

    /// Returns what the client does.
    pub fn access(self) -> u16 {
        self.0 & 7
    }

    /// Returns what others may do.
    pub fn sharing(self) -> u16 {
        self.0 >> 4 & 7
    }

    /// Returns whether each write goes to the disk at once.
    pub fn is_write_through(self) -> bool {
        self.0 & 0x4000 != 0
    }

    /// Returns the mode of two parts.
    pub fn of(access: u16, sharing: u16) -> Self {
        Self(access | sharing << 4)
    }
}

impl crate::words::Field for AccessMode {
    fn read(reader: &mut ropeway_smb_wire::Reader<'_>) -> Result<Self> {
        reader.u16().map(Self)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(self.0);
    }
}

words! {
    /// Words of the OPEN_ANDX request.
    pub struct OpenWords {
        /// The command that follows.
        andx: AndX,
        /// What to do and to return.
        flags: OpenFlags,
        /// Access and sharing.
        access_mode: AccessMode,
        /// Attributes of files that may be opened; servers do not look at it.
        search_attributes: u16,
        /// Attributes of a new file.
        file_attributes: u16,
        /// Creation time of a new file, in seconds since 1970.
        creation_time: u32,
        /// What to do if the file exists (bits 0 and 1: fail 0, open 1, empty 2) or not (bit 4: make).
        open_mode: u16,
        /// Length of a new or emptied file in bytes.
        allocation_size: u32,
        /// Milliseconds to wait for others.
        timeout: u32,
        /// Reserved.
        reserved: Reserved<4>,
    }
}

/// OPEN_ANDX request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The words.
    pub words: OpenWords,
    /// Path of the file in the share.
    pub name: Str,
}

impl OpenRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 15.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        Ok(Self {
            words: OpenWords::read(&mut block.words_exactly(15)?)?,
            name: Str::read_z(&mut block.bytes(), is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| self.words.write(w), |w| self.name.write_z(w));
    }
}

words! {
    /// OPEN_ANDX response.
    pub struct OpenResponse {
        /// The command that follows.
        andx: AndX,
        /// The open file.
        fid: u16,
        /// Attributes.
        file_attributes: u16,
        /// Time of the last write, in seconds since 1970.
        last_write_time: u32,
        /// Length of the content; of longer files the lower 32 bits.
        file_size: u32,
        /// Granted access.
        access: u16,
        /// 0 for a file or folder, 2 for a pipe of messages.
        resource_type: u16,
        /// State of a pipe.
        pipe_status: u16,
        /// What was done: opened 1, made 2, emptied 3; bit 15: an oplock was granted.
        open_result: u16,
        /// Server's number of the file, unused, and reserved.
        reserved: Reserved<6>,
    }
}

impl OpenResponse {
    /// Decodes the block. Further words of extended responses are ignored.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>) -> Result<Self> {
        Self::read(&mut block.words())
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |w| self.write(w), |_| {});
    }
}

words! {
    /// Parameters of TRANS2_OPEN2 before the name.
    pub struct Open2Parameters {
        /// What to do and to return.
        flags: OpenFlags,
        /// Access and sharing.
        access_mode: AccessMode,
        /// Reserved.
        reserved1: Reserved<2>,
        /// Attributes of a new file.
        file_attributes: u16,
        /// Creation time of a new file, in seconds since 1970.
        creation_time: u32,
        /// As in OPEN_ANDX.
        open_mode: u16,
        /// Length of a new or emptied file in bytes.
        allocation_size: u32,
        /// Reserved.
        reserved2: Reserved<10>,
    }
}

words! {
    /// Parameters of the TRANS2_OPEN2 response.
    pub struct Open2Response {
        /// The open file.
        fid: u16,
        /// Attributes.
        file_attributes: u16,
        /// Creation time, in seconds since 1970.
        creation_time: u32,
        /// Length of the content; of longer files the lower 32 bits.
        file_size: u32,
        /// Granted access.
        access: u16,
        /// 0 for a file or folder.
        resource_type: u16,
        /// State of a pipe.
        pipe_status: u16,
        /// What was done, as in OPEN_ANDX.
        open_result: u16,
        /// Reserved.
        reserved: Reserved<4>,
        /// Offset of the extended attribute that is wrong.
        ea_error_offset: u16,
        /// Bytes of the extended attributes.
        ea_length: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;

    #[test]
    fn requests_and_responses_round_trip() {
        let request = OpenRequest {
            words: OpenWords {
                access_mode: AccessMode::of(AccessMode::READ_WRITE, AccessMode::DENY_NONE),
                open_mode: 0x11,
                timeout: 5,
                ..OpenWords::default()
            },
            name: Str::oem(b"\\FILE.TXT"),
        };
        assert_eq!(request.words.access_mode.sharing(), AccessMode::DENY_NONE);
        hostile::check(
            &[request],
            |block| OpenRequest::decode(block, false).ok(),
            |request, w| request.encode(w),
        );
        let response = OpenResponse {
            fid: 3,
            file_size: 77,
            open_result: 2,
            ..OpenResponse::default()
        };
        hostile::check(
            &[response],
            |block| OpenResponse::decode(block).ok(),
            |response, w| response.encode(w),
        );
    }
}
