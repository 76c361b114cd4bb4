//! What was seen when the share was connected to, for those who ask for it at once.
//!
//! A command looks at what its arguments name, then opens it, then lists it: three times the same within milliseconds,
//! each a round trip. The first look came with the connection; until something is changed through this client, and for a
//! moment only, it answers.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ropeway_smb_wire::Text;
use ropeway_smb_wire::info::DirectoryRecord;

use crate::look::{Seen, SeenNode};

/// How long a look is as good as another. A guess: from the first argument to the first folder, and what a listing that
/// takes as long would miss as well.
const FRESH: Duration = Duration::from_secs(2);

/// The last look, by paths of the share.
#[derive(Debug, Default)]
pub(super) struct Glance(Mutex<Option<(Instant, Seen)>>);

impl Glance {
    /// What was seen just now.
    pub(super) fn of(seen: Seen) -> Self {
        Self(Mutex::new(Some((Instant::now(), seen))))
    }

    /// Something changes: what was seen is old.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What stands at a path, if that was seen.
    pub(super) fn node(&self, path: &Text) -> Option<SeenNode> {
        self.with(|seen| {
            seen.nodes
                .iter()
                .find(|(at, _)| at == path)
                .map(|(_, node)| node.clone())
        })
    }

    /// All names of a directory, if they were seen.
    pub(super) fn names(&self, path: &Text) -> Option<Vec<DirectoryRecord>> {
        self.with(|seen| {
            seen.names
                .as_ref()
                .filter(|(at, _)| at == path)
                .map(|(_, names)| names.clone())
        })
    }

    fn with<T>(&self, find: impl FnOnce(&Seen) -> Option<T>) -> Option<T> {
        let mut glance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if glance.as_ref().is_some_and(|(at, _)| at.elapsed() > FRESH) {
            *glance = None;
        }
        glance.as_ref().and_then(|(_, seen)| find(seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_answers_until_something_changes() {
        let seen = Seen {
            nodes: vec![(Text::from("a"), SeenNode::Missing)],
            names: Some((Text::from("b"), Vec::new())),
            ..Seen::default()
        };
        let glance = Glance::of(seen);
        assert!(matches!(glance.node(&Text::from("a")), Some(SeenNode::Missing)));
        assert!(glance.node(&Text::from("b")).is_none());
        assert!(glance.names(&Text::from("b")).is_some() && glance.names(&Text::from("a")).is_none());
        glance.forget();
        assert!(glance.node(&Text::from("a")).is_none());
    }

    #[test]
    fn an_old_glance_is_none() {
        let seen = Seen {
            nodes: vec![(Text::from("a"), SeenNode::Missing)],
            ..Seen::default()
        };
        let Some(before) = Instant::now().checked_sub(2 * FRESH) else {
            return;
        };
        let glance = Glance(Mutex::new(Some((before, seen))));
        assert!(glance.node(&Text::from("a")).is_none());
    }
}
