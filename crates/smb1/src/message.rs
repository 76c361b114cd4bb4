//! What follows the header: blocks of parameter words and bytes, and chains of them ([MS-CIFS]
//! 2.2.3.2, 2.2.3.3, 2.2.3.4).
//!
//! Offsets count from the header. So readers and writers always span a whole message, and a reader
//! of the words or bytes ends where these end.

use std::ops::Range;

use ropeway_smb_wire::{DecodeErrorKind, Reader, Result, Writer};

use crate::header::{Command, HEADER_LEN};

/// Maximum number of commands in one message. A guess: clients chain three.
const CHAIN_MAX: usize = 16;

/// The first words of a command that may be followed by another one in the same message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AndX {
    /// The next command, or [`Command::NO_ANDX_COMMAND`].
    pub command: Command,
    /// Offset of its block from the header.
    pub offset: u16,
}

impl AndX {
    /// No command follows.
    pub const NONE: Self = Self {
        command: Command::NO_ANDX_COMMAND,
        offset: 0,
    };

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let command = Command(reader.u8()?);
        reader.skip(1)?;
        Ok(Self {
            command,
            offset: reader.u16()?,
        })
    }

    pub(crate) fn write(self, writer: &mut Writer<'_>) {
        writer.u8(self.command.0);
        writer.u8(0);
        writer.u16(self.offset);
    }
}

impl Default for AndX {
    fn default() -> Self {
        Self::NONE
    }
}

/// The words and bytes of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    message: &'a [u8],
    words: Range<usize>,
    bytes: Range<usize>,
}

impl<'a> Block<'a> {
    /// Reads the block at byte `at` of a message.
    ///
    /// # Errors
    /// Truncation.
    pub fn parse(message: &'a [u8], at: usize) -> Result<Self> {
        let mut reader = Reader::at(message, at, "SMB_Parameters");
        let length = 2 * usize::from(reader.u8()?);
        let start = reader.position();
        reader.skip(length)?;
        let words = start..reader.position();
        let count = usize::from(reader.u16()?);
        let start = reader.position();
        reader.skip(count)?;
        Ok(Self {
            message,
            words,
            bytes: start..reader.position(),
        })
    }

    /// Reads the block after the header. Some servers end an error after its word count, without
    /// the count of bytes; such a block is empty.
    ///
    /// # Errors
    /// Truncation.
    pub fn first(message: &'a [u8]) -> Result<Self> {
        if message.len() == HEADER_LEN || message.len() == HEADER_LEN + 1 {
            let end = message.len();
            return Ok(Self {
                message,
                words: end..end,
                bytes: end..end,
            });
        }
        Self::parse(message, HEADER_LEN)
    }

    /// Returns the number of words.
    pub fn word_count(&self) -> usize {
        self.words.len() / 2
    }

    /// Returns the number of bytes after the words.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Returns a reader of the words.
    pub fn words(&self) -> Reader<'a> {
        Reader::at(
            &self.message[..self.words.end],
            self.words.start,
            "SMB_Parameters",
        )
    }

    /// Returns a reader of the words if there are `count` of them.
    ///
    /// # Errors
    /// There are fewer or more.
    pub fn words_exactly(&self, count: usize) -> Result<Reader<'a>> {
        let words = self.words();
        match self.word_count() == count {
            true => Ok(words),
            false => Err(words.error(DecodeErrorKind::Signature)),
        }
    }

    /// Returns a reader of the bytes.
    pub fn bytes(&self) -> Reader<'a> {
        Reader::at(&self.message[..self.bytes.end], self.bytes.start, "SMB_Data")
    }

    /// Returns `length` bytes at `offset` from the header, which may lie after what the count of
    /// bytes covers: that has 16 bits only ([MS-SMB] 3.3.5.8).
    ///
    /// # Errors
    /// They lie outside the message, or before the bytes of this block.
    pub fn payload(&self, offset: usize, length: usize) -> Result<&'a [u8]> {
        Reader::at(self.message, self.bytes.start, "SMB_Data").slice(offset, length)
    }

    /// Returns the range of a payload in the message, as [`Self::payload`].
    ///
    /// # Errors
    /// As [`Self::payload`].
    pub fn payload_range(&self, offset: usize, length: usize) -> Result<Range<usize>> {
        self.payload(offset, length)?;
        Ok(offset..offset + length)
    }

    /// Returns the end of the block in the message.
    pub fn end(&self) -> usize {
        self.bytes.end
    }
}

