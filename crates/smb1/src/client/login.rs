//! NEGOTIATE and SESSION_SETUP_ANDX ([MS-CIFS] 3.2.4.2.2, 3.2.4.2.4, [MS-SMB] 3.2.4.2.4).

use ropeway_smb_proto::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::auth::{Established, Step};
use ropeway_smb_proto::client::Signing;
use ropeway_smb_proto::secret::SessionKey;
use ropeway_smb_wire::smb1_negotiate::Smb1NegotiateRequest;
use ropeway_smb_wire::{NtStatus, Text};

use super::config::{Identity, Negotiated};
use super::connection::{Connection, Phase};
use super::error::{LoginError, PeerMisbehaved};
use crate::auth::Responses;
use crate::dos_error::is_error;
use crate::dos_time::Zone;
use crate::header::{Command, Flags2, HEADER_LEN, Header};
use crate::message::{AndX, Block};
use crate::signing::Signer;
use crate::strings::Str;
use crate::wire::negotiate::{
    Capabilities, Greeting, NT_LM_0_12, NegotiateResponse, NegotiateWords, SecurityMode,
};
use crate::wire::session_setup::{Action, Proof, SessionSetupRequest, SessionSetupResponse, SetupWords};

/// What this client can do ([MS-CIFS] 2.2.4.53.1).
const CAPABILITIES: Capabilities = Capabilities::LARGE_FILES
    .union(Capabilities::NT_SMBS)
    .union(Capabilities::STATUS32)
    .union(Capabilities::LEVEL_II_OPLOCKS)
    .union(Capabilities::NT_FIND);

/// What servers put in the place of a signature while they have no key.
const PLACEHOLDER: [u8; 8] = *b"BSRSPYL ";

/// A login in progress.
pub(super) enum Login {
    /// One round.
    Responses {
        /// The key, if there is one.
        key: Option<SessionKey>,
        /// The response that is part of the signing key.
        response: Vec<u8>,
    },
    /// As many rounds as it takes.
    Spnego(Box<SpnegoClient>, Option<Established>),
}

impl Connection {
    /// Sends NEGOTIATE.
    pub(super) fn negotiate(&mut self) {
        self.send_login(Command::NEGOTIATE, |w| {
            // The request of the codec has its own header, which this connection's replaces.
            let mut message = Vec::new();
            Smb1NegotiateRequest::encode(&[NT_LM_0_12], &mut ropeway_smb_wire::Writer::new(&mut message));
            w.bytes(&message[HEADER_LEN..]);
        });
    }

    /// Continues with a response of the login.
    pub(super) fn continue_login(
        &mut self,
        header: &Header,
        message: &[u8],
        sequence: u32,
    ) -> Result<(), PeerMisbehaved> {
        let outcome = match std::mem::replace(&mut self.phase, Phase::Negotiating) {
            Phase::Negotiating => self.negotiated_with(header, message)?,
            Phase::LoggingIn(login) => self.logged_in(*login, header, message, sequence)?,
            // Responses of other phases are not the login's.
            other => {
                self.phase = other;
                return Ok(());
            }
        };
        if let Err(fault) = outcome {
            self.login_failed(fault);
        }
        Ok(())
    }

    fn negotiated_with(
        &mut self,
        header: &Header,
        message: &[u8],
    ) -> Result<Result<(), LoginError>, PeerMisbehaved> {
        if is_error(header.status) {
            return Ok(Err(LoginError::NegotiationRefused(header.status)));
        }
        let response = NegotiateResponse::decode(&Block::first(message)?, header.is_unicode())?;
        let (words, greeting) = match response {
            NegotiateResponse::NoDialect => return Ok(Err(LoginError::NoDialect)),
            NegotiateResponse::Older(_) => return Err(PeerMisbehaved::NotOffered),
            NegotiateResponse::NtLm(words, greeting) => (words, greeting),
        };
        if words.dialect_index != 0 {
            return Err(PeerMisbehaved::NotOffered);
        }
        Ok(self.settle(&words, greeting))
    }

