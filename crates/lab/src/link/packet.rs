//! Packets as a TUN device gives them: a virtio header of 10 bytes, then IP.
//!
//! With segmentation offload a packet stands for several segments with one header. [`Shape`] holds their
//! number and sizes; [`cut_out`] makes a packet of some of them. All else passes unchanged, with partial
//! checksums.
//!
//! virtio 1.2, 5.1.6: `flags u8, gso_type u8, hdr_len u16, gso_size u16, csum_start u16, csum_offset u16`; a TUN device
//! has the numbers in the machine's order.

use std::ops::Range;

use super::line::Load;
use super::spec::FRAMING_BYTES;

/// Bytes of the virtio header.
pub(super) const VIRTIO_BYTES: usize = 10;
/// Largest size of a packet with its virtio header, in bytes.
pub(super) const PACKET_MAX_BYTES: usize = VIRTIO_BYTES + 65_535;

const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// Segments of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Offset of the TCP header in the IP packet; 0 for a packet without segmentation.
    tcp_at: usize,
    /// Bytes of IP and TCP headers.
    headers: usize,
    /// Payload of a full segment.
    segment: usize,
    /// Payload of the packet.
    payload: usize,
}

fn number(packet: &[u8], at: usize) -> usize {
    usize::from(u16::from_ne_bytes([packet[at], packet[at + 1]]))
}

impl Shape {
    /// Parses a packet; a packet without segmentation, or an invalid one, is one segment.
    pub(super) fn of(packet: &[u8]) -> Self {
        Self::segmented(packet).unwrap_or(Self {
            tcp_at: 0,
            headers: 0,
            segment: packet.len(),
            payload: packet.len().saturating_sub(VIRTIO_BYTES),
        })
    }

    fn segmented(packet: &[u8]) -> Option<Self> {
        let ip = packet.get(VIRTIO_BYTES..)?;
        let kind = packet[1] & !GSO_ECN;
        let segment = number(packet, 4);
        let version = ip.first()? >> 4;
        let fits = (kind == GSO_TCPV4 && version == 4) || (kind == GSO_TCPV6 && version == 6);
        if !fits || segment == 0 {
            return None;
        }
        // Segmentation implies a partial checksum, whose start is the TCP header.
        let tcp_at = number(packet, 6);
        if tcp_at < if version == 4 { 20 } else { 40 } {
            return None;
        }
        let headers = tcp_at + usize::from(ip.get(tcp_at + 12)? >> 4) * 4;
        let payload = ip
            .len()
            .checked_sub(headers)
            .filter(|payload| *payload > segment)?;
        (headers >= tcp_at + 20).then_some(Self {
            tcp_at,
            headers,
            segment,
            payload,
        })
    }

    /// Number of segments.
    pub(super) fn segments(&self) -> u32 {
        // At most 65,535: the longest payload in segments of one byte.
        self.payload.div_ceil(self.segment).max(1) as u32
    }

    /// Size on the wire.
    pub(super) fn load(&self) -> Load {
        let wire = |payload: usize| (self.headers + payload) as u32 + FRAMING_BYTES;
        let segments = self.segments();
        Load {
            segments,
            full: wire(self.segment.min(self.payload)),
            last: wire(self.payload - (segments as usize - 1) * self.segment),
        }
    }
}

/// Writes a packet with only some of the segments into `out`.
pub(super) fn cut_out(packet: &[u8], shape: Shape, segments: Range<u32>, out: &mut Vec<u8>) {
    debug_assert!(shape.tcp_at > 0, "only segmented packets are cut");
    let (first, end) = (segments.start as usize, segments.end as usize);
    let skipped = first * shape.segment;
    let payload_end = (end * shape.segment).min(shape.payload);
    let body = VIRTIO_BYTES + shape.headers;
    out.clear();
    out.extend_from_slice(&packet[..body]);
    out.extend_from_slice(&packet[body + skipped..body + payload_end]);
    if end - first == 1 {
        out[1] = 0;
        out[4..6].fill(0);
    }
    let ip = &mut out[VIRTIO_BYTES..];
    let old_length = shape.headers + shape.payload;
    let length = ip.len();
    if ip[0] >> 4 == 4 {
        set(ip, 2, length as u16);
        let id = be(ip, 4).wrapping_add(first as u16);
        set(ip, 4, id);
        set(ip, 10, 0);
        let header_bytes = usize::from(ip[0] & 15) * 4;
        let sum = fold(words(&ip[..header_bytes]));
        set(ip, 10, !sum);
    } else {
        set(ip, 4, (length - 40) as u16);
    }
    let tcp = &mut ip[shape.tcp_at..];
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(skipped as u32);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if payload_end < shape.payload {
        tcp[13] &= !TCP_FIN_PSH;
    }
    if first > 0 {
        tcp[13] &= !TCP_CWR;
    }
    // The partial checksum is the sum of the pseudo header with its length (RFC 9293, 3.1; RFC 1624).
    let taken = (old_length - length) as u16;
    let sum = fold(u32::from(be(tcp, 16)) + u32::from(!taken));
    set(tcp, 16, sum);
}

