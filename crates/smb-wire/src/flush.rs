//! SMB2 FLUSH: everything written to an open goes to stable storage ([MS-SMB2] 2.2.17, 2.2.18).

pub use super::bare::FlushResponse;
use super::lengths::named;
use super::{FileId, Reader, Result, Writer};

/// SMB2 FLUSH Request ([MS-SMB2] 2.2.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushRequest {
    /// The open whose data is to be stable.
    pub file_id: FileId,
}

impl FlushRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// A wrong `StructureSize`, truncation.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 FLUSH Request");
        reader.structure_size(24)?;
        reader.skip(6)?;
        let file_id = FileId::decode(&mut reader)?;
        Ok(Self { file_id })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(24);
        w.zeros(6);
        self.file_id.encode(w);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack_body, body, message};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(persistent: u64, volatile: u64) {
            let request = FlushRequest { file_id: FileId { persistent, volatile } };
            let bytes = message(|w| request.encode(w));
            prop_assert_eq!(bytes.len(), 64 + 24);
            prop_assert_eq!(FlushRequest::decode(&mut body(&bytes)), Ok(request));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let bytes = message(|w| FlushResponse.encode(w));
        assert_eq!(FlushResponse::decode(&mut body(&bytes)), Ok(FlushResponse));
        attack_body(&bytes, |reader| FlushResponse::decode(reader).is_ok());
        let bytes = message(|w| {
            FlushRequest {
                file_id: FileId::RELATED,
            }
            .encode(w)
        });
        attack_body(&bytes, |reader| FlushRequest::decode(reader).is_ok());
    }
}
