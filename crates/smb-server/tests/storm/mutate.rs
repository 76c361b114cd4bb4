//! Random changes of messages: fields, bytes, lengths.

use ropeway_smb_wire::header::HEADER_LEN;

use crate::chance::Random;
use crate::values;

/// Overwrites an aligned field of 1, 2, 4 or 8 bytes after offset `from`.
pub(crate) fn field(random: &mut Random, message: &mut [u8], from: usize) {
    let width = 1 << random.below(4);
    let Some(room) = message.len().checked_sub(from + width) else {
        return;
    };
    // Fields are aligned, and most of them are near the beginning.
    let reach = if random.percent(70) { room.min(56) } else { room };
    let at = from + random.below(reach / width + 1) * width;
    let value = match random.below(4) {
        0 => {
            let mut old = [0; 8];
            old[..width].copy_from_slice(&message[at..at + width]);
            let step = random.below(17) as u64;
            u64::from_le_bytes(old).wrapping_add(step).wrapping_sub(8)
        }
        1 => (message.len() + random.below(9)) as u64 - 4,
        _ => values::edge(random),
    };
    message[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Changes bytes or the length of what follows the header.
pub(crate) fn bytes(random: &mut Random, message: &mut Vec<u8>, from: usize) {
    let length = message.len().saturating_sub(from);
    match random.below(6) {
        0 if length > 0 => message.truncate(from + random.below(length)),
        1 => {
            let more = random.below(40);
            message.extend(values::bytes(random, more));
        }
        2 if length > 0 => {
            let at = from + random.below(length);
            let more = 1 + random.below(8);
            let new = values::bytes(random, more);
            message.splice(at..at, new);
        }
        3 if length > 1 => {
            let at = from + random.below(length);
            let end = (at + 1 + random.below(8)).min(message.len());
            message.drain(at..end);
        }
        4 if length > 0 => {
            let at = from + random.below(length);
            let end = (at + 1 + random.below(32)).min(message.len());
            let fill = if random.percent(50) { 0xFF } else { 0 };
            message[at..end].fill(fill);
        }
        _ => {
            for _ in 0..=random.below(4) {
                if length > 0 {
                    message[from + random.below(length)] = random.next() as u8;
                }
            }
        }
    }
}

/// How a message was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    None,
    Body,
    Header,
}

/// Changes a message after its header, rarely in the header; or not at all.
pub(crate) fn message(random: &mut Random, message: &mut Vec<u8>, header_percent: usize) -> Mutation {
    match random.below(100) {
        0..35 => Mutation::None,
        35..70 => {
            for _ in 0..=random.below(3) {
                field(random, message, HEADER_LEN);
            }
            Mutation::Body
        }
        share if share >= 100 - header_percent => {
            // Neither the protocol id nor the signature, which is written later.
            let mut head = message[4..48].to_vec();
            field(random, &mut head, 0);
            message[4..48].copy_from_slice(&head);
            Mutation::Header
        }
        _ => {
            bytes(random, message, HEADER_LEN);
            Mutation::Body
        }
    }
}
