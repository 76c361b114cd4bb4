//! Tests of trace files.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use ropeway_vfs::End;
use ropeway_vfs::trace::{By, Record};

use super::text::escape;
use super::*;

fn open(file: &Path) -> Result<TraceReader<BufReader<File>>, ReadError> {
    TraceReader::of_file(File::open(file)?)
}

/// A record without anything else.
fn on<'a>(kind: &'static str, path: &'a [u8]) -> Record<'a> {
    Record {
        start: Duration::ZERO,
        duration: Duration::ZERO,
        end: None,
        kind,
        path,
        to: &[],
        offset: 0,
        length: 0,
        result: 0,
        by: By::default(),
    }
}

#[test]
fn recorded_operations_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let writer = TraceWriter::create(&file, "auto").unwrap();
    let observer = writer.observer();
    let path = b"a\\b/\xff \"c\"\n";
    let count = 25_000;
    for offset in 0..count {
        let now = observer.now();
        observer.record(Record {
            start: now,
            duration: Duration::from_nanos(5),
            end: Some(End::Target),
            offset,
            length: 4096,
            result: -28,
            ..on("write", path)
        });
    }
    writer.finish().unwrap();
    let mut reader = open(&file).unwrap();
    assert_eq!(reader.header().engine, "auto");
    let read: Vec<Operation> = reader.by_ref().map(Result::unwrap).collect();
    assert!(reader.is_whole());
    assert_eq!(read.len() as u64, count);
    let last = read.last().unwrap();
    assert_eq!(
        (last.offset, last.result, last.end),
        (count - 1, -28, Some(End::Target))
    );
    assert_eq!(last.path, "a\\\\b/\\xff \"c\"\n");
    assert!(read.windows(2).all(|pair| pair[0].t_ns <= pair[1].t_ns));
}

#[test]
fn a_truncated_trace_is_recognised_and_other_files_are_refused() {
    let header = r#"{"type":"trace","version":1,"program":"p","started":"s","engine":"auto","command":[]}"#;
    let op = r#"{"type":"op","t_ns":1,"end":"source","kind":"read","path":"a","offset":0,"length":1,"result":1,"duration_ns":2}"#;
    let cut = format!("{header}\n{op}\n{}", &op[..40]);
    let mut reader = TraceReader::new(cut.as_bytes()).unwrap();
    assert_eq!(reader.by_ref().filter_map(Result::ok).count(), 1);
    assert!(!reader.is_whole());
    for bad in [
        "",
        "\u{0}",
        "{}",
        &header.replace(":1,", ":9,"),
        &header.replace(":1,", ":0,"),
    ] {
        assert!(TraceReader::new(bad.as_bytes()).is_err(), "{bad}");
    }
    let damaged = format!("{header}\n{{}}\n");
    let mut reader = TraceReader::new(damaged.as_bytes()).unwrap();
    assert!(matches!(reader.next(), Some(Err(ReadError::Line(2, _)))));
}

#[test]
fn escapes_are_unambiguous() {
    assert_eq!(escape(b""), ".");
    assert_ne!(escape(b"\xff"), escape(b"\\xff"));
    assert_eq!(escape("ä/ö".as_bytes()), "ä/ö");
}

#[test]
fn what_is_known_of_others_is_read_back_and_losses_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let opened = std::fs::File::create(&file).unwrap();
    let unseen = vec!["mapped memory".to_owned()];
    let writer = TraceWriter::of_program(opened, "bpf", unseen.clone()).unwrap();
    let by = By {
        connection: Some(7),
        ring: Some(0),
        process: Some(11),
        thread: Some(12),
        program: b"cp \xff",
        call: "renameat2",
    };
    let record = Record {
        to: b"/b",
        by,
        ..on("rename", b"/a")
    };
    writer.observer().record(record);
    let ending = Ending {
        lost: 3,
        notes: vec!["n".to_owned()],
    };
    writer.finish_with(ending).unwrap();
    let mut reader = open(&file).unwrap();
    assert_eq!((reader.header().version, &reader.header().unseen), (2, &unseen));
    let read = reader.next().unwrap().unwrap();
    let expected = Operation {
        kind: "rename".to_owned(),
        path: "/a".to_owned(),
        to: "/b".to_owned(),
        connection: Some(7),
        ring: Some(0),
        process: Some(11),
        thread: Some(12),
        program: "cp \\xff".to_owned(),
        call: "renameat2".to_owned(),
        ..Operation::default()
    };
    assert_eq!(read, expected);
    assert!(reader.next().is_none() && reader.is_whole());
    assert_eq!(reader.summary().unwrap().lost, 3);
}

#[test]
fn lines_of_an_idle_run_reach_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let writer = TraceWriter::start_run(&file).unwrap();
    writer.observer().record(on("read", b"a"));
    let there = || open(&file).is_ok_and(|reader| reader.count() == 1);
    while !there() {
        std::thread::sleep(Duration::from_millis(20));
    }
    writer.finish().unwrap();
}

#[test]
fn a_line_that_never_ends_is_refused() {
    let header = r#"{"type":"trace","version":1,"program":"p","started":"s","engine":"auto","command":[]}"#;
    let endless = format!("{header}\n{}", "x".repeat(1 << 20));
    let mut reader = TraceReader::new(endless.as_bytes()).unwrap();
    assert!(matches!(reader.next(), Some(Err(ReadError::Line(2, _)))));
    assert!(reader.next().is_none());
    assert!(TraceReader::new(&endless.as_bytes()[100..]).is_err());
}

proptest! {
    #[test]
    fn any_record_is_a_line(
        path: Vec<u8>, to: Vec<u8>, offset: u64, result: i64, start_ns: u64, source: Option<bool>, thread: Option<u32>,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace");
        let writer = TraceWriter::start_run(&file).unwrap();
        let end = source.map(|source| if source { End::Source } else { End::Target });
        let record = Record {
            start: Duration::from_nanos(start_ns),
            to: &to,
            end,
            offset,
            result,
            by: By { thread, ..By::default() },
            ..on("link", &path)
        };
        writer.observer().record(record);
        writer.finish().unwrap();
        let mut reader = open(&file).unwrap();
        let read = reader.next().unwrap().unwrap();
        let expected = Operation {
            t_ns: start_ns,
            end,
            kind: "link".to_owned(),
            path: escape(&path),
            to: if to.is_empty() { String::new() } else { escape(&to) },
            offset,
            result,
            thread,
            ..Operation::default()
        };
        prop_assert_eq!(read, expected);
        prop_assert!(reader.next().is_none() && reader.is_whole());
    }

    #[test]
    fn damaged_traces_are_read_up_to_the_damage(place in 0_usize..400, byte: u8, cut in 0_usize..400) {
        let header = r#"{"type":"trace","version":1,"program":"p","started":"s","engine":"auto","command":[]}"#;
        let op = r#"{"type":"op","t_ns":1,"end":"source","kind":"read","path":"a","offset":0,"length":1,"result":1,"duration_ns":2}"#;
        let mut text = format!("{header}\n{op}\n{op}\n").into_bytes();
        let length = text.len();
        text[place % length] = byte;
        text.truncate(length - cut % length);
        if let Ok(reader) = TraceReader::new(&text[..]) {
            prop_assert!(reader.count() <= 4);
        }
    }
}
