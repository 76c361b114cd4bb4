//! Tests of the output for people.

use super::*;
use std::collections::BTreeSet;

use ropeway_vfs::Loss;
use ropeway_vfs::event::{Counters, Limit};

const GIB: u64 = 1 << 30;

fn info(durability: Durability, dry_run: bool) -> RunInfo {
    RunInfo {
        durability,
        dry_run,
        engine: "auto",
        io: "uring",
        verdict: Some(Verdict::SafeToUnplug),
        kept: None,
        line: None,
        ejected: None,
        told: BTreeSet::new(),
    }
}

fn done() -> Outcome {
    let counters = Counters {
        files_done: 18_330,
        bytes_done: 96 * GIB,
        bytes_durable: 96 * GIB,
        bytes_read: 95 * GIB,
        bytes_sent: 94 * GIB,
        files_skipped: 2,
        directories: 36,
        ..Counters::default()
    };
    let summary = Summary {
        counters,
        perceived: Duration::from_secs(2521),
        durable: Some(Duration::from_secs(2560)),
        verified: Some(Duration::from_secs(22)),
        limit: Some(Limit::Destination),
        ..Summary::default()
    };
    Outcome {
        summary,
        status: Status::Done,
        fatal: None,
        hint: None,
    }
}

#[test]
fn a_successful_run_is_reported_as_documented() {
    let lines = final_lines(&done(), &info(Durability::End, false), false);
    assert_eq!(
        lines[0],
        " ✓ done 43m02s · 96.0 GiB durable · verified from device · SAFE TO UNPLUG"
    );
    assert_eq!(
        lines[1],
        "   seemed done 42m01s · durable 42m40s · verifying took 22.0s · 18,330 files in 36 folders · read 95.0 GiB · \
         sent 94.0 GiB · 2 skipped · limit: destination"
    );
    assert_eq!(lines.len(), 2);
}

#[test]
fn only_a_device_that_people_unplug_is_called_safe_to_unplug() {
    let end = |verdict: Option<Verdict>| {
        let info = RunInfo {
            verdict,
            ..info(Durability::End, false)
        };
        final_lines(&done(), &info, false).swap_remove(0)
    };
    let durable = " ✓ done 43m02s · 96.0 GiB durable · verified from device";
    assert_eq!(end(Some(Verdict::Durable)), durable);
    assert_eq!(end(None), durable);
    assert_eq!(
        end(Some(Verdict::FlushedByServer)),
        format!("{durable} · flushed by the server")
    );
    assert_eq!(
        end(Some(Verdict::InMemory)),
        format!("{durable} · in memory only")
    );
    assert!(end(Some(Verdict::InUse)).ends_with(" · NOT SAFE: files are open for writing"));
}

#[test]
fn only_a_complete_durable_run_is_called_safe() {
    let mut outcome = done();
    outcome.summary.durable = None;
    let verdict_of = |outcome: &Outcome, durability| verdict(outcome, &info(durability, false), false);
    let text = verdict_of(&outcome, Durability::None);
    assert!(
        text.contains("not yet durable") && !text.contains("SAFE"),
        "{text}"
    );
    for status in [
        Status::SomeFailed,
        Status::Differs,
        Status::TargetUnwritable,
        Status::Interrupted,
    ] {
        let text = verdict_of(&Outcome { status, ..done() }, Durability::End);
        assert!(text.starts_with(" ✗") && !text.contains("SAFE"), "{text}");
    }
    let text = verdict(&done(), &info(Durability::End, true), false);
    assert!(
        text.contains("nothing was changed") && !text.contains("SAFE"),
        "{text}"
    );
}

#[test]
fn losses_are_listed_with_their_counts() {
    let mut outcome = done();
    outcome.summary.losses = [(Loss::Owner, 1200)].into();
    let lines = final_lines(&outcome, &info(Durability::End, false), false);
    assert_eq!(
        lines[2],
        "   note: 1,200 owners not set (needs root, or a privilege on the server)"
    );
}

#[test]
fn what_was_said_of_a_server_is_not_said_again() {
    let mut outcome = done();
    outcome.summary.losses = [(Loss::Owner, 9), (Loss::Acl, 2)].into();
    let info = RunInfo {
        told: [Loss::Owner].into(),
        ..info(Durability::End, false)
    };
    let lines = final_lines(&outcome, &info, false);
    assert_eq!(lines[2..], ["   note: 2 ACLs not kept"]);
}

#[test]
fn an_interrupted_run_says_where_its_data_lies() {
    let interrupted = Outcome {
        status: Status::Interrupted,
        summary: Summary {
            counters: Counters {
                files_done: 120,
                files_total: 300,
                ..Counters::default()
            },
            ..Summary::default()
        },
        ..done()
    };
    let info = RunInfo {
        kept: Some(Kept {
            job: "79ee1043".into(),
            target: "/media/stick/photos".into(),
            bytes: Some(12 << 20),
        }),
        ..info(Durability::End, false)
    };
    let lines = final_lines(&interrupted, &info, false);
    assert!(lines[0].ends_with("run it again to resume"), "{lines:?}");
    assert_eq!(
        lines[2],
        "   /media/stick/photos: 120 of 300+ files done; 12.0 MiB of unfinished files are kept under temporary names"
    );
    assert!(lines[3].contains("ropeway jobs resume 79ee1043"), "{lines:?}");
}

#[test]
fn a_refused_run_offers_nothing_to_resume() {
    let refused = Outcome {
        summary: Summary::default(),
        status: Status::Refused,
        fatal: Some("the source is empty".into()),
        hint: None,
    };
    let lines = final_lines(&refused, &info(Durability::End, false), false);
    assert_eq!(lines, [" ✗ refused 0.00s · nothing was changed"]);
}

#[test]
fn hints_are_split_from_messages() {
    assert_eq!(
        split_hint("cannot read a (b) (hint: see dmesg)"),
        ("cannot read a (b)", Some("see dmesg"))
    );
    assert_eq!(split_hint("cannot read a (b)"), ("cannot read a (b)", None));
}
