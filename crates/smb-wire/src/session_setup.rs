//! SESSION_SETUP: the rounds of a login ([MS-SMB2] 2.2.5, 2.2.6). The tokens themselves are the login's business.

use super::cursor::{Reader, Result, Writer};
use super::ids::SessionId;
use super::lengths::{len_u16, named};
use super::negotiate::{Capabilities, SecurityMode};
use bitflags::bitflags;

bitflags! {
    /// `Flags` of the request ([MS-SMB2] 2.2.5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SessionSetupFlags: u8 {
        /// Bind this connection to a session that exists on another (3.x).
        const BINDING = 0x01;
        const _ = !0;
    }
}

bitflags! {
    /// `SessionFlags` of the response ([MS-SMB2] 2.2.6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct SessionFlags: u16 {
        /// Logged in as guest: nothing is signed.
        const IS_GUEST = 0x0001;
        /// Logged in as nobody: nothing is signed.
        const IS_NULL = 0x0002;
        /// The server demands encryption for the whole session (3.x).
        const ENCRYPT_DATA = 0x0004;
        const _ = !0;
    }
}

/// A round of the login ([MS-SMB2] 2.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSetupRequest<'a> {
    /// Flags.
    pub flags: SessionSetupFlags,
    /// How the client signs; only the low byte is sent.
    pub security_mode: SecurityMode,
    /// What the client can do; only [`Capabilities::DFS`] has a meaning here.
    pub capabilities: Capabilities,
    /// A session of this client that the server can end: it was lost with its connection; 0 for none.
    pub previous_session_id: SessionId,
    /// The token.
    pub security_buffer: &'a [u8],
}

impl<'a> SessionSetupRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// [`super::Fault`].
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 SESSION_SETUP Request");
        reader.structure_size(25)?;
        let flags = SessionSetupFlags::from_bits_retain(reader.u8()?);
        let security_mode = SecurityMode::from_bits_retain(u16::from(reader.u8()?));
        let capabilities = Capabilities::from_bits_retain(reader.u32()?);
        // Channel.
        reader.skip(4)?;
        let offset = usize::from(reader.u16()?);
        let length = usize::from(reader.u16()?);
        let previous_session_id = SessionId(reader.u64()?);
        Ok(Self {
            flags,
            security_mode,
            capabilities,
            previous_session_id,
            security_buffer: reader.slice(offset, length)?,
        })
    }

    /// Appends a request.
    ///
    /// # Panics
    /// If the token is longer than 65,535 bytes or the security mode does not fit a byte.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let [security_mode, high] = self.security_mode.bits().to_le_bytes();
        assert_eq!(high, 0, "one byte of the security mode is sent");
        w.u16(25);
        w.u8(self.flags.bits());
        w.u8(security_mode);
        w.u32(self.capabilities.bits());
        w.u32(0);
        w.u16(len_u16(w.position() + 12));
        w.u16(len_u16(self.security_buffer.len()));
        w.u64(self.previous_session_id.0);
        w.bytes(self.security_buffer);
    }
}

/// The server's answer; with STATUS_MORE_PROCESSING_REQUIRED there is another round ([MS-SMB2] 2.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSetupResponse<'a> {
    /// What kind of session it is; valid once the status is success.
    pub session_flags: SessionFlags,
    /// The token.
    pub security_buffer: &'a [u8],
}

