//! Parser of fanotify's events (fanotify(7), "Reading fanotify events").

use ropeway_vfs::Name;

use crate::sys::fanotify::FileHandle;

/// A node by its volume and handle.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    /// Both halves of the volume's id, combined as statvfs(3) does.
    pub(super) volume: u64,
    pub(super) handle: FileHandle,
}

/// A name in a folder.
pub(super) type Spot = (Key, Name);

/// One event. The mask of merged events has several bits.
#[derive(Debug, Default)]
pub(super) struct Event {
    pub(super) mask: u64,
    /// The process that caused it; 0 for other processes if this one has no privilege.
    pub(super) process: i32,
    /// The node that it happened to.
    pub(super) node: Option<Key>,
    /// The watched folder that it happened to.
    pub(super) folder: Option<Key>,
    /// The entry of a folder that it happened to.
    pub(super) entry: Option<Spot>,
    /// The entry before a rename.
    pub(super) old: Option<Spot>,
    /// The entry after a rename.
    pub(super) new: Option<Spot>,
}

/// `struct fanotify_event_metadata`: length at 0, version at 4, its own length at 6, mask at 8, process at 20.
const METADATA_LEN: usize = 24;
/// `struct fanotify_event_info_header` and `__kernel_fsid_t`, then length and type of the handle.
const RECORD_LEN: usize = 4 + 8 + 8;

/// Returns all events in the result of one read(2).
pub(super) fn events(mut bytes: &[u8]) -> impl Iterator<Item = Event> + '_ {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let event = bytes.get(..length).filter(|event| event.len() >= METADATA_LEN)?;
        bytes = &bytes[length..];
        parse(event)
    })
}

fn parse(bytes: &[u8]) -> Option<Event> {
    let mut event = Event {
        mask: u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?),
        process: u32_at(bytes, 20)?.cast_signed(),
        ..Event::default()
    };
    let mut records = bytes.get(u16_at(bytes, 6)? as usize..)?;
    while records.len() >= RECORD_LEN {
        let length = u16_at(records, 2)? as usize;
        let record = records
            .get(..length)
            .filter(|record| record.len() >= RECORD_LEN)?;
        records = &records[length..];
        event.take(record);
    }
    Some(event)
}

impl Event {
    fn take(&mut self, record: &[u8]) -> Option<()> {
        let end = RECORD_LEN.checked_add(u32_at(record, 12)? as usize)?;
        let key = Key {
            volume: u64::from(u32_at(record, 4)?) | u64::from(u32_at(record, 8)?) << 32,
            handle: FileHandle {
                kind: u32_at(record, 16)?.cast_signed(),
                bytes: record.get(RECORD_LEN..end)?.into(),
            },
        };
        let name = record
            .get(end..)?
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let spot = |key| Some((key, Name::new(name)?));
        match record[0] {
            libc::FAN_EVENT_INFO_TYPE_FID => self.node = Some(key),
            libc::FAN_EVENT_INFO_TYPE_DFID => self.folder = Some(key),
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME if name == b"." => self.folder = Some(key),
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME => self.entry = spot(key),
            libc::FAN_EVENT_INFO_TYPE_OLD_DFID_NAME => self.old = spot(key),
            libc::FAN_EVENT_INFO_TYPE_NEW_DFID_NAME => self.new = spot(key),
            _ => {}
        }
        Some(())
    }

    pub(super) fn has(&self, bits: u64) -> bool {
        self.mask & bits != 0
    }
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    let bytes = bytes.get(place..place + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    let bytes = bytes.get(place..place + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}
