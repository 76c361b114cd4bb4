//! READ_ANDX, WRITE_ANDX, READ, WRITE, FLUSH and CLOSE ([MS-CIFS] 3.3.5.36, 3.3.5.37).

use ropeway_smb_wire::info::{FileBasicInformation, FileInfoClass, Information};
use ropeway_smb_wire::{NtStatus, Writer};
use ropeway_smb1::dos_error::status::INVALID_SMB;
use ropeway_smb1::dos_time::from_utime;
use ropeway_smb1::wire::close::{CloseRequest, decode_id, encode_empty};
use ropeway_smb1::wire::core_files::{OldIoWords, encode_read_response};
use ropeway_smb1::wire::negotiate::Capabilities;
use ropeway_smb1::wire::read::{ReadRequest, ReadResponse};
use ropeway_smb1::wire::write::{WriteMode, WriteRequest, WriteResponse};
use ropeway_smb1::{HEADER_LEN, write_block};

use crate::calls::IO_MAX;
use crate::conversation::{Call, Conversation, Done, Outcome, done};
use crate::line::Fault;
use crate::tables::File;

/// Longest read in bytes.
const READ_MAX: usize = 128 << 10;

/// `Available` of files.
const NOT_A_PIPE: u16 = 0xFFFF;

impl Conversation {
    pub(crate) fn read_andx(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = ReadRequest::decode(call.block)?;
        let file = self.file(&call.header, call.fid(request.fid))?;
        let client = self.state.client();
        let max = match client.capabilities.contains(Capabilities::LARGE_READX) {
            true => READ_MAX,
            false => usize::from(client.buffer_size) - HEADER_LEN - 32,
        };
        let count = (request.count as usize).min(max);
        let (data, status) = self.read(&file, request.offset, count)?;
        let available = if file.is_pipe { 0 } else { NOT_A_PIPE };
        Ok(Done {
            status,
            body: Box::new(move |w| {
                ReadResponse::encode_head(available, data.len(), w);
                w.bytes(&data);
            }),
        })
    }

    pub(crate) fn old_read(&mut self, call: &mut Call<'_>) -> Outcome {
        let words = OldIoWords::decode(call.block)?;
        let file = self.file(&call.header, words.fid)?;
        let max = usize::from(self.state.client().buffer_size) - HEADER_LEN - 32;
        let count = usize::from(words.count).min(max);
        let (data, status) = self.read(&file, u64::from(words.offset), count)?;
        Ok(Done {
            status,
            body: Box::new(move |w| encode_read_response(&data, w)),
        })
    }

    /// Reads until the file ends. Beyond its end there are no bytes, and no error.
    fn read(&mut self, file: &File, offset: u64, count: usize) -> Result<(Vec<u8>, NtStatus), Fault> {
        let mut data = Vec::new();
        loop {
            let at = offset.saturating_add(data.len() as u64);
            let wanted = (count - data.len()).min(IO_MAX);
            match self.line.read(file.place, file.id, at, wanted) {
                Ok((more, status)) => {
                    let is_short = more.len() < wanted;
                    data.extend(more);
                    if is_short || file.is_pipe || data.len() >= count {
                        return Ok((data, status));
                    }
                }
                Err(Fault::Status(NtStatus::END_OF_FILE)) => return Ok((data, NtStatus::SUCCESS)),
                Err(Fault::Status(_)) if !data.is_empty() => return Ok((data, NtStatus::SUCCESS)),
                Err(fault) => return Err(fault),
            }
        }
    }

    pub(crate) fn write_andx(&mut self, call: &mut Call<'_>) -> Outcome {
        let (request, data) = WriteRequest::decode(call.block)?;
        let file = self.file(&call.header, call.fid(request.fid))?;
        // A message to a pipe begins with its length, if the client says so.
        let prefixed = WriteMode::RAW_PIPE | WriteMode::MESSAGE_START;
        let data = match file.is_pipe && request.mode.contains(prefixed) {
            true => data.get(2..).ok_or(INVALID_SMB)?,
            false => data,
        };
        let through = request.mode.contains(WriteMode::WRITE_THROUGH) && !file.is_pipe;
        self.write(&file, request.offset, data, through)?;
        let response = WriteResponse {
            count: request.length as u32,
            available: if file.is_pipe { 0 } else { NOT_A_PIPE },
            ..WriteResponse::default()
        };
        done(move |w| response.encode(w))
    }

    pub(crate) fn old_write(&mut self, call: &mut Call<'_>) -> Outcome {
        let (words, data) = OldIoWords::decode_write(call.block)?;
        let file = self.file(&call.header, words.fid)?;
        let offset = u64::from(words.offset);
        if data.is_empty() && !file.is_pipe {
            // Such a write sets the length ([MS-CIFS] 2.2.4.12).
            let class = FileInfoClass::EndOfFile;
            self.line.set(file.place, file.id, class, &offset.to_le_bytes())?;
        } else {
            self.write(&file, offset, data, false)?;
        }
        let count = words.count;
        done(move |w| write_block(w, |w| w.u16(count), |_| {}))
    }

    fn write(&mut self, file: &File, offset: u64, data: &[u8], through: bool) -> Result<(), Fault> {
        let mut done = 0;
        while done < data.len() {
            let at = offset
                .checked_add(done as u64)
                .ok_or(NtStatus::INVALID_PARAMETER)?;
            let count = self.line.write(file.place, file.id, at, &data[done..], through)?;
            if count == 0 {
                return Err(NtStatus::DISK_FULL.into());
            }
            done += count;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self, call: &mut Call<'_>) -> Outcome {
        match decode_id(call.block)? {
            // All files of the client.
            u16::MAX => {
                self.tree(&call.header)?;
                let tid = call.header.tid;
                let files = self.tables.files.iter().map(|(_, file)| file.clone());
                let files: Vec<File> = files.filter(|file| file.tid == tid && !file.is_pipe).collect();
                for file in files {
                    match self.line.flush(file.place, file.id) {
                        // A file that is open for reading has nothing to flush.
                        Ok(()) | Err(Fault::Status(NtStatus::ACCESS_DENIED)) => {}
                        Err(fault) => return Err(fault),
                    }
                }
            }
            fid => {
                let file = self.file(&call.header, fid)?;
                self.line.flush(file.place, file.id)?;
            }
        }
        done(encode_empty)
    }

    pub(crate) fn close(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = CloseRequest::decode(call.block)?;
        let fid = call.fid(request.fid);
        let file = self.file(&call.header, fid)?;
        self.tables.files.remove(fid);
        if !file.is_pipe && !matches!(request.last_write_time, 0 | u32::MAX) {
            let basic = FileBasicInformation {
                last_write_time: from_utime(request.last_write_time, self.state.config().zone),
                ..FileBasicInformation::default()
            };
            let mut buffer = Vec::new();
            basic.encode(&mut Writer::new(&mut buffer));
            // A client that may not set it closes the file all the same, as with Samba.
            let set = self.line.set(file.place, file.id, FileInfoClass::Basic, &buffer);
            if let Err(Fault::End(reason)) = set {
                return Err(Fault::End(reason));
            }
        }
        self.line.close(file.place, file.id)?;
        done(encode_empty)
    }
}
