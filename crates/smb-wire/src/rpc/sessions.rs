//! NetrSessionEnum at the server ([MS-SRVS] 3.1.4.5): lists the logged-in users.

use super::ndr::{NdrReader, NdrWriter};
use super::srvsvc::ERROR_INVALID_LEVEL;
use crate::{Result, Text};

/// Number of the procedure in [`super::srvsvc::INTERFACE`].
pub(super) const OPNUM: u16 = 12;
/// Win32 error: access is denied.
pub const ERROR_ACCESS_DENIED: u32 = 5;

/// Parameters of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEnum {
    /// Lists sessions of this client only, for example `\\192.0.2.7`.
    pub client: Option<Text>,
    /// Lists sessions of this user only.
    pub user: Option<Text>,
    /// Information level: 0, 1, 2, 10 or 502.
    pub level: u32,
}

impl SessionEnum {
    pub(super) fn read(ndr: &mut NdrReader<'_>) -> Result<Self> {
        ndr.unique_string()?;
        let (client, user) = (ndr.unique_string()?, ndr.unique_string()?);
        // The container's content and the preferred length do not matter.
        let level = ndr.u32()?;
        Ok(Self { client, user, level })
    }
}

/// One session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// The client's address, without `\\`.
    pub client: Text,
    /// The user.
    pub user: Text,
    /// Number of open files and pipes.
    pub opens: u32,
    /// Seconds since the login.
    pub time_s: u32,
    /// Seconds since the last request.
    pub idle_s: u32,
}

/// Encodes the results: all sessions at once ([MS-SRVS] 2.2.4.12 to 2.2.4.16), or none with an
/// error.
pub fn session_enum(level: u32, sessions: &[SessionInfo], status: u32) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.u32(level);
    ndr.u32(level);
    let is_level = matches!(level, 0 | 1 | 2 | 10 | 502);
    if !is_level || status != 0 {
        ndr.pointer(false);
        ndr.u32(0);
        ndr.pointer(false);
        ndr.u32(if is_level { status } else { ERROR_INVALID_LEVEL });
        return ndr.into_stub();
    }
    ndr.pointer(true);
    ndr.count(sessions.len());
    ndr.pointer(!sessions.is_empty());
    if !sessions.is_empty() {
        ndr.count(sessions.len());
        sessions
            .iter()
            .for_each(|session| write_fixed(&mut ndr, level, session));
        sessions
            .iter()
            .for_each(|session| write_strings(&mut ndr, level, session));
    }
    ndr.count(sessions.len());
    ndr.pointer(false);
    ndr.u32(0);
    ndr.into_stub()
}

fn write_fixed(ndr: &mut NdrWriter, level: u32, session: &SessionInfo) {
    ndr.pointer(true);
    if level == 0 {
        return;
    }
    ndr.pointer(true);
    if level != 10 {
        ndr.u32(session.opens);
    }
    ndr.u32(session.time_s);
    ndr.u32(session.idle_s);
    if level != 10 {
        // Flags: neither a guest, nor a login without password encryption.
        ndr.u32(0);
    }
    // Pointers to the client's type and to the transport.
    match level {
        2 => ndr.pointer(true),
        502 => {
            ndr.pointer(true);
            ndr.pointer(true);
        }
        _ => {}
    }
}

fn write_strings(ndr: &mut NdrWriter, level: u32, session: &SessionInfo) {
    ndr.string(&session.client);
    if level != 0 {
        ndr.string(&session.user);
    }
    let others = match level {
        2 => 1,
        502 => 2,
        _ => 0,
    };
    (0..others).for_each(|_| ndr.string(&Text::default()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::server::Call;
    use crate::rpc::srvsvc;
    use proptest::prelude::*;

    #[test]
    fn levels_have_their_lengths() {
        let session = SessionInfo {
            client: "a".into(),
            user: "b".into(),
            ..SessionInfo::default()
        };
        // The fixed start and end take 36 bytes. A string of one unit takes 16, an empty one 14
        // (and 2 for alignment).
        for (level, fixed, strings) in [(0, 4, 16), (1, 24, 32), (2, 28, 48), (10, 16, 32), (502, 32, 64)] {
            let stub = session_enum(level, std::slice::from_ref(&session), 0);
            assert_eq!(stub.len(), 36 + fixed + strings, "{level}");
            assert_eq!(stub[stub.len() - 4..], [0; 4]);
        }
        for (level, status, told) in [(3, 0, ERROR_INVALID_LEVEL), (10, 5, ERROR_ACCESS_DENIED)] {
            let stub = session_enum(level, std::slice::from_ref(&session), status);
            assert_eq!(stub[stub.len() - 4..], told.to_le_bytes());
        }
    }

    proptest! {
        #[test]
        fn requests_are_read_as_they_were_written(
            client in prop::option::of("[^\0]{0,20}"), user in prop::option::of("[^\0]{0,20}"), level: u32,
        ) {
            let text = |text: Option<String>| text.map(|text| Text::from(text.as_str()));
            let call = SessionEnum { client: text(client), user: text(user), level };
            let mut ndr = NdrWriter::default();
            ndr.unique_string(None);
            ndr.unique_string(call.client.as_ref());
            ndr.unique_string(call.user.as_ref());
            ndr.u32(level);
            let read = Call::decode(srvsvc::INTERFACE, OPNUM, &ndr.into_stub());
            prop_assert_eq!(read, Ok(Some(Call::SessionEnum(call))));
        }
    }
}
