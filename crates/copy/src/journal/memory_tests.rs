//! Tests the rules of trust against a model: a journal of several boots, with flushes, failed
//! flushes and a clock that is set.

use super::*;
use crate::journal::record::Begin;
use proptest::prelude::*;

/// What happens to a target, in order.
#[derive(Clone, Debug)]
enum Event {
    /// A run begins, after a power cut if `is_boot`.
    Begin {
        is_boot: bool,
        names_durable: bool,
    },
    /// A file is written and stays hidden.
    Write,
    Sync,
    FailedSync,
    /// The clock is set. A running job sees it.
    Clock {
        by: i128,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<bool>(), any::<bool>()).prop_map(|(is_boot, names_durable)| Event::Begin {
            is_boot,
            names_durable
        }),
        Just(Event::Write),
        Just(Event::Write),
        Just(Event::Sync),
        Just(Event::FailedSync),
        (-50..50_i128).prop_map(|by| Event::Clock { by }),
    ]
}

/// A file of the model.
#[derive(Clone, Copy, Debug)]
struct Written {
    changed: Timestamp,
    is_durable: bool,
    /// Whether the page cache has it.
    is_cached: bool,
}

proptest! {
    #[test]
    fn nothing_is_trusted_that_is_not_there(events in proptest::collection::vec(event(), 1..40)) {
        let (mut memory, mut files) = (Memory::default(), Vec::<Written>::new());
        let (mut now, mut boot) = (1000_i128, 0_u32);
        let mut records: Vec<Box<dyn Fn() -> Record>> = Vec::new();
        let first = Event::Begin { is_boot: false, names_durable: false };
        for event in std::iter::once(first).chain(events) {
            now += 1;
            let at = Timestamp(now);
            match event {
                Event::Begin { is_boot, names_durable } => {
                    boot += u32::from(is_boot);
                    for file in &mut files {
                        file.is_cached &= !is_boot;
                    }
                    let text = boot.to_string();
                    records.push(Box::new(move || Record::Begin(Begin {
                        version: 2,
                        boot: text.clone(),
                        started: at,
                        nonce: 1,
                        names_durable,
                        sources: Vec::new(),
                        target: String::new(),
                    })));
                }
                Event::Write => files.push(Written { changed: at, is_durable: false, is_cached: true }),
                Event::Sync => {
                    for file in files.iter_mut().filter(|file| file.is_cached) {
                        file.is_durable = true;
                    }
                    records.push(Box::new(move || Record::Durable { before: at, files: Vec::new() }));
                }
                Event::FailedSync => {
                    for file in files.iter_mut().filter(|file| !file.is_durable) {
                        file.is_cached = false;
                    }
                    records.push(Box::new(|| Record::Lost {}));
                }
                Event::Clock { by } => {
                    now += by;
                    if by < 0 {
                        records.push(Box::new(|| Record::ClockStepped {}));
                    }
                }
            }
        }
        for record in &records {
            memory.apply(record(), &boot.to_string());
        }
        memory.begin(Timestamp(now + 1));
        for file in files {
            let is_there = file.is_durable || file.is_cached;
            let trusted = memory.trusts(Some(file.changed), true, &boot.to_string());
            prop_assert!(is_there || !trusted, "{file:?} {memory:?}");
        }
    }
}

#[test]
fn a_node_is_known_by_whatever_is_known_of_it() {
    let node = |index, created, user| Metadata {
        id: Some(ropeway_vfs::FileId { volume: 1, index }),
        created: Some(Timestamp(created)),
        owner: Some(ropeway_vfs::Owner { user, group: 0 }),
        ..Metadata::bare(ropeway_vfs::Kind::File, 1, Timestamp(1))
    };
    let source = node(1, 2, 1000);
    let made = MadeNode::of(&node(7, 9, 0), true);
    assert!(made.is(&node(7, 9, 0), &source));
    assert!(made.is(&node(7, 9, 1000), &source), "given to its owner");
    assert!(
        made.is(&node(7, 2, 0), &source),
        "given the source's creation time"
    );
    assert!(!made.is(&node(8, 9, 0), &source));
    assert!(!made.is(&node(7, 10, 0), &source), "the number was used again");
    assert!(!made.is(&node(7, 9, 666), &source));
    assert!(
        MadeNode::of(&node(7, 9, 0), false).is(&node(8, 9, 0), &source),
        "numbers that do not stay"
    );
}
