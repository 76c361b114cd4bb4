//! DNS messages for multicast DNS (RFC 1035, RFC 6762): decodes what a responder reads and encodes
//! what it sends.
//!
//! Decoding never panics and always ends: a compressed name points backwards only, and every count
//! is bounded by the packet.

use std::net::IpAddr;

/// Maximum size of a packet in bytes: fits into a link's MTU of 9,000 (RFC 6762, 17).
pub(super) const PACKET_MAX: usize = 9000;
/// Maximum length of a name in bytes, length bytes included (RFC 1035, 2.3.4).
const NAME_MAX: usize = 255;
/// Maximum length of a label in bytes.
pub(super) const LABEL_MAX: usize = 63;
/// Maximum number of records in a packet. A guess: real packets have a few dozen.
const RECORDS_MAX: usize = 512;
/// Length of the header in bytes.
const HEADER_LEN: usize = 12;

/// Record types.
pub(super) mod kind {
    pub(in super::super) const A: u16 = 1;
    pub(in super::super) const PTR: u16 = 12;
    pub(in super::super) const TXT: u16 = 16;
    pub(in super::super) const AAAA: u16 = 28;
    pub(in super::super) const SRV: u16 = 33;
    pub(in super::super) const ANY: u16 = 255;
}

/// The class "Internet".
const IN: u16 = 1;
/// Cache-flush bit in a record's class: older records of the name are void (RFC 6762, 10.2).
const FLUSH: u16 = 0x8000;

/// A domain name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(pub(super) Vec<Vec<u8>>);

impl Name {
    /// Makes a name from labels; labels that are too long are cut at a character boundary.
    pub(super) fn new(labels: &[&str]) -> Self {
        let cut = |label: &&str| label.as_bytes()[..label.floor_char_boundary(LABEL_MAX)].to_vec();
        Self(labels.iter().map(cut).collect())
    }

    /// Returns whether both names are equal; ASCII letters are case-insensitive (RFC 6762, 16).
    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|(own, other)| own.eq_ignore_ascii_case(other))
    }
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) name: Name,
    pub(super) kind: u16,
}

/// Data of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Pointer(Name),
    Address(IpAddr),
    Service {
        port: u16,
        target: Name,
    },
    Text(Vec<Vec<u8>>),
    /// Data of any other type.
    Other(u16),
}

impl Data {
    pub(super) fn kind(&self) -> u16 {
        match self {
            Self::Pointer(_) => kind::PTR,
            Self::Address(IpAddr::V4(_)) => kind::A,
            Self::Address(IpAddr::V6(_)) => kind::AAAA,
            Self::Service { .. } => kind::SRV,
            Self::Text(_) => kind::TXT,
            Self::Other(kind) => *kind,
        }
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: Name,
    pub(super) ttl_s: u32,
    /// Whether only one responder has records of this name and type.
    pub(super) is_unique: bool,
    pub(super) data: Data,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: u16,
    pub(super) is_response: bool,
    pub(super) questions: Vec<Question>,
    pub(super) answers: Vec<Record>,
    pub(super) authorities: Vec<Record>,
}

impl Message {
    /// Decodes a packet. Returns `None` if it is malformed, is not a query or response, or reports
    /// an error.
    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let mut reader = Reader { packet, at: 0 };
        let id = reader.u16()?;
        let flags = reader.u16()?;
        // Messages with another opcode or result than 0 are ignored (RFC 6762, 18.3 and 18.11).
        if flags & 0x780F != 0 {
            return None;
        }
        let counts = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?].map(usize::from);
        if counts.iter().sum::<usize>() > RECORDS_MAX {
            return None;
        }
        let mut message = Self {
            id,
            is_response: flags & 0x8000 != 0,
            ..Self::default()
        };
        for _ in 0..counts[0] {
            let name = reader.name()?;
            let kind = reader.u16()?;
            _ = reader.u16()?;
            message.questions.push(Question { name, kind });
        }
        for _ in 0..counts[1] {
            message.answers.push(reader.record()?);
        }
        for _ in 0..counts[2] {
            message.authorities.push(reader.record()?);
        }
        // A responder does not need the additional records.
        Some(message)
    }

    /// Encodes the message without name compression.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(512);
        // Responses are authoritative (RFC 6762, 18.4).
        let flags: u16 = if self.is_response { 0x8400 } else { 0 };
        let count = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
        for field in [
            self.id,
            flags,
            count(self.questions.len()),
            count(self.answers.len()),
            count(self.authorities.len()),
            0,
        ] {
            packet.extend(field.to_be_bytes());
        }
        for question in &self.questions {
            put_name(&mut packet, &question.name);
            packet.extend(question.kind.to_be_bytes());
            packet.extend(IN.to_be_bytes());
        }
        for record in self.answers.iter().chain(&self.authorities) {
            put_record(&mut packet, record);
        }
        packet
    }
}

