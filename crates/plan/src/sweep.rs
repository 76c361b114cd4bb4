//! Decides which temporary names a job may remove.
//!
//! A temporary name belongs to the job with its nonce. A job removes its own names. Those of another
//! job it removes only if that job is dead and nobody will continue it. The claim of a job
//! tells: while the job lives, it is held.
//!
//! | fate of the job | node | claim |
//! |---|---|---|
//! | alive | stays | stays |
//! | unknown | stays, and is counted | stays |
//! | dead | removed | removed with everything that it names |
//!
//! An abandoned claim does not always mean that nobody continues the job: its journal may wait on
//! another machine. [`Observer::is_orphan`] decides that.

use std::collections::HashMap;

use ropeway_vfs::{RelPath, Timestamp};

use crate::temporary::{Nonce, Temporary};

/// An abandoned claim of another machine or user may belong to a copy that goes on tomorrow. After
/// so long it does not. A guess.
const ABANDONED_AFTER_NS: i128 = 7 * 24 * 3600 * 1_000_000_000;
/// Names of one job without a claim that are seen before nobody looks for the claim any more. A
/// guess.
const ABSENT_MAX: u32 = 16;

/// What is known of the job behind a temporary name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Alive,
    /// It is dead. Its claim lies in this folder, or above the tree (`None`).
    Dead(Option<RelPath>),
    /// Nobody here can tell.
    Unknown,
}

/// What to do with a temporary name of another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It stays.
    Leave,
    /// It stays, and the user is told that its job may live.
    Report,
    /// Remove this node.
    RemoveNode,
    /// Remove everything that this claim names, then the claim.
    RemoveClaim,
}

/// Returns what a mirror does with a temporary name that it finds in `dir` on its target.
pub fn in_mirror(fate: &Fate, temporary: &Temporary, dir: &RelPath) -> Action {
    match (fate, temporary) {
        (Fate::Alive, _) => Action::Leave,
        (Fate::Unknown, _) => Action::Report,
        (Fate::Dead(Some(at)), Temporary::Claim { .. }) if at == dir => Action::RemoveClaim,
        // One further up is not this mirror's, nor are the other folders that it names.
        (Fate::Dead(_), Temporary::Claim { .. }) => Action::Leave,
        (Fate::Dead(_), Temporary::Node { .. }) => Action::RemoveNode,
    }
}

/// Returns what a sweep of a whole folder does with a temporary name. `all` is whether the user wants
/// to remove what may belong to a job that runs elsewhere. `is_probe` is whether it is the empty
/// file of a move.
pub fn in_sweep(fate: &Fate, temporary: &Temporary, all: bool, is_probe: bool) -> Action {
    match (fate, temporary) {
        (Fate::Unknown, Temporary::Node { .. }) if !all && !is_probe => Action::Report,
        (Fate::Dead(_) | Fate::Unknown, Temporary::Node { .. }) => Action::RemoveNode,
        (Fate::Dead(_), Temporary::Claim { .. }) => Action::RemoveClaim,
        // Nobody can take it, so nothing that it says is known.
        (Fate::Unknown, Temporary::Claim { .. }) if all => Action::RemoveNode,
        (Fate::Alive | Fate::Unknown, _) => Action::Leave,
    }
}

/// What one look at the place of a claim showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// Somebody holds it.
    Held,
    /// Nobody holds it. It lies in this folder, or above the tree (`None`).
    Abandoned(Option<RelPath>),
    /// It cannot be read, or says nothing that is understood.
    Unknown,
    /// There is none.
    Absent,
}

/// The fates of other jobs, so that each job is looked for once in a run.
#[derive(Debug, Default)]
pub struct KnownFates {
    known: HashMap<Nonce, Fate>,
    absent: HashMap<Nonce, u32>,
}

impl KnownFates {
    /// Returns the fate of a job that has a temporary name in `dir`, if it is known.
    pub fn of(&self, dir: &RelPath, nonce: Nonce) -> Option<&Fate> {
        match self.known.get(&nonce) {
            Some(Fate::Dead(Some(of))) if dir.strip_prefix(of).is_none() => None,
            fate => fate,
        }
    }

