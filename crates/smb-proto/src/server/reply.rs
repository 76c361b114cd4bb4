//! A frame of replies: encoded in place, then signed, possibly compressed, and sealed in place.

use std::collections::HashMap;
use std::ops::Range;

use ropeway_smb_wire::error::ErrorResponse;
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, frame_header};
use ropeway_smb_wire::header::{
    COMPOUND_ALIGNMENT, FLAGS_OFFSET, Header, HeaderFlags, NEXT_COMMAND_OFFSET, SIGNATURE_LEN,
    SIGNATURE_OFFSET,
};
use ropeway_smb_wire::{NtStatus, SessionId, Writer};

use super::channel::Channel;
use crate::compression::{Algorithms, compress_if_worthwhile};
use crate::crypto::{Sender, Signer, TRANSFORM_HEADER_LEN};

/// Minimum length in bytes of a frame whose payload is read into the spare buffer. Zeroing less costs
/// less than another buffer (a guess).
const SPARE_MIN: usize = 16 << 10;

/// Replies that are sent in one frame. The buffer begins with room for the frame header and, if
/// sealed, the transform header.
pub struct ReplyFrame {
    out: Vec<u8>,
    /// A buffer for a large payload. Its bytes are initialized, so reading into it needs no zeros.
    spare: Vec<u8>,
    start: usize,
    messages: Vec<Reply>,
    /// Offset of the first payload that may be compressed, and how.
    compress_from: Option<(usize, Algorithms)>,
}

struct Reply {
    range: Range<usize>,
    signer: Option<SessionId>,
}

impl ReplyFrame {
    /// Gives back what the frame's buffer has beyond its replies.
    pub fn shrink(&mut self) {
        self.out.shrink_to_fit();
    }

    /// Creates an empty frame in a reused buffer. `sealed`: the frame will be encrypted.
    pub fn new(mut buffer: Vec<u8>, sealed: bool) -> Self {
        let start = FRAME_HEADER_LEN + if sealed { TRANSFORM_HEADER_LEN } else { 0 };
        buffer.clear();
        buffer.resize(start, 0);
        Self {
            out: buffer,
            spare: Vec::new(),
            start,
            messages: Vec::new(),
            compress_from: None,
        }
    }

    /// Sets a used buffer to read a large payload into. Its length should be that of its last frame:
    /// what lies within is overwritten, what lies beyond is zeroed first.
    pub fn with_spare(mut self, spare: Vec<u8>) -> Self {
        self.spare = spare;
        self
    }

    /// Returns the buffer that the frame does not use, for another frame.
    pub fn take_spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    /// Returns the buffer of a frame that is not sent.
    pub fn into_buffer(self) -> Vec<u8> {
        self.out
    }

    /// Makes `out` at least `length` bytes long. What it gains may hold bytes of an earlier frame.
    fn grow(&mut self, length: usize) {
        if self.out.len() < SPARE_MIN && length >= SPARE_MIN {
            if self.spare.len() < length {
                self.spare.resize(length, 0);
            }
            self.spare[..self.out.len()].copy_from_slice(&self.out);
            std::mem::swap(&mut self.out, &mut self.spare);
        } else {
            self.out.resize(length, 0);
        }
    }

