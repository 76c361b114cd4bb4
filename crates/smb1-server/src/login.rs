//! SESSION_SETUP_ANDX and LOGOFF_ANDX ([MS-CIFS] 3.3.5.43, 3.3.5.44, [MS-SMB] 3.3.5.3).
//!
//! The server behind the line checks the tokens, and limits and records logins as for SMB 2.

use ropeway_smb_wire::bare::LogoffRequest;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::negotiate::{Capabilities, SecurityMode};
use ropeway_smb_wire::session_setup::{
    SessionSetupFlags, SessionSetupRequest as LineRequest, SessionSetupResponse as LineResponse,
};
use ropeway_smb_wire::{NtStatus, SessionId, Text, TreeId};
use ropeway_smb1::Str;
use ropeway_smb1::dos_error::status::{BAD_UID, INVALID_SMB};
use ropeway_smb1::server::ProofClient;
use ropeway_smb1::wire::session_setup::{Action, Proof, SessionSetupResponse, encode_andx};

use crate::conversation::{Call, Conversation, Done, Outcome, done};
use crate::line::{Fault, Place};

fn place_of(session: SessionId) -> Place {
    Place {
        session,
        tree: TreeId::default(),
    }
}

impl Conversation {
    pub(crate) fn session_setup(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = self.state.decode_setup(call.block, &call.header)?;
        let (token, response, is_extended) = match request.proof {
            Proof::Token(token) => (token, Vec::new(), true),
            Proof::Responses { lm, nt, user, domain } => {
                let proof = ProofClient {
                    user: self.state.text(&user),
                    domain: self.state.text(&domain),
                    lm,
                    nt: nt.clone(),
                };
                (proof.to_token(), nt, false)
            }
        };
        // The form that was negotiated, and no other ([MS-SMB] 3.3.5.3).
        if is_extended != self.state.has_extended_security() {
            return Err(NtStatus::LOGON_FAILURE.into());
        }
        let begun = self.state.login(call.header.uid).filter(|_| is_extended);
        let setup = LineRequest {
            flags: SessionSetupFlags::default(),
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::default(),
            previous_session_id: SessionId::default(),
            security_buffer: &token,
        };
        let place = place_of(begun.unwrap_or_default());
        let reply = self
            .line
            .ask_any(Command::SessionSetup, place, |w| setup.encode(w))?;
        let status = reply.header.status;
        if !matches!(status, NtStatus::SUCCESS | NtStatus::MORE_PROCESSING_REQUIRED) {
            if begun.is_some() {
                self.state.forget(call.header.uid);
            }
            return Err(status.into());
        }
        let session = reply.header.session_id;
        let blob = reply.body(LineResponse::decode)?.security_buffer.to_vec();
        let uid = match begun {
            Some(_) => call.header.uid,
            None => self.state.begin_login(session)?,
        };
        call.header.uid = uid;
        let mut action = Action::empty();
        if status == NtStatus::SUCCESS {
            action = self.admit(call, uid, session, &response)?;
        }
        let answer = self.setup_response(call.is_unicode(), action, is_extended.then_some(blob));
        Ok(Done {
            status,
            body: Box::new(move |w| answer.encode(w)),
        })
    }

    /// Lets a user in whose proof was right.
    fn admit(
        &mut self,
        call: &mut Call<'_>,
        uid: u16,
        session: SessionId,
        response: &[u8],
    ) -> Result<Action, Fault> {
        let known = self.foreign.session(session).ok_or(NtStatus::LOGON_FAILURE)?;
        self.state
            .log_in(&mut call.admitted, uid, known.key.as_ref(), response);
        Ok(match known.is_guest {
            true => Action::GUEST,
            false => Action::empty(),
        })
    }

    fn setup_response(
        &self,
        is_unicode: bool,
        action: Action,
        blob: Option<Vec<u8>>,
    ) -> SessionSetupResponse {
        let string = |text: &str| self.state.string(&Text::from(text), is_unicode);
        // With extended security the domain is part of the token.
        let domain = match blob {
            Some(_) => Str::empty(is_unicode),
            None => {
                let names = &self.state.config().names;
                self.state.string(&names.netbios_domain, is_unicode)
            }
        };
        SessionSetupResponse {
            action,
            blob,
            native_os: string("Unix"),
            native_lan_man: string("Ropeway"),
            domain,
            ..SessionSetupResponse::default()
        }
    }

    pub(crate) fn log_off(&mut self, call: &mut Call<'_>) -> Outcome {
        if call.block.word_count() != 2 {
            return Err(INVALID_SMB.into());
        }
        let uid = call.header.uid;
        let session = self.state.session(uid).ok_or(BAD_UID)?;
        self.state.forget(uid);
        self.tables.forget(uid, None);
        self.transactions.forget(uid);
        self.line
            .ask_any(Command::Logoff, place_of(session), |w| LogoffRequest.encode(w))?;
        done(encode_andx)
    }
}