fn be(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn set(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Returns the sum of the words of 16 bits.
pub(super) fn words(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|two| u32::from(be(two, 0))).sum()
}

/// Returns the one's complement sum in 16 bits.
pub(super) fn fold(mut sum: u32) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An offloaded packet: IPv4, TCP with time stamps, `payload` bytes counting up, MSS 1448.
    fn offloaded(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; VIRTIO_BYTES + 52];
        packet[..2].copy_from_slice(&[1, GSO_TCPV4 | GSO_ECN]);
        for (at, value) in [(2, 52_u16), (4, 1448), (6, 20), (8, 16)] {
            packet[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        let length = 52 + payload;
        let ip = &mut packet[VIRTIO_BYTES..];
        ip[0] = 0x45;
        set(ip, 2, length as u16);
        set(ip, 4, 0xFFFE);
        ip[9] = 6;
        ip[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
        let tcp = &mut ip[20..];
        tcp[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        tcp[12] = 8 << 4;
        tcp[13] = TCP_FIN_PSH | TCP_CWR | 0x10;
        set(tcp, 16, pseudo(length - 20));
        packet.extend((0..payload).map(|n| (n % 251) as u8));
        packet
    }

    fn pseudo(length: usize) -> u16 {
        fold(2 * (198 << 8 | 18) + 1 + 2 + 6 + length as u32)
    }

    #[test]
    fn headers_are_charged_for_each_segment() {
        let load = Shape::of(&offloaded(1448 * 44 + 100)).load();
        assert_eq!(
            load,
            Load {
                segments: 45,
                full: 1538,
                last: 190
            }
        );
        let mut plain = offloaded(1448);
        plain[1] = 0;
        assert_eq!(Shape::of(&plain).load(), Load::one(1538));
        assert_eq!(Shape::of(&offloaded(1448)).load(), Load::one(1538));
        assert_eq!(Shape::of(&[0; 12]).load(), Load::one(2 + 38));
    }

    #[test]
    fn nonsense_is_one_segment() {
        for length in VIRTIO_BYTES..80 {
            let mut packet = offloaded(4000);
            packet.truncate(length);
            assert_eq!(Shape::of(&packet).segments(), 1);
        }
        let mut packet = offloaded(4000);
        packet[6..8].copy_from_slice(&60_000_u16.to_ne_bytes());
        assert_eq!(Shape::of(&packet).segments(), 1);
    }

    #[test]
    fn parts_are_what_the_kernel_would_have_sent() {
        let packet = offloaded(1448 * 3 + 10);
        let shape = Shape::of(&packet);
        let mut payload = Vec::new();
        for (range, last) in [(0..1, false), (1..3, false), (3..4, true)] {
            let mut part = Vec::new();
            cut_out(&packet, shape, range.clone(), &mut part);
            let ip = &part[VIRTIO_BYTES..];
            assert_eq!(usize::from(be(ip, 2)), ip.len());
            assert_eq!(be(ip, 4), 0xFFFE_u16.wrapping_add(range.start as u16));
            assert_eq!(fold(words(&ip[..20])), 0xFFFF, "IP checksum");
            let tcp = &ip[20..];
            let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            assert_eq!(sequence, u32::MAX.wrapping_add(range.start * 1448));
            assert_eq!(tcp[13] & TCP_FIN_PSH != 0, last);
            assert_eq!(tcp[13] & TCP_CWR != 0, range.start == 0);
            assert_eq!(be(tcp, 16), pseudo(ip.len() - 20), "partial checksum");
            assert_eq!(part[1] == 0, range.end - range.start == 1);
            assert_eq!(Shape::of(&part).segments(), range.end - range.start);
            payload.extend_from_slice(&ip[52..]);
        }
        assert_eq!(payload, packet[VIRTIO_BYTES + 52..]);
    }

    #[test]
    fn all_of_it_is_itself_but_for_the_ip_checksum() {
        let packet = offloaded(5000);
        let mut whole = Vec::new();
        cut_out(&packet, Shape::of(&packet), 0..4, &mut whole);
        whole[VIRTIO_BYTES + 10..VIRTIO_BYTES + 12].fill(0);
        assert_eq!(whole, packet);
    }
}
