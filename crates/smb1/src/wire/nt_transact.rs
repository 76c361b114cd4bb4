//! Functions of NT_TRANSACT ([MS-CIFS] 2.2.7, [MS-SMB] 2.2.7).

use ropeway_smb_wire::{FileTime, Reader, Result, Writer};

use super::create::{CreateFlags, OplockLevel};
use crate::strings::Str;
use crate::words::{Reserved, words};

/// `Function` of NT_TRANSACT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub u16);

impl Function {
    /// NT_TRANSACT_CREATE.
    pub const CREATE: Self = Self(0x0001);
    /// NT_TRANSACT_IOCTL.
    pub const IOCTL: Self = Self(0x0002);
    /// NT_TRANSACT_SET_SECURITY_DESC.
    pub const SET_SECURITY: Self = Self(0x0003);
    /// NT_TRANSACT_NOTIFY_CHANGE.
    pub const NOTIFY_CHANGE: Self = Self(0x0004);
    /// NT_TRANSACT_RENAME.
    pub const RENAME: Self = Self(0x0005);
    /// NT_TRANSACT_QUERY_SECURITY_DESC.
    pub const QUERY_SECURITY: Self = Self(0x0006);
}

words! {
    /// Parameters of NT_TRANSACT_CREATE before the name.
    pub struct NtCreateWords {
        /// How to open.
        flags: CreateFlags,
        /// FID of the folder that the name is relative to; 0 for the share's top.
        root_fid: u32,
        /// Rights wanted.
        desired_access: u32,
        /// Bytes to reserve.
        allocation_size: u64,
        /// Attributes of a new file.
        file_attributes: u32,
        /// What others may do meanwhile.
        share_access: u32,
        /// What to do if the file exists or not.
        create_disposition: u32,
        /// Options.
        create_options: u32,
        /// Bytes of the security descriptor in the data.
        security_descriptor_length: u32,
        /// Bytes of the extended attributes in the data, after the descriptor.
        ea_length: u32,
        /// Bytes of the name.
        name_length: u32,
        /// Level of impersonation.
        impersonation_level: u32,
        /// Tracking of the client's security.
        security_flags: u8,
    }
}

/// Parameters of NT_TRANSACT_CREATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NtCreateRequest {
    /// Everything but the name.
    pub words: NtCreateWords,
    /// Path of the file in the share.
    pub name: Str,
}

impl NtCreateRequest {
    /// Decodes the parameters.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(parameters: &[u8], is_unicode: bool) -> Result<Self> {
        let mut reader = Reader::new(parameters, "NT_TRANSACT_CREATE");
        let words = NtCreateWords::read(&mut reader)?;
        let length = usize::try_from(words.name_length).unwrap_or(usize::MAX);
        // The name may end before its length says: some clients count its zero and do not send it.
        let start = if is_unicode { reader.position() & 1 } else { 0 };
        let length = length.min(reader.remaining().saturating_sub(start));
        Ok(Self {
            words,
            name: Str::read(&mut reader, is_unicode, length)?,
        })
    }
}

words! {
    /// Parameters of the NT_TRANSACT_CREATE response.
    pub struct NtCreateResponse {
        /// The granted oplock.
        oplock_level: OplockLevel,
        /// Reserved.
        reserved: Reserved<1>,
        /// The open file.
        fid: u16,
        /// What was done.
        create_action: u32,
        /// Offset of the extended attribute that is wrong.
        ea_error_offset: u32,
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
        /// 0 for a file or folder.
        resource_type: u16,
        /// State of a pipe.
        pipe_status: u16,
        /// Whether it is a folder.
        is_directory: bool,
    }
}

words! {
    /// Parameters of NT_TRANSACT_QUERY_SECURITY_DESC and NT_TRANSACT_SET_SECURITY_DESC.
    pub struct SecurityParameters {
        /// The open file.
        fid: u16,
        /// Reserved.
        reserved: Reserved<2>,
        /// Parts of the descriptor ([MS-DTYP] 2.4.7).
        parts: u32,
    }
}

/// Setup words of NT_TRANSACT_NOTIFY_CHANGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotifySetup {
    /// What to report ([MS-SMB2] 2.2.35).
    pub completion_filter: u32,
    /// The open folder.
    pub fid: u16,
    /// Whether folders below it are watched, too.
    pub watch_tree: bool,
}

