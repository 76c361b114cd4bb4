//! Manifests: any bytes are read to their end, as lines of each hash. Each entry, written as `b3sum` writes it,
//! reads as the same entry.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropeway_copy::{ManifestEntry, ManifestError, ManifestReader};
use ropeway_vfs::HashAlgorithm;

/// Formats an entry as a line of `b3sum`, `sha256sum` or `xxh128sum`.
fn render(entry: &ManifestEntry, algorithm: HashAlgorithm) -> Vec<u8> {
    let path = entry.path.as_bytes();
    let mut line = Vec::new();
    if path.iter().any(|byte| b"\\\n\r".contains(byte)) {
        line.push(b'\\');
    }
    let hex = blake3::Hash::from_bytes(entry.hash).to_hex();
    line.extend_from_slice(&hex.as_bytes()[..2 * algorithm.length()]);
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
    line
}

fuzz_target!(|data: &[u8]| {
    for algorithm in HashAlgorithm::ALL {
        read(data, algorithm);
    }
});

fn read(data: &[u8], algorithm: HashAlgorithm) {
    let lines = data.split(|byte| *byte == b'\n');
    // A byte-order mark is not content, nor is a CR before the line end. The last line has no line
    // end.
    let last = lines.clone().count() - 1;
    let content = |(number, line): (usize, &[u8])| {
        let mark: &[u8] = if number == 0 { b"\xef\xbb\xbf" } else { b"" };
        let line = line.strip_prefix(mark).unwrap_or(line);
        let end: &[u8] = if number < last { b"\r" } else { b"" };
        line.strip_suffix(end).unwrap_or(line).len()
    };
    let lines_filled = lines
        .clone()
        .enumerate()
        .map(content)
        .filter(|length| *length > 0)
        .count();
    let lines_all = lines.count() as u64;
    let (mut results, mut line_last) = (0, 0);
    for result in ManifestReader::new(data, algorithm) {
        results += 1;
        match result {
            Ok(entry) => {
                assert!(!entry.path.is_root());
                let rendered = render(&entry, algorithm);
                let again: Vec<_> = ManifestReader::new(rendered.as_slice(), algorithm).collect();
                assert!(
                    matches!(again.as_slice(), [Ok(same)] if *same == entry),
                    "{entry:?}"
                );
            }
            Err(ManifestError::Line { line, .. }) => {
                assert!((line_last + 1..=lines_all).contains(&line), "line {line}");
                line_last = line;
            }
            Err(ManifestError::Io(error)) => panic!("no I/O happens here: {error}"),
        }
    }
    assert_eq!(results, lines_filled, "each line is an entry or a fault");
}
