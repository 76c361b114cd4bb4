//! Protocol data units of connection-oriented RPC (C706 12.6, [MS-RPCE] 2.2.2).
//!
//! Each PDU is one fragment. Its header has 16 bytes: version 5.0, type, flags, data representation
//! (`10 00 00 00`: little-endian, ASCII, IEEE), `frag_length`, `auth_length` (0 here), `call_id`.

use crate::{Fault, Malformed, Reader, Result, Writer};
use bitflags::bitflags;

/// Length of the common header in bytes.
const HEADER_LEN: usize = 16;
/// Little-endian integers, ASCII, IEEE (C706 14.1).
const DATA_REPRESENTATION: [u8; 4] = [0x10, 0, 0, 0];
/// Length of what precedes the stub in a request or response, in bytes.
const CALL_HEADER_LEN: usize = HEADER_LEN + 8;
/// Longest fragment sent and accepted, in bytes: the length that Windows proposes on pipes.
pub const FRAGMENT_LEN_MAX: u16 = 4280;
/// Length in bytes that every implementation accepts (C706 12.6.3.1).
const FRAGMENT_LEN_MIN: u16 = 1432;
/// Longest stub reassembled from fragments, in bytes. A guess, enough for some 20,000 shares.
pub const STUB_LEN_MAX: usize = 4 << 20;

bitflags! {
    /// `pfc_flags` (C706 12.6.3.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct PacketFlags: u8 {
        /// The first fragment of a call.
        const FIRST_FRAG = 0x01;
        /// The last fragment of a call.
        const LAST_FRAG = 0x02;
        /// A cancel was pending.
        const PENDING_CANCEL = 0x04;
        /// Calls may run concurrently on the connection.
        const CONC_MPX = 0x10;
        /// Of a fault: the call was not executed.
        const DID_NOT_EXECUTE = 0x20;
        /// Maybe semantics: the call runs at most once and may stay without an answer.
        const MAYBE = 0x40;
        /// Of a request: an object's UUID precedes the stub.
        const OBJECT_UUID = 0x80;
        const _ = !0;
    }
}

/// Identifier of an interface or a transfer syntax: UUID and version (C706 12.6.3.1,
/// `p_syntax_id_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SyntaxId {
    /// UUID as on the wire: the first three fields are little-endian.
    pub uuid: [u8; 16],
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
}

impl SyntaxId {
    /// Creates an identifier from a UUID as a number in writing order (`0x4b324fc8_1670_…`).
    pub const fn new(uuid: u128, major: u16, minor: u16) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = uuid.to_be_bytes();
        let [i, j, k, l, m, n, o, p] = rest;
        Self {
            uuid: [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p],
            major,
            minor,
        }
    }

    /// NDR 2.0, the transfer syntax that every implementation supports.
    pub const NDR: Self = Self::new(0x8a885d04_1ceb_11c9_9fe8_08002b104860, 2, 0);

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            uuid: reader.array()?,
            major: reader.u16()?,
            minor: reader.u16()?,
        })
    }

    fn write(self, writer: &mut Writer<'_>) {
        writer.bytes(&self.uuid);
        writer.u16(self.major);
        writer.u16(self.minor);
    }
}

/// Answer to one proposed presentation context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAckResult {
    /// 0: accepted, 1: user rejection, 2: provider rejection.
    pub result: u16,
    /// Reason for the rejection.
    pub reason: u16,
    /// Chosen transfer syntax; zeros if rejected.
    pub transfer_syntax: SyntaxId,
}

/// Type and content of a PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Part of a call's parameters (type 0).
    Request {
        /// Bytes of the stub in this and later fragments; a hint.
        alloc_hint: u32,
        /// Number of the presentation context that bind proposed.
        context_id: u16,
        /// Number of the procedure.
        opnum: u16,
        /// The parameters, or a part of them.
        stub: &'a [u8],
    },
    /// Part of a call's results (type 2).
    Response {
        /// Bytes of the stub in this and later fragments; a hint.
        alloc_hint: u32,
        /// Number of the presentation context that bind proposed.
        context_id: u16,
        /// The results, or a part of them.
        stub: &'a [u8],
    },
    /// The call failed before or outside of the procedure (type 3).
    Fault {
        /// Number of the presentation context that bind proposed.
        context_id: u16,
        /// Status: `nca_*` (C706 appendix E) or a Win32 code.
        status: u32,
    },
    /// Proposes interfaces and transfer syntaxes for them (type 11).
    Bind {
        /// Longest fragment that the sender will send, in bytes.
        max_xmit_frag: u16,
        /// Longest fragment that the sender accepts, in bytes.
        max_recv_frag: u16,
        /// Association group; 0 asks for a new one.
        assoc_group_id: u32,
        /// Proposed contexts: number, interface, transfer syntaxes.
        contexts: Vec<(u16, SyntaxId, Vec<SyntaxId>)>,
    },
    /// Answers bind (type 12).
    BindAck {
        /// Longest fragment that the sender will send, in bytes.
        max_xmit_frag: u16,
        /// Longest fragment that the sender accepts, in bytes.
        max_recv_frag: u16,
        /// Association group.
        assoc_group_id: u32,
        /// Name of the pipe with NUL, such as `\PIPE\srvsvc`.
        secondary_address: &'a [u8],
        /// One result for each proposed context.
        results: Vec<BindAckResult>,
    },
    /// Rejects bind (type 13).
    BindNak {
        /// Reason (C706 12.6.3.1, `p_reject_reason_t`).
        reject_reason: u16,
    },
}

