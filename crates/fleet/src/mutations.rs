//! Rules of the fleet that are broken on purpose. The simulator must find each one.
//!
//! The feature `mutations` is for the simulator alone. Without it `is` is a constant, and nothing
//! of this is in the program.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Whoever takes over leaves the stage of the earlier claim as it is.
    StageNotFenced,
    /// Whoever takes over leaves the claim folder of the earlier claim as it is.
    ClaimNotFenced,
    /// A claim begins although one with its epoch exists.
    ClaimNotExclusive,
    /// A new claim does not look for later ones.
    LaterClaimNotSeen,
    /// Files get their names before the segment that says so is published.
    RenameBeforePublish,
    /// What a worker gave away is offered before it is recorded.
    GiveBeforePublish,
    /// A task is reported as done before its files have their names.
    DoneBeforeRename,
    /// Files that an earlier claim published are thrown away with its stage.
    PublishedNotAdopted,
    /// A new claim does not check whether its task is done.
    DoneNotChecked,
    /// A large file gets its name although its source was changed since.
    LargeNotCompared,
}

impl Mutation {
    /// All mutations.
    pub const ALL: [Self; 10] = [
        Self::StageNotFenced,
        Self::ClaimNotFenced,
        Self::ClaimNotExclusive,
        Self::LaterClaimNotSeen,
        Self::RenameBeforePublish,
        Self::GiveBeforePublish,
        Self::DoneBeforeRename,
        Self::PublishedNotAdopted,
        Self::DoneNotChecked,
        Self::LargeNotCompared,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::StageNotFenced => "stage-not-fenced",
            Self::ClaimNotFenced => "claim-not-fenced",
            Self::ClaimNotExclusive => "claim-not-exclusive",
            Self::LaterClaimNotSeen => "later-claim-not-seen",
            Self::RenameBeforePublish => "rename-before-publish",
            Self::GiveBeforePublish => "give-before-publish",
            Self::DoneBeforeRename => "done-before-rename",
            Self::PublishedNotAdopted => "published-not-adopted",
            Self::DoneNotChecked => "done-not-checked",
            Self::LargeNotCompared => "large-not-compared",
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

    /// Breaks a rule in all fleets of this thread, or none.
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
