use std::sync::Arc;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ropeway_live::client::Address;
use ropeway_live::model::{
    Backlog, Cache, Device, History, Job, Message, Mount, OpenFile, Operation, PageCache, Run, Server,
    Session, Share, Snapshot,
};
use ropeway_live::protocol::Request;
use ropeway_vfs::event::{Eta, Limit, Phase};

use super::super::app::TopApp;
use super::super::collect::{Notice, Processes, Row, State};
use crate::tui::{App, Key, Theme};

struct Fixed(Vec<Row>);

impl Processes for Fixed {
    fn rows(&self) -> Vec<Row> {
        self.0.clone()
    }

    fn left_out(&self) -> Vec<String> {
        vec!["/run/user/7/ropeway belongs to user 8".to_owned(); self.0.len() % 2]
    }

    fn send(&self, _: &Address, _: Request, _: String) {}

    fn notice(&self) -> Option<Notice> {
        None
    }
}

fn row(pid: u32, state: State, snapshot: Option<Snapshot>) -> Row {
    let mut row = Row::new(Address {
        folder: "/run/user/0/ropeway".into(),
        name: format!("{pid}.sock"),
        pid,
        uid: 0,
    });
    row.state = state;
    row.snapshot = snapshot.map(Arc::new);
    row
}

/// Returns what is drawn at this size after these keys.
fn drawn(rows: Vec<Row>, (width, height): (u16, u16), keys: &[Key]) -> String {
    let mut app = TopApp::with(Fixed(rows), Theme::plain());
    app.tick();
    for key in keys {
        let _ = app.key(*key);
        app.tick();
    }
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal.backend().to_string()
}

fn copying() -> Snapshot {
    let mut job = Job {
        kind: "copy".into(),
        sources: vec!["/srv/photos".into()],
        sources_total: 1,
        target: "smb://ann@nas/backup/photos".into(),
        phase: Some(Phase::Copying),
        seconds: 125.0,
        eta: Some(Eta {
            seconds: 1500.0,
            low: 1320.0,
            high: 1740.0,
        }),
        limit: Some(Limit::Link),
        bwlimit: "20M".into(),
        bwlimit_bytes_per_s: Some(20 << 20),
        errors: 1,
        messages: vec![Message {
            at: 0.0,
            is_error: true,
            text: "cannot read old/x: Input/output error".into(),
        }],
        history: History {
            interval_ms: 1000,
            written: (0..300).map(|n| n * 100_000).collect(),
            operations: (0..300).map(|n| n % 50).collect(),
            ..History::default()
        },
        ..Job::default()
    };
    job.counters.bytes_total = 96 << 30;
    job.counters.totals_final = true;
    job.counters.bytes_read = 41 << 30;
    job.counters.bytes_sent = 40 << 30;
    job.counters.bytes_durable = 38 << 30;
    job.counters.files_done = 1204;
    job.counters.files_total = 18_330;
    let mut snapshot = Snapshot {
        taken: 1125.0,
        jobs: vec![job],
        ..Snapshot::default()
    };
    snapshot.process.pid = 4711;
    snapshot.process.command = "copy".into();
    snapshot.process.arguments = ["ropeway", "copy", "/srv/photos", "smb://ann@nas/backup"]
        .map(str::to_owned)
        .to_vec();
    snapshot.process.started = 1000.0;
    snapshot
}

fn serving() -> Snapshot {
    let session = Session {
        id: "1f".into(),
        user: "ann".into(),
        clients: vec!["192.168.1.5:50000".into(), "192.168.1.5:50001".into()],
        dialect: "3.1.1".into(),
        signing: "AES-GMAC".into(),
        signing_required: true,
        shares: vec!["photos".into()],
        bytes_read: 5 << 30,
        open: 2,
        ..Session::default()
    };
    let server = Server {
        name: "nas".into(),
        addresses: vec!["0.0.0.0:445".into()],
        shares: vec![Share {
            name: "photos".into(),
            read_only: true,
            ..Share::default()
        }],
        sessions_total: 1,
        sessions: vec![session],
        open_total: 1,
        open_files: vec![OpenFile {
            session: "1f".into(),
            share: "photos".into(),
            path: "2024/summer/beach.jpg".into(),
            reads: true,
            ..OpenFile::default()
        }],
        operations: [(
            "read".to_owned(),
            Operation {
                count: 5,
                seconds: 0.5,
            },
        )]
        .into(),
        ..Server::default()
    };
    let mut snapshot = Snapshot {
        servers: vec![server],
        caches: vec![Cache::default()],
        backlogs: vec![Backlog {
            far: "smb://far/s".into(),
            bytes: 7 << 20,
            files: 3,
            ..Backlog::default()
        }],
        ..Snapshot::default()
    };
    snapshot.process.command = "serve".into();
    snapshot
}

fn both() -> Vec<Row> {
    vec![
        row(4711, State::Alive, Some(copying())),
        row(4712, State::Alive, Some(serving())),
    ]
}

