//! One file a command.

pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod lab;
pub(crate) mod mirror;
pub(crate) mod trace;
mod transfer;
