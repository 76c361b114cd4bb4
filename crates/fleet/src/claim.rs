//! Claims: who works on a task, and which of several is the last.
//!
//! Each claim of a task has an [`Epoch`] that is larger than those before it. Only the claim with
//! the largest epoch may commit. A claim ends when its task is done, when its holder gives it back,
//! or when another takes it over. A worker takes over what belongs to a worker that shows no sign
//! of life ([`Leases`]).
//!
//! **Clocks prove nothing.** A worker that stood still for an hour does not know that its lease is
//! over, and its next step may be a rename. So epochs are not compared before a step; the step of a
//! stale claim is made impossible. All files that a claim makes lie in folders of its own, and
//! whoever takes over removes these folders first (`crate::store`): in a folder that is gone,
//! nothing can be made, and nothing can be renamed out of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use crate::task::TaskId;

/// Number of a claim of one task, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Returns the next one.
    pub fn next(self) -> Self {
        Self(
            self.0
                .checked_add(1)
                .expect("nobody claims a task four billion times"),
        )
    }
}

/// One claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId {
    /// The task.
    pub task: TaskId,
    /// Its epoch.
    pub epoch: Epoch,
}

impl ClaimId {
    /// Parses what `Display` writes. The largest epoch is refused: nobody claims a task so often, and
    /// a folder with that name must not leave the task without a next one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (task, epoch) = text.split_at_checked(TaskId::TEXT)?;
        let epoch = number(epoch.strip_prefix(b".")?).filter(|epoch| *epoch < u32::MAX)?;
        Some(Self {
            task: TaskId::parse(task)?,
            epoch: Epoch(epoch),
        })
    }
}

/// Parses eight lower-case hexadecimal digits.
pub(crate) fn number(digits: &[u8]) -> Option<u32> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 8 || !digits.iter().all(is_digit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08x}", self.task, self.epoch.0)
    }
}

/// Why a claim may not commit, or may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// There is a claim with this or a larger epoch.
    #[error("the task was claimed again (epoch {})", .0.0)]
    Stale(Epoch),
    /// The task is done.
    #[error("the task is done")]
    Done,
    /// A worker before this one has a file of the task open still, and the server lets nobody remove it.
    #[error("an earlier worker still has a file of this task open")]
    Held,
}

/// The claims of all tasks as the names in the catalog show them.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    epochs: BTreeMap<TaskId, BTreeSet<Epoch>>,
}

impl Claims {
    /// Makes the table of what was listed.
    pub fn of(claims: impl IntoIterator<Item = ClaimId>) -> Self {
        let mut table = Self::default();
        claims.into_iter().for_each(|claim| table.add(claim));
        table
    }

    /// Adds a claim.
    pub fn add(&mut self, claim: ClaimId) {
        self.epochs.entry(claim.task).or_default().insert(claim.epoch);
    }

    /// Returns the largest epoch of a task.
    pub fn last(&self, task: TaskId) -> Option<Epoch> {
        self.epochs.get(&task)?.last().copied()
    }

    /// Returns the epoch that the next claim of a task gets.
    pub fn next(&self, task: TaskId) -> Epoch {
        self.last(task).map_or(Epoch(1), Epoch::next)
    }

    /// Checks that no later claim exists.
    ///
    /// # Errors
    /// [`ClaimError::Stale`] with the later epoch.
    pub fn judge(&self, claim: ClaimId) -> Result<(), ClaimError> {
        match self.last(claim.task) {
            Some(last) if last > claim.epoch => Err(ClaimError::Stale(last)),
            _ => Ok(()),
        }
    }

    /// Returns the claims of a task before an epoch, the oldest first.
    pub fn before(&self, claim: ClaimId) -> impl Iterator<Item = ClaimId> + '_ {
        let epochs = self.epochs.get(&claim.task).into_iter().flatten();
        epochs
            .take_while(move |epoch| **epoch < claim.epoch)
            .map(move |epoch| ClaimId {
                epoch: *epoch,
                ..claim
            })
    }
}

/// Signs of life, judged by one observer on its own clock. Clocks of machines are never compared.
#[derive(Clone, Debug)]
pub struct Leases<K> {
    span: Duration,
    seen: HashMap<K, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    beat: u64,
    since: Duration,
}

impl<K: Eq + Hash + Clone> Leases<K> {
    /// Makes an observer that takes a holder for dead after `span` without a new beat.
    pub fn new(span: Duration) -> Self {
        Self {
            span,
            seen: HashMap::new(),
        }
    }

    /// Notes the beat that a holder shows at `now`, and returns whether the holder counts as alive.
    /// A holder that is seen for the first time does.
    pub fn observe(&mut self, now: Duration, holder: &K, beat: u64) -> bool {
        self.observe_for(now, holder, (beat, Duration::ZERO))
    }

    /// The same for a holder that shows its beats in a lease of its own: the longer one counts.
    pub fn observe_for(&mut self, now: Duration, holder: &K, (beat, lease): (u64, Duration)) -> bool {
        let seen = self
            .seen
            .entry(holder.clone())
            .or_insert(Seen { beat, since: now });
        if seen.beat != beat {
            *seen = Seen { beat, since: now };
        }
        now.saturating_sub(seen.since) < self.span.max(lease)
    }

    /// Forgets holders that `keep` does not name.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.seen.retain(|holder, _| keep(holder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(epoch: u32) -> ClaimId {
        ClaimId {
            task: TaskId([7; 16]),
            epoch: Epoch(epoch),
        }
    }

    #[test]
    fn a_folder_with_the_largest_epoch_is_no_claim() {
        let named = |epoch: &str| ClaimId::parse(format!("{}.{epoch}", "0a".repeat(16)).as_bytes());
        assert_eq!(named("ffffffff"), None);
        let last = named("fffffffe").unwrap();
        assert_eq!(last.epoch.next(), Epoch(u32::MAX));
    }

    #[test]
    fn names_of_claims_are_read_back_and_others_refused() {
        let text = claim(300).to_string();
        assert_eq!(text, format!("{}.0000012c", "07".repeat(16)));
        assert_eq!(ClaimId::parse(text.as_bytes()), Some(claim(300)));
        for other in ["", "07", &text[1..], &text.to_uppercase(), &format!("{text}0")] {
            assert_eq!(ClaimId::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn only_the_last_claim_may_commit() {
        let claims = Claims::of([claim(3), claim(1)]);
        assert_eq!(claims.judge(claim(1)), Err(ClaimError::Stale(Epoch(3))));
        assert_eq!(claims.judge(claim(3)), Ok(()));
        assert_eq!(claims.next(claim(1).task), Epoch(4));
        assert_eq!(claims.next(TaskId([8; 16])), Epoch(1));
        assert_eq!(claims.before(claim(4)).collect::<Vec<_>>(), [claim(1), claim(3)]);
        assert_eq!(claims.before(claim(1)).count(), 0);
    }

    #[test]
    fn a_lease_ends_when_beats_stop_whatever_the_beat_is() {
        let at = Duration::from_secs;
        let mut leases = Leases::new(at(10));
        assert!(leases.observe(at(100), &"a", 5));
        assert!(leases.observe(at(109), &"a", 5));
        assert!(!leases.observe(at(110), &"a", 5));
        // A new beat, even a smaller one, is a sign of life.
        assert!(leases.observe(at(111), &"a", 4));
        assert!(!leases.observe(at(121), &"a", 4));
        assert!(leases.observe_for(at(121), &"a", (4, at(20))));
        assert!(!leases.observe_for(at(131), &"a", (4, at(20))));
        leases.retain(|_| false);
        assert!(leases.observe(at(130), &"a", 4));
    }
}
