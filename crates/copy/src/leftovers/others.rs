//! What other jobs left: whether they live, and whose leftovers may go.

use std::collections::HashMap;

use ropeway_plan::temporary::Nonce;
use ropeway_vfs::{Claim, ClaimAbove, ErrorKind, Metadata, RelPath, Timestamp, Tree};

use super::told::{BYTES_MAX, Told};

/// An abandoned claim of another machine or user may belong to a copy that goes on tomorrow. After so long it does not.
const ABANDONED_AFTER_NS: i128 = 7 * 24 * 3600 * 1_000_000_000;
/// Names of one job for which no claim is found before it is looked for no more.
const ABSENT_MAX: u32 = 16;

/// What is known of the job behind a temporary name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It runs.
    Alive,
    /// It is dead; its claim lies in this folder, or above the tree (`None`).
    Dead(Option<RelPath>),
    /// Nobody here can tell.
    Unknown,
}

/// A claim that was looked at.
pub(crate) enum Found {
    /// Somebody holds it.
    Held,
    /// Nobody does; now we do.
    Abandoned(Box<dyn Claim>, Told),
    /// It says nothing that is understood, or may not be opened.
    Unknown,
    /// There is none.
    Absent,
}

/// Tries to take the claim of a job in a folder.
pub(crate) async fn look(tree: &dyn Tree, dir: &RelPath, nonce: Nonce) -> Found {
    let claim = match tree.claim(&dir.join(&nonce.claim()), false).await {
        Ok(claim) => claim,
        Err(error) if error.kind == ErrorKind::Busy => return Found::Held,
        Err(error) if error.kind.is_absence() => {
            return Found::Absent;
        }
        Err(_) => return Found::Unknown,
    };
    let Ok(bytes) = claim.read(BYTES_MAX).await else {
        return Found::Unknown;
    };
    let told = Told::parse(&bytes);
    // One that was made and not written to, or of which a power cut left a part: its job died right then.
    let is_new = bytes.is_empty() || told.is_torn;
    let is_clear = told
        .header
        .as_ref()
        .is_some_and(|header| header.is_held_by(claim.kind()));
    match is_new || is_clear {
        true => Found::Abandoned(claim, told),
        false => Found::Unknown,
    }
}

/// The answers of one run, so that each job is looked for once.
#[derive(Debug, Default)]
pub(crate) struct Others {
    known: HashMap<Nonce, Fate>,
    absent: HashMap<Nonce, u32>,
}

impl Others {
    /// What is known of the job of a temporary name in `dir`.
    pub(crate) async fn fate(&mut self, tree: &dyn Tree, dir: &RelPath, nonce: Nonce) -> Fate {
        match self.known.get(&nonce) {
            Some(Fate::Dead(Some(of))) if dir.strip_prefix(of).is_none() => {}
            Some(fate) => return fate.clone(),
            None => {}
        }
        let mut found = Fate::Unknown;
        let mut absent = true;
        let mut at = Some(dir.clone());
        while let Some(folder) = at {
            match look(tree, &folder, nonce).await {
                Found::Held => return self.learn(nonce, Fate::Alive),
                // Further up there may be one that is held: that of a job that began below.
                Found::Abandoned(..) => (found, absent) = (Fate::Dead(Some(folder.clone())), false),
                Found::Unknown => absent = false,
                Found::Absent => {}
            }
            at = folder.parent();
        }
        match tree.claim_above(&nonce.claim()).await {
            Ok(ClaimAbove::Held) => return self.learn(nonce, Fate::Alive),
            Ok(ClaimAbove::Abandoned) if found == Fate::Unknown => {
                (found, absent) = (Fate::Dead(None), false)
            }
            Ok(ClaimAbove::Abandoned | ClaimAbove::Absent) => {}
            Ok(ClaimAbove::Unknown) | Err(_) => (found, absent) = (Fate::Unknown, false),
        }
        if absent {
            let misses = self.absent.entry(nonce).or_default();
            *misses += 1;
            if *misses < ABSENT_MAX {
                return Fate::Unknown;
            }
        }
        self.learn(nonce, found)
    }

    /// Notes what became of a job.
    pub(crate) fn learn(&mut self, nonce: Nonce, fate: Fate) -> Fate {
        self.known.insert(nonce, fate.clone());
        fate
    }
}

/// Who looks at what others left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looker {
    /// Key of its own job.
    pub(crate) job: Option<String>,
    /// Identity of the folder of its journals.
    pub(crate) state: Option<String>,
}

impl Looker {
    /// Whether nobody will go on with what this abandoned claim stands for. `has_journal` tells whether a job of this key
    /// has a journal in our state folder.
    pub(crate) fn is_orphan(
        &self,
        told: &Told,
        claim: Option<&Metadata>,
        now: Timestamp,
        has_journal: impl Fn(&str) -> bool,
    ) -> bool {
        let Some(header) = &told.header else {
            return true;
        };
        let modified = claim.and_then(|claim| claim.modified.known());
        let is_abandoned = modified.is_some_and(|modified| modified.0 + ABANDONED_AFTER_NS < now.0);
        if header.job.is_none() || header.job == self.job || is_abandoned {
            return true;
        }
        let is_ours = header.state.is_some() && header.state == self.state;
        is_ours && !header.job.as_deref().is_some_and(has_journal)
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::Header;
    use super::*;
    use ropeway_vfs::{ClaimKind, Kind};

    fn told(job: &str, state: &str) -> Told {
        Told {
            header: Some(Header::new(
                ClaimKind::Local,
                (Some(job.into()), Some(state.into())),
                false,
            )),
            places: Vec::new(),
            is_torn: false,
        }
    }

    #[test]
    fn what_may_be_resumed_stays() {
        let looker = Looker {
            job: Some("own".into()),
            state: Some("here".into()),
        };
        let claim = Metadata::bare(Kind::File, 0, Timestamp(0));
        let orphan = |job, state, now: i128, known: bool| {
            looker.is_orphan(&told(job, state), Some(&claim), Timestamp(now), |_| known)
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
        let own = looker.is_orphan(&told("own", "elsewhere"), None, Timestamp(1), |_| false);
        assert!(own, "whatever its age, which cannot be seen");
    }
}
