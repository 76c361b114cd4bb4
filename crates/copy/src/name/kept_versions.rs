//! The files that are overwritten in place and whose old content is kept.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::journal::token::Token;

/// Files that are being overwritten in place, or could not be written to their end.
#[derive(Debug, Default)]
pub(crate) struct KeptVersions(Mutex<HashSet<Token>>);

impl KeptVersions {
    /// Notes that a file is complete, and no longer half overwritten.
    pub(crate) fn forget(&self, token: Token) {
        self.0.lock().remove(&token);
    }

    /// Whether the old content of this file is kept already.
    pub(crate) fn contains(&self, token: Token) -> bool {
        self.0.lock().contains(&token)
    }

    /// Notes that the old content of a file is kept. It may be overwritten now.
    pub(crate) fn add(&self, token: Token) {
        self.0.lock().insert(token);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
