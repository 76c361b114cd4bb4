//! TCP connections as the kernel sees them: round trip, losses and congestion control, and the choice
//! of a congestion control that suits the line.
//!
//! Loss-based congestion control (cubic, the default of most machines, and reno) takes every lost
//! segment for a full queue. At a round trip of 100 ms and 1 % of random loss a connection is left
//! with 3.6 Mbit/s, whatever the line carries. BBR measures the line instead and fills it. So both
//! ends of Ropeway ask for BBR on a long line, each for what it sends, where the kernel allows it.
//!
//! Linux allows it to a process with CAP_NET_ADMIN, and to all others if the name is in
//! `net.ipv4.tcp_allowed_congestion_control`, which also has the system's own choice (tcp(7)).

mod info;
mod low_water;
mod sys;

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

pub use info::{Info, LOSSY};
pub use low_water::LowWater;

/// A line with this round trip or more is long: BBR is asked for. Shorter ones recover from a loss
/// before it shows. A guess; the client's window uses the same value.
pub const LONG_ROUND_TRIP: Duration = Duration::from_millis(10);

/// The congestion control that suits a long line.
const BBR: &str = "bbr";

/// Longest name of a congestion control (`TCP_CA_NAME_MAX`, with its zero byte 16).
const NAME_MAX: usize = 15;

/// Which congestion control a connection uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// BBR on a line of [`LONG_ROUND_TRIP`] or more, if the kernel allows it; else the system's own.
    #[default]
    ByLine,
    /// The system's own.
    System,
    /// This one, by the kernel's name; a connection fails without it.
    Named(String),
}

impl Congestion {
    /// Sets a named congestion control. Call it before the handshake.
    ///
    /// # Errors
    /// The kernel does not know the name, or does not allow it.
    pub fn prepare(&self, socket: impl AsFd) -> io::Result<()> {
        match self {
            Self::Named(name) => sockopt::set_tcp_congestion(socket, name).map_err(Into::into),
            Self::ByLine | Self::System => Ok(()),
        }
    }

    /// Checks that the kernel knows and allows a named congestion control.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self) -> io::Result<()> {
        if let Self::Named(_) = self {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
            self.prepare(&socket)?;
        }
        Ok(())
    }

    /// Asks for BBR if the choice depends on the line, and this one is long. Call it after the
    /// handshake, which has measured the round trip.
    pub fn suit(&self, socket: impl AsFd) -> Outcome {
        if *self != Self::ByLine {
            return Outcome::Unchanged;
        }
        let is_long = Info::of(&socket).is_ok_and(|info| info.round_trip >= LONG_ROUND_TRIP);
        let own = sockopt::tcp_congestion(&socket);
        if !is_long || own.is_ok_and(|own| own.starts_with(BBR)) {
            return Outcome::Unchanged;
        }
        match sockopt::set_tcp_congestion(&socket, BBR) {
            Ok(()) => Outcome::Bbr,
            Err(Errno::PERM) => Outcome::NotAllowed,
            Err(_) => Outcome::NotThere,
        }
    }
}

/// What became of the wish for BBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was to be changed.
    Unchanged,
    /// The connection uses BBR now.
    Bbr,
    /// The kernel has BBR and does not allow it to this process.
    NotAllowed,
    /// The kernel has no BBR, or its module is not loaded.
    NotThere,
}

impl FromStr for Congestion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        match text {
            "auto" => Ok(Self::ByLine),
            "system" => Ok(Self::System),
            _ if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_name) => {
                Ok(Self::Named(text.to_owned()))
            }
            _ => Err(format!(
                "{text:?} is not auto, system or a congestion control such as bbr or cubic"
            )),
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByLine => f.write_str("auto"),
            Self::System => f.write_str("system"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// Returns the commands that allow BBR to all processes of this machine, for a hint; `None` if it is
/// allowed already. The setting names everything that is allowed, so what is allowed now is kept.
pub fn how_to_allow_bbr() -> Option<String> {
    let setting = "net.ipv4.tcp_allowed_congestion_control";
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let allowed = allowed.unwrap_or_else(|_| "reno cubic".to_owned());
    if allowed.split_whitespace().any(|name| name == BBR) {
        return None;
    }
    let load = match known.is_ok_and(|known| known.split_whitespace().any(|name| name == BBR)) {
        true => "",
        false => "modprobe tcp_bbr; ",
    };
    Some(format!("{load}sysctl {setting}=\"{} {BBR}\"", allowed.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_short_line_keeps_the_systems_own() {
        let (near, _far) = connected();
        let own = sockopt::tcp_congestion(&near).unwrap();
        assert_eq!(Congestion::ByLine.suit(&near), Outcome::Unchanged);
        assert_eq!(sockopt::tcp_congestion(&near).unwrap(), own);
    }

    #[test]
    fn a_name_is_set_or_refused() {
        let (near, _far) = connected();
        Congestion::Named("reno".to_owned()).prepare(&near).unwrap();
        assert_eq!(sockopt::tcp_congestion(&near).unwrap(), "reno");
        let missing = Congestion::Named("nosuch".to_owned());
        assert!(missing.prepare(&near).is_err() && missing.check().is_err());
        assert!(Congestion::System.check().is_ok());
        assert_eq!(
            Congestion::Named("reno".to_owned()).suit(&near),
            Outcome::Unchanged
        );
    }

    #[test]
    fn choices_are_parsed() {
        for text in ["auto", "system", "bbr", "cubic"] {
            assert_eq!(text.parse::<Congestion>().unwrap().to_string(), text);
        }
        for wrong in ["", "a b", "sixteen-letters-x", "x;y"] {
            assert!(wrong.parse::<Congestion>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_hint_is_a_command() {
        // Where BBR is allowed there is none.
        let hint = how_to_allow_bbr()
            .unwrap_or_else(|| "sysctl net.ipv4.tcp_allowed_congestion_control=\"bbr\"".to_owned());
        assert!(
            hint.contains("sysctl net.ipv4.tcp_allowed_congestion_control=\""),
            "{hint}"
        );
        assert!(hint.ends_with("bbr\""), "{hint}");
    }
}
