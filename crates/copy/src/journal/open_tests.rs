use super::*;
use proptest::prelude::*;

use std::fs;
use std::sync::atomic::AtomicI64;

use crate::journal::store::{FILE_NAME, JournalFolder, LOST_NAME};

fn spec(dir: &Path) -> JournalSpec {
    JournalSpec {
        store: Arc::new(JournalFolder::new(dir)),
        key: JobKey::new(&["/a".into()], "/b"),
        sources: vec!["/a".into()],
        target: "/b".into(),
    }
}

fn at(boot: &str, now: i128) -> Environment {
    Environment {
        boot_id: boot.to_owned(),
        clock: WallClock::new(move || Timestamp(now)),
        ..Environment::default()
    }
}

fn version(size: u64) -> Version {
    Version {
        size,
        modified: Timestamp(5),
        changed: Some(Timestamp(6)),
        index: Some(9),
    }
}

/// Opens a journal. Waits take virtual time.
fn try_open(dir: &Path, environment: &Environment, names_durable: bool) -> io::Result<Journal> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(Journal::open(&spec(dir), environment, names_durable))
}

fn open(dir: &Path, boot: &str, now: i128) -> Journal {
    try_open(dir, &at(boot, now), false).unwrap()
}

#[test]
fn the_same_boot_trusts_the_written_another_only_the_durable() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), "one", 100);
    journal.file_begun(7, version(1000), 0, None).unwrap();
    journal.written(7, 600).unwrap();
    journal.durable(Timestamp(150), vec![(7, 400)]).unwrap();
    drop(journal);
    assert!(unfinished(dir.path(), &JobKey::new(&["/a".into()], "/b")));
    let again = open(dir.path(), "one", 200);
    let file = again.memory().file(7).unwrap();
    assert_eq!((file.written, file.durable, file.same_boot), (600, 400, true));
    assert_eq!(file.source, version(1000));
    assert!(again.trusts(Some(Timestamp(180)), true));
    drop(again);
    let other = open(dir.path(), "two", 300);
    assert!(!other.memory().file(7).unwrap().same_boot);
    assert!(other.trusts(Some(Timestamp(140)), true), "before the watermark");
    for (changed, why) in [
        (90, "no file of this job is older than the job"),
        (160, "after the watermark"),
        (250, "the second run had no watermark"),
    ] {
        assert!(!other.trusts(Some(Timestamp(changed)), true), "{why}");
    }
    assert!(!other.trusts(None, true), "nothing tells when it changed");
    other.finish().unwrap();
    assert!(!unfinished(dir.path(), &JobKey::new(&["/a".into()], "/b")));
}

#[test]
fn what_an_earlier_run_changed_is_older_than_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    // Each look takes a unit of time; a tick takes 64. Some change times are fine.
    let time = Arc::new(AtomicI64::new(0));
    let looked = Arc::clone(&time);
    let fine = move || Timestamp(i128::from(looked.fetch_add(1, Ordering::Relaxed)));
    let ticks = fine.clone();
    let clock = WallClock::new(fine.clone()).with_ticks(move || Timestamp(ticks().0 / 64 * 64));
    let environment = |boot: &str| Environment {
        clock: clock.clone(),
        ..at(boot, 0)
    };
    for run in 0..40 {
        drop(try_open(dir.path(), &environment("one"), false).unwrap());
        let written = fine();
        let next = try_open(dir.path(), &environment("two"), false).unwrap();
        assert!(!next.trusts(Some(written), true), "{run}");
    }
}

#[test]
fn a_running_job_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), "one", 1);
    let second = try_open(dir.path(), &at("one", 2), false).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    drop(first);
}

#[test]
fn the_nonce_is_random_and_stays_that_of_the_job() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let nonce = open(dir.path(), "one", 1).nonce();
    assert_eq!(open(dir.path(), "two", 2).nonce(), nonce);
    assert_ne!(open(other.path(), "one", 1).nonce(), nonce);
}

