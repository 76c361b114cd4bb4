//! Hostile responses: a server whose responses are changed before they are signed, compressed and
//! encrypted.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_smb_server::fuzzing::reply_mutator::{Outgoing, ReplyMutator};
use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::error::ErrorResponse;
use ropeway_smb_wire::frame::FRAME_HEADER_LEN;
use ropeway_smb_wire::header::{
    CREDITS_OFFSET, Command, FLAGS_OFFSET, HEADER_LEN, Header, HeaderFlags, NEXT_COMMAND_OFFSET,
    STATUS_OFFSET, Target,
};
use ropeway_smb_wire::oplock_break::{BreakNotification, OplockBreak};
use ropeway_smb_wire::{AsyncId, FileId, MessageId, NtStatus, Reader, Writer};

use crate::chance::Random;
use crate::mutate;
use crate::values;

/// Statuses that clients handle specially.
const STATUSES: [NtStatus; 16] = [
    NtStatus::SUCCESS,
    NtStatus::NO_MORE_FILES,
    NtStatus::BUFFER_OVERFLOW,
    NtStatus::STOPPED_ON_SYMLINK,
    NtStatus::SHARING_VIOLATION,
    NtStatus::ACCESS_DENIED,
    NtStatus::OBJECT_NAME_NOT_FOUND,
    NtStatus::OBJECT_NAME_COLLISION,
    NtStatus::DIRECTORY_NOT_EMPTY,
    NtStatus::FILE_CLOSED,
    NtStatus::NETWORK_NAME_DELETED,
    NtStatus::USER_SESSION_DELETED,
    NtStatus::INSUFFICIENT_RESOURCES,
    NtStatus::END_OF_FILE,
    NtStatus::PATH_NOT_COVERED,
    NtStatus::INVALID_PARAMETER,
];
/// Maximum number of withheld frames in a session. For each the client waits until its timeout.
const SILENT_MAX: u64 = 4;

/// How often responses are changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MutationRates {
    /// Percentage of frames that are changed before protection.
    pub(crate) mutation_percent: usize,
    /// Of 10,000 frames, how many are changed after protection. Without other changes, only signed
    /// bodies are.
    pub(crate) damage_per_10000: usize,
    /// Whether responses to NEGOTIATE, SESSION_SETUP and TREE_CONNECT are changed too.
    pub(crate) from_start: bool,
}

struct State {
    random: Random,
    /// The last unchanged body of each command.
    bodies: HashMap<Command, Vec<u8>>,
    silent: u64,
    /// Whether a signed body was changed.
    has_forged: bool,
}

/// Changes responses and counts the changes.
pub(crate) struct StormMutator {
    rates: MutationRates,
    state: Mutex<State>,
    /// Frames with a response, protected as negotiated.
    pub(crate) responses: AtomicU64,
    /// Changed ones of them.
    pub(crate) changed: AtomicU64,
    /// Frames that were changed after protection.
    pub(crate) damaged: AtomicU64,
}

impl StormMutator {
    pub(crate) fn new(rates: MutationRates, random: Random) -> Self {
        let state = State {
            random,
            bodies: HashMap::new(),
            silent: 0,
            has_forged: false,
        };
        Self {
            rates,
            state: Mutex::new(state),
            responses: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        }
    }

    /// Whether a signature was made wrong.
    pub(crate) fn has_forged(&self) -> bool {
        self.state.lock().has_forged
    }
}

fn header_of(message: &[u8]) -> Option<Header> {
    Header::decode(&mut Reader::new(message, "header")).ok()
}

fn is_login(message: &[u8]) -> bool {
    let command = header_of(message).map(|header| header.command);
    matches!(
        command,
        Some(Command::Negotiate | Command::SessionSetup | Command::TreeConnect)
    )
}

fn message(header: &Header, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    header.encode(&mut Writer::new(&mut out));
    body(&mut Writer::within(&mut out, 0));
    out
}

impl ReplyMutator for StormMutator {
    fn mutate_replies(&self, mut replies: Vec<Outgoing>) -> Vec<Vec<Outgoing>> {
        for (message, _) in &mut replies {
            message[NEXT_COMMAND_OFFSET..][..4].fill(0);
        }
        let mut state = self.state.lock();
        let login = replies.iter().any(|(message, _)| is_login(message));
        self.responses.fetch_add(u64::from(!login), Ordering::Relaxed);
        let mutates = state.random.percent(self.rates.mutation_percent);
        if !mutates || (login && !self.rates.from_start) {
            for (message, _) in &replies {
                if let Some(header) = header_of(message)
                    && header.status == NtStatus::SUCCESS
                {
                    state
                        .bodies
                        .insert(header.command, message[HEADER_LEN..].to_vec());
                }
            }
            return vec![replies];
        }
        self.changed.fetch_add(u64::from(!login), Ordering::Relaxed);
        state.mutate(replies)
    }

