//! What the mount says: in the foreground on the terminal, in the background to the system's log,
//! and to systemd.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use crate::ui::messages;

/// Socket of the system's log (syslog(3)).
const LOG: &str = "/dev/log";

/// Facility "daemon", severity "info" (RFC 5424, 6.2.1).
const PRIORITY: u8 = 3 * 8 + 6;

/// Says what happens.
#[derive(Clone, Copy)]
pub(super) struct Reporter {
    pub(super) foreground: bool,
}

impl Reporter {
    /// Says a line.
    pub(super) fn say(self, line: &str) {
        match self.foreground {
            true => messages::print_line(line),
            false => log(line),
        }
    }
}

/// Writes a line to the system's log, if there is one.
fn log(line: &str) {
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    let message = format!("<{PRIORITY}>ropeway[{}]: {line}", std::process::id());
    let _ = socket.set_nonblocking(true);
    let _ = socket.send_to(message.as_bytes(), LOG);
}

/// Tells systemd a state (sd_notify(3)), if it waits for one.
pub(super) fn notify(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let Ok(socket) = UnixDatagram::unbound() else {
        return;
    };
    let _ = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)
            .and_then(|address| socket.send_to_addr(state.as_bytes(), &address)),
        None => socket.send_to(state.as_bytes(), Path::new(&address)),
    };
}