#[test]
fn the_nonce_stays_when_a_journal_is_spoiled() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), "one", 100);
    let nonce = journal.nonce();
    journal.file.spoil().unwrap();
    drop(journal);
    let again = open(dir.path(), "one", 200);
    assert!(again.memory().has_lost(), "nothing is trusted");
    assert_eq!(again.nonce(), nonce, "its temporary names are found");
    drop(again);
    // Damage of another kind tells nothing.
    let path = dir.path().join(spec(dir.path()).key.id()).join(FILE_NAME);
    fs::write(path, b"no journal at all").unwrap();
    assert_ne!(open(dir.path(), "one", 300).nonce(), nonce);
}

#[test]
fn places_are_kept_over_all_runs_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let odd = RelPath::parse(b"a/\xff").unwrap();
    for now in 1..3 {
        let journal = open(dir.path(), "one", now);
        journal.place(&odd).unwrap();
        journal.place(&RelPath::root()).unwrap();
        assert_eq!(journal.places().unwrap(), [RelPath::root(), odd.clone()]);
    }
}

#[test]
fn folders_that_have_their_names_for_good_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), "one", 1);
    let node = ropeway_vfs::Metadata::bare(ropeway_vfs::Kind::Directory, 0, Timestamp(1));
    for token in [7, 8] {
        journal.folder_made(token, MadeNode::of(&node, true)).unwrap();
    }
    journal.closed(7).unwrap();
    for (syncs, known) in [(0, true), (1, true), (2, false)] {
        if syncs > 0 {
            journal.durable(Timestamp(1 + syncs), Vec::new()).unwrap();
        }
        let bytes = fs::read(journal.folder().unwrap().join(FILE_NAME)).unwrap();
        let (memory, _) = read(&bytes, "one");
        assert_eq!(memory.folder(7).is_some(), known, "after {syncs} syncs");
        assert!(memory.folder(8).is_some());
    }
}

#[test]
fn a_later_flush_does_not_make_durable_what_a_power_cut_or_a_failed_flush_took() {
    for is_cut in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), "one", 100);
        journal.file_begun(7, version(1000), 0, None).unwrap();
        journal.closed(7).unwrap();
        if !is_cut {
            journal.lost().unwrap();
        }
        drop(journal);
        let journal = open(dir.path(), if is_cut { "two" } else { "one" }, 200);
        for now in [210, 220] {
            journal.durable(Timestamp(now), Vec::new()).unwrap();
        }
        drop(journal);
        assert!(open(dir.path(), "two", 300).memory().file(7).is_some());
    }
}

#[test]
fn a_failed_flush_is_lost_in_this_boot_and_every_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), "one", 100);
    journal.file_begun(7, version(1000), 0, None).unwrap();
    journal.durable(Timestamp(150), vec![(7, 400)]).unwrap();
    journal.written(7, 600).unwrap();
    journal.lost().unwrap();
    drop(journal);
    for (boot, now) in [("one", 200), ("one", 210), ("two", 220)] {
        let again = open(dir.path(), boot, now);
        let file = again.memory().file(7).unwrap();
        assert_eq!((file.written, file.durable, file.same_boot), (400, 400, false));
        assert!(file.lost);
        for unseen in [false, true] {
            assert!(!again.trusts(Some(Timestamp(180)), unseen));
            assert!(again.trusts(Some(Timestamp(120)), unseen), "durable before");
        }
    }
}

#[test]
fn a_flush_that_failed_unseen_is_lost_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), "one", 100);
    journal.file_begun(7, version(1000), 0, None).unwrap();
    journal.written(7, 600).unwrap();
    drop(journal);
    let again = open(dir.path(), "one", 200);
    assert!(again.trusts(Some(Timestamp(120)), false));
    again.lost().unwrap();
    assert!(!again.trusts(Some(Timestamp(120)), false));
    assert!(again.trusts(Some(Timestamp(220)), false), "of this very run");
    assert_eq!(again.memory().file(7).unwrap().written, 0);
}

#[test]
fn a_journal_that_cannot_be_read_is_no_reason_to_trust() {
    for how in ["spoiled", "renamed", "of version 1"] {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), "one", 100);
        let path = journal.folder().unwrap().join(FILE_NAME);
        match how {
            "spoiled" => journal.file.spoil().unwrap(),
            "renamed" => fs::rename(&path, journal.folder().unwrap().join(LOST_NAME)).unwrap(),
            _ => {
                let json = br#"{"begin":{"version":1,"boot":"one","started":100}}"#;
                let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
                bytes.extend_from_slice(&crc32fast::hash(json).to_le_bytes());
                bytes.extend_from_slice(json);
                fs::write(&path, bytes).unwrap();
            }
        }
        drop(journal);
        assert!(unfinished(dir.path(), &JobKey::new(&["/a".into()], "/b")));
        for now in [200, 300] {
            let again = open(dir.path(), "one", now);
            assert!(again.memory().resumed(), "{how}");
            assert!(!again.trusts(Some(Timestamp(150)), false), "{how}");
        }
    }
}

