//! Keeps a mirror from deleting what it should not.
//!
//! Four rules, in the order in which they are checked:
//! 1. An empty source deletes nothing: it is far more often an unmounted disk than a wish. A source
//!    is empty if no file in it takes part, whatever folders it has (`lost+found`) and whatever
//!    else filters exclude.
//! 2. A folder of the source that could not be listed completely deletes nothing on the other side.
//! 3. What is excluded by name survives (unless the user asked otherwise).
//! 4. `--max-delete` bounds the number of deletions, as a count or as a part of the target.
//!
//! Deletion is planned first: [`DeleteGuard::plan`] refuses it as a whole before the first node is
//! deleted. [`DeleteGuard::admit`] counts again while deleting, for nodes that have appeared in
//! between. One guard serves a whole run, including the rounds of a watch.

use std::str::FromStr;

/// The bound set by `--max-delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxDelete {
    /// At most this many nodes.
    Count(u64),
    /// At most this percentage of the target's nodes, rounded down, but at least 1 unless it is 0
    /// %.
    Percent(u8),
}

/// A bound for deletions that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a bound for deletions; write a count such as 100 or a part such as 25%")]
pub struct MaxDeleteError(pub String);

impl FromStr for MaxDelete {
    type Err = MaxDeleteError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || MaxDeleteError(text.to_owned());
        match text.strip_suffix('%') {
            Some(percent) => match percent.trim_end().parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(fault()),
            },
            None => text.parse().map(Self::Count).map_err(|_| fault()),
        }
    }
}

/// Why a node is not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeleteError {
    /// The source is empty: no file in it takes part.
    #[error(
        "the source is empty (no file in it takes part); mirroring it would delete everything on the target"
    )]
    EmptySource,
    /// The source's folder could not be listed completely.
    #[error("the source's folder could not be listed completely, so nothing is deleted on the other side")]
    ListingFailed,
    /// It is excluded by name.
    #[error("excluded by name")]
    Excluded,
    /// `--max-delete` would be exceeded.
    #[error("{wanted} nodes would be deleted and --max-delete allows {allowed}")]
    TooMany {
        /// Nodes to delete.
        wanted: u64,
        /// Nodes that may be deleted.
        allowed: u64,
    },
}

/// What is known of a node that is on the target and not in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Whether the listing of its folder in the source was complete and without errors.
    pub source_listed_whole: bool,
    /// Whether the filter excludes it by name ([`crate::filter::Filter::excluded`]).
    pub excluded: bool,
}

/// What a walk found in the source, as far as it takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceContent {
    /// Anything except folders.
    pub files: bool,
    /// Any node.
    pub nodes: bool,
}

/// Deletions that a pass would make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// Nodes, folders included.
    pub nodes: u64,
    /// Nodes that are not folders.
    pub files: u64,
}

/// The guard of one mirror.
#[derive(Clone, Debug)]
pub struct DeleteGuard {
    /// Bound of `--max-delete`; `None` means no bound.
    pub max: Option<MaxDelete>,
    /// Deletions that the user agreed to when asked; `None` means no bound.
    pub agreed: Option<u64>,
    /// `--delete-excluded`: what is excluded by name is deleted too.
    pub delete_excluded: bool,
    target_nodes: u64,
    deleted: u64,
}

impl DeleteGuard {
    /// Makes a guard over a target of `target_nodes` nodes (as counted by the walk before the
    /// mirror).
    pub fn new(max: Option<MaxDelete>, target_nodes: u64) -> Self {
        Self {
            max,
            agreed: None,
            delete_excluded: false,
            target_nodes,
            deleted: 0,
        }
    }

    /// Returns the number of nodes that may be deleted in all.
    pub fn allowed(&self) -> u64 {
        let allowed = match self.max {
            None => u64::MAX,
            Some(MaxDelete::Count(count)) => count,
            Some(MaxDelete::Percent(0)) => 0,
            Some(MaxDelete::Percent(percent)) => {
                let part = u128::from(self.target_nodes) * u128::from(percent) / 100;
                u64::try_from(part).unwrap_or(u64::MAX).max(1)
            }
        };
        self.agreed.map_or(allowed, |agreed| agreed.min(allowed))
    }

    /// Whether this node may be deleted at all. Checks the second and third rule; counts nothing.
    ///
    /// # Errors
    /// The reason why it is kept.
    pub fn judge(&self, extra: Extra) -> Result<(), DeleteError> {
        if !extra.source_listed_whole {
            return Err(DeleteError::ListingFailed);
        }
        if extra.excluded && !self.delete_excluded {
            return Err(DeleteError::Excluded);
        }
        Ok(())
    }

