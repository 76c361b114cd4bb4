//! Outgoing frames: messages one after the other, signed, possibly compressed, possibly sealed.
//!
//! ```text
//! one piece    | 4 | transform | messages, the payload's header | payload | messages |
//! in parts     [ 4 | messages, the payload's header ] [ payload ] [ messages ]
//! ```
//!
//! A frame becomes one piece whenever its block has a single handle and enough room: signing is
//! fastest over contiguous bytes, and sealing requires them. A frame that must be sealed in parts
//! is copied, and the copy is counted.

use std::ops::Range;

use ropeway_block::{Block, BlockMut};
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, frame_header};
use ropeway_smb_wire::header::{
    COMPOUND_ALIGNMENT, HEADER_LEN, Header, NEXT_COMMAND_OFFSET, SIGNATURE_LEN, SIGNATURE_OFFSET,
};
use ropeway_smb_wire::{SessionId, Writer};

use super::{Operation, Part};
use crate::compression::{Compression, CompressionLevel, CompressionSampler, Saved, compress_if_worthwhile};
use crate::crypto::{SealTicket, Sender, Signer, TRANSFORM_HEADER_LEN};

/// A frame under construction.
pub(super) struct Frame {
    /// The bytes before the payload.
    front: Vec<u8>,
    /// Length of the payload that stays in its block.
    payload_len: Option<usize>,
    /// The bytes after the payload.
    back: Vec<u8>,
    /// Ranges of the messages, as if the frame were contiguous.
    messages: Vec<Range<usize>>,
    prefix: usize,
    copied: usize,
}

/// The protection and compression to apply to a frame.
pub(super) struct Finish<'a> {
    pub(super) signer: Option<&'a Signer>,
    pub(super) seal: Option<(SealTicket, SessionId)>,
    /// Compresses from the payload on, if it saves enough; without a payload, all behind the first header.
    pub(super) compress: Option<Compression>,
}

/// A frame ready to be sent.
pub(super) struct Finished {
    pub(super) parts: Vec<Part>,
    /// The payload, to be returned to its owner.
    pub(super) payload: Option<Block>,
    /// If the payload was sealed in its block: the number of bytes sealed before and after it.
    pub(super) sealed_in_place: Option<(usize, usize)>,
    pub(super) copied: usize,
    /// What compression saved.
    pub(super) saved: Saved,
}

impl Frame {
    pub(super) fn new(sealed: bool) -> Self {
        let prefix = FRAME_HEADER_LEN + if sealed { TRANSFORM_HEADER_LEN } else { 0 };
        let mut front = Vec::with_capacity(256);
        front.resize(prefix, 0);
        Self {
            front,
            payload_len: None,
            back: Vec::new(),
            messages: Vec::new(),
            prefix,
            copied: 0,
        }
    }

    fn end(&self) -> usize {
        self.front.len() + self.payload_len.unwrap_or(0) + self.back.len()
    }

    /// Appends a message.
    pub(super) fn push(&mut self, header: &Header, operation: &Operation) {
        self.begin(header, &operation.body);
        if let Some(payload) = &operation.payload {
            if self.payload_len.is_none() {
                self.payload_len = Some(payload.len());
            } else {
                // The second payload of a compound is copied; no caller sends bulk data that way.
                self.back.extend_from_slice(payload);
                self.copied += payload.len();
            }
        }
        self.close();
    }

    /// Appends a message without payload.
    pub(super) fn push_bytes(&mut self, header: &Header, body: &[u8]) {
        self.begin(header, body);
        self.close();
    }

    fn begin(&mut self, header: &Header, body: &[u8]) {
        self.align();
        let start = self.end();
        self.messages.push(start..start);
        let out = self.tail();
        header.encode(&mut Writer::new(out));
        out.extend_from_slice(body);
    }

    fn close(&mut self) {
        let end = self.end();
        if let Some(last) = self.messages.last_mut() {
            last.end = end;
        }
    }

    /// Returns the buffer that the next byte belongs to.
    fn tail(&mut self) -> &mut Vec<u8> {
        if self.payload_len.is_some() {
            &mut self.back
        } else {
            &mut self.front
        }
    }

    /// Pads the last message and sets its `NextCommand`.
    fn align(&mut self) {
        let Some(last) = self.messages.last().cloned() else {
            return;
        };
        let length = last.len().next_multiple_of(COMPOUND_ALIGNMENT);
        let padding = length - last.len();
        let tail = self.tail();
        tail.resize(tail.len() + padding, 0);
        self.close();
        // The cast is exact: frame lengths have 24 bits.
        let next = (length as u32).to_le_bytes();
        self.head_mut(last.start + NEXT_COMMAND_OFFSET, next.len())
            .copy_from_slice(&next);
    }

