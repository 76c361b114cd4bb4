//! No request reads, creates, changes or deletes anything outside the shared folder, whatever names
//! it contains and whatever links are on the path or are put there.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropeway_smb_wire::create::{CreateDisposition, CreateOptions};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::reparse::{ReparseData, Symlink, SymlinkFlags};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::info::{FileInfoClass, FileLinkInformation, Information};
use ropeway_smb_wire::{FileId, NtStatus, Text, Writer};

use crate::names::NAMES;
use crate::raw::{Create, Raw, Reply};
use crate::samples;
use crate::serve::Serve;

/// Content of the files outside.
const CANARY: &str = "canary-8f2c";

struct World {
    folder: tempfile::TempDir,
    before: BTreeMap<PathBuf, String>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("outside/inner")).unwrap();
        fs::create_dir_all(root.join("share/folder/deep")).unwrap();
        for name in [
            "secret",
            "victim",
            "inner/secret",
            "file",
            "x",
            "stranger",
            "inner/stranger",
        ] {
            fs::write(root.join("outside").join(name), CANARY).unwrap();
        }
        fs::write(root.join("share-2"), CANARY).unwrap();
        fs::write(root.join("share/file"), "inside").unwrap();
        let outside = root.join("outside");
        for (name, target) in [
            ("relative", PathBuf::from("../outside")),
            ("absolute", outside.clone()),
            ("chain", PathBuf::from("relative")),
            ("chain2", PathBuf::from("folder/deep/up")),
            ("parent", PathBuf::from("..")),
            ("root", PathBuf::from("/")),
            ("proc", PathBuf::from("/proc/self/root")),
            ("cwd", PathBuf::from("/proc/self/cwd")),
            ("filelink", PathBuf::from("../outside/secret")),
            ("abslink", outside.join("secret")),
            ("new", PathBuf::from("../outside/made")),
            ("loop", PathBuf::from("loop")),
            ("back", root.join("share")),
            ("zigzag", PathBuf::from("folder/../../outside")),
        ] {
            symlink(target, root.join("share").join(name)).unwrap();
        }
        symlink("../../../outside", root.join("share/folder/deep/up")).unwrap();
        let before = snapshot(root);
        Self { folder, before }
    }

    fn share(&self) -> PathBuf {
        self.folder.path().join("share")
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join("outside").join(name)
    }

    /// Checks that nothing outside has changed.
    fn check(&self, what: &str) {
        assert_eq!(snapshot(self.folder.path()), self.before, "{what}");
    }
}

/// Returns content, links and folder times below a folder, without the share.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path == root.join("share") {
                continue;
            }
            let stat = fs::symlink_metadata(&path).unwrap();
            let content = if stat.is_dir() {
                folders.push(path.clone());
                "a folder".to_owned()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let state = format!(
                "{content} {} {} {} {} {}",
                stat.mode(),
                stat.nlink(),
                stat.mtime(),
                stat.mtime_nsec(),
                stat.ctime_nsec()
            );
            all.insert(path, state);
        }
    }
    all
}

fn units(name: &str) -> Vec<u16> {
    name.encode_utf16().collect()
}

/// Names that a client should not use.
#[allow(clippy::too_many_lines, reason = "a table")]
fn names(outside: &Path) -> Vec<Vec<u16>> {
    let absolute = outside.to_str().unwrap().to_owned();
    let backslashed = absolute.replace('/', "\\");
    let mut names: Vec<Vec<u16>> = NAMES.iter().map(|name| units(name)).collect();
    names.push(units(&absolute));
    names.push(units(&backslashed));
    names.push(units(&backslashed[1..]));
    names.push(units(&format!("{backslashed}\\secret")));
    names.push(vec![0xD800]);
    names.push(vec![0xDC00, u16::from(b'\\'), 0xD800]);
    names.push(vec![0xD800, u16::from(b'.'), u16::from(b'.')]);
    names.push(vec![u16::from(b'a'); 256]);
    names.push(vec![u16::from(b'a'); 20_000]);
    names.push(units(&"..\\".repeat(3000)));
    names.push(units(&"a\\".repeat(5000)));
    names.push([units("folder\\"), vec![0x20AC; 255]].concat());
    names
}

/// Reads, writes, lists and queries an open; nothing may come from outside.
fn abuse(raw: &mut Raw, file: FileId, name: &[u16]) {
    let called = String::from_utf16_lossy(name);
    let inside = |reply: &Reply| {
        let text = String::from_utf8_lossy(&reply.message).into_owned();
        let wide: Vec<u8> = units("stranger")
            .iter()
            .flat_map(|unit| unit.to_le_bytes())
            .collect();
        let lists = reply.message.windows(wide.len()).any(|part| part == wide);
        assert!(!text.contains(CANARY) && !lists, "{called}");
    };
    let mut call = |command, body: Vec<u8>| raw.call(command, |w| w.bytes(&body));
    inside(&call(Command::Read, samples::read(file, 4096)));
    inside(&call(Command::QueryDirectory, samples::list(file, "*".into())));
    inside(&call(Command::QueryDirectory, samples::list(file, "..".into())));
    call(Command::Write, samples::write(file, 0, b"evil"));
    call(
        Command::SetInfo,
        samples::set_info(file, FileInfoClass::EndOfFile, &[0; 8]),
    );
    call(
        Command::SetInfo,
        samples::set_info(file, FileInfoClass::Basic, &basic()),
    );
    call(Command::Ioctl, samples::control(file, CtlCode::SET_SPARSE, &[]));
}

