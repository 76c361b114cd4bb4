//! `trace --run`, `--pid` and `--volume`: the operations of other programs, beside what strace lists.

mod ends;
mod strace;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{
    self, Finished, Mounted, Place, Served, needs, or_skip, patterned, set_times, skip, text,
};
use ends::Busy;
use rustix::process::Signal;
use serde_json::Value;
use strace::{assert_same, of_trace, strace};

/// Ways to record that tell the names of files on every kernel.
const MECHANISMS: [&str; 2] = ["bpf", "ptrace"];

/// Returns the operations of a trace file.
fn operations(place: &Place, trace: &str) -> Vec<Value> {
    let shown = place.ropeway("trace").args(["--json", trace]).run();
    shown.assert_code(&[0]);
    shown.json()
}

/// Records a command; `Err` if this way to record is not permitted here.
fn recorded(place: &Place, how: &str, command: &[&str]) -> Result<Vec<Value>, String> {
    let run = place
        .ropeway("trace")
        .args(["--with", how, "-o", "trace", "--run"]);
    let finished = run.args(command).run();
    if finished.code() != Some(0) && finished.mentions("cannot record other programs") {
        return Err(finished.err.trim().to_owned());
    }
    finished.assert_code(&[0]);
    assert!(!finished.mentions("missing"), "{finished}");
    Ok(operations(place, "trace"))
}

/// Compares a recording with strace, in every way in which programs can be recorded here.
#[track_caller]
fn compare(place: &Place, command: &[&str], in_order: bool, prepare: impl Fn()) {
    let folder = place.path().canonicalize().unwrap();
    prepare();
    let theirs = match strace(command, &folder, &place.join(".out/strace")) {
        Ok(theirs) => theirs,
        Err(why) => skip!("{why}"),
    };
    assert!(theirs.len() > 20, "{theirs:?}");
    for how in MECHANISMS {
        prepare();
        match recorded(place, how, command) {
            Ok(ours) => {
                let clone = |operation: &&Value| operation["call"] != "ioctl";
                let (named, clones): (Vec<&Value>, Vec<&Value>) = ours.iter().partition(clone);
                let named: Vec<Value> = named.into_iter().cloned().collect();
                let (theirs, their_clones): (Vec<_>, Vec<_>) =
                    theirs.iter().cloned().partition(|seen| seen.call != "ioctl");
                assert_eq!(clones.len(), their_clones.len());
                println!("{how}: {} operations", ours.len());
                assert_same(&of_trace(&named), &theirs, in_order);
            }
            Err(why) => println!("skipped: {how}: {why}"),
        }
    }
}

fn with_tree() -> Place {
    tree_in(Place::new())
}

fn tree_in(place: Place) -> Place {
    place.folder("source/below");
    for (name, size) in [("a", 100_000), ("below/b", 10), ("below/c", 0)] {
        patterned(&place.join("source").join(name), size);
    }
    std::os::unix::fs::symlink("a", place.join("source/link")).unwrap();
    // Otherwise a new folder could have the same time by chance.
    for node in [
        "source/a",
        "source/below/b",
        "source/below/c",
        "source/below",
        "source",
    ] {
        set_times(&place.join(node), 1_000_000_000, 0);
    }
    place
}

fn without(place: &Place, name: &str) {
    let _ = fs::remove_dir_all(place.join(name));
}

#[test]
fn cp_is_recorded_as_strace_lists_it() {
    or_skip!(needs(false, &["strace"]));
    let place = with_tree();
    compare(&place, &["cp", "-r", "source", "target"], true, || {
        without(&place, "target")
    });
}

#[test]
fn rsync_is_recorded_as_strace_lists_it() {
    or_skip!(needs(false, &["strace", "rsync"]));
    let place = with_tree();
    // Without --inplace there are temporary files with random names.
    let command = ["rsync", "-a", "--inplace", "source/", "target/"];
    compare(&place, &command, false, || without(&place, "target"));
}

