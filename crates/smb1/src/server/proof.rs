//! Logins without extended security: the responses of a SESSION_SETUP_ANDX as one token for the
//! server's SMB 2, whose logins carry tokens.
//!
//! Such a token never leaves the process. It begins as NTLM's messages do, so that SPNEGO passes it
//! on as it is.

use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::auth::{AuthError, Established, Identity, Mechanism, Oid, Refusal, Result, Step};
use ropeway_smb_proto::secret::{NtHash, Password, SessionKey};
use ropeway_smb_proto::server::Accounts;
use ropeway_smb_wire::{DecodeErrorKind, Reader, Text, Writer, upcase};

use crate::auth::{self, WeakAuth};

/// What SPNEGO knows messages of NTLM by.
const SIGNATURE: &[u8] = b"NTLMSSP\0";

/// The responses of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofClient {
    /// The response in the LM form.
    pub lm: Vec<u8>,
    /// The response in the NT form.
    pub nt: Vec<u8>,
    /// The user.
    pub user: Text,
    /// The user's domain.
    pub domain: Text,
}

impl ProofClient {
    /// Returns the token.
    pub fn to_token(&self) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        let mut w = Writer::new(&mut out);
        for text in [&self.user, &self.domain] {
            w.u32(text.wire_len() as u32);
            text.write(&mut w);
        }
        for response in [&self.lm, &self.nt] {
            w.u32(response.len() as u32);
            w.bytes(response);
        }
        out
    }

    fn decode(token: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(token, "responses");
        reader.skip(SIGNATURE.len())?;
        let mut part = || -> Result<&[u8]> {
            let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
            Ok(reader.bytes(length)?)
        };
        let (user, domain, lm, nt) = (part()?, part()?, part()?, part()?);
        let text = |bytes| Text::from_le_bytes(bytes).ok_or(reader.error(DecodeErrorKind::Value));
        Ok(Self {
            user: text(user)?,
            domain: text(domain)?,
            lm: lm.to_vec(),
            nt: nt.to_vec(),
        })
    }

    fn is_anonymous(&self) -> bool {
        let is_empty = |response: &[u8]| matches!(response, [] | [0]);
        self.user.is_empty() && is_empty(&self.lm) && is_empty(&self.nt)
    }
}

/// Checks the responses of one login. Only NTLMv2 and LMv2 prove anything.
pub struct ProofServer {
    challenge: [u8; 8],
    accounts: Accounts,
    anonymous: bool,
    guest: bool,
}

impl ProofServer {
    /// Creates the check of responses to a challenge. `anonymous` and `guest`: whether a client
    /// without a name, and the user `guest` without a password, may log in.
    pub fn new(challenge: [u8; 8], accounts: Accounts, anonymous: bool, guest: bool) -> Self {
        Self {
            challenge,
            accounts,
            anonymous,
            guest,
        }
    }

    fn check(&self, proof: &ProofClient) -> Result<(Identity, SessionKey)> {
        if proof.is_anonymous() {
            return match self.anonymous {
                true => Ok((Identity::Anonymous, SessionKey::new(vec![0; 16]))),
                false => Err(AuthError::Refused(Refusal::Anonymous)),
            };
        }
        let names = (&proof.user, &proof.domain);
        let is_guest = self.guest && upcase::equal(&proof.user, &Text::from("guest"));
        let known = match is_guest {
            true => Some(nt_hash(&Password::from(""))),
            false => (self.accounts)(&proof.user, &proof.domain),
        };
        // An unknown user takes the same computations, so that timing reveals nothing.
        let is_known = known.is_some();
        let hash = known.unwrap_or(NtHash::from_bytes([0; 16]));
        let responses = (&proof.lm[..], &proof.nt[..]);
        let found = auth::verify(&hash, names, self.challenge, responses, WeakAuth::default());
        let (_, key) = match (found, is_known) {
            (Some(found), true) => found,
            (_, false) => return Err(AuthError::Refused(Refusal::UnknownUser)),
            (None, true) => return Err(AuthError::Refused(Refusal::WrongPassword)),
        };
        let identity = Identity::User {
            domain: proof.domain.clone(),
            user: proof.user.clone(),
            workstation: Text::default(),
        };
        Ok((identity, key))
    }
}

impl Mechanism for ProofServer {
    fn oids(&self) -> &[Oid] {
        &[Oid::NTLMSSP]
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Step> {
        let token = token.ok_or(AuthError::OutOfOrder("no responses"))?;
        let (identity, session_key) = self.check(&ProofClient::decode(token)?)?;
        Ok(Step::Done(Established {
            token: None,
            session_key,
            identity: Some(identity),
        }))
    }

    fn has_mic(&self) -> bool {
        false
    }

    fn mic(&mut self, _message: &[u8]) -> Result<Vec<u8>> {
        Err(AuthError::OutOfOrder("there is no code"))
    }

    fn verify_mic(&mut self, _message: &[u8], _mic: &[u8]) -> Result<()> {
        Err(AuthError::BadMic)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropeway_smb_wire::FileTime;

    use super::*;
    use crate::auth::Responses;
    use crate::hostile;

    const CHALLENGE: [u8; 8] = [7; 8];

    fn server(anonymous: bool, guest: bool) -> ProofServer {
        let accounts: Accounts = Arc::new(|user: &Text, _: &Text| {
            upcase::equal(user, &Text::from("ann")).then(|| nt_hash(&Password::from("secret")))
        });
        ProofServer::new(CHALLENGE, accounts, anonymous, guest)
    }

    fn proof(user: &str, responses: Responses) -> Vec<u8> {
        ProofClient {
            lm: responses.lm,
            nt: responses.nt,
            user: Text::from(user),
            domain: Text::from("WORK"),
        }
        .to_token()
    }

    fn v2(user: &str, password: &str) -> Responses {
        let names = (&Text::from(user), &Text::from("WORK"));
        let hash = nt_hash(&Password::from(password));
        Responses::ntlm_v2(&hash, names, CHALLENGE, [1; 8], FileTime(5))
    }

    #[test]
    fn only_strong_proofs_of_known_users_are_accepted() {
        let done = |mut server: ProofServer, token: &[u8]| server.step(Some(token)).is_ok();
        assert!(done(server(false, false), &proof("Ann", v2("Ann", "secret"))));
        assert!(!done(server(false, false), &proof("ann", v2("ann", "wrong"))));
        assert!(!done(server(false, false), &proof("bob", v2("bob", "secret"))));
        let weak = Responses::ntlm(&nt_hash(&Password::from("secret")), CHALLENGE);
        assert!(!done(server(true, true), &proof("ann", weak)), "NTLMv1");
        assert!(done(server(false, true), &proof("Guest", v2("Guest", ""))));
        assert!(!done(server(false, false), &proof("guest", v2("guest", ""))));
        assert!(done(server(true, false), &proof("", Responses::anonymous())));
        assert!(!done(server(false, true), &proof("", Responses::anonymous())));
    }

    #[test]
    fn hostile_tokens_never_panic() {
        let token = proof("ann", v2("ann", "secret"));
        hostile::attack(&token, 8, |bytes| server(true, true).step(Some(bytes)).is_ok());
    }
}
