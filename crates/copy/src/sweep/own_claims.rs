//! The claims of this job, and the folders in which it makes temporary names.
//!
//! Before the first temporary name in a folder, the folder is noted in a claim. Before the first of
//! all, the claim is taken, in the topmost folder of the target that is not the user's. On a
//! distant target nobody waits for that, and the claim says so: others then search the folders that
//! it may not name.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use parking_lot::Mutex;
use ropeway_plan::temporary::Nonce;
use ropeway_vfs::{Claim, Error, ErrorKind, RelPath, Tree};
use tokio::sync::Semaphore;

use crate::sweep::claim_record::{BYTES_MAX, ClaimRecord, Header, encode_place};
use crate::sweep::removal::{self, Swept};

/// Largest number of notes under way.
const NOTES_MAX: usize = 64;
/// Number of tries to take a claim of an earlier run while somebody looks at it, or sweeps what it
/// names. A guess.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Number of tries to make a claim if the device refuses. A guess.
const REFUSED_TRIES: u32 = 4;

/// A claim that this job holds.
struct Held {
    dir: RelPath,
    claim: Box<dyn Claim>,
}

#[derive(Default)]
struct State {
    held: Vec<Held>,
    /// Folders in which no claim can be made.
    refused: HashSet<RelPath>,
    /// Folders with temporary names that no claim names.
    unclaimed: Vec<RelPath>,
}

/// The claims and places of this job.
pub(crate) struct OwnClaims {
    target: Arc<dyn Tree>,
    nonce: Nonce,
    /// Key of the job, and identity of the folder of its journal.
    of: (Option<String>, Option<String>),
    /// Identity of the running boot.
    boot_id: String,
    /// Whether nobody waits for a note.
    unwaited: bool,
    state: tokio::sync::Mutex<State>,
    /// Places noted in this run.
    noted: Mutex<HashSet<RelPath>>,
    notes: Arc<Semaphore>,
}

