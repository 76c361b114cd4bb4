use ropeway_live::model::{Fleet, FleetFailure, FleetWorker, Job, OpenFile, PageCache, Server, Session};
use ropeway_vfs::event::Phase;

use super::*;

#[test]
fn a_copy_is_told_in_words() {
    let mut job = Job {
        id: 1,
        kind: "copy".into(),
        sources: vec!["/a".into()],
        target: "/b".into(),
        phase: Some(Phase::Copying),
        ..Job::default()
    };
    job.controls.pause = true;
    job.counters.bytes_total = 4 << 20;
    job.counters.bytes_sent = 1 << 20;
    job.rates.written = 2048.0;
    let mut snapshot = Snapshot {
        jobs: vec![job],
        ..Snapshot::default()
    };
    snapshot.process.command = "copy".into();
    snapshot.page_cache = Some(PageCache {
        dirty_bytes: 3 << 20,
        writers: "free".into(),
        held_from_bytes: 1 << 30,
        ..PageCache::default()
    });
    let view = View::of(&snapshot);
    let cache = "page cache: 3.0 MiB dirty, 0 B being written; writers free below 1.0 GiB";
    assert_eq!(view.facts.last().map(String::as_str), Some(cache));
    let section = &view.sections[0];
    assert_eq!(
        (section.what.as_str(), section.state.text.as_str()),
        ("/a → /b", "copying")
    );
    let sent = &section.bars[1];
    assert_eq!(
        (sent.percent.as_str(), sent.value.as_str()),
        ("25%", "1.0 MiB of 4.0 MiB+ · 2.0 KiB/s")
    );
    assert_eq!(view.title, "0% · copy · ropeway");
    assert_eq!(section.actions[0].fields[0], ("do".into(), "pause".into()));
    assert!(view.facts.iter().any(|fact| fact == "not durable yet: 1.0 MiB"));
    snapshot.jobs[0].paused = true;
    let paused = View::of(&snapshot);
    assert_eq!(paused.sections[0].actions[0].label, "resume");
    let reader = paused.for_readers();
    assert!(reader.actions.is_empty() && reader.sections[0].actions.is_empty());
}

#[test]
fn a_server_has_its_sessions_and_open_files() {
    let session = Session {
        id: "1f".into(),
        user: "ann".into(),
        clients: vec!["192.0.2.1:5".into(), "192.0.2.1:6".into()],
        ..Session::default()
    };
    let open = OpenFile {
        session: "1f".into(),
        path: "a/b".into(),
        reads: true,
        ..OpenFile::default()
    };
    let server = Server {
        sessions_total: 500,
        sessions: vec![session],
        open_total: 2,
        open_files: vec![open.clone(), open],
        ..Server::default()
    };
    let view = View::of(&Snapshot {
        servers: vec![server],
        ..Snapshot::default()
    });
    let tables = &view.sections[0].tables;
    assert_eq!(tables[0].title, "Sessions: the busiest 1 of 500");
    assert_eq!(tables[0].rows[0].cells[..2], ["ann", "192.0.2.1:5 +1"]);
    let close = &tables[0].rows[0].actions[0];
    assert!(
        close
            .question
            .contains("End the session of ann from 192.0.2.1:5 +1?")
    );
    assert_eq!(close.fields[1], ("id".to_owned(), "1f".to_owned()));
    assert_eq!(tables[2].rows[0].cells[..4], ["a/b", "", "ann", "reading"]);
    for table in tables {
        let widths = table.rows.iter().map(|row| row.cells.len());
        assert!(widths.into_iter().all(|width| width == table.columns.len()));
    }
    let reader = view.for_readers();
    let rows = reader.sections[0].tables.iter().flat_map(|table| &table.rows);
    assert!(rows.into_iter().all(|row| row.actions.is_empty()));
}

#[test]
fn a_fleet_shows_its_workers_stragglers_and_failures() {
    let worker = |state: &str| FleetWorker {
        id: state.into(),
        host: "<b>".into(),
        process: 7,
        state: state.into(),
        silent_seconds: Some(90.0),
        ..FleetWorker::default()
    };
    let fleet = Fleet {
        source: "/a".into(),
        target: "/b".into(),
        phase: "copying".into(),
        files: 50,
        files_expected: Some(100),
        tasks_done: 3,
        tasks_open: 2,
        eta_unknown: "still_walking".into(),
        failed: 9,
        failures: vec![FleetFailure {
            path: "x".into(),
            message: "no permission".into(),
        }],
        workers_total: 2,
        workers: vec![worker("silent"), worker("well")],
        ..Fleet::default()
    };
    let mut snapshot = Snapshot {
        fleets: vec![fleet],
        ..Snapshot::default()
    };
    snapshot.process.command = "fleet page".into();
    let view = View::of(&snapshot);
    assert_eq!(view.title, "50% · fleet page · ropeway");
    let section = &view.sections[0];
    assert_eq!(section.bars[0].value, "50 of about 100");
    assert_eq!(
        (section.bars[1].percent.as_str(), section.bars[1].value.as_str()),
        ("", "3 of 5+ · 0 claimed")
    );
    let notes: Vec<&str> = section.notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!(
        notes,
        [
            "time left unknown: the tree is still being walked",
            "9 items failed",
            "<b> 7: no sign of life for 1m30s"
        ]
    );
    let [workers, failures] = &section.tables[..] else {
        panic!("{:?}", section.tables);
    };
    assert_eq!(workers.rows[1].cells[..2], ["<b> 7", "idle"]);
    assert!(
        failures.title.starts_with("Failed: the first 1 of 9"),
        "{}",
        failures.title
    );
    for table in &section.tables {
        let widths = table.rows.iter().map(|row| row.cells.len());
        assert!(widths.into_iter().all(|width| width == table.columns.len()));
    }
    snapshot.fleets[0].phase = "complete".into();
    assert_eq!(
        View::of(&snapshot).sections[0].notes.len(),
        1,
        "a dead worker of a complete job delays nobody"
    );
}
