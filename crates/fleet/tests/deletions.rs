//! Jobs that remove what only the target has.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ropeway_fleet::job::{EndRules, JobFile};
use ropeway_fleet::run::Ended;
use ropeway_fleet::source_mark::SourceMark;
use ropeway_fleet::status::{Reader, Status};
use ropeway_fleet::store::Runs;
use ropeway_fleet::workers::WorkerId;

use crate::engine::{path, tree, worker_of};

fn job() -> JobFile {
    JobFile::new("src".to_owned(), "dst".to_owned()).with_deletions(true)
}

/// Runs one job from `src` to `dst` with a fault at the source; then, if something failed, resumes it without.
fn run(at: &Path, rules: &str) -> Vec<Status> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let (source, _) = tree(&at.join("src"), rules);
        let (target, _) = tree(at, "");
        let (crew, store) = worker_of(job(), (&source, &target), scratch.path()).await;
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        let mut reader = Reader::default();
        let mut all = vec![reader.status(&store).await.unwrap().unwrap()];
        if all[0].failed > 0 {
            reader.retry(&store, 0).await.unwrap();
            assert_eq!(crew.work().await.unwrap(), Ended::Complete);
            all.push(reader.status(&store).await.unwrap().unwrap());
        }
        all
    })
}

/// Runs one job from a folder, with a fault at the target. Returns what failed.
fn failures(at: &Path, from: &str, on_target: &str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let failures = runtime.block_on(async {
        let (source, _) = tree(&at.join(from), "");
        let (target, _) = tree(at, on_target);
        let (crew, store) = worker_of(job(), (&source, &target), scratch.path()).await;
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        Reader::default().failures(&store).await.unwrap()
    });
    failures.keys().map(ToString::to_string).collect()
}

/// Makes a source with `d/f` and `e`, and a target that has more.
fn fill(at: &Path) {
    fs::create_dir_all(at.join("src/d")).unwrap();
    fs::write(at.join("src/d/f"), "f").unwrap();
    fs::write(at.join("src/e"), "e").unwrap();
    fs::create_dir_all(at.join("dst/d/old/deep")).unwrap();
    fs::write(at.join("dst/d/old/deep/file"), "old").unwrap();
    fs::write(at.join("dst/old"), "old").unwrap();
    fs::write(at.join("dst/e"), "an older version").unwrap();
}

#[test]
fn what_only_the_target_has_is_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fill(at);
    let status = run(at, "");
    assert_eq!((status[0].failed, status[0].sums.deleted), (0, 2));
    assert!(!at.join("dst/old").exists() && !at.join("dst/d/old").exists());
    assert_eq!(fs::read_to_string(at.join("dst/d/f")).unwrap(), "f");
    assert_eq!(fs::read_to_string(at.join("dst/e")).unwrap(), "e");
}

/// What cannot be listed looks as if it were not there.
#[test]
fn nothing_is_removed_while_something_fails() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fill(at);
    let status = run(at, "list:path=d,kind=device_error,nth=1");
    assert_eq!((status[0].failed, status[0].sums.deleted), (1, 0));
    assert_eq!((status[1].failed, status[1].sums.deleted), (0, 2));
    assert!(!at.join("dst/old").exists() && !at.join("dst/d/old").exists());
    assert_eq!(fs::read_to_string(at.join("dst/d/f")).unwrap(), "f");
}

/// By another name, the source may lie in a folder that only the target has.
#[test]
fn a_folder_that_holds_the_source_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir_all(at.join("dst/only/there/src")).unwrap();
    fs::write(at.join("dst/only/there/src/f"), "the source").unwrap();
    assert_eq!(failures(at, "dst/only/there/src", ""), ["only"]);
    let left = fs::read_to_string(at.join("dst/only/there/src/f")).unwrap();
    assert_eq!(left, "the source");
}

