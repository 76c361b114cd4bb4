//! Signs of life of workers, and what they say of themselves.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One process that works on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u64);

impl WorkerId {
    /// Parses what `Display` writes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 16 || !text.iter().all(is_digit) {
            return None;
        }
        u64::from_str_radix(std::str::from_utf8(text).ok()?, 16)
            .ok()
            .map(Self)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a worker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It has no task, and would take one.
    #[default]
    Idle,
    /// It works on a task.
    Working,
    /// It has ended, or cannot go on.
    Left,
}

/// A sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Beat {
    /// Changes with each sign.
    pub beat: u64,
    /// What the worker does.
    pub activity: Activity,
    /// Name of its machine.
    pub host: String,
    /// Process number there.
    pub process: u32,
    /// Its task, for display.
    pub task: Option<String>,
    /// Grows with everything that the worker does.
    pub progress: u64,
    /// Files that it has copied.
    pub files: u64,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// Why it left.
    pub reason: Option<String>,
}

impl Beat {
    /// Returns its bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// Parses the bytes; `None` if they are something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
