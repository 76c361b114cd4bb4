//! The client end of SPNEGO.

use super::token::{MechTypes, NegState, NegTokenInit, NegTokenResp};
use crate::auth::{AuthError, Established, Mechanism, Oid, Result, Step};

/// Negotiates a mechanism and carries its tokens.
pub struct SpnegoClient {
    /// The mechanisms in order of preference. [`start`](Self::start) removes those that the server
    /// lacks.
    mechanisms: Vec<Box<dyn Mechanism>>,
    /// Index of the mechanism in use.
    chosen: usize,
    /// The list sent, in the DER encoding that the MICs cover.
    mech_types: Vec<u8>,
    state: State,
}

enum State {
    Start,
    /// Awaits the server's choice.
    Offered(Progress),
    /// Awaits the mechanism's next token, or the end.
    Chosen(Progress),
    Ended,
}

/// The progress of this end.
#[derive(Default)]
struct Progress {
    /// Set when the mechanism is done and its last token is sent.
    established: Option<Established>,
    mic_sent: bool,
    mic_verified: bool,
}

impl SpnegoClient {
    /// Creates the client end. The best mechanism comes first.
    pub fn new(mechanisms: Vec<Box<dyn Mechanism>>) -> Self {
        Self {
            mechanisms,
            chosen: 0,
            mech_types: Vec::new(),
            state: State::Start,
        }
    }

    /// Returns the first token. `hint` is the security buffer of the NEGOTIATE reply and may be
    /// empty.
    ///
    /// # Errors
    /// [`AuthError::NoCommonMechanism`], [`AuthError::Malformed`], errors of the mechanism.
    pub fn start(&mut self, hint: &[u8]) -> Result<Vec<u8>> {
        let State::Start = std::mem::replace(&mut self.state, State::Ended) else {
            return Err(AuthError::OutOfOrder("SPNEGO has already started"));
        };
        let offered = if hint.is_empty() {
            None
        } else {
            Some(NegTokenInit::decode(hint)?.mech_types)
        };
        let is_offered = |oid: &Oid| offered.is_none_or(|list| list.iter().any(|other| other == oid.0));
        self.mechanisms
            .retain(|mechanism| mechanism.oids().iter().any(is_offered));
        let oids = self
            .mechanisms
            .iter()
            .flat_map(|mechanism| mechanism.oids().iter().copied());
        self.mech_types = MechTypes::encode(oids.filter(is_offered));
        let first = self.mechanisms.first_mut().ok_or(AuthError::NoCommonMechanism)?;
        let mut progress = Progress::default();
        let token = progress.take(first.step(None)?);
        self.state = State::Offered(progress);
        Ok(NegTokenInit::encode(&self.mech_types, token.as_deref()))
    }

    /// Processes the server's token, the security buffer of a SESSION_SETUP reply. [`Step::Done`]
    /// without a token means that both ends are done.
    ///
    /// # Errors
    /// [`AuthError::PeerRefused`], [`AuthError::BadMic`], [`AuthError::OutOfOrder`],
    /// [`AuthError::Malformed`], errors of the mechanism. Any error ends the negotiation.
    pub fn step(&mut self, token: &[u8]) -> Result<Step> {
        let (first, mut progress) = match std::mem::replace(&mut self.state, State::Ended) {
            State::Offered(progress) => (true, progress),
            State::Chosen(progress) => (false, progress),
            State::Start | State::Ended => return Err(AuthError::OutOfOrder("SPNEGO is not in progress")),
        };
        // A server may omit the last token.
        let reply = if token.is_empty() {
            NegTokenResp {
                state: Some(NegState::AcceptCompleted),
                ..NegTokenResp::default()
            }
        } else {
            NegTokenResp::decode(token)?
        };
        if reply.state == Some(NegState::Reject) {
            return Err(AuthError::PeerRefused);
        }
        let mut ours = None;
        if first && self.follow_choice(reply.mechanism)? {
            // The first mechanism's token is void. Start the chosen mechanism.
            if reply.token.is_some() {
                return Err(AuthError::OutOfOrder(
                    "a token for a mechanism that has not started",
                ));
            }
            progress = Progress::default();
            ours = progress.take(self.mechanisms[self.chosen].step(None)?);
        } else if let Some(theirs) = reply.token {
            if progress.established.is_some() && !theirs.is_empty() {
                return Err(AuthError::OutOfOrder("a token after the last"));
            }
            if progress.established.is_none() {
                ours = progress.take(self.mechanisms[self.chosen].step(Some(theirs))?);
            }
        }
        self.conclude(progress, &reply, ours)
    }

    /// Switches to the server's choice. Returns whether it differs from the mechanism in use.
    fn follow_choice(&mut self, choice: Option<&[u8]>) -> Result<bool> {
        let Some(choice) = choice else { return Ok(false) };
        let chosen = self
            .mechanisms
            .iter()
            .position(|mechanism| answers_to(&**mechanism, choice))
            .ok_or(AuthError::NoCommonMechanism)?;
        Ok(std::mem::replace(&mut self.chosen, chosen) != chosen)
    }

    /// Exchanges MICs and determines whether the negotiation is complete.
    fn conclude(
        &mut self,
        mut progress: Progress,
        reply: &NegTokenResp<'_>,
        token: Option<Vec<u8>>,
    ) -> Result<Step> {
        let mechanism = &mut self.mechanisms[self.chosen];
        let completed = reply.state == Some(NegState::AcceptCompleted);
        let mut mic = None;
        if progress.established.is_some() {
            if let Some(theirs) = reply.mech_list_mic
                && mechanism.has_mic()
            {
                mechanism.verify_mic(&self.mech_types, theirs)?;
                progress.mic_verified = true;
            }
            if !progress.mic_sent && !completed && mechanism.has_mic() {
                mic = Some(mechanism.mic(&self.mech_types)?);
                progress.mic_sent = true;
            }
        }
        if completed && token.is_none() {
            let established = progress.established.ok_or(AuthError::OutOfOrder(
                "the server is done, but the mechanism is not",
            ))?;
            // RFC 4178 5: unless the choice was our first, the list must be protected.
            if self.chosen != 0 && !progress.mic_verified {
                return Err(AuthError::BadMic);
            }
            return Ok(Step::Done(Established {
                token: None,
                ..established
            }));
        }
        if token.is_none() && mic.is_none() {
            return Err(AuthError::OutOfOrder(
                "the server expects another token, but the mechanism is done",
            ));
        }
        self.state = State::Chosen(progress);
        let resp = NegTokenResp {
            state: Some(NegState::AcceptIncomplete),
            mechanism: None,
            token: token.as_deref(),
            mech_list_mic: mic.as_deref(),
        };
        Ok(Step::Continue(resp.encode()))
    }
}

impl Progress {
    /// Stores the result of a finished mechanism. Returns the token to send.
    fn take(&mut self, step: Step) -> Option<Vec<u8>> {
        match step {
            Step::Continue(token) => Some(token),
            Step::Done(mut established) => {
                let token = established.token.take();
                self.established = Some(established);
                token
            }
        }
    }
}

pub(super) fn answers_to(mechanism: &dyn Mechanism, oid: &[u8]) -> bool {
    mechanism.oids().iter().any(|Oid(own)| *own == oid)
}
