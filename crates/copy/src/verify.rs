//! Content: hashes taken in the one pass, read back from the device, manifests.
//!
//! Hashes go to a spool file as they are taken, so memory does not grow with the tree. A manifest has the format of
//! `b3sum`: 64 hexadecimal digits, two spaces, the path; a path with a newline or backslash is escaped and its line
//! begins with a backslash.

use std::fs::{self, File as StdFile};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_vfs::{CacheMode, End, EndError, Error, ErrorKind, File, Op, OpenOptions, RelPath, Tree};

use crate::context::Context;
use crate::private::{close_to_others, private_options};

/// Bytes of the longest manifest line that is read: far beyond any path.
const LINE_MAX: u64 = 64 << 10;

/// The hashes of a job, spooled to a file.
#[derive(Debug)]
pub(crate) struct Hashes {
    path: PathBuf,
    writer: Mutex<BufWriter<StdFile>>,
    count: AtomicU64,
    /// What is copied again to repair it has its line already.
    held_back: AtomicBool,
}

impl Hashes {
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = private_options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        close_to_others(&file)?;
        Ok(Self {
            path,
            writer: Mutex::new(BufWriter::new(file)),
            count: AtomicU64::new(0),
            held_back: AtomicBool::new(false),
        })
    }

    pub(crate) fn add(&self, path: &RelPath, hash: &[u8; 32]) -> io::Result<()> {
        if self.held_back.load(Ordering::Acquire) {
            return Ok(());
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        write_line(&mut *self.writer.lock(), path.as_bytes(), hash)
    }

    /// Whether further hashes are left out.
    pub(crate) fn hold_back(&self, held_back: bool) {
        self.held_back.store(held_back, Ordering::Release);
    }

    /// Ends the writing; the spool can be read.
    pub(crate) fn flush(&self) -> io::Result<&Path> {
        let mut writer = self.writer.lock();
        writer.flush()?;
        writer.get_ref().sync_data()?;
        Ok(&self.path)
    }

    pub(crate) fn remove(&self) {
        // A leftover spool is overwritten by the next job of this key.
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes one line of a manifest.
fn write_line(out: &mut impl Write, path: &[u8], hash: &[u8; 32]) -> io::Result<()> {
    let special = path.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
    let mut line = Vec::with_capacity(path.len() + 70);
    if special {
        line.push(b'\\');
    }
    line.extend_from_slice(blake3::Hash::from_bytes(*hash).to_hex().as_bytes());
    line.extend_from_slice(b"  ");
    for byte in path {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    out.write_all(&line)
}

/// A manifest could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("cannot read the manifest: {0}")]
    Io(#[from] io::Error),
    /// A line is not of the format.
    #[error(
        "line {line} of the manifest is not of the form \"HASH  PATH\" (64 hexadecimal digits, two spaces)"
    )]
    Line {
        /// Its number, from 1.
        line: u64,
    },
}

/// One entry of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The path, relative to the folder that the manifest describes.
    pub path: RelPath,
    /// BLAKE3 of the content.
    pub hash: [u8; 32],
}

/// Reads a manifest line by line.
pub struct ManifestReader<R> {
    reader: R,
    line: u64,
}

impl ManifestReader<BufReader<StdFile>> {
    /// Opens a manifest.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, ManifestError> {
        Ok(Self::new(BufReader::new(StdFile::open(path)?)))
    }
}

impl<R: BufRead> ManifestReader<R> {
    /// Reads from anything.
    pub fn new(reader: R) -> Self {
        Self { reader, line: 0 }
    }
}

impl<R: BufRead> Iterator for ManifestReader<R> {
    type Item = Result<ManifestEntry, ManifestError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut line = Vec::new();
            match (&mut self.reader).take(LINE_MAX).read_until(b'\n', &mut line) {
                Err(error) => return Some(Err(error.into())),
                Ok(0) => return None,
                Ok(_) => {}
            }
            self.line += 1;
            if self.line == 1 && line.starts_with(b"\xef\xbb\xbf") {
                line.drain(..3);
            }
            if line.last() == Some(&b'\n') {
                line.pop();
                // Of an editor that ends lines as Windows does: in a path it would be escaped.
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
            } else if line.len() as u64 == LINE_MAX {
                // Too long for a path: one fault, and on behind its end.
                return Some(match self.reader.skip_until(b'\n') {
                    Ok(_) => Err(ManifestError::Line { line: self.line }),
                    Err(error) => Err(error.into()),
                });
            }
            if !line.is_empty() {
                return Some(parse_line(&line).ok_or(ManifestError::Line { line: self.line }));
            }
        }
    }
}

