//! The response context of the POSIX extensions: a file's POSIX attributes (SMB3 POSIX Extensions,
//! 2.2.14.2.16).

use crate::{Reader, Result, Writer};

/// POSIX attributes of a file. Both SIDs stay encoded ([MS-DTYP] 2.4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixResponse<'a> {
    /// Number of hard links.
    pub hard_links: u32,
    /// Reparse tag, or 0.
    pub reparse_tag: u32,
    /// Permission bits.
    pub mode: u32,
    /// SID of the owner.
    pub owner_sid: &'a [u8],
    /// SID of the group.
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

/// Reads a SID's bytes: revision, count, authority, and the counted 32-bit sub-authorities
/// ([MS-DTYP] 2.4.2.2).
fn sid<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let mut ahead = *reader;
    ahead.skip(1)?;
    let count = usize::from(ahead.u8()?);
    reader.bytes(8 + 4 * count)
}
