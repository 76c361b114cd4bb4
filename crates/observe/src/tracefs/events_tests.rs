//! Tests of pairing and merging.

use super::*;
use proptest::prelude::*;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

fn text(id: u16, fields: &str) -> String {
    format!("name: x\nID: {id}\nformat:\n{COMMON}{fields}")
}

const ENTER: u16 = 10;
const EXIT: u16 = 11;
const FORK: u16 = 12;
const EXECUTE: u16 = 13;
const END: u16 = 14;

fn meanings(with_names: bool) -> Meanings {
    let name = if with_names {
        "\tfield:__data_loc char[] __filename_val;\toffset:48;\tsize:4;\tsigned:0;\n"
    } else {
        ""
    };
    let enter = format!(
        "\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
         \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
         \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
         \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
         \tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n{name}"
    );
    let texts = [
        ("sys_enter_openat", text(ENTER, &enter)),
        (
            "sys_exit_openat",
            text(EXIT, "\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n"),
        ),
        (
            "sched_process_fork",
            text(FORK, "\tfield:pid_t child_pid;\toffset:20;\tsize:4;\tsigned:1;\n"),
        ),
        (
            "sched_process_exec",
            text(
                EXECUTE,
                "\tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
                 \tfield:pid_t old_pid;\toffset:16;\tsize:4;\tsigned:1;\n",
            ),
        ),
        ("sched_process_exit", text(END, "")),
        ("sys_enter_nonsense", text(99, "")),
    ];
    let texts = texts.iter().map(|(name, text)| (*name, text.as_str()));
    Meanings::new(texts, &Catalogue::of_this_machine()).unwrap()
}

/// Builds an event of 64 bytes.
fn event(kind: u16, thread: u32, words: &[(usize, u64)]) -> Vec<u8> {
    let mut event = vec![0; 64];
    event[..2].copy_from_slice(&kind.to_ne_bytes());
    event[4..8].copy_from_slice(&thread.to_ne_bytes());
    for (at, word) in words {
        event[*at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }
    event
}

struct Alone;

impl Threads for Alone {
    fn process_of(&mut self, _thread: u32) -> Option<u32> {
        None
    }
}

#[test]
fn begin_and_end_of_a_call_become_one() {
    for with_names in [false, true] {
        let meanings = meanings(with_names);
        assert_eq!(meanings.has_names(), with_names);
        let mut pairing = Pairing::new(meanings);
        let mut begin = event(ENTER, 7, &[(16, 5), (32, 0x42), (48, 5 << 16 | 56)]);
        begin[56..61].copy_from_slice(b"name\0");
        let mut calls = 0;
        let mut pass = |event: RawEvent<'_>| {
            let RawEvent::Call(call) = event else {
                panic!("{event:?}")
            };
            assert_eq!((call.start_ns, call.end_ns, call.result), (100, 130, -2));
            assert_eq!((call.thread, call.args[0], call.args[2]), (7, 5, 0x42));
            let expected = if with_names {
                Captured::Bytes(b"name")
            } else {
                Captured::Nothing
            };
            assert_eq!(call.captured[0], expected);
            calls += 1;
        };
        pairing.take(100, &begin, &mut Alone, &mut pass);
        let end = event(EXIT, 7, &[(16, (-2_i64).cast_unsigned())]);
        pairing.take(130, &end, &mut Alone, &mut pass);
        // An end without a begin.
        pairing.take(131, &end, &mut Alone, &mut pass);
        assert_eq!((calls, pairing.unpaired(), pairing.in_progress()), (1, 0, 0));
    }
}

#[test]
fn a_thread_that_ends_in_a_call_leaves_it_unfinished() {
    let mut pairing = Pairing::new(meanings(false));
    let mut seen = Vec::new();
    let mut pass = |event: RawEvent<'_>| seen.push(matches!(event, RawEvent::Unfinished(_)));
    pairing.take(1, &event(ENTER, 7, &[]), &mut Alone, &mut pass);
    pairing.take(2, &event(END, 7, &[]), &mut Alone, &mut pass);
    assert_eq!(seen, [true, false]);
}

proptest! {
    #[test]
    fn hostile_events_are_bounded(
        events in proptest::collection::vec(
            (10_u16..16, 0_u32..5, proptest::collection::vec(any::<u8>(), 0..64)), 0..200,
        ),
    ) {
        let mut pairing = Pairing::new(meanings(true));
        let mut passed = 0;
        for (time, (kind, thread, rest)) in events.iter().enumerate() {
            let mut bytes = event(*kind, *thread, &[]);
            bytes[8..8 + rest.len().min(56)].copy_from_slice(&rest[..rest.len().min(56)]);
            bytes.truncate(rest.len());
            pairing.take(time as u64, &bytes, &mut Alone, &mut |_| passed += 1);
            prop_assert!(pairing.in_progress() <= 6);
        }
        prop_assert!(passed <= 2 * events.len());
    }

    #[test]
    fn merging_orders_what_is_released(
        times in proptest::collection::vec((0_u64..50, 0_u64..60), 0..60),
    ) {
        let mut merge = Merge::default();
        let (mut released, mut last, mut bound) = (0, 0, 0);
        for (time, next) in &times {
            // Nothing comes that is older than what was released: the kernel's order.
            let time = (*time).max(bound);
            merge.add(time, &[]);
            bound = bound.max(*next);
            merge.release(bound, |time, _| {
                assert!(time >= last && time < bound);
                (last, released) = (time, released + 1);
            });
        }
        merge.release(u64::MAX, |_, _| released += 1);
        prop_assert_eq!(released, times.len());
    }
}
