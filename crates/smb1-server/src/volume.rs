//! TRANS2_QUERY_FS_INFORMATION ([MS-CIFS] 3.3.5.58.4).

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::info::{FileFsFullSizeInformation, FileFsVolumeInformation, FsInfoClass, Information};
use ropeway_smb_wire::{NtStatus, Reader, Text};
use ropeway_smb1::server::{Answer, Transaction};
use ropeway_smb1::wire::fs_info::{InfoAllocation, InfoVolume};
use ropeway_smb1::wire::trans2::{Level, to_bytes};

use crate::calls::{Open, Query};
use crate::conversation::Conversation;
use crate::line::{Fault, Place};

/// Longest structure in bytes: a label.
const VOLUME_MAX: usize = 1024;

impl Conversation {
    pub(crate) fn query_volume(&mut self, request: &Transaction) -> Result<Answer, Fault> {
        let place = self.disk(&request.header())?.place;
        let level = Level(Reader::new(&request.parameters, "Trans2_Parameters").u16()?);
        let data = match level {
            Level::FS_ALLOCATION => {
                let (total, available) = self.space(place)?;
                to_bytes(|w| InfoAllocation::of(total, available).write(w))
            }
            Level::FS_VOLUME_OLD => self.old_volume(request, place)?,
            Level::FS_VOLUME => self.volume(place, FsInfoClass::Volume.into())?,
            Level::FS_SIZE => self.volume(place, FsInfoClass::Size.into())?,
            Level::FS_DEVICE => self.volume(place, FsInfoClass::Device.into())?,
            Level::FS_ATTRIBUTE => self.volume(place, FsInfoClass::Attribute.into())?,
            level => {
                let class = level.class().ok_or(NtStatus::INVALID_LEVEL)?;
                self.volume(place, Query::Volume(class))?
            }
        };
        Ok(Answer {
            data,
            ..Answer::default()
        })
    }

    fn old_volume(&mut self, request: &Transaction, place: Place) -> Result<Vec<u8>, Fault> {
        let data = self.volume(place, FsInfoClass::Volume.into())?;
        let volume = FileFsVolumeInformation::decode(&data);
        let (serial_number, label) = match volume {
            Ok(volume) => (volume.volume_serial_number, volume.volume_label),
            Err(_) => (0, Text::default()),
        };
        let label = self.state.string(&label, request.is_unicode());
        let info = InfoVolume { serial_number, label };
        Ok(info.to_bytes())
    }

    fn volume(&mut self, place: Place, query: Query) -> Result<Vec<u8>, Fault> {
        let root = Open::existing(Text::default(), AccessMask::READ_ATTRIBUTES);
        self.line.with(place, root, |line, opened| {
            line.query(place, opened.id, query, VOLUME_MAX)
        })
    }

    /// Returns the bytes of a share's volume, and those that its user may use.
    pub(crate) fn space(&mut self, place: Place) -> Result<(u64, u64), Fault> {
        let data = self.volume(place, FsInfoClass::FullSize.into())?;
        let size = FileFsFullSizeInformation::decode(&data)
            .map_err(|_| Fault::End("a malformed response of the server"))?;
        let unit = size.unit_bytes().unwrap_or(0);
        let bytes = |units: u64| units.saturating_mul(unit);
        Ok((
            bytes(size.total_allocation_units),
            bytes(size.caller_available_allocation_units),
        ))
    }
}
