//! The client's end.

use zeroize::Zeroizing;

use super::keys::{self, Direction, Key16};
use super::message::{Authenticate, Challenge, MIC_AT, Negotiate, NegotiateFlags, Version};
use super::{AvId, AvPairs, OIDS, check_flags};
use crate::auth::{AuthError, Established, Mechanism, Oid, Result, Step};
use crate::secret::{NtHash, Password, SessionKey};
use ropeway_smb_wire::{FileTime, Text};

/// Who we say we are, and how we prove it.
#[derive(Clone, Debug)]
pub struct Credentials {
    domain: Text,
    user: Text,
    /// `None`: anonymous.
    hash: Option<NtHash>,
}

impl Credentials {
    /// A user by password. `domain` may be empty; with a user of the form `user@domain` it is.
    pub fn with_password(domain: &str, user: &str, password: &Password) -> Self {
        Self::with_hash(domain, user, keys::nt_hash(password))
    }

    /// A user by the password's hash.
    pub fn with_hash(domain: &str, user: &str, hash: NtHash) -> Self {
        Self {
            domain: domain.into(),
            user: user.into(),
            hash: Some(hash),
        }
    }

    /// A null session.
    pub fn anonymous() -> Self {
        Self {
            domain: Text::default(),
            user: Text::default(),
            hash: None,
        }
    }
}

/// What one authentication needs from outside.
#[derive(Clone)]
pub struct NtlmEntropy {
    /// The present time; used if the server tells none.
    pub now: FileTime,
    /// Random.
    pub client_challenge: [u8; 8],
    /// Random, and secret: becomes the session key.
    pub session_key: Zeroizing<[u8; 16]>,
}

/// The client's end of one NTLMv2 authentication.
pub struct NtlmClient {
    credentials: Credentials,
    workstation: Text,
    target: Option<Text>,
    entropy: NtlmEntropy,
    state: State,
}

enum State {
    Start,
    /// Awaits CHALLENGE; has NEGOTIATE for the MIC.
    Negotiated(Vec<u8>),
    Done(Box<keys::Session>),
    Failed,
}

/// Length in bytes that fits NTLM's 16-bit lengths with room to spare; no directory has names as long.
const NAME_LEN_MAX: usize = 4096;

/// What we can do; also what we say with NEGOTIATE.
const CAPABLE: NegotiateFlags = NegotiateFlags::UNICODE
    .union(NegotiateFlags::REQUEST_TARGET)
    .union(NegotiateFlags::SIGN)
    .union(NegotiateFlags::NTLM)
    .union(NegotiateFlags::ALWAYS_SIGN)
    .union(NegotiateFlags::EXTENDED_SESSION_SECURITY)
    .union(NegotiateFlags::TARGET_INFO)
    .union(NegotiateFlags::VERSION)
    .union(NegotiateFlags::KEY_128)
    .union(NegotiateFlags::KEY_EXCHANGE)
    .union(NegotiateFlags::KEY_56);

impl NtlmClient {
    /// `workstation` is what we call our machine (may be empty); `target` is the service we mean to reach, such as
    /// `cifs/server`, which a server that checks it compares with its own names.
    pub fn new(
        credentials: Credentials,
        workstation: Text,
        target: Option<Text>,
        entropy: NtlmEntropy,
    ) -> Self {
        Self {
            credentials,
            workstation,
            target,
            entropy,
            state: State::Start,
        }
    }

    /// The first message.
    pub fn negotiate(&mut self) -> Vec<u8> {
        let message = Negotiate { flags: CAPABLE }.encode();
        self.state = State::Negotiated(message.clone());
        message
    }

    /// The answer to the server's CHALLENGE, and the exported session key.
    ///
    /// # Errors
    /// [`AuthError::Malformed`], [`AuthError::Unsupported`], [`AuthError::OutOfOrder`].
    pub fn authenticate(&mut self, challenge: &[u8]) -> Result<(Vec<u8>, SessionKey)> {
        let State::Negotiated(negotiate) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(AuthError::OutOfOrder("NTLM CHALLENGE"));
        };
        let names = [
            &self.credentials.domain,
            &self.credentials.user,
            &self.workstation,
        ];
        if names
            .into_iter()
            .chain(&self.target)
            .any(|name| name.wire_len() > NAME_LEN_MAX)
        {
            return Err(AuthError::Unsupported("room for such long names"));
        }
        let decoded = Challenge::decode(challenge)?;
        check_flags(decoded.flags)?;
        let flags = CAPABLE & decoded.flags;
        let response = self.respond(&decoded)?;

