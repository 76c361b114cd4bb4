//! Events of fanotify(7), parsed.
//!
//! ```text
//!   u32 length  u8 version  u8 –  u16 length of this part  u64 what  i32 –  i32 process
//!   u8 kind  u8 –  u16 length   u64 volume   u32 length  i32 kind   handle …   name, NUL
//! ```

use super::super::sys::fanotify::HANDLE_MAX;

/// Bytes of `struct fanotify_event_metadata`.
const METADATA_BYTES: usize = 24;
/// `FANOTIFY_METADATA_VERSION`.
const VERSION: u8 = 3;
/// Kinds of information (linux/fanotify.h): folder and name; for renames the old and the new ones.
const DFID_NAME: u8 = 2;
const OLD_DFID_NAME: u8 = 10;
const NEW_DFID_NAME: u8 = 12;
/// Bytes in front of a handle: kind and length, volume, size and kind of the handle.
const BEFORE_HANDLE: usize = 4 + 8 + 8;

/// A node: the handle of its folder, and its name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'e> {
    /// Kind of the folder's handle.
    pub handle_kind: i32,
    /// The folder's handle.
    pub handle: &'e [u8],
    /// The name; `.` for the folder itself.
    pub name: &'e [u8],
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'e> {
    /// What happened: bits of linux/fanotify.h. Several if the kernel merged events.
    pub what: u64,
    /// Process; 0 if it is not known.
    pub process: u32,
    /// The node; with its old name if it was renamed.
    pub place: Option<Place<'e>>,
    /// Its new name.
    pub new_place: Option<Place<'e>>,
}

/// The events of what was read.
#[derive(Clone, Debug)]
pub struct Events<'e>(&'e [u8]);

impl<'e> Events<'e> {
    /// Begins with what read(2) returned.
    pub fn new(bytes: &'e [u8]) -> Self {
        Self(bytes)
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

impl<'e> Iterator for Events<'e> {
    type Item = Event<'e>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = u32::from_ne_bytes(number(self.0, 0)?) as usize;
        let event = parse(self.0.get(..length)?);
        // Whatever follows a malformed event is not understood.
        self.0 = if event.is_some() { &self.0[length..] } else { &[] };
        event
    }
}

fn parse(bytes: &[u8]) -> Option<Event<'_>> {
    let metadata = usize::from(u16::from_ne_bytes(number(bytes, 6)?));
    if bytes.len() < METADATA_BYTES || metadata < METADATA_BYTES || bytes[4] != VERSION {
        return None;
    }
    let mut event = Event {
        what: u64::from_ne_bytes(number(bytes, 8)?),
        process: u32::try_from(i32::from_ne_bytes(number(bytes, 20)?)).unwrap_or(0),
        place: None,
        new_place: None,
    };
    let mut rest = bytes.get(metadata..)?;
    while let Some(length) = number(rest, 2) {
        let length = usize::from(u16::from_ne_bytes(length));
        if length < 4 {
            break;
        }
        let information = rest.get(..length)?;
        match information[0] {
            DFID_NAME | OLD_DFID_NAME => event.place = place(information),
            NEW_DFID_NAME => event.new_place = place(information),
            _ => {}
        }
        rest = &rest[length..];
    }
    Some(event)
}

fn place(information: &[u8]) -> Option<Place<'_>> {
    let length = u32::from_ne_bytes(number(information, 12)?) as usize;
    let handle_kind = i32::from_ne_bytes(number(information, 16)?);
    if length > HANDLE_MAX {
        return None;
    }
    let handle = information.get(BEFORE_HANDLE..BEFORE_HANDLE + length)?;
    let name = &information[BEFORE_HANDLE + length..];
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(Place {
        handle_kind,
        handle,
        name: &name[..end],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn information(kind: u8, name: &str) -> Vec<u8> {
        let mut bytes = vec![kind, 0, 0, 0];
        bytes.extend([9; 8]);
        bytes.extend(4_u32.to_ne_bytes());
        bytes.extend(1_i32.to_ne_bytes());
        bytes.extend([7; 4]);
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let length = u16::try_from(bytes.len()).unwrap().to_ne_bytes();
        bytes[2..4].copy_from_slice(&length);
        bytes
    }

    fn event(what: u64, parts: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; METADATA_BYTES];
        bytes.extend(parts.concat());
        let length = u32::try_from(bytes.len()).unwrap().to_ne_bytes();
        bytes[..4].copy_from_slice(&length);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&24_u16.to_ne_bytes());
        bytes[8..16].copy_from_slice(&what.to_ne_bytes());
        bytes[20..24].copy_from_slice(&12_i32.to_ne_bytes());
        bytes
    }

    #[test]
    fn events_have_names() {
        let rename = event(
            0x1000_0000,
            &[
                information(OLD_DFID_NAME, "old"),
                information(NEW_DFID_NAME, "new"),
            ],
        );
        let open = event(0x20, &[information(DFID_NAME, "a")]);
        let bytes = [rename, open].concat();
        let found: Vec<Event<'_>> = Events::new(&bytes).collect();
        assert_eq!(found.len(), 2);
        let names: Vec<&[u8]> = found.iter().filter_map(|event| Some(event.place?.name)).collect();
        assert_eq!(names, [&b"old"[..], b"a"]);
        let new = found[0].new_place.unwrap();
        assert_eq!(
            (new.name, new.handle, new.handle_kind, found[1].process),
            (&b"new"[..], &[7; 4][..], 1, 12)
        );
    }

    proptest! {
        #[test]
        fn hostile_events_end(place in 0_usize..100, byte: u8, cut in 0_usize..100, random in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = event(0x20, &[information(DFID_NAME, "name"), information(NEW_DFID_NAME, "x")]);
            let length = bytes.len();
            bytes[place % length] = byte;
            bytes.truncate(length - cut % length);
            prop_assert!(Events::new(&bytes).count() <= 1 + length / METADATA_BYTES);
            prop_assert!(Events::new(&random).count() <= random.len());
        }
    }
}
