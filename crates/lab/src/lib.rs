//! The laboratory: times file copies over emulated links, local file systems and the loopback, and
//! reports the results.
//!
//! * [`mod@bench`] measures a folder or share by file size and record size.
//! * [`link`] emulates a link between two real TCP stacks: rate, delay, losses, queue.
//! * [`work`] defines the files that are copied; a seed gives the same bytes.
//! * [`scenario`] defines what is measured, and how often.
//! * [`run`](mod@run) measures a scenario.
//! * [`local`] holds the labs of this machine's own devices.
//! * [`predict`] replays recorded traces with predictions.
//! * [`report`] holds the results: document, tables, plots, page.

pub mod bench;
pub mod link;
pub mod local;
mod named;
pub mod predict;
pub mod published;
pub mod random;
pub mod report;
pub mod run;
pub mod scenario;
pub mod work;
