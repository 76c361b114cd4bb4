//! The header of every SMB 2 message, and the chain that several messages form in one compound.
//!
//! A request names the tree it is for; a reply may instead carry an `AsyncId` for what the server answers later. The
//! two forms differ in eight bytes ([`Target`]).

use super::cursor::{Fault, Malformed, Reader, Result, Writer};
use super::frame::Protocol;
use super::ids::{AsyncId, MessageId, SessionId, TreeId};
use super::lengths::place;
use super::status::NtStatus;
use bitflags::bitflags;

/// Length of the header in bytes, which is also its `StructureSize` ([MS-SMB2] 2.2.1).
pub const HEADER_LEN: usize = 64;
/// Where `Status` begins ([MS-SMB2] 2.2.1.2).
pub const STATUS_OFFSET: usize = 8;
/// Where `CreditRequest/CreditResponse` begins ([MS-SMB2] 2.2.1.2).
pub const CREDITS_OFFSET: usize = 14;
/// Where `Flags` begins ([MS-SMB2] 2.2.1.2).
pub const FLAGS_OFFSET: usize = 16;
/// Where `NextCommand` begins ([MS-SMB2] 2.2.1.2).
pub const NEXT_COMMAND_OFFSET: usize = 20;
/// Where `Signature` begins: its 16 bytes end the header ([MS-SMB2] 2.2.1.2).
pub const SIGNATURE_OFFSET: usize = 48;
/// Length of `Signature` in bytes ([MS-SMB2] 2.2.1.2).
pub const SIGNATURE_LEN: usize = 16;
/// Messages of a compound begin at multiples of this ([MS-SMB2] 2.2.1.2, `NextCommand`).
pub const CHAIN_ALIGNMENT: usize = 8;
/// The most messages taken from one compound. A guess: Windows clients send at most a handful, this program tens.
pub const CHAIN_MAX: usize = 1024;

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// What a message is about ([MS-SMB2] 2.2.1.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Command {
            $($(#[$doc])* $name,)*
            /// A number that the specification does not know; a server refuses it ([MS-SMB2] 3.3.5.2). Never holds one
            /// of the others' numbers if made by [`Command::from_code`].
            Other(u16),
        }

        impl Command {
            /// From the number on the wire.
            pub const fn from_code(code: u16) -> Self {
                match code {
                    $($code => Self::$name,)*
                    _ => Self::Other(code),
                }
            }

            /// The number on the wire.
            pub const fn code(self) -> u16 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Other(code) => code,
                }
            }
        }
    };
}

commands! {
    /// [MS-SMB2] 2.2.3.
    Negotiate = 0x0000,
    /// [MS-SMB2] 2.2.5.
    SessionSetup = 0x0001,
    /// [MS-SMB2] 2.2.7.
    Logoff = 0x0002,
    /// [MS-SMB2] 2.2.9.
    TreeConnect = 0x0003,
    /// [MS-SMB2] 2.2.11.
    TreeDisconnect = 0x0004,
    /// [MS-SMB2] 2.2.13.
    Create = 0x0005,
    /// [MS-SMB2] 2.2.15.
    Close = 0x0006,
    /// [MS-SMB2] 2.2.17.
    Flush = 0x0007,
    /// [MS-SMB2] 2.2.19.
    Read = 0x0008,
    /// [MS-SMB2] 2.2.21.
    Write = 0x0009,
    /// [MS-SMB2] 2.2.26.
    Lock = 0x000A,
    /// [MS-SMB2] 2.2.31.
    Ioctl = 0x000B,
    /// [MS-SMB2] 2.2.30; never answered itself.
    Cancel = 0x000C,
    /// [MS-SMB2] 2.2.28.
    Echo = 0x000D,
    /// [MS-SMB2] 2.2.33.
    QueryDirectory = 0x000E,
    /// [MS-SMB2] 2.2.35.
    ChangeNotify = 0x000F,
    /// [MS-SMB2] 2.2.37.
    QueryInfo = 0x0010,
    /// [MS-SMB2] 2.2.39.
    SetInfo = 0x0011,
    /// [MS-SMB2] 2.2.23 to 2.2.25.
    OplockBreak = 0x0012,
    /// [MS-SMB2] 2.2.44; only from the server.
    ServerToClientNotification = 0x0013,
}