fn put_name(packet: &mut Vec<u8>, name: &Name) {
    for label in &name.0 {
        packet.push(u8::try_from(label.len()).unwrap_or_default());
        packet.extend_from_slice(label);
    }
    packet.push(0);
}

fn put_record(packet: &mut Vec<u8>, record: &Record) {
    put_name(packet, &record.name);
    packet.extend(record.data.kind().to_be_bytes());
    let class = if record.is_unique { IN | FLUSH } else { IN };
    packet.extend(class.to_be_bytes());
    packet.extend(record.ttl_s.to_be_bytes());
    let mut data = Vec::new();
    match &record.data {
        Data::Pointer(name) => put_name(&mut data, name),
        Data::Address(IpAddr::V4(address)) => data.extend(address.octets()),
        Data::Address(IpAddr::V6(address)) => data.extend(address.octets()),
        Data::Service { port, target } => {
            // Priority and weight are 0, because there is one server.
            data.extend([0; 4]);
            data.extend(port.to_be_bytes());
            put_name(&mut data, target);
        }
        Data::Text(texts) => {
            for text in texts {
                let text = &text[..text.len().min(255)];
                data.push(u8::try_from(text.len()).unwrap_or_default());
                data.extend_from_slice(text);
            }
            // A TXT record has at least one string (RFC 6763, 6.1).
            if texts.is_empty() {
                data.push(0);
            }
        }
        Data::Other(_) => {}
    }
    packet.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
    packet.extend(data);
}

