//! Rules of durability that are broken on purpose. The simulator must find each one.
//!
//! The feature `mutations` is for the simulator alone. Without it [`is`] is a constant, and nothing
//! of this is in the program.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A file gets its final name before its data is flushed.
    RenameBeforeFlush,
    /// The journal calls data durable before the flush.
    JournalBeforeFlush,
    /// What another boot wrote to the page cache counts as written.
    OtherBootTrusted,
    /// Names given after the last flush are not made durable.
    NamesNotFlushed,
    /// A flush that failed counts as done.
    FailedFlushIgnored,
    /// A partial file is continued at its length.
    ResumeTrustsLength,
}

impl Mutation {
    /// All mutations.
    pub const ALL: [Self; 6] = [
        Self::RenameBeforeFlush,
        Self::JournalBeforeFlush,
        Self::OtherBootTrusted,
        Self::NamesNotFlushed,
        Self::FailedFlushIgnored,
        Self::ResumeTrustsLength,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::RenameBeforeFlush => "rename-before-flush",
            Self::JournalBeforeFlush => "journal-before-flush",
            Self::OtherBootTrusted => "other-boot-trusted",
            Self::NamesNotFlushed => "names-not-flushed",
            Self::FailedFlushIgnored => "failed-flush-ignored",
            Self::ResumeTrustsLength => "resume-trusts-length",
        }
    }
}

#[cfg(feature = "mutations")]
mod chosen {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Breaks a rule in all jobs of this thread, or none.
    pub fn choose(mutation: Option<Mutation>) {
        CHOSEN.set(mutation);
    }

    pub(crate) fn is(mutation: Mutation) -> bool {
        CHOSEN.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub use chosen::choose;
#[cfg(feature = "mutations")]
pub(crate) use chosen::is;

/// Whether this rule is broken.
#[cfg(not(feature = "mutations"))]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}