impl Body<'_> {
    fn packet_type(&self) -> u8 {
        match self {
            Self::Request { .. } => 0,
            Self::Response { .. } => 2,
            Self::Fault { .. } => 3,
            Self::Bind { .. } => 11,
            Self::BindAck { .. } => 12,
            Self::BindNak { .. } => 13,
        }
    }
}

/// One fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// First fragment, last fragment, and so on.
    pub flags: PacketFlags,
    /// Number of the call. A bind and its answer have one too.
    pub call_id: u32,
    /// Content.
    pub body: Body<'a>,
}

impl<'a> Pdu<'a> {
    /// Creates a PDU that is both first and last fragment.
    pub fn whole(call_id: u32, body: Body<'a>) -> Self {
        Self {
            flags: PacketFlags::FIRST_FRAG | PacketFlags::LAST_FRAG,
            call_id,
            body,
        }
    }

    /// Returns the length of the fragment that `bytes` begin with, or `None` if the header is
    /// incomplete.
    ///
    /// # Errors
    /// The bytes are not a little-endian fragment of RPC 5.0, or the fragment is longer than
    /// [`FRAGMENT_LEN_MAX`].
    pub fn length(bytes: &[u8]) -> Result<Option<usize>> {
        if bytes.len() < HEADER_LEN {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes, "RPC header");
        let signature = reader.fault(Fault::Signature);
        let version = reader.array()?;
        reader.skip(2)?;
        // The low half of the first byte is the character set. Nothing here depends on it, nor on
        // the float format.
        let representation: [u8; 4] = reader.array()?;
        if version != [5, 0] || representation[0] & 0xF0 != DATA_REPRESENTATION[0] {
            return Err(signature);
        }
        let value = reader.fault(Fault::Value);
        let length = reader.u16()?;
        if length > FRAGMENT_LEN_MAX || usize::from(length) < HEADER_LEN {
            return Err(value);
        }
        Ok(Some(usize::from(length)))
    }

    /// Returns the call number of a bind that asks for RPC's own authentication, to be rejected.
    /// [`Self::decode`] does not read such a bind.
    pub fn authenticated_bind(bytes: &[u8]) -> Option<u32> {
        Self::length(bytes).ok()??;
        let (_, number) = bytes.get(..HEADER_LEN)?.split_at(HEADER_LEN - 4);
        let is_one = bytes[2] == 11 && bytes[10..12] != [0, 0];
        is_one.then_some(u32::from_le_bytes(*number.first_chunk()?))
    }

    /// Decodes one whole fragment.
    ///
    /// # Errors
    /// The fragment is malformed, of an unknown type, or authenticated.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let truncated = Reader::new(bytes, "RPC fragment").fault(Fault::Truncated);
        let length = Self::length(bytes)?.ok_or(truncated)?;
        let mut reader = Reader::new(bytes.get(..length).ok_or(truncated)?, "RPC fragment");
        reader.skip(2)?;
        let packet_type = reader.u8()?;
        let flags = PacketFlags::from_bits_retain(reader.u8()?);
        reader.skip(6)?;
        let value = reader.fault(Fault::Value);
        if reader.u16()? != 0 {
            return Err(value);
        }
        let call_id = reader.u32()?;
        let body = match packet_type {
            0 => read_request(&mut reader, flags)?,
            2 => read_response(&mut reader)?,
            3 => read_fault(&mut reader)?,
            11 => read_bind(&mut reader)?,
            12 => read_bind_ack(&mut reader)?,
            13 => Body::BindNak {
                reject_reason: reader.u16()?,
            },
            _ => return Err(value),
        };
        let flags = match body {
            Body::Request { .. } => flags.difference(PacketFlags::OBJECT_UUID),
            _ => flags,
        };
        Ok(Self { flags, call_id, body })
    }

    /// Appends the fragment.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writer = &mut Writer::new(out);
        writer.bytes(&[5, 0, self.body.packet_type(), self.flags.bits()]);
        writer.bytes(&DATA_REPRESENTATION);
        writer.u32(0);
        writer.u32(self.call_id);
        write_body(writer, &self.body);
        let length = u16::try_from(writer.position()).expect("a fragment is short");
        assert!(
            length <= FRAGMENT_LEN_MAX,
            "a fragment is no longer than agreed on"
        );
        writer.patch_u16(8, length);
    }

    /// Returns the fragment in a new vector.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

