//! The server service on the pipe `srvsvc`: lists shares ([MS-SRVS]).

use super::SyntaxId;
use super::ndr::{NdrReader, NdrWriter};
use crate::{Fault, Malformed, Result, Text};

/// Interface ([MS-SRVS] 1.9).
pub const INTERFACE: SyntaxId = SyntaxId::new(0x4b324fc8_1670_01d3_1278_5a47bf6ee188, 3, 0);
/// Name of the pipe in `IPC$`.
pub const PIPE: &str = "srvsvc";
/// `PreferedMaximumLength` that asks for everything.
pub const LENGTH_ANY: u32 = u32::MAX;
/// ERROR_MORE_DATA: the list is incomplete. Ask again with the resume handle.
pub const ERROR_MORE_DATA: u32 = 234;
/// ERROR_INVALID_LEVEL, the same number in NERR and Win32.
pub const ERROR_INVALID_LEVEL: u32 = 124;

/// Type of a share: `shi1_type` ([MS-SRVS] 2.2.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShareKind(pub u32);

impl ShareKind {
    /// Files.
    pub const DISK: Self = Self(0);
    /// A printer queue.
    pub const PRINT_QUEUE: Self = Self(1);
    /// A communication device.
    pub const DEVICE: Self = Self(2);
    /// Named pipes.
    pub const IPC: Self = Self(3);
    /// Flag: an administrative share (`C$`, `ADMIN$`), hidden from users.
    pub const SPECIAL: u32 = 0x8000_0000;
    /// Flag: the share does not survive a restart.
    pub const TEMPORARY: u32 = 0x4000_0000;

    /// Returns the type without its flags.
    pub fn base(self) -> Self {
        Self(self.0 & 0xFF)
    }

    /// Returns whether the share holds files.
    pub fn is_disk(self) -> bool {
        self.base() == Self::DISK
    }

    /// Returns whether the share is hidden from users.
    pub fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }
}

/// A share: SHARE_INFO_1 ([MS-SRVS] 2.2.4.23). SHARE_INFO_0 has the name only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareInfo {
    /// Name.
    pub name: Text,
    /// Type.
    pub kind: ShareKind,
    /// Comment of its owner.
    pub remark: Text,
}

/// Information level of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShareLevel {
    /// Its name.
    Name,
    /// Name, kind and remark.
    Info,
}

impl ShareLevel {
    fn to_u32(self) -> u32 {
        match self {
            Self::Name => 0,
            Self::Info => 1,
        }
    }

    fn read(ndr: &mut NdrReader<'_>) -> Result<Self> {
        let fault = ndr.fault(Fault::Value);
        match ndr.u32()? {
            0 => Ok(Self::Name),
            1 => Ok(Self::Info),
            _ => Err(fault),
        }
    }
}

/// NetrShareEnum's parameters ([MS-SRVS] 3.1.4.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareEnumRequest {
    /// `\\host`; servers ignore it.
    pub server_name: Option<Text>,
    /// Information level.
    pub level: ShareLevel,
    /// Most bytes that the answer should have, or [`LENGTH_ANY`].
    pub length_max: u32,
    /// Position at which to continue; 0 at first.
    pub resume_handle: Option<u32>,
}

impl ShareEnumRequest {
    /// Number of the procedure.
    pub const OPNUM: u16 = 15;

    /// Decodes the stub.
    ///
    /// # Errors
    /// The stub is malformed, or asks for a level other than 0 and 1 (answer [`ERROR_INVALID_LEVEL`]).
    pub fn decode(stub: &[u8]) -> Result<Self> {
        let mut ndr = NdrReader::new(stub, "NetrShareEnum request");
        let server_name = ndr.unique_string()?;
        let level = ShareLevel::read(&mut ndr)?;
        // The content of the client's container does not matter.
        read_shares(&mut ndr, level)?;
        Ok(Self {
            server_name,
            level,
            length_max: ndr.u32()?,
            resume_handle: ndr.unique_u32()?,
        })
    }

    /// Encodes the stub.
    pub fn to_stub(&self) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.unique_string(self.server_name.as_ref());
        ndr.u32(self.level.to_u32());
        ndr.u32(self.level.to_u32());
        // An empty container.
        ndr.pointer(true);
        ndr.u32(0);
        ndr.pointer(false);
        ndr.u32(self.length_max);
        ndr.unique_u32(self.resume_handle);
        ndr.into_stub()
    }
}

