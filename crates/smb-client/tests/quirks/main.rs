//! Tests servers with malformed or unusual replies: the affected item fails or is repaired, and the
//! rest is copied.
#![allow(dead_code, reason = "the server does more than these tests ask of it")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::links::server::{self, Quirks};
use ropeway_copy::{CheckSpec, Delete, Job, JobSpec, Options, Outcome, Root, Status};
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_smb_client::{
    Client, ClientOptions, Encryption, Endpoint, Login, Signing, SmbTree, SmbTreeOptions,
};
use ropeway_smb_wire::Writer;
use ropeway_smb_wire::fsctl::reparse::{NfsSpecial, ReparseData};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_vfs::event::Event;
use ropeway_vfs::{ErrorKind, Preserve, RelPath, Tree};

async fn tree(quirks: Quirks, acls: bool) -> Arc<SmbTree> {
    let address = server::start_with(quirks);
    let options = ClientOptions {
        signing: Signing::Offered,
        encryption: Encryption::Off,
        channels_max: 1,
        dialects: Dialect::Smb210..=Dialect::Smb210,
        timeout: Duration::from_secs(10),
        ..ClientOptions::default()
    };
    let endpoint = Endpoint::new("127.0.0.1", address.port());
    let login = Login::password("", "anna", "secret");
    let client = Client::connect(&endpoint, login, options).await.unwrap();
    let share = client.share("data").await.unwrap();
    let options = SmbTreeOptions {
        acls,
        ..SmbTreeOptions::default()
    };
    Arc::new(SmbTree::open(share, "", options).await.unwrap())
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

type Events = Arc<Mutex<Vec<Event>>>;

async fn run(spec: JobSpec) -> (Outcome, Events) {
    let events = Events::default();
    let sink = Arc::clone(&events);
    let outcome = Job::new(spec)
        .run(Arc::new(move |event| sink.lock().unwrap().push(event)))
        .await;
    (outcome, events)
}

/// Copies the whole share into `to` in a local folder.
async fn copy(share: &Arc<SmbTree>, here: &Path, to: &str, options: Options) -> (Outcome, Events) {
    let target: Arc<dyn Tree> = LocalTree::open(here, LocalOptions::default()).unwrap();
    let spec = JobSpec {
        roots: vec![Root {
            source_name: RelPath::root(),
            source: Arc::clone(share) as Arc<dyn Tree>,
            source_path: RelPath::root(),
            target_path: path(to),
        }],
        target,
        options,
        journal: None,
        environment: Default::default(),
    };
    run(spec).await
}

fn errors(events: &Events) -> Vec<(String, ErrorKind)> {
    let events = events.lock().unwrap();
    let errors = events.iter().filter_map(|event| match event {
        Event::ItemError { path, kind, .. } => Some((path.clone(), *kind)),
        _ => None,
    });
    errors.collect()
}

const FILES: [&str; 3] = ["a", "b", "folder\\c"];

fn files(content: &[u8]) -> Quirks {
    Quirks {
        folders: vec!["folder"],
        files: FILES.map(|name| (name, content.to_vec())).to_vec(),
        ..Quirks::default()
    }
}

/// An invalid name used to end the whole job, and so did everything else that is wrong inside a
/// well-formed message.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_name_fails_alone() {
    let names = ["../../outside", "x/y", "x\\y", "", "nul\0", &"n".repeat(300)];
    let share = tree(
        Quirks {
            names: names.iter().map(|name| units(name)).collect(),
            ..files(b"content")
        },
        false,
    )
    .await;
    let here = tempfile::tempdir().unwrap();
    let (outcome, events) = copy(&share, here.path(), "to", Options::default()).await;
    assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
    let failed = errors(&events);
    assert_eq!(failed.len(), names.len(), "{failed:?}");
    assert!(
        failed.iter().all(|(_, kind)| *kind == ErrorKind::InvalidReply),
        "{failed:?}"
    );
    let shown = failed
        .iter()
        .any(|(path, _)| path.contains("x2f") && !path.contains("x/y"));
    assert!(shown, "named in escaped form: {failed:?}");
    for name in ["a", "b", "folder/c"] {
        assert_eq!(
            std::fs::read(here.path().join("to").join(name)).unwrap(),
            b"content"
        );
    }
    assert_eq!(
        std::fs::read_dir(here.path()).unwrap().count(),
        1,
        "nothing next to the target"
    );
}

/// Offsets in FileIdBothDirectoryInformation ([MS-FSCC] 2.4.22), and bytes there that make a record
/// malformed.
const BAD_RECORDS: [(usize, &[u8]); 4] = [
    (60, &[3, 0, 0, 0]),
    (60, &[200, 0, 0, 0]),
    (60, &[0xff; 4]),
    (68, &[25]),
];

