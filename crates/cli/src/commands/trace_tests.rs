//! Tests of the output of `ropeway trace`.

use super::*;
use crate::args::{Cli, Command};
use clap::Parser;

fn args(flags: &[&str]) -> TraceArgs {
    let line = ["ropeway", "trace", "file"].iter().chain(flags);
    match Cli::try_parse_from(line).unwrap().command {
        Command::Trace(args) => *args,
        other => panic!("{other:?}"),
    }
}

const TRACE: &str = r#"{"type":"trace","version":1,"program":"ropeway 0","started":"2026-01-01T00:00:00Z","engine":"auto","command":["ropeway","copy"]}
{"type":"op","t_ns":1000,"end":"source","kind":"read","path":"a,b","offset":0,"length":100,"result":100,"duration_ns":2000}
{"type":"op","t_ns":2000,"end":"target","kind":"write","path":"x\n","offset":0,"length":100,"result":-28,"duration_ns":3000000}
{"type":"op","t_ns":3000,"end":"source","kind":"read","path":"c","offset":7,"length":50,"result":20,"duration_ns":1000}
{"type":"end","operations":3}
"#;

fn shown(flags: &[&str]) -> String {
    let args = args(flags);
    let mut reader = TraceReader::new(TRACE.as_bytes()).unwrap();
    let mut out = Vec::new();
    show(&mut reader, &args, &mut View::new(&args), &mut out)
        .unwrap()
        .unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_table_has_causes_and_totals() {
    let text = shown(&[]);
    assert!(text.contains("No space left on device"), "{text}");
    assert!(!text.contains("x\n\n"), "control characters are replaced");
    let read = text.lines().find(|line| line.starts_with("source read")).unwrap();
    assert_eq!(
        read.split_whitespace().collect::<Vec<_>>()[..4],
        ["source", "read", "2", "0"]
    );
    assert!(read.contains("120 B"), "{read}");
}

#[test]
fn csv_and_json_have_documented_columns() {
    let csv = shown(&["--csv"]);
    assert_eq!(
        csv.lines().next(),
        Some("t_ns,end,kind,path,offset,length,result,duration_ns")
    );
    assert_eq!(
        csv.lines().nth(1),
        Some("1000,source,read,\"a,b\",0,100,100,2000")
    );
    let json = shown(&["--json"]);
    assert_eq!(json.lines().count(), 3);
    let first: Operation = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((first.t_ns, first.path.as_str()), (1000, "a,b"));
    let summary = shown(&["--json", "--summary"]);
    let row: serde_json::Value = serde_json::from_str(summary.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&row["count"], &row["bytes"], &row["max_us"]),
        (&2.into(), &120.into(), &2.0.into())
    );
}

#[test]
fn filters_combine() {
    let count = |flags: &[&str]| {
        let flags: Vec<&str> = ["--json"].iter().chain(flags).copied().collect();
        shown(&flags).lines().count()
    };
    assert_eq!(count(&["--kind", "read"]), 2);
    assert_eq!(count(&["--kind", "read", "--kind", "write"]), 3);
    assert_eq!(count(&["--end", "target"]), 1);
    assert_eq!(count(&["--failed"]), 1);
    assert_eq!(count(&["--path", "c"]), 1);
    assert_eq!(count(&["--longer-than", "1500ns"]), 2);
    assert_eq!(count(&["--kind", "read", "--limit", "1"]), 1);
    assert_eq!(count(&["--kind", "sync"]), 0);
}

#[test]
fn every_duration_is_within_its_bucket() {
    for nanoseconds in [0, 1, 7, 8, 9, 15, 16, 1000, 123_456_789, u64::MAX / 3, u64::MAX] {
        let index = bucket(nanoseconds);
        assert!(index < BUCKETS, "{nanoseconds}");
        assert!(upper(index) >= nanoseconds, "{nanoseconds}");
        assert!(
            nanoseconds < 8 || upper(index) as f64 <= nanoseconds as f64 * 1.13,
            "{nanoseconds}"
        );
    }
}
