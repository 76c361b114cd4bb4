//! A device in memory that loses power, tears writes, flips bits, fails and stalls, by seed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::device::Device;

/// Bytes that a power cut leaves whole.
const SECTOR: usize = 512;

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Reads fail.
    pub fail_reads: bool,
    /// Writes and syncs fail.
    pub fail_writes: bool,
    /// Time that each operation takes.
    pub delay: Duration,
    /// Number of writes that still succeed; the device fails from then on.
    pub writes_left: Option<u64>,
}

#[derive(Debug)]
struct State {
    durable: Vec<u8>,
    cached: Vec<u8>,
    /// Writes since the last sync, by sector.
    dirty: Vec<usize>,
    faults: Faults,
    now: Duration,
    bytes_written: u64,
}

/// A device in memory with a volatile write cache, and a clock that its delays advance.
#[derive(Clone, Debug)]
pub struct SimulatedDevice {
    state: Arc<Mutex<State>>,
}

impl SimulatedDevice {
    /// Makes a device of zeros.
    pub fn new(len: usize) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                durable: vec![0; len],
                cached: vec![0; len],
                dirty: Vec::new(),
                faults: Faults::default(),
                now: Duration::ZERO,
                bytes_written: 0,
            })),
        }
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Returns the simulated time.
    pub fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Lets time pass.
    pub fn advance(&self, span: Duration) {
        self.state.lock().now += span;
    }

    /// Returns the bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.state.lock().bytes_written
    }

    /// Cuts the power: of the sectors that were not synced, any subset reached the device.
    pub fn cut_power(&self, rng: &mut fastrand::Rng) {
        let mut state = self.state.lock();
        let State {
            durable,
            cached,
            dirty,
            ..
        } = &mut *state;
        // Sometimes all or nothing, else each sector by itself.
        let share = [0.0, 0.5, 0.9, 1.0][rng.usize(..4)];
        for sector in dirty.drain(..) {
            if rng.f64() < share {
                let range = sector * SECTOR..(sector + 1) * SECTOR;
                durable[range.clone()].copy_from_slice(&cached[range]);
            }
        }
        cached.copy_from_slice(durable);
    }

    /// Flips one bit.
    pub fn flip(&self, bit: usize) {
        let mut state = self.state.lock();
        let bit = bit % (state.cached.len() * 8);
        state.cached[bit / 8] ^= 1 << (bit % 8);
        state.durable[bit / 8] ^= 1 << (bit % 8);
    }

    /// Cuts the device to a shorter length.
    pub fn truncate(&self, len: usize) {
        let mut state = self.state.lock();
        state.cached.truncate(len);
        state.durable.truncate(len);
        state.dirty.retain(|sector| (sector + 1) * SECTOR <= len);
    }

    /// Overwrites a part, as another program would.
    pub fn scribble(&self, offset: usize, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.cached[offset..offset + bytes.len()].copy_from_slice(bytes);
        state.durable[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the content.
    pub fn content(&self) -> Vec<u8> {
        self.state.lock().cached.clone()
    }
}

impl State {
    fn wait(&mut self) {
        self.now += self.faults.delay;
    }

    fn range(&self, offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
        let start = usize::try_from(offset).expect("a simulated device fits in memory");
        assert!(
            start.is_multiple_of(4096) && len.is_multiple_of(4096),
            "direct I/O is aligned"
        );
        if start + len > self.cached.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(start..start + len)
    }
}

impl Device for SimulatedDevice {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.wait();
        if state.faults.fail_reads {
            return Err(io::Error::other("a simulated read error"));
        }
        let range = state.range(offset, into.len())?;
        into.copy_from_slice(&state.cached[range]);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.wait();
        if let Some(left) = &mut state.faults.writes_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.faults.fail_writes = true;
            }
        }
        let range = state.range(offset, from.len())?;
        // A write that fails may have been carried out in part.
        let done = if state.faults.fail_writes {
            from.len() / 2 / SECTOR * SECTOR
        } else {
            from.len()
        };
        let range = range.start..range.start + done;
        state.cached[range.clone()].copy_from_slice(&from[..done]);
        state.dirty.extend(range.start / SECTOR..range.end / SECTOR);
        state.bytes_written += done as u64;
        if state.faults.fail_writes {
            return Err(io::Error::other("a simulated write error"));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.wait();
        if state.faults.fail_writes {
            return Err(io::Error::other("a simulated sync error"));
        }
        let State {
            durable,
            cached,
            dirty,
            ..
        } = &mut *state;
        for sector in dirty.drain(..) {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            durable[range.clone()].copy_from_slice(&cached[range]);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.state.lock().cached.len() as u64)
    }
}
