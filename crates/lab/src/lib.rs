//! The laboratory: what is needed to time file copies over a link that is not there, and to show what came of it.
//!
//! [`link`] is the link: real packets between two real TCP stacks, with a rate, a delay, losses and a queue between.
//! [`work`] is what is moved, the same bytes for the same seed.
//! [`scenario`] is what is to be measured, and how often.
//! [`run`](mod@run) measures it.
//! [`local`] are the labs of this machine's own devices.
//! [`report`] is what was found out, as a document, tables and plots.

pub mod link;
pub mod local;
pub mod published;
pub mod report;
pub mod run;
pub mod scenario;
pub mod work;
