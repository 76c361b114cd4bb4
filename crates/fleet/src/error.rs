//! Why work of a fleet ends.

use ropeway_vfs::{End, EndError, ErrorKind};

use crate::claim::ClaimError;
use crate::source_mark::Match;

/// Work could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on an end failed.
    #[error("{}", .0.error)]
    End(EndError),
    /// The claim is over.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A file of the catalog is not what it should be.
    #[error("{0} in the catalog is damaged")]
    Damaged(String),
    /// The catalog is of another version of this program.
    #[error("the job was made by another version of ropeway (catalog {found}, here {own})")]
    OtherVersion {
        /// Version of the catalog.
        found: u32,
        /// Version that this program reads.
        own: u32,
    },
    /// Others could change the catalog.
    #[error("{0} belongs to another user, or other users may write to it")]
    Foreign(String),
    /// The source of this worker holds the target, or lies in it.
    #[error("source and target of the job lie one in the other, by another path")]
    Nested,
    /// The source of this worker is not that of the job.
    #[error(
        "this is not the source of the job: of {} names that `submit` saw, {} are there and {} are unchanged",
        .0.known, .0.found, .0.unchanged
    )]
    OtherSource(Match),
    /// This worker sees the ends in another way than `submit` did.
    #[error("source or target have other rules for names here than where the job was made")]
    OtherRules,
    /// The catalog of the job is gone: there is a later job, or somebody removed it.
    #[error("the job is over: its catalog was removed")]
    Over,
    /// The folder for temporary files of this machine cannot be used.
    #[error("cannot write to the folder for temporary files of this machine: {0}")]
    Scratch(std::io::Error),
    /// The job was resumed as often as it may be.
    #[error("the job was resumed {0} times already")]
    Resumed(usize),
    /// The queue does not answer, or refuses.
    #[error("queue: {0}")]
    Queue(String),
    /// The queue refuses the login.
    #[error("queue: the login is refused: {0}")]
    QueueLogin(String),
    /// The worker was asked to stop.
    #[error("interrupted")]
    Stopped,
}

/// `Result` with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of the target or of the catalog, which lies beside it.
    pub fn target(error: ropeway_vfs::Error) -> Self {
        Self::End(EndError::on_target(error))
    }

    /// Makes an error of the source.
    pub fn source(error: ropeway_vfs::Error) -> Self {
        Self::End(EndError::on_source(error))
    }

    /// Makes an error of a queue.
    pub fn queue(reason: impl Into<String>) -> Self {
        Self::Queue(reason.into())
    }

    /// Returns what others are told of a worker that cannot go on: with the end, since they may have another one.
    pub fn told(&self) -> String {
        match self.kind() {
            Some((_, End::Source)) => format!("source: {self}"),
            Some((_, End::Target)) => format!("target: {self}"),
            None => self.to_string(),
        }
    }

    /// Whether the target has no space left.
    pub fn is_full(&self) -> bool {
        self.kind() == Some((ErrorKind::NoSpace, End::Target))
    }

    /// Whether only this claim is over, and not the work of this worker.
    pub fn ends_claim_only(&self) -> bool {
        matches!(self, Self::Claim(_))
    }

    /// Whether the task must wait for a worker that does not answer, while other tasks go on.
    pub fn must_wait(&self) -> bool {
        matches!(self, Self::Claim(ClaimError::Held))
    }

    /// Returns the kind of the error of a tree, and the end.
    pub fn kind(&self) -> Option<(ErrorKind, End)> {
        match self {
            Self::End(EndError { end, error }) => Some((error.kind, *end)),
            _ => None,
        }
    }
}