/// A malformed record used to fail its folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_record_fails_alone() {
    // The records are "a", "b" and "folder", in this order.
    for (which, (field, bytes)) in [1, 0, 1, 0].into_iter().zip(BAD_RECORDS) {
        let quirks = Quirks {
            spoilt: Some((which, field, bytes)),
            ..files(b"content")
        };
        let share = tree(quirks, false).await;
        let here = tempfile::tempdir().unwrap();
        let (outcome, events) = copy(&share, here.path(), "to", Options::default()).await;
        assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
        let failed = errors(&events);
        assert!(
            failed.len() == 1 && failed[0].1 == ErrorKind::InvalidReply,
            "{bytes:?}: {failed:?}"
        );
        let good = ["b", "a"][which];
        for name in [good, "folder/c"] {
            assert_eq!(
                std::fs::read(here.path().join("to").join(name)).unwrap(),
                b"content"
            );
        }
        assert_eq!(
            std::fs::read_dir(here.path().join("to")).unwrap().count(),
            2,
            "{bytes:?}"
        );
    }
}

/// The file `a`, and a folder of two, with these bytes in its first record.
fn spoilt_in_folder(field: usize, bytes: &'static [u8]) -> Quirks {
    Quirks {
        files: ["a", "folder\\b", "folder\\c"]
            .map(|name| (name, b"content".to_vec()))
            .to_vec(),
        spoilt: Some((0, field, bytes)),
        names_in: "folder",
        ..files(b"")
    }
}

/// The start of the next record is unknown, so the listing cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_whose_offsets_are_broken_fails_its_folder() {
    for next in [&[1, 0, 0, 0], &[0xff; 4]] {
        let share = tree(spoilt_in_folder(0, next), false).await;
        let here = tempfile::tempdir().unwrap();
        let (outcome, events) = copy(&share, here.path(), "to", Options::default()).await;
        assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
        let failed = errors(&events);
        assert!(failed.len() == 1 && failed[0].0.ends_with("folder"), "{failed:?}");
        assert!(here.path().join("to/a").exists());
    }
}

