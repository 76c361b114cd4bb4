//! Asks for a password on the terminal, without echo.
//!
//! Signals are off while it is typed, so that an interrupted prompt never leaves a terminal without echo: Ctrl-C ends the
//! line like Enter does (as a second end-of-line character of termios(3)), and is found at its end.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;

use ropeway_smb_client::Password;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::failure::{Failure, code};

/// Ctrl-C.
const INTERRUPT: u8 = 3;
/// Longest line that a terminal gives (`N_TTY_BUF_SIZE`). Bytes.
const LINE_BYTES_MAX: usize = 4096;

/// Asks; `None` if there is no terminal, or people would not see the question.
pub(crate) fn ask(question: &str) -> Result<Option<Password>, Failure> {
    if !io::stderr().is_terminal() {
        return Ok(None);
    }
    let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
        return Ok(None);
    };
    super::keep_private();
    let fault = |error: io::Error| {
        Failure::new(code::PERMISSION, format!("cannot ask for the password: {error}"))
            .hint("set ROPEWAY_PASSWORD, or give --credentials FILE")
    };
    let typed = Quiet::new(&terminal)
        .and_then(|quiet| {
            (&terminal).write_all(question.as_bytes())?;
            let line = read_line(&mut &terminal);
            drop(quiet);
            (&terminal).write_all(b"\n")?;
            line
        })
        .map_err(fault)?;
    match typed {
        Typed::Line(password) => Ok(Some(password)),
        Typed::Interrupted => Err(Failure::new(
            code::INTERRUPTED,
            "interrupted at the password; nothing was touched",
        )),
        Typed::NotUtf8 => Err(Failure::new(code::PERMISSION, "the password is not UTF-8")
            .hint("use a UTF-8 locale on the terminal")),
    }
}

enum Typed {
    Line(Password),
    Interrupted,
    NotUtf8,
}

fn read_line(terminal: &mut impl Read) -> io::Result<Typed> {
    // Never grows, so no copy of it is left behind; wiped however it ends.
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_BYTES_MAX));
    let mut byte = Zeroizing::new([0]);
    while line.len() < LINE_BYTES_MAX && terminal.read(&mut *byte)? == 1 {
        match byte[0] {
            INTERRUPT => return Ok(Typed::Interrupted),
            b'\n' => break,
            other => line.push(other),
        }
    }
    Ok(match std::str::from_utf8(&line) {
        Ok(text) => Typed::Line(Password::from(text)),
        Err(_) => Typed::NotUtf8,
    })
}

/// A terminal without echo; as it was when dropped.
struct Quiet<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn new(terminal: &'a File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        quiet.local_modes.insert(LocalModes::ICANON);
        quiet.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(terminal.as_fd(), OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // A terminal that has gone needs no echo.
        _ = tcsetattr(self.terminal.as_fd(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_enter_or_ctrl_c() {
        let read = |bytes: &[u8]| read_line(&mut &bytes[..]).unwrap();
        assert!(matches!(read(b"a b\nrest"), Typed::Line(password) if password.expose() == "a b"));
        assert!(matches!(read(b"end"), Typed::Line(password) if password.expose() == "end"));
        assert!(matches!(read(b"half\x03"), Typed::Interrupted));
        assert!(matches!(read(b"\xff\n"), Typed::NotUtf8));
    }
}
