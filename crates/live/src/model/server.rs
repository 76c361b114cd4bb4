//! SMB servers and their clients.

use serde::{Deserialize, Serialize};

use super::{History, Message, Operations, Rates};
use crate::format;

/// Most sessions and open files in a snapshot. A guess: more than anybody looks at.
pub(crate) const ROWS_MAX: usize = 256;

/// An SMB server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Number in its process.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Addresses that it listens on.
    pub addresses: Vec<String>,
    /// What it shares.
    pub shares: Vec<Share>,
    /// Open connections.
    pub connections: u64,
    /// Connections since the beginning.
    pub connections_total: u64,
    /// Logins that succeeded.
    pub logins: u64,
    /// Logins that failed.
    pub logins_failed: u64,
    /// Requests since the beginning.
    pub requests: u64,
    /// Bytes that clients read.
    pub bytes_read: u64,
    /// Bytes that clients wrote.
    pub bytes_written: u64,
    /// Bytes of replies that clients have not received yet.
    pub unsent_bytes: u64,
    /// Users with a session.
    pub users: u64,
    /// Sessions.
    pub sessions_total: u64,
    /// The sessions, the busiest first; not all of them if there are very many.
    pub sessions: Vec<Session>,
    /// Open files, folders and pipes.
    pub open_total: u64,
    /// The open files and folders; not all of them if there are very many.
    pub open_files: Vec<OpenFile>,
    /// Requests by kind.
    pub operations: Operations,
    /// How long requests took.
    pub latency: Latency,
    /// The last messages.
    pub messages: Vec<Message>,
    /// Rates of the last seconds.
    pub rates: Rates,
    /// The last five minutes.
    pub history: History,
}

/// A shared folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// Whether only encrypted requests are accepted.
    pub encrypt: bool,
    /// Whether it is on a far server.
    pub far: bool,
    /// Sessions that are connected to it.
    pub sessions: u64,
}

impl Share {
    /// Returns what is special about it, in words.
    pub fn marks(&self) -> Vec<&'static str> {
        let marks = [
            (self.read_only, "read-only"),
            (self.encrypt, "encrypted"),
            (self.far, "far"),
        ];
        let marks = marks.into_iter().filter(|(is, _)| *is);
        marks.map(|(_, mark)| mark).collect()
    }
}

/// The session of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// Its number, hexadecimal, for `close_session`.
    pub id: String,
    /// The user; empty for an anonymous one.
    pub user: String,
    /// Addresses of the client, one for each connection.
    pub clients: Vec<String>,
    /// Dialect, such as `3.1.1`.
    pub dialect: String,
    /// Algorithm of the signatures.
    pub signing: String,
    /// Whether requests must be signed.
    pub signing_required: bool,
    /// The cipher; empty if the client cannot encrypt.
    pub cipher: String,
    /// Whether everything is encrypted.
    pub encrypted: bool,
    /// Whether it is a guest's.
    pub guest: bool,
    /// Seconds since the login.
    pub seconds: u64,
    /// Seconds since the last request.
    pub idle_seconds: u64,
    /// Names of the shares that it is connected to.
    pub shares: Vec<String>,
    /// Open files, folders and pipes.
    pub open: u64,
    /// Locked ranges.
    pub locks: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Requests by kind.
    pub operations: Operations,
}

impl Session {
    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        let counts = self.operations.values().map(|operation| operation.count);
        counts.fold(0, u64::saturating_add)
    }

    /// Returns the user in words: `ann`, `ann (guest)` or `anonymous`.
    pub fn user_shown(&self) -> String {
        match (self.user.is_empty(), self.guest) {
            (true, _) => "anonymous".to_owned(),
            (false, true) => format!("{} (guest)", self.user),
            (false, false) => self.user.clone(),
        }
    }

    /// Returns the first address of the client, and the number of the others: `192.0.2.1:5 +2`.
    pub fn client_shown(&self) -> String {
        let first = self.clients.first().map_or("?", String::as_str);
        match self.clients.len() {
            0 | 1 => first.to_owned(),
            count => format!("{first} +{}", count - 1),
        }
    }

    /// Returns how requests are protected: `sealed AES-128-GCM`, `signed AES-GMAC` or `none required`.
    pub fn protection(&self) -> String {
        match (self.encrypted, self.signing_required) {
            (true, _) => format!("sealed {}", self.cipher),
            (false, true) => format!("signed {}", self.signing),
            (false, false) => "none required".to_owned(),
        }
    }

    /// Returns the time since the last request: whole seconds below a minute.
    pub fn idle_shown(&self) -> String {
        match self.idle_seconds {
            seconds @ 0..60 => format!("{seconds}s"),
            seconds => format::seconds(seconds as f64),
        }
    }
}

/// A file or folder that a client has open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenFile {
    /// Number of the session, hexadecimal.
    pub session: String,
    /// The share.
    pub share: String,
    /// Path in it.
    pub path: String,
    /// Whether it is a folder.
    pub folder: bool,
    /// Whether it is open for reading.
    pub reads: bool,
    /// Whether it is open for writing.
    pub writes: bool,
    /// Locked ranges.
    pub locks: u64,
    /// Whether it outlives the loss of its connection.
    pub durable: bool,
}

impl OpenFile {
    /// Returns the path in its share; that of a folder ends with a slash.
    pub fn path_shown(&self) -> String {
        let slash = if self.folder { "/" } else { "" };
        format!("{}{slash}", self.path)
    }
}

/// How long requests took, without the wait for other clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Requests that took up to 2^n microseconds and more than half of it, by n. The last one has all
    /// slower ones.
    pub buckets: Vec<u64>,
    /// Seconds of all requests together.
    pub seconds: f64,
}

impl Latency {
    /// Returns a bound in seconds that this share of the requests kept; `None` without requests.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let total = self
            .buckets
            .iter()
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
        let wanted = total as f64 * share;
        let mut sum = 0.0;
        for (power, count) in self.buckets.iter().enumerate() {
            sum += *count as f64;
            if total > 0 && sum >= wanted {
                return Some(2_f64.powi(i32::try_from(power).unwrap_or(i32::MAX).min(64)) / 1e6);
            }
        }
        None
    }
}

impl Server {
    /// Keeps only as many rows as a snapshot may have.
    pub fn bound(&mut self) {
        self.sessions.truncate(ROWS_MAX);
        self.open_files.truncate(ROWS_MAX);
        self.shares.truncate(ROWS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds() {
        let latency = Latency {
            buckets: vec![0, 0, 90, 9, 0, 1],
            seconds: 0.0,
        };
        assert_eq!(latency.quantile(0.5), Some(4e-6));
        assert_eq!(latency.quantile(0.99), Some(8e-6));
        assert_eq!(latency.quantile(1.0), Some(32e-6));
        assert_eq!(Latency::default().quantile(0.5), None);
        let odd = Latency {
            buckets: vec![u64::MAX; 200],
            seconds: f64::MAX,
        };
        assert!(odd.quantile(0.5).is_some());
    }
}
