//! A TUN device with a virtio header and segmentation offload.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

// <linux/if_tun.h>
const TUNSETIFF: libc::c_ulong = 0x4004_54CA;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54D0;
const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;

/// A device in the network namespace of the thread that created it; closing it removes the device.
#[derive(Debug)]
pub(in crate::link) struct Tun(File);

impl Tun {
    /// Creates a device.
    pub(in crate::link) fn make(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        // SAFETY: ifreq is plain data (integers, addresses and one pointer), for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
        // SAFETY: the request lives on this stack for the whole call, the kernel reads and writes one ifreq; the
        // descriptor is owned by `file`.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let offload = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        // SAFETY: the argument is an integer; the descriptor is owned by `file`.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD as _, offload) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(file))
    }

    /// Receives a packet from the kernel; `WouldBlock` if there is none.
    pub(in crate::link) fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(room)
    }

    /// Sends a packet to the kernel.
    pub(in crate::link) fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
