//! The flash cache: blocks of slow files on a fast device.
//!
//! [`policy`] decides which blocks stay, [`index`] knows where they lie.

pub mod index;
pub mod policy;
mod table;
