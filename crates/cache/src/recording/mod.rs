//! Recordings: what programs asked of the files of a mount, as text (docs/recording.md). Pure.
//!
//! A recording is a sequence of sessions. Each begins with a line that says what was mounted; then
//! there is one line for each open and each read. Fields are separated by tabs. A recording whose
//! writer was killed can be read up to its last whole line.

mod line;
mod reader;

pub use line::{MAGIC, Open, Read, Record, Session, VERSION};
pub use reader::{LINE_BYTES_MAX, Reader, RecordingError};
