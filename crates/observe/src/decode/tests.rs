//! Tests of decoding: calls in, operations out.

use super::*;
use proptest::prelude::*;

/// A system without processes, except that descriptor 0 is a file and 1 a pipe.
struct Fake;

impl System for Fake {
    fn descriptor(&self, _process: u32, descriptor: i32) -> Option<Vec<u8>> {
        match descriptor {
            0 => Some(b"/dev/input".to_vec()),
            1 => Some(b"pipe:[7]".to_vec()),
            _ => None,
        }
    }

    fn position(&self, _process: u32, _descriptor: i32) -> Option<(u64, u32)> {
        None
    }

    fn folder(&self, _process: u32) -> Option<Vec<u8>> {
        Some(b"/home".to_vec())
    }

    fn program(&self, _process: u32) -> Option<Vec<u8>> {
        Some(b"test".to_vec())
    }
}

/// What a test looks at: kind, path, second path, offset, length, result.
type Seen = (&'static str, String, String, u64, u64, i64);

struct Scene {
    decoder: Decoder<Fake>,
    catalogue: Catalogue,
    seen: Vec<Seen>,
}

fn scene() -> Scene {
    let catalogue = Catalogue::of_this_machine();
    Scene {
        decoder: Decoder::new(catalogue.clone(), Fake, 0),
        catalogue,
        seen: Vec::new(),
    }
}

const AT_FDCWD: u64 = libc::AT_FDCWD as u32 as u64;

impl Scene {
    fn event(&mut self, event: RawEvent<'_>) {
        let seen = &mut self.seen;
        self.decoder.take(event, &mut |record| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            seen.push((
                record.kind,
                text(record.path),
                text(record.to),
                record.offset,
                record.length,
                record.result,
            ));
        });
    }

    fn raw<'a>(&self, name: &str, args: &[u64], captured: [Captured<'a>; 2], result: i64) -> RawCall<'a> {
        let (number, _) = self
            .catalogue
            .entries()
            .find(|(_, entry)| entry.name == name)
            .unwrap();
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        RawCall {
            thread: 5,
            process: 5,
            number,
            start_ns: 10,
            end_ns: 20,
            result,
            args: all,
            captured,
            position: None,
        }
    }

    fn call(&mut self, name: &str, args: &[u64], text: &[u8], result: i64) {
        self.call_with(name, args, [Captured::Bytes(text), Captured::Nothing], result);
    }

    fn call_with(&mut self, name: &str, args: &[u64], captured: [Captured<'_>; 2], result: i64) {
        let call = self.raw(name, args, captured, result);
        self.event(RawEvent::Call(call));
    }

    /// Takes what was seen since the last time.
    fn taken(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }
}

fn seen(kind: &'static str, path: &str, offset: u64, length: u64, result: i64) -> Seen {
    (kind, path.to_owned(), String::new(), offset, length, result)
}

#[test]
fn descriptors_become_paths_and_positions_offsets() {
    let mut scene = scene();
    scene.call("openat", &[AT_FDCWD, 1, 0], b"a/b\0", 7);
    scene.call("read", &[7, 1, 100], b"", 60);
    scene.call("read", &[7, 1, 100], b"", 0);
    scene.call("pread64", &[7, 1, 9, 4000], b"", 9);
    scene.call("lseek", &[7, 1000, 0], b"", 1000);
    scene.call("write", &[7, 1, 5], b"", 5);
    scene.call("write", &[7, 1, 5], b"", -28);
    scene.call("close", &[7], b"", 0);
    scene.call("read", &[7, 1, 1], b"", -9);
    let file = "/home/a/b";
    let expected = [
        seen("open", file, 0, 0, 7),
        seen("read", file, 0, 100, 60),
        seen("read", file, 60, 100, 0),
        seen("read", file, 4000, 9, 9),
        seen("seek", file, 1000, 0, 1000),
        seen("write", file, 1000, 5, 5),
        seen("write", file, 1005, 5, -28),
        seen("close", file, 0, 0, 0),
        seen("read", "fd 7", 0, 1, -9),
    ];
    assert_eq!(scene.taken(), expected);
}

#[test]
fn the_kernels_position_wins() {
    let mut scene = scene();
    scene.call(
        "openat",
        &[AT_FDCWD, 1, (libc::O_APPEND | libc::O_CREAT) as u64],
        b"/log",
        3,
    );
    let mut call = scene.raw("write", &[3, 1, 10], [Captured::Nothing; 2], 10);
    call.position = Some(510);
    scene.event(RawEvent::Call(call));
    assert_eq!(
        scene.taken(),
        [
            seen("create", "/log", 0, 0, 3),
            seen("write", "/log", 500, 10, 10)
        ]
    );
}

