//! Attributes in the commands of old clients: QUERY_INFORMATION, SET_INFORMATION,
//! QUERY_INFORMATION2, SET_INFORMATION2, QUERY_INFORMATION_DISK.

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::info::{FileBasicInformation, FileInfoClass, FileNetworkOpenInformation, Information};
use ropeway_smb_wire::{FileAttributes, Writer};
use ropeway_smb1::dos_time::{DosTime, from_utime, utime};
use ropeway_smb1::wire::close::{decode_id, encode_empty};
use ropeway_smb1::wire::old_info::{
    DiskResponse, QueryInformation2Response, QueryInformationResponse, SetInformation2Request,
    SetInformationRequest,
};
use ropeway_smb1::wire::path::PathRequest;
use ropeway_smb1::write_block;

use crate::calls::Open;
use crate::conversation::{Call, Conversation, Outcome, done};
use crate::line::Fault;
use crate::tables::File;

/// Bytes of `FileNetworkOpenInformation`.
const NETWORK_OPEN_LEN: usize = 56;

impl Conversation {
    pub(crate) fn query_information(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = PathRequest::decode(call.block, call.is_unicode())?;
        let place = self.disk(&call.header)?.place;
        let open = Open::existing(self.path(&request.path), AccessMask::READ_ATTRIBUTES);
        let opened = self.line.with(place, open, |_, opened| Ok(*opened))?;
        let response = QueryInformationResponse {
            file_attributes: opened.attributes.bits() as u16,
            last_write_time: utime(opened.last_write_time, self.state.config().zone),
            file_size: opened.end_of_file as u32,
            ..QueryInformationResponse::default()
        };
        done(move |w| write_block(w, |w| response.write(w), |_| {}))
    }

    pub(crate) fn set_information(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = SetInformationRequest::decode(call.block, call.is_unicode())?;
        let place = self.disk(&call.header)?.place;
        let open = Open::existing(self.path(&request.path), AccessMask::WRITE_ATTRIBUTES);
        let attributes = FileAttributes::from_bits_retain(u32::from(request.words.file_attributes));
        let basic = FileBasicInformation {
            last_write_time: from_utime(request.words.last_write_time, self.state.config().zone),
            // No attributes at all, which 0 does not say on the line.
            attributes: match attributes.is_empty() {
                true => FileAttributes::NORMAL,
                false => attributes - FileAttributes::DIRECTORY,
            },
            ..FileBasicInformation::default()
        };
        let buffer = basic_bytes(&basic);
        self.line.with(place, open, |line, opened| {
            line.set(place, opened.id, FileInfoClass::Basic, &buffer)
        })?;
        done(encode_empty)
    }

    pub(crate) fn query_information2(&mut self, call: &mut Call<'_>) -> Outcome {
        let file = self.file(&call.header, decode_id(call.block)?)?;
        let info = self.network_open(&file)?;
        let zone = self.state.config().zone;
        let response = QueryInformation2Response {
            creation: DosTime::of(info.creation_time, zone),
            last_access: DosTime::of(info.last_access_time, zone),
            last_write: DosTime::of(info.last_write_time, zone),
            file_size: info.end_of_file as u32,
            allocation_size: info.allocation_size as u32,
            file_attributes: info.attributes.bits() as u16,
        };
        done(move |w| write_block(w, |w| response.write(w), |_| {}))
    }

    pub(crate) fn set_information2(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = SetInformation2Request::read(&mut call.block.words_exactly(7)?)?;
        let file = self.file(&call.header, request.fid)?;
        let zone = self.state.config().zone;
        let basic = FileBasicInformation {
            creation_time: request.creation.to_file_time(zone),
            last_access_time: request.last_access.to_file_time(zone),
            last_write_time: request.last_write.to_file_time(zone),
            ..FileBasicInformation::default()
        };
        let buffer = basic_bytes(&basic);
        self.line
            .set(file.place, file.id, FileInfoClass::Basic, &buffer)?;
        done(encode_empty)
    }

    pub(crate) fn query_information_disk(&mut self, call: &mut Call<'_>) -> Outcome {
        let place = self.disk(&call.header)?.place;
        let (total, available) = self.space(place)?;
        let response = DiskResponse::of(total, available);
        done(move |w| write_block(w, |w| response.write(w), |_| {}))
    }

    /// Returns times, sizes and attributes of an open file.
    pub(crate) fn network_open(&mut self, file: &File) -> Result<FileNetworkOpenInformation, Fault> {
        let class = FileInfoClass::NetworkOpen;
        let data = self.line.query(file.place, file.id, class, NETWORK_OPEN_LEN)?;
        let info = FileNetworkOpenInformation::decode(&data);
        info.map_err(|_| Fault::End("a malformed response of the server"))
    }
}

/// Returns the structure for the line.
pub(crate) fn basic_bytes(basic: &FileBasicInformation) -> Vec<u8> {
    let mut buffer = Vec::new();
    basic.encode(&mut Writer::new(&mut buffer));
    buffer
}
