//! What happens to one process, and what is watched of its steps.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::decorate::{Action, Call, Done, Layer, Operation};
use ropeway_vfs::{Clock, Error, ErrorKind, MemoryTree, RelPath, Result, VirtualClock};

use super::world::{CATALOG, version_of};

/// What is known of all processes together.
#[derive(Default)]
pub(crate) struct Watch {
    /// Largest version that each file of the target has had.
    pub(crate) versions: Mutex<BTreeMap<RelPath, u64>>,
    /// What went wrong.
    pub(crate) faults: Mutex<Vec<String>>,
    /// Whether a worker has said that the job is complete.
    pub(crate) complete: Mutex<bool>,
    /// Claims that were made.
    pub(crate) claims: Mutex<u64>,
}

/// Faults of one process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// One operation in so many makes the whole process stand still; 0: none.
    pub(crate) stall: u32,
    /// One operation in so many is lost with its connection, before or after it was carried out.
    pub(crate) lose: u32,
    /// No more faults from this time on.
    pub(crate) until: Duration,
}

/// The layer between a process and the target.
pub(crate) struct Chaos {
    pub(crate) clock: VirtualClock,
    pub(crate) memory: Arc<MemoryTree>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) plan: Plan,
    pub(crate) lease: Duration,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) random: fastrand::Rng,
    pub(crate) stalled_until: Duration,
}

impl Chaos {
    /// Waits as long as an operation takes, and as long as the process stands still.
    async fn pause(&self, action: Action) {
        let mut wait = {
            let mut state = self.state.lock();
            let now = self.clock.now();
            let faulty = now < self.plan.until;
            // The dangerous moments are before and after a rename.
            let one_in = match action {
                Action::Rename => self.plan.stall.div_ceil(10),
                _ => self.plan.stall,
            };
            if faulty && one_in > 0 && state.random.u32(0..one_in) == 0 {
                let most = 5 * self.lease.as_millis() as u64;
                state.stalled_until = now + Duration::from_millis(state.random.u64(0..most));
            }
            now + Duration::from_micros(state.random.u64(100..20_000))
        };
        loop {
            let stalled = self.state.lock().stalled_until;
            wait = wait.max(stalled);
            self.clock.sleep_until(wait).await;
            if self.state.lock().stalled_until <= self.clock.now() {
                return;
            }
        }
    }

    /// Whether this operation is lost: before it is carried out, or its reply.
    fn loss(&self) -> (bool, bool) {
        let mut state = self.state.lock();
        let faulty = self.plan.lose > 0 && self.clock.now() < self.plan.until;
        let is_lost = faulty && state.random.u32(0..self.plan.lose) == 0;
        let before = state.random.bool();
        (is_lost && before, is_lost && !before)
    }

    fn saw(&self, action: Action, path: &RelPath) {
        let catalog = RelPath::parse(CATALOG.as_bytes()).unwrap();
        let claims = RelPath::parse(format!("{CATALOG}/claims").as_bytes()).unwrap();
        if action == Action::MakeDir && path.parent() == Some(claims) {
            *self.watch.claims.lock() += 1;
        }
        if action != Action::Rename || path.strip_prefix(&catalog).is_some() {
            return;
        }
        if *self.watch.complete.lock() {
            let text = format!("{path} got its name after the job was complete");
            self.watch.faults.lock().push(text);
        }
        let Ok(content) = self.memory.content(path) else {
            return;
        };
        let Some(version) = version_of(&content) else {
            let text = format!("{path} got its name with the content {content:?}");
            self.watch.faults.lock().push(text);
            return;
        };
        let mut versions = self.watch.versions.lock();
        let known = versions.entry(path.clone()).or_insert(version);
        if version < *known {
            let text = format!("{path}: version {version} replaced version {known}");
            self.watch.faults.lock().push(text);
        }
        *known = version.max(*known);
    }
}

impl Layer for Chaos {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> impl Future<Output = Result<Done<T>>> + Send + 'a {
        let (action, path) = (call.action, call.path);
        async move {
            self.pause(action).await;
            let (before, after) = self.loss();
            let lost = || Error::new(action.op(), path, ErrorKind::Network);
            if before {
                return Err(lost());
            }
            let result = operation().await;
            if result.is_ok() {
                self.saw(action, path);
            }
            self.pause(action).await;
            match after {
                true => Err(lost()),
                false => result,
            }
        }
    }
}
