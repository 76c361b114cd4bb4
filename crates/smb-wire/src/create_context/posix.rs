//! The POSIX extensions' answer: what the file is, as POSIX has it (SMB3 POSIX Extensions, 2.2.14.2.16).

use crate::{Reader, Result, Writer};

/// What the file is. The owner's and group's SIDs are kept as they are on the wire ([MS-DTYP] 2.4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixResponse<'a> {
    /// Hard links.
    pub hard_links: u32,
    /// The reparse tag, or 0.
    pub reparse_tag: u32,
    /// Permission bits.
    pub mode: u32,
    /// The owner's SID.
    pub owner_sid: &'a [u8],
    /// The group's SID.
    pub group_sid: &'a [u8],
}

impl<'a> PosixResponse<'a> {
    pub(super) fn decode(data: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "SMB2_CREATE_POSIX");
        Ok(Self {
            hard_links: reader.u32()?,
            reparse_tag: reader.u32()?,
            mode: reader.u32()?,
            owner_sid: sid(&mut reader)?,
            group_sid: sid(&mut reader)?,
        })
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.hard_links);
        w.u32(self.reparse_tag);
        w.u32(self.mode);
        w.bytes(self.owner_sid);
        w.bytes(self.group_sid);
    }
}

/// A SID's bytes: revision, count, authority, and as many 32-bit sub-authorities as counted ([MS-DTYP] 2.4.2.2).
fn sid<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let mut ahead = *reader;
    ahead.skip(1)?;
    let count = usize::from(ahead.u8()?);
    reader.bytes(8 + 4 * count)
}
