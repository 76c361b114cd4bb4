//! A tree of many kinds of files and folders, the same for the same seed.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use fastrand::Rng;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Number of small files, and of the folders that hold them.
const SMALL_FILES: u64 = 2000;
const SMALL_FOLDERS: u64 = 50;
/// Number of middle-sized files.
const MIDDLE_FILES: u64 = 12;
/// Size of the big file: large enough that a kill halfway hits inside it or next to it, small
/// enough for a demo of a minute.
const BIG_BYTES: u64 = 192 * MIB;
/// Size of the sparse file, which is mostly holes.
const SPARSE_BYTES: u64 = 512 * MIB;
/// Number of islands of data in the sparse file.
const SPARSE_ISLANDS: u64 = 8;

/// Space that the demo needs on the volume, in bytes: both trees and a reserve.
pub(crate) const ROOM_BYTES: u64 = 2 * (BIG_BYTES + MIDDLE_FILES * 4 * MIB + 64 * MIB);

/// What was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeStats {
    /// Regular files; each name of a hard link counts.
    pub(crate) files: u64,
    /// Number of folders.
    pub(crate) folders: u64,
    /// Symbolic links and special files.
    pub(crate) others: u64,
    /// Logical bytes of the regular files; a hard link counts once.
    pub(crate) bytes: u64,
    /// Bytes of data without holes: what has to be sent.
    pub(crate) data: u64,
    /// Whether extended attributes could be set.
    pub(crate) xattrs: bool,
}

/// Creates the tree at `root`, which must not exist.
///
/// # Errors
/// The volume refuses something that every Linux volume can hold.
pub(crate) fn make(root: &Path, seed: u64) -> io::Result<TreeStats> {
    let mut maker = Maker {
        random: Rng::with_seed(seed),
        stats: TreeStats::default(),
    };
    maker.folder(root)?;
    maker.small_files(&root.join("small"))?;
    maker.middle_files(&root.join("middle"))?;
    maker.file(&root.join("big.bin"), BIG_BYTES)?;
    maker.sparse(&root.join("sparse.img"))?;
    maker.odd_names(&root.join("odd names"))?;
    maker.special_nodes(&root.join("special"))?;
    Ok(maker.stats)
}

struct Maker {
    random: Rng,
    stats: TreeStats,
}

impl Maker {
    fn folder(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        self.stats.folders += 1;
        Ok(())
    }

