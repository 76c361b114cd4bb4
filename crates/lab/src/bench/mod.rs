//! `ropeway bench`: file sizes x record sizes on a folder or share, as fio and iozone measure, with the
//! reasons to doubt each figure.
//!
//! ```text
//!   cell, grid   patterns, modes, keys; the steps of a round          pure
//!   order        places of the requests: sequential, random, strided  pure
//!   latency      histogram                                            pure
//!   budget       what fits into the time                              pure
//!   io           passes over files and names: what is timed
//!   facts        machine, device, link                                read, then pure
//!   run          the short look, the rounds, the report on disk
//!   result       the document bench.json
//!   findings     warnings: which cache or line explains a figure      pure
//!   table, page  the terminal; HTML, Markdown, plots                  pure
//!   compare      two documents                                        pure
//! ```
//!
//! Invariants: everything happens in a folder of its own, which is removed however the run ends (except
//! by SIGKILL). A figure is the median of all runs of a cell; only the requests are timed, not opening
//! and closing. Random orders repeat no record.

pub mod budget;
pub mod cell;
pub mod compare;
pub mod facts;
pub mod findings;
pub mod grid;
pub mod io;
pub mod latency;
pub mod order;
pub mod page;
pub mod reason;
pub mod result;
pub mod run;
#[cfg(test)]
mod samples;
pub mod table;

/// Prefix of the private folder's name; the id of the process follows.
pub const PREFIX: &str = "ropeway-bench-";
