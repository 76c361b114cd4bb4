//! Random operations on a mount and on a plain folder: each must have the same result, and both
//! trees must stay equal. `ROPEWAY_MOUNT_STEPS` sets the number of steps, `ROPEWAY_MOUNT_SEED` the
//! seed.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};
use support::{Mounted, or_skip};

/// Steps of an ordinary run.
const STEPS: u64 = 5_000;
/// Steps between two comparisons of the trees.
const COMPARED_EVERY: u64 = 250;
/// Most files held open on both sides.
const OPEN_MAX: usize = 12;
/// Largest offset of writes.
const OFFSET_MAX: u64 = 300_000;

/// What a step needs to know, the same for both sides.
struct Step {
    kind: u8,
    one: PathBuf,
    two: PathBuf,
    offset: u64,
    length: usize,
    byte: u8,
    mode: u32,
    handle: usize,
}

impl Step {
    fn new(random: &mut fastrand::Rng) -> Self {
        Self {
            kind: random.u8(0..24),
            one: path(random),
            two: path(random),
            offset: random.u64(0..OFFSET_MAX),
            length: random.usize(0..40_000),
            byte: random.u8(1..),
            // Never without rights for the owner: root passes anyway.
            mode: random.u32(0..0o1000) | 0o700,
            handle: random.usize(0..OPEN_MAX),
        }
    }
}

/// Returns one of a few paths, so that steps meet.
fn path(random: &mut fastrand::Rng) -> PathBuf {
    let mut path = PathBuf::new();
    for _ in 0..random.u8(1..4) {
        path.push(["a", "b", "c", "ü ∆", "d"][random.usize(0..5)]);
    }
    path
}

/// One of the two folders.
struct Side {
    root: PathBuf,
    open: Vec<File>,
}

impl Side {
    /// Does a step and returns what a program sees of it.
    fn run(&mut self, step: &Step) -> String {
        match self.try_run(step) {
            Ok(seen) => seen,
            Err(error) => format!("errno {:?}", error.raw_os_error()),
        }
    }

    fn try_run(&mut self, step: &Step) -> io::Result<String> {
        let (one, two) = (self.root.join(&step.one), self.root.join(&step.two));
        let data = vec![step.byte; step.length];
        let done = |()| String::new();
        match step.kind {
            0 | 1 => fs::create_dir(one).map(done),
            2 => fs::remove_dir(one).map(done),
            3 | 4 => fs::write(one, data).map(done),
            5 => fs::remove_file(one).map(done),
            6 | 7 => fs::rename(one, two).map(done),
            8 => rename(&one, &two, RenameFlags::NOREPLACE),
            9 => rename(&one, &two, RenameFlags::EXCHANGE),
            10 => fs::hard_link(one, two).map(done),
            11 => symlink(&step.two, one).map(done),
            12 => fs::set_permissions(one, fs::Permissions::from_mode(step.mode)).map(done),
            13 => fs::symlink_metadata(one).map(|seen| describe(&seen)),
            14 => OpenOptions::new()
                .append(true)
                .create(true)
                .open(one)?
                .write_at(&data, 0)
                .map(|count| count.to_string()),
            15 | 16 => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(step.kind == 16)
                    .open(one)?;
                if self.open.len() >= OPEN_MAX {
                    self.open.remove(0);
                }
                self.open.push(file);
                Ok(String::new())
            }
            17 => self.on_handle(step, |file| file.write_all_at(&data, step.offset).map(done)),
            18 => self.on_handle(step, |file| {
                let mut buffer = vec![0; step.length];
                let count = file.read_at(&mut buffer, step.offset)?;
                Ok(sum(&buffer[..count]))
            }),
            19 => self.on_handle(step, |file| file.set_len(step.offset).map(done)),
            20 => self.on_handle(step, |file| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, step.offset, step.length as u64 + 1)?;
                // Whether the last block of a file becomes a hole differs: the store frees blocks within
                // the length only.
                Ok(String::new())
            }),
            21 => {
                let name = ["user.a", "user.b"][step.length % 2];
                match step.byte % 3 {
                    0 => rustix::fs::lremovexattr(one, name)?,
                    _ => rustix::fs::lsetxattr(one, name, &data[..step.length % 60], XattrFlags::empty())?,
                }
                Ok(String::new())
            }
            22 => self.on_handle(step, |file| {
                let seen = file.metadata()?;
                file.sync_data()?;
                Ok(format!("{} {}", seen.nlink(), seen.len()))
            }),
            _ => {
                let mut names: Vec<_> = fs::read_dir(one)?
                    .map(|entry| entry.map(|entry| entry.file_name()))
                    .collect::<Result<_, _>>()?;
                names.sort();
                Ok(format!("{names:?}"))
            }
        }
    }

    fn on_handle(&self, step: &Step, act: impl FnOnce(&File) -> io::Result<String>) -> io::Result<String> {
        match self.open.get(step.handle) {
            Some(file) => act(file),
            None => Ok("no such handle".to_owned()),
        }
    }
}

