//! The two lines at the bottom of a terminal.
//!
//! Only where stderr is a terminal, and only after a second: short jobs leave no trace of it. Everything else that is
//! said while it is shown goes above it.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::messages;

/// Redraws a second: enough to look alive.
const DRAWS_PER_S: u8 = 10;

/// The bar; drawn once it is first given lines.
pub(super) struct Bar {
    wanted: bool,
    drawn: Mutex<Option<Drawn>>,
}

struct Drawn {
    all: MultiProgress,
    lines: [ProgressBar; 2],
}

impl Bar {
    /// A bar that may be drawn if stderr is a terminal.
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted: wanted && std::io::stderr().is_terminal(),
            drawn: Mutex::default(),
        }
    }

    /// Whether it may be drawn.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Draws both lines.
    pub(super) fn show(&self, lines: [String; 2]) {
        if !self.wanted {
            return;
        }
        let mut drawn = self.lock();
        let drawn = drawn.get_or_insert_with(Drawn::new);
        for (bar, line) in drawn.lines.iter().zip(lines) {
            bar.set_message(line);
        }
    }

    /// Writes a line on stderr, above the bar.
    pub(super) fn say(&self, text: &str) {
        match &*self.lock() {
            // A terminal that has gone away is no reason to stop.
            Some(drawn) => _ = drawn.all.println(text),
            None => messages::complain(text),
        }
    }

    /// Takes the lines away.
    pub(super) fn clear(&self) {
        if let Some(drawn) = self.lock().take() {
            for line in &drawn.lines {
                line.finish_and_clear();
            }
            _ = drawn.all.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Drawn>> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drawn {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S));
        // Cannot fail: the template is a constant; the fallback looks much the same.
        let style =
            ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let lines = [(), ()].map(|()| all.add(ProgressBar::new_spinner().with_style(style.clone())));
        Self { all, lines }
    }
}
