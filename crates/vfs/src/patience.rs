//! How long a call of a store may wait for a source that does not answer.
//!
//! Calls of a [`Store`](crate::store::Store) are synchronous. As a rule they wait for a lost source
//! as long as its store allows. A caller that has another answer at hand wraps a call in
//! [`impatiently`]: then the call fails with [`ErrorKind::Unreachable`](crate::ErrorKind) as soon as
//! the store knows that its source does not answer ([`Store::reachability`]). The patience belongs
//! to the calling thread, so it reaches the source through any number of stores. A store whose
//! source cannot be lost need not look at it.
//!
//! [`Store::reachability`]: crate::store::Store::reachability

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    static IS_IMPATIENT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the source of a store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// It does, or nothing was asked for a while.
    Answers,
    /// It does not: something was asked, and nothing has come for a while.
    Lost {
        /// Time since the last sign of the source, or since the question that is not answered if
        /// nothing was asked before it for a while.
        silent: Duration,
    },
}

/// Restores the patience of the thread, after a panic too.
struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        IS_IMPATIENT.set(self.0);
    }
}

/// Makes calls of stores on this thread fail as soon as their source is known not to answer. Only
/// for calls that may be given up halfway and repeated: those that change nothing.
pub fn impatiently<T>(call: impl FnOnce() -> T) -> T {
    let _restore = Restore(IS_IMPATIENT.replace(true));
    call()
}

/// Whether the present call of a store is made [`impatiently`].
pub fn is_impatient() -> bool {
    IS_IMPATIENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patience_comes_back_also_after_a_panic() {
        assert!(!is_impatient());
        assert!(impatiently(|| impatiently(is_impatient) && is_impatient()));
        let panicked = std::panic::catch_unwind(|| impatiently(|| panic!("a call failed")));
        assert!(panicked.is_err() && !is_impatient());
    }
}