/// Encodes other times and attributes.
fn basic() -> Vec<u8> {
    let mut bytes = vec![0; 40];
    for time in bytes[..32].chunks_mut(8) {
        time.copy_from_slice(&0x01D0_0000_0000_0000_u64.to_le_bytes());
    }
    bytes[32] = 1;
    bytes
}

fn link_to(name: &[u16]) -> Vec<u8> {
    let information = FileLinkInformation {
        replace_if_exists: true,
        name: Text::from_units(name.to_vec()),
    };
    information.to_bytes()
}

#[test]
fn names_that_lead_out() {
    let world = World::new();
    let serve = Serve::start(&world.share());
    let mut raw = Raw::ready(serve.address);
    let (mut opened, mut refused) = (0, 0);
    for name in names(&world.outside("")) {
        for (disposition, options) in [
            (CreateDisposition::Open, CreateOptions::default()),
            (CreateDisposition::OpenIf, CreateOptions::default()),
            (CreateDisposition::Create, CreateOptions::default()),
            (CreateDisposition::OverwriteIf, CreateOptions::default()),
            (CreateDisposition::Supersede, CreateOptions::default()),
            (CreateDisposition::OpenIf, CreateOptions::DIRECTORY_FILE),
            (CreateDisposition::Open, CreateOptions::DELETE_ON_CLOSE),
            (CreateDisposition::Open, CreateOptions::OPEN_REPARSE_POINT),
        ] {
            // The links themselves belong to the share and stay for the next names.
            let text = String::from_utf16_lossy(&name);
            let is_link = fs::symlink_metadata(world.share().join(text.to_lowercase()))
                .is_ok_and(|stat| stat.is_symlink());
            if is_link && options == CreateOptions::DELETE_ON_CLOSE {
                continue;
            }
            let mut how = Create::of(Text::from_units(name.clone()));
            how.disposition = disposition;
            how.options = options;
            match raw.create(&how) {
                Ok(file) => {
                    opened += 1;
                    if options != CreateOptions::OPEN_REPARSE_POINT {
                        abuse(&mut raw, file, &name);
                    }
                    assert_eq!(raw.close(file), NtStatus::SUCCESS);
                }
                Err(status) => {
                    refused += 1;
                    assert_ne!(status, NtStatus::INTERNAL_ERROR, "{text}");
                }
            }
        }
        world.check(&String::from_utf16_lossy(&name));
    }
    assert!(opened > 50 && refused > 500, "{opened} {refused}");
}

#[test]
fn targets_outside_the_share() {
    let world = World::new();
    let serve = Serve::start(&world.share());
    let mut raw = Raw::ready(serve.address);
    for name in names(&world.outside("")) {
        if name.len() > 10_000 {
            // Together with its request this name exceeds 64 KiB.
            continue;
        }
        let called = String::from_utf16_lossy(&name);
        // [MS-SMB2] 3.3.5.21: rename and hard link.
        let file = raw.create(&Create::of("victim")).unwrap();
        let body = samples::set_info(file, FileInfoClass::Link, &link_to(&name));
        raw.call(Command::SetInfo, |w| w.bytes(&body));
        let body = samples::rename(file, Text::from_units(name.clone()));
        raw.call(Command::SetInfo, |w| w.bytes(&body));
        raw.call(Command::Write, |w| w.bytes(&samples::write(file, 0, b"evil")));
        raw.close(file);
        // Patterns.
        let mut root = Create::of("");
        root.options = CreateOptions::DIRECTORY_FILE;
        let root = raw.create(&root).unwrap();
        let body = samples::list(root, Text::from_units(name.clone()));
        let reply = raw.call(Command::QueryDirectory, |w| w.bytes(&body));
        let listed = String::from_utf8_lossy(&reply.message).replace('\0', "");
        assert!(!listed.contains("stranger"), "{called}: {listed:?}");
        raw.close(root);
        // Links that a client creates.
        let mut made = Create::of("made-link");
        made.disposition = CreateDisposition::OpenIf;
        made.options = CreateOptions::OPEN_REPARSE_POINT;
        if let Ok(file) = raw.create(&made) {
            let data = ReparseData::Symlink(Symlink {
                substitute_name: Text::from_units(name.clone()),
                print_name: Text::from_units(name.clone()),
                flags: SymlinkFlags::RELATIVE,
            });
            let mut input = Vec::new();
            data.encode(&mut Writer::new(&mut input));
            let body = samples::control(file, CtlCode::SET_REPARSE_POINT, &input);
            raw.call(Command::Ioctl, |w| w.bytes(&body));
            raw.close(file);
            for through in [
                "made-link",
                "made-link\\secret",
                "made-link\\made",
                "made-link\\etc\\passwd",
            ] {
                if let Ok(file) = raw.create(&Create::of(through)) {
                    abuse(&mut raw, file, &name);
                    raw.close(file);
                }
            }
        }
        world.check(&called);
        // Removes it, whatever it has become.
        _ = fs::remove_file(world.share().join("made-link"));
        _ = fs::remove_dir_all(world.share().join("made-link"));
    }
}

