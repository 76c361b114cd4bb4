//! Opening: what kind of file this is, and what of the cache is still there.

use std::collections::HashMap;

use aws_lc_rs::rand;
use ropeway_block::Pool;

use crate::engine::health::Guarded;
use crate::engine::replay::{Newer, newer};
use crate::engine::state::{LIVE_PERCENT, Segment, State, Use};
use crate::engine::{Config, Opened};
use crate::error::Error;
use crate::index::{Index, Place};
use crate::log::checkpoint::{self, Checkpoint};
use crate::log::record::{Kind, RECORD_MAX};
use crate::log::superblock::{CheckpointPlace, Found, SUPERBLOCKS_BYTES, Superblock};
use crate::log::{PAGE, checksum};
use crate::mutations::{self, Mutation};
use crate::seal::key_check;

/// Fewest segments of a cache: two that are filled, and room for cleaning.
const SEGMENTS_MIN: u64 = 8;

/// Segments that a cache has if they do not become smaller than [`SEGMENT_SMALL`]: some are always
/// free or being filled, and cleaning empties a whole one.
const SEGMENTS_WANTED: u64 = 64;

/// Segments are not made smaller than this for a small cache: seven blocks that do not compress.
const SEGMENT_SMALL: u64 = 512 << 10;

/// Bytes of space for one slot of the index at most: blocks that compress to half or better.
const BYTES_PER_SLOT: u64 = 32 * 1024;

/// Reads of checkpoints are at most this long.
const READ_BYTES: usize = 1 << 20;

/// Opens or formats a cache.
pub(super) fn open(device: &Guarded, key: &[u8; 32], config: &Config) -> Result<(State, Opened), Error> {
    let pool = Pool::new(READ_BYTES.max(config.segment_bytes as usize), 1);
    let mut buffer = pool.try_get().expect("the pool has one slot");
    let buffer = buffer.capacity_mut();
    let device_len = device.size()?;
    let (found, mut opened) = find(device, key, device_len, buffer)?;
    if let Some(mut superblock) = found {
        if !mutations::is(Mutation::EpochNotRaised) {
            superblock.epoch += 1;
        }
        write_superblock(device, &mut superblock, buffer)?;
        match load(device, superblock, config, buffer)? {
            Some(state) => return Ok((state, Opened::Warm)),
            None => opened = Opened::Damaged,
        }
    }
    let superblock = format(device, key, config, device_len, found.as_ref(), buffer)?;
    let (slots, slots_max) = slots(&superblock);
    Ok((
        State::new(superblock, Index::new(slots, config.seed), slots_max),
        opened,
    ))
}

/// Returns the valid superblock with the highest generation, or why the cache begins empty.
fn find(
    device: &Guarded,
    key: &[u8; 32],
    device_len: u64,
    buffer: &mut [u8],
) -> Result<(Option<Superblock>, Opened), Error> {
    let least = SUPERBLOCKS_BYTES as u64;
    if device_len < least {
        // Also a file of another kind is too small to be touched.
        return Err(Error::TooSmall {
            len: device_len,
            least,
        });
    }
    let pages = &mut buffer[..SUPERBLOCKS_BYTES];
    device.read_at(0, pages)?;
    let copies = [
        Superblock::parse(&pages[..PAGE]),
        Superblock::parse(&pages[PAGE..]),
    ];
    let mut best: Option<Superblock> = None;
    for copy in copies {
        match copy {
            Found::Newer(format) => return Err(Error::NewerFormat(format)),
            Found::Valid(found) if best.is_none_or(|best| best.generation < found.generation) => {
                best = Some(found)
            }
            _ => {}
        }
    }
    match best {
        Some(found) if found.key_check != key_check(key, &found.salt) => Ok((None, Opened::KeyChanged)),
        Some(found) if found.total_bytes() > device_len => Ok((None, Opened::Damaged)),
        Some(found) => Ok((Some(found), Opened::Warm)),
        None if copies.contains(&Found::Damaged) => Ok((None, Opened::Damaged)),
        None if copies == [Found::Blank; 2] => Ok((None, Opened::New)),
        None => Err(Error::Foreign),
    }
}

