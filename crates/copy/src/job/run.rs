//! The job as the caller sees it: prepared, run, watched and stopped.

use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_plan::Durability;
use ropeway_vfs::Pending;
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::event::{Counters, Event};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::clock::RuntimeClock;
use crate::job::blocks::pool_for;
use crate::job::counters::Live;
use crate::job::outcome::Outcome;
use crate::job::phases::{conclude, run_phases};
use crate::job::prepare::prepare;
use crate::job::report::EventSink;
use crate::job::spec::JobSpec;

impl JobSpec {
    /// Runs the job and returns all its events. For small jobs.
    pub async fn run(self) -> (Outcome, Vec<Event>) {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let outcome = Job::new(self)
            .run(Arc::new(move |event| sink.lock().push(event)))
            .await;
        let events = std::mem::take(&mut *events.lock());
        (outcome, events)
    }
}

/// A copy job that has not started.
pub struct Job {
    spec: JobSpec,
    live: Arc<Live>,
    cancel: CancellationToken,
    pool: Pool,
    limit: Arc<RateLimit>,
}

/// A handle to a job, running or not.
#[derive(Clone)]
pub struct Handle {
    live: Arc<Live>,
    cancel: CancellationToken,
    limit: Arc<RateLimit>,
}

impl Handle {
    /// Returns a progress event. The estimate learns from each call, so call it regularly.
    pub fn progress(&self) -> Event {
        self.live.progress(&self.limit)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.live.counters()
    }

    /// Asks the job to stop. Operations in flight finish, and the journal stays. A pause ends.
    pub fn cancel(&self) {
        self.cancel.cancel();
        self.limit.resume();
    }

    /// Returns the limit, by which the job is paused and its rate changed. During a pause, operations
    /// in flight end, what was written is flushed, and connections stay alive.
    pub fn limit(&self) -> &Arc<RateLimit> {
        &self.limit
    }
}

impl Job {
    /// Prepares a job. Nothing is touched before [`run`](Self::run).
    pub fn new(spec: JobSpec) -> Self {
        let sources = spec.roots.iter().map(|root| &root.source);
        let far = sources
            .chain([&spec.target])
            .any(|tree| tree.capabilities().remote);
        let pool = pool_for(spec.options.engine, far);
        let live = Arc::new(Live::new(spec.options.durability != Durability::None));
        Self {
            spec,
            live,
            cancel: CancellationToken::new(),
            pool,
            limit: RateLimit::unlimited(Arc::new(RuntimeClock::new())),
        }
    }

    /// Uses the limit that is around the trees of the job, or that may get a rate later.
    #[must_use]
    pub fn with_limit(mut self, limit: Arc<RateLimit>) -> Self {
        self.limit = limit;
        self
    }

    /// Uses the blocks of `pool`, which the trees know already. Make the pool with
    /// [`crate::pool_for`] and the same engine.
    #[must_use]
    pub fn with_pool(mut self, pool: Pool) -> Self {
        self.pool = pool;
        self
    }

    /// Returns a handle to watch and stop the job.
    pub fn handle(&self) -> Handle {
        Handle {
            live: Arc::clone(&self.live),
            cancel: self.cancel.clone(),
            limit: Arc::clone(&self.limit),
        }
    }

    /// Runs the job to its end.
    ///
    /// The future is boxed here, so that the engine is compiled in this crate, not again in each one
    /// that runs a job.
    pub fn run(self, sink: EventSink) -> Pending<'static, Outcome> {
        Box::pin(self.execute(sink))
    }

    async fn execute(self, sink: EventSink) -> Outcome {
        let (context, roots) =
            match prepare(self.spec, (self.live, self.cancel, self.limit), self.pool, sink).await {
                Ok(prepared) => prepared,
                Err(fatal) => {
                    return Outcome {
                        summary: Default::default(),
                        status: fatal.status,
                        fatal: Some(fatal.message),
                        hint: fatal.hint,
                    };
                }
            };
        let span = tracing::debug_span!("job", roots = roots.len());
        let times = run_phases(&context, &roots).instrument(span).await;
        conclude(&context, &times)
    }
}
