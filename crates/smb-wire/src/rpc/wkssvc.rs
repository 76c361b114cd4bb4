//! The workstation service on the pipe `wkssvc`: returns a host's names ([MS-WKST]).

use super::SyntaxId;
use super::ndr::{NdrReader, NdrWriter};
use crate::{Result, Text};

/// Interface ([MS-WKST] 1.9).
pub const INTERFACE: SyntaxId = SyntaxId::new(0x6bffd098_a112_3610_9833_46c3f87e345a, 1, 0);
/// Name of the pipe in `IPC$`.
pub const PIPE: &str = "wkssvc";

/// The supported level of NetrWkstaGetInfo.
const LEVEL: u32 = 100;

/// NetrWkstaGetInfo's parameters ([MS-WKST] 3.2.4.1), level 100.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WkstaGetInfoRequest {
    /// `\\host`; servers ignore it.
    pub server_name: Option<Text>,
}

impl WkstaGetInfoRequest {
    /// Number of the procedure.
    pub const OPNUM: u16 = 0;

    /// Decodes the stub.
    ///
    /// # Errors
    /// The stub is malformed, or asks for another level.
    pub fn decode(stub: &[u8]) -> Result<Self> {
        let mut ndr = NdrReader::new(stub, "NetrWkstaGetInfo request");
        let server_name = ndr.unique_string()?;
        ndr.expect(LEVEL)?;
        Ok(Self { server_name })
    }

    /// Encodes the stub.
    pub fn to_stub(&self) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.unique_string(self.server_name.as_ref());
        ndr.u32(LEVEL);
        ndr.into_stub()
    }
}

/// WKSTA_INFO_100 ([MS-WKST] 2.2.5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WkstaInfo {
    /// 500: Windows NT, and systems that claim to be.
    pub platform_id: u32,
    /// NetBIOS name.
    pub computer_name: Text,
    /// Domain or workgroup.
    pub domain: Text,
    /// Major version of the operating system.
    pub version_major: u32,
    /// Minor version of the operating system.
    pub version_minor: u32,
}

/// NetrWkstaGetInfo's results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WkstaGetInfoResponse {
    /// The host, on success.
    pub workstation: Option<WkstaInfo>,
    /// 0, or a Win32 code.
    pub status: u32,
}

impl WkstaGetInfoResponse {
    /// Decodes the stub.
    ///
    /// # Errors
    /// The stub is malformed.
    pub fn decode(stub: &[u8]) -> Result<Self> {
        let mut ndr = NdrReader::new(stub, "NetrWkstaGetInfo response");
        ndr.expect(LEVEL)?;
        let mut workstation = None;
        if ndr.pointer()? {
            let platform_id = ndr.u32()?;
            let has_name = ndr.pointer()?;
            let has_domain = ndr.pointer()?;
            let version_major = ndr.u32()?;
            let version_minor = ndr.u32()?;
            workstation = Some(WkstaInfo {
                platform_id,
                computer_name: ndr.deferred(has_name)?,
                domain: ndr.deferred(has_domain)?,
                version_major,
                version_minor,
            });
        }
        let status = ndr.u32()?;
        Ok(Self { workstation, status })
    }

    /// Encodes the stub.
    pub fn to_stub(&self) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.u32(LEVEL);
        ndr.pointer(self.workstation.is_some());
        if let Some(workstation) = &self.workstation {
            ndr.u32(workstation.platform_id);
            ndr.pointer(true);
            ndr.pointer(true);
            ndr.u32(workstation.version_major);
            ndr.u32(workstation.version_minor);
            ndr.string(&workstation.computer_name);
            ndr.string(&workstation.domain);
        }
        ndr.u32(self.status);
        ndr.into_stub()
    }
}
