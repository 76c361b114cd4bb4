//! What a client knows of a server's support for compounds.
//!
//! ```text
//! Unknown ── answered ──> Supported
//!    └── refused, answered in part, or lost twice before any was answered ──> Refused
//! ```
//! Once a server counts as refusing, requests go one by one. The verdict belongs to a server and a
//! login. It rests only on evidence that no other fault resembles: the same steps, sent one by one,
//! succeeded; or the server has never answered a compound and the connection ended with each.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::options::Compounds;

/// Number of compounds lost with their connection, before any was answered, after which a server
/// counts as refusing compounds. Two: one may be chance.
const LOSSES_MAX: u8 = 2;
/// Markers in [`CompoundSupport`], above the numbers of losses.
const SUPPORTED: u8 = 0xFE;
const REFUSED: u8 = 0xFF;

/// Whether a server supports compounds, and which of them the client is to send.
#[derive(Debug, Default)]
pub(crate) struct CompoundSupport {
    wanted: Compounds,
    /// The number of losses until the support is known, then one of the markers.
    state: AtomicU8,
}

impl CompoundSupport {
    pub(crate) fn new(wanted: Compounds) -> Self {
        Self {
            wanted,
            state: AtomicU8::default(),
        }
    }

    /// Returns whether to send compounds of any requests.
    pub(crate) fn is_usable(&self) -> bool {
        self.wanted == Compounds::All && self.is_usable_for_queries()
    }

    /// Returns whether to send compounds that open a path, query it and close it.
    pub(crate) fn is_usable_for_queries(&self) -> bool {
        self.wanted != Compounds::None && self.state.load(Ordering::Relaxed) != REFUSED
    }

    /// Notes that a compound was answered.
    pub(crate) fn answered(&self) {
        if self.state.load(Ordering::Relaxed) < SUPPORTED {
            self.state.store(SUPPORTED, Ordering::Relaxed);
        }
    }

    /// Notes that a compound was lost with its connection.
    pub(crate) fn lost(&self) {
        let counted = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| match state {
                SUPPORTED | REFUSED => None,
                losses if losses + 1 >= LOSSES_MAX => Some(REFUSED),
                losses => Some(losses + 1),
            });
        if counted.is_ok_and(|losses| losses + 1 >= LOSSES_MAX) {
            tracing::info!("the server does not answer compounds; sending single requests");
        }
    }

    /// Notes that the server refuses compounds: the same requests succeeded one by one, or a
    /// compound was answered in part.
    pub(crate) fn refuse(&self) {
        if self.is_usable_for_queries() && self.state.swap(REFUSED, Ordering::Relaxed) != REFUSED {
            tracing::info!("the server refuses compounds; sending single requests");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_never_answers_compounds_gets_at_most_two() {
        let compounds = CompoundSupport::default();
        compounds.lost();
        assert!(compounds.is_usable());
        compounds.lost();
        assert!(!compounds.is_usable());
        let compounds = CompoundSupport::default();
        compounds.answered();
        (0..1000).for_each(|_| compounds.lost());
        assert!(compounds.is_usable(), "a loss after a reply proves nothing");
        compounds.refuse();
        compounds.answered();
        assert!(!compounds.is_usable());
    }

    #[test]
    fn queries_are_compounded_where_nothing_else_is() {
        let compounds = CompoundSupport::new(Compounds::Queries);
        assert!(!compounds.is_usable() && compounds.is_usable_for_queries());
        compounds.refuse();
        assert!(!compounds.is_usable_for_queries());
        assert!(!CompoundSupport::new(Compounds::None).is_usable_for_queries());
    }
}