    /// Settles what both ends can do, and begins the login.
    fn settle(&mut self, words: &NegotiateWords, greeting: Greeting) -> Result<(), LoginError> {
        let can_sign = words
            .security_mode
            .intersects(SecurityMode::SIGNATURES_ENABLED | SecurityMode::SIGNATURES_REQUIRED);
        let wants_to_sign = self.config.signing == Signing::Required
            || words.security_mode.contains(SecurityMode::SIGNATURES_REQUIRED);
        let has_keys = !self.config.guest_allowed && !matches!(self.config.identity, Identity::Anonymous);
        if self.config.signing == Signing::Required && has_keys && !can_sign {
            return Err(LoginError::NoSigning);
        }
        let (challenge, token) = match greeting {
            Greeting::Challenge { challenge, .. } => {
                let first = challenge.first_chunk::<8>().copied().unwrap_or_default();
                (Some(first), Vec::new())
            }
            Greeting::Extended { blob, .. } => (None, blob),
        };
        let max_mpx_count = words.max_mpx_count.max(1);
        self.negotiated = Some(Negotiated {
            security_mode: words.security_mode,
            capabilities: words.capabilities,
            in_flight_max: self.config.in_flight_max.clamp(1, max_mpx_count),
            max_mpx_count,
            // The least that the specification knows ([MS-CIFS] 2.2.4.52.2).
            max_buffer_size: words.max_buffer_size.max(1024),
            zone: Zone(words.server_time_zone),
            system_time: words.system_time,
            session_key: words.session_key,
            unicode: self.config.unicode && words.capabilities.contains(Capabilities::UNICODE),
            challenge,
            signs: can_sign && wants_to_sign && has_keys,
        });
        match challenge {
            Some(challenge) => self.log_in_by_responses(challenge, words.security_mode),
            None => self.log_in_by_spnego(&token),
        }
    }

    fn log_in_by_spnego(&mut self, hint: &[u8]) -> Result<(), LoginError> {
        let credentials = match &self.config.identity {
            Identity::Anonymous => Credentials::anonymous(),
            Identity::User {
                domain, user, hash, ..
            } => Credentials::with_hash(domain, user, hash.clone()),
        };
        let entropy = NtlmEntropy {
            wall_time: self.entropy.wall_time,
            client_challenge: self.entropy.client_challenge,
            session_key: self.entropy.session_key.clone(),
        };
        let ntlm = NtlmClient::new(credentials, Text::default(), None, entropy);
        let mut spnego = SpnegoClient::new(vec![Box::new(ntlm)]);
        let token = spnego.start(hint)?;
        self.set_up_session(Proof::Token(token));
        self.phase = Phase::LoggingIn(Box::new(Login::Spnego(Box::new(spnego), None)));
        Ok(())
    }

    fn log_in_by_responses(&mut self, challenge: [u8; 8], mode: SecurityMode) -> Result<(), LoginError> {
        let (responses, user, domain) = match &self.config.identity {
            Identity::Anonymous => (Responses::anonymous(), Text::default(), Text::default()),
            Identity::User { domain, user, .. } => {
                let (domain, user) = (Text::from(domain.as_str()), Text::from(user.as_str()));
                let responses = self.responses(challenge, mode, &user, &domain)?;
                (responses, user, domain)
            }
        };
        let negotiated = self.negotiated.as_mut().ok_or(LoginError::NoDialect)?;
        if negotiated.signs && responses.key.is_none() {
            if self.config.signing == Signing::Required {
                return Err(LoginError::NoSigning);
            }
            negotiated.signs = false;
        }
        let (unicode, page) = (negotiated.unicode, self.config.code_page);
        let string = |text: &Text| {
            // A name that the code page lacks is no name of that server's users.
            Str::encode(text, unicode, page).unwrap_or_else(|_| Str::empty(unicode))
        };
        let (user, domain) = (string(&user), string(&domain));
        self.set_up_session(Proof::Responses {
            lm: responses.lm,
            nt: responses.nt.clone(),
            user,
            domain,
        });
        self.phase = Phase::LoggingIn(Box::new(Login::Responses {
            key: responses.key,
            response: responses.nt,
        }));
        Ok(())
    }

    /// Returns the best proof that is allowed.
    fn responses(
        &self,
        challenge: [u8; 8],
        mode: SecurityMode,
        user: &Text,
        domain: &Text,
    ) -> Result<Responses, LoginError> {
        let Identity::User { hash, password, .. } = &self.config.identity else {
            return Ok(Responses::anonymous());
        };
        let (weak, page) = (self.config.weak_auth, self.config.code_page);
        if !mode.contains(SecurityMode::ENCRYPT_PASSWORDS) {
            return match password.as_ref().filter(|_| weak.clear_text) {
                Some(password) => Ok(Responses::clear_text(password, page)),
                None => Err(LoginError::ClearText),
            };
        }
        Ok(match password.as_ref().filter(|_| weak.lm) {
            Some(password) => Responses::lm(password, page, challenge),
            None if weak.ntlm => Responses::ntlm(hash, challenge),
            None => Responses::ntlm_v2(
                hash,
                (user, domain),
                challenge,
                self.entropy.client_challenge,
                self.entropy.wall_time,
            ),
        })
    }