    fn mutate_frame(&self, frame: &mut Vec<u8>) {
        let mut state = self.state.lock();
        let State {
            random, has_forged, ..
        } = &mut *state;
        let body = FRAME_HEADER_LEN + HEADER_LEN;
        if random.below(10_000) >= self.rates.damage_per_10000 || frame.len() <= body + 1 {
            return;
        }
        let is_plain = frame[FRAME_HEADER_LEN..].starts_with(b"\xFESMB");
        let is_signed = frame[FRAME_HEADER_LEN + FLAGS_OFFSET] & HeaderFlags::SIGNED.bits() as u8 != 0;
        let is_alone = frame[FRAME_HEADER_LEN + NEXT_COMMAND_OFFSET..][..4] == [0; 4];
        let header = header_of(&frame[FRAME_HEADER_LEN..]);
        let is_final = header.is_some_and(|header| {
            header.status == NtStatus::SUCCESS && header.message_id != MessageId::UNSOLICITED
        });
        if is_plain && is_signed && is_alone && is_final {
            let at = body + random.below(frame.len() - body);
            frame[at] ^= 1 << random.below(8);
            *has_forged = true;
            self.damaged.fetch_add(1, Ordering::Relaxed);
        } else if self.rates.mutation_percent > 0 {
            let reach = frame.len().min(80);
            mutate::field(random, &mut frame[..reach], FRAME_HEADER_LEN + 4);
            self.damaged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl State {
    fn mutate(&mut self, mut replies: Vec<Outgoing>) -> Vec<Vec<Outgoing>> {
        let index = self.random.below(replies.len());
        match self.random.below(100) {
            0..35 => {
                for _ in 0..=self.random.below(2) {
                    mutate::field(&mut self.random, &mut replies[index].0, HEADER_LEN);
                }
            }
            35..50 => mutate::bytes(&mut self.random, &mut replies[index].0, HEADER_LEN),
            50..58 => self.refuse(&mut replies[index].0),
            58..60 => {
                let head = &mut replies[index].0[4..HEADER_LEN - 16];
                mutate::field(&mut self.random, head, 0);
            }
            60..64 => {
                let repeated = (replies[index].0.clone(), replies[index].1);
                return vec![replies, vec![repeated]];
            }
            64 if self.silent < SILENT_MAX => {
                self.silent += 1;
                return Vec::new();
            }
            65..70 => return self.defer(replies, index),
            70..80 => rename(&mut self.random, &mut replies[index].0),
            80..88 => self.exchange(&mut replies[index].0),
            88..91 => {
                let credits = values::one_of(&mut self.random, &[0, 1, 512, u16::MAX]);
                replies[index].0[CREDITS_OFFSET..][..2].copy_from_slice(&credits.to_le_bytes());
            }
            91..95 => return vec![vec![self.unexpected_break()], replies],
            _ => {
                // A frame for each, in reverse order.
                return replies.into_iter().rev().map(|reply| vec![reply]).collect();
            }
        }
        vec![replies]
    }

    /// Changes the status, with the existing body or that of an error.
    fn refuse(&mut self, message: &mut Vec<u8>) {
        let status = match self.random.percent(85) {
            true => values::one_of(&mut self.random, &STATUSES),
            false => NtStatus(values::edge(&mut self.random) as u32),
        };
        message[STATUS_OFFSET..][..4].copy_from_slice(&status.0.to_le_bytes());
        if self.random.percent(60) {
            message.truncate(HEADER_LEN);
            ErrorResponse::EMPTY.encode(&mut Writer::within(message, 0));
        }
    }

    /// Sends one interim response or several, and then the response or nothing.
    fn defer(&mut self, replies: Vec<Outgoing>, index: usize) -> Vec<Vec<Outgoing>> {
        let (reply, signer) = &replies[index];
        let Some(mut header) = header_of(reply) else {
            return vec![replies];
        };
        header.flags |= HeaderFlags::ASYNC_COMMAND;
        // A break has the highest possible message id.
        header.target = Target::Async(AsyncId(header.message_id.0.wrapping_add(1)));
        header.status = NtStatus::PENDING;
        let interim = message(&header, |w| ErrorResponse::EMPTY.encode(w));
        let count = 1 + self.random.below(4) * self.random.below(10);
        let signer = *signer;
        let mut frames: Vec<Vec<Outgoing>> = (0..count).map(|_| vec![(interim.clone(), signer)]).collect();
        if self.silent < SILENT_MAX && self.random.percent(5) {
            self.silent += 1;
        } else {
            frames.push(replies);
        }
        frames
    }

    /// Replaces the body with that of an earlier response of the same command or another one.
    fn exchange(&mut self, message: &mut Vec<u8>) {
        let Some(header) = header_of(message) else { return };
        let mut commands: Vec<Command> = self.bodies.keys().copied().collect();
        commands.sort_unstable();
        let other = match commands.is_empty() {
            false if self.random.percent(30) => values::one_of(&mut self.random, &commands),
            _ => header.command,
        };
        if let Some(body) = self.bodies.get(&other) {
            message.truncate(HEADER_LEN);
            message.extend_from_slice(body);
        }
    }

    /// Returns a break that the client does not expect.
    fn unexpected_break(&mut self) -> Outgoing {
        let header = Header::request(Command::OplockBreak, MessageId::UNSOLICITED).reply(NtStatus::SUCCESS);
        let notification = BreakNotification::Oplock(OplockBreak {
            oplock_level: OplockLevel::None,
            file_id: FileId {
                persistent: values::number(&mut self.random, 20),
                volatile: values::number(&mut self.random, 20),
            },
        });
        (message(&header, |w| notification.encode(w)), None)
    }
}

/// Replaces a name with another one of the same length that leads out of the folder.
fn rename(random: &mut Random, message: &mut [u8]) {
    const PLAIN: [&str; 4] = ["file", "sub", "inner", "deep"];
    const HOSTILE: [&str; 10] = [
        "../a", "..\\b", "/etc", "\0\0\0\0", "a/bc", "C:\\x", "..", "./..", "../..", ".\\..",
    ];
    let units = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let plain = units(values::one_of(random, &PLAIN));
    let hostile = units(values::one_of(random, &HOSTILE));
    let Some(found) = message.windows(plain.len()).position(|bytes| bytes == plain) else {
        mutate::field(random, message, HEADER_LEN);
        return;
    };
    let length = plain.len().min(hostile.len());
    message[found..found + length].copy_from_slice(&hostile[..length]);
}
