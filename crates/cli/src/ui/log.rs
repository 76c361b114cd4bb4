//! The log of `--log FILE`: one line per event, appended.
//!
//! A line has local time, event and details: `2026-01-31T12:00:00.123+01:00 copy 4096
//! photos/a.jpg`. Control characters in names are replaced, so an event is always one line.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use parking_lot::Mutex;
use ropeway_copy::{Outcome, private_options};
use ropeway_vfs::event::Event;

use super::lines;

/// An open log.
pub(super) struct Log(Mutex<BufWriter<File>>);

impl Log {
    /// Opens the file for appending.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = private_options().create(true).append(true).open(path)?;
        let log = Self(Mutex::new(BufWriter::new(file)));
        let command: Vec<String> = std::env::args_os()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        log.line("begin", &command.join(" "));
        Ok(log)
    }

    /// Writes a line for an event.
    pub(super) fn event(&self, event: &Event) {
        match event {
            Event::Phase { phase } => self.line("phase", lines::phase_name(*phase)),
            Event::ItemError { message, .. } => {
                self.line("error", message);
                self.flush();
            }
            Event::Note {
                path: Some(path),
                message,
            } => self.line("note", &format!("{path}: {message}")),
            Event::Note { path: None, message } => self.line("note", message),
            Event::Item {
                path, action, bytes, ..
            } => self.line(action, &format!("{bytes} {path}")),
            _ => {}
        }
    }

    /// Writes the last line of a job.
    pub(super) fn finish(&self, outcome: &Outcome) {
        let counters = &outcome.summary.counters;
        let mut text = format!(
            "exit {}, {} files, {} bytes, {} sent, {} durable, {} errors, perceived {:.3} s",
            outcome.status.exit_code(),
            counters.files_done,
            counters.bytes_done,
            counters.bytes_sent,
            counters.bytes_durable,
            outcome.summary.errors,
            outcome.summary.perceived.as_secs_f64(),
        );
        if let Some(durable) = outcome.summary.durable {
            text.push_str(&format!(", durable {:.3} s", durable.as_secs_f64()));
        }
        if let Some(fatal) = &outcome.fatal {
            text.push_str(&format!("; {fatal}"));
        }
        self.line("end", &text);
        self.flush();
    }

    /// Flushes the buffer to the file.
    pub(super) fn flush(&self) {
        _ = self.0.lock().flush();
    }

    fn line(&self, what: &str, text: &str) {
        let now = jiff::Zoned::now()
            .strftime("%Y-%m-%dT%H:%M:%S%.3f%:z")
            .to_string();
        let text: String = text
            .chars()
            .map(|c| {
                if c.is_control() || ropeway_vfs::path::reorders(c) {
                    ' '
                } else {
                    c
                }
            })
            .collect();
        // A full disk must not end the copy; the log then lacks lines.
        _ = writeln!(self.0.lock(), "{now} {what} {text}");
    }
}