#[test]
fn a_copy_has_three_counters_and_two_graphs() {
    for size in [(80, 24), (200, 50)] {
        let text = drawn(both(), size, &[]);
        for part in [
            "4711 copy",
            "read",
            "41.0 GiB of 96.0 GiB",
            "sent",
            "40.0 GiB",
            "durable",
            "38.0 GiB",
            "ETA 25m",
            "limit: link",
            "--bwlimit 20M",
            "1,204/18,330 files",
            "sent 28.5 MiB/s, at most 28.5 MiB/s",
            "operations 49",
            "cannot read old/x",
            "q quit",
            "? help",
        ] {
            assert!(text.contains(part), "{part} at {size:?}\n{text}");
        }
    }
}

#[test]
fn a_server_has_sessions_and_open_files() {
    let text = drawn(both(), (200, 50), &[Key::Down]);
    for part in [
        "ann",
        "192.168.1.5:50000 +1",
        "3.1.1",
        "signed AES-GMAC",
        "2024/summer/beach.jpg",
        "photos (read-only)",
        "not durable yet: 7.0 MiB",
        "smb://far/s",
        "read 5 (100.00 ms)",
        "the cache is off",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let small = drawn(both(), (80, 24), &[Key::Down]);
    for part in ["ann", "192.168.1.5:50000", "sessions"] {
        assert!(small.contains(part), "{part}\n{small}");
    }
}

#[test]
fn the_page_cache_has_a_line() {
    let mut snapshot = copying();
    let cache = PageCache {
        dirty_bytes: 300 << 20,
        writeback_bytes: 20 << 20,
        held_from_bytes: 1 << 30,
        writers: "free".into(),
        devices: vec![Device {
            name: "sdb".into(),
            dirty_bytes: Some(40 << 20),
            writeback_bytes: Some(0),
            drain_seconds: Some(61.0),
            ..Device::default()
        }],
        ..PageCache::default()
    };
    snapshot.page_cache = Some(cache);
    let text = |snapshot: &Snapshot| {
        drawn(
            vec![row(4711, State::Alive, Some(snapshot.clone()))],
            (200, 50),
            &[],
        )
    };
    let shown = text(&snapshot);
    for part in [
        "page cache: 300.0 MiB dirty, 20.0 MiB being written",
        "free below 1.0 GiB",
        "sdb 40.0 MiB, drained in",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let cache = snapshot.page_cache.as_mut().unwrap();
    (cache.writers, cache.threads_held) = ("held".into(), 2);
    cache.devices[0].writeback_bytes = None;
    let shown = text(&snapshot);
    assert!(
        shown.contains("writers held back: 2 threads") && !shown.contains("sdb 40"),
        "{shown}"
    );
}

#[test]
fn the_smallest_size_still_says_what_matters() {
    let text = drawn(both(), (40, 12), &[]);
    for part in ["4711 copy", "40%", "read", "sent", "durable", "q quit"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn states_dialogs_and_help_are_shown() {
    let mut ended = both();
    ended[0].state = State::Ended;
    assert!(drawn(ended, (80, 24), &[]).contains("it has ended"));
    let silent = vec![row(9, State::Failing("it does not answer".into()), None)];
    assert!(drawn(silent, (80, 24), &[]).contains("it does not answer"));
    let nobody = drawn(Vec::new(), (80, 24), &[]);
    assert!(nobody.contains("no ropeway is running"), "{nobody}");
    assert!(drawn(both(), (80, 24), &[Key::Char('c')]).contains("as Ctrl-C does? [y/N]"));
    assert!(drawn(both(), (80, 24), &[Key::Char('?')]).contains("pause its jobs"));
    let mut limited = both();
    let mut snapshot = copying();
    snapshot.jobs[0].controls.bwlimit = true;
    limited[0].snapshot = Some(Arc::new(snapshot));
    assert!(drawn(limited, (80, 24), &[Key::Char('b')]).contains("--bwlimit: 20M"));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), ".{0,80}", "[a-z/]{0,300}"]
}

fn any_job() -> impl Strategy<Value = Job> {
    let numbers = proptest::collection::vec(any::<u64>(), 12);
    let floats = proptest::collection::vec(any::<f64>(), 8);
    (
        numbers,
        floats,
        any_text(),
        any_text(),
        any::<(bool, bool, bool)>(),
    )
        .prop_map(|(numbers, floats, one, two, (paused, stopping, check))| {
            let mut job = Job {
                kind: if check { "check" } else { "copy" }.into(),
                sources: vec![one.clone(); (numbers[0] % 3) as usize],
                sources_total: numbers[1],
                target: two.clone(),
                seconds: floats[0],
                rate: floats[1],
                eta: paused.then_some(Eta {
                    seconds: floats[2],
                    low: floats[3],
                    high: floats[4],
                }),
                paused,
                stopping,
                bwlimit: two,
                bwlimit_bytes_per_s: Some(numbers[2]),
                errors: numbers[3],
                messages: vec![
                    Message {
                        at: floats[5],
                        is_error: paused,
                        text: one
                    };
                    (numbers[4] % 30) as usize
                ],
                history: History {
                    written: numbers.clone(),
                    operations: vec![numbers[5]; 400],
                    ..History::default()
                },
                ..Job::default()
            };
            job.rates.read = floats[6];
            job.rates.files = floats[7];
            job.counters.bytes_total = numbers[6];
            job.counters.bytes_read = numbers[7];
            job.counters.bytes_sent = numbers[8];
            job.counters.bytes_durable = numbers[9];
            job.counters.bytes_done = numbers[10];
            job.counters.files_total = numbers[11];
            job
        })
}

/// Returns a server with these figures in all places.
fn odd_server(numbers: &[u64], operation: Operation, (one, two): (&String, &String), count: usize) -> Server {
    let session = Session {
        id: two.clone(),
        user: one.clone(),
        clients: vec![two.clone(); count % 4],
        idle_seconds: numbers[1],
        bytes_read: numbers[2],
        operations: [(one.clone(), operation), (two.clone(), operation)].into(),
        shares: vec![one.clone(); count],
        ..Session::default()
    };
    let file = OpenFile {
        session: two.clone(),
        path: one.clone(),
        locks: numbers[3],
        ..OpenFile::default()
    };
    let mut server = Server {
        name: one.clone(),
        addresses: vec![two.clone(); count % 3],
        shares: vec![
            Share {
                name: one.clone(),
                ..Share::default()
            };
            count
        ],
        sessions: vec![session; count],
        sessions_total: numbers[4],
        open_files: vec![file; count],
        open_total: numbers[5],
        operations: [(one.clone(), operation)].into(),
        history: History {
            read: numbers.to_vec(),
            written: vec![numbers[9]; 3],
            ..History::default()
        },
        ..Server::default()
    };
    server.latency.buckets = numbers.to_vec();
    server
}

fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let jobs = proptest::collection::vec(any_job(), 0..3);
    let numbers = proptest::collection::vec(any::<u64>(), 10);
    let floats = proptest::collection::vec(any::<f64>(), 6);
    (jobs, numbers, floats, any_text(), any_text(), 0_usize..40).prop_map(
        |(jobs, numbers, floats, one, two, count)| {
            let operation = Operation {
                count: numbers[0],
                seconds: floats[0],
            };
            let server = odd_server(&numbers, operation, (&one, &two), count);
            let mut cache = Cache::default();
            cache.status.hit_ratio = floats[1];
            cache.status.hit_read_bytes_per_s = floats[2];
            cache.status.memory_hits = numbers[6];
            cache.status.device_hits = numbers[7];
            cache.status.offline_seconds = floats[3];
            cache.status.is_offline = true;
            let backlog = Backlog {
                far: one.clone(),
                bytes: numbers[8],
                oldest_s: numbers[9],
                last_error: two.clone(),
                ..Backlog::default()
            };
            let run = Run {
                name: one.clone(),
                step: two.clone(),
                done: numbers[0],
                total: numbers[1],
                seconds: floats[4],
                ..Run::default()
            };
            let mount = Mount {
                source: one,
                mountpoint: two,
                requests: numbers[2],
                unflushed_bytes: numbers[3],
                ..Mount::default()
            };
            let mut snapshot = Snapshot {
                taken: floats[5],
                jobs,
                servers: vec![server; count % 2],
                mounts: vec![mount; count % 3],
                caches: vec![cache; count % 3],
                backlogs: vec![backlog; count % 4],
                runs: vec![run; count % 2],
                ..Snapshot::default()
            };
            snapshot.process.resources.cpu_seconds = Some(floats[0]);
            snapshot.process.resources.resident_bytes = Some(numbers[0]);
            snapshot
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn nothing_panics_at_any_size(
        snapshots in proptest::collection::vec(any_snapshot(), 0..4),
        // The backend of tests cannot print a width of 0.
        width in 1_u16..260,
        height in 0_u16..80,
        presses in proptest::collection::vec(0_usize..14, 0..8),
    ) {
        const KEYS: [Key; 14] = [
            Key::Down, Key::Up, Key::Left, Key::Right, Key::Home, Key::End, Key::PageDown, Key::Char('p'),
            Key::Char('b'), Key::Char('c'), Key::Char('x'), Key::Char('?'), Key::Char('y'), Key::Backspace,
        ];
        let states = [State::Alive, State::Ended, State::Failing("x".into()), State::Found];
        let rows = (0..).zip(snapshots).map(|(number, snapshot)| {
            row(number * 77_777_777, states[number as usize % 4].clone(), (number != 3).then_some(snapshot))
        });
        let keys: Vec<Key> = presses.into_iter().map(|key| KEYS[key]).collect();
        let text = drawn(rows.collect(), (width, height), &keys);
        prop_assert!(text.lines().count() <= usize::from(height));
    }
}
