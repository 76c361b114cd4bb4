//! The TCP connections of both ends during a run: which congestion control they used, how many there
//! were, and how much was sent again. The kernel's figures, asked of `ss` (iproute2) inside each
//! namespace, so that they hold for every client and server alike.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use crate::link::{Link, Side};
use crate::report::{SocketEnd, Sockets};

/// Time of the first look: most logins are over. A guess.
const FIRST: Duration = Duration::from_millis(400);
/// Interval of the looks: each takes 10 ms of a processor.
const INTERVAL: Duration = Duration::from_secs(1);
/// Connections of one end that are kept, against a program that opens them without end.
const KEPT_MAX: usize = 4096;

/// Looks at the connections of both ends while a client runs.
pub(super) struct SocketWatch<'a> {
    link: &'a Link,
    next: Duration,
    near: Known,
    far: Known,
}

/// Connections by their two addresses, as last seen.
type Known = BTreeMap<String, Connection>;

/// One connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Connection {
    congestion: String,
    segments: u64,
    sent_again: u64,
}

impl<'a> SocketWatch<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        Self {
            link,
            next: FIRST,
            near: Known::new(),
            far: Known::new(),
        }
    }

    /// Looks if it is time; `at` is the time since the start.
    pub(super) fn look(&mut self, at: Duration) {
        if at < self.next {
            return;
        }
        self.next = at + INTERVAL;
        for (side, known) in [(Side::Near, &mut self.near), (Side::Far, &mut self.far)] {
            let listed = self.link.run(side, || Command::new("ss").arg("-Htin").output());
            // Without `ss` there is nothing to report.
            if let Ok(Ok(output)) = listed {
                add(known, &String::from_utf8_lossy(&output.stdout));
            }
        }
    }

    /// Returns what was seen; `None` if that was nothing.
    pub(super) fn finish(self) -> Option<Sockets> {
        let sockets = Sockets {
            near: summed(&self.near),
            far: summed(&self.far),
        };
        (sockets.near.connections + sockets.far.connections > 0).then_some(sockets)
    }
}

/// Adds what `ss -Htin` printed: a line for each connection, and an indented one with its details.
fn add(known: &mut Known, text: &str) {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(details) = lines.next_if(|next| next.starts_with([' ', '\t'])) else {
            continue;
        };
        let mut words = line.split_whitespace().skip(3);
        let (Some(own), Some(other)) = (words.next(), words.next()) else {
            continue;
        };
        // A process may talk to itself.
        if own.starts_with("127.") || own.starts_with("[::1]") {
            continue;
        }
        let key = format!("{own} {other}");
        if known.len() < KEPT_MAX || known.contains_key(&key) {
            known.insert(key, parsed(details));
        }
    }
}

/// Parses the details of a connection: flags, the congestion control, then `name:value` pairs.
fn parsed(details: &str) -> Connection {
    let words: Vec<&str> = details.split_whitespace().collect();
    let pairs = words
        .iter()
        .position(|word| word.contains(':'))
        .unwrap_or(words.len());
    let value = |name: &str| {
        let found = words
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
        // `retrans:0/12` is: not acknowledged now, and all.
        let number = found.and_then(|value| value.rsplit('/').next()?.parse().ok());
        number.unwrap_or(0)
    };
    let congestion = pairs.checked_sub(1).and_then(|at| words.get(at));
    Connection {
        congestion: congestion.map_or_else(String::new, |name| (*name).to_owned()),
        segments: value("data_segs_out"),
        sent_again: value("retrans"),
    }
}

fn summed(known: &Known) -> SocketEnd {
    let mut names: Vec<&str> = known
        .values()
        .map(|connection| connection.congestion.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    names.dedup();
    SocketEnd {
        congestion: names.join(", "),
        connections: known.len() as u64,
        segments: known.values().map(|connection| connection.segments).sum(),
        sent_again: known.values().map(|connection| connection.sent_again).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: &str = "\
ESTAB 0      0      198.18.0.1:36772 198.18.0.2:4450
\t ts sack bbr wscale:9,9 rto:301 rtt:100.4/0.3 mss:1448 cwnd:99 bytes_sent:1448000 bytes_retrans:14480 segs_out:1010 \
data_segs_out:1000 data_segs_in:7 bbr:(bw:1Mbps,mrtt:100) send 1Mbps retrans:0/10 dsack_dups:1
ESTAB 0      0      198.18.0.1:36774 198.18.0.2:4450
\t cubic wscale:9,9 data_segs_out:500 retrans:2/5
ESTAB 0      0      127.0.0.1:36774 127.0.0.1:4450
\t cubic wscale:9,9 data_segs_out:500 retrans:2/5
LISTEN 0 128 0.0.0.0:4450 0.0.0.0:*
";

    #[test]
    fn what_ss_prints_is_summed() {
        let mut known = Known::new();
        add(&mut known, SEEN);
        assert_eq!(
            summed(&known),
            SocketEnd {
                congestion: "bbr, cubic".to_owned(),
                connections: 2,
                segments: 1500,
                sent_again: 15,
            }
        );
        // Seen again, a connection counts once.
        add(&mut known, SEEN);
        assert_eq!(summed(&known).connections, 2);
    }

    #[test]
    fn strange_lines_are_left_out() {
        let mut known = Known::new();
        add(
            &mut known,
            "\t\n\nESTAB\n\tx\nA 0 0 a:1 b:2\n\t\nA 0 0 a:2 b:2\n\tretrans:x/y\n",
        );
        let summed = summed(&known);
        assert_eq!((summed.congestion.as_str(), summed.segments), ("", 0));
    }
}