    /// Returns bytes of a header, which lies before or after the payload.
    fn head_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        let back_at = self.front.len() + self.payload_len.unwrap_or(0);
        if at >= back_at && self.payload_len.is_some() {
            &mut self.back[at - back_at..][..length]
        } else {
            &mut self.front[at..][..length]
        }
    }

    /// Signs, compresses and seals the frame. `payload` is the payload that [`push`](Self::push)
    /// left out.
    pub(super) fn finish(mut self, payload: Option<Block>, finish: Finish<'_>) -> Finished {
        let length = self.end() - FRAME_HEADER_LEN;
        self.front[..FRAME_HEADER_LEN].copy_from_slice(&frame_header(length));
        let Some(payload) = payload else {
            let mut bytes = self.front;
            sign(finish.signer, &mut bytes, &self.messages);
            let plain = self.prefix + HEADER_LEN;
            let compressed = compressed(finish.compress, &bytes, self.prefix, plain);
            let (mut bytes, saved) = compressed.unwrap_or((bytes, Saved::default()));
            if let Some((ticket, session)) = finish.seal {
                seal(ticket, session, &mut bytes);
            }
            return Finished {
                parts: vec![Part::Bytes(bytes)],
                payload: None,
                sealed_in_place: None,
                copied: self.copied,
                saved,
            };
        };
        match self.into_piece(payload) {
            Ok(piece) => piece.finish(finish),
            Err((frame, payload)) if finish.seal.is_some() || finish.compress.is_some() => {
                frame.finish_copied(payload, finish)
            }
            Err((frame, payload)) => frame.finish_in_parts(payload, finish.signer),
        }
    }

    /// Lays the frame around the payload in the payload's block. Fails if the block has another
    /// handle or too little room.
    #[allow(clippy::result_large_err, reason = "the caller goes on with both")]
    pub(super) fn into_piece(mut self, payload: Block) -> Result<Piece, (Self, Block)> {
        let length = self.end() - FRAME_HEADER_LEN;
        self.front[..FRAME_HEADER_LEN].copy_from_slice(&frame_header(length));
        let fits = |block: &BlockMut| {
            let after = block.capacity() - block.len();
            self.front.len() <= block.headroom() && self.back.len() <= after
        };
        let mut block = match payload.try_into_mut() {
            Ok(block) if fits(&block) => block,
            Ok(block) => return Err((self, block.freeze())),
            Err(payload) => return Err((self, payload)),
        };
        let (before, length, after) = (self.front.len(), block.len(), self.back.len());
        block.set_len(length + after);
        let bytes = block.framed_mut(before);
        bytes[..before].copy_from_slice(&self.front);
        bytes[before + length..].copy_from_slice(&self.back);
        Ok(Piece {
            block,
            before,
            length,
            messages: self.messages,
            prefix: self.prefix,
            copied: self.copied,
        })
    }

    fn finish_copied(self, payload: Block, finish: Finish<'_>) -> Finished {
        let before = self.front.len();
        let mut bytes = self.front;
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&self.back);
        sign(finish.signer, &mut bytes, &self.messages);
        let (mut bytes, saved) = match compressed(finish.compress, &bytes, self.prefix, before) {
            Some((compressed, saved)) => (compressed, saved),
            None => (bytes, Saved::default()),
        };
        if let Some((ticket, session)) = finish.seal {
            seal(ticket, session, &mut bytes);
        }
        Finished {
            parts: vec![Part::Bytes(bytes)],
            copied: self.copied + payload.len(),
            payload: Some(payload),
            sealed_in_place: None,
            saved,
        }
    }

    fn finish_in_parts(mut self, payload: Block, signer: Option<&Signer>) -> Finished {
        for message in self.messages.clone() {
            let Some(signer) = signer else { break };
            let signature = signer.sign(Sender::Client, &self.pieces(&payload, &message));
            self.head_mut(message.start + SIGNATURE_OFFSET, SIGNATURE_LEN)
                .copy_from_slice(&signature);
        }
        let mut parts = vec![Part::Bytes(self.front), Part::Framed(payload.clone(), 0)];
        if !self.back.is_empty() {
            parts.push(Part::Bytes(self.back));
        }
        Finished {
            parts,
            payload: Some(payload),
            sealed_in_place: None,
            copied: self.copied,
            saved: Saved::default(),
        }
    }

    /// Returns the parts of a message. The first holds the header; empty parts are left out.
    fn pieces<'a>(&'a self, payload: &'a [u8], message: &Range<usize>) -> Vec<&'a [u8]> {
        let mut at = 0;
        let mut pieces = Vec::with_capacity(3);
        for piece in [&self.front[..], payload, &self.back[..]] {
            let start = message.start.clamp(at, at + piece.len()) - at;
            let end = message.end.clamp(at, at + piece.len()) - at;
            if start < end {
                pieces.push(&piece[start..end]);
            }
            at += piece.len();
        }
        pieces
    }
}