fn read_request<'a>(reader: &mut Reader<'a>, flags: PacketFlags) -> Result<Body<'a>> {
    let alloc_hint = reader.u32()?;
    let context_id = reader.u16()?;
    let opnum = reader.u16()?;
    // Interfaces here have no objects, so the UUID is skipped.
    if flags.contains(PacketFlags::OBJECT_UUID) {
        reader.skip(16)?;
    }
    Ok(Body::Request {
        alloc_hint,
        context_id,
        opnum,
        stub: reader.rest(),
    })
}

fn read_response<'a>(reader: &mut Reader<'a>) -> Result<Body<'a>> {
    let alloc_hint = reader.u32()?;
    let context_id = reader.u16()?;
    // cancel_count and a reserved byte.
    reader.skip(2)?;
    Ok(Body::Response {
        alloc_hint,
        context_id,
        stub: reader.rest(),
    })
}

fn read_fault<'a>(reader: &mut Reader<'_>) -> Result<Body<'a>> {
    reader.skip(4)?;
    let context_id = reader.u16()?;
    reader.skip(2)?;
    Ok(Body::Fault {
        context_id,
        status: reader.u32()?,
    })
}

fn read_bind<'a>(reader: &mut Reader<'_>) -> Result<Body<'a>> {
    let max_xmit_frag = reader.u16()?;
    let max_recv_frag = reader.u16()?;
    let assoc_group_id = reader.u32()?;
    let count = reader.u8()?;
    reader.skip(3)?;
    let mut contexts = Vec::new();
    for _ in 0..count {
        let context_id = reader.u16()?;
        let syntaxes = reader.u8()?;
        reader.skip(1)?;
        let interface = SyntaxId::read(reader)?;
        let syntaxes = (0..syntaxes)
            .map(|_| SyntaxId::read(reader))
            .collect::<Result<_>>()?;
        contexts.push((context_id, interface, syntaxes));
    }
    Ok(Body::Bind {
        max_xmit_frag,
        max_recv_frag,
        assoc_group_id,
        contexts,
    })
}

fn read_bind_ack<'a>(reader: &mut Reader<'a>) -> Result<Body<'a>> {
    let max_xmit_frag = reader.u16()?;
    let max_recv_frag = reader.u16()?;
    let assoc_group_id = reader.u32()?;
    let length = reader.u16()?;
    let secondary_address = reader.bytes(usize::from(length))?;
    reader.skip(reader.position().next_multiple_of(4) - reader.position())?;
    let count = reader.u8()?;
    reader.skip(3)?;
    let mut results = Vec::new();
    for _ in 0..count {
        results.push(BindAckResult {
            result: reader.u16()?,
            reason: reader.u16()?,
            transfer_syntax: SyntaxId::read(reader)?,
        });
    }
    Ok(Body::BindAck {
        max_xmit_frag,
        max_recv_frag,
        assoc_group_id,
        secondary_address,
        results,
    })
}

fn write_body(writer: &mut Writer<'_>, body: &Body<'_>) {
    match body {
        Body::Request {
            alloc_hint,
            context_id,
            opnum,
            stub,
        } => {
            writer.u32(*alloc_hint);
            writer.u16(*context_id);
            writer.u16(*opnum);
            writer.bytes(stub);
        }
        Body::Response {
            alloc_hint,
            context_id,
            stub,
        } => {
            writer.u32(*alloc_hint);
            writer.u16(*context_id);
            writer.u16(0);
            writer.bytes(stub);
        }
        Body::Fault { context_id, status } => {
            writer.u32(0);
            writer.u16(*context_id);
            writer.u16(0);
            writer.u32(*status);
            writer.u32(0);
        }
        Body::BindNak { reject_reason } => writer.u16(*reject_reason),
        Body::Bind { .. } | Body::BindAck { .. } => write_bind(writer, body),
    }
}

