//! Asks for a password on the terminal, without echo.
//!
//! Signals are off while the user types, so an interrupted prompt never leaves the terminal without
//! echo. Ctrl-C ends the line as Enter does (it is the second end-of-line character of termios(3)),
//! and the last byte then tells them apart.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;

use ropeway_smb_client::Password;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::failure::{Failure, code};

/// The byte that Ctrl-C sends.
const INTERRUPT: u8 = 3;
/// Maximum length in bytes of a line from a terminal (`N_TTY_BUF_SIZE`).
const LINE_BYTES_MAX: usize = 4096;

/// Asks for a password; `None` if there is no terminal, or stderr is redirected.
pub(crate) fn ask(question: &str) -> Result<Option<Password>, Failure> {
    if !io::stderr().is_terminal() {
        return Ok(None);
    }
    let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
        return Ok(None);
    };
    super::protect_memory();
    let fault = |error: io::Error| {
        Failure::new(code::PERMISSION, format!("cannot ask for the password: {error}"))
            .hint("set ROPEWAY_PASSWORD, or give --credentials FILE")
    };
    let typed = EchoOff::new(&terminal)
        .and_then(|echo_off| {
            (&terminal).write_all(question.as_bytes())?;
            let line = read_line(&mut &terminal);
            drop(echo_off);
            (&terminal).write_all(b"\n")?;
            line
        })
        .map_err(fault)?;
    match typed {
        Typed::Line(password) => Ok(Some(password)),
        Typed::Interrupted => Err(Failure::new(
            code::INTERRUPTED,
            "interrupted at the password prompt; nothing was changed",
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
    // The buffer never grows, so no copy of it is left behind. It is wiped when dropped.
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

/// A terminal without echo; its settings are restored on drop.
struct EchoOff<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> EchoOff<'a> {
    fn new(terminal: &'a File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut echo_off = before.clone();
        echo_off.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        echo_off.local_modes.insert(LocalModes::ICANON);
        echo_off.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(terminal.as_fd(), OptionalActions::Flush, &echo_off)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for EchoOff<'_> {
    fn drop(&mut self) {
        // A terminal that was closed needs no echo.
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
