//! Times within the range of a volume.

use ropeway_vfs::Timestamp;
use ropeway_vfs::store::NodeChange;

use super::*;

/// 1601, 1700, 1900, 1969, 2038, 2400, 2500, 9999 and 30828. The kernel clamps times that the volume
/// cannot store.
#[test]
fn times_are_kept_or_refused() {
    const YEARS: [i64; 9] = [
        -11_644_473_600,
        -8_520_336_000,
        -2_208_988_800,
        -1,
        2_147_483_648,
        13_569_465_600,
        16_725_225_600,
        253_370_764_800,
        910_670_515_199,
    ];
    for folder in folders() {
        let store = store(folder.path());
        for how in [&CREATE, &LOOK] {
            let node = open(&store, "f", how);
            let first = Some(Timestamp::from_unix(1_000_000_000, 500));
            let set = |accessed, modified| {
                node.change(&NodeChange {
                    accessed,
                    modified,
                    ..NodeChange::default()
                })
            };
            for seconds in YEARS {
                set(first, first).unwrap();
                let time = Some(Timestamp::from_unix(seconds, 0));
                for (accessed, modified) in [(None, time), (time, None), (time, time)] {
                    let outcome = set(accessed, modified);
                    let now = node.stat().unwrap();
                    let expected = match &outcome {
                        Ok(()) => (accessed, modified),
                        Err(error) => {
                            assert_eq!(error.kind, ErrorKind::Misuse);
                            (first, first)
                        }
                    };
                    for (asked, has) in [(expected.0, now.accessed), (expected.1, now.modified)] {
                        assert!(asked.is_none_or(|asked| asked == has), "{seconds}: {outcome:?}");
                    }
                    set(first, first).unwrap();
                }
            }
        }
    }
}

/// A creation time may be set, the time of birth may not.
#[test]
fn the_birth_is_that_of_the_volume() {
    for folder in folders() {
        let store = store(folder.path());
        let node = put(&store, "f", b"content");
        let born = node.birth().unwrap();
        let set = NodeChange {
            created: Some(Timestamp::from_unix(1_000_000_000, 0)),
            ..NodeChange::default()
        };
        node.change(&set).unwrap();
        assert_eq!(node.birth().unwrap(), born);
        std::fs::remove_file(folder.path().join("f")).unwrap();
        let second = put(&store, "f", b"content");
        if born.is_some() {
            // Clocks of volumes tick some milliseconds apart.
            assert!(second.birth().unwrap() >= born);
        }
    }
}