impl<'a> SessionSetupResponse<'a> {
    /// Reads a response.
    ///
    /// # Errors
    /// [`super::Fault`].
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let mut reader = named(reader, "SMB2 SESSION_SETUP Response");
        reader.structure_size(9)?;
        let session_flags = SessionFlags::from_bits_retain(reader.u16()?);
        let offset = usize::from(reader.u16()?);
        let length = usize::from(reader.u16()?);
        Ok(Self {
            session_flags,
            security_buffer: reader.slice(offset, length)?,
        })
    }

    /// Appends a response.
    ///
    /// # Panics
    /// If the token is longer than 65,535 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(9);
        w.u16(self.session_flags.bits());
        w.u16(len_u16(w.position() + 4));
        w.u16(len_u16(self.security_buffer.len()));
        w.bytes(self.security_buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NtStatus;
    use crate::header::{HEADER_LEN, Header};
    use crate::hostile;
    use crate::negotiate::tests::unhex;
    use proptest::prelude::*;

    /// Two messages of the published example of preauthentication integrity (Microsoft, "SMB 3.1.1
    /// Pre-authentication integrity in Windows 10", 2015).
    #[test]
    fn the_published_rounds() {
        let bytes = unhex(
            "FE534D4240000100000000000100800000000000000000000200000000000000FFFE000000000000
             00000000000000000000000000000000000000000000000019000001010000000000000058004A00
             0000000000000000604806062B0601050502A03E303CA00E300C060A2B06010401823702020AA22A
             04284E544C4D5353500001000000978208E200000000000000000000000000000000060380250000
             000F",
        );
        let request = SessionSetupRequest::decode(&mut hostile::body(&bytes)).unwrap();
        assert_eq!(request.security_mode, SecurityMode::SIGNING_ENABLED);
        assert_eq!(request.capabilities, Capabilities::DFS);
        assert_eq!(
            (request.security_buffer.len(), request.security_buffer[0]),
            (74, 0x60)
        );
        assert_eq!(
            hostile::message(|w| request.encode(w))[HEADER_LEN..],
            bytes[HEADER_LEN..]
        );

        let bytes = unhex(
            "FE534D4240000100000000000100800009000000000000000300000000000000FFFE000000000000
             1900000000100000EBE146DA120BA25FC3376A49DFE31BC10900000048001D00A11B3019A0030A01
             00A3120410010000003B453CDC3524164200000000",
        );
        let mut reader = Reader::new(&bytes, "test");
        let header = Header::decode(&mut reader).unwrap();
        assert_eq!(
            (header.status, header.session_id),
            (NtStatus::SUCCESS, SessionId(0x1000_0000_0019))
        );
        assert_eq!(header.signature[..2], [0xEB, 0xE1]);
        let response = SessionSetupResponse::decode(&mut reader).unwrap();
        assert_eq!(response.session_flags, SessionFlags::default());
        assert_eq!(response.security_buffer.len(), 29);
        assert_eq!(
            hostile::message(|w| response.encode(w))[HEADER_LEN..],
            bytes[HEADER_LEN..]
        );
    }

    #[test]
    fn hostile_rounds() {
        let request = SessionSetupRequest {
            flags: SessionSetupFlags::BINDING,
            security_mode: SecurityMode::SIGNING_REQUIRED,
            capabilities: Capabilities::DFS,
            previous_session_id: SessionId(1),
            security_buffer: b"token",
        };
        hostile::attack_body(&hostile::message(|w| request.encode(w)), |reader| {
            let _ = SessionSetupRequest::decode(reader);
        });
        let response = SessionSetupResponse {
            session_flags: SessionFlags::IS_GUEST,
            security_buffer: b"token",
        };
        hostile::attack_body(&hostile::message(|w| response.encode(w)), |reader| {
            let _ = SessionSetupResponse::decode(reader);
        });
    }

    proptest! {
        #[test]
        fn rounds_round_trip(flags: u8, mode: u8, capabilities: u32, previous: u64, session: u16, token: Vec<u8>) {
            let request = SessionSetupRequest {
                flags: SessionSetupFlags::from_bits_retain(flags),
                security_mode: SecurityMode::from_bits_retain(u16::from(mode)),
                capabilities: Capabilities::from_bits_retain(capabilities),
                previous_session_id: SessionId(previous),
                security_buffer: &token,
            };
            let bytes = hostile::message(|w| request.encode(w));
            prop_assert_eq!(SessionSetupRequest::decode(&mut hostile::body(&bytes)), Ok(request));
            let response = SessionSetupResponse {
                session_flags: SessionFlags::from_bits_retain(session),
                security_buffer: &token,
            };
            let bytes = hostile::message(|w| response.encode(w));
            prop_assert_eq!(SessionSetupResponse::decode(&mut hostile::body(&bytes)), Ok(response));
        }
    }
}
