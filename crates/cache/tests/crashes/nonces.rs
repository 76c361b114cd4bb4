//! A device that watches what is written: one nonce seals one block.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_cache::{Device, SimulatedDevice};

const SECTOR: usize = 512;
const SUPERBLOCK: &[u8; 16] = b"ropeway cache\x1a\r\n";

#[derive(Debug, Default)]
struct Seen {
    /// Keys follow from the salt, so another salt begins anew.
    salt: Vec<u8>,
    blocks: HashMap<[u8; 12], [u8; 16]>,
}

/// A simulated device whose records are looked at (ADR 17 describes them).
#[derive(Clone, Debug)]
pub struct Watched {
    device: SimulatedDevice,
    seen: Arc<Mutex<Seen>>,
    seed: u64,
}

impl Watched {
    pub fn new(device: SimulatedDevice, seed: u64) -> Self {
        let seen = Arc::default();
        Self { device, seen, seed }
    }

    fn look(&self, page: &[u8]) {
        let mut seen = self.seen.lock();
        if page.starts_with(SUPERBLOCK) {
            let salt = &page[52..84];
            if seen.salt != salt {
                seen.salt = salt.to_vec();
                seen.blocks.clear();
            }
            return;
        }
        for at in (0..page.len()).step_by(SECTOR) {
            let record = &page[at..];
            // A block, not an order to forget, which seals nothing.
            if !record.starts_with(b"RwBk") || record[44] != 1 {
                continue;
            }
            let nonce: [u8; 12] = record[32..44].try_into().expect("12 bytes");
            // Tag and lengths. Cleaning writes a record again as it is, also one with a torn body.
            let block: [u8; 16] = [&record[8..16], &record[24..32]].concat().try_into().expect("16");
            let first = *seen.blocks.entry(nonce).or_insert(block);
            assert!(first == block, "seed {}: a nonce was used twice", self.seed);
        }
    }
}

impl Device for Watched {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.look(from);
        self.device.write_at(offset, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.device.size()
    }
}
