//! The journal of one file: its parts on the near disk.
//!
//! ```text
//! 000000000000002a.00000000.log   header | snapshot | record | record | …
//! 000000000000002a.00000001.log   header | snapshot | …          newest part: appended to
//! ```
//! Each part begins with the state of the backlog, so older parts can be removed once the far file
//! has their data. A process never appends to a part of an earlier process.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use ropeway_vfs::Timestamp;

use crate::backlog::{Backlog, Piece, Place};
use crate::disk::Disk;
use crate::part::Part;
use crate::record::{self, DATA_AT, RECORD_MAX, Record, Snapshot};
use crate::seal::{HEADER, LENGTHS, Seal, TAG};

/// From this length on a part is followed by the next. A guess: what is drained gives its space
/// back in such steps.
const PART_BYTES: u64 = 16 << 20;
/// Space that a record counts for at least: it bounds the memory for many small writes (about a
/// hundred bytes each).
const CHARGE_MIN: u64 = 4096;
/// Ending of the names of parts.
pub(crate) const ENDING: &str = ".log";

/// The space that all logs of a journal share.
pub(crate) struct LogSpace {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) key: [u8; 32],
    /// Space taken by all parts.
    pub(crate) used: AtomicU64,
    /// Returns 32 random bytes.
    pub(crate) salt: Box<dyn Fn() -> io::Result<[u8; 32]> + Send + Sync>,
    /// Length of a part.
    pub(crate) part_bytes: u64,
}

impl LogSpace {
    pub(crate) fn new(disk: Box<dyn Disk>, key: [u8; 32]) -> Self {
        let salt = || {
            let mut salt = [0; 32];
            let filled = aws_lc_rs::rand::fill(&mut salt);
            filled
                .map(|()| salt)
                .map_err(|_| io::Error::other("no random numbers"))
        };
        Self {
            disk,
            key,
            used: AtomicU64::new(0),
            salt: Box::new(salt),
            part_bytes: PART_BYTES,
        }
    }
}

/// Returns the name of a part.
pub(crate) fn name_of(file: u64, part: u32) -> String {
    format!("{file:016x}.{part:08x}{ENDING}")
}

/// Returns file and part of a name.
pub(crate) fn parse_name(name: &str) -> Option<(u64, u32)> {
    let (file, part) = name.strip_suffix(ENDING)?.split_once('.')?;
    let file_number = u64::from_str_radix(file, 16).ok()?;
    let part_number = u32::from_str_radix(part, 16).ok()?;
    (name_of(file_number, part_number) == name).then_some((file_number, part_number))
}

/// The journal of one file.
pub(crate) struct FileLog {
    place: Arc<LogSpace>,
    file: u64,
    parts: VecDeque<Arc<Part>>,
    /// Length and number of records of the newest part.
    end: u64,
    records: u64,
    /// Numbered records that are on the disk.
    synced: u64,
    /// Whether the names of the parts are.
    is_name_synced: bool,
    /// Whether the newest part can still be appended to.
    is_open: bool,
    /// Whether a sync failed. The kernel drops what it could not write, and says so once: a later sync
    /// that succeeds proves nothing. So from then on only the far file counts.
    is_doubtful: bool,
    /// Whether older parts were removed, and that may not have reached the disk.
    has_removed: bool,
    /// Those of them that readers may still hold.
    released: Vec<Weak<Part>>,
}

impl FileLog {
    /// Makes a log with its first part.
    pub(crate) fn create(place: &Arc<LogSpace>, file: u64, snapshot: Snapshot) -> io::Result<Self> {
        let mut log = Self {
            place: Arc::clone(place),
            file,
            parts: VecDeque::new(),
            end: 0,
            records: 0,
            synced: 0,
            is_name_synced: true,
            is_open: false,
            is_doubtful: false,
            has_removed: false,
            released: Vec::new(),
        };
        log.begin_part(snapshot)?;
        Ok(log)
    }

    fn begin_part(&mut self, snapshot: Snapshot) -> io::Result<()> {
        let number = self.parts.back().map_or(0, |part| part.number + 1);
        // What is removed later must not be needed: the snapshot below says all but the data.
        self.sync_newest()?;
        if !self.is_name_synced {
            // A gap between parts then means that those before it were released.
            self.sync_names()?;
        }
        let name = name_of(self.file, number);
        let (seal, mut bytes) = Seal::make(&self.place.key, &(self.place.salt)()?, self.file, number);
        let mut plain = Vec::new();
        Record::Snapshot(Box::new(snapshot)).encode(self.synced, &mut plain);
        seal.seal(0, plain, &mut bytes);
        self.place.disk.create(&name)?;
        if let Err(error) = self.place.disk.write(&name, 0, &bytes) {
            // Nothing in it counts.
            let _ = self.place.disk.remove(&name);
            return Err(error);
        }
        let part = Part::new(&self.place, name, number, seal);
        part.charge((bytes.len() as u64).max(CHARGE_MIN));
        self.parts.push_back(Arc::new(part));
        (self.end, self.records) = (bytes.len() as u64, 1);
        self.is_name_synced = false;
        self.is_open = true;
        Ok(())
    }