#[test]
fn pipes_and_sockets_are_left_out() {
    let mut scene = scene();
    scene.call("write", &[1, 1, 5], b"", 5);
    scene.call("socket", &[1, 1, 0], b"", 4);
    scene.call("write", &[4, 1, 5], b"", 5);
    let pair = [8_i32.to_ne_bytes(), 9_i32.to_ne_bytes()].concat();
    scene.call("pipe2", &[1, 0], &pair, 0);
    scene.call("newfstatat", &[8, 1, 0, 0x1000], b"\0", 0);
    scene.call("read", &[8, 1, 5], b"", 5);
    scene.call("dup2", &[9, 0], b"", 0);
    scene.call("write", &[0, 1, 5], b"", 5);
    scene.call("close", &[4], b"", 0);
    assert_eq!(scene.taken(), []);
    assert_eq!(scene.decoder.rings(), 0);
    scene.call("io_uring_setup", &[8, 1], b"", 4);
    assert_eq!(scene.decoder.rings(), 1);
}

#[test]
fn inherited_descriptors_are_asked_for() {
    let mut scene = scene();
    scene.call("read", &[0, 1, 5], b"", 5);
    scene.call("fsync", &[6], b"", 0);
    assert_eq!(
        scene.taken(),
        [seen("read", "/dev/input", 0, 5, 5), seen("sync", "fd 6", 0, 0, 0)]
    );
}

#[test]
fn paths_begin_at_folders() {
    let mut scene = scene();
    scene.call("chdir", &[1], b"sub", 0);
    scene.call("openat", &[AT_FDCWD, 1, 0], b".", 3);
    scene.call("newfstatat", &[3, 1, 2, 0], b"x", -2);
    scene.call("newfstatat", &[3, 1, 2, libc::AT_EMPTY_PATH as u64], b"", 0);
    scene.call_with("utimensat", &[3, 0, 2, 0], [Captured::Unreadable; 2], 0);
    scene.call("fchdir", &[3], b"", 0);
    scene.call("unlinkat", &[AT_FDCWD, 1, 0], b"/abs//y", -13);
    let expected = [
        seen("change_dir", "/home/sub", 0, 0, 0),
        seen("open", "/home/sub", 0, 0, 3),
        seen("stat", "/home/sub/x", 0, 0, -2),
        seen("stat", "/home/sub", 0, 0, 0),
        seen("set_attributes", "/home/sub", 0, 0, 0),
        seen("change_dir", "/home/sub", 0, 0, 0),
        seen("remove", "/abs/y", 0, 0, -13),
    ];
    assert_eq!(scene.taken(), expected);
}

#[test]
fn operations_on_two_files_have_two_paths() {
    let mut scene = scene();
    let both = |one, two| [Captured::Bytes(one), Captured::Bytes(two)];
    scene.call_with("renameat2", &[AT_FDCWD, 1, AT_FDCWD, 2, 0], both(b"a", b"b"), 0);
    scene.call_with("symlinkat", &[1, AT_FDCWD, 2], both(b"../target", b"link"), 0);
    scene.call("openat", &[AT_FDCWD, 1, 0], b"/in", 3);
    scene.call("openat", &[AT_FDCWD, 1, libc::O_CREAT as u64], b"/out", 4);
    scene.taken();
    scene.call("copy_file_range", &[3, 0, 4, 0, 100, 0], b"", 70);
    let after = 1070_u64.to_ne_bytes();
    let moved = [Captured::Nothing, Captured::Bytes(&after)];
    scene.call_with("copy_file_range", &[3, 0, 4, 1, 100, 0], moved, 70);
    scene.call("ioctl", &[4, 0x4004_9409, 3], b"", 0);
    scene.call("ioctl", &[4, 0x5401, 3], b"", -25);
    let pair = |kind, path: &str, to: &str, offset, length, result| {
        (kind, path.to_owned(), to.to_owned(), offset, length, result)
    };
    let expected = [
        pair("copy_range", "/in", "/out", 0, 100, 70),
        pair("copy_range", "/in", "/out", 1000, 100, 70),
        pair("reflink", "/in", "/out", 0, 0, 0),
    ];
    assert_eq!(scene.taken(), expected);
}