#[test]
fn git_status_is_recorded_as_strace_lists_it() {
    or_skip!(needs(false, &["strace", "git"]));
    let place = with_tree();
    for folder in 0..5 {
        place.folder(&format!("source/{folder}"));
        for file in 0..20 {
            text(&place.join(format!("source/{folder}/{file}")), "content");
            set_times(&place.join(format!("source/{folder}/{file}")), 1_000_000_000, 0);
        }
    }
    // Git writes its index again as long as a file in it is as new as the index.
    let link = place.join("source/link");
    let touched = Command::new("touch")
        .args(["-h", "-d", "@1000000000"])
        .arg(&link)
        .status();
    assert!(touched.unwrap().success());
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(place.join("source"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", place.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "-q", "."]);
    git(&["add", "-A"]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]);
    text(&place.join("source/3/7"), "changed");
    git(&["status"]);
    compare(
        &place,
        &["git", "-C", "source", "status", "--short"],
        false,
        || {},
    );
}

/// Most kernels do not tell tracefs names, but everything else is the same.
#[test]
fn tracefs_records_the_same_calls_and_leaves_nothing_behind() {
    or_skip!(needs(true, &["cp"]));
    let place = with_tree();
    let command = ["cp", "-r", "source", "target"];
    let calls = |operations: &[Value]| -> Vec<Value> {
        let fields = ["call", "kind", "offset", "length", "result"];
        let call = |one: &Value| fields.map(|field| one[field].clone()).into_iter().collect();
        operations.iter().map(call).collect()
    };
    let wanted = or_skip!(recorded(&place, "ptrace", &command));
    without(&place, "target");
    let run = place
        .ropeway("trace")
        .args(["--with", "tracefs", "-o", "trace", "--run"]);
    let running = run.args(command).start();
    let instance = format!("ropeway-{}-", running.id());
    let finished = running.wait();
    if finished.code() != Some(0) && finished.mentions("cannot record other programs") {
        skip!("{}", finished.err.trim());
    }
    finished.assert_code(&[0]);
    assert_eq!(calls(&operations(&place, "trace")), calls(&wanted));
    let instances = fs::read_dir("/sys/kernel/tracing/instances")
        .into_iter()
        .flatten()
        .flatten();
    let mut names = instances.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert!(!names.any(|name| name.starts_with(&instance)));
}

#[test]
fn the_exit_code_is_that_of_the_program() {
    let place = Place::new();
    let run = |command: &[&str]| place.ropeway("trace").args(["-s", "--run"]).args(command).run();
    for (command, code) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["no-such-program"], 127),
        (&["/proc/version"], 126),
    ] {
        let finished = run(command);
        finished.assert_code(&[code]);
        assert_eq!(
            finished.err.contains("hint:"),
            code > 120 && code < 130,
            "{finished}"
        );
    }
    // The program's output comes first, and its arguments are its own.
    let finished = place
        .ropeway("trace")
        .args(["-s", "--run", "echo", "--json", "-n"])
        .ok();
    assert!(finished.out.starts_with("--json -n\n"), "{finished}");
    assert!(finished.out.contains("write"), "{finished}");
}

#[test]
fn a_running_process_and_its_children_are_recorded() {
    let place = Place::new();
    for how in MECHANISMS {
        let mut busy = Busy::start(&place);
        let run =
            place
                .ropeway("trace")
                .args(["--with", how, "--for", "1s", "-o", "trace", "--pid", &busy.id()]);
        let finished = run.run();
        if finished.code() != Some(0) && finished.mentions("cannot record other programs") {
            println!("skipped: {how}: {}", finished.err.trim());
            continue;
        }
        finished.assert_code(&[0]);
        assert!(busy.0.try_wait().unwrap().is_none(), "the process goes on");
        let found = operations(&place, "trace");
        let opens = |program: &str| {
            let fits = |one: &&Value| {
                let path = one["path"].as_str().unwrap();
                one["kind"] == "open" && one["program"] == program && path.ends_with("/read again")
            };
            found.iter().filter(fits).count()
        };
        assert!(
            opens("sh") > 0 && opens("cat") > 0,
            "{how}: {} operations",
            found.len()
        );
        let offset_and_bytes = |one: &&Value| {
            one["program"] == "cat" && one["kind"] == "read" && one["result"] == 7 && one["offset"] == 0
        };
        assert!(found.iter().any(|one| offset_and_bytes(&one)), "{how}");
    }
}

#[test]
fn threads_are_recorded() {
    or_skip!(needs(false, &["python3"]));
    let place = Place::new();
    let script = "
import threading
def work(n):
    for i in range(50):
        with open(f'file {n}', 'ab') as f: f.write(b'x' * 10)
all = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in all]; [t.join() for t in all]
";
    text(&place.join("work.py"), script);
    for how in MECHANISMS {
        let found = match recorded(&place, how, &["python3", "work.py"]) {
            Ok(found) => found,
            Err(why) => {
                println!("skipped: {how}: {why}");
                continue;
            }
        };
        for n in 0..8 {
            let fits = |one: &&Value| {
                one["kind"] == "write" && one["path"].as_str().unwrap().ends_with(&format!("/file {n}"))
            };
            let threads: Vec<u64> = found
                .iter()
                .filter(fits)
                .map(|one| one["thread"].as_u64().unwrap())
                .collect();
            assert_eq!(threads.len(), 50, "{how}");
            assert!(threads.iter().all(|thread| *thread == threads[0]), "{how}");
        }
    }
}

