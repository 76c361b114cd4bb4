//! The server's end.

use super::keys::{self, Direction, Key16};
use super::message::{Authenticate, Challenge, MIC_AT, Negotiate, NegotiateFlags, Version};
use super::{AvId, AvPairs, OIDS, check_flags};
use crate::auth::{AuthError, Established, Identity, Mechanism, Oid, Refusal, Result, Step};
use crate::secret::{NtHash, SessionKey};
use ropeway_smb_wire::{Fault, FileTime, Reader, Text};

/// What the server calls itself.
#[derive(Clone, Debug)]
pub struct ServerNames {
    /// NetBIOS name of the machine, at most 15 upper-case letters.
    pub netbios_computer: Text,
    /// NetBIOS name of its domain; the machine's own without one.
    pub netbios_domain: Text,
    /// DNS name of the machine.
    pub dns_computer: Text,
    /// DNS name of its domain; may be empty.
    pub dns_domain: Text,
}

/// Finds a user's hash by name and domain, as the client wrote them.
pub type NtHashLookup = Box<dyn FnMut(&Text, &Text) -> Option<NtHash> + Send>;

/// The server's end of one NTLMv2 authentication.
pub struct NtlmServer {
    names: ServerNames,
    /// What CHALLENGE tells; a client that does not give it back was told something else.
    pub(super) time: Option<u64>,
    server_challenge: [u8; 8],
    anonymous_allowed: bool,
    lookup: NtHashLookup,
    state: State,
}

enum State {
    /// Awaits NEGOTIATE.
    Start,
    /// Awaits AUTHENTICATE; has the first two messages for the MIC.
    Challenged {
        negotiate: Vec<u8>,
        challenge: Vec<u8>,
    },
    Done(Box<keys::Session>),
    Failed,
}

/// What of the client's flags we agree to.
const CAPABLE: NegotiateFlags = NegotiateFlags::UNICODE
    .union(NegotiateFlags::REQUEST_TARGET)
    .union(NegotiateFlags::SIGN)
    // Nothing is sealed by NTLM here; but a client that encrypts with SMB insists (smbclient), and Windows agrees.
    .union(NegotiateFlags::SEAL)
    .union(NegotiateFlags::NTLM)
    .union(NegotiateFlags::ALWAYS_SIGN)
    .union(NegotiateFlags::EXTENDED_SESSION_SECURITY)
    .union(NegotiateFlags::VERSION)
    .union(NegotiateFlags::KEY_128)
    .union(NegotiateFlags::KEY_EXCHANGE)
    .union(NegotiateFlags::KEY_56);
/// And what we add.
const ADDED: NegotiateFlags = NegotiateFlags::TARGET_TYPE_SERVER.union(NegotiateFlags::TARGET_INFO);

/// The longest NEGOTIATE that is kept until AUTHENTICATE: for everybody who has not logged in. A guess: it has 40 bytes, a
/// domain and a computer's name.
const NEGOTIATE_LEN_MAX: usize = 2048;

impl NtlmServer {
    /// `server_challenge` is random, and new every time.
    pub fn new(
        names: ServerNames,
        now: FileTime,
        server_challenge: [u8; 8],
        anonymous_allowed: bool,
        lookup: NtHashLookup,
    ) -> Self {
        Self {
            names,
            time: Some(now.0),
            server_challenge,
            anonymous_allowed,
            lookup,
            state: State::Start,
        }
    }

