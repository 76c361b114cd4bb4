//! What the page cache still has to write to each device: dirty pages, limits, rates, the time to
//! drain, and who is behind it.
//!
//! ```text
//!   Reader ── system   /proc, /sys, debugfs, tracefs, cachestat(2)
//!     │         └ parse   texts of the kernel -> figures                     pure
//!     ├ limits        limits of the machine, a device, a cgroup             pure
//!     ├ estimate      counters over time -> rate, time to drain with range  pure
//!     └ judge         figures -> state, waiting writers, safe to unplug     pure
//!   Reading   one reading, for commands and other views
//!   flush     syncfs(2) and a flush of the device, and what keeps it from being unplugged
//! ```
//!
//! One reading takes two looks, since rates are differences:
//!
//! ```no_run
//! # use std::time::{Duration, Instant};
//! # use ropeway_dirty::{Options, Reader};
//! let zero = Instant::now();
//! let mut reader = Reader::new(Options::default());
//! reader.read(zero.elapsed());
//! std::thread::sleep(Duration::from_secs(1));
//! for device in reader.read(zero.elapsed()).devices {
//!     println!("{} {:?}", device.name, device.backlog_bytes());
//! }
//! ```
//!
//! Figures that this process may not know are `None`. Texts of the kernel are hostile until parsed.
//! Everything is bounded: processes, descriptors, devices, text, and the time of a look.

pub mod estimate;
pub mod flush;
pub mod judge;
pub mod limits;
pub mod parse;
mod reader;
pub mod reading;
mod system;

pub use reader::{Options, Reader};
pub use reading::Reading;
pub use system::target::Target;
