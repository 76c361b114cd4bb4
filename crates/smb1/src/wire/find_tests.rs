use proptest::prelude::*;
use ropeway_smb_wire::Text;

use super::*;
use crate::hostile;

const LEVELS: [Level; 8] = [
    level::STANDARD,
    level::EA_SIZE,
    level::DIRECTORY,
    level::FULL_DIRECTORY,
    level::NAMES,
    level::BOTH_DIRECTORY,
    level::ID_FULL_DIRECTORY,
    level::ID_BOTH_DIRECTORY,
];

fn layout(level: Level, is_unicode: bool) -> Layout {
    Layout {
        level,
        is_unicode,
        has_keys: true,
        zone: Zone(-60),
    }
}

/// Returns what is left of an entry at a level.
fn at_level(entry: &Entry, layout: &Layout) -> Entry {
    let mut out = Vec::new();
    layout.push(entry, &mut out, None, usize::MAX).unwrap();
    layout.decode(&out, 1).unwrap().remove(0)
}

fn entry(name: &str, is_unicode: bool) -> Entry {
    Entry {
        index: 5,
        creation_time: FileTime::from_unix(1_000_000_000, 0),
        last_write_time: FileTime::from_unix(1_000_000_002, 0),
        end_of_file: 77,
        attributes: 0x20,
        short_name: [b'A', 0, b'~', 0, b'1', 0].to_vec(),
        file_id: 9,
        name: match is_unicode {
            true => Str::unicode(&Text::from(name)),
            false => Str::oem(name.as_bytes()),
        },
        ..Entry::default()
    }
}

proptest! {
    #[test]
    fn listings_round_trip(names in prop::collection::vec("[a-z]{1,40}", 1..20), max in 200_usize..4_000) {
        for level in LEVELS {
            for is_unicode in [true, false] {
                let layout = layout(level, is_unicode);
                let (mut out, mut last, mut pushed) = (Vec::new(), None, Vec::new());
                for name in &names {
                    let entry = entry(name, is_unicode);
                    match layout.push(&entry, &mut out, last, max) {
                        Some(at) => last = Some(at),
                        None => break,
                    }
                    pushed.push(at_level(&entry, &layout));
                }
                prop_assert!(out.len() <= max);
                prop_assert_eq!(layout.decode(&out, pushed.len()), Ok(pushed), "{:?}", layout);
            }
        }
    }
}

#[test]
fn every_level_keeps_the_name_and_most_keep_sizes_and_times() {
    for level in LEVELS {
        for is_unicode in [true, false] {
            let layout = layout(level, is_unicode);
            assert!(layout.is_known());
            let whole = entry("name.txt", is_unicode);
            let kept = at_level(&whole, &layout);
            assert_eq!(kept.name, whole.name, "{layout:?}");
            if level != level::NAMES {
                assert_eq!((kept.end_of_file, kept.attributes), (77, 0x20));
                assert_eq!(kept.last_write_time, whole.last_write_time);
            }
        }
    }
    let both = at_level(&entry("n", true), &layout(level::ID_BOTH_DIRECTORY, true));
    assert_eq!((both.file_id, both.short_name.len()), (9, 6));
}

#[test]
fn a_zero_that_is_counted_is_dropped() {
    let layout = layout(level::NAMES, true);
    let mut out = Vec::new();
    let mut with_zero = Str::unicode(&Text::from("ab")).as_bytes().to_vec();
    with_zero.extend([0, 0]);
    let name = Str::read(&mut Reader::new(&with_zero, "test"), true, 6).unwrap();
    let entry = Entry {
        name,
        ..Entry::default()
    };
    layout.push(&entry, &mut out, None, 1000).unwrap();
    assert_eq!(
        layout.decode(&out, 1).unwrap()[0].name,
        Str::unicode(&Text::from("ab"))
    );
}

#[test]
fn parameters_round_trip() {
    let first = FindFirst {
        search_attributes: 0x16,
        count: 100,
        flags: FindFlags::CLOSE_AT_EOS,
        level: level::BOTH_DIRECTORY,
        pattern: Str::unicode(&Text::from("\\dir\\*")),
    };
    assert_eq!(FindFirst::decode(&first.to_bytes(), true), Ok(first.clone()));
    let next = FindNext {
        sid: 1,
        count: 100,
        level: level::BOTH_DIRECTORY,
        resume_key: 3,
        flags: FindFlags::CONTINUE_FROM_LAST,
        name: Str::unicode(&Text::from("last")),
    };
    assert_eq!(FindNext::decode(&next.to_bytes(), true), Ok(next.clone()));
    hostile::attack(&first.to_bytes(), 0, |bytes| {
        FindFirst::decode(bytes, true).is_ok()
    });
    hostile::attack(&next.to_bytes(), 0, |bytes| {
        FindNext::decode(bytes, false).is_ok()
    });
}

#[test]
fn hostile_listings_end() {
    for level in LEVELS {
        for is_unicode in [true, false] {
            let layout = layout(level, is_unicode);
            let mut out = Vec::new();
            let mut last = None;
            for name in ["one", "two", "three"] {
                last = layout.push(&entry(name, is_unicode), &mut out, last, 10_000);
            }
            hostile::attack(&out, 0, |bytes| {
                let entries = layout.decode(bytes, usize::MAX);
                if let Ok(entries) = entries {
                    assert!(entries.len() <= 1 + bytes.len() / 12);
                }
            });
        }
    }
}
