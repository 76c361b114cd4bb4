//! Tests of the output of `ropeway trace`.

use super::*;
use crate::args::{Cli, Command};
use crate::trace_file::Operation;
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
    shown_of(TRACE, flags)
}

fn shown_of(trace: &str, flags: &[&str]) -> String {
    let args = args(flags);
    let mut reader = TraceReader::new(trace.as_bytes()).unwrap();
    let mut out = Vec::new();
    let view = &args.view;
    let mut shown: Box<dyn View> = match (view.stacks_by, view.plot(), view.perfetto) {
        (Some(by), ..) => Box::new(Stacks::new(view, by)),
        (_, Some(plot), _) => Box::new(Plots::new(plot, plot::Busiest::default())),
        (_, _, true) => Box::<Perfetto>::default(),
        _ => Box::new(Listing::new(view)),
    };
    show(&mut reader, &args.filter, shown.as_mut(), &mut out)
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
        Some(
            "t_ns,end,kind,path,offset,length,result,duration_ns,to,connection,ring,process,thread,program,call"
        )
    );
    assert_eq!(
        csv.lines().nth(1),
        Some("1000,source,read,\"a,b\",0,100,100,2000,,,,,,,")
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

/// A trace of other programs: version 2.
const OTHERS: &str = r#"{"type":"trace","version":2,"program":"ropeway 0","started":"2026-01-01T00:00:00Z","command":["ropeway"],"mechanism":"bpf","unseen":["mapped memory"]}
{"type":"op","t_ns":1000,"kind":"read","path":"/a","offset":0,"length":4096,"result":4096,"duration_ns":2000,"process":7,"thread":7,"program":"cp","call":"read"}
{"type":"op","t_ns":2000,"kind":"write","path":"/b","offset":8192,"length":4096,"result":4096,"duration_ns":3000,"process":7,"thread":8,"program":"cp","call":"pwrite64"}
{"type":"op","t_ns":3000,"kind":"rename","path":"/b","to":"/c","offset":0,"length":0,"result":-13,"duration_ns":1000,"process":9,"thread":9,"program":"mv","call":"renameat2"}
{"type":"end","operations":3,"lost":2}
"#;

#[test]
fn operations_of_others_show_who_did_them() {
    let table = shown_of(OTHERS, &[]);
    assert!(
        table.contains("# not seen: mapped memory") && table.contains("recorded by bpf"),
        "{table}"
    );
    assert!(
        table.contains("cp[7]") && table.contains("/b -> /c  (Permission denied)"),
        "{table}"
    );
    assert_eq!(
        shown_of(OTHERS, &["--json", "--process", "cp"]).lines().count(),
        2
    );
    assert_eq!(shown_of(OTHERS, &["--json", "--process", "9"]).lines().count(), 1);
    assert_eq!(shown_of(OTHERS, &["--json", "--path", "/c"]).lines().count(), 1);
    let csv = shown_of(OTHERS, &["--csv"]);
    assert_eq!(
        csv.lines().nth(3),
        Some("3000,,rename,/b,0,0,-13,1000,/c,,,9,9,mv,renameat2")
    );
}

#[test]
fn groups_are_divided_into_kinds() {
    let by = |key: &str, format: &[&str]| {
        let flags: Vec<&str> = ["--stacks-by", key].iter().chain(format).copied().collect();
        shown_of(OTHERS, &flags)
    };
    let lines = by("process", &["--json"]);
    let rows: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(
        (&rows[0]["key"], &rows[0]["kind"]),
        (&"cp[7]".into(), &"read".into())
    );
    assert_eq!(
        by("size", &["--csv"]).lines().nth(1),
        Some("size,no size,rename,1,1,0,0.000001")
    );
    assert!(by("path", &[]).contains("/a") && by("path", &["-n", "1"]).contains("(1 more)"));
}

#[test]
fn perfetto_gets_valid_json() {
    for trace in [TRACE, OTHERS] {
        let events: serde_json::Value = serde_json::from_str(&shown_of(trace, &["--perfetto"])).unwrap();
        let events = events["traceEvents"].as_array().unwrap().clone();
        let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(complete.len(), 3);
        assert_eq!(
            (&complete[0]["ts"], &complete[0]["dur"]),
            (&1.0.into(), &2.0.into())
        );
        assert!(events.iter().any(|event| event["ph"] == "M"));
    }
}

#[test]
fn plots_are_drawn_in_the_terminal_and_as_pictures() {
    let folder = tempfile::tempdir().unwrap();
    for trace in [TRACE, OTHERS] {
        let text = shown_of(trace, &["--plot"]);
        assert!(text.contains("operations/s") && text.contains('█'), "{text}");
        for name in ["a.svg", "a.PNG"] {
            let picture = folder.path().join(name);
            assert!(shown_of(trace, &["--plot", picture.to_str().unwrap()]).is_empty());
            assert!(picture.metadata().unwrap().len() > 1000);
        }
    }
}

#[test]
fn a_damaged_line_ends_a_view_that_is_shown() {
    let damaged = TRACE.replace("\"t_ns\":2000", "\"t_ns\":true");
    let args = args(&["--summary"]);
    let mut reader = TraceReader::new(damaged.as_bytes()).unwrap();
    let mut out = Vec::new();
    let error = show(&mut reader, &args.filter, &mut Listing::new(&args.view), &mut out).unwrap_err();
    assert!(matches!(error, ReadError::Line(3, _)), "{error:?}");
    assert!(String::from_utf8(out).unwrap().contains("source read"));
}

#[test]
fn sources_and_views_exclude_each_other() {
    let parse = |line: &[&str]| {
        let line = ["ropeway", "trace"].iter().chain(line);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Trace(args) => (args.check().is_ok(), *args),
            other => panic!("{other:?}"),
        }
    };
    for line in [
        &["f"][..],
        &["--plot", "f"],
        &["f", "--plot", "x.svg"],
        &["--run", "cp", "-r", "--json", "a"],
        &["-o", "t", "--run", "sh", "-c", "x"],
        &["--pid", "1", "--for", "1s"],
    ] {
        assert!(parse(line).0, "{line:?}");
    }
    for line in [
        &[][..],
        &["f", "--pid", "1"],
        &["f", "--json", "--csv"],
        &["f", "--plot", "--perfetto"],
        &["f", "--plot", "x.gif"],
        &["f", "--for", "1s"],
        &["f", "--summary", "--stacks-by", "size"],
    ] {
        assert!(!parse(line).0, "{line:?}");
    }
    let (_, args) = parse(&["--csv", "--run", "cp", "--json", "-h"]);
    let command = ["cp", "--json", "-h"].map(std::ffi::OsString::from);
    assert!(matches!(args.source(), Ok(TraceSource::Run(found)) if found == command));
    assert!(args.view.csv && !args.view.json);
}
