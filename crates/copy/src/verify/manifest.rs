//! Manifests: hashes of files in the format of `b3sum`, `sha256sum` and `xxh128sum`.
//!
//! A line has the hash in hexadecimal digits (64 for BLAKE3 and SHA-256, 32 for XXH3), two spaces and the
//! path. A path with a newline or a backslash is escaped, and its line begins with a backslash.

use std::fs::{self, File as StdFile};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use ropeway_vfs::{ContentHash, HashAlgorithm, RelPath};

/// Largest length of a line: far beyond any path.
const LINE_MAX: u64 = 64 << 10;

/// Writes one line of a manifest.
pub(super) fn write_line(
    out: &mut impl Write,
    algorithm: HashAlgorithm,
    path: &[u8],
    hash: &ContentHash,
) -> io::Result<()> {
    let special = path.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
    let mut line = Vec::with_capacity(path.len() + 70);
    if special {
        line.push(b'\\');
    }
    let hex = blake3::Hash::from_bytes(*hash).to_hex();
    line.extend_from_slice(&hex.as_bytes()[..2 * algorithm.length()]);
    line.extend_from_slice(b"  ");
    if path == b"-" {
        // Programs that check manifests take it for standard input.
        line.extend_from_slice(b"./");
    }
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

/// Why a manifest could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("cannot read the manifest: {0}")]
    Io(#[from] io::Error),
    /// A line does not have the format.
    #[error(
        "line {line} of the manifest is not of the form \"HASH  PATH\" ({digits} hexadecimal digits for {algorithm}, two spaces)",
        digits = 2 * algorithm.length()
    )]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The hash that was expected.
        algorithm: HashAlgorithm,
    },
}

/// One entry of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Its path, relative to the folder that the manifest describes.
    pub path: RelPath,
    /// Hash of its content.
    pub hash: ContentHash,
}

/// Reads a manifest line by line.
pub struct ManifestReader<R> {
    algorithm: HashAlgorithm,
    reader: R,
    line: u64,
}

impl ManifestReader<BufReader<StdFile>> {
    /// Opens a manifest.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, algorithm: HashAlgorithm) -> Result<Self, ManifestError> {
        Ok(Self::new(BufReader::new(StdFile::open(path)?), algorithm))
    }
}

impl<R: BufRead> ManifestReader<R> {
    /// Reads from any source of lines.
    pub fn new(reader: R, algorithm: HashAlgorithm) -> Self {
        Self {
            algorithm,
            reader,
            line: 0,
        }
    }

    fn wrong_line(&self) -> ManifestError {
        ManifestError::Line {
            line: self.line,
            algorithm: self.algorithm,
        }
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
                // An editor may end lines as Windows does. In a path the character would be
                // escaped.
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
            } else if line.len() as u64 == LINE_MAX {
                // Too long for a path: one error, then reading continues with the next line.
                return Some(match self.reader.skip_until(b'\n') {
                    Ok(_) => Err(self.wrong_line()),
                    Err(error) => Err(error.into()),
                });
            }
            if !line.is_empty() {
                return Some(parse_line(&line, self.algorithm).ok_or_else(|| self.wrong_line()));
            }
        }
    }
}

fn parse_line(line: &[u8], algorithm: HashAlgorithm) -> Option<ManifestEntry> {
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (hex, rest) = line.split_at_checked(2 * algorithm.length())?;
    let mut digits = [b'0'; 64];
    digits[..hex.len()].copy_from_slice(hex);
    let hash = *blake3::Hash::from_hex(digits).ok()?.as_bytes();
    // sha256sum writes a star before the path of a file that was read as binary.
    let path = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
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

/// Copies the spool to where the user wants the manifest, completely or not at all. Paths become
/// relative to the copied root if there is only one.
pub(crate) fn publish_manifest(
    (spool, algorithm): (&Path, HashAlgorithm),
    manifest: &Path,
    prefix: &RelPath,
) -> Result<(), ManifestError> {
    let mut temporary = manifest.as_os_str().to_owned();
    temporary.push(".part");
    let mut out = BufWriter::new(StdFile::create(&temporary)?);
    for entry in ManifestReader::open(spool, algorithm)? {
        let entry = entry?;
        let path = match entry.path.strip_prefix(prefix) {
            Some(path) if !path.is_root() => path,
            _ => entry.path,
        };
        write_line(&mut out, algorithm, path.as_bytes(), &entry.hash)?;
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
        fn manifest_lines_survive_any_path(path in "[^\0/]{1,40}", content: [u8; 4], kind in 0..3_usize) {
            prop_assume!(path != "." && path != "..");
            let mut line = Vec::new();
            let algorithm = HashAlgorithm::ALL[kind];
            let hash = algorithm.hash(&content);
            write_line(&mut line, algorithm, path.as_bytes(), &hash).unwrap();
            let entries: Vec<_> = ManifestReader::new(&line[..], algorithm).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(entries.len(), 1);
            prop_assert_eq!(entries[0].path.as_bytes(), path.as_bytes());
            prop_assert_eq!(entries[0].hash, hash);
        }

        #[test]
        fn hostile_manifests_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for algorithm in HashAlgorithm::ALL {
                // The bytes are finite and errors do not repeat, so this ends.
                for entry in ManifestReader::new(&bytes[..], algorithm).take(400).flatten() {
                    prop_assert!(!entry.path.is_root());
                }
            }
        }
    }

    #[test]
    fn an_endless_line_is_one_fault_and_the_next_line_is_read() {
        let hash = "0".repeat(64);
        let text = format!("{hash}  {}\n{hash}  next\n", "a".repeat(70_000));
        let entries: Vec<_> = ManifestReader::new(text.as_bytes(), HashAlgorithm::Sha256).collect();
        assert!(matches!(entries[0], Err(ManifestError::Line { line: 1, .. })));
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
            ManifestReader::new(line.as_bytes(), HashAlgorithm::Blake3).next(),
            Some(Err(ManifestError::Line { line: 1, .. }))
        ));
    }
}
