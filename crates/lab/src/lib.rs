//! The laboratory: what is needed to time file copies over a link that is not there.
//!
//! [`link`] is the link: real packets between two real TCP stacks, with a rate, a delay, losses and a queue between.

pub mod link;