    fn sync_newest(&mut self) -> io::Result<()> {
        let Some(part) = self.parts.back() else {
            return Ok(());
        };
        let synced = self.place.disk.sync(&part.name);
        self.is_doubtful |= synced.is_err();
        synced
    }

    fn sync_names(&mut self) -> io::Result<()> {
        let synced = self.place.disk.sync_names();
        self.is_doubtful |= synced.is_err();
        self.is_name_synced |= synced.is_ok();
        synced
    }

    /// Fails once a sync has failed.
    fn trust(&self) -> io::Result<()> {
        match self.is_doubtful {
            true => Err(io::Error::other("the near disk has failed to keep the journal")),
            false => Ok(()),
        }
    }

    /// Appends a record. If that fails, nothing of it counts. `snapshot` makes the state so far.
    pub(crate) fn append(
        &mut self,
        record: &Record<'_>,
        snapshot: impl FnOnce() -> Snapshot,
    ) -> io::Result<Place> {
        if matches!(
            record,
            Record::Data { .. } | Record::Length { .. } | Record::Change(_)
        ) {
            self.trust()?;
        }
        if !self.is_open || self.end >= self.place.part_bytes {
            self.begin_part(snapshot())?;
        }
        let part = self.parts.back().expect("a log has a part");
        let mut plain = Vec::with_capacity(
            RECORD_MAX.min(match record {
                Record::Data { bytes, .. } => bytes.len() + DATA_AT,
                _ => 256,
            }) + TAG,
        );
        record.encode(self.synced, &mut plain);
        let mut bytes = Vec::with_capacity(plain.len() + LENGTHS + TAG);
        part.seal.seal(self.records, plain, &mut bytes);
        if let Err(error) = self.place.disk.write(&part.name, self.end, &bytes) {
            // The next record needs another part: this number may be on the disk with this content.
            self.is_open = false;
            let _ = self.place.disk.truncate(&part.name, self.end);
            return Err(error);
        }
        let place = Place {
            part: part.number,
            number: self.records,
            at: self.end + LENGTHS as u64,
            length: (bytes.len() - LENGTHS) as u32,
        };
        part.charge((bytes.len() as u64).max(CHARGE_MIN));
        self.end += bytes.len() as u64;
        self.records += 1;
        Ok(place)
    }

    /// Gives up the space that is kept in reserve; returns whether there was some.
    pub(crate) fn give_up_reserve(&self) -> bool {
        self.place.disk.give_up_reserve()
    }

    /// Returns once everything is on the disk. `next` is the number of the next record.
    pub(crate) fn sync(&mut self, next: u64) -> io::Result<()> {
        self.sync_last()?;
        self.trust()?;
        self.synced = next - 1;
        Ok(())
    }

    /// Returns once the last record is on the disk. What was before it may not be, if a sync has failed.
    pub(crate) fn sync_last(&mut self) -> io::Result<()> {
        self.sync_newest()?;
        match self.is_name_synced {
            true => Ok(()),
            false => self.sync_names(),
        }
    }

    /// Returns the parts by their numbers, for reading.
    pub(crate) fn parts(&self) -> Parts {
        Parts(self.parts.iter().cloned().collect())
    }

    /// Lets go of the parts before `oldest`, except the newest.
    pub(crate) fn release(&mut self, oldest: Option<u32>) {
        while self.parts.len() > 1
            && let Some(part) = self.parts.front()
            && oldest.is_none_or(|oldest| part.number < oldest)
        {
            part.is_done_with();
            self.released.push(Arc::downgrade(part));
            self.parts.pop_front();
            self.has_removed = true;
        }
        self.released.retain(|part| part.strong_count() > 0);
    }

    /// Whether the log is a single file, so that no part of it can be left when it is removed.
    pub(crate) fn is_removed_at_once(&self) -> bool {
        self.parts.len() <= 1 && !self.has_removed
    }

    /// Removes the log when its last reader lets go. The newest part goes last: it says that the
    /// others are not needed, also if they come back after a power cut.
    pub(crate) fn finish(mut self) {
        let Some(newest) = self.parts.pop_back() else {
            return;
        };
        newest.is_done_with();
        // Also what was released before: alone it would be an older state, taken for a backlog.
        let has_older = self.has_removed || !self.parts.is_empty();
        for part in self.parts.drain(..) {
            part.is_done_with();
            self.released.push(Arc::downgrade(&part));
        }
        // What a reader holds goes later.
        for part in self.released.iter().filter_map(Weak::upgrade) {
            part.goes_before(&newest);
        }
        if has_older {
            newest.older_is_removed(&self.place.disk.sync_names());
        }
    }
}

