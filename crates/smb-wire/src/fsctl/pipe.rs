//! Named pipes ([MS-FSCC] 2.3.49). PIPE_TRANSCEIVE has no structure: its input is written to the pipe, its output is
//! what was read.

use crate::lengths::{len_u32, place};
use crate::{Fault, Reader, Result, Text, Writer};

/// FSCTL_PIPE_WAIT Request ([MS-FSCC] 2.3.49): until the pipe can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeWait {
    /// How long, in the wire's units (the specification says 100 milliseconds); `None`: for ever.
    pub timeout: Option<i64>,
    /// The pipe, without `\pipe\`.
    pub name: Text,
}

impl PipeWait {
    /// Reads the IOCTL's input.
    ///
    /// # Errors
    /// Truncation, a name with half a unit.
    pub fn decode(input: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(input, "FSCTL_PIPE_WAIT Request");
        let timeout = i64::from_le_bytes(reader.array()?);
        let name_length = place(reader.u32()?);
        let specified = reader.u8()? != 0;
        reader.skip(1)?;
        let name = reader.bytes(name_length)?;
        Ok(Self {
            timeout: specified.then_some(timeout),
            name: Text::from_le_bytes(name).ok_or(reader.fault(Fault::Value))?,
        })
    }

    /// Appends the IOCTL's input.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.timeout.unwrap_or_default().to_le_bytes());
        w.u32(len_u32(self.name.wire_len()));
        w.u8(u8::from(self.timeout.is_some()));
        w.u8(0);
        self.name.write(w);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(timeout: Option<i64>, units in proptest::collection::vec(any::<u16>(), 0..20)) {
            let wait = PipeWait { timeout, name: Text::from_units(units) };
            prop_assert_eq!(PipeWait::decode(&structure(|w| wait.encode(w))), Ok(wait));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let wait = PipeWait {
            timeout: Some(50),
            name: "srvsvc".into(),
        };
        attack(&structure(|w| wait.encode(w)), 0, |bytes| {
            PipeWait::decode(bytes).is_ok()
        });
    }
}