impl NotifySetup {
    /// Decodes the setup words.
    pub fn decode(setup: &[u16]) -> Option<Self> {
        let [low, high, fid, tree, ..] = *setup else {
            return None;
        };
        Some(Self {
            completion_filter: u32::from(high) << 16 | u32::from(low),
            fid,
            watch_tree: tree & 0xFF != 0,
        })
    }

    /// Returns the setup words.
    pub fn encode(&self) -> Vec<u16> {
        vec![
            self.completion_filter as u16,
            (self.completion_filter >> 16) as u16,
            self.fid,
            u16::from(self.watch_tree),
        ]
    }
}

/// Setup words of NT_TRANSACT_IOCTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlSetup {
    /// The control ([MS-FSCC] 2.3).
    pub code: u32,
    /// The open file.
    pub fid: u16,
    /// Whether it is a control of the file system.
    pub is_fsctl: bool,
    /// Whether the response is for the root of the share only.
    pub flags: u8,
}

impl IoctlSetup {
    /// Decodes the setup words.
    pub fn decode(setup: &[u16]) -> Option<Self> {
        let [low, high, fid, last, ..] = *setup else {
            return None;
        };
        let [is_fsctl, flags] = last.to_le_bytes();
        Some(Self {
            code: u32::from(high) << 16 | u32::from(low),
            fid,
            is_fsctl: is_fsctl != 0,
            flags,
        })
    }

    /// Returns the setup words.
    pub fn encode(&self) -> Vec<u16> {
        vec![
            self.code as u16,
            (self.code >> 16) as u16,
            self.fid,
            u16::from_le_bytes([u8::from(self.is_fsctl), self.flags]),
        ]
    }
}

/// Parameters of NT_TRANSACT_RENAME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NtTransactRename {
    /// The open file.
    pub fid: u16,
    /// Whether a file with the new name is replaced.
    pub replaces: bool,
    /// The new name.
    pub name: Str,
}

impl NtTransactRename {
    /// Decodes the parameters.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(parameters: &[u8], is_unicode: bool) -> Result<Self> {
        let mut reader = Reader::new(parameters, "NT_TRANSACT_RENAME");
        Ok(Self {
            fid: reader.u16()?,
            replaces: reader.u16()? & 1 != 0,
            name: Str::read_z(&mut reader, is_unicode)?,
        })
    }

    /// Returns the parameters.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        w.u16(self.fid);
        w.u16(u16::from(self.replaces));
        self.name.write_z(&mut w);
        out
    }
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    #[test]
    fn parameters_round_trip() {
        let name = Str::unicode(&Text::from("dir\\file"));
        let words = NtCreateWords {
            create_options: 0x40,
            name_length: name.as_bytes().len() as u32,
            ..NtCreateWords::default()
        };
        let bytes = hostile::structure(|w| {
            words.write(w);
            name.write(w);
        });
        let request = NtCreateRequest { words, name };
        assert_eq!(NtCreateRequest::decode(&bytes, true), Ok(request));
        hostile::attack(&bytes, 0, |bytes| NtCreateRequest::decode(bytes, true).is_ok());
        let response = hostile::structure(|w| NtCreateResponse::default().write(w));
        assert_eq!(response.len(), 69);
        let notify = NotifySetup {
            completion_filter: 0x0001_0017,
            fid: 4,
            watch_tree: true,
        };
        assert_eq!(NotifySetup::decode(&notify.encode()), Some(notify));
        let ioctl = IoctlSetup {
            code: 0x0009_00C0,
            fid: 4,
            is_fsctl: true,
            flags: 1,
        };
        assert_eq!(IoctlSetup::decode(&ioctl.encode()), Some(ioctl));
        assert_eq!(NotifySetup::decode(&[1, 2, 3]), None);
        let rename = NtTransactRename {
            fid: 1,
            replaces: true,
            name: Str::unicode(&Text::from("new")),
        };
        let bytes = rename.to_bytes();
        assert_eq!(NtTransactRename::decode(&bytes, true), Ok(rename));
        hostile::attack(&bytes, 0, |bytes| NtTransactRename::decode(bytes, true).is_ok());
    }
}