/// The commands of one message, in order.
#[derive(Clone, Debug)]
pub struct ChainLinks<'a> {
    message: &'a [u8],
    next: Option<(Command, usize)>,
    count: usize,
}

impl<'a> ChainLinks<'a> {
    /// Begins with the command of the header.
    pub fn new(message: &'a [u8], command: Command) -> Self {
        Self {
            message,
            next: Some((command, HEADER_LEN)),
            count: 0,
        }
    }

    fn link(&mut self, command: Command, at: usize) -> Result<(Command, Block<'a>)> {
        let block = match self.count {
            0 => Block::first(self.message)?,
            _ => Block::parse(self.message, at)?,
        };
        self.count += 1;
        if command.has_andx() && block.word_count() >= 2 {
            let andx = AndX::read(&mut block.words())?;
            if andx.command != Command::NO_ANDX_COMMAND {
                let offset = usize::from(andx.offset);
                let fault = Reader::at(self.message, at, "AndX").error(DecodeErrorKind::NextEntry);
                // Forward only, so that no message is a loop.
                if offset < block.words.end || self.count >= CHAIN_MAX {
                    return Err(fault);
                }
                self.next = Some((andx.command, offset));
            }
        }
        Ok((command, block))
    }
}

impl<'a> Iterator for ChainLinks<'a> {
    type Item = Result<(Command, Block<'a>)>;

    /// Returns the next command and its block. After an error there is none.
    fn next(&mut self) -> Option<Self::Item> {
        let (command, at) = self.next.take()?;
        Some(self.link(command, at))
    }
}

/// Appends a block: `words` and `bytes` write what they are named for. A block of more than 65,535
/// bytes (a very long path) fits no message: [`crate::client::Connection::submit`] refuses it.
///
/// # Panics
/// If `words` writes an odd number of bytes or more than 510.
pub fn write_block(
    w: &mut Writer<'_>,
    words: impl FnOnce(&mut Writer<'_>),
    bytes: impl FnOnce(&mut Writer<'_>),
) {
    let length = write_open_block(w, words, bytes);
    let at = w.position() - length - 2;
    w.patch_u16(at, u16::try_from(length).unwrap_or(u16::MAX));
}

/// Appends a block whose bytes are continued by `payload` bytes that the caller appends. Their
/// count has 16 bits only, and what does not fit is cut off, as clients and servers do.
///
/// # Panics
/// As [`write_block`].
pub fn write_block_with_payload(
    w: &mut Writer<'_>,
    payload: usize,
    words: impl FnOnce(&mut Writer<'_>),
    bytes: impl FnOnce(&mut Writer<'_>),
) {
    let length = write_open_block(w, words, bytes);
    let at = w.position() - length - 2;
    w.patch_u16(at, (length + payload) as u16);
}

/// Appends a block without its count of bytes, and returns that.
fn write_open_block(
    w: &mut Writer<'_>,
    words: impl FnOnce(&mut Writer<'_>),
    bytes: impl FnOnce(&mut Writer<'_>),
) -> usize {
    let at = w.position();
    w.u8(0);
    words(w);
    let length = w.position() - at - 1;
    assert!(length.is_multiple_of(2), "words have two bytes");
    w.patch(
        at,
        &[u8::try_from(length / 2).expect("a block has at most 255 words")],
    );
    w.u16(0);
    let start = w.position();
    bytes(w);
    w.position() - start
}

/// Writes a chain of commands: each block's [`AndX`] is set when the next one is appended.
#[derive(Debug, Default)]
pub struct Chain {
    /// Position of the last block that may be continued.
    last: Option<usize>,
}

impl Chain {
    /// Appends the block of a command. `encode` writes the block, with [`AndX::NONE`] if it has one.
    ///
    /// A chain of more than 65,535 bytes cannot be read: servers refuse it.
    ///
    /// # Panics
    /// If the block before has no `AndX`.
    pub fn push(&mut self, w: &mut Writer<'_>, command: Command, encode: impl FnOnce(&mut Writer<'_>)) {
        if w.position() > HEADER_LEN {
            let last = self.last.expect("only a command with AndX can be continued");
            let offset = u16::try_from(w.position()).unwrap_or(u16::MAX);
            w.patch(last + 1, &[command.0]);
            w.patch_u16(last + 3, offset);
        }
        let at = w.position();
        encode(w);
        self.last = command.has_andx().then_some(at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile;

    fn chain_of(commands: &[Command]) -> Vec<u8> {
        let mut chain = Chain::default();
        hostile::message(|w| {
            for command in commands {
                chain.push(w, *command, |w| {
                    let words = |w: &mut Writer<'_>| {
                        AndX::NONE.write(w);
                        w.u16(7);
                    };
                    write_block(w, words, |w| w.bytes(b"abc"));
                });
            }
        })
    }

    #[test]
    fn chains_are_walked_in_order() {
        let commands = [
            Command::SESSION_SETUP_ANDX,
            Command::TREE_CONNECT_ANDX,
            Command::OPEN_ANDX,
        ];
        let bytes = chain_of(&commands);
        let links: Result<Vec<_>> = ChainLinks::new(&bytes, commands[0]).collect();
        let links = links.unwrap();
        assert_eq!(
            links.iter().map(|(command, _)| *command).collect::<Vec<_>>(),
            commands
        );
        for (_, block) in links {
            assert_eq!((block.word_count(), block.byte_count()), (3, 3));
            assert_eq!(block.bytes().rest(), b"abc");
        }
    }

    #[test]
    fn a_chain_leads_forward_only() {
        let mut bytes = chain_of(&[Command::OPEN_ANDX, Command::READ_ANDX]);
        // The second block leads to itself.
        let at = usize::from(u16::from_le_bytes([bytes[35], bytes[36]]));
        bytes[at + 1] = Command::READ_ANDX.0;
        bytes[at + 3..at + 5].copy_from_slice(&(at as u16).to_le_bytes());
        let links: Vec<_> = ChainLinks::new(&bytes, Command::OPEN_ANDX).collect();
        assert!(links.len() == 2 && links[1].is_err(), "{links:?}");
    }

    #[test]
    fn payloads_may_exceed_the_count_of_bytes() {
        let mut bytes = hostile::message(|w| {
            write_block_with_payload(w, 70_000, |w| w.u16(1), |w| w.u8(0));
        });
        let offset = bytes.len();
        bytes.extend(std::iter::repeat_n(9, 70_000));
        let block = Block::first(&bytes).unwrap();
        assert_eq!(block.byte_count(), 70_001 % 65_536);
        assert_eq!(block.payload(offset, 70_000).unwrap().len(), 70_000);
        assert!(block.payload(offset, 70_001).is_err());
        assert!(
            block.payload(HEADER_LEN, 1).is_err(),
            "not inside what was parsed"
        );
    }

    #[test]
    fn errors_may_be_cut_short() {
        let header = hostile::message(|_| {});
        assert_eq!(Block::first(&header).unwrap().word_count(), 0);
        let with_count = [&header[..], &[0]].concat();
        assert_eq!(Block::first(&with_count).unwrap().byte_count(), 0);
    }

    proptest! {
        #[test]
        fn blocks_round_trip(words in prop::collection::vec(any::<u16>(), 0..200), data: Vec<u8>) {
            let bytes = hostile::message(|w| write_block(w, |w| w.units(&words), |w| w.bytes(&data)));
            let block = Block::first(&bytes).unwrap();
            prop_assert_eq!(block.word_count(), words.len());
            prop_assert_eq!(block.bytes().rest(), &data[..]);
            prop_assert_eq!(block.end(), bytes.len());
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let bytes = chain_of(&[
            Command::OPEN_ANDX,
            Command::READ_ANDX,
            Command::SESSION_SETUP_ANDX,
        ]);
        hostile::attack(&bytes, HEADER_LEN, |bytes| {
            ChainLinks::new(bytes, Command::OPEN_ANDX)
                .map(|link| {
                    link.map(|(_, block)| block.words().rest().len() + block.bytes().rest().len())
                        .unwrap_or_default()
                })
                .sum::<usize>()
        });
    }
}