    /// Notes the fate of a job.
    pub fn learn(&mut self, nonce: Nonce, fate: Fate) -> Fate {
        self.known.insert(nonce, fate.clone());
        fate
    }

    /// Concludes from the sightings of a job's claim: those in the folder of its name and in each
    /// folder above, from below, and the last one from above the tree.
    pub fn conclude(&mut self, nonce: Nonce, sightings: &[Sighting]) -> Fate {
        let mut found = Fate::Unknown;
        for sighting in sightings {
            match sighting {
                Sighting::Held => return self.learn(nonce, Fate::Alive),
                // Further up there may be one that is held: that of a job that began below.
                Sighting::Abandoned(Some(dir)) => found = Fate::Dead(Some(dir.clone())),
                Sighting::Abandoned(None) if found == Fate::Unknown => found = Fate::Dead(None),
                Sighting::Abandoned(None) | Sighting::Unknown | Sighting::Absent => {}
            }
        }
        if sightings.last() == Some(&Sighting::Unknown) {
            found = Fate::Unknown;
        }
        if sightings.iter().all(|sighting| *sighting == Sighting::Absent) {
            let misses = self.absent.entry(nonce).or_default();
            *misses += 1;
            if *misses < ABSENT_MAX {
                return Fate::Unknown;
            }
        }
        self.learn(nonce, found)
    }
}

/// Whose claim it is, as the claim says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimOwner<'a> {
    /// Key of the job, where it keeps a journal.
    pub job: Option<&'a str>,
    /// Identity of the folder that holds the journal.
    pub state: Option<&'a str>,
}

/// The job that looks at what others left.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    /// Key of its own job.
    pub job: Option<String>,
    /// Identity of the folder of its journals.
    pub state: Option<String>,
}

