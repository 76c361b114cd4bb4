//! The records of a journal and their format.
//!
//! A record is `length: u32 | CRC-32: u32 | JSON`, little-endian. Reading ends at the first record
//! that is torn or does not match its sum. So a kill in the middle of an append loses that record
//! only.

use std::collections::BTreeSet;

use ropeway_plan::{MadeNode, Nonce, Version};
use ropeway_vfs::{RelPath, Timestamp};
use serde::{Deserialize, Serialize};

use crate::journal::token::Token;

/// Version of the format. A journal of another version is not read.
pub(super) const VERSION: u32 = 2;
/// Length of the longest record. A longer length field means damage.
const RECORD_MAX: u32 = 1 << 20;
/// The start of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) version: u32,
    pub(super) boot: String,
    pub(super) started: Timestamp,
    pub(super) nonce: u64,
    /// Whether final names are given only to what is durable.
    pub(super) names_durable: bool,
    pub(super) sources: Vec<String>,
    pub(super) target: String,
}

#[derive(Debug, Serialize, Deserialize)]
// Externally tagged: an internal tag uses a buffer that cannot hold 128-bit times.
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    Begin(Begin),
    Place {
        /// The path on the target, in bytes.
        dir: Vec<u8>,
    },
    File {
        token: Token,
        source: Version,
        durable: u64,
        target: Option<MadeNode>,
        /// Whether a backup holds what `target` replaces.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_kept: bool,
    },
    Folder {
        token: Token,
        made: MadeNode,
    },
    Written {
        token: Token,
        upto: u64,
    },
    Durable {
        before: Timestamp,
        files: Vec<(Token, u64)>,
    },
    Closed {
        token: Token,
    },
    Lost {},
    ClockStepped {},
    Links {},
}

impl Begin {
    /// Returns the start of a run of which nothing is known.
    pub(super) fn unknown(nonce: Nonce) -> Self {
        Self {
            version: VERSION,
            boot: String::new(),
            started: Timestamp(0),
            nonce: nonce.0,
            names_durable: false,
            sources: Vec::new(),
            target: String::new(),
        }
    }
}

/// Returns the places that records name, each once, in order.
pub(super) fn recorded_places(bytes: &[u8]) -> Vec<RelPath> {
    let (mut places, mut at) = (BTreeSet::new(), 0);
    while let Some((record, next)) = next_record(bytes, at) {
        if let Record::Place { dir } = record {
            places.extend(RelPath::parse(&dir));
        }
        at = next;
    }
    places.into_iter().collect()
}

pub(super) fn next_record(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let head = bytes.get(at..at + 8)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if length > RECORD_MAX {
        return None;
    }
    let end = at + 8 + length as usize;
    let json = bytes.get(at + 8..end)?;
    if crc32fast::hash(json) != sum {
        return None;
    }
    Some((serde_json::from_slice(json).ok()?, end))
}