struct Reader<'a> {
    packet: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(length)?;
        let bytes = self.packet.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    fn name(&mut self) -> Option<Name> {
        let mut labels = Vec::new();
        let mut length_total = 1;
        let mut at = self.at;
        let mut end = None;
        loop {
            let length = usize::from(*self.packet.get(at)?);
            match length >> 6 {
                0 if length == 0 => {
                    self.at = end.unwrap_or(at + 1);
                    return Some(Name(labels));
                }
                0 => {
                    length_total += 1 + length;
                    if length_total > NAME_MAX {
                        return None;
                    }
                    labels.push(self.packet.get(at + 1..at + 1 + length)?.to_vec());
                    at += 1 + length;
                }
                3 => {
                    let low = usize::from(*self.packet.get(at + 1)?);
                    let target = (length & 0x3F) << 8 | low;
                    // Pointers go backwards only, so the loop ends.
                    if target >= at || target < HEADER_LEN {
                        return None;
                    }
                    end.get_or_insert(at + 2);
                    at = target;
                }
                _ => return None,
            }
        }
    }

    fn record(&mut self) -> Option<Record> {
        let name = self.name()?;
        let kind = self.u16()?;
        let class = self.u16()?;
        let ttl_s = self.u32()?;
        let length = usize::from(self.u16()?);
        let end = self.at.checked_add(length)?;
        if end > self.packet.len() {
            return None;
        }
        let data = match (kind, length) {
            (kind::PTR, _) => Data::Pointer(self.name()?),
            (kind::A, 4) => Data::Address(IpAddr::from(<[u8; 4]>::try_from(self.take(4)?).ok()?)),
            (kind::AAAA, 16) => Data::Address(IpAddr::from(<[u8; 16]>::try_from(self.take(16)?).ok()?)),
            (kind::SRV, 7..) => {
                _ = self.u32()?;
                let port = self.u16()?;
                let target = self.name()?;
                Data::Service { port, target }
            }
            _ => Data::Other(kind),
        };
        // A name that extends beyond its record is malformed.
        if self.at > end {
            return None;
        }
        self.at = end;
        Some(Record {
            name,
            ttl_s,
            is_unique: class & FLUSH != 0,
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Message {
        let name = |labels: &[&str]| Name::new(labels);
        let record = |data| Record {
            name: name(&["nas", "local"]),
            ttl_s: 120,
            is_unique: true,
            data,
        };
        Message {
            id: 7,
            is_response: true,
            questions: vec![Question {
                name: name(&["_smb", "_tcp", "local"]),
                kind: kind::PTR,
            }],
            answers: vec![
                record(Data::Pointer(name(&["Ann's NAS", "_smb", "_tcp", "local"]))),
                record(Data::Address("192.0.2.7".parse().unwrap())),
                record(Data::Address("2001:db8::7".parse().unwrap())),
            ],
            authorities: vec![record(Data::Service {
                port: 445,
                target: name(&["nas", "local"]),
            })],
        }
    }

    #[test]
    fn an_encoded_message_decodes_to_itself() {
        assert_eq!(Message::decode(&sample().encode()), Some(sample()));
    }

    #[test]
    fn encoded_bytes_match_the_rfc() {
        let query = Message {
            questions: vec![Question {
                name: Name::new(&["_smb", "_tcp", "local"]),
                kind: kind::PTR,
            }],
            ..Message::default()
        };
        let expected = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x04_smb\x04_tcp\x05local\0\0\x0c\0\x01";
        assert_eq!(query.encode(), expected);
        // The same record twice; the second name is compressed.
        let twice =
            b"\0\0\0\0\0\x02\0\0\0\0\0\0\x04_smb\x04_tcp\x05local\0\0\x0c\0\x01\xc0\x0c\0\xff\x80\x01";
        let message = Message::decode(twice).unwrap();
        assert!(message.questions[0].name.is(&message.questions[1].name));
        assert_eq!(message.questions[1].kind, kind::ANY);
        let text = Record {
            name: Name::new(&["a"]),
            ttl_s: 1,
            is_unique: true,
            data: Data::Text(Vec::new()),
        };
        let mut packet = Vec::new();
        put_record(&mut packet, &text);
        assert_eq!(packet, b"\x01a\0\0\x10\x80\x01\0\0\0\x01\0\x01\0");
    }

    #[test]
    fn compression_loops_are_refused() {
        for name in [
            &b"\xc0\x0c"[..],
            b"\x01a\xc0\x0c",
            b"\xc0\xff",
            b"\x40aa\0",
            b"\x3f",
            b"\xc0\x00",
        ] {
            let packet = [&b"\0\0\0\0\0\x01\0\0\0\0\0\0"[..], name, b"\0\x0c\0\x01"].concat();
            assert_eq!(Message::decode(&packet), None, "{name:?}");
        }
        let long = [b"\x3f".to_vec(), vec![b'x'; 63]].concat().repeat(5);
        let packet = [&b"\0\0\0\0\0\x01\0\0\0\0\0\0"[..], &long, b"\0\0\x0c\0\x01"].concat();
        assert_eq!(Message::decode(&packet), None);
    }

    #[test]
    fn a_truncated_message_is_refused() {
        let packet = sample().encode();
        for length in 0..packet.len() {
            assert_eq!(Message::decode(&packet[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn random_input_never_panics(packet in proptest::collection::vec(any::<u8>(), 0..200)) {
            _ = Message::decode(&packet);
        }

        #[test]
        fn a_flipped_byte_never_panics(at in 0_usize..150, value in any::<u8>()) {
            let mut packet = sample().encode();
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
            _ = Message::decode(&packet);
        }
    }
}