fn rename(one: &Path, two: &Path, flags: RenameFlags) -> io::Result<String> {
    rustix::fs::renameat_with(CWD, one, CWD, two, flags)?;
    Ok(String::new())
}

fn sum(bytes: &[u8]) -> String {
    format!(
        "{} bytes, {}",
        bytes.len(),
        bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()
    )
}

fn describe(seen: &fs::Metadata) -> String {
    let size = if seen.is_dir() { 0 } else { seen.len() };
    let links = if seen.is_dir() { 0 } else { seen.nlink() };
    format!("{:o} {}:{} {size} {links}", seen.mode(), seen.uid(), seen.gid())
}

/// Everything beneath a folder.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let seen = fs::symlink_metadata(&path).unwrap();
            let mut text = describe(&seen);
            if seen.is_dir() {
                folders.push(path.clone());
            } else if seen.is_symlink() {
                write!(text, " -> {:?}", fs::read_link(&path).unwrap()).unwrap();
            } else {
                let content = fs::read(&path).unwrap();
                write!(text, " {} {}", content.len(), sum(&content)).unwrap();
                write!(text, " {:?}", content.iter().position(|byte| *byte != 0)).unwrap();
            }
            let mut names = vec![0; 1000];
            let count = rustix::fs::llistxattr(&path, &mut names).unwrap_or(0);
            let mut names: Vec<_> = names[..count]
                .split(|byte| *byte == 0)
                .filter(|name| name.starts_with(b"user."))
                .collect();
            names.sort_unstable();
            for name in names {
                let mut value = [0; 100];
                let count = rustix::fs::lgetxattr(&path, name, &mut value).unwrap();
                write!(text, " {}={:?}", String::from_utf8_lossy(name), &value[..count]).unwrap();
            }
            found.insert(path.strip_prefix(root).unwrap().to_path_buf(), text);
        }
    }
    found
}

#[track_caller]
fn compare(sides: &[Side; 2], seed: u64, step: u64) {
    let [mounted, plain] = [tree(&sides[0].root), tree(&sides[1].root)];
    for (path, text) in &plain {
        assert_eq!(
            mounted.get(path),
            Some(text),
            "{path:?}, seed {seed}, step {step}"
        );
    }
    assert_eq!(
        mounted.len(),
        plain.len(),
        "seed {seed}, step {step}: {:?}",
        mounted.keys()
    );
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

#[test]
fn a_mount_does_what_a_folder_does() {
    let mut mount = or_skip!(Mounted::new(&[]));
    let (seed, steps) = (
        number("ROPEWAY_MOUNT_SEED", 1),
        number("ROPEWAY_MOUNT_STEPS", STEPS),
    );
    let mut random = fastrand::Rng::with_seed(seed);
    let plain = mount.place.folder("plain");
    let mut sides = [mount.at(""), plain].map(|root| Side {
        root,
        open: Vec::new(),
    });
    for number in 0..steps {
        let step = Step::new(&mut random);
        let [mounted, plain] = sides.each_mut().map(|side| side.run(&step));
        let (one, two) = (step.one.display(), step.two.display());
        assert_eq!(
            mounted, plain,
            "seed {seed}, step {number}: {} {one} {two}",
            step.kind
        );
        if number % COMPARED_EVERY == 0 {
            compare(&sides, seed, number);
        }
    }
    compare(&sides, seed, steps);
    let source = Side {
        root: mount.behind(""),
        open: Vec::new(),
    };
    let [mounted, _] = &mut sides;
    mounted.open.clear();
    assert_eq!(
        tree(&source.root),
        tree(&mounted.root),
        "what is mounted is not what is behind it"
    );
    assert!(mounted.root.as_os_str().as_bytes().len() > 1);
    mount.unmount();
}
