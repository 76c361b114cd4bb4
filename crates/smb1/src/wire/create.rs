//! NT_CREATE_ANDX ([MS-CIFS] 2.2.4.64, [MS-SMB] 2.2.4.9).

use bitflags::bitflags;
use ropeway_smb_wire::{FileTime, Result, Writer};

use crate::message::{AndX, Block, write_block};
use crate::strings::Str;
use crate::words::{Reserved, flag_fields, words};

bitflags! {
    /// `Flags` of the request.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CreateFlags: u32 {
        /// The client asks for an exclusive oplock.
        const OPLOCK = 0x0000_0002;
        /// The client asks for a batch oplock.
        const OPBATCH = 0x0000_0004;
        /// The parent folder of the named file is to be opened.
        const OPEN_TARGET_DIR = 0x0000_0008;
        /// The response may have the words of [MS-SMB].
        const EXTENDED_RESPONSE = 0x0000_0010;
        const _ = !0;
    }
}

flag_fields!(CreateFlags: u32);

/// `OpLockLevel` of responses ([MS-CIFS] 2.2.4.64.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OplockLevel(pub u8);

impl OplockLevel {
    /// None.
    pub const NONE: Self = Self(0);
    /// Exclusive.
    pub const EXCLUSIVE: Self = Self(1);
    /// Batch.
    pub const BATCH: Self = Self(2);
    /// Level II.
    pub const LEVEL_II: Self = Self(3);
}

impl crate::words::Field for OplockLevel {
    fn read(reader: &mut ropeway_smb_wire::Reader<'_>) -> Result<Self> {
        reader.u8().map(Self)
    }
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u8(self.0);
    }
}

words! {
    /// Words of the request.
    pub struct CreateWords {
        /// The command that follows.
        andx: AndX,
        /// Reserved.
        reserved: Reserved<1>,
        /// Length of the name in bytes; set from the name when the request is encoded.
        name_length: u16,
        /// How to open.
        flags: CreateFlags,
        /// FID of the folder that the name is relative to; 0 for the share's top.
        root_fid: u32,
        /// Rights wanted ([MS-SMB2] 2.2.13.1).
        desired_access: u32,
        /// Bytes to reserve.
        allocation_size: u64,
        /// Attributes of a new file ([MS-FSCC] 2.6).
        file_attributes: u32,
        /// What others may do meanwhile: read 1, write 2, delete 4.
        share_access: u32,
        /// What to do if the file exists or not ([MS-SMB2] 2.2.13).
        create_disposition: u32,
        /// Options ([MS-SMB2] 2.2.13).
        create_options: u32,
        /// Level of impersonation, 2 by custom.
        impersonation_level: u32,
        /// Tracking of the client's security, 3 by custom.
        security_flags: u8,
    }
}

/// NT_CREATE_ANDX request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// The words.
    pub words: CreateWords,
    /// Path of the file in the share.
    pub name: Str,
}

impl CreateRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 24.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        let words = CreateWords::read(&mut block.words_exactly(24)?)?;
        let mut bytes = block.bytes();
        // A name ends where its zero is, whatever its length says: clients disagree about whether
        // that includes the zero.
        let name = Str::read_z(&mut bytes, is_unicode)?;
        Ok(Self {
            words: CreateWords {
                name_length: name.as_bytes().len() as u16,
                ..words
            },
            name,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let words = CreateWords {
            name_length: self.name.as_bytes().len() as u16,
            ..self.words
        };
        write_block(w, |w| words.write(w), |w| self.name.write_z(w));
    }
}

words! {
    /// NT_CREATE_ANDX response.
    pub struct CreateResponse {
        /// The command that follows.
        andx: AndX,
        /// The granted oplock.
        oplock_level: OplockLevel,
        /// The open file.
        fid: u16,
        /// What was done: superseded 0, opened 1, created 2, overwritten 3.
        create_action: u32,
        /// Time of creation.
        creation_time: FileTime,
        /// Time of the last access.
        last_access_time: FileTime,
        /// Time of the last change of the content.
        last_write_time: FileTime,
        /// Time of the last change of content or attributes.
        change_time: FileTime,
        /// Attributes.
        file_attributes: u32,
        /// Allocated bytes.
        allocation_size: u64,
        /// Length of the content in bytes.
        end_of_file: u64,
        /// 0 for a file or folder, 2 for a pipe of messages.
        resource_type: u16,
        /// State of a pipe; for a file what the server knows of streams and attributes.
        pipe_status: u16,
        /// Whether it is a folder.
        is_directory: bool,
    }
}

impl CreateResponse {
    /// Number of words.
    pub const WORDS: usize = 34;

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
    /// What an extended response has after the words of [`CreateResponse`] ([MS-SMB] 2.2.4.9.2).
    pub struct ExtendedWords {
        /// Identity of the volume.
        volume_guid: [u8; 16],
        /// Identity of the file on it.
        file_id: u64,
        /// Maximum rights of the user.
        maximal_access: u32,
        /// Maximum rights of guests.
        guest_access: u32,
    }
}

impl ExtendedWords {
    /// Appends the block of an extended response. Its count of words is 42, as Windows and Samba
    /// send it, although there are 50 ([MS-SMB] 2.2.4.9.2, note 46).
    pub fn encode(&self, response: &CreateResponse, w: &mut Writer<'_>) {
        let at = w.position();
        write_block(
            w,
            |w| {
                response.write(w);
                self.write(w);
            },
            |_| {},
        );
        w.patch(at, &[42]);
    }
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    fn words() -> CreateWords {
        CreateWords {
            flags: CreateFlags::OPBATCH,
            desired_access: 0x0012_0089,
            share_access: 7,
            create_disposition: 1,
            create_options: 0x40,
            impersonation_level: 2,
            security_flags: 3,
            ..CreateWords::default()
        }
    }

    #[test]
    fn requests_round_trip() {
        for is_unicode in [true, false] {
            let name = match is_unicode {
                true => Str::unicode(&Text::from("dir\\ä.txt")),
                false => Str::oem(b"dir\\a.txt"),
            };
            let request = CreateRequest {
                words: CreateWords {
                    name_length: name.as_bytes().len() as u16,
                    ..words()
                },
                name,
            };
            hostile::check(
                &[request],
                |block| CreateRequest::decode(block, is_unicode).ok(),
                |request, w| request.encode(w),
            );
        }
    }

    #[test]
    fn responses_round_trip() {
        let response = CreateResponse {
            oplock_level: OplockLevel::BATCH,
            fid: 0x4001,
            create_action: 1,
            creation_time: FileTime(1),
            end_of_file: 5 << 30,
            is_directory: true,
            ..CreateResponse::default()
        };
        hostile::check(
            &[response],
            |block| CreateResponse::decode(block).ok(),
            |response, w| response.encode(w),
        );
        let bytes = hostile::message(|w| ExtendedWords::default().encode(&response, w));
        assert_eq!((bytes[32], bytes.len()), (42, 32 + 1 + 100 + 2));
    }
}
