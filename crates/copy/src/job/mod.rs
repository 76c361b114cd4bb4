//! The job: what it is asked to do, what its parts share, and its phases.
//!
//! [`run`] is what outsiders hold. [`prepare`] builds the [`context`] from options, trees and
//! journal; [`phases`] runs the phases, [`pass`] one pass over the roots. The state below the
//! context ([`config`], [`report`], [`resources`], …) never uses the context.

pub(crate) mod blocks;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod environment;
pub(crate) mod failures;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod pass;
pub(crate) mod phases;
pub(crate) mod prepare;
pub(crate) mod probe;
pub(crate) mod report;
pub(crate) mod resources;
pub(crate) mod retry;
pub(crate) mod root;
pub(crate) mod run;
pub(crate) mod spec;
pub(crate) mod stall;
pub(crate) mod watch;
