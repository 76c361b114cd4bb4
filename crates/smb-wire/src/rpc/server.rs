//! The server of [`srvsvc`] and [`wkssvc`]: decodes calls and encodes answers in every level that
//! Windows, macOS and Samba's tools ask for.
//!
//! The types of those two modules cover the one level that a client needs. For an unknown level the
//! answer is a Win32 error; for an unknown procedure the pipe's owner answers with a fault.

use super::ndr::{NdrReader, NdrWriter};
use super::srvsvc::{self, ERROR_INVALID_LEVEL, ServerInfo, ShareInfo};
use super::wkssvc::{self, WkstaInfo};
use super::{Body, Pdu, SyntaxId, sessions};
use crate::{Result, Text};

/// NERR_NetNameNotFound ([MS-SRVS] 2.2.2.1): the share does not exist.
pub const NERR_NET_NAME_NOT_FOUND: u32 = 2310;
/// `nca_s_op_rng_error` (C706 appendix E): the interface has no such procedure.
pub const FAULT_OP_RANGE: u32 = 0x1C01_0002;
/// `nca_s_unk_if` (C706 appendix E): no context of this number was negotiated.
pub const FAULT_UNKNOWN_INTERFACE: u32 = 0x1C01_0003;
/// `nca_s_fault_context_mismatch` (C706 appendix E): the server did not issue this handle.
pub const FAULT_CONTEXT_MISMATCH: u32 = 0x1C00_001A;
/// RPC_X_BAD_STUB_DATA ([MS-ERREF] 2.2): the parameters are malformed.
pub const FAULT_BAD_STUB: u32 = 0x0000_06F7;

/// Procedure number of NetrShareEnumSticky ([MS-SRVS] 3.1.4.9).
const SHARE_ENUM_STICKY: u16 = 36;
/// Procedure number of NetrRemoteTOD ([MS-SRVS] 3.1.4.21).
const REMOTE_TOD: u16 = 28;
/// No limit, for `shi2_max_uses` and the like.
const UNLIMITED: u32 = u32::MAX;

/// A decoded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// NetrSessionEnum ([MS-SRVS] 3.1.4.5).
    SessionEnum(sessions::SessionEnum),
    /// NetrShareEnum and NetrShareEnumSticky ([MS-SRVS] 3.1.4.8, 3.1.4.9). Both list all shares,
    /// since every share survives a restart.
    ShareEnum {
        /// Information level: 0, 1, 2, 501, 502.
        level: u32,
    },
    /// NetrShareGetInfo ([MS-SRVS] 3.1.4.10).
    ShareGetInfo {
        /// Name of the share.
        share: Text,
        /// Information level: 0, 1, 2, 501, 502, 1005.
        level: u32,
    },
    /// NetrServerGetInfo ([MS-SRVS] 3.1.4.17).
    ServerGetInfo {
        /// Information level: 100, 101, 102.
        level: u32,
    },
    /// NetrRemoteTOD ([MS-SRVS] 3.1.4.21).
    RemoteTod,
    /// NetrWkstaGetInfo ([MS-WKST] 3.2.4.1).
    WkstaGetInfo {
        /// Information level: 100, 101, 102.
        level: u32,
    },
}

impl Call {
    /// Decodes a request's stub. Returns `None` for procedures that are not implemented.
    ///
    /// # Errors
    /// The stub is malformed.
    pub fn decode(interface: SyntaxId, opnum: u16, stub: &[u8]) -> Result<Option<Self>> {
        let mut ndr = NdrReader::new(stub, "RPC request");
        let is_srvsvc = interface.uuid == srvsvc::INTERFACE.uuid;
        if !is_srvsvc {
            if opnum != wkssvc::WkstaGetInfoRequest::OPNUM {
                return Ok(None);
            }
            ndr.unique_string()?;
            return Ok(Some(Self::WkstaGetInfo { level: ndr.u32()? }));
        }
        Ok(Some(match opnum {
            sessions::OPNUM => Self::SessionEnum(sessions::SessionEnum::read(&mut ndr)?),
            srvsvc::ShareEnumRequest::OPNUM | SHARE_ENUM_STICKY => {
                ndr.unique_string()?;
                // The container's content and the preferred length do not matter.
                Self::ShareEnum { level: ndr.u32()? }
            }
            srvsvc::ShareGetInfoRequest::OPNUM => {
                ndr.unique_string()?;
                Self::ShareGetInfo {
                    share: ndr.string()?,
                    level: ndr.u32()?,
                }
            }
            srvsvc::ServerGetInfoRequest::OPNUM => {
                ndr.unique_string()?;
                Self::ServerGetInfo { level: ndr.u32()? }
            }
            REMOTE_TOD => Self::RemoteTod,
            _ => return Ok(None),
        }))
    }
}

/// Encodes a fault as one fragment.
pub fn fault(call_id: u32, context_id: u16, status: u32) -> Vec<u8> {
    Pdu::whole(call_id, Body::Fault { context_id, status }).to_bytes()
}

