//! The ERROR response: instead of any other when the status says so ([MS-SMB2] 2.2.2, 3.3.4.4).
//!
//! Most carry nothing. Three carry data: where a symbolic link leads, how large a buffer has to be, and where a share
//! has moved. In 3.1.1 the data is wrapped in error contexts, but not by every server, so both forms are read.

use super::codes::codes;
use super::cursor::{Fault, Reader, Result, Writer};
use super::lengths::{len_u16, len_u32, named, place};
use super::text::Text;
use bitflags::bitflags;

codes! {
    /// `ErrorId` ([MS-SMB2] 2.2.2.1).
    pub struct ErrorId(u32) {
        /// What the status calls for.
        DEFAULT = 0x0000_0000;
        /// The share has moved ([MS-SMB2] 2.2.2.2.2).
        SHARE_REDIRECT = 0x7264_5253;
    }
}

/// One error context ([MS-SMB2] 2.2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorContext<'a> {
    /// What the data is.
    pub error_id: ErrorId,
    /// The data.
    pub data: &'a [u8],
}

/// The ERROR response ([MS-SMB2] 2.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorResponse<'a> {
    /// Data as the status calls for, mostly none.
    Plain(&'a [u8]),
    /// At least one context; 3.1.1 only.
    Contexts(Vec<ErrorContext<'a>>),
}

impl<'a> ErrorResponse<'a> {
    /// Without data.
    pub const EMPTY: Self = Self::Plain(&[]);

    /// Reads a response.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 ERROR Response");
        reader.structure_size(9)?;
        let count = reader.u8()?;
        reader.skip(1)?;
        let byte_count = place(reader.u32()?);
        let start = reader.position();
        let data = reader.bytes(byte_count)?;
        if count == 0 {
            return Ok(Self::Plain(data));
        }
        let end = reader.position();
        let message = reader.message().get(..end).unwrap_or_default();
        let mut list = Reader::at(message, start, "SMB2 ERROR Context");
        let mut contexts = Vec::new();
        for index in 0..count {
            if index > 0 {
                let padding = list.position().next_multiple_of(8) - list.position();
                list.skip(padding)?;
            }
            let length = place(list.u32()?);
            contexts.push(ErrorContext {
                error_id: ErrorId(list.u32()?),
                data: list.bytes(length)?,
            });
        }
        Ok(Self::Contexts(contexts))
    }

    /// Appends a response.
    ///
    /// # Panics
    /// If there are 0 or more than 255 contexts.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(9);
        let count = match self {
            Self::Plain(_) => 0,
            Self::Contexts(contexts) => {
                assert!(!contexts.is_empty(), "no contexts are no data");
                u8::try_from(contexts.len()).expect("a byte counts the contexts")
            }
        };
        w.u8(count);
        w.u8(0);
        let count_at = w.position();
        w.u32(0);
        let start = w.position();
        match self {
            Self::Plain(data) => w.bytes(data),
            Self::Contexts(contexts) => {
                for context in contexts {
                    w.align(8);
                    w.u32(len_u32(context.data.len()));
                    w.u32(context.error_id.0);
                    w.bytes(context.data);
                }
            }
        }
        let length = w.position() - start;
        w.patch_u32(count_at, len_u32(length));
        if length == 0 {
            // The byte that StructureSize 9 counts; Windows sends it and old clients insist.
            w.u8(0);
        }
    }

    /// The data that the status calls for, wherever it lies.
    pub fn data(&self) -> Option<&'a [u8]> {
        match self {
            Self::Plain([]) => None,
            Self::Plain(data) => Some(data),
            Self::Contexts(contexts) => contexts
                .iter()
                .find(|context| context.error_id == ErrorId::DEFAULT)
                .map(|context| context.data),
        }
    }

    /// With STATUS_BUFFER_TOO_SMALL: the least length that would do, in bytes ([MS-SMB2] 2.2.2.2). `None` if the server
    /// does not say.
    pub fn required_len(&self) -> Option<u32> {
        self.data()?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// With STATUS_STOPPED_ON_SYMLINK: the link. `None` if the server does not say (macOS), and it has to be read by
    /// FSCTL_GET_REPARSE_POINT.
    ///
    /// # Errors
    /// [`Fault`], positions counted from the data's start.
    pub fn symlink(&self) -> Result<Option<SymlinkError>> {
        self.data().map(SymlinkError::decode).transpose()
    }

    /// The opaque Share Redirect Error Context ([MS-SMB2] 2.2.2.2.2).
    pub fn share_redirect(&self) -> Option<&'a [u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Contexts(contexts) => contexts
                .iter()
                .find(|context| context.error_id == ErrorId::SHARE_REDIRECT)
                .map(|context| context.data),
        }
    }
}

