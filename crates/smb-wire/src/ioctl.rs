//! SMB2 IOCTL: file system and server controls ([MS-SMB2] 2.2.31, 2.2.32). What goes in and out is in [`super::fsctl`].

use super::body::pad_empty;
use super::fsctl::CtlCode;
use super::lengths::{len_u32, named, place};
use super::{FileId, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of IOCTL ([MS-SMB2] 2.2.31).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct IoctlFlags: u32 {
        /// The code is an FSCTL; without it the server refuses.
        const IS_FSCTL = 0x0000_0001;
        const _ = !0;
    }
}

/// Bytes of a request's fixed part.
const REQUEST_FIXED_LEN: usize = 56;

/// Bytes of a response's fixed part.
const RESPONSE_FIXED_LEN: usize = 48;

/// SMB2 IOCTL Request ([MS-SMB2] 2.2.31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlRequest<'a> {
    /// What to do.
    pub ctl_code: CtlCode,
    /// The open; [`FileId::RELATED`] for controls of the server as a whole ([MS-SMB2] 2.2.31).
    pub file_id: FileId,
    /// What the control takes.
    pub input: &'a [u8],
    /// Bytes of input that the response may repeat; 0 here.
    pub max_input_response: u32,
    /// Bytes of output that the response may carry.
    pub max_output_response: u32,
    /// Always `IS_FSCTL`.
    pub flags: IoctlFlags,
}

impl<'a> IoctlRequest<'a> {
    /// An FSCTL on an open.
    pub fn fsctl(ctl_code: CtlCode, file_id: FileId, input: &'a [u8], max_output_response: u32) -> Self {
        Self {
            ctl_code,
            file_id,
            input,
            max_input_response: 0,
            max_output_response,
            flags: IoctlFlags::IS_FSCTL,
        }
    }

    /// An FSCTL on the server or share as a whole.
    pub fn fsctl_without_file(ctl_code: CtlCode, input: &'a [u8], max_output_response: u32) -> Self {
        Self::fsctl(ctl_code, FileId::RELATED, input, max_output_response)
    }

    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, input outside the message.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 IOCTL Request");
        reader.structure_size(57)?;
        reader.skip(2)?;
        let ctl_code = CtlCode(reader.u32()?);
        let file_id = FileId::decode(&mut reader)?;
        let input_offset = place(reader.u32()?);
        let input_count = place(reader.u32()?);
        let max_input_response = reader.u32()?;
        // OutputOffset, OutputCount: no control sends output to the server.
        reader.skip(8)?;
        let max_output_response = reader.u32()?;
        let flags = IoctlFlags::from_bits_retain(reader.u32()?);
        reader.skip(4)?;
        let input = reader.slice(input_offset, input_count)?;
        Ok(Self {
            ctl_code,
            file_id,
            input,
            max_input_response,
            max_output_response,
            flags,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let buffer = w.position() + REQUEST_FIXED_LEN;
        w.u16(57);
        w.zeros(2);
        w.u32(self.ctl_code.0);
        self.file_id.encode(w);
        w.u32(if self.input.is_empty() { 0 } else { len_u32(buffer) });
        w.u32(len_u32(self.input.len()));
        w.u32(self.max_input_response);
        w.zeros(8);
        w.u32(self.max_output_response);
        w.u32(self.flags.bits());
        w.zeros(4);
        w.bytes(self.input);
        pad_empty(w, buffer);
    }
}

/// SMB2 IOCTL Response ([MS-SMB2] 2.2.32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlResponse<'a> {
    /// What was done.
    pub ctl_code: CtlCode,
    /// The open of the request.
    pub file_id: FileId,
    /// The request's input, if the server repeats it.
    pub input: &'a [u8],
    /// What the control gave.
    pub output: &'a [u8],
}

impl<'a> IoctlResponse<'a> {
    /// Reads the body. Also for the warning STATUS_BUFFER_OVERFLOW and the failed copies that answer with their limits
    /// ([MS-SMB2] 3.3.4.4), whose bodies are not error bodies.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation, buffers outside the message.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 IOCTL Response");
        reader.structure_size(49)?;
        reader.skip(2)?;
        let ctl_code = CtlCode(reader.u32()?);
        let file_id = FileId::decode(&mut reader)?;
        let input_offset = place(reader.u32()?);
        let input_count = place(reader.u32()?);
        let output_offset = place(reader.u32()?);
        let output_count = place(reader.u32()?);
        reader.skip(8)?;
        Ok(Self {
            ctl_code,
            file_id,
            input: reader.slice(input_offset, input_count)?,
            output: reader.slice(output_offset, output_count)?,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let buffer = w.position() + RESPONSE_FIXED_LEN;
        let output_offset = buffer + self.input.len().next_multiple_of(8);
        w.u16(49);
        w.zeros(2);
        w.u32(self.ctl_code.0);
        self.file_id.encode(w);
        w.u32(len_u32(buffer));
        w.u32(len_u32(self.input.len()));
        w.u32(if self.output.is_empty() {
            0
        } else {
            len_u32(output_offset)
        });
        w.u32(len_u32(self.output.len()));
        w.zeros(8);
        w.bytes(self.input);
        if !self.output.is_empty() {
            // The output is 8-byte aligned behind the input ([MS-SMB2] 2.2.32).
            w.zeros(output_offset - w.position());
            w.bytes(self.output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack_body, body, message};
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..100)
    }

    proptest! {
        #[test]
        fn round_trip(
            code: u32, persistent: u64, volatile: u64, limits: (u32, u32), input in bytes(), output in bytes(),
        ) {
            let file_id = FileId { persistent, volatile };
            let mut request = IoctlRequest::fsctl(CtlCode(code), file_id, &input, limits.0);
            request.max_input_response = limits.1;
            let sent = message(|w| request.encode(w));
            prop_assert!(sent.len() >= 64 + 57, "at least one byte of buffer");
            prop_assert_eq!(IoctlRequest::decode(&mut body(&sent)), Ok(request));
            let response = IoctlResponse { ctl_code: CtlCode(code), file_id, input: &input, output: &output };
            let sent = message(|w| response.encode(w));
            prop_assert_eq!(IoctlResponse::decode(&mut body(&sent)), Ok(response));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let request = IoctlRequest::fsctl_without_file(CtlCode::VALIDATE_NEGOTIATE_INFO, &[5; 30], 24);
        attack_body(&message(|w| request.encode(w)), |reader| {
            IoctlRequest::decode(reader).is_ok()
        });
        let response = IoctlResponse {
            ctl_code: CtlCode::SRV_COPYCHUNK,
            file_id: FileId::default(),
            input: &[1; 5],
            output: &[2; 12],
        };
        attack_body(&message(|w| response.encode(w)), |reader| {
            IoctlResponse::decode(reader).is_ok()
        });
    }
}