        let key_exchange = flags.contains(NegotiateFlags::KEY_EXCHANGE);
        let exported = if key_exchange {
            &self.entropy.session_key
        } else {
            &response.base_key
        };
        let mut encrypted_key = **exported;
        keys::rc4_once(&response.base_key, &mut encrypted_key);
        let anonymous = self.credentials.hash.is_none();
        let mut message = Authenticate {
            lm_response: &response.lm,
            nt_response: &response.nt,
            domain: self.credentials.domain.clone(),
            user: self.credentials.user.clone(),
            workstation: self.workstation.clone(),
            encrypted_key: if key_exchange { &encrypted_key } else { &[] },
            flags: if anonymous {
                flags | NegotiateFlags::ANONYMOUS
            } else {
                flags
            },
            version: Version::OURS,
            mic: response.with_mic.then_some([0; 16]),
        }
        .encode();
        if response.with_mic {
            let parts = [&message[..MIC_AT.start], &message[MIC_AT.end..]];
            let mic = keys::mic(exported, &negotiate, challenge, parts);
            message[MIC_AT].copy_from_slice(&*mic);
        }
        let session_key = SessionKey::new(exported.to_vec());
        self.state = State::Done(keys::Session::new(exported, key_exchange, Direction::ToServer));
        Ok((message, session_key))
    }

    /// [MS-NLMP] 3.1.5.1.2 and 3.3.2.
    fn respond(&self, challenge: &Challenge<'_>) -> Result<Response> {
        let Some(hash) = &self.credentials.hash else {
            return Ok(Response {
                lm: vec![0],
                nt: Vec::new(),
                base_key: Key16::default(),
                with_mic: false,
            });
        };
        let mut pairs = if challenge.target_info.is_empty() {
            AvPairs::default()
        } else {
            AvPairs::decode(challenge.target_info)?
        };
        let timestamp = pairs.timestamp()?;
        let ntowf = keys::ntowf_v2(hash, &self.credentials.user, &self.credentials.domain);
        // A server that tells its time knows of the MIC and of the pairs added here; others get theirs back as they are.
        let lm = if timestamp.is_some() {
            let with_mic = pairs.flags()? | AvPairs::FLAG_MIC;
            pairs.set(AvId::FLAGS, with_mic.to_le_bytes().to_vec());
            // No channel outside SMB binds this authentication.
            pairs.set(AvId::CHANNEL_BINDINGS, vec![0; 16]);
            if let Some(target) = &self.target {
                pairs.set_text(AvId::TARGET_NAME, target);
            }
            [0; 24]
        } else {
            keys::lm_v2(&ntowf, challenge.server_challenge, self.entropy.client_challenge)
        };
        let time = timestamp.unwrap_or(self.entropy.now.0);
        let part = keys::client_part(time, self.entropy.client_challenge, &pairs.encode());
        let (proof, base_key) = keys::prove(&ntowf, challenge.server_challenge, &part);
        let nt = [&proof[..], &part].concat();
        if nt.len() > usize::from(u16::MAX) {
            return Err(AuthError::Unsupported("a CHALLENGE of reasonable length"));
        }
        Ok(Response {
            lm: lm.to_vec(),
            nt,
            base_key,
            with_mic: timestamp.is_some(),
        })
    }
}

struct Response {
    lm: Vec<u8>,
    nt: Vec<u8>,
    base_key: Key16,
    with_mic: bool,
}

impl Mechanism for NtlmClient {
    fn oids(&self) -> &[Oid] {
        OIDS
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Step> {
        match token {
            None => Ok(Step::Continue(self.negotiate())),
            Some(challenge) => {
                let (message, session_key) = self.authenticate(challenge)?;
                Ok(Step::Done(Established {
                    token: Some(message),
                    session_key,
                    identity: None,
                }))
            }
        }
    }

    /// A null session's key is known to everybody, and servers do not sign with it.
    fn has_mic(&self) -> bool {
        self.credentials.hash.is_some()
    }

    fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        match &mut self.state {
            State::Done(session) => Ok(session.sign(message)),
            _ => Err(AuthError::OutOfOrder("NTLM signature")),
        }
    }

    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<()> {
        match &mut self.state {
            State::Done(session) => session.verify(message, mic),
            _ => Err(AuthError::OutOfOrder("NTLM signature")),
        }
    }
}