/// NetrShareEnum's results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareEnumResponse {
    /// Information level.
    pub level: ShareLevel,
    /// Shares.
    pub shares: Vec<ShareInfo>,
    /// Total number of shares.
    pub total_entries: u32,
    /// Position at which to continue.
    pub resume_handle: Option<u32>,
    /// 0, [`ERROR_MORE_DATA`] or another Win32 code.
    pub status: u32,
}

impl ShareEnumResponse {
    /// Decodes the stub.
    ///
    /// # Errors
    /// The stub is malformed.
    pub fn decode(stub: &[u8]) -> Result<Self> {
        let mut ndr = NdrReader::new(stub, "NetrShareEnum response");
        let level = ShareLevel::read(&mut ndr)?;
        Ok(Self {
            level,
            shares: read_shares(&mut ndr, level)?,
            total_entries: ndr.u32()?,
            resume_handle: ndr.unique_u32()?,
            status: ndr.u32()?,
        })
    }

    /// Encodes the stub.
    pub fn to_stub(&self) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.u32(self.level.to_u32());
        ndr.u32(self.level.to_u32());
        ndr.pointer(true);
        let count = u32::try_from(self.shares.len()).expect("fewer shares than fit memory");
        ndr.u32(count);
        ndr.pointer(true);
        ndr.u32(count);
        for share in &self.shares {
            write_fixed(&mut ndr, share, self.level);
        }
        for share in &self.shares {
            write_strings(&mut ndr, share, self.level);
        }
        ndr.u32(self.total_entries);
        ndr.unique_u32(self.resume_handle);
        ndr.u32(self.status);
        ndr.into_stub()
    }
}

/// Reads the union and the container that it points to.
fn read_shares(ndr: &mut NdrReader<'_>, level: ShareLevel) -> Result<Vec<ShareInfo>> {
    ndr.expect(level.to_u32())?;
    if !ndr.pointer()? {
        return Ok(Vec::new());
    }
    let count = ndr.u32()?;
    if !ndr.pointer()? {
        return Ok(Vec::new());
    }
    ndr.expect(count)?;
    // No allocation ahead: `count` is the peer's claim.
    let mut fixed = Vec::new();
    for _ in 0..count {
        fixed.push(read_fixed(ndr, level)?);
    }
    fixed.into_iter().map(|fixed| read_strings(ndr, fixed)).collect()
}

/// A share's fixed part: whether a name follows, the type, whether a remark follows.
type FixedShare = (bool, ShareKind, bool);

fn read_fixed(ndr: &mut NdrReader<'_>, level: ShareLevel) -> Result<FixedShare> {
    let has_name = ndr.pointer()?;
    Ok(match level {
        ShareLevel::Name => (has_name, ShareKind::default(), false),
        ShareLevel::Info => (has_name, ShareKind(ndr.u32()?), ndr.pointer()?),
    })
}

fn read_strings(ndr: &mut NdrReader<'_>, (has_name, kind, has_remark): FixedShare) -> Result<ShareInfo> {
    Ok(ShareInfo {
        name: ndr.deferred(has_name)?,
        kind,
        remark: ndr.deferred(has_remark)?,
    })
}

fn write_fixed(ndr: &mut NdrWriter, share: &ShareInfo, level: ShareLevel) {
    ndr.pointer(true);
    if level == ShareLevel::Info {
        ndr.u32(share.kind.0);
        ndr.pointer(true);
    }
}

fn write_strings(ndr: &mut NdrWriter, share: &ShareInfo, level: ShareLevel) {
    ndr.string(&share.name);
    if level == ShareLevel::Info {
        ndr.string(&share.remark);
    }
}

/// NetrShareGetInfo's parameters ([MS-SRVS] 3.1.4.10), level 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGetInfoRequest {
    /// `\\host`; servers ignore it.
    pub server_name: Option<Text>,
    /// Name of the share.
    pub share: Text,
}

impl ShareGetInfoRequest {
    /// Number of the procedure.
    pub const OPNUM: u16 = 16;

    /// Decodes the stub.
    ///
    /// # Errors
    /// The stub is malformed, or asks for another level (answer [`ERROR_INVALID_LEVEL`]).
    pub fn decode(stub: &[u8]) -> Result<Self> {
        let mut ndr = NdrReader::new(stub, "NetrShareGetInfo request");
        let server_name = ndr.unique_string()?;
        let share = ndr.string()?;
        ndr.expect(1)?;
        Ok(Self { server_name, share })
    }

    /// Encodes the stub.
    pub fn to_stub(&self) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.unique_string(self.server_name.as_ref());
        ndr.string(&self.share);
        ndr.u32(1);
        ndr.into_stub()
    }
}