    /// Creates a file of random bytes with an old time and a random mode.
    fn file(&mut self, path: &Path, size: u64) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        write_random(&mut self.random, &mut file, size)?;
        self.finish(&file)?;
        self.stats.files += 1;
        self.stats.bytes += size;
        self.stats.data += size;
        Ok(())
    }

    fn finish(&mut self, file: &File) -> io::Result<()> {
        // A random time before 2026, to the nanosecond.
        let seconds = 1_000_000_000 + self.random.u64(..760_000_000);
        let modified = UNIX_EPOCH + Duration::new(seconds, self.random.u64(..1_000_000_000) as u32);
        let mode = [0o644, 0o600, 0o755, 0o640][self.random.u64(..4) as usize];
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.set_times(FileTimes::new().set_modified(modified))
    }

    fn small_files(&mut self, root: &Path) -> io::Result<()> {
        self.folder(root)?;
        for folder in 0..SMALL_FOLDERS {
            let mut path = root.join(format!("{folder:02}"));
            self.folder(&path)?;
            // Every fifth folder has its files one level deeper.
            if folder.is_multiple_of(5) {
                path.push("deeper");
                self.folder(&path)?;
            }
            for number in 0..SMALL_FILES / SMALL_FOLDERS {
                let size = self.random.u64(..16 * KIB);
                self.file(&path.join(format!("{number:03}.dat")), size)?;
            }
        }
        Ok(())
    }

    fn middle_files(&mut self, root: &Path) -> io::Result<()> {
        self.folder(root)?;
        for number in 0..MIDDLE_FILES {
            // Sizes that are not multiples of anything.
            let size = MIB + self.random.u64(..3 * MIB);
            self.file(&root.join(format!("{number}.raw")), size)?;
        }
        Ok(())
    }

    fn sparse(&mut self, path: &Path) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        file.set_len(SPARSE_BYTES)?;
        for island in 0..SPARSE_ISLANDS {
            let offset = island * (SPARSE_BYTES / SPARSE_ISLANDS) + self.random.u64(..64) * 64 * KIB;
            file.seek(SeekFrom::Start(offset))?;
            write_random(&mut self.random, &mut file, 64 * KIB)?;
        }
        self.finish(&file)?;
        self.stats.files += 1;
        self.stats.bytes += SPARSE_BYTES;
        self.stats.data += SPARSE_ISLANDS * 64 * KIB;
        Ok(())
    }

    fn odd_names(&mut self, root: &Path) -> io::Result<()> {
        self.folder(root)?;
        let longest = "n".repeat(255);
        let names: [&[u8]; 10] = [
            longest.as_bytes(),
            b"not \xff\xfe UTF-8",
            b"line\nbreak",
            b"-rf",
            b" spaces at both ends ",
            b"back\\slash and \"quotes\" 'too'",
            "e\u{301} and \u{e9}".as_bytes(),
            "\u{1f6a1}".as_bytes(),
            b"...",
            b"CON",
        ];
        for name in names {
            let size = self.random.u64(..4 * KIB);
            self.file(&root.join(OsStr::from_bytes(name)), size)?;
        }
        let empty = root.join("empty folder");
        self.folder(&empty)?;
        self.file(&root.join("empty file"), 0)
    }

    fn special_nodes(&mut self, root: &Path) -> io::Result<()> {
        self.folder(root)?;
        let first = root.join("hard link 1");
        self.file(&first, 100 * KIB)?;
        for number in 2..=3 {
            fs::hard_link(&first, root.join(format!("hard link {number}")))?;
            self.stats.files += 1;
        }
        symlink("hard link 1", root.join("symbolic link"))?;
        symlink("nowhere/at all", root.join("dangling link"))?;
        mknodat(
            CWD,
            root.join("fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o640),
            0,
        )?;
        self.stats.others += 3;
        let described = root.join("with attributes");
        self.file(&described, 5000)?;
        // Not every volume supports them.
        self.stats.xattrs = setxattr(
            &described,
            "user.ropeway.demo",
            b"\0any\xffbytes",
            XattrFlags::empty(),
        )
        .is_ok();
        Ok(())
    }
}

/// Returns the nodes below `root` that have temporary names of a copy.
///
/// # Errors
/// A folder cannot be listed.
pub(crate) fn leftovers(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(folder) = stack.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry
                .file_name()
                .as_bytes()
                .starts_with(ropeway_copy::TEMPORARY_PREFIX.as_bytes())
            {
                found.push(entry.path());
            } else if entry.file_type()?.is_dir() {
                stack.push(entry.path());
            }
        }
    }
    Ok(found)
}

fn write_random(random: &mut Rng, out: &mut impl Write, size: u64) -> io::Result<()> {
    let mut left = size;
    let mut buffer = vec![0; left.min(MIB) as usize];
    while left > 0 {
        let part = left.min(buffer.len() as u64);
        random.fill(&mut buffer);
        out.write_all(&buffer[..part as usize])?;
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_tree() {
        let folder = tempfile::tempdir().unwrap();
        let content = |name: &str, seed| {
            let mut maker = Maker {
                random: Rng::with_seed(seed),
                stats: TreeStats::default(),
            };
            let path = folder.path().join(name);
            maker.odd_names(&path).unwrap();
            assert_eq!((maker.stats.files, maker.stats.folders), (11, 2));
            (
                fs::read(path.join("-rf")).unwrap(),
                fs::metadata(path.join("-rf")).unwrap().modified().unwrap(),
            )
        };
        assert_eq!(content("a", 7), content("b", 7));
        assert_ne!(content("c", 7), content("d", 8));
    }

    #[test]
    fn special_nodes_are_created_and_leftovers_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut maker = Maker {
            random: Rng::with_seed(1),
            stats: TreeStats::default(),
        };
        maker.special_nodes(&folder.path().join("special")).unwrap();
        assert_eq!((maker.stats.files, maker.stats.others), (4, 3));
        assert!(leftovers(folder.path()).unwrap().is_empty());
        fs::create_dir(folder.path().join("special/.ropeway-x")).unwrap();
        assert_eq!(leftovers(folder.path()).unwrap().len(), 1);
    }
}