    /// Whether these deletions are allowed as a whole, in addition to those admitted before.
    ///
    /// # Errors
    /// The reason why nothing at all may be deleted.
    pub fn plan(&self, source: SourceContent, planned: Planned) -> Result<(), DeleteError> {
        if (!source.files && planned.files > 0) || (!source.nodes && planned.nodes > 0) {
            return Err(DeleteError::EmptySource);
        }
        if planned.nodes == 0 {
            return Ok(());
        }
        self.bound(self.deleted + planned.nodes)
    }

    /// Counts one deletion. Call it directly before deleting.
    ///
    /// # Errors
    /// The bound is reached: nothing more may be deleted.
    pub fn admit(&mut self) -> Result<(), DeleteError> {
        self.bound(self.deleted + 1)?;
        self.deleted += 1;
        Ok(())
    }

    /// Returns the deletions admitted so far.
    pub fn deleted(&self) -> u64 {
        self.deleted
    }

    fn bound(&self, wanted: u64) -> Result<(), DeleteError> {
        let allowed = self.allowed();
        if wanted > allowed {
            return Err(DeleteError::TooMany { wanted, allowed });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_parsed() {
        assert_eq!("100".parse(), Ok(MaxDelete::Count(100)));
        assert_eq!("25%".parse(), Ok(MaxDelete::Percent(25)));
        for bad in ["", "%", "101%", "-1", "1.5", "many"] {
            assert!(bad.parse::<MaxDelete>().is_err(), "{bad:?}");
        }
    }

    const FULL: SourceContent = SourceContent {
        files: true,
        nodes: true,
    };

    fn files(nodes: u64) -> Planned {
        Planned { nodes, files: nodes }
    }

    #[test]
    fn an_empty_source_deletes_nothing() {
        let guard = DeleteGuard::new(None, 10);
        let folders = SourceContent {
            files: false,
            nodes: true,
        };
        let folder = Planned { nodes: 1, files: 0 };
        for source in [folders, SourceContent::default()] {
            assert_eq!(guard.plan(source, files(10)), Err(DeleteError::EmptySource));
            assert_eq!(guard.plan(source, files(0)), Ok(()));
        }
        assert_eq!(guard.plan(folders, folder), Ok(()), "folders may follow folders");
        assert_eq!(
            guard.plan(SourceContent::default(), folder),
            Err(DeleteError::EmptySource)
        );
        assert_eq!(guard.plan(FULL, files(10)), Ok(()));
    }

    #[test]
    fn the_bound_is_refused_before_the_first_deletion_and_while_deleting() {
        let mut guard = DeleteGuard::new(Some(MaxDelete::Percent(25)), 10);
        let refused = Err(DeleteError::TooMany {
            wanted: 3,
            allowed: 2,
        });
        assert_eq!(guard.plan(FULL, files(2)), Ok(()));
        assert_eq!(guard.plan(FULL, files(3)), refused);
        assert_eq!(guard.admit(), Ok(()));
        assert_eq!(
            guard.plan(FULL, files(2)),
            refused,
            "the bound is for the whole run"
        );
        assert_eq!(guard.admit(), Ok(()));
        assert_eq!(guard.admit(), refused);
        assert_eq!(guard.deleted(), 2);
        assert_eq!(guard.plan(FULL, files(0)), Ok(()));
        assert_eq!(DeleteGuard::new(Some(MaxDelete::Percent(1)), 10).allowed(), 1);
        assert_eq!(DeleteGuard::new(Some(MaxDelete::Percent(0)), 10).allowed(), 0);
        let none = DeleteGuard::new(Some(MaxDelete::Count(0)), 10);
        assert!(none.plan(FULL, files(1)).is_err());
        let mut agreed = DeleteGuard::new(Some(MaxDelete::Count(5)), 10);
        agreed.agreed = Some(3);
        assert_eq!(agreed.allowed(), 3);
        agreed.agreed = Some(7);
        assert_eq!(agreed.allowed(), 5);
    }

    #[test]
    fn failed_listings_and_excluded_names_survive() {
        let mut guard = DeleteGuard::new(None, 10);
        let extra = |source_listed_whole, excluded| Extra {
            source_listed_whole,
            excluded,
        };
        assert_eq!(guard.judge(extra(true, false)), Ok(()));
        assert_eq!(guard.judge(extra(false, false)), Err(DeleteError::ListingFailed));
        assert_eq!(guard.judge(extra(true, true)), Err(DeleteError::Excluded));
        guard.delete_excluded = true;
        assert_eq!(guard.judge(extra(true, true)), Ok(()));
        assert_eq!(guard.judge(extra(false, true)), Err(DeleteError::ListingFailed));
    }
}
