//! Plain output. A closed standard output or stderr never causes a panic.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Writes text to standard output.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes a line to standard output.
pub(crate) fn print_line(text: &str) {
    print(&format!("{text}\n"));
}

/// Writes a line to stderr.
pub(crate) fn print_stderr(text: &str) {
    _ = writeln!(io::stderr().lock(), "{text}");
}

/// Reports why a command failed: on stderr, or with `json` as one JSON line on standard output.
pub(crate) fn report_failure(failure: &Failure, json: bool) {
    if json {
        let line = serde_json::json!({
            "type": "error",
            "version": env!("CARGO_PKG_VERSION"),
            "message": failure.message,
            "hint": failure.hint,
            "exit_code": failure.code,
        });
        print_line(&line.to_string());
        return;
    }
    print_stderr(&format!("{} {}", error_mark(), failure.message));
    if let Some(hint) = &failure.hint {
        print_stderr(&format!("  hint: {hint}"));
    }
}

/// Returns `error:`, in red on a terminal.
pub(crate) fn error_mark() -> String {
    paint(Color::Red, "error:", io::stderr().is_terminal())
}

/// Colours for marks.
#[derive(Clone, Copy)]
pub(crate) enum Color {
    /// Failure.
    Red,
    /// Success.
    Green,
    /// Partial success.
    Yellow,
}

/// Returns the text in a colour if it goes to a terminal and `NO_COLOR` is unset or empty
/// (no-color.org).
pub(crate) fn paint(color: Color, text: &str, terminal: bool) -> String {
    if !terminal || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return text.to_owned();
    }
    let number = match color {
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
    };
    format!("\x1b[{number}m{text}\x1b[0m")
}
