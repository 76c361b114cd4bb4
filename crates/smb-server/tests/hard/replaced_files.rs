//! A local program replaces a file that a client has open. Operations on the open then do not
//! affect the new file.

use std::fs;

use ropeway_smb_server::Links;
use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions};
use ropeway_smb_wire::create_context::RequestContext;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::reparse::{ReparseData, Symlink, SymlinkFlags};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::{FileInfoClass, FileLinkInformation, Information};
use ropeway_smb_wire::{FileId, NtStatus};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

fn make_link(raw: &mut Raw, file: FileId, target: &str) -> NtStatus {
    let data = ReparseData::Symlink(Symlink {
        substitute_name: target.into(),
        print_name: target.into(),
        flags: SymlinkFlags::RELATIVE,
    });
    let input = samples::body(|w| data.encode(w));
    let body = samples::control(file, CtlCode::SET_REPARSE_POINT, &input);
    raw.call(Command::Ioctl, |w| w.bytes(&body)).status()
}

fn hard_link(raw: &mut Raw, file: FileId, to: &str) -> NtStatus {
    let information = FileLinkInformation {
        replace_if_exists: false,
        name: to.into(),
    };
    let body = samples::set_info(file, FileInfoClass::Link, &information.to_bytes());
    raw.call(Command::SetInfo, |w| w.bytes(&body)).status()
}

fn rename(raw: &mut Raw, file: FileId, to: &str) -> NtStatus {
    let body = samples::rename(file, to);
    raw.call(Command::SetInfo, |w| w.bytes(&body)).status()
}

#[test]
fn a_link_does_not_replace_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("name")).unwrap();
    fs::write(folder.path().join("new"), "precious").unwrap();
    fs::rename(folder.path().join("new"), folder.path().join("name")).unwrap();
    assert_eq!(make_link(&mut raw, file, "x"), NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(fs::read(folder.path().join("name")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // Without interference it works, also for a file that was written to and truncated again.
    let other = raw.create(&Create::of("other")).unwrap();
    assert_eq!(make_link(&mut raw, other, "name"), NtStatus::SUCCESS);
    let target = fs::read_link(folder.path().join("other")).unwrap();
    assert_eq!(target.to_str(), Some("name"));
}

#[test]
fn a_link_does_not_replace_a_file_that_another_client_writes() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let (mut one, mut two) = (Raw::ready(serve.address), Raw::ready(serve.address));
    let mine = one.create(&Create::of("name")).unwrap();
    let theirs = two.create(&Create::of("name")).unwrap();
    assert_eq!(make_link(&mut one, mine, "x"), NtStatus::SHARING_VIOLATION);
    let body = samples::write(theirs, 0, b"kept");
    assert_eq!(
        two.call(Command::Write, |w| w.bytes(&body)).status(),
        NtStatus::SUCCESS
    );
    assert_eq!(two.close(theirs), NtStatus::SUCCESS);
    assert_eq!(fs::read(folder.path().join("name")).unwrap(), b"kept");
    // The file was not left marked for deletion.
    assert_eq!(one.close(mine), NtStatus::SUCCESS);
    assert!(folder.path().join("name").exists());
    // The node is removed, so the open needs the right to delete it, unless it created the file.
    fs::write(folder.path().join("name"), "").unwrap();
    let weak = Create {
        access: AccessMask::WRITE_ATTRIBUTES,
        ..Create::of("name")
    };
    let weak = one.create(&weak).unwrap();
    assert_eq!(make_link(&mut one, weak, "x"), NtStatus::ACCESS_DENIED);
    let made = Create {
        access: AccessMask::WRITE_ATTRIBUTES,
        disposition: CreateDisposition::Create,
        ..Create::of("made")
    };
    let made = one.create(&made).unwrap();
    assert_eq!(make_link(&mut one, made, "x"), NtStatus::SUCCESS);
}

#[test]
fn a_hard_link_is_one_to_the_file_that_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let path = |name: &str| folder.path().join(name);
    fs::write(path("name"), "mine").unwrap();
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("name")).unwrap();
    fs::rename(path("name"), path("moved")).unwrap();
    fs::write(path("name"), "another").unwrap();
    assert_eq!(hard_link(&mut raw, file, "linked"), NtStatus::SUCCESS);
    assert_eq!(fs::read(path("linked")).unwrap(), b"mine");
    // A file without a name gets no new one.
    fs::remove_file(path("moved")).unwrap();
    fs::remove_file(path("linked")).unwrap();
    assert_eq!(
        hard_link(&mut raw, file, "again"),
        NtStatus::OBJECT_NAME_NOT_FOUND
    );
    assert!(!path("again").exists());
}

