//! TRANS2_SET_PATH_INFORMATION and TRANS2_SET_FILE_INFORMATION ([MS-CIFS] 3.3.5.58.7, 3.3.5.58.8).

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::info::{FileBasicInformation, FileInfoClass};
use ropeway_smb_wire::{FileAttributes, FileId, NtStatus, Reader, Text};
use ropeway_smb1::Str;
use ropeway_smb1::dos_error::status::INVALID_SMB;
use ropeway_smb1::server::{Answer, Transaction};
use ropeway_smb1::wire::file_info::{InfoStandard, padded};
use ropeway_smb1::wire::trans2::{Level, PathLevel, SetFile};

use crate::attributes::basic_bytes;
use crate::calls::{Open, Query};
use crate::conversation::Conversation;
use crate::line::{Fault, Place};
use crate::open::{joined, parent};
use crate::paths::set_name;
use crate::transact::with_parameters;

/// Bytes of `FileBasicInformation` on the line; clients may leave out the reserved end.
const BASIC_LEN: usize = 40;

impl Conversation {
    pub(crate) fn set_path(&mut self, request: &Transaction) -> Result<Answer, Fault> {
        let asked = PathLevel::decode(&request.parameters, request.is_unicode())?;
        let place = self.disk(&request.header())?.place;
        let path = self.path(&asked.path);
        let opened = self
            .line
            .create(place, Open::existing(path.clone(), access_for(asked.level)))?;
        let outcome = self.apply(place, opened.id, &path, asked.level, request);
        self.line.close(place, opened.id)?;
        outcome?;
        Ok(with_parameters(vec![0; 2]))
    }

    pub(crate) fn set_file(&mut self, request: &Transaction) -> Result<Answer, Fault> {
        // The reserved end of the parameters may be missing.
        let parameters = padded(&request.parameters, 6);
        let asked = SetFile::read(&mut Reader::new(&parameters, "Trans2_Parameters"))?;
        let file = self.file(&request.header(), asked.fid)?;
        self.apply(file.place, file.id, &file.path, asked.level, request)?;
        Ok(with_parameters(vec![0; 2]))
    }

    fn apply(
        &mut self,
        place: Place,
        file: FileId,
        path: &Text,
        level: Level,
        request: &Transaction,
    ) -> Result<(), Fault> {
        let class = match level {
            Level::STANDARD => return self.set_times(place, file, &request.data),
            Level::BASIC => FileInfoClass::Basic.to_u8(),
            Level::SET_DISPOSITION => FileInfoClass::Disposition.to_u8(),
            Level::SET_ALLOCATION => FileInfoClass::Allocation.to_u8(),
            Level::SET_END_OF_FILE => FileInfoClass::EndOfFile.to_u8(),
            level => level.class().ok_or(NtStatus::INVALID_LEVEL)?,
        };
        let (rename, link) = (FileInfoClass::Rename.to_u8(), FileInfoClass::Link.to_u8());
        if class == rename || class == link {
            let (replaces, name) = self.new_name(path, request)?;
            return set_name(&mut self.line, place, file, class == link, replaces, name);
        }
        let data = match class == FileInfoClass::Basic.to_u8() {
            true => padded(&request.data, BASIC_LEN),
            false => request.data.clone(),
        };
        self.line.set(place, file, Query::File(class), &data)
    }

    /// SMB_INFO_STANDARD: times.
    fn set_times(&mut self, place: Place, file: FileId, data: &[u8]) -> Result<(), Fault> {
        let data = padded(data, 22);
        let info = InfoStandard::read(&mut Reader::new(&data, "SMB_INFO_STANDARD"))?;
        let zone = self.state.config().zone;
        let basic = FileBasicInformation {
            creation_time: info.creation.to_file_time(zone),
            last_access_time: info.last_access.to_file_time(zone),
            last_write_time: info.last_write.to_file_time(zone),
            attributes: FileAttributes::default(),
            ..FileBasicInformation::default()
        };
        self.line
            .set(place, file, FileInfoClass::Basic, &basic_bytes(&basic))
    }

    /// Reads the new name of a file: in its folder, unless it is a path ([MS-SMB] 2.2.8.4, [MS-FSCC]
    /// 2.4.37.1). It is always UTF-16.
    fn new_name(&self, path: &Text, request: &Transaction) -> Result<(bool, Text), Fault> {
        let mut reader = Reader::new(&request.data, "FileRenameInformation");
        let replaces = reader.u8()? != 0;
        reader.skip(3)?;
        if reader.u32()? != 0 {
            return Err(NtStatus::NOT_SUPPORTED.into());
        }
        let length = usize::try_from(reader.u32()?).map_err(|_| INVALID_SMB)?;
        let name = Text::from_le_bytes(reader.bytes(length)?).ok_or(INVALID_SMB)?;
        let is_path = name.units().contains(&u16::from(b'\\'));
        let name = self.path(&Str::unicode(&name));
        Ok((
            replaces,
            match is_path {
                true => name,
                false => joined(&parent(path), &name),
            },
        ))
    }
}

/// Returns the rights that setting a level needs.
fn access_for(level: Level) -> AccessMask {
    let needs = |class: FileInfoClass| level == Level::passthrough(class.to_u8());
    if level == Level::SET_DISPOSITION
        || needs(FileInfoClass::Disposition)
        || needs(FileInfoClass::DispositionEx)
        || needs(FileInfoClass::Rename)
    {
        return AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
    }
    if matches!(level, Level::SET_ALLOCATION | Level::SET_END_OF_FILE)
        || needs(FileInfoClass::Allocation)
        || needs(FileInfoClass::EndOfFile)
    {
        return AccessMask::WRITE_DATA | AccessMask::READ_ATTRIBUTES;
    }
    AccessMask::WRITE_ATTRIBUTES | AccessMask::READ_ATTRIBUTES
}