bitflags! {
    /// `Flags` of a symbolic link ([MS-SMB2] 2.2.2.2.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SymlinkFlags: u32 {
        /// The target is relative to the folder that holds the link.
        const RELATIVE = 0x0000_0001;
        const _ = !0;
    }
}

/// A symbolic link in the path of a CREATE, which the client must follow ([MS-SMB2] 2.2.2.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkError {
    /// How much of the path, at its end, was not looked at yet; in bytes.
    pub unparsed_path_len: u16,
    /// Where the link leads.
    pub substitute_name: Text,
    /// The same for users' eyes.
    pub print_name: Text,
    /// Flags.
    pub flags: SymlinkFlags,
}

impl SymlinkError {
    /// `SymLinkErrorTag`, "SYML" ([MS-SMB2] 2.2.2.2.1).
    const TAG: u32 = 0x4C4D_5953;
    /// IO_REPARSE_TAG_SYMLINK ([MS-FSCC] 2.1.2.1).
    const REPARSE_TAG: u32 = 0xA000_000C;
    /// What ReparseDataLength counts before the names ([MS-SMB2] 2.2.2.2.1).
    const REPARSE_FIXED_LEN: usize = 12;

    /// Reads the data of an error.
    ///
    /// # Errors
    /// [`Fault`], positions counted from the data's start.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "Symbolic Link Error Response");
        // SymLinkLength says again what the response's length says.
        reader.skip(4)?;
        let fault = reader.fault(Fault::Signature);
        if reader.u32()? != Self::TAG || reader.u32()? != Self::REPARSE_TAG {
            return Err(fault);
        }
        // ReparseDataLength, likewise.
        reader.skip(2)?;
        let unparsed_path_len = reader.u16()?;
        let substitute = (reader.u16()?, reader.u16()?);
        let print = (reader.u16()?, reader.u16()?);
        let flags = SymlinkFlags::from_bits_retain(reader.u32()?);
        let start = reader.position();
        let name = |(offset, length): (u16, u16)| {
            let bytes = reader.slice(start + usize::from(offset), usize::from(length))?;
            Text::from_le_bytes(bytes).ok_or(reader.fault(Fault::Value))
        };
        Ok(Self {
            unparsed_path_len,
            substitute_name: name(substitute)?,
            print_name: name(print)?,
            flags,
        })
    }

    /// Appends the data of an error.
    ///
    /// # Panics
    /// If the names are longer than 65,523 bytes together.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let substitute_len = self.substitute_name.wire_len();
        let print_len = self.print_name.wire_len();
        let reparse_len = Self::REPARSE_FIXED_LEN + substitute_len + print_len;
        // Tag, reparse tag, two lengths.
        w.u32(len_u32(12 + reparse_len));
        w.u32(Self::TAG);
        w.u32(Self::REPARSE_TAG);
        w.u16(len_u16(reparse_len));
        w.u16(self.unparsed_path_len);
        w.u16(0);
        w.u16(len_u16(substitute_len));
        w.u16(len_u16(substitute_len));
        w.u16(len_u16(print_len));
        w.u32(self.flags.bits());
        self.substitute_name.write(w);
        self.print_name.write(w);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::HEADER_LEN;
    use crate::hostile;
    use proptest::prelude::*;

    fn link() -> SymlinkError {
        SymlinkError {
            unparsed_path_len: 10,
            substitute_name: r"\??\C:\t".into(),
            print_name: r"C:\t".into(),
            flags: SymlinkFlags::default(),
        }
    }

    /// Lengths as in the examples of [MS-SMB2] 2.2.2.2.1.1.
    #[test]
    fn a_known_symbolic_link() {
        let data = b"\x30\0\0\0SYML\x0C\0\0\xA0\x24\0\x0A\0\0\0\x10\0\x10\0\x08\0\0\0\0\0\
            \\\0?\0?\0\\\0C\0:\0\\\0t\0C\0:\0\\\0t\0";
        assert_eq!(SymlinkError::decode(data), Ok(link()));
        assert_eq!(hostile::structure(|w| link().encode(w)), data);
    }

    #[test]
    fn an_empty_error_is_nine_bytes() {
        let bytes = hostile::message(|w| ErrorResponse::EMPTY.encode(w));
        assert_eq!(bytes[HEADER_LEN..], [9, 0, 0, 0, 0, 0, 0, 0, 0]);
        for length in [HEADER_LEN + 8, HEADER_LEN + 9] {
            let error = ErrorResponse::decode(&mut hostile::body(&bytes[..length])).unwrap();
            assert_eq!(error, ErrorResponse::EMPTY);
            assert_eq!((error.symlink(), error.required_len()), (Ok(None), None));
        }
    }

    #[test]
    fn data_lies_plain_or_in_a_context() {
        let data = hostile::structure(|w| link().encode(w));
        let contexts = vec![
            ErrorContext {
                error_id: ErrorId::SHARE_REDIRECT,
                data: b"moved",
            },
            ErrorContext {
                error_id: ErrorId::DEFAULT,
                data: &data,
            },
        ];
        let both = [ErrorResponse::Plain(&data), ErrorResponse::Contexts(contexts)];
        for error in &both {
            let bytes = hostile::message(|w| error.encode(w));
            let decoded = ErrorResponse::decode(&mut hostile::body(&bytes)).unwrap();
            assert_eq!(&decoded, error);
            assert_eq!(decoded.symlink(), Ok(Some(link())));
            hostile::attack_body(&bytes, |reader| {
                if let Ok(error) = ErrorResponse::decode(reader) {
                    let _ = (error.symlink(), error.required_len(), error.share_redirect());
                }
            });
        }
        assert_eq!(both[1].share_redirect(), Some(&b"moved"[..]));
        assert_eq!(
            ErrorResponse::Plain(&[0x10, 0x27, 0, 0]).required_len(),
            Some(10_000)
        );
    }

    proptest! {
        #[test]
        fn errors_round_trip(parts in prop::collection::vec((any::<u32>(), any::<Vec<u8>>()), 0..5)) {
            let error = match &parts[..] {
                [] => ErrorResponse::EMPTY,
                [(_, data)] => ErrorResponse::Plain(data),
                parts => ErrorResponse::Contexts(
                    parts.iter().map(|(id, data)| ErrorContext { error_id: ErrorId(*id), data }).collect(),
                ),
            };
            let bytes = hostile::message(|w| error.encode(w));
            prop_assert_eq!(ErrorResponse::decode(&mut hostile::body(&bytes)), Ok(error));
        }

        #[test]
        fn links_round_trip(unparsed: u16, substitute: Vec<u16>, print: Vec<u16>, flags: u32) {
            let link = SymlinkError {
                unparsed_path_len: unparsed,
                substitute_name: Text::from_units(substitute),
                print_name: Text::from_units(print),
                flags: SymlinkFlags::from_bits_retain(flags),
            };
            let data = hostile::structure(|w| link.encode(w));
            prop_assert_eq!(SymlinkError::decode(&data), Ok(link));
        }
    }
}