#[test]
fn a_rename_moves_the_file_that_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let path = |name: &str| folder.path().join(name);
    fs::write(path("name"), "mine").unwrap();
    fs::write(path("target"), "target").unwrap();
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("name")).unwrap();
    fs::write(path("new"), "another").unwrap();
    fs::rename(path("new"), path("name")).unwrap();
    for to in ["target", "elsewhere"] {
        assert_eq!(rename(&mut raw, file, to), NtStatus::OBJECT_NAME_NOT_FOUND);
    }
    assert_eq!(fs::read(path("target")).unwrap(), b"target");
    assert_eq!(fs::read(path("name")).unwrap(), b"another");
    assert!(!path("elsewhere").exists());
}

/// A failed CREATE leaves no new file behind.
#[test]
fn a_failed_create_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let how = Create {
        contexts: vec![RequestContext::AllocationSize(8 << 40)],
        ..Create::of("file")
    };
    assert_eq!(raw.create(&how), Err(NtStatus::DISK_FULL));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // An existing file stays.
    fs::write(folder.path().join("file"), "").unwrap();
    let how = Create {
        disposition: CreateDisposition::OverwriteIf,
        ..how
    };
    assert_eq!(raw.create(&how), Err(NtStatus::DISK_FULL));
    assert!(folder.path().join("file").exists());
    serve.settles_at((1, 0));
}

/// Samba accepts these names; smbclient's `hardlink` sends a leading separator.
#[test]
fn new_names_may_have_extra_separators() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("a"), "x").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("a")).unwrap();
    for (at, name) in ["\\b", "d\\\\b", "\\\\d\\\\c"].into_iter().enumerate() {
        assert_eq!(hard_link(&mut raw, file, name), NtStatus::SUCCESS, "{at}");
    }
    for name in ["\\e", "d\\\\e", "\\d\\\\f"] {
        assert_eq!(rename(&mut raw, file, name), NtStatus::SUCCESS, "{name}");
    }
    let mut names: Vec<_> = fs::read_dir(folder.path().join("d")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<_> = names
        .iter()
        .map(|entry| entry.as_ref().unwrap().file_name())
        .collect();
    assert_eq!(names, ["b", "c", "f"]);
    assert!(folder.path().join("b").exists());
    for name in ["\\..\\b", "\\\\", "d\\\\..\\..\\b"] {
        assert!(rename(&mut raw, file, name).is_error(), "{name}");
    }
    // A CREATE may have them within the name only.
    assert!(raw.create(&Create::of("\\b")).is_err());
    assert!(raw.create(&Create::of("d\\\\b")).is_ok());
}

/// Links are created as the share allows, and none is moved to where it would lead out.
#[test]
fn links_lead_inside_or_are_refused() {
    const OK: NtStatus = NtStatus::SUCCESS;
    const DENIED: NtStatus = NtStatus::ACCESS_DENIED;
    for (links, expected) in [
        (Links::Refuse, [DENIED; 6]),
        (Links::Inside, [OK, OK, DENIED, DENIED, DENIED, DENIED]),
        (Links::Any, [OK; 6]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        // A path through a link, which only looks deep.
        std::os::unix::fs::symlink("../..", inner.join("up")).unwrap();
        let serve = Serve::with(folder.path(), |options| options.shares[0].links = links);
        let mut raw = Raw::ready(serve.address);
        for (at, (name, target)) in [
            ("plain", "x"),
            ("a\\b\\l", "..\\..\\x"),
            ("a\\b\\m", "..\\..\\..\\x"),
            ("out", "..\\x"),
            ("round", "a\\..\\..\\x"),
            ("a\\b\\up\\n", "..\\x"),
        ]
        .into_iter()
        .enumerate()
        {
            let how = Create {
                disposition: CreateDisposition::Create,
                ..Create::of(name)
            };
            let file = raw.create(&how).unwrap();
            assert_eq!(
                make_link(&mut raw, file, target),
                expected[at],
                "{links:?} {name}"
            );
            assert_eq!(raw.close(file), OK);
        }
        let file = raw.create(&Create::of("abs")).unwrap();
        let allowed = [DENIED, OK][usize::from(links == Links::Any)];
        assert_eq!(make_link(&mut raw, file, "\\etc"), allowed, "{links:?}");
        if links != Links::Refuse {
            let how = Create {
                options: CreateOptions::OPEN_REPARSE_POINT,
                ..Create::of("a\\b\\l")
            };
            let link = raw.create(&how).unwrap();
            let moved = rename(&mut raw, link, "a\\l");
            assert_eq!(moved, allowed, "{links:?}");
            let linked = hard_link(&mut raw, link, "l");
            assert_eq!(linked, allowed, "{links:?}");
            assert_eq!(rename(&mut raw, link, "a\\b\\k"), OK);
        }
    }
}