bitflags! {
    /// `Flags` of the header ([MS-SMB2] 2.2.1.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct HeaderFlags: u32 {
        /// A reply, or another message from the server.
        const SERVER_TO_REDIR = 0x0000_0001;
        /// The header has the asynchronous form.
        const ASYNC_COMMAND = 0x0000_0002;
        /// Not the first request of a compound, and it takes over what the one before named.
        const RELATED_OPERATIONS = 0x0000_0004;
        /// `Signature` holds a signature.
        const SIGNED = 0x0000_0008;
        /// The request's priority, 3 bits (3.1.1).
        const PRIORITY_MASK = 0x0000_0070;
        /// The path is in DFS.
        const DFS_OPERATIONS = 0x1000_0000;
        /// Sent again after the channel was lost (3.x).
        const REPLAY_OPERATION = 0x2000_0000;
        const _ = !0;
    }
}

/// What tells the two forms of the header apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The synchronous form ([MS-SMB2] 2.2.1.2).
    Sync(TreeId),
    /// The asynchronous form ([MS-SMB2] 2.2.1.1): what the server answers later, and a CANCEL of that.
    Async(AsyncId),
}

/// The header of a message ([MS-SMB2] 2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Credits this request costs; 0 in 2.0.2.
    pub credit_charge: u16,
    /// In a reply the outcome; in a request of 3.x the channel sequence in the low half, see
    /// [`Header::channel_sequence`].
    pub status: NtStatus,
    /// What the message is about.
    pub command: Command,
    /// Credits asked for in a request, granted in a reply.
    pub credits: u16,
    /// Flags; [`HeaderFlags::ASYNC_COMMAND`] goes with [`Target::Async`].
    pub flags: HeaderFlags,
    /// Bytes from this header to the next one of the compound, a multiple of 8; 0 in the last.
    pub next_command: u32,
    /// Which request.
    pub message_id: MessageId,
    /// The tree, or the asynchronous operation.
    pub target: Target,
    /// The session.
    pub session_id: SessionId,
    /// The signature, zeros without.
    pub signature: [u8; SIGNATURE_LEN],
}

impl Header {
    /// A request with charge 1 and no credits asked for, outside of session and tree.
    pub fn request(command: Command, message_id: MessageId) -> Self {
        Self {
            credit_charge: 1,
            status: NtStatus::SUCCESS,
            command,
            credits: 0,
            flags: HeaderFlags::default(),
            next_command: 0,
            message_id,
            target: Target::Sync(TreeId::default()),
            session_id: SessionId::default(),
            signature: [0; SIGNATURE_LEN],
        }
    }

    /// The header of a reply to `self`: unsigned, alone, no credits granted, the same target ([MS-SMB2] 3.3.4.1).
    #[must_use]
    pub fn reply(&self, status: NtStatus) -> Self {
        let kept = HeaderFlags::ASYNC_COMMAND
            | HeaderFlags::RELATED_OPERATIONS
            | HeaderFlags::PRIORITY_MASK
            | HeaderFlags::DFS_OPERATIONS
            | HeaderFlags::REPLAY_OPERATION;
        Self {
            status,
            credits: 0,
            flags: (self.flags & kept) | HeaderFlags::SERVER_TO_REDIR,
            next_command: 0,
            signature: [0; SIGNATURE_LEN],
            ..*self
        }
    }

    /// Whether the server sent it.
    pub fn is_response(&self) -> bool {
        self.flags.contains(HeaderFlags::SERVER_TO_REDIR)
    }

