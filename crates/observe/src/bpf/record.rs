//! Records of our BPF programs in the ring.
//!
//! ```text
//!    0 kind   4 number   8 thread  12 process  16 start  24 end  32 result
//!   40 six arguments    88 length of what was captured first   92 of what was captured second
//!   96 position of the descriptor after the call, or -1
//!  104 what was captured
//! ```
//!
//! A length is negative if the memory could not be read, and a text's length includes its NUL.

use crate::call::{Captured, RawCall, RawEvent};

/// Bytes in front of what was captured.
pub(crate) const HEADER_BYTES: usize = 104;

/// Kinds of records.
pub(crate) const CALL: u32 = 1;
pub(crate) const ENTERED: u32 = 2;
pub(crate) const UNFINISHED: u32 = 3;
pub(crate) const FORK: u32 = 4;
pub(crate) const EXECUTE: u32 = 5;
pub(crate) const EXIT: u32 = 6;

/// Offsets of fields.
pub(crate) mod at {
    pub(crate) const KIND: i16 = 0;
    pub(crate) const NUMBER: i16 = 4;
    pub(crate) const THREAD: i16 = 8;
    pub(crate) const START: i16 = 16;
    pub(crate) const END: i16 = 24;
    pub(crate) const RESULT: i16 = 32;
    pub(crate) const ARGS: i16 = 40;
    pub(crate) const LENGTHS: i16 = 88;
    pub(crate) const POSITION: i16 = 96;
}

/// Parses a record; `None` if it is malformed.
pub(crate) fn parse(record: &[u8]) -> Option<RawEvent<'_>> {
    let (header, rest) = record.split_at_checked(HEADER_BYTES)?;
    let word = |at: i16| u32::from_ne_bytes(header[at as usize..][..4].try_into().expect("four bytes"));
    let double = |at: i16| u64::from_ne_bytes(header[at as usize..][..8].try_into().expect("eight bytes"));
    let (thread, process) = (word(at::THREAD), word(at::THREAD + 4));
    let kind = word(at::KIND);
    match kind {
        FORK => {
            return Some(RawEvent::Fork {
                parent: thread,
                parent_process: process,
                child: u32::try_from(double(at::ARGS)).ok()?,
                child_process: u32::try_from(double(at::ARGS + 8)).ok()?,
            });
        }
        EXECUTE => {
            let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
            let program = &rest[..end];
            return Some(RawEvent::Execute { process, program });
        }
        EXIT => return Some(RawEvent::Exit { thread, process }),
        CALL | ENTERED | UNFINISHED => {}
        _ => return None,
    }
    let mut captured = [Captured::Nothing; 2];
    let mut rest = rest;
    for (index, captured) in captured.iter_mut().enumerate() {
        let length = word(at::LENGTHS + 4 * index as i16).cast_signed();
        *captured = match usize::try_from(length) {
            Ok(0) => Captured::Nothing,
            Ok(length) => {
                let (bytes, others) = rest.split_at_checked(length)?;
                rest = others;
                Captured::Bytes(bytes)
            }
            Err(_) => Captured::Unreadable,
        };
    }
    let mut args = [0; 6];
    for (index, arg) in args.iter_mut().enumerate() {
        *arg = double(at::ARGS + 8 * index as i16);
    }
    let call = RawCall {
        thread,
        process,
        number: word(at::NUMBER),
        start_ns: double(at::START),
        end_ns: double(at::END),
        result: double(at::RESULT).cast_signed(),
        args,
        captured,
        position: Some(double(at::POSITION)).filter(|position| *position != u64::MAX),
    };
    Some(match kind {
        CALL => RawEvent::Call(call),
        ENTERED => RawEvent::Entered(call),
        _ => RawEvent::Unfinished(call),
    })
}