    /// Returns the password for a share, where shares have passwords.
    pub(super) fn password_of_share(&self) -> Option<Vec<u8>> {
        let negotiated = self.negotiated.as_ref()?;
        if negotiated.security_mode.contains(SecurityMode::USER_LEVEL) {
            return None;
        }
        let challenge = negotiated.challenge?;
        let (user, domain) = (Text::default(), Text::default());
        let responses = self
            .responses(challenge, negotiated.security_mode, &user, &domain)
            .ok()?;
        Some(match responses.nt.is_empty() {
            true => responses.lm,
            false => responses.nt,
        })
    }

    fn set_up_session(&mut self, proof: Proof) {
        let Some(negotiated) = &self.negotiated else {
            return;
        };
        let unicode = negotiated.unicode;
        let mut capabilities = CAPABILITIES;
        if unicode {
            capabilities |= Capabilities::UNICODE;
        }
        if self.config.large_io {
            capabilities |= Capabilities::LARGE_READX | Capabilities::LARGE_WRITEX;
        }
        if matches!(proof, Proof::Token(_)) {
            capabilities |= Capabilities::EXTENDED_SECURITY;
        }
        let own = |text: &str| match unicode {
            true => Str::unicode(&Text::from(text)),
            false => Str::oem(text.as_bytes()),
        };
        let request = SessionSetupRequest {
            words: SetupWords {
                andx: AndX::NONE,
                max_buffer_size: self.config.buffer_size,
                max_mpx_count: negotiated.in_flight_max,
                // Not 0: a server would end the other connections of this machine.
                vc_number: 1,
                session_key: negotiated.session_key,
            },
            capabilities,
            proof,
            native_os: own("Unix"),
            native_lan_man: own("Ropeway"),
        };
        self.send_login(Command::SESSION_SETUP_ANDX, |w| request.encode(w));
    }

    fn logged_in(
        &mut self,
        login: Login,
        header: &Header,
        message: &[u8],
        sequence: u32,
    ) -> Result<Result<(), LoginError>, PeerMisbehaved> {
        let goes_on = header.status == NtStatus::MORE_PROCESSING_REQUIRED;
        if is_error(header.status) && !goes_on {
            return Ok(Err(LoginError::Refused(header.status)));
        }
        let response = SessionSetupResponse::decode(&Block::first(message)?, header.is_unicode())?;
        self.uid = header.uid;
        let (key, response_part) = match login {
            Login::Responses { key, response } => (key, response),
            Login::Spnego(spnego, established) => {
                let token = response.blob.as_deref().unwrap_or_default();
                let stepped = self.step(spnego, established, token, goes_on);
                match stepped {
                    Ok(Some(established)) => (Some(established.session_key), Vec::new()),
                    Ok(None) => return Ok(Ok(())),
                    Err(fault) => return Ok(Err(fault)),
                }
            }
        };
        let wants_user = matches!(self.config.identity, Identity::User { .. });
        if response.action.contains(Action::GUEST) && wants_user && !self.config.guest_allowed {
            return Ok(Err(LoginError::Guest));
        }
        let signs = self.negotiated.as_ref().is_some_and(|both| both.signs);
        if let Some(key) = key.filter(|_| signs) {
            // Only the key of the first login counts, and the first message has number 0.
            let signer = Signer::new(key.truncated().expose(), &response_part);
            // The response that ends the login is signed with number 1 ([MS-SMB] 3.3.5.3). A server
            // that has no signature here must have one in all that follows.
            if header.flags2.contains(Flags2::SECURITY_SIGNATURE)
                && header.signature != [0; 8]
                && header.signature != PLACEHOLDER
                && sequence == 1
                && signer.verify(message, 1).is_err()
            {
                return Err(PeerMisbehaved::BadSignature);
            }
            self.signer = Some(signer);
            self.sequence = 2;
        }
        self.ready();
        Ok(Ok(()))
    }

    /// Continues SPNEGO. Returns the result once both ends are done.
    fn step(
        &mut self,
        mut spnego: Box<SpnegoClient>,
        established: Option<Established>,
        token: &[u8],
        goes_on: bool,
    ) -> Result<Option<Established>, LoginError> {
        if let Some(established) = established {
            // Our last token was sent; the server had none for us.
            return Ok(Some(established));
        }
        match spnego.step(token)? {
            Step::Continue(token) => {
                self.set_up_session(Proof::Token(token));
                self.phase = Phase::LoggingIn(Box::new(Login::Spnego(spnego, None)));
                Ok(None)
            }
            Step::Done(mut done) => match done.token.take() {
                Some(token) => {
                    self.set_up_session(Proof::Token(token));
                    self.phase = Phase::LoggingIn(Box::new(Login::Spnego(spnego, Some(done))));
                    Ok(None)
                }
                None if goes_on => Err(LoginError::Refused(NtStatus::MORE_PROCESSING_REQUIRED)),
                None => Ok(Some(done)),
            },
        }
    }
}
