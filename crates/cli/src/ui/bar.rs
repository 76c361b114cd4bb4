//! The progress bar: two lines at the bottom of a terminal.
//!
//! It appears only if stderr is a terminal, and only after a second, so short jobs never show it.
//! Other messages are printed above it.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use super::messages;

/// Redraws per second: enough to look alive.
const DRAWS_PER_S: u8 = 10;

/// Columns of a terminal that does not tell how many it has.
const COLUMNS: usize = 80;

/// The progress bar; it is drawn once it has lines.
pub(crate) struct Bar {
    wanted: bool,
    drawn: Mutex<Option<Drawn>>,
}

struct Drawn {
    all: MultiProgress,
    lines: [ProgressBar; 2],
}

impl Bar {
    /// Makes a bar, which is drawn only if stderr is a terminal.
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            wanted: wanted && std::io::stderr().is_terminal(),
            drawn: Mutex::default(),
        }
    }

    /// Returns whether the bar may be drawn.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Draws both lines; `lines` makes them for a number of columns. In the background nothing is
    /// drawn: the terminal belongs to others.
    pub(crate) fn show(&self, lines: impl FnOnce(usize) -> [String; 2]) {
        if !self.wanted {
            return;
        }
        if !is_foreground() {
            self.leave();
            return;
        }
        let lines = lines(columns());
        let mut drawn = self.drawn.lock();
        let drawn = drawn.get_or_insert_with(Drawn::new);
        for (bar, line) in drawn.lines.iter().zip(lines) {
            bar.set_message(line);
        }
    }

    /// Leaves what is drawn where it is; the next one is drawn below.
    pub(crate) fn leave(&self) {
        if let Some(drawn) = self.drawn.lock().take() {
            // Whatever it does from here on is not seen.
            drawn.all.set_draw_target(ProgressDrawTarget::hidden());
        }
    }

    /// Prints a line on stderr, above the bar.
    pub(crate) fn say(&self, text: &str) {
        match &*self.drawn.lock() {
            // A terminal that was closed must not end the job.
            Some(drawn) => _ = drawn.all.println(text),
            None => messages::print_stderr(text),
        }
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        if let Some(drawn) = self.drawn.lock().take() {
            for line in &drawn.lines {
                line.finish_and_clear();
            }
            _ = drawn.all.clear();
        }
    }
}

/// Whether this process may draw: it is in the foreground of the terminal, or that is not its own one.
fn is_foreground() -> bool {
    let foreground = rustix::termios::tcgetpgrp(std::io::stderr());
    foreground.is_err() || foreground.ok() == Some(rustix::process::getpgrp())
}

/// Returns the width of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    match columns {
        // A terminal that does not tell.
        0 => COLUMNS,
        columns => columns,
    }
}

impl Drawn {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S));
        // Cannot fail, because the template is a constant; the fallback looks much the same.
        let style =
            ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let lines = [(), ()].map(|()| all.add(ProgressBar::new_spinner().with_style(style.clone())));
        Self { all, lines }
    }
}