#[test]
fn a_program_that_is_executed_has_its_path_and_loses_descriptors() {
    let mut scene = scene();
    scene.call("openat", &[AT_FDCWD, 1, libc::O_CLOEXEC as u64], b"/closed", 3);
    scene.call("openat", &[AT_FDCWD, 1, 0], b"/kept", 4);
    let begin = scene.raw(
        "execve",
        &[1, 2, 3],
        [Captured::Bytes(b"./run"), Captured::Nothing],
        0,
    );
    scene.event(RawEvent::Entered(begin));
    scene.event(RawEvent::Execute {
        process: 5,
        program: b"run",
    });
    scene.call_with(
        "execve",
        &[1, 2, 3],
        [Captured::Bytes(b"garbage"), Captured::Nothing],
        0,
    );
    scene.call("fsync", &[3], b"", -9);
    scene.call("fsync", &[4], b"", 0);
    let expected = [
        seen("execute", "/home/run", 0, 0, 0),
        seen("sync", "fd 3", 0, 0, -9),
        seen("sync", "/kept", 0, 0, 0),
    ];
    assert_eq!(scene.taken()[2..], expected);
}

#[test]
fn interrupted_and_mapped_results_are_plain() {
    let mut scene = scene();
    scene.call("openat", &[AT_FDCWD, 1, 0], b"/f", 3);
    scene.call("mmap", &[0, 8192, 1, 2, 3, 4096], b"", 0x7f00_0000_0000);
    scene.call("mmap", &[0, 8192, 1, 0x22, u64::MAX, 0], b"", 0x7f00_0000_0000);
    let call = scene.raw("read", &[3, 1, 5], [Captured::Nothing; 2], 0);
    scene.event(RawEvent::Unfinished(call));
    scene.call("read", &[3, 1, 5], b"", -512);
    let expected = [
        seen("map", "/f", 4096, 8192, 0),
        seen("read", "/f", 0, 5, -4),
        seen("read", "/f", 0, 5, -4),
    ];
    assert_eq!(scene.taken()[1..], expected);
}

#[test]
fn children_inherit() {
    let mut scene = scene();
    scene.call("openat", &[AT_FDCWD, 1, 0], b"/f", 3);
    scene.event(RawEvent::Fork {
        parent: 5,
        parent_process: 5,
        child: 6,
        child_process: 6,
    });
    scene.call("close", &[3], b"", 0);
    let mut call = scene.raw("read", &[3, 1, 5], [Captured::Nothing; 2], 5);
    (call.thread, call.process) = (6, 6);
    scene.event(RawEvent::Call(call));
    scene.event(RawEvent::Exit {
        thread: 6,
        process: 6,
    });
    assert_eq!(scene.taken()[2..], [seen("read", "/f", 0, 5, 5)]);
}

proptest! {
    #[test]
    fn hostile_calls_are_decoded_or_left_out(
        calls in proptest::collection::vec(
            (
                0_u32..500,
                proptest::array::uniform6(prop_oneof![0_u64..9, any::<u64>(), Just(AT_FDCWD)]),
                any::<i64>(),
                proptest::collection::vec(any::<u8>(), 0..40),
                0_u8..3,
                0_u8..6,
            ),
            0..60,
        ),
    ) {
        let mut scene = scene();
        for (number, args, result, bytes, has, event) in calls {
            let captured = match has {
                0 => Captured::Nothing,
                1 => Captured::Bytes(&bytes),
                _ => Captured::Unreadable,
            };
            let call = RawCall {
                thread: 5,
                process: 5,
                number,
                start_ns: args[0],
                end_ns: args[1],
                result: if result % 2 == 0 { result % 16 } else { result },
                args,
                captured: [captured, captured],
                position: (has == 1).then_some(args[2]),
            };
            let [thread, child, ..] = args.map(|arg| arg as u32);
            scene.event(match event {
                0 => RawEvent::Entered(call),
                1 => RawEvent::Unfinished(call),
                2 => RawEvent::Fork { parent: 5, parent_process: 5, child, child_process: thread },
                3 => RawEvent::Execute { process: 5, program: &bytes },
                4 => RawEvent::Exit { thread, process: child },
                _ => RawEvent::Call(call),
            });
        }
        for (kind, path, ..) in scene.taken() {
            prop_assert!(!kind.is_empty() && !path.is_empty());
        }
    }
}
