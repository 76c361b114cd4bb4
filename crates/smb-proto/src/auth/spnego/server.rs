//! The server end of SPNEGO.

use super::client::answers_to;
use super::token::{MechTypes, NegState, NegTokenInit, NegTokenResp};
use crate::auth::{AuthError, Established, Mechanism, Oid, Result, Step};

/// Chooses the best mechanism of the client's list and carries its tokens.
pub struct SpnegoServer {
    mechanisms: Vec<Box<dyn Mechanism>>,
    state: State,
}

enum State {
    Start,
    Negotiating(Negotiation),
    /// The client sends NTLM messages without SPNEGO, which [MS-SMB2] 3.3.5.5.3 allows.
    Raw(usize),
    Ended,
}

struct Negotiation {
    /// Index of the mechanism in use.
    chosen: usize,
    /// The client's list, in the DER encoding that the MICs cover.
    mech_types: Vec<u8>,
    /// Set if the choice was not the client's first.
    mic_required: bool,
    established: Option<Established>,
    mic_verified: bool,
    mic_sent: bool,
}

/// Longest list of mechanisms kept for an unauthenticated client, in bytes of DER. A guess: Windows
/// offers four of some 11 bytes.
const MECH_TYPES_LEN_MAX: usize = 1024;

impl SpnegoServer {
    /// Creates the server end. The best mechanism comes first.
    pub fn new(mechanisms: Vec<Box<dyn Mechanism>>) -> Self {
        Self {
            mechanisms,
            state: State::Start,
        }
    }

    /// Returns the token for the NEGOTIATE reply.
    pub fn hint(&self) -> Vec<u8> {
        let oids = self
            .mechanisms
            .iter()
            .flat_map(|mechanism| mechanism.oids().iter().copied());
        NegTokenInit::encode_hint(&MechTypes::encode(oids))
    }

    /// Processes the client's token, the security buffer of a SESSION_SETUP.
    ///
    /// # Errors
    /// [`AuthError::NoCommonMechanism`], [`AuthError::BadMic`], [`AuthError::OutOfOrder`],
    /// [`AuthError::Malformed`], errors of the mechanism. Any error ends the negotiation.
    pub fn step(&mut self, token: &[u8]) -> Result<Step> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Start if token.starts_with(b"NTLMSSP\0") => {
                let raw = self
                    .mechanisms
                    .iter()
                    .position(|mechanism| answers_to(&**mechanism, Oid::NTLMSSP.0))
                    .ok_or(AuthError::NoCommonMechanism)?;
                self.step_raw(raw, token)
            }
            State::Start => self.begin(token),
            State::Raw(raw) => self.step_raw(raw, token),
            State::Negotiating(negotiation) => {
                let resp = NegTokenResp::decode(token)?;
                if resp.state == Some(NegState::Reject) {
                    return Err(AuthError::PeerRefused);
                }
                self.advance(negotiation, None, resp.token, resp.mech_list_mic)
            }
            State::Ended => Err(AuthError::OutOfOrder("SPNEGO has ended")),
        }
    }

    fn step_raw(&mut self, raw: usize, token: &[u8]) -> Result<Step> {
        let step = self.mechanisms[raw].step(Some(token))?;
        if let Step::Continue(_) = step {
            self.state = State::Raw(raw);
        }
        Ok(step)
    }

    fn begin(&mut self, token: &[u8]) -> Result<Step> {
        let init = NegTokenInit::decode(token)?;
        if init.mech_types.0.len() > MECH_TYPES_LEN_MAX {
            return Err(AuthError::Unsupported("a mechanism list of at most 1,024 bytes"));
        }
        // The client's order decides.
        let (rank, chosen, oid) = init
            .mech_types
            .iter()
            .enumerate()
            .find_map(|(rank, oid)| {
                let at = self
                    .mechanisms
                    .iter()
                    .position(|mechanism| answers_to(&**mechanism, oid))?;
                Some((rank, at, oid))
            })
            .ok_or(AuthError::NoCommonMechanism)?;
        let negotiation = Negotiation {
            chosen,
            mech_types: init.mech_types.0.to_vec(),
            mic_required: rank > 0,
            established: None,
            mic_verified: false,
            mic_sent: false,
        };
        if rank > 0 || init.mech_token.is_none() {
            // The token is for another mechanism, or missing. The client starts again with our
            // choice.
            self.state = State::Negotiating(negotiation);
            let resp = NegTokenResp {
                state: Some(if rank > 0 {
                    NegState::RequestMic
                } else {
                    NegState::AcceptIncomplete
                }),
                mechanism: Some(oid),
                ..NegTokenResp::default()
            };
            return Ok(Step::Continue(resp.encode()));
        }
        self.advance(negotiation, Some(oid), init.mech_token, init.mech_list_mic)
    }

    /// Processes a token and a MIC. `choice` is sent if the client does not know it yet.
    fn advance(
        &mut self,
        mut negotiation: Negotiation,
        choice: Option<&[u8]>,
        token: Option<&[u8]>,
        mic: Option<&[u8]>,
    ) -> Result<Step> {
        let mechanism = &mut self.mechanisms[negotiation.chosen];
        let mut ours = None;
        match (&negotiation.established, token) {
            (None, Some(token)) => match mechanism.step(Some(token))? {
                Step::Continue(token) => ours = Some(token),
                Step::Done(mut established) => {
                    ours = established.token.take();
                    negotiation.established = Some(established);
                }
            },
            (None, None) => return Err(AuthError::OutOfOrder("no token")),
            (Some(_), Some(token)) if !token.is_empty() => {
                return Err(AuthError::OutOfOrder("a token after the last"));
            }
            (Some(_), _) => {}
        }
        let mut our_mic = None;
        if negotiation.established.is_some() && mechanism.has_mic() {
            if let Some(mic) = mic {
                mechanism.verify_mic(&negotiation.mech_types, mic)?;
                negotiation.mic_verified = true;
            }
            if (negotiation.mic_verified || negotiation.mic_required) && !negotiation.mic_sent {
                our_mic = Some(mechanism.mic(&negotiation.mech_types)?);
                negotiation.mic_sent = true;
            }
        }
        let complete = negotiation.mic_verified || !negotiation.mic_required;
        if !complete && negotiation.established.is_some() && ours.is_none() && our_mic.is_none() {
            return Err(AuthError::BadMic);
        }
        let done = if complete {
            negotiation.established.take()
        } else {
            None
        };
        let resp = NegTokenResp {
            state: Some(if done.is_some() {
                NegState::AcceptCompleted
            } else {
                NegState::AcceptIncomplete
            }),
            mechanism: choice,
            token: ours.as_deref(),
            mech_list_mic: our_mic.as_deref(),
        }
        .encode();
        Ok(match done {
            Some(established) => Step::Done(Established {
                token: Some(resp),
                ..established
            }),
            None => {
                self.state = State::Negotiating(negotiation);
                Step::Continue(resp)
            }
        })
    }
}