/// A frame in its payload's block, not protected yet.
pub(super) struct Piece {
    block: BlockMut,
    before: usize,
    /// Length of the payload.
    length: usize,
    messages: Vec<Range<usize>>,
    prefix: usize,
    copied: usize,
}

impl Piece {
    /// Signs, compresses and seals the frame.
    fn finish(mut self, finish: Finish<'_>) -> Finished {
        self.protect(finish.signer, None);
        let bytes = self.block.framed_mut(self.before);
        let compressed = compressed(finish.compress, bytes, self.prefix, self.before);
        if let Some((mut compressed, saved)) = compressed {
            if let Some((ticket, session)) = finish.seal {
                seal(ticket, session, &mut compressed);
            }
            return Finished {
                parts: vec![Part::Bytes(compressed)],
                payload: Some(self.block.freeze().slice(0..self.length)),
                sealed_in_place: None,
                copied: self.copied,
                saved,
            };
        }
        let is_sealed = finish.seal.is_some();
        self.protect(None, finish.seal);
        self.into_finished(is_sealed)
    }

    /// Signs the messages, or seals the frame.
    pub(super) fn protect(&mut self, signer: Option<&Signer>, to_seal: Option<(SealTicket, SessionId)>) {
        let bytes = self.block.framed_mut(self.before);
        sign(signer, bytes, &self.messages);
        if let Some((ticket, session)) = to_seal {
            seal(ticket, session, bytes);
        }
    }

    /// Returns the frame as it is, ready to be sent.
    pub(super) fn into_finished(self, is_sealed: bool) -> Finished {
        let after = self.block.len() - self.length;
        let block = self.block.freeze();
        Finished {
            payload: Some(block.slice(0..self.length)),
            parts: vec![Part::Framed(block, self.before)],
            sealed_in_place: is_sealed.then_some((self.before, after)),
            copied: self.copied,
            saved: Saved::default(),
        }
    }
}

/// Signs messages that lie in contiguous bytes.
fn sign(signer: Option<&Signer>, bytes: &mut [u8], messages: &[Range<usize>]) {
    let Some(signer) = signer else { return };
    for message in messages {
        let message = &mut bytes[message.clone()];
        let signature = signer.sign(Sender::Client, &[message]);
        message[SIGNATURE_OFFSET..][..SIGNATURE_LEN].copy_from_slice(&signature);
    }
}

/// Seals a frame that has room for the transform header.
fn seal(ticket: SealTicket, session: SessionId, bytes: &mut [u8]) {
    let (head, message) = bytes.split_at_mut(FRAME_HEADER_LEN + TRANSFORM_HEADER_LEN);
    let header = ticket.seal(session, message);
    head[FRAME_HEADER_LEN..].copy_from_slice(&header);
}

/// Returns the frame with its messages compressed from `plain` on, with the same prefix, and what that
/// saved. `None` if it is too little.
fn compressed(
    how: Option<Compression>,
    bytes: &[u8],
    prefix: usize,
    plain: usize,
) -> Option<(Vec<u8>, Saved)> {
    let how = how?;
    let message = &bytes[prefix..];
    let compressed = compress_if_worthwhile(how.algorithms, how.chained, plain - prefix, message)?;
    let mut out = Vec::with_capacity(prefix + compressed.len());
    out.resize(prefix, 0);
    out.extend_from_slice(&compressed);
    let length = out.len() - FRAME_HEADER_LEN;
    out[..FRAME_HEADER_LEN].copy_from_slice(&frame_header(length));
    let saved = Saved::by(how.algorithms, bytes.len(), out.len());
    Some((out, saved))
}

/// The negotiated compression, and an estimate of its benefit.
#[derive(Debug, Default)]
pub(super) struct Compressor {
    pub(super) compression: Compression,
    pub(super) level: CompressionLevel,
    sampler: CompressionSampler,
}

impl Compressor {
    /// Returns how to compress a frame with this payload, if that is worthwhile ([MS-SMB2]
    /// 3.2.4.1.9).
    pub(super) fn judge(&self, payload: &[u8]) -> Option<Compression> {
        let how = self.compression.at(self.level);
        self.sampler.is_worthwhile(how.algorithms, payload).then_some(how)
    }
}
