//! The create context in which this project's client and server agree on private controls
//! ([`crate::fsctl::private`]; docs/adr/0033).
//!
//! Its name is the GUID FDCCB8BC-1B89-477E-9C3A-F8CA65D79E0F. Servers and clients ignore contexts
//! that they do not know ([MS-SMB2] 3.3.5.9, 3.2.5.7), so others see no difference.

use crate::fsctl::private::PrivateOperations;
use crate::{Reader, Result, Writer};

/// The context of a request: asks which private controls the share supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateQuery {
    /// Highest version of the controls that the client understands.
    pub version: u16,
}

impl PrivateQuery {
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "private controls query");
        let version = reader.u16()?;
        reader.skip(6)?;
        Ok(Self { version })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.version);
        w.zeros(6);
    }
}

/// The context of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateReply {
    /// Version that both understand.
    pub version: u16,
    /// Operations that the share supports.
    pub operations: PrivateOperations,
}

impl PrivateReply {
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "private controls reply");
        let version = reader.u16()?;
        reader.skip(6)?;
        Ok(Self {
            version,
            operations: PrivateOperations::from_bits_retain(reader.u64()?),
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.version);
        w.zeros(6);
        w.u64(self.operations.bits());
    }
}