#[test]
fn a_volume_is_recorded() {
    or_skip!(needs(true, &["cp"]));
    // A volume on which others do little.
    let place = tree_in(Place::in_memory());
    let mut trace = place
        .ropeway("trace")
        .args(["-o", "trace", "--volume", "."])
        .start();
    // The first line is written when the volume is watched.
    if !trace.until(|_| fs::metadata(place.join("trace")).is_ok_and(|found| found.len() > 0)) {
        let finished = trace.wait();
        assert!(finished.mentions("hint:"), "{finished}");
        skip!("{}", finished.err.trim());
    }
    let copied = Command::new("cp")
        .args(["-r", "source", "target"])
        .current_dir(place.path())
        .status();
    assert!(copied.unwrap().success());
    fs::rename(place.join("target/a"), place.join("target/new")).unwrap();
    let has_rename = |_: &_| {
        let bytes = fs::read(place.join("trace")).unwrap();
        String::from_utf8_lossy(&bytes).contains("/target/new")
    };
    assert!(trace.until(has_rename), "{}", trace.stderr());
    trace.signal(Signal::INT);
    trace.wait().assert_code(&[0]);
    let found = operations(&place, "trace");
    let has = |kind: &str, path: &str, to: &str| {
        found.iter().any(|one| {
            let ends = |field: &str, end: &str| one[field].as_str().unwrap_or_default().ends_with(end);
            one["kind"] == kind && ends("path", path) && ends("to", to)
        })
    };
    assert!(
        has("create", "/target/below/b", "") && has("make_dir", "/target/below", ""),
        "{found:?}"
    );
    assert!(
        has("rename", "/target/a", "/target/new") && has("read", "/source/a", ""),
        "{found:?}"
    );
    // A program that has ended by then has no name; this one has.
    let own = |one: &&Value| one["kind"] == "rename" && one["process"] == std::process::id();
    assert!(
        found.iter().any(|one| own(&one) && one["program"].is_string()),
        "{found:?}"
    );
}

#[test]
fn what_is_not_permitted_is_said_in_one_line() {
    let place = Place::new();
    let one_line = |finished: &Finished| {
        let lines: Vec<&str> = finished.err.trim().lines().collect();
        assert!(lines.len() == 2 && lines[1].contains("hint:"), "{finished}");
    };
    let gone = place.ropeway("trace").args(["--pid", "4194305"]).exits(3);
    one_line(&gone);
    let as_nobody = |arguments: &[&str]| {
        place
            .ropeway_as_nobody("trace")
            .map(|run| run.args(arguments).run())
    };
    // Everybody may record programs of their own.
    let own = or_skip!(as_nobody(&["--json", "--run", "cat", "/proc/version"]));
    own.assert_code(&[0]);
    assert!(own.out.contains("\"/proc/version\""), "{own}");
    for arguments in [
        &["--with", "bpf", "--run", "true"][..],
        &["--with", "tracefs", "--run", "true"],
        &["--pid", "1"],
        &["--volume", "."],
    ] {
        let finished = as_nobody(arguments).unwrap();
        finished.assert_code(&[5]);
        one_line(&finished);
    }
}

#[test]
fn kinds_that_do_not_exist_are_refused_with_the_known_ones() {
    let place = Place::new();
    let finished = place.ropeway("trace").args(["--kind", "wirte", "file"]).exits(1);
    assert!(
        finished.mentions("write, ") && finished.mentions("reflink"),
        "{finished}"
    );
}

#[test]
fn broken_and_foreign_traces_are_refused_or_shown_in_part() {
    let place = with_tree();
    let copied = place
        .ropeway("copy")
        .args(["--trace", "whole", "source", "target"])
        .ok();
    assert!(copied.err.is_empty(), "{copied}");
    let whole = fs::read(place.join("whole")).unwrap();
    fs::write(place.join("empty"), b"").unwrap();
    fs::write(place.join("zeros"), vec![0; 1 << 20]).unwrap();
    fs::write(place.join("newer"), b"{\"type\":\"trace\",\"version\":99}\n").unwrap();
    fs::copy("/bin/sh", place.join("program")).unwrap();
    let views: [&[&str]; 5] = [
        &[],
        &["--json"],
        &["--stacks-by", "path"],
        &["--plot"],
        &["--perfetto"],
    ];
    for name in ["empty", "zeros", "newer", "program"] {
        for view in views {
            let finished = place.ropeway("trace").args(view).arg(name).exits(1);
            let said = if view.contains(&"--json") {
                &finished.out
            } else {
                &finished.err
            };
            assert!(said.contains("hint") && said.lines().count() <= 2, "{finished}");
        }
    }
    fs::write(place.join("cut"), &whole[..whole.len() * 2 / 3]).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 10].fill(0xff);
    fs::write(place.join("damaged"), damaged).unwrap();
    for view in views {
        let cut = place.ropeway("trace").args(view).arg("cut").ok();
        assert!(!cut.out.is_empty() && cut.mentions("truncated"), "{cut}");
        let damaged = place.ropeway("trace").args(view).arg("damaged").exits(1);
        assert!(
            !damaged.out.is_empty() && damaged.mentions("damaged:"),
            "{damaged}"
        );
    }
}

