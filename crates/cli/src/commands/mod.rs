//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod boost;
pub(crate) mod check;
pub(crate) mod copy;
mod deletions;
pub(crate) mod demo;
mod device;
pub(crate) mod dirty;
pub(crate) mod fleet;
pub(crate) mod jobs;
pub(crate) mod lab;
pub(crate) mod login;
pub(crate) mod logout;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mirror;
pub(crate) mod mkdir;
pub(crate) mod mount;
pub(crate) mod mv;
mod nodes;
pub(crate) mod rm;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod top;
pub(crate) mod trace;
mod transfer;
