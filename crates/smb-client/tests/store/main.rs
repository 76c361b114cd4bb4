//! Tests a share as a store: the contract of stores, random operations with cut connections,
//! restarted servers, two clients.

mod ahead;
mod bench;
mod coherence;
mod contract;
mod creation;
mod faulty;
mod leases;
mod losses;
mod speed;
mod way;
mod write_back;