/// Parts of a log.
#[derive(Clone)]
pub(crate) struct Parts(Vec<Arc<Part>>);

impl Parts {
    /// Reads the bytes of a piece, or a part of them.
    pub(crate) fn read(&self, piece: &Piece, skip: u64, into: &mut [u8]) -> io::Result<()> {
        let part = self.0.iter().find(|part| part.number == piece.place.part);
        let gone = || io::Error::new(io::ErrorKind::NotFound, "a part of the journal is missing");
        part.ok_or_else(gone)?.read(piece, skip, into)
    }
}

/// What the parts of a file say after a restart.
pub(crate) struct Replayed {
    pub(crate) log: FileLog,
    pub(crate) backlog: Backlog,
    pub(crate) snapshot: Snapshot,
    /// Whether a removal by a near client was under way, or done.
    pub(crate) is_removing: bool,
    pub(crate) is_removed: bool,
    /// The conflict that was decided, with the file that has our side.
    pub(crate) conflict: Option<Option<(ropeway_vfs::RelPath, ropeway_vfs::FileId)>>,
    /// Whether records that had been synced are damaged or missing.
    pub(crate) is_damaged: bool,
    /// Bytes at the end that were torn.
    pub(crate) torn: u64,
}

/// Replays the parts of a file, which are given with their lengths in order. `None` if they say
/// nothing: the first part was never finished.
pub(crate) fn replay(place: &Arc<LogSpace>, file: u64, parts: &[(u32, u64)]) -> io::Result<Option<Replayed>> {
    let mut replay = Replay::default();
    let mut log = FileLog {
        place: Arc::clone(place),
        file,
        parts: VecDeque::new(),
        end: 0,
        records: 0,
        synced: 0,
        is_name_synced: false,
        // A new process seals with a new key.
        is_open: false,
        is_doubtful: false,
        has_removed: false,
        released: Vec::new(),
    };
    let after_gap = parts.windows(2).rposition(|pair| pair[0].0 + 1 != pair[1].0);
    let (released, parts) = parts.split_at(after_gap.map_or(0, |index| index + 1));
    for (number, _) in released {
        // Its removal had not reached the disk.
        place.disk.remove(&name_of(file, *number))?;
        log.has_removed = true;
    }
    for (index, (number, length)) in parts.iter().enumerate() {
        let is_newest = index + 1 == parts.len();
        let name = name_of(file, *number);
        let read = replay.part(place, &name, file, *number, *length)?;
        let (seal, end) = match read {
            Read::Until(seal, end) => (*seal, end),
            // A part that was never finished is the newest; nothing in it counts.
            Read::Unfinished => {
                replay.is_damaged |= !is_newest;
                place.disk.remove(&name)?;
                continue;
            }
            Read::Unreadable => {
                replay.is_damaged |= !is_newest;
                place.disk.set_aside(&name)?;
                tracing::warn!(
                    name,
                    "a part of the write-back journal cannot be read: what was written to it is not at the far \
                     server, and stays here under the ending .damaged"
                );
                continue;
            }
        };
        if end < *length {
            replay.is_damaged |= !is_newest;
            replay.torn += length - end;
            if is_newest {
                place.disk.truncate(&name, end)?;
            }
        }
        let part = Part::new(place, name, *number, seal);
        part.charge(end.max(CHARGE_MIN));
        log.parts.push_back(Arc::new(part));
    }
    let (Some(backlog), Some(snapshot)) = (replay.backlog, replay.snapshot) else {
        log.finish();
        return Ok(None);
    };
    Ok(Some(Replayed {
        log,
        backlog,
        snapshot,
        is_removing: replay.is_removing,
        is_removed: replay.is_removed,
        conflict: replay.conflict,
        is_damaged: replay.is_damaged,
        torn: replay.torn,
    }))
}

/// What was read of a part.
enum Read {
    /// Its seal, and the end of what can be read.
    Until(Box<Seal>, u64),
    /// The process or the machine ended while it was made.
    Unfinished,
    /// Something is in it, and nothing can be read.
    Unreadable,
}