fn parse_line(line: &[u8]) -> Option<ManifestEntry> {
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (hex, rest) = line.split_at_checked(64)?;
    let hash = *blake3::Hash::from_hex(hex).ok()?.as_bytes();
    let path = rest.strip_prefix(b"  ")?;
    let path = if escaped { unescape(path)? } else { path.to_vec() };
    let path = path.strip_prefix(b"./").unwrap_or(&path);
    Some(ManifestEntry {
        path: RelPath::parse(path).filter(|path| !path.is_root())?,
        hash,
    })
}

fn unescape(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(out)
}

/// BLAKE3 of a whole file.
pub(crate) async fn hash_file(pool: &Pool, file: &dyn File) -> Result<[u8; 32], Error> {
    let mut hasher = blake3::Hasher::new();
    let mut offset = 0;
    loop {
        let block = pool.get().await;
        let length = block.capacity();
        let (block, result) = file.read_at(block, offset, length).await;
        result?;
        hasher.update(&block);
        offset += block.len() as u64;
        if block.len() < length {
            return Ok(*hasher.finalize().as_bytes());
        }
    }
}

/// BLAKE3 of a file's content as the device has it: cached pages are dropped first.
async fn hash_from_device(pool: &Pool, tree: &dyn Tree, path: &RelPath) -> Result<[u8; 32], Error> {
    let file = tree.open(path, OpenOptions::read(CacheMode::Leave)).await?;
    let size = file.metadata().await?.size;
    file.drop_cache(0, size).await?;
    let hash = hash_file(pool, &*file).await?;
    Ok(hash)
}

/// Whether two files have the same content. An error says on which side.
pub(crate) async fn equal_content(
    pool: &Pool,
    source: (&dyn Tree, &RelPath),
    target: (&dyn Tree, &RelPath),
) -> Result<bool, EndError> {
    let left = source
        .0
        .open(source.1, OpenOptions::read(CacheMode::Leave))
        .await
        .map_err(EndError::on_source)?;
    let right = target
        .0
        .open(target.1, OpenOptions::read(CacheMode::Leave))
        .await
        .map_err(EndError::on_target)?;
    let mut offset = 0;
    loop {
        // Two blocks are taken one after the other: the pool is larger than twice the callers' number.
        let one = pool.get().await;
        let two = pool.get().await;
        let length = one.capacity();
        let ((one, read), (two, read_too)) = futures_util::future::join(
            left.read_at(one, offset, length),
            right.read_at(two, offset, length),
        )
        .await;
        read.map_err(EndError::on_source)?;
        read_too.map_err(EndError::on_target)?;
        if one[..] != two[..] {
            return Ok(false);
        }
        if one.len() < length {
            return Ok(true);
        }
        offset += length as u64;
    }
}

/// Reads every copied file back from the device and compares; gives what differs, up to [`REPAIRS_MAX`]. What differs
/// beyond that is reported.
pub(crate) async fn read_back(context: &Context, spool: &Path) -> Vec<ManifestEntry> {
    use futures_util::StreamExt;
    let mut differing = Vec::new();
    let entries = match ManifestReader::open(spool) {
        Ok(entries) => entries,
        Err(error) => {
            unverifiable(context, &error);
            return differing;
        }
    };
    let mut running = futures_util::stream::FuturesUnordered::new();
    let mut verified = |(entry, equal): (ManifestEntry, Option<bool>)| match equal {
        Some(false) if differing.len() < REPAIRS_MAX => differing.push(entry),
        Some(false) => report_difference(context, &entry),
        _ => {}
    };
    for entry in entries {
        if context.stopped() {
            break;
        }
        match entry {
            Ok(entry) => running.push(async move {
                let equal = verify_one(context, &entry).await;
                (entry, equal)
            }),
            Err(error) => {
                unverifiable(context, &error);
                break;
            }
        }
        if running.len() >= READ_BACK_MAX
            && let Some(done) = running.next().await
        {
            verified(done);
        }
    }
    while let Some(done) = running.next().await {
        verified(done);
    }
    differing
}