    /// The answer to the client's NEGOTIATE.
    ///
    /// # Errors
    /// [`AuthError::Malformed`], [`AuthError::Unsupported`], [`AuthError::OutOfOrder`].
    pub fn challenge(&mut self, negotiate: &[u8]) -> Result<Vec<u8>> {
        let State::Start = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(AuthError::OutOfOrder("NTLM NEGOTIATE"));
        };
        if negotiate.len() > NEGOTIATE_LEN_MAX {
            return Err(AuthError::Unsupported("a NEGOTIATE as short as its two names"));
        }
        let flags = Negotiate::decode(negotiate)?.flags;
        // Who comes without a name may do so without what protects passwords and messages (smbclient); whoever names a
        // user is asked for it in AUTHENTICATE.
        if !self.anonymous_allowed {
            check_flags(flags)?;
        }
        let mut pairs = AvPairs::default();
        pairs.set_text(AvId::NB_DOMAIN_NAME, &self.names.netbios_domain);
        pairs.set_text(AvId::NB_COMPUTER_NAME, &self.names.netbios_computer);
        pairs.set_text(AvId::DNS_DOMAIN_NAME, &self.names.dns_domain);
        pairs.set_text(AvId::DNS_COMPUTER_NAME, &self.names.dns_computer);
        if let Some(time) = self.time {
            pairs.set(AvId::TIMESTAMP, time.to_le_bytes().to_vec());
        }
        let challenge = Challenge {
            target_name: self.names.netbios_computer.clone(),
            flags: (flags & CAPABLE) | ADDED,
            server_challenge: self.server_challenge,
            target_info: &pairs.encode(),
            version: Version::OURS,
        }
        .encode();
        self.state = State::Challenged {
            negotiate: negotiate.to_vec(),
            challenge: challenge.clone(),
        };
        Ok(challenge)
    }

    /// Who the client is, and the exported session key.
    ///
    /// # Errors
    /// [`AuthError::Refused`] if it proves nothing; [`AuthError::BadMic`] if a message was changed on its way; others.
    pub fn authenticate(&mut self, message: &[u8]) -> Result<(Identity, SessionKey)> {
        let State::Challenged { negotiate, challenge } = std::mem::replace(&mut self.state, State::Failed)
        else {
            return Err(AuthError::OutOfOrder("NTLM AUTHENTICATE"));
        };
        let decoded = Authenticate::decode(message)?;
        if !(self.anonymous_allowed && is_anonymous(&decoded)) {
            check_flags(decoded.flags)?;
        }
        let (identity, base_key, with_mic) = self.verify(&decoded)?;

        let key_exchange = decoded.flags.contains(NegotiateFlags::KEY_EXCHANGE);
        let mut exported = base_key.clone();
        if key_exchange {
            let malformed = Reader::new(message, "AUTHENTICATE_MESSAGE").fault(Fault::Bounds);
            *exported = decoded.encrypted_key.try_into().map_err(|_| malformed)?;
            keys::rc4_once(&base_key, &mut *exported);
        }
        if with_mic {
            let claimed = decoded.mic.ok_or(AuthError::BadMic)?;
            let parts = [&message[..MIC_AT.start], &message[MIC_AT.end..]];
            let mic = keys::mic(&exported, &negotiate, &challenge, parts);
            keys::same(&mic, &claimed)?;
        }
        self.state = State::Done(keys::Session::new(&exported, key_exchange, Direction::ToClient));
        Ok((identity, SessionKey::new(exported.to_vec())))
    }

    /// Checks the proof: identity, session base key, and whether there must be a MIC. The same is computed for a user that
    /// does not exist, so that time does not tell.
    fn verify(&mut self, message: &Authenticate<'_>) -> Result<(Identity, Key16, bool)> {
        if is_anonymous(message) {
            return if self.anonymous_allowed {
                Ok((Identity::Anonymous, Key16::default(), false))
            } else {
                Err(AuthError::Refused(Refusal::Anonymous))
            };
        }
        let mut reader = Reader::new(message.nt_response, "NTLMv2_RESPONSE");
        // NTLMv1's has 24 bytes and no such header.
        if message.nt_response.len() < 16 + 28 + 4 {
            return Err(AuthError::Unsupported("NTLMv2"));
        }
        let proof = reader.array::<16>()?;
        let mut after_proof = reader;
        if reader.u16()? != 0x0101 {
            return Err(reader.fault(Fault::Signature).into());
        }
        reader.skip(26)?;
        let pairs = AvPairs::decode(reader.rest())?;
        let with_mic = pairs.flags()? & AvPairs::FLAG_MIC != 0;
        let time = pairs.timestamp()?;

        let known = (self.lookup)(&message.user, &message.domain);
        let (hash, refusal) = match known {
            Some(hash) => (hash, None),
            None => (NtHash::from_bytes([0; 16]), Some(Refusal::UnknownUser)),
        };
        let ntowf = keys::ntowf_v2(&hash, &message.user, &message.domain);
        let (expected, base_key) = keys::prove(&ntowf, self.server_challenge, after_proof.rest());
        let proven = keys::same(&expected, &proof).is_ok();
        if let Some(refusal) = refusal.or((!proven).then_some(Refusal::WrongPassword)) {
            return Err(AuthError::Refused(refusal));
        }
        // Hiding the time from a client makes it leave out the MIC ([MS-NLMP] 3.1.5.1.2): pairs are under the proof, and
        // clients give the server's back.
        if self.time.is_some() && time != self.time {
            return Err(AuthError::BadMic);
        }
        let identity = Identity::User {
            domain: message.domain.clone(),
            user: message.user.clone(),
            workstation: message.workstation.clone(),
        };
        Ok((identity, base_key, with_mic))
    }
}

/// [MS-NLMP] 3.2.5.1.2: no user, no proof.
fn is_anonymous(message: &Authenticate<'_>) -> bool {
    message.user.is_empty() && message.nt_response.is_empty() && message.lm_response.len() <= 1
}

impl Mechanism for NtlmServer {
    fn oids(&self) -> &[Oid] {
        OIDS
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Step> {
        let token = token.ok_or(AuthError::OutOfOrder("no NTLM message"))?;
        if let State::Start = self.state {
            return Ok(Step::Continue(self.challenge(token)?));
        }
        let (identity, session_key) = self.authenticate(token)?;
        Ok(Step::Done(Established {
            token: None,
            session_key,
            identity: Some(identity),
        }))
    }

    fn has_mic(&self) -> bool {
        true
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