fn write_bind(writer: &mut Writer<'_>, body: &Body<'_>) {
    let count = |length: usize| u8::try_from(length).expect("few contexts are proposed");
    match body {
        Body::Bind {
            max_xmit_frag,
            max_recv_frag,
            assoc_group_id,
            contexts,
        } => {
            writer.u16(*max_xmit_frag);
            writer.u16(*max_recv_frag);
            writer.u32(*assoc_group_id);
            writer.bytes(&[count(contexts.len()), 0, 0, 0]);
            for (context_id, interface, syntaxes) in contexts {
                writer.u16(*context_id);
                writer.bytes(&[count(syntaxes.len()), 0]);
                interface.write(writer);
                for syntax in syntaxes {
                    syntax.write(writer);
                }
            }
        }
        Body::BindAck {
            max_xmit_frag,
            max_recv_frag,
            assoc_group_id,
            secondary_address,
            results,
        } => {
            writer.u16(*max_xmit_frag);
            writer.u16(*max_recv_frag);
            writer.u32(*assoc_group_id);
            writer.u16(u16::try_from(secondary_address.len()).expect("names of pipes are short"));
            writer.bytes(secondary_address);
            writer.align(4);
            writer.bytes(&[count(results.len()), 0, 0, 0]);
            for result in results {
                writer.u16(result.result);
                writer.u16(result.reason);
                result.transfer_syntax.write(writer);
            }
        }
        _ => {}
    }
}

/// Splits a call's parameters into fragments of at most `length_max` bytes, the longest that the
/// peer accepts. The smallest limit is what every implementation accepts.
pub fn request_fragments(
    call_id: u32,
    context_id: u16,
    opnum: u16,
    stub: &[u8],
    length_max: u16,
) -> Vec<Vec<u8>> {
    fragments(call_id, stub, length_max, |alloc_hint, stub| Body::Request {
        alloc_hint,
        context_id,
        opnum,
        stub,
    })
}

/// Splits a call's results into fragments of at most `length_max` bytes.
pub fn response_fragments(call_id: u32, context_id: u16, stub: &[u8], length_max: u16) -> Vec<Vec<u8>> {
    fragments(call_id, stub, length_max, |alloc_hint, stub| Body::Response {
        alloc_hint,
        context_id,
        stub,
    })
}

fn fragments<'a>(
    call_id: u32,
    stub: &'a [u8],
    length_max: u16,
    body: impl Fn(u32, &'a [u8]) -> Body<'a>,
) -> Vec<Vec<u8>> {
    let length_max = usize::from(length_max.clamp(FRAGMENT_LEN_MIN, FRAGMENT_LEN_MAX));
    // NDR aligns to 8 at most. Whole multiples of it keep the alignment inside each fragment.
    let part_max = (length_max - CALL_HEADER_LEN) & !7;
    let mut fragments = Vec::new();
    let mut rest = stub;
    loop {
        let (part, after) = rest.split_at(rest.len().min(part_max));
        let mut flags = PacketFlags::default();
        if fragments.is_empty() {
            flags |= PacketFlags::FIRST_FRAG;
        }
        if after.is_empty() {
            flags |= PacketFlags::LAST_FRAG;
        }
        let alloc_hint = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let body = body(alloc_hint, part);
        fragments.push(Pdu { flags, call_id, body }.to_bytes());
        rest = after;
        if rest.is_empty() {
            return fragments;
        }
    }
}

/// Splits the bytes of a pipe into fragments. A read may end inside a fragment
/// (STATUS_BUFFER_OVERFLOW) or return several.
#[derive(Clone, Debug, Default)]
pub struct Fragments {
    bytes: Vec<u8>,
}

impl Fragments {
    /// Adds bytes read from the pipe.
    pub fn push(&mut self, bytes: &[u8]) {
        // Copied: a fragment has at most 4,280 bytes and may arrive in pieces.
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes and returns the next fragment, if it is complete.
    ///
    /// # Errors
    /// The bytes are not a fragment. Nothing after them can be read.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>> {
        match Pdu::length(&self.bytes)? {
            Some(length) if length <= self.bytes.len() => {
                let rest = self.bytes.split_off(length);
                Ok(Some(std::mem::replace(&mut self.bytes, rest)))
            }
            _ => Ok(None),
        }
    }
}

/// Joins the fragments of a stub of at most [`STUB_LEN_MAX`] bytes.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    stub: Vec<u8>,
    is_begun: bool,
}

impl Reassembly {
    /// Adds a fragment's stub. Returns the whole stub after the last fragment.
    ///
    /// # Errors
    /// Fragments are out of order, or the stub is too long.
    pub fn push(&mut self, flags: PacketFlags, stub: &[u8]) -> Result<Option<Vec<u8>>> {
        let fault = |fault| {
            Err(Malformed {
                structure: "RPC fragments",
                fault,
                at: 0,
            })
        };
        if flags.contains(PacketFlags::FIRST_FRAG) == self.is_begun {
            return fault(Fault::Chain);
        }
        if stub.len() > STUB_LEN_MAX - self.stub.len() {
            return fault(Fault::Value);
        }
        self.is_begun = true;
        self.stub.extend_from_slice(stub);
        if !flags.contains(PacketFlags::LAST_FRAG) {
            return Ok(None);
        }
        self.is_begun = false;
        Ok(Some(std::mem::take(&mut self.stub)))
    }
}
