//! The modelled flash device of the experiment, and the times of its disk. The flash device is a real file whose
//! reads and writes take as long as the model says. It does one thing at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_cache::{Device, FileDevice};

use crate::local::disk::{Busy, DiskTimes, seconds};

/// The disk: bytes per second in sequence, and the bounds of a seek (facts file, D).
pub(super) const DISK: DiskTimes = DiskTimes {
    bytes_per_s: 50e6,
    seek: (Duration::from_millis(10), Duration::from_millis(20)),
};
/// The flash device: bytes per second of reads and writes, and the time before each read (D).
pub(super) const FLASH_READ_BYTES_PER_S: f64 = 20e6;
pub(super) const FLASH_WRITE_BYTES_PER_S: f64 = 7e6;
pub(super) const FLASH_ACCESS: Duration = Duration::from_millis(1);
/// Bytes of a write after which a read may come in between. A guess: an erase block of a stick.
const FLASH_PIECE: usize = 128 << 10;

/// A file as a modelled flash device.
pub(super) struct Flash {
    file: FileDevice,
    is_on: Arc<AtomicBool>,
    turn: Mutex<()>,
    pub(super) busy: Busy,
}

impl Flash {
    pub(super) fn new(file: FileDevice, is_on: &Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            file,
            is_on: Arc::clone(is_on),
            turn: Mutex::new(()),
            busy: Busy::default(),
        })
    }
}

impl Device for Flash {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.is_on.load(Ordering::Relaxed) {
            return self.file.read_at(offset, into);
        }
        let _turn = self.turn.lock();
        let start = Instant::now();
        self.file.read_at(offset, into)?;
        let time = FLASH_ACCESS + seconds(into.len(), FLASH_READ_BYTES_PER_S);
        std::thread::sleep(time.saturating_sub(start.elapsed()));
        self.busy.add(start.elapsed());
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, from)?;
        if self.is_on.load(Ordering::Relaxed) {
            for piece in from.chunks(FLASH_PIECE) {
                let _turn = self.turn.lock();
                std::thread::sleep(seconds(piece.len(), FLASH_WRITE_BYTES_PER_S));
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }
}
