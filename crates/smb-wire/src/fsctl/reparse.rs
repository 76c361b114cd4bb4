//! Reparse points: symbolic links and other things that are more than a file ([MS-FSCC] 2.1.2).

use crate::codes::codes;
use crate::lengths::len_u16;
use crate::{Fault, Guid, Reader, Result, Text, Writer};
use bitflags::bitflags;

#[cfg(test)]
mod tests;

/// The most bytes of a reparse point, header included ([MS-FSCC] 2.1.2.2, `MAXIMUM_REPARSE_DATA_BUFFER_SIZE`).
pub const REPARSE_BUFFER_MAX: u32 = 16 * 1024;

codes! {
    /// What kind of reparse point ([MS-FSCC] 2.1.2.1).
    pub struct ReparseTag(u32) {
        /// A mounted volume or a junction.
        MOUNT_POINT = 0xA000_0003;
        /// A symbolic link.
        SYMLINK = 0xA000_000C;
        /// A deduplicated file.
        DEDUP = 0x8000_0013;
        /// A special file of the NFS server.
        NFS = 0x8000_0014;
        /// A cloud file; `0x9000_?01A` are its kin.
        CLOUD = 0x9000_001A;
        /// A link of the Windows Subsystem for Linux.
        LX_SYMLINK = 0xA000_001D;
        /// A Unix socket.
        AF_UNIX = 0x8000_0023;
        /// A FIFO of the Windows Subsystem for Linux.
        LX_FIFO = 0x8000_0024;
        /// A character device of the Windows Subsystem for Linux.
        LX_CHR = 0x8000_0025;
        /// A block device of the Windows Subsystem for Linux.
        LX_BLK = 0x8000_0026;
    }
}

impl ReparseTag {
    /// The high bit: Microsoft's, whose data have no GUID.
    pub const fn is_microsoft(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }

    /// Whether the file stands for another one.
    pub const fn is_name_surrogate(self) -> bool {
        self.0 & 0x2000_0000 != 0
    }
}

bitflags! {
    /// `Flags` of a symbolic link ([MS-FSCC] 2.1.2.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SymlinkFlags: u32 {
        /// The substitute name is relative to the link's directory.
        const RELATIVE = 0x0000_0001;
        const _ = !0;
    }
}

/// Where a symbolic link leads ([MS-FSCC] 2.1.2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symlink {
    /// The target, as the system follows it: relative, or a path such as `\??\C:\folder`.
    pub substitute_name: Text,
    /// The target, as people see it.
    pub print_name: Text,
    /// Whether the target is relative.
    pub flags: SymlinkFlags,
}

impl Symlink {
    /// Reads what follows the reparse header; also what follows it in a symbolic link error ([MS-SMB2] 2.2.2.2.1).
    ///
    /// # Errors
    /// Truncation, names outside the data or with half a unit.
    pub fn decode_data(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "Symbolic Link Reparse Data Buffer");
        let places = NamePlaces::read(&mut reader)?;
        let flags = SymlinkFlags::from_bits_retain(reader.u32()?);
        let (substitute_name, print_name) = places.names(&reader)?;
        Ok(Self {
            substitute_name,
            print_name,
            flags,
        })
    }

    /// Appends what follows the reparse header.
    ///
    /// # Panics
    /// If the names are longer than 65535 bytes.
    pub fn encode_data(&self, w: &mut Writer<'_>) {
        NamePlaces::write(&self.substitute_name, &self.print_name, 0, w);
        w.u32(self.flags.bits());
        self.substitute_name.write(w);
        self.print_name.write(w);
    }
}

/// Where a mount point or junction leads ([MS-FSCC] 2.1.2.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountPoint {
    /// The target, as the system follows it; absolute.
    pub substitute_name: Text,
    /// The target, as people see it.
    pub print_name: Text,
}

impl MountPoint {
    fn decode_data(data: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(data, "Mount Point Reparse Data Buffer");
        let places = NamePlaces::read(&mut reader)?;
        let (substitute_name, print_name) = places.names(&reader)?;
        Ok(Self {
            substitute_name,
            print_name,
        })
    }

    fn encode_data(&self, w: &mut Writer<'_>) {
        // Windows refuses a mount point whose names are not each followed by a 0 that is not counted.
        NamePlaces::write(&self.substitute_name, &self.print_name, 2, w);
        self.substitute_name.write(w);
        w.u16(0);
        self.print_name.write(w);
        w.u16(0);
    }
}

/// Offsets and lengths of the two names, in bytes from where the names begin.
struct NamePlaces {
    substitute: (u16, u16),
    print: (u16, u16),
}

impl NamePlaces {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            substitute: (reader.u16()?, reader.u16()?),
            print: (reader.u16()?, reader.u16()?),
        })
    }

    /// The substitute name first, `gap` bytes, the print name.
    fn write(substitute: &Text, print: &Text, gap: usize, w: &mut Writer<'_>) {
        w.u16(0);
        w.u16(len_u16(substitute.wire_len()));
        w.u16(len_u16(substitute.wire_len() + gap));
        w.u16(len_u16(print.wire_len()));
    }

    /// Both names; `reader` stands where they begin.
    fn names(&self, reader: &Reader<'_>) -> Result<(Text, Text)> {
        let name = |(offset, length): (u16, u16)| {
            let start = reader.position() + usize::from(offset);
            let bytes = reader.slice(start, usize::from(length))?;
            Text::from_le_bytes(bytes).ok_or(reader.fault(Fault::Value))
        };
        Ok((name(self.substitute)?, name(self.print)?))
    }
}

/// A special file as the NFS server keeps it ([MS-FSCC] 2.1.2.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NfsSpecial {
    /// A symbolic link; the target as UTF-16.
    Symlink(Text),
    /// A character device.
    CharacterDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

