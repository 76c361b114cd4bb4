//! Temporary names: no other run and no other user can use them, even if they know the paths of a
//! job.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::support::{NOBODY, Place, Run, file, is_root, same, skip};

const MIB: u64 = 1 << 20;

/// Returns the temporary nodes in a folder.
fn temporaries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_temporary = |path: &PathBuf| path.to_str().unwrap().contains("/.ropeway-");
    entries.filter(is_temporary).collect()
}

/// Copies `file 0` to `file N-1` at once with the state folders `state 1` and `state 2`. Kills the
/// second run when the first has ended, and checks that the first run's files are complete.
#[track_caller]
pub(super) fn complete_despite_a_second_run_that_is_killed(
    (source, target): (&Path, &Path),
    files: u64,
    run: impl Fn(&str) -> Run,
) {
    let mut first = run("state 1").start();
    first.reach("bytes_sent", 4 * MIB);
    let mut second = run("state 2").start();
    second.reach("bytes_sent", MIB);
    let first = first.wait();
    second.kill();
    first.assert_code(&[0]);
    for number in 0..files {
        let name = format!("file {number}");
        let (wanted, found) = (fs::read(source.join(&name)), fs::read(target.join(&name)));
        assert!(wanted.unwrap() == found.unwrap(), "{name} is damaged: {first}");
    }
}

/// Both runs wrote to one file: the second emptied what the first had finished, and was then
/// killed.
#[test]
fn two_unrelated_runs_use_different_temporary_files() {
    for is_new in [false, true] {
        let place = Place::new();
        let source = place.folder("source");
        for number in 0..8 {
            file(&source.join(format!("file {number}")), 5 * MIB, number);
        }
        if !is_new {
            place.folder("target");
        }
        let run = |state: &str, limit: &str| {
            place
                .copy("source", "target")
                .args(["-T", "--bwlimit", limit])
                .env("XDG_STATE_HOME", place.folder(state))
        };
        let target = place.join("target");
        complete_despite_a_second_run_that_is_killed((&source, &target), 8, |state| {
            run(state, if state == "state 1" { "8M" } else { "4M" })
        });
        // Each run resumes, and leaves nothing behind.
        run("state 2", "200M").ok();
        run("state 1", "200M").ok();
        same(&source, &target);
    }
}

/// Another user created the temporary names first and kept them open.
fn planted_names_give_no_access(is_same_state: bool) {
    if !is_root() {
        skip!("needs root");
    }
    let place = Place::new();
    let source = place.folder("source");
    fs::create_dir(source.join("folder")).unwrap();
    file(&source.join("secret"), 9 * MIB, 1);
    file(&source.join("folder/secret"), 9 * MIB, 2);
    for secret in ["secret", "folder/secret"] {
        fs::set_permissions(source.join(secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let target = place.folder("target");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o777)).unwrap();
    let run = || place.copy(source.join("."), &target).arg("-T");
    // Replace all temporary names that are visible by now.
    let mut kept = Vec::new();
    for (limit, sent) in [("4M", 2 * MIB), ("4M", 11 * MIB)] {
        let mut running = run().args(["--bwlimit", limit]).start();
        running.reach("bytes_sent", sent);
        running.kill();
        for path in temporaries(&target) {
            let is_dir = path.is_dir();
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
            if is_dir {
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
                let planted = path.join("secret");
                fs::write(&planted, "planted").unwrap();
                fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).unwrap();
                std::os::unix::fs::chown(&planted, Some(NOBODY), Some(NOBODY)).unwrap();
                kept.push(fs::File::open(&planted).unwrap());
            } else {
                fs::write(&path, "planted").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
                kept.push(fs::File::open(&path).unwrap());
            }
            std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    assert!(!kept.is_empty(), "no temporary name was seen");
    let last = match is_same_state {
        true => run(),
        false => run().env("XDG_STATE_HOME", place.folder("other state")),
    };
    last.run().assert_code(&[0]);
    for secret in ["secret", "folder/secret"] {
        let (wanted, found) = (source.join(secret), target.join(secret));
        assert!(fs::read(wanted).unwrap() == fs::read(&found).unwrap(), "{secret}");
        let found = fs::metadata(&found).unwrap();
        for planted in &kept {
            assert_ne!(
                planted.metadata().unwrap().ino(),
                found.ino(),
                "{secret} is open to others"
            );
        }
    }
    let folder = fs::metadata(target.join("folder")).unwrap();
    assert_eq!(folder.uid(), 0, "the folder is another user's");
    for mut planted in kept {
        let mut content = Vec::new();
        planted.read_to_end(&mut content).unwrap();
        assert!(content.len() <= 7, "another user can read the copy");
    }
}

#[test]
fn temporary_names_that_another_user_has_replaced_are_not_used() {
    planted_names_give_no_access(true);
}

#[test]
fn temporary_names_cannot_be_predicted() {
    planted_names_give_no_access(false);
}