    /// `ChannelSequence` of a request of 3.x ([MS-SMB2] 2.2.1.2).
    pub fn channel_sequence(&self) -> u16 {
        (self.status.0 & 0xFFFF) as u16
    }

    /// Makes the status field the channel sequence of a request of 3.x.
    pub fn set_channel_sequence(&mut self, sequence: u16) {
        self.status = NtStatus(u32::from(sequence));
    }

    /// The tree, if the header has the synchronous form.
    pub fn tree_id(&self) -> Option<TreeId> {
        match self.target {
            Target::Sync(tree_id) => Some(tree_id),
            Target::Async(_) => None,
        }
    }

    /// Reads 64 bytes; the reader then stands at the body. Reserved fields are ignored (Windows puts 0xFEFF where SMB 1
    /// had a process).
    ///
    /// # Errors
    /// [`Fault::Truncated`]; [`Fault::Signature`] if it is no SMB 2 header.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let fault = reader.fault(Fault::Signature);
        if reader.array::<4>()? != Protocol::Smb2.id() {
            return Err(fault);
        }
        reader.structure_size(64)?;
        let credit_charge = reader.u16()?;
        let status = NtStatus(reader.u32()?);
        let command = Command::from_code(reader.u16()?);
        let credits = reader.u16()?;
        let flags = HeaderFlags::from_bits_retain(reader.u32()?);
        let next_command = reader.u32()?;
        let message_id = MessageId(reader.u64()?);
        let target = if flags.contains(HeaderFlags::ASYNC_COMMAND) {
            Target::Async(AsyncId(reader.u64()?))
        } else {
            reader.skip(4)?;
            Target::Sync(TreeId(reader.u32()?))
        };
        Ok(Self {
            credit_charge,
            status,
            command,
            credits,
            flags,
            next_command,
            message_id,
            target,
            session_id: SessionId(reader.u64()?),
            signature: reader.array()?,
        })
    }

    /// Appends 64 bytes.
    ///
    /// # Panics
    /// If flag and form do not agree, or `next_command` is not a multiple of 8.
    pub fn encode(&self, w: &mut Writer<'_>) {
        assert_eq!(
            self.flags.contains(HeaderFlags::ASYNC_COMMAND),
            matches!(self.target, Target::Async(_)),
            "the flag says which form the header has"
        );
        assert!(
            place(self.next_command).is_multiple_of(CHAIN_ALIGNMENT),
            "messages are aligned"
        );
        w.bytes(&Protocol::Smb2.id());
        w.u16(64);
        w.u16(self.credit_charge);
        w.u32(self.status.0);
        w.u16(self.command.code());
        w.u16(self.credits);
        w.u32(self.flags.bits());
        w.u32(self.next_command);
        w.u64(self.message_id.0);
        match self.target {
            Target::Sync(tree_id) => {
                w.u32(0);
                w.u32(tree_id.0);
            }
            Target::Async(async_id) => w.u64(async_id.0),
        }
        w.u64(self.session_id.0);
        w.bytes(&self.signature);
    }
}

/// Where the message after the one that begins with `head` begins, counted from there; `None` if it is the last. `left`:
/// bytes of the frame from there on, of which `head` may be but the first.
///
/// # Errors
/// [`Fault::Truncated`]: there is no whole header. [`Fault::Chain`]: the way does not lead forward past this header, on
/// to a multiple of 8 ([MS-SMB2] 3.3.5.2.7). [`Fault::Bounds`]: it leads out of the frame.
pub fn next_message(head: &[u8], left: usize) -> std::result::Result<Option<usize>, Fault> {
    let header = head.get(..HEADER_LEN).ok_or(Fault::Truncated)?;
    let field = header[NEXT_COMMAND_OFFSET..]
        .first_chunk()
        .ok_or(Fault::Truncated)?;
    match place(u32::from_le_bytes(*field)) {
        0 => Ok(None),
        next if next < HEADER_LEN || !next.is_multiple_of(CHAIN_ALIGNMENT) => Err(Fault::Chain),
        next if next > left => Err(Fault::Bounds),
        next => Ok(Some(next)),
    }
}