/// A source that is not mounted is empty.
#[test]
fn an_empty_source_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fill(at);
    fs::remove_dir_all(at.join("src")).unwrap();
    fs::create_dir(at.join("src")).unwrap();
    let status = run(at, "");
    assert_eq!((status[0].failed, status[0].sums.deleted), (0, 0));
    assert!(at.join("dst/old").exists() && at.join("dst/d/old/deep/file").exists());
}

/// Some targets list a name in another form of Unicode than the one it was made with.
#[test]
fn a_name_that_looks_like_one_of_the_source_stays() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fill(at);
    fs::write(at.join("src/\u{e9}"), "composed").unwrap();
    fs::write(at.join("dst/e\u{301}"), "decomposed").unwrap();
    assert_eq!(run(at, "")[0].sums.deleted, 2);
    assert!(at.join("dst/e\u{301}").exists() && at.join("dst/\u{e9}").exists());
}

/// It counted as deleted, stayed for ever, and no further job could begin.
#[test]
fn what_cannot_be_removed_is_a_failure_and_keeps_no_job_from_its_work() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fill(at);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let (source, _) = tree(&at.join("src"), "");
        let (target, faults) = tree(at, "remove:contains=graves,kind=permission_denied");
        let (crew, store) = worker_of(job(), (&source, &target), scratch.path()).await;
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        let failures = Reader::default().failures(&store).await.unwrap();
        let paths: Vec<String> = failures.keys().map(ToString::to_string).collect();
        assert_eq!(paths, ["d/old", "old"]);
        let mut reasons = failures.values();
        assert!(
            reasons.all(|reason| reason.contains("was moved to")),
            "{failures:?}"
        );
        assert!(!at.join("dst/old").exists());
        let before = faults.fired()[0];
        let runs = Runs::new(Arc::clone(&target), path(".ropeway-fleet-dst"), WorkerId(2));
        let run = runs.newest().await.unwrap();
        assert!(runs.submit(run, 8, &job()).await.unwrap().is_some());
        assert!(faults.fired()[0] > before);
        let run = runs.newest().await.unwrap().unwrap();
        assert!(runs.join(run).await.is_ok());
    });
}

/// A volume that is not mounted any more looks like an empty folder.
#[test]
fn a_folder_that_lost_all_that_was_sampled_loses_nothing_on_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fill(at);
    for number in 0..6 {
        fs::create_dir_all(at.join("src/volume")).unwrap();
        fs::write(at.join(format!("src/volume/{number}")), "x").unwrap();
        fs::write(at.join(format!("src/{number}")), "x").unwrap();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let failures = runtime.block_on(async {
        let (source, _) = tree(&at.join("src"), "");
        let (target, _) = tree(at, "");
        let mut random = fastrand::Rng::with_seed(1);
        let mark = SourceMark::take(&*source, &mut random);
        let rules = EndRules::between(source.capabilities(), target.capabilities());
        let job = job().of_ends(mark.await.unwrap(), rules);
        fs::create_dir(at.join("dst/volume")).unwrap();
        for entry in fs::read_dir(at.join("src/volume")).unwrap() {
            let entry = entry.unwrap();
            fs::rename(entry.path(), at.join("dst/volume").join(entry.file_name())).unwrap();
        }
        let (crew, store) = worker_of(job, (&source, &target), scratch.path()).await;
        assert_eq!(crew.work().await.unwrap(), Ended::Complete);
        Reader::default().failures(&store).await.unwrap()
    });
    assert_eq!(failures.len(), 6, "{failures:?}");
    assert!(
        failures.values().all(|reason| reason.contains("not mounted")),
        "{failures:?}"
    );
    assert_eq!(fs::read_dir(at.join("dst/volume")).unwrap().count(), 6);
    assert!(!at.join("dst/old").exists());
}

/// It stopped all workers, for ever.
#[test]
fn a_read_only_volume_in_the_target_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fill(at);
    assert_eq!(failures(at, "src", "make_dir:path=dst/d,kind=read_only"), ["d"]);
    assert_eq!(fs::read_to_string(at.join("dst/e")).unwrap(), "e");
}
