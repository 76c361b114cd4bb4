//! Rules of the cache that are broken on purpose. The simulator must find each one.
//!
//! The feature `mutations` is for the simulator alone. Without it `is` is a constant, and nothing
//! of this is in the program.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The epoch of nonces is not raised at an opening.
    EpochNotRaised,
    /// Blocks are sealed before the new epoch is on the device.
    EpochNotSynced,
    /// `forget` returns before its order is on the device.
    ForgetNotSynced,
    /// `forget` removes blocks from the index only.
    ForgetNotWritten,
    /// The blocks of a forgotten file stay in the memory tier.
    ForgetSparesMemory,
    /// A cleaned segment is written again before the next checkpoint.
    FreedBeforeCheckpoint,
    /// Only one copy of the superblock is written.
    OneSuperblock,
    /// Neither tag nor seal depend on the version.
    VersionNotSealed,
}

impl Mutation {
    /// All mutations.
    pub const ALL: [Self; 8] = [
        Self::EpochNotRaised,
        Self::EpochNotSynced,
        Self::ForgetNotSynced,
        Self::ForgetNotWritten,
        Self::ForgetSparesMemory,
        Self::FreedBeforeCheckpoint,
        Self::OneSuperblock,
        Self::VersionNotSealed,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::EpochNotRaised => "epoch-not-raised",
            Self::EpochNotSynced => "epoch-not-synced",
            Self::ForgetNotSynced => "forget-not-synced",
            Self::ForgetNotWritten => "forget-not-written",
            Self::ForgetSparesMemory => "forget-spares-memory",
            Self::FreedBeforeCheckpoint => "freed-before-checkpoint",
            Self::OneSuperblock => "one-superblock",
            Self::VersionNotSealed => "version-not-sealed",
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

    /// Breaks a rule in all caches of this thread, or none.
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