/// The messages of a compound, each a slice with its header and its padding, which the signature covers
/// ([MS-SMB2] 3.1.4.1). A message that is alone is a chain of one. After an error there is nothing more.
#[derive(Clone, Debug)]
pub struct Chain<'a> {
    rest: Option<&'a [u8]>,
    at: usize,
    links: usize,
}

impl<'a> Chain<'a> {
    /// The chain that fills `frame`.
    pub fn new(frame: &'a [u8]) -> Self {
        Self {
            rest: Some(frame),
            at: 0,
            links: 0,
        }
    }

    /// The first message of `rest`, and what follows it.
    fn split(&self, rest: &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>)> {
        let fault = |fault| Malformed {
            structure: "SMB2 compound",
            fault,
            at: self.at,
        };
        if self.links == CHAIN_MAX {
            return Err(fault(Fault::Chain));
        }
        match next_message(rest, rest.len()).map_err(fault)? {
            Some(next) => {
                let (message, rest) = rest.split_at(next);
                Ok((message, Some(rest)))
            }
            None => Ok((rest, None)),
        }
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = Result<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        Some(self.split(rest).map(|(message, rest)| {
            self.rest = rest;
            self.at += message.len();
            self.links += 1;
            message
        }))
    }
}

impl std::iter::FusedIterator for Chain<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;
    use proptest::prelude::*;

    fn encoded(header: &Header) -> Vec<u8> {
        hostile::structure(|w| header.encode(w))
    }

    /// A compound of messages with bodies of these lengths, multiples of 8.
    fn compound(bodies: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        for (index, body) in bodies.iter().enumerate() {
            let mut header = Header::request(Command::Echo, MessageId(index as u64));
            if index + 1 < bodies.len() {
                header.next_command = (HEADER_LEN + body) as u32;
            }
            out.extend(encoded(&header));
            out.resize(out.len() + body, 0xEE);
        }
        out
    }

    /// The header of an interim reply and of its final one, as Windows sends them.
    #[test]
    fn a_known_asynchronous_header() {
        let bytes = b"\xFESMB\x40\0\x01\0\x03\x01\0\0\x0F\0\x01\0\x03\0\0\0\0\0\0\0\
            \x2A\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x19\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let header = Header::decode(&mut Reader::new(bytes, "test")).unwrap();
        assert_eq!(header.status, NtStatus::PENDING);
        assert_eq!(header.command, Command::ChangeNotify);
        assert_eq!(header.message_id, MessageId(42));
        assert_eq!(header.target, Target::Async(AsyncId(8)));
        assert_eq!(header.session_id, SessionId(0x1000_0000_0019));
        assert!(header.is_response() && header.tree_id().is_none());
        assert_eq!(encoded(&header), bytes);
    }

    #[test]
    fn a_reply_answers_its_request() {
        let mut request = Header::request(Command::Create, MessageId(7));
        request.flags = HeaderFlags::SIGNED | HeaderFlags::RELATED_OPERATIONS;
        request.target = Target::Sync(TreeId(3));
        request.signature = [9; 16];
        request.next_command = 128;
        let reply = request.reply(NtStatus::ACCESS_DENIED);
        assert_eq!(
            reply.flags,
            HeaderFlags::SERVER_TO_REDIR | HeaderFlags::RELATED_OPERATIONS
        );
        assert_eq!(
            (reply.message_id, reply.tree_id()),
            (MessageId(7), Some(TreeId(3)))
        );
        assert_eq!((reply.signature, reply.next_command), ([0; 16], 0));
    }

    #[test]
    fn fields_lie_where_the_constants_say() {
        let mut header = Header::request(Command::Echo, MessageId(0));
        header.set_channel_sequence(0xA1A2);
        header.credits = 0xB1B2;
        header.flags = HeaderFlags::REPLAY_OPERATION;
        header.next_command = 0xC8;
        header.signature = [0xDD; 16];
        let bytes = encoded(&header);
        assert_eq!(header.channel_sequence(), 0xA1A2);
        assert_eq!(bytes[STATUS_OFFSET..][..4], [0xA2, 0xA1, 0, 0]);
        assert_eq!(bytes[CREDITS_OFFSET..][..2], [0xB2, 0xB1]);
        assert_eq!(bytes[FLAGS_OFFSET..][..4], [0, 0, 0, 0x20]);
        assert_eq!(bytes[NEXT_COMMAND_OFFSET..][..4], [0xC8, 0, 0, 0]);
        assert_eq!(bytes[SIGNATURE_OFFSET..], [0xDD; 16]);
    }

    #[test]
    fn chains_split() {
        let frame = compound(&[8, 0, 24]);
        let lengths: Vec<_> = Chain::new(&frame).map(|message| message.unwrap().len()).collect();
        assert_eq!(lengths, [72, 64, 88]);
        assert_eq!(
            Chain::new(&frame[..64 + 8]).count(),
            2,
            "the second is too short, and it ends"
        );
    }

    #[test]
    fn chains_do_not_go_back_or_astray() {
        for (next, fault) in [
            (8, Fault::Chain),
            (68, Fault::Chain),
            (0xFFFF_FFF8, Fault::Bounds),
        ] {
            let mut frame = compound(&[8, 8]);
            frame[NEXT_COMMAND_OFFSET..][..4].copy_from_slice(&u32::to_le_bytes(next));
            let outcomes: Vec<_> = Chain::new(&frame).collect();
            assert_eq!(outcomes.len(), 1);
            assert_eq!(outcomes[0].unwrap_err().fault, fault, "{next}");
        }
        assert_eq!(
            Chain::new(&[]).next().unwrap().unwrap_err().fault,
            Fault::Truncated
        );
        let long = compound(&vec![0; CHAIN_MAX + 1]);
        let outcomes: Vec<_> = Chain::new(&long).collect();
        assert_eq!(outcomes.len(), CHAIN_MAX + 1);
        assert_eq!(outcomes[CHAIN_MAX].unwrap_err().fault, Fault::Chain);
    }

    #[test]
    fn commands_have_one_number_each() {
        for code in 0..=0x20 {
            assert_eq!(Command::from_code(code).code(), code);
        }
        assert_eq!(Command::from_code(0x14), Command::Other(0x14));
    }

    #[test]
    fn hostile_headers_and_chains() {
        hostile::attack(&compound(&[8, 0, 16]), 0, |bytes| {
            let _ = Header::decode(&mut Reader::new(bytes, "test"));
            let total: usize = Chain::new(bytes).flatten().map(<[u8]>::len).sum();
            assert!(total <= bytes.len());
        });
    }

    proptest! {
        #[test]
        fn headers_round_trip(
            numbers: (u16, u32, u16, u16, u32), next in 0..1000_u32, ids: (u64, u64, u32, u64), signature: [u8; 16],
        ) {
            let flags = HeaderFlags::from_bits_retain(numbers.4);
            let header = Header {
                credit_charge: numbers.0,
                status: NtStatus(numbers.1),
                command: Command::from_code(numbers.2),
                credits: numbers.3,
                flags,
                next_command: next * 8,
                message_id: MessageId(ids.0),
                target: if flags.contains(HeaderFlags::ASYNC_COMMAND) {
                    Target::Async(AsyncId(ids.1))
                } else {
                    Target::Sync(TreeId(ids.2))
                },
                session_id: SessionId(ids.3),
                signature,
            };
            let bytes = encoded(&header);
            let mut reader = Reader::new(&bytes, "test");
            prop_assert_eq!(Header::decode(&mut reader), Ok(header));
            prop_assert_eq!(reader.position(), HEADER_LEN);
        }
    }
}