#[test]
fn what_is_named_after_a_sync_is_trusted_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    drop(try_open(dir.path(), &at("one", 100), true).unwrap());
    let after = open(dir.path(), "two", 200);
    for changed in [None, Some(Timestamp(50)), Some(Timestamp(150))] {
        assert!(after.trusts(changed, false));
        assert!(!after.trusts(changed, true));
    }
}

#[test]
fn a_clock_that_was_set_back_makes_change_times_worthless() {
    // Between two runs, between a run and its watermark, and told by the run itself.
    type Step = fn(&Path);
    let steps: [Step; 3] = [
        |dir| {
            drop(open(dir, "one", 200));
            drop(open(dir, "two", 100));
        },
        |dir| open(dir, "one", 100).durable(Timestamp(90), Vec::new()).unwrap(),
        |dir| open(dir, "one", 100).clock_stepped().unwrap(),
    ];
    for step in steps {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), "one", 80);
        journal.durable(Timestamp(85), Vec::new()).unwrap();
        drop(journal);
        step(dir.path());
        let after = open(dir.path(), "three", 1000);
        for changed in [10, 82, 87, 500] {
            assert!(!after.trusts(Some(Timestamp(changed)), true), "{changed}");
        }
    }
}

#[test]
fn very_many_sources_do_not_make_a_record_that_is_too_long() {
    let sources: Vec<String> = (0..10_000).map(|number| format!("{number:0100}")).collect();
    let named = named(&sources);
    assert!(named.len() < 700 && named.last().unwrap().ends_with("more"));
    assert_eq!(super::named(&sources[..3]), sources[..3]);
}

proptest! {
    #[test]
    fn damage_never_panics_and_keeps_what_precedes_it(cut in 0usize..600, flip in 0usize..600) {
        let dir = tempfile::tempdir().unwrap();
        let journal = open(dir.path(), "one", 1);
        for upto in 1..5u64 {
            journal.file_begun(upto, version(10), 0, None).unwrap();
            journal.written(upto, upto).unwrap();
        }
        let path = journal.folder().unwrap().join(FILE_NAME);
        drop(journal);
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(cut.max(8));
        if let Some(byte) = bytes.get_mut(flip) { *byte ^= 0x10; }
        let (memory, valid) = read(&bytes, "one");
        prop_assert!(valid <= bytes.len());
        prop_assert!((0..8).filter(|token| memory.file(*token).is_some()).count() <= 4);
    }
}

#[test]
fn a_file_whose_time_may_be_that_of_a_write_is_not_known_to_be_whole() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), "one", 1_000));
    let again = open(dir.path(), "one", 2_000);
    let found = |modified, changed| ropeway_vfs::Metadata {
        changed: Some(Timestamp(changed)),
        ..ropeway_vfs::Metadata::bare(ropeway_vfs::Kind::File, 9, Timestamp(modified))
    };
    assert!(
        !again.may_be_unfinished(&found(500, 1_500), 1),
        "a time that was given"
    );
    assert!(
        again.may_be_unfinished(&found(1_500, 1_600), 1),
        "of the run before"
    );
    assert!(
        again.may_be_unfinished(&found(500, 505), 10),
        "of its last change"
    );
    let other = tempfile::tempdir().unwrap();
    assert!(!open(other.path(), "one", 1_000).may_be_unfinished(&found(1_500, 1_500), 1));
}

#[test]
fn a_change_time_proves_nothing_once_names_of_the_file_change() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), "one", 100));
    let second = open(dir.path(), "two", 200);
    assert!(second.trusts(Some(Timestamp(250)), true), "of this run");
    second.links().unwrap();
    assert!(!second.trusts(Some(Timestamp(250)), true));
    drop(second);
    assert!(!open(dir.path(), "three", 300).trusts(Some(Timestamp(250)), true));
}
