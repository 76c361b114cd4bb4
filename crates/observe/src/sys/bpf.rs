//! bpf(2): maps, programs and raw tracepoints.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Commands (`enum bpf_cmd` of linux/bpf.h).
const MAP_CREATE: c_int = 0;
const MAP_LOOKUP: c_int = 1;
const MAP_UPDATE: c_int = 2;
const PROGRAM_LOAD: c_int = 5;
const OBJECT_INFO: c_int = 15;
const RAW_TRACEPOINT_OPEN: c_int = 17;

/// `BPF_PROG_TYPE_RAW_TRACEPOINT`.
const RAW_TRACEPOINT: u32 = 17;
/// Our programs are MIT; the kernel offers the functions that read memory to programs with a
/// licence that is compatible with its own (include/linux/license.h).
const LICENSE: &CStr = c"Dual MIT/GPL";
/// Bytes for the verifier's reasons.
const LOG_BYTES: usize = 64 << 10;

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    PerCpuArray = 6,
    Ring = 27,
}

/// Sizes of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapShape {
    pub(crate) kind: MapKind,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
}

#[repr(C)]
struct CreateAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

#[repr(C)]
struct TracepointAttr {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

#[repr(C)]
struct InfoAttr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// Calls bpf(2).
///
/// # Safety
/// `attr` has the layout of `union bpf_attr` for the command, and everything it points to lives
/// until the call ends, with the sizes that the command uses.
unsafe fn call<T>(command: c_int, attr: &mut T) -> io::Result<c_int> {
    // SAFETY: the caller's promise; the size is that of `attr`, which outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            std::mem::size_of::<T>(),
        )
    };
    match c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Like [`call`], for commands that return a descriptor.
///
/// # Safety
/// As [`call`].
unsafe fn open<T>(command: c_int, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { call(command, attr) }?;
    // SAFETY: the call has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().cast_unsigned()
}

/// A map with keys of 4 bytes.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    shape: MapShape,
}

impl Map {
    /// Makes a map.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn new(shape: MapShape) -> io::Result<Self> {
        let mut attr = CreateAttr {
            map_type: shape.kind as u32,
            key_size: shape.key_bytes,
            value_size: shape.value_bytes,
            max_entries: shape.entries,
            map_flags: 0,
        };
        // SAFETY: the layout is that of BPF_MAP_CREATE; it holds no pointers.
        let fd = unsafe { open(MAP_CREATE, &mut attr) }?;
        Ok(Self { fd, shape })
    }

    /// Returns its descriptor.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Returns its descriptor, which keeps it.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Sets a value.
    ///
    /// # Errors
    /// The map is full, or the key is out of its range.
    ///
    /// # Panics
    /// The map has other sizes.
    pub(crate) fn set(&self, key: u32, value: &[u8]) -> io::Result<()> {
        assert_eq!(
            (self.shape.key_bytes, self.shape.value_bytes as usize),
            (4, value.len())
        );
        let mut attr = ElementAttr {
            map_fd: number(&self.fd),
            padding: 0,
            key: &raw const key as u64,
            value: value.as_ptr() as u64,
            flags: 0,
        };
        // SAFETY: key and value outlive the call and have the map's sizes, as asserted above.
        unsafe { call(MAP_UPDATE, &mut attr) }.map(|_| ())
    }

    /// Returns a value of 8 bytes of an array.
    ///
    /// # Errors
    /// The key is out of its range.
    ///
    /// # Panics
    /// The map has other sizes.
    pub(crate) fn number(&self, key: u32) -> io::Result<u64> {
        assert!(self.shape.kind == MapKind::Array && self.shape.value_bytes == 8);
        let mut value = 0_u64;
        let mut attr = ElementAttr {
            map_fd: number(&self.fd),
            padding: 0,
            key: &raw const key as u64,
            value: &raw mut value as u64,
            flags: 0,
        };
        // SAFETY: key and value outlive the call and have the map's sizes, as asserted above.
        unsafe { call(MAP_LOOKUP, &mut attr) }?;
        Ok(value)
    }
}

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads a program for raw tracepoints. The kernel's verifier proves that it is safe to run.
    ///
    /// # Errors
    /// The kernel refuses: no permission, or the verifier's last line.
    pub(crate) fn load(name: &str, code: &[u64]) -> io::Result<Self> {
        match Self::load_with(name, code, &mut []) {
            Ok(program) => Ok(program),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(error),
            Err(error) => {
                let mut log = vec![0; LOG_BYTES];
                Self::load_with(name, code, &mut log).map_err(|_| {
                    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                    let text = String::from_utf8_lossy(&log[..end]);
                    let said = text.lines().rev().find(|line| !line.starts_with("processed "));
                    io::Error::other(format!("{error}: {}", said.unwrap_or_default()))
                })
            }
        }
    }

    fn load_with(name: &str, code: &[u64], log: &mut [u8]) -> io::Result<Self> {
        let mut prog_name = [0; 16];
        // The last byte stays 0.
        for (to, from) in prog_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from;
        }
        let mut attr = LoadAttr {
            prog_type: RAW_TRACEPOINT,
            insn_cnt: u32::try_from(code.len()).unwrap_or(u32::MAX),
            insns: code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: u32::try_from(log.len()).unwrap_or(0),
            log_buf: if log.is_empty() {
                0
            } else {
                log.as_mut_ptr() as u64
            },
            kern_version: 0,
            prog_flags: 0,
            prog_name,
        };
        // SAFETY: code, licence and log outlive the call, and `attr` says how long they are.
        unsafe { open(PROGRAM_LOAD, &mut attr) }.map(Self)
    }

    /// Runs the program at a raw tracepoint until the returned descriptor is closed.
    ///
    /// # Errors
    /// There is no such tracepoint, or no permission.
    pub(crate) fn attach(&self, tracepoint: &CStr) -> io::Result<OwnedFd> {
        let mut attr = TracepointAttr {
            name: tracepoint.as_ptr() as u64,
            prog_fd: number(&self.0),
            padding: 0,
        };
        // SAFETY: the name ends in NUL and outlives the call.
        unsafe { open(RAW_TRACEPOINT_OPEN, &mut attr) }
    }

    /// Returns how often the kernel did not run the program since it was running already on that
    /// processor; 0 if the kernel does not count that.
    pub(crate) fn misses(&self) -> u64 {
        /// Offset of `recursion_misses` in `struct bpf_prog_info`, and where it ends.
        const MISSES: std::ops::Range<usize> = 208..216;
        let mut info = [0_u8; MISSES.end];
        let mut attr = InfoAttr {
            bpf_fd: number(&self.0),
            info_len: MISSES.end as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: `info` outlives the call and is as long as `attr` says. It is zero, so the kernel
        // follows no pointer in it.
        match unsafe { call(OBJECT_INFO, &mut attr) } {
            Ok(_) => u64::from_ne_bytes(info[MISSES].try_into().expect("a range of 8 bytes")),
            Err(_) => 0,
        }
    }
}
