//! Identifiers on the wire, each with its own type, so that the compiler tells them apart.

use std::fmt;

use super::{Reader, Result, Writer};

macro_rules! id {
    ($(#[$outer:meta])* $name:ident($int:ty)) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

id! {
    /// Sequence number of a request in its connection ([MS-SMB2] 2.2.1.2).
    MessageId(u64)
}
id! {
    /// Id of an authenticated session ([MS-SMB2] 2.2.1.2); 0 before there is one.
    SessionId(u64)
}
id! {
    /// Id of a connected share within a session ([MS-SMB2] 2.2.1.2).
    TreeId(u32)
}
id! {
    /// Id of a request that the server answers later ([MS-SMB2] 2.2.1.1).
    AsyncId(u64)
}

impl MessageId {
    /// Id of messages that the server sends on its own: oplock and lease breaks ([MS-SMB2] 2.2.23).
    pub const UNSOLICITED: Self = Self(u64::MAX);
}

impl SessionId {
    /// In a related request of a compound: the session of the preceding request
    /// ([MS-SMB2] 3.2.4.1.4).
    pub const RELATED: Self = Self(u64::MAX);
}

impl TreeId {
    /// In a related request of a compound: the tree of the preceding request ([MS-SMB2] 3.2.4.1.4).
    pub const RELATED: Self = Self(u32::MAX);
}

/// Id of an open ([MS-SMB2] 2.2.14.1).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Part that survives the reconnect of a durable open.
    pub persistent: u64,
    /// Part that is unique on the server at any time.
    pub volatile: u64,
}

impl FileId {
    /// In a related request of a compound: the file that the preceding request opened
    /// ([MS-SMB2] 3.2.4.1.4).
    pub const RELATED: Self = Self {
        persistent: u64::MAX,
        volatile: u64::MAX,
    };

    /// Length on the wire in bytes.
    pub const LEN: usize = 16;

    /// Reads 16 bytes.
    ///
    /// # Errors
    /// [`super::DecodeErrorKind::Truncated`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            persistent: reader.u64()?,
            volatile: reader.u64()?,
        })
    }

    /// Appends 16 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.persistent);
        w.u64(self.volatile);
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId({:#x}:{:#x})", self.persistent, self.volatile)
    }
}

/// A GUID in wire order ([MS-DTYP] 2.3.4.2) of a client, a server or a create ([MS-SMB2]
/// `ClientGuid`, `ServerGuid`, `CreateGuid`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    /// Formats the GUID as usual: the first three groups are little-endian numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in [
            3, 2, 1, 0, 16, 5, 4, 16, 7, 6, 16, 8, 9, 16, 10, 11, 12, 13, 14, 15,
        ] {
            match self.0.get(place) {
                Some(byte) => write!(f, "{byte:02x}")?,
                None => f.write_str("-")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// Client's identifier of a lease, unique together with its `ClientGuid` ([MS-SMB2] 2.2.13.2.8).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseKey(pub [u8; 16]);

impl fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseKey({:#034x})", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_prints_in_the_usual_form() {
        let guid = Guid(*b"\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        assert_eq!(guid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_file_id_is_persistent_then_volatile() {
        let id = FileId {
            persistent: 1,
            volatile: 2,
        };
        let mut out = Vec::new();
        id.encode(&mut Writer::new(&mut out));
        assert_eq!(out.len(), FileId::LEN);
        assert_eq!((out[0], out[8]), (1, 2));
        assert_eq!(FileId::decode(&mut Reader::new(&out, "test")), Ok(id));
        assert_eq!(format!("{id:?} {:?}", TreeId(7)), "FileId(0x1:0x2) TreeId(0x7)");
    }
}