/// Files read back at once.
const READ_BACK_MAX: usize = 4;
/// Files repaired in one run: some MiB of paths. Where more differ, it is not a file that rotted.
const REPAIRS_MAX: usize = 10_000;

fn unverifiable(context: &Context, error: &ManifestError) {
    context.fatal(crate::status::Fatal::new(
        crate::status::Status::Differs,
        format!("nothing was verified: {error}"),
    ));
}

/// Whether a file of the target has this content on the device; `None`: it could not be read, which is reported.
pub(crate) async fn verify_one(context: &Context, entry: &ManifestEntry) -> Option<bool> {
    match hash_from_device(&context.pool, &*context.target, &entry.path).await {
        Ok(hash) => Some(hash == entry.hash),
        Err(error) => {
            context.fail(&entry.path, error, End::Target).await;
            None
        }
    }
}

/// Reports that a file differs.
pub(crate) fn report_difference(context: &Context, entry: &ManifestEntry) {
    context.failures.difference();
    let mut error = Error::new(Op::Read, &entry.path, ErrorKind::DeviceError);
    error.source = Some(io::Error::other(
        "what the device returns differs from the source (hint: --checksum copies what differs; see dmesg if it comes back)",
    ));
    context.emit(ropeway_vfs::event::Event::ItemError {
        path: entry.path.to_string(),
        op: error.op,
        kind: error.kind,
        message: error.to_string(),
        on_source: false,
        fatal: false,
    });
}

/// Sorts nothing, copies the spool to where the user wants the manifest, whole or not at all. Paths become relative to
/// the copied root where there is only one.
pub(crate) fn publish(spool: &Path, manifest: &Path, prefix: &RelPath) -> Result<(), ManifestError> {
    let mut temporary = manifest.as_os_str().to_owned();
    temporary.push(".part");
    let mut out = BufWriter::new(StdFile::create(&temporary)?);
    for entry in ManifestReader::open(spool)? {
        let entry = entry?;
        let path = match entry.path.strip_prefix(prefix) {
            Some(path) if !path.is_root() => path,
            _ => entry.path,
        };
        write_line(&mut out, path.as_bytes(), &entry.hash)?;
    }
    out.flush()?;
    out.get_ref().sync_all()?;
    fs::rename(&temporary, manifest)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn manifest_lines_survive_any_path(path in "[^\0/]{1,40}", hash: [u8; 32]) {
            prop_assume!(path != "." && path != "..");
            let mut line = Vec::new();
            write_line(&mut line, path.as_bytes(), &hash).unwrap();
            let entries: Vec<_> = ManifestReader::new(&line[..]).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(entries.len(), 1);
            prop_assert_eq!(entries[0].path.as_bytes(), path.as_bytes());
            prop_assert_eq!(entries[0].hash, hash);
        }

        #[test]
        fn hostile_manifests_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            // The bytes are finite and errors do not repeat, so this ends.
            for entry in ManifestReader::new(&bytes[..]).take(400).flatten() {
                prop_assert!(!entry.path.is_root());
            }
        }
    }

    #[test]
    fn an_endless_line_is_one_fault_and_the_next_line_is_read() {
        let hash = "0".repeat(64);
        let text = format!("{hash}  {}\n{hash}  next\n", "a".repeat(70_000));
        let entries: Vec<_> = ManifestReader::new(text.as_bytes()).collect();
        assert!(matches!(entries[0], Err(ManifestError::Line { line: 1 })));
        assert_eq!(
            entries[1].as_ref().map(|entry| entry.path.to_string()).ok(),
            Some("next".to_owned())
        );
        assert_eq!(entries.len(), 2);
    }

    #[test]
    fn a_path_that_leads_out_is_refused() {
        let line = format!("{}  ../etc/passwd\n", "0".repeat(64));
        assert!(matches!(
            ManifestReader::new(line.as_bytes()).next(),
            Some(Err(ManifestError::Line { line: 1 }))
        ));
    }
}