#[test]
fn recordings_are_shown_in_many_ways() {
    let place = with_tree();
    let run = |view: &[&str]| {
        without(&place, "target");
        let trace = place
            .ropeway("trace")
            .args(view)
            .args(["--run", "cp", "-r", "source", "target"]);
        trace.ok()
    };
    let stacks = run(&["--stacks-by", "process", "--json"]).json();
    assert!(
        stacks
            .iter()
            .all(|row| row["key"].as_str().unwrap().starts_with("cp[")),
        "{stacks:?}"
    );
    let events: Value = serde_json::from_str(&run(&["--perfetto"]).out).unwrap();
    assert!(
        events["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["args"]["call"] == "execve")
    );
    assert!(run(&["--plot"]).out.contains("operations/s"));
    for (name, magic) in [("plot.png", &b"\x89PNG"[..]), ("plot.svg", b"<svg")] {
        let shown = run(&["--plot", name]);
        assert!(shown.out.is_empty(), "{shown}");
        let bytes = fs::read(place.join(name)).unwrap();
        let begins = bytes.windows(magic.len()).take(200).any(|part| part == magic);
        assert!(begins, "{name}");
    }
}

#[test]
fn programs_that_end_at_any_moment_leave_a_whole_trace() {
    let place = Place::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'echo x > file; kill -KILL $$' & done; wait";
    for how in MECHANISMS {
        let run = place
            .ropeway("trace")
            .args(["--with", how, "-o", "trace", "--run", "sh", "-c", script])
            .run();
        if run.code() != Some(0) && run.mentions("cannot record other programs") {
            println!("skipped: {how}: {}", run.err.trim());
            continue;
        }
        run.assert_code(&[0]);
        let found = operations(&place, "trace");
        let writes = found.iter().filter(|one| {
            one["kind"] == "write" && Path::new(one["path"].as_str().unwrap()).ends_with("file")
        });
        assert_eq!(writes.count(), 10, "{how}");
    }
}

#[test]
fn a_server_records_the_connections_that_ask() {
    let kept = Place::new();
    let served = Served::start(&["--trace", kept.join("far").to_str().unwrap()]);
    text(&served.place.join("file"), "content");
    let copy = served.run("copy").arg("--trace").arg(kept.join("near"));
    copy.arg(served.place.join("file")).arg(served.url("")).ok();
    served.stop();
    for (trace, end) in [("far", Value::Null), ("near", "target".into())] {
        let found = operations(&kept, trace);
        let writes = found
            .iter()
            .filter(|one| one["kind"] == "write" && one["end"] == end);
        let connections: Vec<_> = writes.map(|one| one["connection"].as_u64()).collect();
        assert!(
            !connections.is_empty() && connections.iter().all(Option::is_some),
            "{trace}: {found:?}"
        );
    }
    let of_share = |one: &&Value| one["path"].as_str().unwrap().starts_with("data");
    assert!(operations(&kept, "far").iter().all(|one| of_share(&one)));
}

#[test]
fn a_mount_records_the_processes_that_ask() {
    let mut mount = or_skip!(Mounted::new(&["--trace", "trace"]));
    patterned(&mount.behind("file"), 100_000);
    let shown = support::tool("cat", &[mount.at("file")]);
    assert!(shown.is_ok(), "{shown:?}");
    fs::write(mount.at("new"), "content").unwrap();
    mount.unmount();
    let found = operations(&mount.place, "trace");
    let bytes = |kind: &str, path: &str| -> i64 {
        let fits = |one: &&Value| one["kind"] == kind && one["path"] == path && one["process"].is_u64();
        found
            .iter()
            .filter(fits)
            .map(|one| one["result"].as_i64().unwrap())
            .sum()
    };
    assert_eq!(
        (bytes("read", "file"), bytes("write", "new")),
        (100_000, 7),
        "{found:?}"
    );
    // The kernel tells the thread's number.
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let own = |one: &&Value| one["path"] == "new" && one["process"] == thread;
    assert!(found.iter().any(|one| own(&one)), "{found:?}");
}