/// The file on the target may be the one whose name is malformed.
#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_deletes_nothing_next_to_a_malformed_record() {
    for (field, bytes) in BAD_RECORDS {
        mirror_keeps_what_may_belong(spoilt_in_folder(field, bytes)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_deletes_nothing_next_to_an_invalid_name() {
    for name in ["x/y", "x\\y"] {
        let quirks = Quirks {
            names: vec![units(name)],
            names_in: "folder",
            ..files(b"content")
        };
        mirror_keeps_what_may_belong(quirks).await;
    }
}

/// The listing of `folder` is incomplete, that of the root is complete.
async fn mirror_keeps_what_may_belong(quirks: Quirks) {
    let share = tree(quirks, false).await;
    let here = tempfile::tempdir().unwrap();
    let old = |name: &str| here.path().join("to").join(name);
    std::fs::create_dir_all(old("folder")).unwrap();
    for name in ["folder/perhaps that one", "elsewhere"] {
        std::fs::write(old(name), "old").unwrap();
    }
    let options = Options {
        delete: Some(Delete {
            on_errors: true,
            ..Delete::default()
        }),
        ..Options::default()
    };
    let (outcome, events) = copy(&share, here.path(), "to", options).await;
    assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
    assert!(old("folder/perhaps that one").exists(), "{events:?}");
    assert!(
        !old("elsewhere").exists(),
        "the other folder was listed whole: {events:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_eas_and_descriptors_fail_alone() {
    let bad = vec![0xff; 40];
    for (acls, quirks) in [
        (
            false,
            Quirks {
                eas: vec![("b", bad.clone())],
                ..files(b"content")
            },
        ),
        (
            true,
            Quirks {
                descriptors: vec![("b", bad)],
                ..files(b"content")
            },
        ),
    ] {
        let share = tree(quirks, acls).await;
        let here = tempfile::tempdir().unwrap();
        let (outcome, events) = copy(&share, here.path(), "to", Options::default()).await;
        assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
        let failed = errors(&events);
        assert!(
            !failed.is_empty() && failed.iter().all(|(path, _)| path.ends_with('b')),
            "{failed:?}"
        );
        assert!(here.path().join("to/a").exists() && here.path().join("to/folder/c").exists());
    }
}

/// A copy used to report a file as durable that the server had stored only in part, and a move
/// deleted it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_stored_in_part_fails_alone_and_is_not_moved() {
    for big in [false, true] {
        let share = tree(
            Quirks {
                forgetful: Some("\\b"),
                ..Quirks::default()
            },
            false,
        )
        .await;
        let here = tempfile::tempdir().unwrap();
        let source = |name: &str| here.path().join("from").join(name);
        std::fs::create_dir(source("")).unwrap();
        for name in ["a", "b", "c"] {
            let size = if big { 6 << 20 } else { 1000 };
            std::fs::write(source(name), vec![7; size]).unwrap();
        }
        let spec = JobSpec {
            roots: vec![Root {
                source_name: RelPath::root(),
                source: LocalTree::open(here.path(), LocalOptions::default()).unwrap(),
                source_path: path("from"),
                target_path: path("to"),
            }],
            target: Arc::clone(&share) as Arc<dyn Tree>,
            options: Options {
                move_source: true,
                ..Options::default()
            },
            journal: None,
            environment: Default::default(),
        };
        let (outcome, events) = run(spec).await;
        assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
        let failed = errors(&events);
        assert!(
            !failed.is_empty()
                && failed
                    .iter()
                    .all(|(path, kind)| path.ends_with("/b") && *kind == ErrorKind::InvalidReply),
            "{failed:?}"
        );
        assert!(source("b").exists(), "{events:?}");
        assert!(!source("a").exists() && !source("c").exists(), "{events:?}");
    }
}

/// A server without times used to produce files of 1601, or of the year 30828.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_time_stays_missing() {
    for none in [0, u64::MAX, u64::MAX - 1] {
        let share = tree(
            Quirks {
                times: Some(none),
                ..files(b"content")
            },
            false,
        )
        .await;
        let here = tempfile::tempdir().unwrap();
        let (outcome, events) = copy(&share, here.path(), "to", Options::default()).await;
        assert_eq!(outcome.status, Status::Done, "{events:?}");
        let copied = here.path().join("to/a");
        let age = SystemTime::now()
            .duration_since(std::fs::metadata(&copied).unwrap().modified().unwrap())
            .unwrap_or_default();
        assert!(age < Duration::from_secs(3600), "{none}: {age:?}");
        let lost = format!("{:?}", outcome.summary.losses);
        assert!(lost.contains("Times"), "{lost}");
        // Equal content counts as equal; other content of the same size does not, whatever the
        // times.
        let (again, events) = copy(&share, here.path(), "to", Options::default()).await;
        assert_eq!(again.summary.counters.bytes_sent, 0, "{events:?}");
        let spec = || CheckSpec {
            source: Arc::clone(&share) as Arc<dyn Tree>,
            source_path: RelPath::root(),
            target: LocalTree::open(here.path(), LocalOptions::default()).unwrap(),
            target_path: path("to"),
            checksum: false,
            modify_window: Duration::ZERO,
            preserve: Preserve::default(),
            devices: false,
            filter: Default::default(),
            watch: Default::default(),
        };
        let found = ropeway_copy::check(spec(), Arc::new(|_| {})).await.unwrap();
        assert_eq!((found.differences, found.errors), (0, 0));
        std::fs::write(&copied, b"CONTENT").unwrap();
        let found = ropeway_copy::check(spec(), Arc::new(|_| {})).await.unwrap();
        assert_eq!(found.differences, 1);
        copy(&share, here.path(), "to", Options::default()).await;
        assert_eq!(std::fs::read(&copied).unwrap(), b"content");
    }
}

/// Such files used to fail as changed while copied, although they had not changed.
#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_short_read_is_requested_again() {
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    for read_max in [1000, 65_536, 299_999] {
        let share = tree(
            Quirks {
                read_max: Some(read_max),
                ..files(&content)
            },
            false,
        )
        .await;
        let here = tempfile::tempdir().unwrap();
        let (outcome, events) = copy(&share, here.path(), "to", Options::default()).await;
        assert_eq!(outcome.status, Status::Done, "{read_max}: {events:?}");
        for name in ["a", "folder/c"] {
            assert!(
                std::fs::read(here.path().join("to").join(name)).unwrap() == content,
                "{read_max}"
            );
        }
    }
    // A server that returns nothing is not asked for ever.
    let share = tree(
        Quirks {
            dry_from: Some(100_000),
            ..files(&content)
        },
        false,
    )
    .await;
    let here = tempfile::tempdir().unwrap();
    let (outcome, events) = copy(&share, here.path(), "to", Options::default()).await;
    assert_eq!(outcome.status, Status::SomeFailed, "{events:?}");
    let failed = errors(&events);
    assert!(
        failed.iter().all(|(_, kind)| *kind == ErrorKind::InvalidReply),
        "{failed:?}"
    );
}

/// Copies by root used to create the devices that a share's users had stored.
#[tokio::test(flavor = "multi_thread")]
async fn devices_of_a_share_are_left_out() {
    let mut device = Vec::new();
    ReparseData::Nfs(NfsSpecial::BlockDevice { major: 7, minor: 99 }).encode(&mut Writer::new(&mut device));
    let share = tree(
        Quirks {
            reparse: vec![("disk", device)],
            ..files(b"content")
        },
        false,
    )
    .await;
    let here = tempfile::tempdir().unwrap();
    let (outcome, events) = copy(&share, here.path(), "to", Options::default()).await;
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert!(here.path().join("to/a").exists());
    assert!(std::fs::symlink_metadata(here.path().join("to/disk")).is_err());
    let notes = events.lock().unwrap();
    let reported = notes
        .iter()
        .filter(|event| matches!(event, Event::Note { path: Some(path), .. } if path.contains("disk")));
    assert_eq!(reported.count(), 1, "{notes:?}");
}
