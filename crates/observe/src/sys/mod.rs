//! System calls for observing other programs: the only unsafe code of this crate.
//!
//! Everything here has a safe interface.

pub(crate) mod bpf;
pub(crate) mod fanotify;
pub(crate) mod ptrace;
pub(crate) mod ring_map;
pub(crate) mod spawn;
