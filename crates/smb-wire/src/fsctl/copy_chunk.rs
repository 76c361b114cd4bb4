//! Copies inside the server ([MS-SMB2] 2.2.31.1, 2.2.32.1, 2.2.32.3).

use crate::lengths::{len_u32, place};
use crate::{Fault, Reader, Result, Writer};

/// What the server calls an open that is the source of copies; its content is the server's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeKey(pub [u8; 24]);

/// SRV_REQUEST_RESUME_KEY Response ([MS-SMB2] 2.2.32.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeKeyResponse {
    /// The key of the open that was asked.
    pub resume_key: ResumeKey,
}

impl ResumeKeyResponse {
    /// Reads the IOCTL's output. `ContextLength` is to be ignored and so is the context.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(output: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(output, "SRV_REQUEST_RESUME_KEY Response");
        let resume_key = ResumeKey(reader.array()?);
        Ok(Self { resume_key })
    }

    /// Appends the IOCTL's output: key, `ContextLength` of 0, and 4 bytes that Windows servers send too.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.resume_key.0);
        w.zeros(8);
    }
}

/// SRV_COPYCHUNK ([MS-SMB2] 2.2.31.1.1): one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// First byte in the source.
    pub source_offset: u64,
    /// First byte in the target.
    pub target_offset: u64,
    /// Bytes; more than 0.
    pub length: u32,
}

/// Bytes of one chunk.
const CHUNK_LEN: usize = 24;

/// SRV_COPYCHUNK_COPY ([MS-SMB2] 2.2.31.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyChunkRequest {
    /// Whence.
    pub source_key: ResumeKey,
    /// What, whither. Servers bound their number and size; the response to a request beyond tells the bounds.
    pub chunks: Vec<Chunk>,
}

impl CopyChunkRequest {
    /// Reads the IOCTL's input.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(input: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(input, "SRV_COPYCHUNK_COPY");
        let source_key = ResumeKey(reader.array()?);
        let count = place(reader.u32()?);
        reader.skip(4)?;
        if reader.remaining() / CHUNK_LEN < count {
            return Err(reader.fault(Fault::Truncated));
        }
        let chunks = (0..count)
            .map(|_| {
                let chunk = Chunk {
                    source_offset: reader.u64()?,
                    target_offset: reader.u64()?,
                    length: reader.u32()?,
                };
                reader.skip(4)?;
                Ok(chunk)
            })
            .collect::<Result<_>>()?;
        Ok(Self { source_key, chunks })
    }

    /// Appends the IOCTL's input.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.source_key.0);
        w.u32(len_u32(self.chunks.len()));
        w.u32(0);
        for chunk in &self.chunks {
            w.u64(chunk.source_offset);
            w.u64(chunk.target_offset);
            w.u32(chunk.length);
            w.u32(0);
        }
    }
}

/// SRV_COPYCHUNK_RESPONSE ([MS-SMB2] 2.2.32.1). With STATUS_INVALID_PARAMETER the same three fields are the server's
/// bounds: chunks, bytes of a chunk, bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyChunkResponse {
    /// Chunks written whole; or the most chunks of a request.
    pub chunks_written: u32,
    /// Bytes written of a chunk that was not written whole; or the most bytes of a chunk.
    pub chunk_bytes_written: u32,
    /// Bytes written in all; or the most bytes of a request.
    pub total_bytes_written: u32,
}

impl CopyChunkResponse {
    /// Reads the IOCTL's output.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(output: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(output, "SRV_COPYCHUNK_RESPONSE");
        Ok(Self {
            chunks_written: reader.u32()?,
            chunk_bytes_written: reader.u32()?,
            total_bytes_written: reader.u32()?,
        })
    }

    /// Appends the IOCTL's output.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.chunks_written);
        w.u32(self.chunk_bytes_written);
        w.u32(self.total_bytes_written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            key: [u8; 24], chunks in proptest::collection::vec(any::<(u64, u64, u32)>(), 0..20), numbers: [u32; 3],
        ) {
            let response = ResumeKeyResponse { resume_key: ResumeKey(key) };
            let bytes = structure(|w| response.encode(w));
            prop_assert_eq!(bytes.len(), 32);
            prop_assert_eq!(ResumeKeyResponse::decode(&bytes), Ok(response));
            let request = CopyChunkRequest {
                source_key: ResumeKey(key),
                chunks: chunks
                    .into_iter()
                    .map(|(source_offset, target_offset, length)| Chunk { source_offset, target_offset, length })
                    .collect(),
            };
            let bytes = structure(|w| request.encode(w));
            prop_assert_eq!(bytes.len(), 32 + 24 * request.chunks.len());
            prop_assert_eq!(CopyChunkRequest::decode(&bytes), Ok(request));
            let response = CopyChunkResponse {
                chunks_written: numbers[0],
                chunk_bytes_written: numbers[1],
                total_bytes_written: numbers[2],
            };
            prop_assert_eq!(CopyChunkResponse::decode(&structure(|w| response.encode(w))), Ok(response));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let chunk = Chunk {
            source_offset: 1,
            target_offset: 2,
            length: 3,
        };
        let request = CopyChunkRequest {
            source_key: ResumeKey([7; 24]),
            chunks: vec![chunk; 3],
        };
        let bytes = structure(|w| request.encode(w));
        attack(&bytes, 0, |bytes| {
            (
                CopyChunkRequest::decode(bytes).is_ok(),
                CopyChunkResponse::decode(bytes).is_ok(),
                ResumeKeyResponse::decode(bytes).is_ok(),
            )
        });
    }
}