impl OwnClaims {
    pub(crate) fn new(
        target: Arc<dyn Tree>,
        nonce: Nonce,
        of: (Option<String>, Option<String>),
        (boot_id, unwaited): (String, bool),
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            nonce,
            of,
            boot_id,
            unwaited,
            state: tokio::sync::Mutex::default(),
            noted: Mutex::default(),
            notes: Arc::new(Semaphore::new(NOTES_MAX)),
        })
    }

    /// Notes that temporary names are about to be made in `place`. `top` is where the claim should
    /// be.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`]: somebody else holds the claim of this very job.
    pub(crate) async fn note(self: &Arc<Self>, top: &RelPath, place: &RelPath) -> Result<(), Error> {
        if self.noted.lock().contains(place) {
            return Ok(());
        }
        if !self.unwaited {
            return self.note_now(top, place).await;
        }
        if !self.noted.lock().insert(place.clone()) {
            return Ok(());
        }
        // The semaphore is never closed.
        if let Ok(permit) = Arc::clone(&self.notes).acquire_owned().await {
            let (own, top, place) = (Arc::clone(self), top.clone(), place.clone());
            let mut noting = Box::pin(async move {
                // Nobody else holds a random name.
                let _ = own.note_now(&top, &place).await;
                drop(permit);
            });
            // The request for the claim leaves before any other.
            if poll!(&mut noting).is_pending() {
                tokio::spawn(noting);
            }
        }
        Ok(())
    }

    async fn note_now(&self, top: &RelPath, place: &RelPath) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        if !self.unwaited && self.noted.lock().contains(place) {
            return Ok(());
        }
        let covers = |held: &Held| place.strip_prefix(&held.dir).is_some();
        if !state.held.iter().any(covers) {
            for dir in [top, place] {
                if state.refused.contains(dir) {
                    continue;
                }
                match self.take_retried(dir).await {
                    Ok(held) => {
                        state.held.push(held);
                        break;
                    }
                    Err(error) if error.kind == ErrorKind::Busy => return Err(error),
                    // The job continues without a claim. Then nobody else can know what its names
                    // are.
                    Err(_) => drop(state.refused.insert(dir.clone())),
                }
            }
        }
        let record = match state.held.iter().find(|held| covers(held)) {
            Some(held) => {
                let below = place.strip_prefix(&held.dir).unwrap_or_default();
                held.claim.append(&encode_place(&below)).await.is_ok()
            }
            None => false,
        };
        if !record {
            state.unclaimed.push(place.clone());
        }
        self.noted.lock().insert(place.clone());
        Ok(())
    }

    /// Takes a claim, with more tries if a device refuses for a moment. Without a claim, only the
    /// journal of this job knows its names.
    async fn take_retried(&self, dir: &RelPath) -> Result<Held, Error> {
        let mut tries = 1;
        loop {
            match self.take(dir).await {
                Err(error)
                    if tries < REFUSED_TRIES
                        && matches!(error.kind, ErrorKind::NoSpace | ErrorKind::DeviceError) =>
                {
                    tries += 1;
                }
                taken => return taken,
            }
        }
    }

    async fn take(&self, dir: &RelPath) -> Result<Held, Error> {
        let path = dir.join(&self.nonce.claim());
        let mut tries = 0;
        let claim = loop {
            tries += 1;
            // It is made anew if somebody else put something under its name.
            match self.target.claim(&path, true).await {
                Err(error) if error.kind == ErrorKind::Busy && tries < BUSY_TRIES => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                claim => break claim?,
            }
        };
        match self.begin(&*claim).await {
            Ok(()) => Ok(Held {
                dir: dir.clone(),
                claim,
            }),
            Err(error) => {
                // An empty claim is of no use. If it stays, the end of the run removes it.
                let _ = claim.remove().await;
                Err(error)
            }
        }
    }

    /// Writes the header of a new claim.
    async fn begin(&self, claim: &dyn Claim) -> Result<(), Error> {
        let bytes = claim.read(BYTES_MAX).await?;
        let before = ClaimRecord::parse(&bytes);
        if before.header.is_none() {
            let header = Header::new(claim.kind(), self.of.clone(), self.unwaited).in_boot(&self.boot_id);
            // This ends what a power cut left of an older header.
            let end: &[u8] = if bytes.is_empty() { b"" } else { b"\0" };
            claim.append(&[end, &header.encode()].concat()).await?;
        }
        Ok(())
    }

    /// Whether a claim could not be made in some folder.
    pub(crate) async fn was_refused(&self) -> bool {
        !self.state.lock().await.refused.is_empty()
    }

    /// Takes the claim that an earlier run of this job left in `dir`, if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`]: somebody else holds it.
    pub(crate) async fn take_again(&self, dir: &RelPath) -> Result<(), Error> {
        match self.take(dir).await {
            Ok(held) => self.state.lock().await.held.push(held),
            Err(error) if error.kind == ErrorKind::Busy => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    /// Takes the claims that earlier runs of this job left in these folders, except those that this
    /// run holds already. Returns whether each folder could be looked at, and the folders without a
    /// claim: an earlier run may have been refused one there, and have made temporary names.
    pub(crate) async fn take_left(&self, dirs: Vec<RelPath>) -> (bool, Vec<RelPath>) {
        let (mut state, mut all) = (self.state.lock().await, true);
        let mut without = Vec::new();
        for dir in dirs {
            if state.held.iter().any(|held| held.dir == dir) {
                continue;
            }
            match self.target.claim(&dir.join(&self.nonce.claim()), false).await {
                Ok(claim) => state.held.push(Held { dir, claim }),
                // A tree without claims has none.
                Err(error) => {
                    all &= error.kind == ErrorKind::Unsupported || error.kind.is_absence();
                    without.push(dir);
                }
            }
        }
        (all, without)
    }

    /// Returns the folders in which this job or an earlier run of it made temporary names, as far
    /// as its claims tell.
    pub(crate) async fn places(&self) -> Vec<RelPath> {
        let state = self.state.lock().await;
        let mut places = state.unclaimed.clone();
        // A claim may have been made there and the reply lost.
        places.extend(state.refused.iter().cloned());
        for Held { dir, claim } in &state.held {
            let record = claim.read(BYTES_MAX).await.unwrap_or_default();
            places.extend(removal::places_of(dir, &ClaimRecord::parse(&record)));
        }
        drop(state);
        removal::each_once(places)
    }

    /// Whether this job holds a claim.
    pub(crate) async fn holds(&self) -> bool {
        self.notes_end().await;
        !self.state.lock().await.held.is_empty()
    }

    /// Removes the claims, when no temporary name is left.
    ///
    /// `root` is the path of the only root. A folder outside of it has changed anyway, and nobody
    /// sets its times.
    pub(crate) async fn finish(&self, root: Option<&RelPath>) -> Swept {
        self.notes_end().await;
        let mut swept = Swept::default();
        for held in std::mem::take(&mut self.state.lock().await.held) {
            if root.is_none_or(|root| held.dir.strip_prefix(root).is_some()) {
                removal::remove_claim(&*self.target, &held.dir, held.claim, &mut swept).await;
            } else if let Err(error) = held.claim.remove().await
                && error.kind != ErrorKind::NotFound
            {
                swept.failed.push(error);
            }
        }
        self.noted.lock().clear();
        swept
    }

    /// Waits until all notes are written.
    pub(crate) async fn notes_end(&self) {
        drop(self.notes.acquire_many(NOTES_MAX as u32).await);
    }
}
