//! The services `srvsvc` and `wkssvc`: shares, sessions, and names of the server.

use std::time::SystemTime;

use ropeway_smb_wire::Text;
use ropeway_smb_wire::rpc::server::{self, Call};
use ropeway_smb_wire::rpc::sessions::{self, ERROR_ACCESS_DENIED, SessionEnum, SessionInfo};
use ropeway_smb_wire::rpc::srvsvc::{ServerInfo, ShareInfo, ShareKind};
use ropeway_smb_wire::rpc::wkssvc::WkstaInfo;
use ropeway_smb_wire::upcase;

use crate::accounts::AccountNames;

/// SV_PLATFORM_ID_NT ([MS-SRVS] 2.2.2.6).
const PLATFORM_NT: u32 = 500;
/// SV_TYPE_WORKSTATION, SERVER and NT ([MS-SRVS] 2.2.2.7).
const SERVER_TYPE: u32 = 0x1 | 0x2 | 0x1000;
/// Reported version, that of Windows 10: some clients check it.
const VERSION: (u32, u32) = (10, 0);
/// The share of the pipes themselves.
const IPC: &str = "IPC$";
/// NERR_UserNotFound and NERR_ClientNameNotFound ([MS-SRVS] 2.2.2.1).
const NERR_USER_NOT_FOUND: u32 = 2221;
const NERR_CLIENT_NAME_NOT_FOUND: u32 = 2312;

/// Returns the sessions of a user.
pub(crate) type SessionsOf = Box<dyn Fn(&str) -> Vec<SessionInfo> + Send + Sync>;

/// What the pipes report to one user.
pub(crate) struct PipeHost {
    /// NetBIOS name.
    pub(crate) name: String,
    /// Domain or workgroup.
    pub(crate) domain: String,
    /// Description of the server.
    pub(crate) comment: String,
    /// Names and comments of the shares that this user may see.
    pub(crate) shares: Vec<(String, String)>,
    /// Name of the user; `None` for guests and anonymous sessions, which may not see names of
    /// users.
    pub(crate) user: Option<String>,
    /// Accounts by name and SID.
    pub(crate) names: AccountNames,
    /// Returns the sessions of a user.
    pub(crate) sessions: SessionsOf,
}

impl PipeHost {
    pub(super) fn answer(&self, call: &Call) -> Vec<u8> {
        match call {
            Call::SessionEnum(call) => self.session_enum(call),
            Call::ShareEnum { level } => server::share_enum(*level, &self.share_infos()),
            Call::ShareGetInfo { share, level } => {
                let shares = self.share_infos();
                let found = shares.iter().find(|info| upcase::equal(&info.name, share));
                server::share_get_info(*level, found)
            }
            Call::ServerGetInfo { level } => server::server_get_info(
                *level,
                &ServerInfo {
                    platform_id: PLATFORM_NT,
                    name: self.name.as_str().into(),
                    version_major: VERSION.0,
                    version_minor: VERSION.1,
                    server_type: SERVER_TYPE,
                    comment: self.comment.as_str().into(),
                },
            ),
            Call::RemoteTod => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                server::remote_tod(now.map_or(0, |since| since.as_secs()))
            }
            Call::WkstaGetInfo { level } => server::wksta_get_info(
                *level,
                &WkstaInfo {
                    platform_id: PLATFORM_NT,
                    computer_name: self.name.as_str().into(),
                    domain: self.domain.as_str().into(),
                    version_major: VERSION.0,
                    version_minor: VERSION.1,
                },
            ),
        }
    }

    /// Lists the sessions of the user itself. The server has no administrators, and [MS-SRVS]
    /// 3.1.4.5 lets the server decide; Windows lists no others either.
    fn session_enum(&self, call: &SessionEnum) -> Vec<u8> {
        let Some(user) = &self.user else {
            return sessions::session_enum(call.level, &[], ERROR_ACCESS_DENIED);
        };
        let wanted = |text: &Option<Text>| text.clone().filter(|text| !text.is_empty());
        let mut found = (self.sessions)(user);
        if let Some(client) = wanted(&call.client) {
            let units = client.units();
            let name = units
                .iter()
                .position(|unit| *unit != u16::from(b'\\'))
                .unwrap_or(units.len());
            let name = Text::from_units(units[name..].to_vec());
            found.retain(|session| upcase::equal(&session.client, &name));
            if found.is_empty() {
                return sessions::session_enum(call.level, &[], NERR_CLIENT_NAME_NOT_FOUND);
            }
        }
        if let Some(name) = wanted(&call.user) {
            found.retain(|session| upcase::equal(&session.user, &name));
            if found.is_empty() {
                return sessions::session_enum(call.level, &[], NERR_USER_NOT_FOUND);
            }
        }
        sessions::session_enum(call.level, &found, 0)
    }

    fn share_infos(&self) -> Vec<ShareInfo> {
        let ipc = ShareInfo {
            name: IPC.into(),
            kind: ShareKind(ShareKind::IPC.0 | ShareKind::SPECIAL),
            remark: "Remote IPC".into(),
        };
        let disks = self.shares.iter().map(|(name, comment)| ShareInfo {
            name: name.as_str().into(),
            kind: ShareKind::DISK,
            remark: comment.as_str().into(),
        });
        disks.chain([ipc]).collect()
    }
}
