//! Small TCP windows, enforced on the line: no segment announces more, and none negotiates a scale.
//!
//! A window on the route (ip-route(8)) is only the start: since 6.9 Linux ignores it as soon as it has
//! measured the use of its buffers. The other end sees what passes here.

use super::packet::{VIRTIO_BYTES, fold, words};

/// virtio 1.2, 5.1.6: the checksum is computed later, so changes need no update.
const NEEDS_CHECKSUM: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const TCP_SYN: u8 = 0x02;
/// [RFC 9293] 3.2, [RFC 7323] 2.2.
const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
const OPTION_SCALE: u8 = 3;

/// Lowers the window of a TCP segment over IPv4, and removes the window scale from a SYN. Other packets stay
/// unchanged.
pub(super) fn clamp(packet: &mut [u8], most: u16) {
    let has_checksum = packet.first().is_some_and(|flags| flags & NEEDS_CHECKSUM == 0);
    let Some(header) = tcp_header(packet) else { return };
    let before = sum(header);
    if header[13] & TCP_SYN != 0 {
        remove_scale(&mut header[20..]);
    }
    let window = u16::from_be_bytes([header[14], header[15]]).min(most);
    header[14..16].copy_from_slice(&window.to_be_bytes());
    if has_checksum {
        // [RFC 1624] 3: subtract the old header and add the new one.
        let old = u16::from_be_bytes([header[16], header[17]]);
        let new = !fold(u32::from(!old) + u32::from(!before) + u32::from(sum(header)));
        header[16..18].copy_from_slice(&new.to_be_bytes());
    }
}

/// Returns the TCP header with its options, if the packet has all of it.
fn tcp_header(packet: &mut [u8]) -> Option<&mut [u8]> {
    let ip = packet.get_mut(VIRTIO_BYTES..)?;
    let (first, protocol) = (*ip.first()?, *ip.get(9)?);
    let is_first_part = u16::from_be_bytes([ip[6], ip[7]]) & 0x1FFF == 0;
    if first >> 4 != 4 || protocol != PROTOCOL_TCP || !is_first_part {
        return None;
    }
    let at = usize::from(first & 15) * 4;
    let length = usize::from(ip.get(at + 12)? >> 4) * 4;
    if at < 20 || length < 20 {
        return None;
    }
    ip.get_mut(at..at + length)
}

fn remove_scale(options: &mut [u8]) {
    let mut at = 0;
    while let Some(kind) = options.get(at) {
        match *kind {
            OPTION_END => return,
            OPTION_NOTHING => at += 1,
            kind => {
                let length = options.get(at + 1).map_or(0, |length| usize::from(*length));
                let Some(option) = options
                    .get_mut(at..at + length)
                    .filter(|option| option.len() >= 2)
                else {
                    return;
                };
                if kind == OPTION_SCALE {
                    option.fill(OPTION_NOTHING);
                }
                at += length;
            }
        }
    }
}

/// Returns the sum of a TCP header without its checksum.
fn sum(header: &[u8]) -> u16 {
    fold(words(&header[..16]) + words(&header[18..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A segment with options, its checksum made over the header alone.
    fn segment(flags: u8, window: u16, options: &[u8], partial: bool) -> Vec<u8> {
        let mut packet = vec![0; VIRTIO_BYTES + 20 + 20];
        packet[0] = u8::from(partial);
        packet.extend_from_slice(options);
        let tcp = VIRTIO_BYTES + 20;
        packet[VIRTIO_BYTES] = 0x45;
        packet[VIRTIO_BYTES + 9] = PROTOCOL_TCP;
        packet[tcp + 12] = ((20 + options.len()) / 4 * 16) as u8;
        packet[tcp + 13] = flags;
        packet[tcp + 14..tcp + 16].copy_from_slice(&window.to_be_bytes());
        let checksum = if partial { 0x1234 } else { !sum(&packet[tcp..]) };
        packet[tcp + 16..tcp + 18].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    fn field(packet: &[u8], at: usize) -> u16 {
        let tcp = VIRTIO_BYTES + 20;
        u16::from_be_bytes([packet[tcp + at], packet[tcp + at + 1]])
    }

    #[test]
    fn windows_are_lowered_and_never_raised() {
        for (window, wanted) in [(65_535, 17_520), (17_520, 17_520), (100, 100), (0, 0)] {
            let mut packet = segment(0x10, window, &[1, 1, 1, 1], false);
            clamp(&mut packet, 17_520);
            assert_eq!(field(&packet, 14), wanted);
            assert_eq!(field(&packet, 16), !sum(&packet[VIRTIO_BYTES + 20..]));
        }
        let mut packet = segment(0x10, 65_535, &[], true);
        clamp(&mut packet, 17_520);
        assert_eq!((field(&packet, 14), field(&packet, 16)), (17_520, 0x1234));
    }

    #[test]
    fn a_syn_loses_its_scale_and_nothing_else() {
        let options = [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7];
        let mut packet = segment(TCP_SYN, 64_240, &options, false);
        clamp(&mut packet, 65_535);
        let mut wanted = options;
        wanted[17..].fill(1);
        assert_eq!(packet[VIRTIO_BYTES + 40..], wanted);
        assert_eq!(field(&packet, 16), !sum(&packet[VIRTIO_BYTES + 20..]));
        let mut later = segment(0x10, 1, &options, false);
        let before = later.clone();
        clamp(&mut later, 65_535);
        assert_eq!(later, before);
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(mut bytes in prop::collection::vec(any::<u8>(), 0..120), tcp in any::<bool>()) {
            if tcp && bytes.len() > VIRTIO_BYTES + 10 {
                bytes[VIRTIO_BYTES] = 0x45;
                bytes[VIRTIO_BYTES + 6] = 0;
                bytes[VIRTIO_BYTES + 7] = 0;
                bytes[VIRTIO_BYTES + 9] = PROTOCOL_TCP;
            }
            let length = bytes.len();
            clamp(&mut bytes, 17_520);
            prop_assert_eq!(bytes.len(), length);
        }
    }
}
