//! Hashes of the blocks of large files: what differs from them ([`list`]), and what is kept of them between
//! runs ([`kept`]). `transfer::blocks` uses both.

pub(crate) mod kept;
pub(crate) mod list;
