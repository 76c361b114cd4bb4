//! Steps on two folders, and what a program sees of them.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};

/// Most files held open on both sides.
const OPEN_MAX: usize = 12;
/// Largest offset of writes.
const OFFSET_MAX: u64 = 300_000;
/// Kinds of steps.
const KINDS: u8 = 24;
/// Further kinds: on files that are seldom changed.
const OLD_READ: u8 = 100;
const OLD_WRITE: u8 = 101;
/// Number of these files, and their largest offset.
pub(crate) const OLD_FILES: usize = 12;
pub(crate) const OLD_MAX: u64 = 300_000;

/// What a source can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Can {
    /// Whether it keeps modes and extended attributes, and exchanges names.
    pub(crate) is_posix: bool,
    pub(crate) has_symlinks: bool,
}

/// Returns the name of a file that is seldom changed.
pub(crate) fn old_name(number: usize) -> String {
    format!("old{}", number % OLD_FILES)
}

/// What a step needs to know, the same for both sides.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) kind: u8,
    pub(crate) one: PathBuf,
    pub(crate) two: PathBuf,
    offset: u64,
    length: usize,
    byte: u8,
    mode: u32,
    handle: usize,
    old: usize,
}

impl Step {
    pub(crate) fn new(random: &mut fastrand::Rng) -> Self {
        Self {
            kind: random.u8(0..KINDS),
            one: path(random),
            two: path(random),
            offset: random.u64(0..OFFSET_MAX),
            length: random.usize(0..40_000),
            byte: random.u8(1..),
            // Never without rights for the owner: root passes anyway.
            mode: random.u32(0..0o1000) | 0o700,
            handle: random.usize(0..OPEN_MAX),
            old: random.usize(..),
        }
    }

    /// Whether a source can do the step.
    pub(crate) fn is_possible(&self, can: Can) -> bool {
        match self.kind {
            // An exchange, a mode, an extended attribute.
            9 | 12 | 21 => can.is_posix,
            11 => can.has_symlinks,
            _ => true,
        }
    }

    /// Changes the step to one on files that are seldom changed, so that they get into a cache.
    pub(crate) fn on_old_files(&mut self) {
        self.kind = if self.old.is_multiple_of(400) {
            OLD_WRITE
        } else {
            OLD_READ
        };
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

/// What a program sees: a text, and content. Content is compared as a whole, and printed as a sum.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    text: String,
    content: Vec<u8>,
}

impl From<String> for Seen {
    fn from(text: String) -> Self {
        Self {
            text,
            content: Vec::new(),
        }
    }
}

impl From<Vec<u8>> for Seen {
    fn from(content: Vec<u8>) -> Self {
        Self {
            text: String::new(),
            content,
        }
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum: u64 = self.content.iter().map(|byte| u64::from(*byte)).sum();
        let first = self.content.iter().position(|byte| *byte != 0);
        write!(
            f,
            "{:?}, {} bytes, sum {sum}, first {first:?}",
            self.text,
            self.content.len()
        )
    }
}

/// One of the two folders.
pub(crate) struct Side {
    pub(crate) root: PathBuf,
    pub(crate) open: Vec<File>,
    pub(crate) can: Can,
}

impl Side {
    pub(crate) fn new(root: PathBuf, can: Can) -> Self {
        Self {
            root,
            open: Vec::new(),
            can,
        }
    }

    /// Does a step and returns what a program sees of it.
    pub(crate) fn run(&mut self, step: &Step) -> Seen {
        match self.try_run(step) {
            Ok(seen) => seen,
            Err(error) => format!("errno {:?}", error.raw_os_error()).into(),
        }
    }

