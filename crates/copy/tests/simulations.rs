//! Simulated jobs by seed.

mod simulate;