/// Supported layouts of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Name,
    Info,
    Full,
    Flags,
    Security,
}

impl Layout {
    fn of(level: u32) -> Option<Self> {
        Some(match level {
            0 => Self::Name,
            1 => Self::Info,
            2 => Self::Full,
            501 => Self::Flags,
            502 => Self::Security,
            _ => return None,
        })
    }

    /// Writes the fixed part ([MS-SRVS] 2.2.4.22 to 2.2.4.26).
    fn write_fixed(self, ndr: &mut NdrWriter, share: &ShareInfo) {
        ndr.pointer(true);
        if self == Self::Name {
            return;
        }
        ndr.u32(share.kind.0);
        ndr.pointer(true);
        match self {
            Self::Flags => ndr.u32(0),
            Self::Full | Self::Security => {
                // Permissions (used by share-level security only), use limit, number of uses.
                ndr.u32(0);
                ndr.u32(UNLIMITED);
                ndr.u32(0);
                ndr.pointer(true);
                ndr.pointer(false);
                if self == Self::Security {
                    ndr.u32(0);
                    ndr.pointer(false);
                }
            }
            Self::Name | Self::Info => {}
        }
    }

    /// Writes the strings that the fixed part points to. The share's path on the server's disk is
    /// private, so it is empty.
    fn write_strings(self, ndr: &mut NdrWriter, share: &ShareInfo) {
        ndr.string(&share.name);
        if self != Self::Name {
            ndr.string(&share.remark);
        }
        if matches!(self, Self::Full | Self::Security) {
            ndr.string(&Text::default());
        }
    }
}

/// Encodes NetrShareEnum's results: all shares at once.
pub fn share_enum(level: u32, shares: &[ShareInfo]) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.u32(level);
    ndr.u32(level);
    let Some(layout) = Layout::of(level) else {
        ndr.pointer(false);
        ndr.u32(0);
        ndr.pointer(false);
        ndr.u32(ERROR_INVALID_LEVEL);
        return ndr.into_stub();
    };
    let count = u32::try_from(shares.len()).expect("fewer shares than fit memory");
    ndr.pointer(true);
    ndr.u32(count);
    ndr.pointer(true);
    ndr.u32(count);
    for share in shares {
        layout.write_fixed(&mut ndr, share);
    }
    for share in shares {
        layout.write_strings(&mut ndr, share);
    }
    ndr.u32(count);
    ndr.pointer(false);
    ndr.u32(0);
    ndr.into_stub()
}

/// Encodes NetrShareGetInfo's results.
pub fn share_get_info(level: u32, share: Option<&ShareInfo>) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.u32(level);
    if let (1005, Some(_)) = (level, share) {
        // SHARE_INFO_1005 ([MS-SRVS] 2.2.4.29): no flags, that is, no DFS and manual caching.
        ndr.pointer(true);
        ndr.u32(0);
        ndr.u32(0);
        return ndr.into_stub();
    }
    let status = match (Layout::of(level), share) {
        (Some(layout), Some(share)) => {
            ndr.pointer(true);
            layout.write_fixed(&mut ndr, share);
            layout.write_strings(&mut ndr, share);
            ndr.u32(0);
            return ndr.into_stub();
        }
        (None, _) if level != 1005 => ERROR_INVALID_LEVEL,
        _ => NERR_NET_NAME_NOT_FOUND,
    };
    ndr.pointer(false);
    ndr.u32(status);
    ndr.into_stub()
}

/// Encodes NetrServerGetInfo's results ([MS-SRVS] 2.2.4.40 to 2.2.4.43).
pub fn server_get_info(level: u32, server: &ServerInfo) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.u32(level);
    if !matches!(level, 100..=102) {
        ndr.pointer(false);
        ndr.u32(ERROR_INVALID_LEVEL);
        return ndr.into_stub();
    }
    ndr.pointer(true);
    ndr.u32(server.platform_id);
    ndr.pointer(true);
    if level > 100 {
        ndr.u32(server.version_major);
        ndr.u32(server.version_minor);
        ndr.u32(server.server_type);
        ndr.pointer(true);
    }
    if level > 101 {
        // User limit (none), minutes until an idle user is disconnected (never), hidden,
        // announcement intervals.
        for number in [UNLIMITED, UNLIMITED, 0, 0, 0, 0] {
            ndr.u32(number);
        }
        ndr.pointer(true);
    }
    ndr.string(&server.name);
    if level > 100 {
        ndr.string(&server.comment);
    }
    if level > 101 {
        ndr.string(&Text::default());
    }
    ndr.u32(0);
    ndr.into_stub()
}