/// Returns the bytes of a segment for a device of this length.
fn segment_bytes(config: &Config, device_len: u64) -> u64 {
    let mut bytes = u64::from(config.segment_bytes);
    while bytes / 2 >= SEGMENT_SMALL && device_len / bytes < SEGMENTS_WANTED {
        bytes = bytes / 2 / PAGE as u64 * PAGE as u64;
    }
    bytes
}

/// Writes the superblock of a new, empty cache. The salt is random, so nothing that lies on the
/// device can be read any more.
fn format(
    device: &Guarded,
    key: &[u8; 32],
    config: &Config,
    device_len: u64,
    old: Option<&Superblock>,
    buffer: &mut [u8],
) -> Result<Superblock, Error> {
    let segment_bytes = segment_bytes(config, device_len);
    let estimate = usize::try_from(device_len / BYTES_PER_SLOT).unwrap_or(usize::MAX);
    let segments_estimate = usize::try_from(device_len / segment_bytes).unwrap_or(usize::MAX);
    let checkpoint_bytes = checkpoint::bytes_for(segments_estimate, estimate).next_multiple_of(PAGE) as u64;
    let overhead = SUPERBLOCKS_BYTES as u64 + 2 * checkpoint_bytes;
    let segments = device_len.saturating_sub(overhead) / segment_bytes;
    if segments < SEGMENTS_MIN {
        let least = overhead + SEGMENTS_MIN * segment_bytes;
        return Err(Error::TooSmall {
            len: device_len,
            least,
        });
    }
    let mut salt = [0; 32];
    rand::fill(&mut salt).map_err(|_| std::io::Error::other("no randomness"))?;
    let mut superblock = Superblock {
        generation: old.map_or(0, |old| old.generation + 2),
        epoch: 1,
        segment_bytes: u32::try_from(segment_bytes).expect("at most that of the configuration"),
        // 2 TiB can be addressed in sectors of 512 bytes.
        segments: u32::try_from(segments.min((1 << 40) / segment_bytes)).expect("at most 2^40 / 2^16"),
        checkpoint_bytes,
        salt,
        key_check: key_check(key, &salt),
        checkpoint: CheckpointPlace::default(),
    };
    write_superblock(device, &mut superblock, buffer)?;
    Ok(superblock)
}

/// Writes both copies of a superblock, one after the other, and waits until they are on the device.
/// With both, a flipped bit in one does not bring an older epoch or checkpoint back.
pub(super) fn write_superblock(
    device: &Guarded,
    superblock: &mut Superblock,
    buffer: &mut [u8],
) -> Result<(), Error> {
    let copies = if mutations::is(Mutation::OneSuperblock) {
        1
    } else {
        2
    };
    for _ in 0..copies {
        superblock.generation += 1;
        let page = &mut buffer[..PAGE];
        superblock.encode(page);
        device.write_at(superblock.position(), page)?;
        if !mutations::is(Mutation::EpochNotSynced) {
            device.sync()?;
        }
    }
    Ok(())
}

/// Returns the slots to begin with, and the most that there may be.
fn slots(superblock: &Superblock) -> (usize, usize) {
    let data = u64::from(superblock.segments) * u64::from(superblock.segment_bytes);
    let slots_max = (data / BYTES_PER_SLOT).max(1);
    // As many blocks as may be live if none compresses: then no slot stays empty.
    let slots = (data * LIVE_PERCENT / 100).div_ceil(RECORD_MAX as u64).max(1);
    let to_usize = |count: u64| usize::try_from(count).expect("an index fits in memory");
    (to_usize(slots.min(slots_max)), to_usize(slots_max))
}

