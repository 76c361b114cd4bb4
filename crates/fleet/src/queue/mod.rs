//! Queues: who gets which task.
//!
//! A queue hands a task to a worker for a while ([`Queue::take`]), and to another if the first shows
//! no sign of life. It may forget tasks, repeat them, hand one out twice, and forget that it was told
//! so. Nothing depends on it: the catalog decides which claim counts (`crate::store`), and
//! [`Queue::offer`] is repeated for tasks that the catalog knows and nobody works on.
//!
//! Every queue passes [`contract::check_queue`].

pub mod contract;
pub mod memory;
pub mod share;

use std::time::Duration;

use ropeway_vfs::Pending;

use crate::claim::{ClaimId, Epoch};
use crate::error::Result;
use crate::task::Task;

pub use memory::MemoryQueue;
pub use share::ShareQueue;

/// A task in the hands of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The task.
    pub task: Task,
    /// The claim to begin in the catalog. It may turn out to be stale.
    pub claim: ClaimId,
}

/// Hands out tasks.
pub trait Queue: Send + Sync {
    /// Offers a task. `least` is the smallest epoch that its next claim may have.
    fn offer<'a>(&'a self, task: &'a Task, least: Epoch) -> Pending<'a, Result<()>>;

    /// Takes a task, if there is one that nobody works on. It must be one that the catalog has: whoever may write to a
    /// service could otherwise let a later phase begin before its time.
    fn take(&self) -> Pending<'_, Result<Option<Message>>>;

    /// Tells that the worker is alive and still at this task.
    fn renew<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>>;

    /// Tells that the task is done. The catalog knows already.
    fn ack<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>>;

    /// Gives the task back: another may take it at once.
    fn release<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<()>>;

    /// Time after which the queue hands a task to another worker unless it is renewed, if the queue has one of its own.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Removes what a service keeps for the job, which is complete. If it is resumed, that is made again.
    fn close(&self) -> Pending<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