    /// Returns whether no reply was pushed.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the length in bytes so far, including the headers before the first message.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Appends a reply. `body` writes what follows the header. `signer` is the session whose key
    /// signs the reply, unless the frame is sealed.
    pub fn push(&mut self, header: &Header, signer: Option<SessionId>, body: impl FnOnce(&mut Writer<'_>)) {
        self.begin(header, signer);
        let start = self.messages.last().map_or(self.start, |reply| reply.range.start);
        body(&mut Writer::within(&mut self.out, start));
        self.end();
    }

    /// Appends a reply with an encoded body.
    pub fn push_bytes(&mut self, header: &Header, signer: Option<SessionId>, body: &[u8]) {
        self.begin(header, signer);
        self.out.extend_from_slice(body);
        self.end();
    }

    /// Appends an encoded reply, including its header.
    pub fn push_message(&mut self, message: &[u8], signer: Option<SessionId>) {
        self.align();
        let start = self.out.len();
        self.out.extend_from_slice(message);
        self.messages.push(Reply {
            range: start..self.out.len(),
            signer,
        });
    }

    /// Returns the replies before they are signed, each with the session whose key will sign it.
    pub fn replies(&self) -> impl Iterator<Item = (&[u8], Option<SessionId>)> {
        let messages = self.messages.iter();
        messages.map(|reply| (&self.out[reply.range.clone()], reply.signer))
    }

    /// Appends an ERROR response ([MS-SMB2] 2.2.2).
    pub fn push_error(&mut self, header: &Header, signer: Option<SessionId>) {
        self.push(header, signer, |w| ErrorResponse::EMPTY.encode(w));
    }

    /// Appends a reply with a payload that is read straight into the frame. `read` fills a buffer
    /// of `length_max` bytes and returns the number of bytes it filled. `fixed` then writes the
    /// `fixed_len` bytes between header and payload. Without a payload (`None`, or an error)
    /// nothing is appended.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn push_payload(
        &mut self,
        header: &Header,
        signer: Option<SessionId>,
        fixed_len: usize,
        length_max: usize,
        read: impl FnOnce(&mut [u8]) -> Result<Option<usize>, NtStatus>,
        fixed: impl FnOnce(usize, &mut Writer<'_>),
    ) -> Result<Option<usize>, NtStatus> {
        let before = self.out.len();
        self.begin(header, signer);
        let message = self.messages.last().map_or(self.start, |reply| reply.range.start);
        let body = self.out.len();
        let payload = body + fixed_len;
        self.grow(payload + length_max);
        match read(&mut self.out[payload..payload + length_max]) {
            Ok(Some(count)) => {
                self.out.truncate(payload + count.min(length_max));
                // Offsets count from the header, so the fixed part is first written after a
                // placeholder for it.
                let mut head = vec![0; body - message];
                fixed(count, &mut Writer::within(&mut head, 0));
                self.out[body..payload].copy_from_slice(&head[body - message..][..fixed_len]);
                self.end();
                Ok(Some(count))
            }
            other => {
                self.messages.pop();
                self.out.truncate(before);
                other
            }
        }
    }

    /// Allows compression of the last `length` bytes of the last reply with these of the negotiated
    /// algorithms, if they are `worth` it ([MS-SMB2] 3.3.4.1.5), and of everything that follows.
    pub fn compress_payload(
        &mut self,
        algorithms: Algorithms,
        length: usize,
        worth: impl FnOnce(&[u8]) -> bool,
    ) {
        let at = self.out.len().saturating_sub(length).max(self.start);
        if self.compress_from.is_none() && worth(&self.out[at..]) {
            self.compress_from = Some((at, algorithms));
        }
    }

    fn begin(&mut self, header: &Header, signer: Option<SessionId>) {
        self.align();
        let start = self.out.len();
        header.encode(&mut Writer::new(&mut self.out));
        self.messages.push(Reply {
            range: start..start,
            signer,
        });
    }

    /// Pads the last reply to make room for another.
    fn align(&mut self) {
        if let Some(last) = self.messages.last_mut() {
            let length = (self.out.len() - last.range.start).next_multiple_of(COMPOUND_ALIGNMENT);
            self.out.resize(last.range.start + length, 0);
            last.range.end = self.out.len();
            // The cast is exact: a frame is shorter than 16 MiB.
            let next = (length as u32).to_le_bytes();
            self.out[last.range.start + NEXT_COMMAND_OFFSET..][..4].copy_from_slice(&next);
        }
    }

    /// Pads the last reply of a compound. Windows aligns its end too ([MS-SMB2] 3.3.4.1.3;
    /// smb2.compound.compound-padding).
    fn pad_last(&mut self) {
        if self.messages.len() > 1
            && let Some(last) = self.messages.last_mut()
        {
            let length = last.range.len().next_multiple_of(COMPOUND_ALIGNMENT);
            last.range.end = last.range.start + length;
            self.out.resize(last.range.end, 0);
        }
    }

    fn end(&mut self) {
        let end = self.out.len();
        if let Some(last) = self.messages.last_mut() {
            last.range.end = end;
        }
    }

    /// Returns the messages without frame header, for the preauthentication hash and for tests.
    pub fn plain(&self) -> &[u8] {
        &self.out[self.start..]
    }

    /// Signs the replies, compresses them (`chained`, if negotiated), and seals the whole for the
    /// session `seal`.
    /// Returns the frame, ready to be sent. Signatures cover the uncompressed messages ([MS-SMB2]
    /// 3.3.4.1).
    ///
    /// # Errors
    /// [`NtStatus::ENCRYPTION_FAILED`] without a key, or when its nonces are used up. The
    /// connection must end.
    pub(super) fn finish(
        mut self,
        channels: &mut HashMap<SessionId, Channel>,
        seal: Option<SessionId>,
        chained: bool,
    ) -> Result<Vec<u8>, NtStatus> {
        self.pad_last();
        if seal.is_some() {
            // [MS-SMB2] 3.3.4.1.1: a sealed message has no signature, even if the request had one.
            for reply in &self.messages {
                let signed = HeaderFlags::SIGNED.bits() as u8;
                self.out[reply.range.start + FLAGS_OFFSET] &= !signed;
                self.out[reply.range.start + SIGNATURE_OFFSET..][..SIGNATURE_LEN].fill(0);
            }
        } else {
            for reply in &self.messages {
                let signer = reply.signer.and_then(|session| channels.get(&session)?.signer());
                if let Some(signer) = signer {
                    sign(&mut self.out[reply.range.clone()], signer);
                }
            }
        }
        self.compress(chained);
        if let Some(session) = seal {
            let ticket = channels
                .get_mut(&session)
                .and_then(Channel::seal_ticket)
                .ok_or(NtStatus::ENCRYPTION_FAILED)?;
            let header = ticket.seal(session, &mut self.out[self.start..]);
            self.out[FRAME_HEADER_LEN..self.start].copy_from_slice(&header);
        }
        let length = self.out.len() - FRAME_HEADER_LEN;
        self.out[..FRAME_HEADER_LEN].copy_from_slice(&frame_header(length));
        Ok(self.out)
    }

    fn compress(&mut self, chained: bool) {
        let Some((from, algorithms)) = self.compress_from else {
            return;
        };
        let messages = &self.out[self.start..];
        if let Some(compressed) = compress_if_worthwhile(algorithms, chained, from - self.start, messages) {
            // This copies, but keeps the frame's buffer.
            self.out.truncate(self.start);
            self.out.extend_from_slice(&compressed);
        }
    }
}

/// Signs a message whose signature field is zero ([MS-SMB2] 3.1.4.1).
fn sign(message: &mut [u8], signer: &Signer) {
    let flags = HeaderFlags::SIGNED.bits().to_le_bytes();
    for (byte, flag) in message[FLAGS_OFFSET..].iter_mut().zip(flags) {
        *byte |= flag;
    }
    let signature = signer.sign(Sender::Server, &[message]);
    message[SIGNATURE_OFFSET..][..SIGNATURE_LEN].copy_from_slice(&signature);
}