/// Reads checkpoint and later segments; `None` if the checkpoint is damaged.
fn load(
    device: &Guarded,
    superblock: Superblock,
    config: &Config,
    buffer: &mut [u8],
) -> Result<Option<State>, Error> {
    let Some(checkpoint) = read_checkpoint(device, &superblock, buffer)? else {
        return Ok(None);
    };
    if checkpoint.segments.len() != superblock.segments as usize {
        return Ok(None);
    }
    let (mut slots, slots_max) = slots(&superblock);
    slots = slots.max(checkpoint.blocks.len()).min(slots_max);
    let mut state = State::new(superblock, Index::new(slots, config.seed), slots_max);
    let sealed = |seq| Segment {
        state: Use::Sealed,
        seq,
        live_sectors: 0,
    };
    let mut unlisted = Vec::new();
    for (at, seq) in checkpoint.segments.iter().enumerate() {
        match *seq {
            0 => unlisted.push(at),
            seq => state.segments[at] = sealed(seq),
        }
    }
    let replayed = newer(device, &superblock, &unlisted, checkpoint.covered_seq, buffer)?;
    for segment in &replayed {
        state.segments[segment.at] = sealed(segment.seq);
    }
    state.sealed_since_checkpoint = replayed.len();
    apply(&mut state, &checkpoint, &replayed);
    Ok(Some(state))
}

/// Puts the blocks into the index, except forgotten ones.
fn apply(state: &mut State, checkpoint: &Checkpoint, replayed: &[Newer]) {
    // Position in the log of the last order to forget, by file.
    let mut forgotten: HashMap<u32, (u64, usize)> = HashMap::new();
    for Newer { seq, entries, .. } in replayed {
        for (order, entry) in entries.iter().enumerate() {
            if entry.kind == Kind::Forget {
                forgotten.insert((entry.tag >> 32) as u32, (*seq, order));
            }
        }
    }
    let segment_sectors = state.superblock.segment_bytes / 512;
    for saved in &checkpoint.blocks {
        let lies_inside = saved.place.sector >= state.first_sector(0)
            && (saved.place.sector - state.first_sector(0)) / segment_sectors < state.superblock.segments;
        let is_forgotten = forgotten.contains_key(&((saved.tag >> 32) as u32));
        let is_double = state.index.find(saved.tag).is_some();
        if !lies_inside || is_forgotten || is_double {
            continue;
        }
        if state
            .index
            .load(saved.tag, saved.place, saved.code, saved.age)
            .is_some()
        {
            state.live(saved.place, true);
        }
    }
    for Newer { at, seq, entries } in replayed {
        let first = state.first_sector(u32::try_from(*at).expect("segments are numbered by u32"));
        for (order, entry) in entries.iter().enumerate() {
            let is_forgotten = forgotten
                .get(&((entry.tag >> 32) as u32))
                .is_some_and(|last| *last > (*seq, order));
            if entry.kind == Kind::Forget
                || is_forgotten
                || entry.sectors == 0
                || entry.sector >= segment_sectors
            {
                continue;
            }
            let place = Place {
                sector: first + entry.sector,
                sectors: entry.sectors,
            };
            state.add(entry.tag, place, false);
        }
    }
    state.keep_room(usize::MAX);
}

fn read_checkpoint(
    device: &Guarded,
    superblock: &Superblock,
    buffer: &mut [u8],
) -> Result<Option<Checkpoint>, Error> {
    let place = superblock.checkpoint;
    if place.len == 0 {
        return Ok(Some(Checkpoint {
            covered_seq: 0,
            segments: vec![0; superblock.segments as usize],
            blocks: Vec::new(),
        }));
    }
    // The device holds as much: `total_bytes` was compared with its length.
    let len = usize::try_from(place.len).expect("a checkpoint fits in memory");
    let mut bytes = Vec::with_capacity(len);
    let start = superblock.slot_start(place.slot);
    while bytes.len() < len {
        let part = (len - bytes.len()).min(READ_BYTES);
        device.read_at(
            start + bytes.len() as u64,
            &mut buffer[..part.next_multiple_of(PAGE)],
        )?;
        bytes.extend_from_slice(&buffer[..part]);
    }
    let is_intact = checksum(&superblock.salt, &[&bytes]) == place.crc;
    Ok(Checkpoint::parse(&bytes).filter(|_| is_intact))
}