/// Encodes NetrWkstaGetInfo's results ([MS-WKST] 2.2.5.1 to 2.2.5.3).
pub fn wksta_get_info(level: u32, workstation: &WkstaInfo) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.u32(level);
    if !matches!(level, 100..=102) {
        ndr.pointer(false);
        ndr.u32(ERROR_INVALID_LEVEL);
        return ndr.into_stub();
    }
    ndr.pointer(true);
    ndr.u32(workstation.platform_id);
    ndr.pointer(true);
    ndr.pointer(true);
    ndr.u32(workstation.version_major);
    ndr.u32(workstation.version_minor);
    if level > 100 {
        ndr.pointer(true);
    }
    if level > 101 {
        // Number of logged-on users: not disclosed.
        ndr.u32(0);
    }
    ndr.string(&workstation.computer_name);
    ndr.string(&workstation.domain);
    if level > 100 {
        // The path of the LANMAN folder, which does not exist here.
        ndr.string(&Text::default());
    }
    ndr.u32(0);
    ndr.into_stub()
}

/// Encodes NetrRemoteTOD's results: TIME_OF_DAY_INFO ([MS-SRVS] 2.2.4.105) in UTC.
pub fn remote_tod(unix_s: u64) -> Vec<u8> {
    let low = |number: u64| u32::try_from(number & 0xFFFF_FFFF).unwrap_or(0);
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = date(days);
    let mut ndr = NdrWriter::default();
    ndr.pointer(true);
    // Seconds since 1970, milliseconds (clients ignore them), hours, minutes, seconds, hundredths,
    // time zone (minutes west), clock tick in 0.1 ms, day, month, year, weekday (1 January 1970 was
    // a Thursday).
    for number in [
        low(unix_s),
        0,
        low(second / 3_600),
        low(second / 60 % 60),
        low(second % 60),
        0,
        0,
        310,
        day,
        month,
        year,
        low((days + 4) % 7),
        0,
    ] {
        ndr.u32(number);
    }
    ndr.into_stub()
}

/// Converts days since 1970 to year, month and day (Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn date(days: u64) -> (u32, u32, u32) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year + u64::from(month <= 2);
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    (number(year), number(month), number(of_month))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::srvsvc::{
        ShareEnumRequest, ShareEnumResponse, ShareGetInfoResponse, ShareKind, ShareLevel,
    };

    fn share() -> ShareInfo {
        ShareInfo {
            name: "data".into(),
            kind: ShareKind::DISK,
            remark: "for all".into(),
        }
    }

    #[test]
    fn a_client_understands_the_answers() {
        let request = ShareEnumRequest {
            server_name: Some(r"\\host".into()),
            level: ShareLevel::Info,
            length_max: srvsvc::LENGTH_ANY,
            resume_handle: None,
        };
        let call = Call::decode(srvsvc::INTERFACE, ShareEnumRequest::OPNUM, &request.to_stub());
        assert_eq!(call, Ok(Some(Call::ShareEnum { level: 1 })));
        let response = ShareEnumResponse::decode(&share_enum(1, &[share()])).unwrap();
        assert_eq!((response.shares, response.status), (vec![share()], 0));
        let response = ShareGetInfoResponse::decode(&share_get_info(1, Some(&share()))).unwrap();
        assert_eq!(response.share, Some(share()));
        let response = ShareGetInfoResponse::decode(&share_get_info(1, None)).unwrap();
        assert_eq!((response.share, response.status), (None, NERR_NET_NAME_NOT_FOUND));
        let server = ServerInfo {
            name: "HOST".into(),
            ..ServerInfo::default()
        };
        let response = srvsvc::ServerGetInfoResponse::decode(&server_get_info(101, &server)).unwrap();
        assert_eq!(response.server, Some(server));
        let workstation = WkstaInfo {
            domain: "GROUP".into(),
            ..WkstaInfo::default()
        };
        let stub = wksta_get_info(100, &workstation);
        let response = wkssvc::WkstaGetInfoResponse::decode(&stub).unwrap();
        assert_eq!(response.workstation, Some(workstation));
    }

    #[test]
    fn other_levels_are_laid_out_or_refused() {
        for level in [0, 2, 501, 502] {
            let stub = share_enum(level, &[share(), share()]);
            assert_eq!(stub[..4], level.to_le_bytes());
            assert_eq!(stub[stub.len() - 4..], [0; 4], "{level}");
        }
        for level in [101, 102] {
            let stub = wksta_get_info(level, &WkstaInfo::default());
            assert_eq!(stub[stub.len() - 4..], [0; 4], "{level}");
        }
        for stub in [
            share_enum(503, &[]),
            share_get_info(7, None),
            server_get_info(99, &ServerInfo::default()),
            wksta_get_info(99, &WkstaInfo::default()),
        ] {
            assert_eq!(stub[stub.len() - 4..], ERROR_INVALID_LEVEL.to_le_bytes());
        }
    }

    #[test]
    fn days_have_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(19_782), (2024, 2, 29));
        assert_eq!(date(20_778), (2026, 11, 21));
    }
}
