//! Tasks of a fleet handed out by NATS JetStream.
//!
//! `ropeway_fleet` keeps all truth in its catalog beside the target: what is done, and which claim of a task may
//! commit. A queue only tells workers what to do next, and may lose, repeat and forget. [`NatsQueue`] is such a queue
//! on a server that many sites have already; the other one (`ropeway_fleet::queue::ShareQueue`) needs no service.
//!
//! ```text
//!   stream    ROPEWAY_FLEET_<job>     subject ropeway.fleet.<job>.<task>, one message for each task that is not done
//!   consumer  workers                 pull, explicit acknowledgements; the time to acknowledge is the lease
//!   bucket    ROPEWAY_EPOCHS_<job>    key <task>: how often the task was claimed
//! ```
//!
//! JetStream does not fence acknowledgements: a worker that slept may acknowledge a task that another one has now. So
//! each claim has an epoch, which is raised in the bucket by compare-and-set on its revision, and the catalog refuses
//! the claim of a smaller one. If the bucket is lost, epochs follow those that the catalog knows.
//!
//! Messages hold a task (paths and ranges of names) and nothing secret. Each worker has its own credentials, for the
//! server and for both ends.
//!
//! The rules of a queue (`ropeway_fleet::queue::contract`) are tested against a real server.

mod epochs;
mod options;
mod queue;
mod settings;

pub use options::NatsOptions;
pub use queue::NatsQueue;
pub use settings::{Fault, check_stream};
