//! Application instances: an application that moves to another client opens its files again, and
//! names itself ([MS-SMB2] 2.2.13.2.13, .15).

use crate::{Guid, Reader, Result, Writer};

/// SMB2_CREATE_APP_INSTANCE_ID: the instance that opens the file ([MS-SMB2] 2.2.13.2.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppInstanceId(pub Guid);

impl AppInstanceId {
    /// `StructureSize`.
    const LEN: u16 = 20;

    /// The structure size is not checked, as [MS-SMB2] 3.3.5.9.13 allows.
    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_APP_INSTANCE_ID");
        reader.skip(4)?;
        Ok(Self(Guid(reader.array()?)))
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u16(Self::LEN);
        w.u16(0);
        w.bytes(&self.0.0);
    }
}

/// SMB2_CREATE_APP_INSTANCE_VERSION: its version, which grows with each move ([MS-SMB2]
/// 2.2.13.2.15; 3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppInstanceVersion {
    /// The more significant half.
    pub high: u64,
    /// The less significant half.
    pub low: u64,
}

impl AppInstanceVersion {
    /// `StructureSize`.
    const LEN: u16 = 24;

    pub(super) fn decode(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_APP_INSTANCE_VERSION");
        reader.skip(8)?;
        Ok(Self {
            high: reader.u64()?,
            low: reader.u64()?,
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u16(Self::LEN);
        w.zeros(6);
        w.u64(self.high);
        w.u64(self.low);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::structure;

    #[test]
    fn versions_are_ordered_by_their_high_half() {
        let version = |high, low| AppInstanceVersion { high, low };
        assert!(version(1, 9) < version(2, 0));
        assert!(version(1, 0) < version(1, 1));
    }

    /// The fields lie where [MS-SMB2] 2.2.13.2.13 and .15 put them.
    #[test]
    fn layouts() {
        let id = structure(|w| AppInstanceId(Guid([7; 16])).encode(w));
        assert_eq!(id, [[20, 0, 0, 0].as_slice(), &[7; 16]].concat());
        let version = structure(|w| AppInstanceVersion { high: 1, low: 2 }.encode(w));
        assert_eq!(version.len(), 24);
        assert_eq!((version[0], version[8], version[16]), (24, 1, 2));
    }
}