/// Returns whether a part was left while it was made: nothing but zeros is behind what its making
/// wrote, which may be torn.
fn is_unfinished(place: &LogSpace, name: &str, made: u64, length: u64) -> io::Result<bool> {
    let mut at = made;
    let mut bytes = [0; 4096];
    while at < length {
        let count = (length - at).min(bytes.len() as u64);
        let bytes = &mut bytes[..count as usize];
        place.disk.read(name, at, bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += count;
    }
    Ok(true)
}

#[derive(Default)]
struct Replay {
    backlog: Option<Backlog>,
    snapshot: Option<Snapshot>,
    is_removing: bool,
    is_removed: bool,
    conflict: Option<Option<(ropeway_vfs::RelPath, ropeway_vfs::FileId)>>,
    is_damaged: bool,
    torn: u64,
}

impl Replay {
    /// Replays a part.
    fn part(
        &mut self,
        place: &LogSpace,
        name: &str,
        file: u64,
        number: u32,
        length: u64,
    ) -> io::Result<Read> {
        let unread = |made: u64| {
            is_unfinished(place, name, made, length).map(|is_unfinished| match is_unfinished {
                true => Read::Unfinished,
                false => Read::Unreadable,
            })
        };
        let mut header = [0; HEADER];
        if length < HEADER as u64 {
            return Ok(Read::Unfinished);
        }
        place.disk.read(name, 0, &mut header)?;
        let Some(seal) = Seal::of_header(&place.key, &header, file, number) else {
            return unread(HEADER as u64);
        };
        let (mut at, mut end, mut records) = (HEADER as u64, HEADER as u64, 0);
        let (mut has_hole, mut made) = (false, length);
        while at + (LENGTHS as u64) <= length {
            let mut lengths = [0; LENGTHS];
            place.disk.read(name, at, &mut lengths)?;
            let Some(sealed) = crate::seal::length_of(lengths) else {
                made = at + LENGTHS as u64;
                break;
            };
            made = at.saturating_add((LENGTHS + sealed) as u64);
            if made > length {
                break;
            }
            let mut bytes = vec![0; sealed];
            place.disk.read(name, at + LENGTHS as u64, &mut bytes)?;
            let opened = seal.open(records, &mut bytes).and_then(record::decode);
            let here = Place {
                part: number,
                number: records,
                at: at + LENGTHS as u64,
                length: sealed as u32,
            };
            at = made;
            records += 1;
            match opened {
                Some((_, record)) if !has_hole => {
                    if records == 1 && !matches!(record, Record::Snapshot(_)) {
                        return Ok(Read::Unreadable);
                    }
                    self.take(record, here);
                    end = at;
                }
                // A record behind a damaged one: it tells whether that one had been synced.
                Some((synced, _)) => {
                    let next = self.backlog.as_ref().map_or(0, |backlog| backlog.next);
                    self.is_damaged |= synced >= next;
                }
                None if records == 1 => return unread(made),
                None => has_hole = true,
            }
        }
        match records {
            0 => unread(made),
            _ => Ok(Read::Until(Box::new(seal), end)),
        }
    }

    fn take(&mut self, record: Record<'_>, place: Place) {
        if let Record::Snapshot(snapshot) = record {
            // A later part repeats what the earlier ones said, unless one of them is gone.
            match &mut self.backlog {
                Some(backlog) if backlog.next == snapshot.next => {}
                Some(_) => self.is_damaged = true,
                empty => *empty = Some(Backlog::of_snapshot(&snapshot)),
            }
            self.snapshot = Some(*snapshot);
            return;
        }
        let (Some(backlog), Some(snapshot)) = (&mut self.backlog, &mut self.snapshot) else {
            return;
        };
        match record {
            Record::Snapshot(_) => {}
            Record::Data { offset, at, bytes } => backlog.write(offset, bytes.len() as u64, at, place),
            Record::Length { length, at } => backlog.set_len(length, at),
            Record::Change(change) => backlog.set(&change),
            Record::Draining { at, begins } => {
                snapshot.draining = Some(at);
                if begins {
                    backlog.begin();
                }
            }
            Record::Drained { mark, version } => {
                backlog.commit(mark, version.size);
                snapshot.base = version;
                snapshot.draining = None;
            }
            Record::Touched(version) => {
                snapshot.base = version;
                snapshot.draining = None;
                self.is_removing = false;
            }
            Record::Removing => self.is_removing = true,
            Record::Removed => self.is_removed = true,
            Record::Conflict(saved) => self.conflict = Some(saved),
        }
    }
}

/// Returns the snapshot of a state, for the next part.
pub(crate) fn snapshot_of(
    backlog: &Backlog,
    path: &ropeway_vfs::RelPath,
    base: record::Version,
    draining: Option<Timestamp>,
) -> Snapshot {
    Snapshot {
        path: path.clone(),
        base,
        next: backlog.next,
        size: backlog.size,
        far_valid: backlog.far_valid,
        least: backlog.least,
        length_from: backlog.length_from,
        change: backlog.change,
        change_from: backlog.change_from,
        draining,
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