    fn try_run(&mut self, step: &Step) -> io::Result<Seen> {
        let (one, two) = (self.root.join(&step.one), self.root.join(&step.two));
        let data = vec![step.byte; step.length];
        let done = |()| Seen::default();
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
            13 => fs::symlink_metadata(one).map(|seen| describe(&seen, self.can).into()),
            14 => OpenOptions::new()
                .append(true)
                .create(true)
                .open(one)?
                .write_at(&data, 0)
                .map(|count| count.to_string().into()),
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
                Ok(Seen::default())
            }
            17..=20 | 22 | OLD_READ | OLD_WRITE => self.try_content(step, &data),
            21 => {
                let name = ["user.a", "user.b"][step.length % 2];
                match step.byte % 3 {
                    0 => rustix::fs::lremovexattr(one, name)?,
                    _ => rustix::fs::lsetxattr(one, name, &data[..step.length % 60], XattrFlags::empty())?,
                }
                Ok(Seen::default())
            }
            _ => {
                let mut names: Vec<_> = fs::read_dir(one)?
                    .map(|entry| entry.map(|entry| entry.file_name()))
                    .collect::<Result<_, _>>()?;
                names.sort();
                Ok(format!("{names:?}").into())
            }
        }
    }

    /// Runs a step on the content of an open file, or of an old one.
    fn try_content(&self, step: &Step, data: &[u8]) -> io::Result<Seen> {
        let done = |()| Seen::default();
        match step.kind {
            17 => self.on_handle(step, |file| file.write_all_at(data, step.offset).map(done)),
            18 => self.on_handle(step, |file| {
                let mut buffer = vec![0; step.length];
                let count = file.read_at(&mut buffer, step.offset)?;
                buffer.truncate(count);
                Ok(buffer.into())
            }),
            19 => self.on_handle(step, |file| file.set_len(step.offset).map(done)),
            20 => self.on_handle(step, |file| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, step.offset, step.length as u64 + 1)?;
                // Whether the last block of a file becomes a hole differs: the store frees blocks
                // within the length only.
                Ok(Seen::default())
            }),
            22 => self.on_handle(step, |file| {
                let seen = file.metadata()?;
                file.sync_data()?;
                let links = if self.can.is_posix { seen.nlink() } else { 0 };
                Ok(format!("{links} {}", seen.len()).into())
            }),
            OLD_READ => {
                let file = File::open(self.root.join(old_name(step.old)))?;
                // Past the kernel's memory.
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
                let mut buffer = vec![0; step.length];
                let count = file.read_at(&mut buffer, step.offset % OLD_MAX)?;
                buffer.truncate(count);
                Ok(buffer.into())
            }
            OLD_WRITE => {
                let file = OpenOptions::new()
                    .write(true)
                    .open(self.root.join(old_name(step.old)))?;
                file.write_all_at(data, step.offset % OLD_MAX).map(done)
            }
            kind => unreachable!("step {kind} is not one on content"),
        }
    }

    fn on_handle(&self, step: &Step, act: impl FnOnce(&File) -> io::Result<Seen>) -> io::Result<Seen> {
        match self.open.get(step.handle) {
            Some(file) => act(file),
            None => Ok("no such handle".to_owned().into()),
        }
    }
}

fn rename(one: &Path, two: &Path, flags: RenameFlags) -> io::Result<Seen> {
    rustix::fs::renameat_with(CWD, one, CWD, two, flags)?;
    Ok(Seen::default())
}

fn describe(seen: &fs::Metadata, can: Can) -> String {
    let size = if seen.is_dir() { 0 } else { seen.len() };
    let links = if seen.is_dir() { 0 } else { seen.nlink() };
    if !can.is_posix {
        // Listings of a share do not tell the number of links.
        return format!("{:o} {size}", seen.mode() & 0o170_000);
    }
    format!("{:o} {}:{} {size} {links}", seen.mode(), seen.uid(), seen.gid())
}

/// Everything beneath a folder.
pub(crate) fn tree(root: &Path, can: Can) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let seen = fs::symlink_metadata(&path).unwrap();
            let mut text = describe(&seen, can);
            let mut content = Vec::new();
            if seen.is_dir() {
                folders.push(path.clone());
            } else if seen.is_symlink() {
                write!(text, " -> {:?}", fs::read_link(&path).unwrap()).unwrap();
            } else {
                content = fs::read(&path).unwrap();
            }
            let mut names = vec![0; 1000];
            let count = rustix::fs::llistxattr(&path, &mut names).unwrap_or(0);
            let mut names: Vec<_> = names[..count]
                .split(|byte| *byte == 0)
                .filter(|name| name.starts_with(b"user."))
                .collect();
            names.sort_unstable();
            for name in names.into_iter().filter(|_| can.is_posix) {
                let mut value = [0; 100];
                let count = rustix::fs::lgetxattr(&path, name, &mut value).unwrap();
                write!(text, " {}={:?}", String::from_utf8_lossy(name), &value[..count]).unwrap();
            }
            found.insert(
                path.strip_prefix(root).unwrap().to_path_buf(),
                Seen { text, content },
            );
        }
    }
    found
}

#[track_caller]
pub(crate) fn compare(sides: &[Side; 2], seed: u64, step: u64) {
    let [mounted, plain] = sides.each_ref().map(|side| tree(&side.root, side.can));
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
