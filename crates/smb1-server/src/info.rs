//! TRANS2_QUERY_PATH_INFORMATION and TRANS2_QUERY_FILE_INFORMATION ([MS-CIFS] 3.3.5.58.5, 3.3.5.58.6).

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::info::{FileAllInformation, FileInfoClass, Information};
use ropeway_smb_wire::{FileId, NtStatus, Reader, Text, Writer};
use ropeway_smb1::dos_time::DosTime;
use ropeway_smb1::server::{Answer, Transaction};
use ropeway_smb1::wire::file_info::{AllInfo, AllWords, InfoStandard};
use ropeway_smb1::wire::trans2::{Level, PathLevel, QueryFile, to_bytes};

use crate::calls::{IO_MAX, Open, Query};
use crate::conversation::Conversation;
use crate::line::{Fault, Place};

/// Bytes of an empty list of extended attributes: its own length.
const EAS_NONE: [u8; 4] = 4_u32.to_le_bytes();

/// An open file, with its path in the share.
#[derive(Clone, Copy)]
struct Subject<'a> {
    place: Place,
    id: FileId,
    path: &'a Text,
    is_unicode: bool,
}

impl Conversation {
    pub(crate) fn query_path(&mut self, request: &Transaction) -> Result<Answer, Fault> {
        let is_unicode = request.is_unicode();
        let asked = PathLevel::decode(&request.parameters, is_unicode)?;
        let place = self.disk(&request.header())?.place;
        let path = self.path(&asked.path);
        let open = Open::existing(path.clone(), AccessMask::READ_ATTRIBUTES);
        let opened = self.line.create(place, open)?;
        let subject = Subject {
            place,
            id: opened.id,
            path: &path,
            is_unicode,
        };
        let outcome = self.level(subject, asked.level);
        self.line.close(place, opened.id)?;
        Ok(answer(outcome?))
    }

    pub(crate) fn query_file(&mut self, request: &Transaction) -> Result<Answer, Fault> {
        let asked = QueryFile::read(&mut Reader::new(&request.parameters, "Trans2_Parameters"))?;
        let file = self.file(&request.header(), asked.fid)?;
        let subject = Subject {
            place: file.place,
            id: file.id,
            path: &file.path,
            is_unicode: request.is_unicode(),
        };
        Ok(answer(self.level(subject, asked.level)?))
    }

    /// Returns the data of an information level.
    fn level(&mut self, subject: Subject<'_>, level: Level) -> Result<Vec<u8>, Fault> {
        let class = match level {
            Level::STANDARD | Level::EA_SIZE => return self.standard(subject, level),
            Level::IS_NAME_VALID => return Ok(Vec::new()),
            // Extended attributes are not shown.
            Level::EAS_FROM_LIST | Level::ALL_EAS => return Ok(EAS_NONE.to_vec()),
            Level::NAME => return Ok(self.name(subject)),
            Level::ALL => return self.all(subject),
            Level::BASIC => FileInfoClass::Basic,
            Level::FILE_STANDARD => FileInfoClass::Standard,
            Level::EA => FileInfoClass::Ea,
            Level::ALT_NAME => FileInfoClass::AlternateName,
            Level::STREAM => FileInfoClass::Stream,
            Level::COMPRESSION => FileInfoClass::Compression,
            level => {
                let class = level.class().ok_or(NtStatus::INVALID_LEVEL)?;
                if class == FileInfoClass::Name.to_u8() {
                    return Ok(self.name(subject));
                }
                return self
                    .line
                    .query(subject.place, subject.id, Query::File(class), IO_MAX);
            }
        };
        self.line.query(subject.place, subject.id, class, IO_MAX)
    }

    fn information(&mut self, subject: Subject<'_>) -> Result<FileAllInformation, Fault> {
        let class = FileInfoClass::All;
        let data = self.line.query(subject.place, subject.id, class, IO_MAX)?;
        FileAllInformation::decode(&data).map_err(|_| Fault::End("a malformed response of the server"))
    }

    fn standard(&mut self, subject: Subject<'_>, level: Level) -> Result<Vec<u8>, Fault> {
        let all = self.information(subject)?;
        let zone = self.state.config().zone;
        let info = InfoStandard {
            creation: DosTime::of(all.basic.creation_time, zone),
            last_access: DosTime::of(all.basic.last_access_time, zone),
            last_write: DosTime::of(all.basic.last_write_time, zone),
            file_size: all.standard.end_of_file as u32,
            allocation_size: all.standard.allocation_size as u32,
            file_attributes: all.basic.attributes.bits() as u16,
        };
        Ok(to_bytes(|w| {
            info.write(w);
            if level == Level::EA_SIZE {
                w.u32(all.ea.ea_size);
            }
        }))
    }

    fn all(&mut self, subject: Subject<'_>) -> Result<Vec<u8>, Fault> {
        let all = self.information(subject)?;
        let name = self.state.string(&shown(subject.path), subject.is_unicode);
        let words = AllWords {
            creation_time: all.basic.creation_time,
            last_access_time: all.basic.last_access_time,
            last_write_time: all.basic.last_write_time,
            change_time: all.basic.change_time,
            file_attributes: all.basic.attributes.bits(),
            allocation_size: all.standard.allocation_size,
            end_of_file: all.standard.end_of_file,
            number_of_links: all.standard.number_of_links,
            delete_pending: all.standard.delete_pending,
            is_directory: all.standard.directory,
            ea_size: all.ea.ea_size,
            ..AllWords::default()
        };
        Ok(AllInfo { words, name }.to_bytes())
    }

    fn name(&self, subject: Subject<'_>) -> Vec<u8> {
        let name = self.state.string(&shown(subject.path), subject.is_unicode);
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        w.u32(name.as_bytes().len() as u32);
        w.bytes(name.as_bytes());
        out
    }
}

/// Returns a path with a separator in front.
fn shown(path: &Text) -> Text {
    let mut units = vec![u16::from(b'\\')];
    units.extend(path.units());
    Text::from_units(units)
}

fn answer(data: Vec<u8>) -> Answer {
    Answer {
        setup: Vec::new(),
        // The offset of an extended attribute that is wrong.
        parameters: vec![0; 2],
        data,
    }
}
