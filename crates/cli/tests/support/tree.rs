//! Trees to copy, the same for the same seed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use fastrand::Rng;

/// Writes a file of `size` random bytes.
pub(crate) fn file(path: &Path, size: u64, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut output = File::create(path).unwrap();
    let mut left = size;
    let mut block = vec![0; size.min(1 << 20) as usize];
    while left > 0 {
        let length = left.min(1 << 20) as usize;
        rng.fill(&mut block);
        output.write_all(&block[..length]).unwrap();
        left -= length as u64;
    }
}

/// Writes a file in which every 8 bytes contain their own offset.
pub(crate) fn patterned(path: &Path, size: u64) {
    let mut output = std::io::BufWriter::new(File::create(path).unwrap());
    for word in 0..size / 8 {
        output.write_all(&word.to_le_bytes()).unwrap();
    }
    output.flush().unwrap();
}

pub(crate) fn text(path: &Path, content: &str) {
    fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Writes into a file without truncating it.
pub(crate) fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, offset)
        .unwrap();
}

/// Returns one byte of a file.
pub(crate) fn byte_at(path: &Path, offset: u64) -> u8 {
    let mut byte = [0];
    File::open(path)
        .unwrap()
        .read_exact_at(&mut byte, offset)
        .unwrap();
    byte[0]
}

/// Sets the modification time, in seconds and nanoseconds after 1970.
pub(crate) fn set_times(path: &Path, seconds: u64, nanoseconds: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// Makes `count` files of 1 byte to 8 KiB in folders of 100.
pub(crate) fn small_files(root: &Path, count: u64, seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let noise: Vec<u8> = (0..2_048).flat_map(|_| rng.u64(..).to_le_bytes()).collect();
    let mut bytes = 0;
    for number in 0..count {
        let folder = root.join(format!("d{:03}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&folder).unwrap();
        }
        let length = 1 + rng.u64(..8 << 10) as usize;
        let start = rng.u64(..8 << 10) as usize;
        fs::write(
            folder.join(format!("f{number:05}")),
            &noise[start..start + length],
        )
        .unwrap();
        bytes += length as u64;
    }
    bytes
}

/// Makes a small tree of ordinary nodes: files of many sizes, folders, links.
pub(crate) fn mixed(root: &Path) {
    fs::create_dir_all(root.join("deep/er/and/deeper")).unwrap();
    fs::create_dir(root.join("empty folder")).unwrap();
    text(&root.join("empty"), "");
    text(&root.join("one byte"), "x");
    for (number, size) in [4_095, 4_096, 4_097, 65_536, 1 << 20, (3 << 20) + 17]
        .into_iter()
        .enumerate()
    {
        file(&root.join(format!("deep/{size}.bin")), size, number as u64);
    }
    text(&root.join("deep/er/and/deeper/leaf"), "a leaf\n");
    small_files(&root.join("deep/er"), 40, 9);
    symlink("one byte", root.join("link")).unwrap();
    symlink("nowhere/at all", root.join("dangling")).unwrap();
    fs::hard_link(root.join("one byte"), root.join("deep/er/hard link")).unwrap();
    set_times(&root.join("one byte"), 1_000_000_000, 123_456_789);
    set_times(&root.join("empty folder"), 86_400, 1);
}

pub(crate) fn name_bytes(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Makes files and folders with odd but legal names.
pub(crate) fn odd_names(root: &Path) {
    fs::create_dir_all(root).unwrap();
    let long = [b'n'; 255];
    let mut wide = "ü".repeat(127).into_bytes();
    wide.push(b'!');
    let names: &[&[u8]] = &[
        b" ",
        b" leading",
        b"trailing ",
        b"two  spaces",
        b"new\nline",
        b"\n",
        b"tab\t",
        b"cr\r",
        b"\x01\x1f\x7f",
        b"\xff\xfe not utf-8 \x80",
        b"caf\xc3\xa9",
        b"cafe\xcc\x81",
        "🚡 ropeway 🏔️".as_bytes(),
        b"-rf",
        b"--help",
        b"-",
        b"...",
        b"..a",
        b"trailing dot.",
        b".hidden",
        b"~",
        b"#",
        b"$HOME",
        b"`id`",
        b"a;b",
        b"a&b",
        b"a|b",
        b"*",
        b"?",
        b"[a]",
        b"{a,b}",
        b"!",
        b"\\",
        b"a\\b",
        b"'",
        b"\"",
        b"%s%n",
        b"con",
        b"NUL.txt",
        b"a:b",
        b"<>",
        b"Case",
        b"case",
        b"CASE",
        &long,
        &wide,
    ];
    for (number, name) in names.iter().enumerate() {
        fs::write(root.join(name_bytes(name)), format!("file {number}")).unwrap();
    }
    let folders = root.join("folders");
    fs::create_dir(&folders).unwrap();
    for name in names {
        let folder = folders.join(name_bytes(name));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(name_bytes(name)), "inside").unwrap();
        symlink(name_bytes(name), folder.join("link")).unwrap();
    }
    let mut deep = root.join("deep");
    fs::create_dir(&deep).unwrap();
    for level in 0..12 {
        deep.push(format!("{level}{}", "p".repeat(200)));
        fs::create_dir(&deep).unwrap();
    }
    fs::write(deep.join("bottom"), "at the bottom").unwrap();
}