#[test]
fn shares_outside() {
    let world = World::new();
    let serve = Serve::start(&world.share());
    let mut raw = Raw::ready(serve.address);
    for share in [
        "..",
        "data\\..",
        "data\\..\\..",
        ".",
        "",
        "/",
        "C$",
        "ADMIN$",
        "data/..",
        "outside",
        "data\0",
        "data ",
    ] {
        assert!(raw.tree(share).is_error(), "{share:?}");
    }
}

/// Replaces `name` in the share with a folder and a link to the outside in turns.
fn swap(share: &Path, stop: &AtomicBool) -> u64 {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        _ = renameat_with(
            CWD,
            share.join("swap"),
            CWD,
            share.join("other"),
            RenameFlags::EXCHANGE,
        );
        count += 1;
        if count % 64 == 0 {
            // Also with something new inside.
            _ = fs::write(share.join("swap/victim"), "inside");
        }
    }
    count
}

/// Executes operations in the folder that is being replaced.
fn do_all_in_it(raw: &mut Raw) -> u32 {
    let mut done = 0;
    for (name, disposition, options) in [
        ("swap\\made", CreateDisposition::OpenIf, CreateOptions::default()),
        ("swap\\secret", CreateDisposition::Open, CreateOptions::default()),
        (
            "swap\\secret",
            CreateDisposition::OverwriteIf,
            CreateOptions::default(),
        ),
        (
            "swap\\victim",
            CreateDisposition::Open,
            CreateOptions::DELETE_ON_CLOSE,
        ),
        (
            "swap\\inner\\secret",
            CreateDisposition::Open,
            CreateOptions::default(),
        ),
        (
            "swap\\newdir",
            CreateDisposition::OpenIf,
            CreateOptions::DIRECTORY_FILE,
        ),
        (
            "swap\\newdir",
            CreateDisposition::Open,
            CreateOptions::DELETE_ON_CLOSE,
        ),
        ("swap", CreateDisposition::Open, CreateOptions::DIRECTORY_FILE),
        (
            "swap\\made:stream",
            CreateDisposition::OpenIf,
            CreateOptions::default(),
        ),
    ] {
        let mut how = Create::of(name);
        how.disposition = disposition;
        how.options = options;
        if let Ok(file) = raw.create(&how) {
            done += 1;
            abuse_swapped(raw, file);
            raw.close(file);
        }
    }
    if let Ok(file) = raw.create(&Create::of("mine")) {
        let body = samples::set_info(file, FileInfoClass::Link, &link_to(&units("swap\\linked")));
        raw.call(Command::SetInfo, |w| w.bytes(&body));
        for to in ["swap\\secret", "swap\\victim", "mine"] {
            raw.call(Command::SetInfo, |w| w.bytes(&samples::rename(file, to)));
        }
        raw.close(file);
    }
    // Also out of it.
    if let Ok(file) = raw.create(&Create::of("swap\\x")) {
        raw.call(Command::SetInfo, |w| w.bytes(&samples::rename(file, "taken")));
        raw.close(file);
    }
    done
}

fn abuse_swapped(raw: &mut Raw, file: FileId) {
    let read = raw.call(Command::Read, |w| w.bytes(&samples::read(file, 4096)));
    assert!(!String::from_utf8_lossy(&read.message).contains(CANARY));
    raw.call(Command::QueryDirectory, |w| {
        w.bytes(&samples::list(file, "*".into()))
    });
    raw.call(Command::Write, |w| w.bytes(&samples::write(file, 0, b"evil")));
    let body = samples::set_info(file, FileInfoClass::Basic, &basic());
    raw.call(Command::SetInfo, |w| w.bytes(&body));
}

#[test]
fn a_folder_replaced_by_a_link_while_in_use() {
    let world = World::new();
    let share = world.share();
    fs::create_dir(share.join("swap")).unwrap();
    symlink("../outside", share.join("other")).unwrap();
    let serve = Serve::start(&share);
    let stop = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| swap(&share, &stop));
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut raw = Raw::ready(serve.address);
                    let mut done = 0;
                    while Instant::now() < until {
                        done += do_all_in_it(&mut raw);
                    }
                    done
                })
            })
            .collect();
        let done: Vec<_> = clients
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, Ordering::Relaxed);
        let swaps = swapper.join().unwrap();
        for done in done {
            let done = done.unwrap();
            assert!(done > 50 && swaps > 1000, "{done} opens, {swaps} swaps");
        }
    });
    world.check("swapped");
}
