//! Signs of life, and what those of others say.

use std::sync::atomic::Ordering;

use super::Crew;
use crate::claim::Leases;
use crate::error::Result;
use crate::queue::Message;
use crate::workers::{Activity, Amounts, Beat, WorkerId};

/// Signs of life in the time of one lease.
const BEATS_PER_LEASE: u32 = 4;

/// So many times shorter than its own lease is the one of a queue for which a worker shows signs of life.
const SHORTER_MOST: u32 = 16;

/// Looks of a worker that works at the others in the time of a poll, of few workers. A guess.
const LOOKS_PER_POLL: u32 = 4;

/// Workers up to which they look so often; of more, each looks less often. A guess.
const LOOKERS: u32 = 8;

/// The first pause of an idle worker is so many times shorter than that between two looks.
const POLL_PARTS: u32 = 8;

impl Crew {
    /// Shows signs of life, and looks for idle workers, until it is dropped.
    pub(super) async fn beat_on(&self) -> std::convert::Infallible {
        let own = self.options.lease;
        // Whoever may change the queue could ask for thousands of signs otherwise.
        let lease = self.queue.lease().unwrap_or(own).clamp(own / SHORTER_MOST, own);
        let pause = lease / BEATS_PER_LEASE;
        let mut lives = Leases::new(self.options.lease);
        let mut next_beat = self.clock.now();
        let (mut next_look, mut was_working) = (next_beat, false);
        loop {
            if self.clock.now() >= next_beat {
                // A catalog that cannot be written to stops the work; there is nobody to tell.
                let next = match self.beat().await {
                    Ok(()) => pause,
                    Err(error) => {
                        tracing::debug!(%error, "no sign of life");
                        pause.min(self.options.poll)
                    }
                };
                let message = self.state.lock().message.clone();
                if let Some(message) = &message {
                    let _ = self.queue.renew(message).await;
                }
                next_beat = self.clock.now() + next;
            }
            let is_working = self.state.lock().message.is_some();
            let often = self.options.poll / LOOKS_PER_POLL;
            // One that has just got a task looks at once.
            if self.clock.now() >= next_look || (is_working && !was_working) {
                let living = self.look_at_others(&mut lives).await;
                let look = match living.filter(|_| is_working) {
                    Some(living) => often * living.div_ceil(LOOKERS),
                    None => pause,
                };
                next_look = self.clock.now() + look;
            }
            was_working = is_working;
            let next_turn = self.clock.now() + often;
            self.clock
                .sleep_until(next_turn.min(next_look).min(next_beat))
                .await;
        }
    }

    /// Looks how many workers are idle without a task for them, and how many share a limit of the rate. Returns how
    /// many are alive, with this one; `None` if that cannot be read.
    async fn look_at_others(&self, lives: &mut Leases<WorkerId>) -> Option<u32> {
        let own = self.store.worker();
        let Ok(beats) = self.signs.beats().await else {
            return None;
        };
        let now = self.clock.now();
        let (mut idle, mut working) = (0_usize, 0_usize);
        for (_, beat) in beats.iter().filter(|(worker, beat)| {
            *worker != own && lives.observe_for(now, worker, (beat.beat, beat.lease()))
        }) {
            match beat.activity {
                Activity::Idle => idle += 1,
                Activity::Working => working += 1,
                Activity::Left => {}
            }
        }
        self.sharers.store(working as u64 + 1, Ordering::Relaxed);
        let is_working = self.state.lock().message.is_some();
        let ways = match idle > 0 && is_working {
            true => {
                let free = self.free_tasks().await.unwrap_or(idle);
                // The others that work give to them too.
                idle.saturating_sub(free).div_ceil(working + 1)
            }
            false => 0,
        };
        self.idle.store(ways, Ordering::Release);
        u32::try_from(idle + working + 1).ok()
    }

    /// Returns how many tasks have no claim yet.
    async fn free_tasks(&self) -> Result<usize> {
        let tasks = self.signs.tasks().await?;
        let claims = self.signs.claims().await?;
        Ok(tasks.iter().filter(|task| claims.last(**task).is_none()).count())
    }

    /// Returns the task of this worker, for display.
    pub fn task(&self) -> Option<String> {
        self.state
            .lock()
            .message
            .as_ref()
            .map(|message| message.task.to_string())
    }

    /// Notes the task that this worker has now, and tells the others at once if it was idle.
    pub(super) async fn has_task(&self, message: &Message) {
        let was_idle = {
            let mut state = self.state.lock();
            state.message = Some(message.clone());
            let is_first = state.beat <= 1;
            std::mem::take(&mut state.looks) > 0 || is_first
        };
        if was_idle {
            let _ = self.beat().await;
        }
    }

    /// Tells the others at once that this worker is idle, and waits: shortly at first.
    pub(super) async fn idles(&self) {
        let looks = {
            let mut state = self.state.lock();
            state.looks = state.looks.saturating_add(1);
            state.looks
        };
        if looks == 1 {
            let _ = self.beat().await;
        }
        let parts = POLL_PARTS >> (looks - 1).min(POLL_PARTS.ilog2());
        self.sleep(self.options.poll / parts).await;
    }

    pub(super) async fn beat(&self) -> Result<()> {
        // One after the other: an older one must not replace a newer one.
        let _turn = self.beating.lock().await;
        let (amounts, progress) = self.amounts();
        let beat = {
            let mut state = self.state.lock();
            state.beat += 1;
            let is_working = state.message.is_some() && !state.has_left;
            let (recent, stalled) = state
                .trail
                .note(self.clock.now(), amounts, (is_working, progress));
            Beat {
                amounts,
                recent,
                stalled_ms: stalled.as_millis() as u64,
                lease_ms: self.options.lease.as_millis() as u64,
                beat: state.beat,
                activity: match &state.message {
                    _ if state.has_left => Activity::Left,
                    Some(_) => Activity::Working,
                    None => Activity::Idle,
                },
                task: state.message.as_ref().map(|message| message.task.to_string()),
                files: self.counters.files.load(Ordering::Relaxed),
                bytes: self.counters.bytes.load(Ordering::Relaxed),
                progress,
                reason: state.reason.clone(),
                ..self.about.clone()
            }
        };
        self.signs.beat(&beat).await
    }

    /// Returns what this worker did until now, and a number that grows with everything that it does.
    fn amounts(&self) -> (Amounts, u64) {
        let parts = self.counters.parts.load(Ordering::Relaxed);
        let (read, written) = self.mover.bytes_read_and_written();
        let amounts = Amounts {
            files: self.counters.done.load(Ordering::Relaxed),
            copied: self.counters.bytes.load(Ordering::Relaxed),
            read: read + parts,
            written: written + parts,
        };
        let progress = self.counters.progress.load(Ordering::Relaxed) + self.mover.bytes_moved();
        (amounts, progress)
    }
}
