//! Names of things on the wire, each a type of its own so that none is taken for another.

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
    /// Number of a request in its connection's sequence ([MS-SMB2] 2.2.1.2).
    MessageId(u64)
}
id! {
    /// An authenticated session ([MS-SMB2] 2.2.1.2); 0 is none yet.
    SessionId(u64)
}
id! {
    /// A connected share within a session ([MS-SMB2] 2.2.1.2).
    TreeId(u32)
}
id! {
    /// A request that the server answers later ([MS-SMB2] 2.2.1.1).
    AsyncId(u64)
}

impl MessageId {
    /// What the server sends without having been asked: oplock and lease breaks ([MS-SMB2] 2.2.23).
    pub const UNSOLICITED: Self = Self(u64::MAX);
}

impl SessionId {
    /// In a related request of a compound: the session of the request before ([MS-SMB2] 3.2.4.1.4).
    pub const RELATED: Self = Self(u64::MAX);
}

impl TreeId {
    /// In a related request of a compound: the tree of the request before ([MS-SMB2] 3.2.4.1.4).
    pub const RELATED: Self = Self(u32::MAX);
}

/// An open file ([MS-SMB2] 2.2.14.1).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Survives a reconnect of a durable open.
    pub persistent: u64,
    /// Unique on the server at any time.
    pub volatile: u64,
}

impl FileId {
    /// In a related request of a compound: the file that the request before opened ([MS-SMB2] 3.2.4.1.4).
    pub const RELATED: Self = Self {
        persistent: u64::MAX,
        volatile: u64::MAX,
    };

    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads 16 bytes.
    ///
    /// # Errors
    /// [`super::Fault::Truncated`].
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

/// A GUID in wire order ([MS-DTYP] 2.3.4.2): of a client, a server, a create ([MS-SMB2] `ClientGuid`, `ServerGuid`,
/// `CreateGuid`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    /// The usual form: the first three groups are little-endian numbers.
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

/// What a client calls one lease, unique together with its `ClientGuid` ([MS-SMB2] 2.2.13.2.8).
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
