//! Below 3.1.1: was the negotiation tampered with? ([MS-SMB2] 3.2.5.5, 3.2.5.14.12)
//!
//! Asked once, after the first share is entered; the answer to that TREE_CONNECT is held back meanwhile. Question and
//! answer are signed or sealed, so nobody between the ends can have changed them.

use super::PeerMisbehaved;
use super::connection::Connection;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::validate_negotiate::{ValidateNegotiateRequest, ValidateNegotiateResponse};
use ropeway_smb_wire::header::{HEADER_LEN, Header};
use ropeway_smb_wire::ioctl::{IoctlRequest, IoctlResponse};
use ropeway_smb_wire::{NtStatus, Reader, Writer};

/// Length of the answer ([MS-SMB2] 2.2.32.6).
const ANSWER_LEN: u32 = 24;

impl Connection {
    pub(super) fn encode_validation(&self, w: &mut Writer<'_>) {
        let offer = self.offer();
        let request = ValidateNegotiateRequest {
            capabilities: offer.capabilities,
            guid: self.config.client_guid,
            security_mode: offer.security_mode,
            dialects: offer.dialects.iter().map(|dialect| dialect.code()).collect(),
        };
        let mut input = Vec::new();
        request.encode(&mut Writer::new(&mut input));
        IoctlRequest::fsctl_without_file(CtlCode::VALIDATE_NEGOTIATE_INFO, &input, ANSWER_LEN).encode(w);
    }

    pub(super) fn handle_validation(
        &mut self,
        header: &Header,
        message: &[u8],
    ) -> Result<(), PeerMisbehaved> {
        match header.status {
            NtStatus::SUCCESS => self.compare(message)?,
            // Servers of 2.x do not know the question; that they do not is signed.
            NtStatus::NOT_SUPPORTED | NtStatus::INVALID_DEVICE_REQUEST | NtStatus::FILE_CLOSED => {}
            _ => return Err(PeerMisbehaved::Downgrade("the server refuses to validate it")),
        }
        self.validating = false;
        if let Some(session) = &mut self.session {
            session.validated = true;
        }
        for (ticket, replies) in std::mem::take(&mut self.held) {
            self.notify(super::Event::Replied { ticket, replies })?;
        }
        Ok(())
    }

    fn compare(&self, message: &[u8]) -> Result<(), PeerMisbehaved> {
        let response = IoctlResponse::decode(&mut Reader::at(message, HEADER_LEN, "SMB2 IOCTL Response"))?;
        let told = ValidateNegotiateResponse::decode(response.output)?;
        let Some(negotiated) = &self.negotiated else {
            return Err(PeerMisbehaved::Downgrade("nothing was negotiated"));
        };
        for (same, what) in [
            (told.dialect == negotiated.dialect.code(), "the dialect"),
            (told.guid == negotiated.server_guid, "the server"),
            (told.capabilities == negotiated.capabilities, "the capabilities"),
            (
                told.security_mode == negotiated.security_mode,
                "the security mode",
            ),
        ] {
            if !same {
                return Err(PeerMisbehaved::Downgrade(what));
            }
        }
        Ok(())
    }
}