impl Observer {
    /// Whether nobody will continue the job of an abandoned claim. `owner` is `None` if the claim says
    /// nothing, `modified` is the time of the claim, if it is known. `has_journal` tells whether a job with this key has a journal in our folder.
    pub fn is_orphan(
        &self,
        owner: Option<ClaimOwner<'_>>,
        modified: Option<Timestamp>,
        now: Timestamp,
        has_journal: impl Fn(&str) -> bool,
    ) -> bool {
        let Some(owner) = owner else {
            return true;
        };
        let is_old = modified.is_some_and(|modified| modified.0 + ABANDONED_AFTER_NS < now.0);
        if owner.job.is_none() || owner.job == self.job.as_deref() || is_old {
            return true;
        }
        let is_ours = owner.state.is_some() && owner.state == self.state.as_deref();
        is_ours && !owner.job.is_some_and(has_journal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Temporary = Temporary::Node {
        nonce: Nonce(7),
        token: 1,
    };
    const CLAIM: Temporary = Temporary::Claim { nonce: Nonce(7) };

    fn dir(path: &str) -> RelPath {
        RelPath::parse(path.as_bytes()).unwrap()
    }

    #[test]
    fn what_a_mirror_does_with_the_names_of_others() {
        let here = dir("a/b");
        let dead = |at: &str| Fate::Dead(Some(dir(at)));
        let table = [
            (Fate::Alive, NODE, Action::Leave),
            (Fate::Alive, CLAIM, Action::Leave),
            (Fate::Unknown, NODE, Action::Report),
            (Fate::Unknown, CLAIM, Action::Report),
            (dead("a"), NODE, Action::RemoveNode),
            (Fate::Dead(None), NODE, Action::RemoveNode),
            (dead("a/b"), CLAIM, Action::RemoveClaim),
            (dead("a"), CLAIM, Action::Leave),
            (Fate::Dead(None), CLAIM, Action::Leave),
        ];
        for (fate, temporary, expected) in table {
            assert_eq!(
                in_mirror(&fate, &temporary, &here),
                expected,
                "{fate:?} {temporary:?}"
            );
        }
    }

    #[test]
    fn what_a_sweep_does_with_the_names_of_others() {
        let dead = Fate::Dead(None);
        // (fate, name, all, is a probe)
        let table = [
            ((&Fate::Alive, NODE, true, false), Action::Leave),
            ((&Fate::Alive, CLAIM, true, false), Action::Leave),
            ((&Fate::Unknown, NODE, false, false), Action::Report),
            ((&Fate::Unknown, NODE, true, false), Action::RemoveNode),
            ((&Fate::Unknown, NODE, false, true), Action::RemoveNode),
            ((&Fate::Unknown, CLAIM, false, false), Action::Leave),
            ((&Fate::Unknown, CLAIM, true, false), Action::RemoveNode),
            ((&dead, NODE, false, false), Action::RemoveNode),
            ((&dead, CLAIM, false, false), Action::RemoveClaim),
        ];
        for ((fate, temporary, all, is_probe), expected) in table {
            let found = in_sweep(fate, &temporary, all, is_probe);
            assert_eq!(
                found, expected,
                "{fate:?} {temporary:?} all={all} probe={is_probe}"
            );
        }
    }

    #[test]
    fn what_sightings_of_a_claim_tell() {
        use Sighting::{Abandoned, Absent, Held, Unknown};
        let at = |path: &str| Abandoned(Some(dir(path)));
        let dead = |path: &str| Fate::Dead(Some(dir(path)));
        let table = [
            (vec![Absent, Held], Fate::Alive),
            (vec![at("a/b"), Held], Fate::Alive),
            (vec![at("a/b"), Absent, Absent], dead("a/b")),
            (vec![at("a/b"), at("a"), Absent], dead("a")),
            (vec![at("a/b"), Absent, Abandoned(None)], dead("a/b")),
            (vec![Absent, Abandoned(None)], Fate::Dead(None)),
            (vec![Unknown, at("a"), Absent], dead("a")),
            (vec![at("a"), Unknown], Fate::Unknown),
            (vec![Absent, Absent], Fate::Unknown),
        ];
        for (sightings, expected) in table {
            let found = KnownFates::default().conclude(Nonce(7), &sightings);
            assert_eq!(found, expected, "{sightings:?}");
        }
    }

    #[test]
    fn a_fate_is_remembered_where_it_holds() {
        let mut fates = KnownFates::default();
        for _ in 1..ABSENT_MAX {
            fates.conclude(Nonce(7), &[Sighting::Absent]);
            assert_eq!(fates.of(&dir("a"), Nonce(7)), None, "looked for again");
        }
        fates.conclude(Nonce(7), &[Sighting::Absent]);
        assert_eq!(fates.of(&dir("a"), Nonce(7)), Some(&Fate::Unknown));
        fates.learn(Nonce(8), Fate::Dead(Some(dir("a"))));
        assert!(fates.of(&dir("a/b"), Nonce(8)).is_some());
        assert!(
            fates.of(&dir("b"), Nonce(8)).is_none(),
            "the claim does not lie above"
        );
    }

    #[test]
    fn what_may_be_resumed_stays() {
        let observer = Observer {
            job: Some("own".into()),
            state: Some("here".into()),
        };
        let orphan = |job, state, now: i128, known: bool| {
            let owner = ClaimOwner {
                job: Some(job),
                state: Some(state),
            };
            observer.is_orphan(Some(owner), Some(Timestamp(0)), Timestamp(now), |_| known)
        };
        assert!(
            orphan("own", "elsewhere", 1, false),
            "this very copy, begun by another"
        );
        assert!(!orphan("other", "elsewhere", 1, false), "nobody here can tell");
        assert!(!orphan("other", "here", 1, true), "its journal waits");
        assert!(orphan("other", "here", 1, false), "its journal is gone");
        assert!(
            orphan("other", "elsewhere", ABANDONED_AFTER_NS + 1, true),
            "for too long"
        );
        let own = ClaimOwner {
            job: Some("own"),
            state: Some("elsewhere"),
        };
        let ageless = observer.is_orphan(Some(own), None, Timestamp(1), |_| false);
        assert!(ageless, "whatever its age, which cannot be seen");
        let silent = observer.is_orphan(None, None, Timestamp(1), |_| true);
        assert!(silent, "a claim that says nothing belongs to no journal");
    }
}
