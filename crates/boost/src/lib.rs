//! A store with the flash cache in front of it: [`BoostStore`].
//!
//! ```text
//!  BoostStore ──┬─ the source: any Store        everything but reads, unchanged
//!  BoostNode    ├─ coherence    which version of a file may be found and kept; pure
//!               ├─ ranges       which blocks a read touches; pure
//!               ├─ rates        whether a stream is worth keeping; pure
//!               ├─ fetches      one fetch of a block for all its readers
//!               ├─ ahead        what will be read next, brought into the cache before
//!               ├─ hogs         what memory pressure threw out of the kernel's memory, brought back
//!               └─ Boost ────── Cache, its writer, threads for lookups; shared by all stores
//! Folder ── DIR: the preallocated file, its key, its status
//! ```
//!
//! **Reads.** A read first looks its blocks of 64 KiB up. What is missing is read from the source
//! with one request, and kept. Where blocks may be in the cache, the source is asked for the file's
//! attributes first, which it answers from its memory as long as they are valid; where none is,
//! only the data is requested. So a read costs at most as many round trips as without the cache.
//!
//! **Stale data** cannot be found, by these rules (docs/adr/0018):
//!
//! * Blocks are kept under the version (change time, size, times of creation and last write) that
//!   the source reported before they were read.
//! * A version counts only once the source's clock is past its change time by the granularity of
//!   that clock. Until then the file is read from the source.
//! * Own changes: from their beginning until they are written out, and then as long as the store
//!   may return older answers, the file is read from the source.
//! * Files without an id, without a change time, or on another volume than the root are not cached.
//!   Neither is anything of a source that cannot tell versions apart
//!   ([`Store::versioning`](ropeway_vfs::store::Store::versioning)).
//! * A file whose change time a program sets is forgotten first.
//!
//! **A source that is lost** ([`Store::reachability`](ropeway_vfs::store::Store::reachability)) is
//! replaced for a bounded time by what is known of it (docs/adr/0021): `outages` and `known` say what
//! may be answered, `coherence` which blocks may be given out, `confirm` makes sure of them, `source`
//! opens its nodes later.
//!
//! **The device** may fail, fill, hang or vanish at any time. The source serves then.
//!
//! Not seen is a change that leaves the change time as it was: a server's administrator who sets it
//! back to the nanosecond, together with size and the other times.

mod ahead;
mod boost;
mod coherence;
mod confirm;
mod extras;
mod fetches;
mod files;
pub mod folder;
mod hogs;
mod known;
mod learn;
mod lookups;
#[cfg(test)]
mod lost_tests;
mod node;
mod noting;
mod offline;
mod outages;
mod pins;
mod probe;
mod ranges;
mod rates;
mod reading;
mod session;
mod source;
mod status;
mod store;

pub use ahead::{NextStatus, PredictStatus, SourceStatus};
pub use boost::{Boost, BoostOptions, Sequential};
pub use hogs::BringStatus;
pub use learn::{LearnError, LearnedFigures, learn};
pub use pins::{Matcher, PinProgress, Pins};
pub use session::{Say, Session, SessionOptions};
pub use status::{HourStatus, Status};
pub use store::{BoostStore, share_id};
