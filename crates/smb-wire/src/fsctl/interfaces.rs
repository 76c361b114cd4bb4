//! The server's network interfaces, for more channels to it ([MS-SMB2] 2.2.32.5).

// Addresses are only values: `core`, not the sockets of `std`.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::lengths::{len_u32, place};
use crate::{Fault, Reader, Result, Writer};
use bitflags::bitflags;

bitflags! {
    /// What an interface can do ([MS-SMB2] 2.2.32.5 `Capability`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct InterfaceCapability: u32 {
        /// Spreads connections over processors: several channels to it are of use.
        const RSS_CAPABLE = 0x0000_0001;
        /// RDMA.
        const RDMA_CAPABLE = 0x0000_0002;
        const _ = !0;
    }
}

/// NETWORK_INTERFACE_INFO ([MS-SMB2] 2.2.32.5): one address of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkInterfaceInfo {
    /// The interface; several addresses may have the same.
    pub if_index: u32,
    /// What it can do.
    pub capability: InterfaceCapability,
    /// Bits per second.
    pub link_speed_bps: u64,
    /// The address; `None` if it is of a family that the specification does not have.
    pub address: Option<IpAddr>,
}

/// Bytes of one entry: 24, and 128 of SockAddr_Storage.
const ENTRY_LEN: usize = 152;

/// Bytes of SockAddr_Storage.
const SOCK_ADDR_LEN: usize = 128;

/// `Family` of SOCKADDR_IN ([MS-SMB2] 2.2.32.5.1).
const FAMILY_IPV4: u16 = 0x0002;

/// `Family` of SOCKADDR_IN6; Windows' number.
const FAMILY_IPV6: u16 = 0x0017;

/// Entries are 8-byte aligned ([MS-SMB2] 2.2.32.5).
const ALIGNMENT: usize = 8;

/// Reads the IOCTL's output. Each entry takes 152 bytes, so the list is bounded by its bytes.
///
/// # Errors
/// Truncation, a chain that does not move forward or is misaligned.
pub fn decode_interfaces(output: &[u8]) -> Result<Vec<NetworkInterfaceInfo>> {
    let mut interfaces = Vec::new();
    let mut reader = Reader::new(output, "NETWORK_INTERFACE_INFO");
    while reader.remaining() > 0 {
        let start = reader.position();
        let next = place(reader.u32()?);
        let if_index = reader.u32()?;
        let capability = InterfaceCapability::from_bits_retain(reader.u32()?);
        reader.skip(4)?;
        let link_speed_bps = reader.u64()?;
        let address = address(reader.bytes(SOCK_ADDR_LEN)?)?;
        interfaces.push(NetworkInterfaceInfo {
            if_index,
            capability,
            link_speed_bps,
            address,
        });
        if next == 0 {
            break;
        }
        if next < ENTRY_LEN || !next.is_multiple_of(ALIGNMENT) {
            return Err(reader.fault(Fault::Chain));
        }
        let target = start.checked_add(next).ok_or(reader.fault(Fault::Chain))?;
        reader.seek(target)?;
    }
    Ok(interfaces)
}

/// The address in a SockAddr_Storage. Ports, flow and scope are to be ignored.
fn address(bytes: &[u8]) -> Result<Option<IpAddr>> {
    let mut reader = Reader::new(bytes, "SockAddr_Storage");
    Ok(match reader.u16()? {
        FAMILY_IPV4 => {
            reader.skip(2)?;
            Some(IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?)))
        }
        FAMILY_IPV6 => {
            reader.skip(6)?;
            Some(IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?)))
        }
        _ => None,
    })
}

/// Appends the IOCTL's output.
pub fn encode_interfaces(interfaces: &[NetworkInterfaceInfo], w: &mut Writer<'_>) {
    for (number, interface) in interfaces.iter().enumerate() {
        let start = w.position();
        let last = number + 1 == interfaces.len();
        w.u32(if last { 0 } else { len_u32(ENTRY_LEN) });
        w.u32(interface.if_index);
        w.u32(interface.capability.bits());
        w.u32(0);
        w.u64(interface.link_speed_bps);
        match interface.address {
            Some(IpAddr::V4(address)) => {
                w.u16(FAMILY_IPV4);
                w.zeros(2);
                w.bytes(&address.octets());
            }
            Some(IpAddr::V6(address)) => {
                w.u16(FAMILY_IPV6);
                w.zeros(6);
                w.bytes(&address.octets());
            }
            None => {}
        }
        w.zeros(start + ENTRY_LEN - w.position());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(entries in proptest::collection::vec(any::<(u32, u32, u64, u8, u128)>(), 0..10)) {
            let interfaces: Vec<_> = entries
                .into_iter()
                .map(|(if_index, capability, link_speed_bps, family, bits)| NetworkInterfaceInfo {
                    if_index,
                    capability: InterfaceCapability::from_bits_retain(capability),
                    link_speed_bps,
                    address: match family % 3 {
                        0 => None,
                        1 => Some(IpAddr::V4(Ipv4Addr::from(bits as u32))),
                        _ => Some(IpAddr::V6(Ipv6Addr::from(bits))),
                    },
                })
                .collect();
            let bytes = structure(|w| encode_interfaces(&interfaces, w));
            prop_assert_eq!(bytes.len(), 152 * interfaces.len());
            prop_assert_eq!(decode_interfaces(&bytes), Ok(interfaces));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let interface = NetworkInterfaceInfo {
            if_index: 1,
            capability: InterfaceCapability::RSS_CAPABLE,
            link_speed_bps: 10_000_000_000,
            address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        };
        let mut bytes = structure(|w| encode_interfaces(&[interface; 2], w));
        assert_eq!(bytes[28..32], [192, 0, 2, 1]);
        attack(&bytes, 0, |bytes| decode_interfaces(bytes).is_ok());
        bytes[0] = 8;
        assert_eq!(decode_interfaces(&bytes).unwrap_err().fault, Fault::Chain);
    }
}
