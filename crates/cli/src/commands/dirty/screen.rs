//! Lines that are redrawn in place on a terminal.

use rustix::termios::tcgetwinsize;

use crate::ui::messages::print;

/// Width without a terminal, in columns.
const WIDTH: usize = 80;

/// Returns the width for text, in columns.
pub(super) fn width() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some((usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// What was drawn last.
#[derive(Default)]
pub(super) struct Screen {
    drawn: usize,
}

impl Screen {
    /// Draws lines over those that were drawn before. What the terminal has no room for is left out, so
    /// that nothing scrolls.
    pub(super) fn draw(&mut self, lines: &[String]) {
        let (columns, rows) = size().unwrap_or((WIDTH, 24));
        let text = self.text(lines, columns, rows.max(2));
        print(&text);
    }

    /// Cursor movements of ECMA-48: up, erase to the end of the line, erase below.
    fn text(&mut self, lines: &[String], columns: usize, rows: usize) -> String {
        let shown = &lines[..lines.len().min(rows - 1)];
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A\r", self.drawn));
        }
        for line in shown {
            text.extend(line.chars().take(columns));
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.drawn = shown.len();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_picture_covers_the_first_and_never_scrolls() {
        let mut screen = Screen::default();
        let lines = |count: usize| vec!["0123456789".to_owned(); count];
        assert_eq!(screen.text(&lines(2), 4, 24), "0123\x1b[K\n0123\x1b[K\n\x1b[J");
        let second = screen.text(&lines(30), 80, 24);
        assert!(second.starts_with("\x1b[2A\r"));
        assert_eq!(second.matches('\n').count(), 23);
        assert!(screen.text(&lines(1), 80, 24).starts_with("\x1b[23A\r"));
    }
}
