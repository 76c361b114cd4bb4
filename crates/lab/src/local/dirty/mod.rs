//! `ropeway lab dirty`: the speed of writing a file before and after the page cache throttles its writers.
//!
//! ```text
//!   kernel    limits of machine and device, and when writers will wait     read, then pure
//!   write     a file without a name: each write(2) is timed, then the flush
//!   fit       the two modes in the samples; the article's model            pure
//!   findings  threshold and rates, compared with the expected ones         pure
//!   report    the document                                                 pure
//!   check     `lab dirty --check`: what `ropeway dirty` says, beside what is true
//! ```

pub mod check;
pub mod findings;
pub mod fit;
pub mod kernel;
mod report;
mod text;
pub mod write;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use findings::Findings;

use super::LocalError;
use crate::report::{Document, FILE, save, write_all};
use kernel::{Expected, Memory};
use write::{TestFile, WRITE_BYTES};

/// Default amount as a multiple of the threshold.
const PAST: f64 = 2.5;
/// Least default amount: less is written too fast for samples.
const BYTES_MIN: u64 = 64 << 20;
/// Largest amount: a sample for each MiB is kept.
const BYTES_MAX: u64 = 1 << 40;

/// Figures as lines for people: name and text.
pub fn lines(findings: &Findings) -> Vec<(String, String)> {
    let mut lines = text::lines(findings);
    lines.extend(text::settings(findings));
    lines
}

/// Options of the lab.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder for the file.
    pub dir: PathBuf,
    /// Bytes to write; `None` for 2.5 x the expected threshold, at most half of the free space.
    pub bytes: Option<u64>,
    /// Longest time of writing, and again of the following flush.
    pub limit: Duration,
    /// Time before the measurement in which the kernel learns the speed of the device.
    pub warm_up: Duration,
    /// Folder of the report; created if missing.
    pub out: PathBuf,
}

/// Measures and writes the report. Returns it and the figures. `notify` gets lines for people. Setting
/// `stop` ends the lab in order.
///
/// # Errors
/// The file cannot be created or has no room, or the lab ended before the file was durable; then the
/// report holds the samples so far.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    notify: &dyn Fn(&str),
) -> Result<(Document, Findings), LocalError> {
    let mut file = TestFile::create(&options.dir).map_err(LocalError::io(format!(
        "make a file in {}",
        options.dir.display()
    )))?;
    if file.in_memory {
        return Err(LocalError::InMemory {
            path: options.dir.clone(),
        });
    }
    let out = &options.out;
    super::make_out(out)?;
    let memory = Memory::read().map_err(LocalError::io("read the kernel's settings"))?;
    let expected = Expected::of(&memory, file.device.as_ref());
    let bytes = amount(options, expected.held_from_bytes, file.free_bytes)?;
    notify(&format!(
        "writing {} in {}; writers are expected to wait from {} of dirty data",
        text::size(bytes as f64),
        options.dir.display(),
        text::size(expected.held_from_bytes)
    ));
    let warnings = super::warnings(&[], false);
    let warmed = file.warm_up(options.warm_up, stop);
    warmed.map_err(LocalError::io(format!("write in {}", options.dir.display())))?;
    let started = crate::run::machine::now();
    let recording = file.measure(bytes, options.limit, stop);
    let device = file.device.clone();
    // Removes the file before anything else can fail.
    drop(file);
    let findings = Findings::of(&recording, &memory, device);
    let mut document = report::document(options, bytes, &started, &recording, &findings);
    document.warnings.splice(0..0, warnings);
    save(&document, &out.join(FILE))?;
    write_all(&document, out)?;
    match recording.ended_early {
        None => Ok((document, findings)),
        Some(_) if stop.load(Ordering::Acquire) => Err(LocalError::Interrupted),
        // The samples show the modes nevertheless.
        Some(_) if !recording.writes.is_empty() => Ok((document, findings)),
        Some(why) => Err(LocalError::Io {
            what: format!("measure in {}", options.dir.display()),
            source: std::io::Error::other(why),
        }),
    }
}

/// Returns the bytes to write.
fn amount(options: &Options, held_from: f64, free: u64) -> Result<u64, LocalError> {
    let most = free / 2;
    let no_room = |needed| LocalError::NoRoom {
        path: options.dir.clone(),
        free,
        needed,
    };
    match options.bytes {
        Some(bytes) if bytes > most => Err(no_room(bytes.saturating_mul(2))),
        Some(bytes) => Ok(bytes.clamp(WRITE_BYTES, BYTES_MAX)),
        None => {
            let wanted = ((held_from * PAST) as u64).clamp(BYTES_MIN, BYTES_MAX);
            let least = (held_from as u64).saturating_add(BYTES_MIN).min(wanted);
            if most < least {
                return Err(no_room(least.saturating_mul(2)));
            }
            Ok(wanted.min(most) / WRITE_BYTES * WRITE_BYTES)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_free_is_the_most() {
        let options = |bytes| Options {
            dir: PathBuf::from("/x"),
            bytes,
            limit: Duration::from_secs(1),
            warm_up: Duration::ZERO,
            out: PathBuf::new(),
        };
        assert_eq!(amount(&options(None), 400e6, 1 << 40).unwrap(), 953 << 20);
        assert_eq!(amount(&options(None), 400e6, 1200 << 20).unwrap(), 600 << 20);
        assert!(matches!(
            amount(&options(None), 400e6, 500 << 20),
            Err(LocalError::NoRoom { .. })
        ));
        assert_eq!(amount(&options(Some(5 << 20)), 400e6, 10 << 20).unwrap(), 5 << 20);
        assert!(amount(&options(Some(6 << 20)), 400e6, 10 << 20).is_err());
    }
}