/// "LNK" and version 1.
const NFS_SPECFILE_LNK: u64 = 0x0000_0000_014B_4E4C;
/// "CHR".
const NFS_SPECFILE_CHR: u64 = 0x0000_0000_0052_4843;
/// "BLK".
const NFS_SPECFILE_BLK: u64 = 0x0000_0000_004B_4C42;
/// "FIFO".
const NFS_SPECFILE_FIFO: u64 = 0x0000_0000_4F46_4946;
/// "SOCK".
const NFS_SPECFILE_SOCK: u64 = 0x0000_0000_4B43_4F53;

impl NfsSpecial {
    /// `None` for types the specification does not have.
    fn decode_data(data: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(data, "Network File System Reparse Data Buffer");
        Ok(Some(match reader.u64()? {
            NFS_SPECFILE_LNK => {
                Self::Symlink(Text::from_le_bytes(reader.rest()).ok_or(reader.fault(Fault::Value))?)
            }
            NFS_SPECFILE_CHR => Self::CharacterDevice {
                major: reader.u32()?,
                minor: reader.u32()?,
            },
            NFS_SPECFILE_BLK => Self::BlockDevice {
                major: reader.u32()?,
                minor: reader.u32()?,
            },
            NFS_SPECFILE_FIFO => Self::Fifo,
            NFS_SPECFILE_SOCK => Self::Socket,
            _ => return Ok(None),
        }))
    }

    fn encode_data(&self, w: &mut Writer<'_>) {
        match self {
            Self::Symlink(target) => {
                w.u64(NFS_SPECFILE_LNK);
                target.write(w);
            }
            Self::CharacterDevice { major, minor } => {
                w.u64(NFS_SPECFILE_CHR);
                w.u32(*major);
                w.u32(*minor);
            }
            Self::BlockDevice { major, minor } => {
                w.u64(NFS_SPECFILE_BLK);
                w.u32(*major);
                w.u32(*minor);
            }
            Self::Fifo => w.u64(NFS_SPECFILE_FIFO),
            Self::Socket => w.u64(NFS_SPECFILE_SOCK),
        }
    }
}

/// `Version` in the data of a link of the Windows Subsystem for Linux; the only one there is.
const LX_SYMLINK_VERSION: u32 = 2;

/// REPARSE_DATA_BUFFER or REPARSE_GUID_DATA_BUFFER ([MS-FSCC] 2.1.2.2, 2.1.2.3): what GET_REPARSE_POINT gives and
/// SET_REPARSE_POINT takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReparseData<'a> {
    /// A symbolic link.
    Symlink(Symlink),
    /// A mount point or junction.
    MountPoint(MountPoint),
    /// A special file of the NFS server.
    Nfs(NfsSpecial),
    /// A link of the Windows Subsystem for Linux; the target as UTF-8, though nobody checked.
    LxSymlink(&'a [u8]),
    /// Any other.
    Other {
        /// What it is.
        tag: ReparseTag,
        /// Whose it is; exactly if the tag is not Microsoft's.
        guid: Option<Guid>,
        /// What it holds.
        data: &'a [u8],
    },
}

impl<'a> ReparseData<'a> {
    /// Reads the IOCTL's data.
    ///
    /// # Errors
    /// Truncation, names outside the data or with half a unit.
    pub fn decode(buffer: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(buffer, "REPARSE_DATA_BUFFER");
        let tag = ReparseTag(reader.u32()?);
        let length = usize::from(reader.u16()?);
        reader.skip(2)?;
        let guid = if tag.is_microsoft() {
            None
        } else {
            Some(Guid(reader.array()?))
        };
        let data = reader.bytes(length)?;
        let other = Self::Other { tag, guid, data };
        Ok(match tag {
            ReparseTag::SYMLINK => Self::Symlink(Symlink::decode_data(data)?),
            ReparseTag::MOUNT_POINT => Self::MountPoint(MountPoint::decode_data(data)?),
            ReparseTag::NFS => NfsSpecial::decode_data(data)?.map_or(other, Self::Nfs),
            ReparseTag::LX_SYMLINK => {
                let mut reader = Reader::new(data, "LX_SYMLINK");
                match reader.u32()? {
                    LX_SYMLINK_VERSION => Self::LxSymlink(reader.rest()),
                    _ => other,
                }
            }
            _ => other,
        })
    }

    /// The tag on the wire.
    pub fn tag(&self) -> ReparseTag {
        match self {
            Self::Symlink(_) => ReparseTag::SYMLINK,
            Self::MountPoint(_) => ReparseTag::MOUNT_POINT,
            Self::Nfs(_) => ReparseTag::NFS,
            Self::LxSymlink(_) => ReparseTag::LX_SYMLINK,
            Self::Other { tag, .. } => *tag,
        }
    }

    /// Appends the IOCTL's data.
    ///
    /// # Panics
    /// If they are longer than 65535 bytes, or a GUID is missing or too many.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let tag = self.tag();
        let start = w.position();
        w.u32(tag.0);
        w.zeros(4);
        if let Self::Other { guid, .. } = self {
            assert_eq!(guid.is_none(), tag.is_microsoft(), "others' tags have a GUID");
            if let Some(guid) = guid {
                w.bytes(&guid.0);
            }
        }
        let data_start = w.position();
        match self {
            Self::Symlink(link) => link.encode_data(w),
            Self::MountPoint(mount) => mount.encode_data(w),
            Self::Nfs(special) => special.encode_data(w),
            Self::LxSymlink(target) => {
                w.u32(LX_SYMLINK_VERSION);
                w.bytes(target);
            }
            Self::Other { data, .. } => w.bytes(data),
        }
        w.patch_u16(start + 4, len_u16(w.position() - data_start));
    }
}