/// NetrShareGetInfo's results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGetInfoResponse {
    /// The share, if found.
    pub share: Option<ShareInfo>,
    /// 0, or a Win32 code.
    pub status: u32,
}

impl ShareGetInfoResponse {
    /// Decodes the stub.
    ///
    /// # Errors
    /// The stub is malformed.
    pub fn decode(stub: &[u8]) -> Result<Self> {
        let mut ndr = NdrReader::new(stub, "NetrShareGetInfo response");
        ndr.expect(1)?;
        let share = match ndr.pointer()? {
            true => {
                let fixed = read_fixed(&mut ndr, ShareLevel::Info)?;
                Some(read_strings(&mut ndr, fixed)?)
            }
            false => None,
        };
        let status = ndr.u32()?;
        Ok(Self { share, status })
    }

    /// Encodes the stub.
    pub fn to_stub(&self) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.u32(1);
        ndr.pointer(self.share.is_some());
        if let Some(share) = &self.share {
            write_fixed(&mut ndr, share, ShareLevel::Info);
            write_strings(&mut ndr, share, ShareLevel::Info);
        }
        ndr.u32(self.status);
        ndr.into_stub()
    }
}

/// NetrServerGetInfo's parameters ([MS-SRVS] 3.1.4.17), level 101.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerGetInfoRequest {
    /// `\\host`; servers ignore it.
    pub server_name: Option<Text>,
}

/// The supported level of NetrServerGetInfo.
const SERVER_LEVEL: u32 = 101;

impl ServerGetInfoRequest {
    /// Number of the procedure.
    pub const OPNUM: u16 = 21;

    /// Decodes the stub.
    ///
    /// # Errors
    /// The stub is malformed, or asks for another level (answer [`ERROR_INVALID_LEVEL`]).
    pub fn decode(stub: &[u8]) -> Result<Self> {
        let mut ndr = NdrReader::new(stub, "NetrServerGetInfo request");
        let server_name = ndr.unique_string()?;
        ndr.expect(SERVER_LEVEL)?;
        Ok(Self { server_name })
    }

    /// Encodes the stub.
    pub fn to_stub(&self) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.unique_string(self.server_name.as_ref());
        ndr.u32(SERVER_LEVEL);
        ndr.into_stub()
    }
}

/// SERVER_INFO_101 ([MS-SRVS] 2.2.4.41).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// 500: Windows NT, and systems that claim to be.
    pub platform_id: u32,
    /// NetBIOS name.
    pub name: Text,
    /// Major version of the operating system.
    pub version_major: u32,
    /// Minor version of the operating system.
    pub version_minor: u32,
    /// `SV_TYPE_*` bits ([MS-SRVS] 2.2.2.7).
    pub server_type: u32,
    /// Comment of its owner.
    pub comment: Text,
}

/// NetrServerGetInfo's results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerGetInfoResponse {
    /// The server, on success.
    pub server: Option<ServerInfo>,
    /// 0, or a Win32 code.
    pub status: u32,
}

impl ServerGetInfoResponse {
    /// Decodes the stub.
    ///
    /// # Errors
    /// The stub is malformed.
    pub fn decode(stub: &[u8]) -> std::result::Result<Self, Malformed> {
        let mut ndr = NdrReader::new(stub, "NetrServerGetInfo response");
        ndr.expect(SERVER_LEVEL)?;
        let mut server = None;
        if ndr.pointer()? {
            let platform_id = ndr.u32()?;
            let has_name = ndr.pointer()?;
            let version_major = ndr.u32()?;
            let version_minor = ndr.u32()?;
            let server_type = ndr.u32()?;
            let has_comment = ndr.pointer()?;
            server = Some(ServerInfo {
                platform_id,
                name: ndr.deferred(has_name)?,
                version_major,
                version_minor,
                server_type,
                comment: ndr.deferred(has_comment)?,
            });
        }
        let status = ndr.u32()?;
        Ok(Self { server, status })
    }

    /// Encodes the stub.
    pub fn to_stub(&self) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.u32(SERVER_LEVEL);
        ndr.pointer(self.server.is_some());
        if let Some(server) = &self.server {
            ndr.u32(server.platform_id);
            ndr.pointer(true);
            ndr.u32(server.version_major);
            ndr.u32(server.version_minor);
            ndr.u32(server.server_type);
            ndr.pointer(true);
            ndr.string(&server.name);
            ndr.string(&server.comment);
        }
        ndr.u32(self.status);
        ndr.into_stub()
    }
}
