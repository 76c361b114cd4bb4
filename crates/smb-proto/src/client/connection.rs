//! The connection.

use std::time::Duration;

use super::{
    Chain, Config, CreditState, EndReason, Event, Misuse, Negotiated, PeerMisbehaved, Receive, SessionSecret,
    Ticket, Transmit,
};
use crate::auth::spnego::SpnegoClient;

/// One TCP connection to a server; owned by one task. Times are since the connection's start.
pub struct Connection {
    config: Config,
}

#[allow(unused_variables, missing_docs, reason = "the shape comes first")]
impl Connection {
    /// Queues NEGOTIATE.
    pub fn new(config: Config, salt: [u8; 32]) -> Self {
        Self { config }
    }
    /// Logs in as soon as the negotiation is done. Again on a standing session: re-authentication.
    pub fn log_in(&mut self, mechanisms: SpnegoClient) -> Result<(), Misuse> {
        Ok(())
    }
    /// Makes this connection a further channel of a session.
    pub fn bind(&mut self, session: &SessionSecret, mechanisms: SpnegoClient) -> Result<(), Misuse> {
        Ok(())
    }
    pub fn submit(&mut self, chain: Chain) -> Result<Ticket, (Misuse, Chain)> {
        Err((Misuse::Ended, chain))
    }
    pub fn cancel(&mut self, ticket: Ticket) {}
    pub fn receive(&mut self) -> Receive<'_> {
        Receive {
            first: &mut [],
            second: &mut [],
        }
    }
    pub fn received(&mut self, now: Duration, count: usize) -> Result<(), PeerMisbehaved> {
        Ok(())
    }
    pub fn closed(&mut self) {}
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        None
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    pub fn deadline(&self) -> Option<Duration> {
        None
    }
    pub fn handle_deadline(&mut self, now: Duration) {}
    pub fn negotiated(&self) -> Option<&Negotiated> {
        None
    }
    pub fn session(&self) -> Option<SessionSecret> {
        None
    }
    pub fn session_flags(&self) -> Option<crate::wire::session_setup::SessionFlags> {
        None
    }
    pub fn credits(&self) -> CreditState {
        CreditState::default()
    }
    /// Chains sent and not answered.
    pub fn in_flight(&self) -> usize {
        0
    }
    /// Chains waiting for credits.
    pub fn queued(&self) -> usize {
        0
    }
    pub fn ended(&self) -> Option<EndReason> {
        None
    }
    /// Payload bytes that had to be copied in user space, both ways.
    pub fn bytes_copied(&self) -> u64 {
        0
    }
}
