//! Opens a trace by its name: `.lis`, `.lis.zst`, `.csv`, `.csv.gz` and their combinations. A recording
//! of a mount is recognised by its first bytes, whatever its name.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;

use ropeway_cache::recording::MAGIC;
use ropeway_cache::replay::{Format, Trace, TraceError};

/// A trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// Neither name nor content say what the file is.
    #[error("{0}: no recording, and the name does not end in .lis or .csv (or these with .zst or .gz)")]
    Name(String),
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be unpacked.
    #[error("{path}: not a {kind} file, or cut short: {source}")]
    Packed {
        /// The file.
        path: String,
        /// The compression.
        kind: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The content is not a trace.
    #[error("{path}: {source}")]
    Content {
        /// The file.
        path: String,
        /// What is wrong.
        source: TraceError,
    },
}

impl PredictError {
    /// Returns advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Name(_) => "rename it as docs/lab-predict.md says",
            Self::Read { .. } => "check the spelling",
            Self::Packed { .. } => "get the file again, or unpack it with zstd or gzip first",
            Self::Content { .. } => "docs/lab-predict.md describes the formats",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    None,
    Zstd,
    Gzip,
}

/// Returns format, if the name says it, and compression.
fn kind(name: &str) -> (Option<Format>, Packing) {
    let name = name.to_ascii_lowercase();
    let (name, packing) = match (name.strip_suffix(".zst"), name.strip_suffix(".gz")) {
        (Some(name), _) => (name, Packing::Zstd),
        (_, Some(name)) => (name, Packing::Gzip),
        _ => (name.as_str(), Packing::None),
    };
    let format = match name {
        _ if name.ends_with(".lis") => Some(Format::Lis),
        _ if name.ends_with(".csv") => Some(Format::Csv),
        _ => None,
    };
    (format, packing)
}

/// Reads a trace.
pub(super) fn read(path: &Path, block_bytes: u64) -> Result<Trace, PredictError> {
    let shown = path.display().to_string();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let (format, packing) = kind(name.as_deref().unwrap_or_default());
    let unreadable = |source| PredictError::Read {
        path: shown.clone(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    let file = BufReader::new(file);
    let packed = |kind: &'static str, source| PredictError::Packed {
        path: shown.clone(),
        kind,
        source,
    };
    let text: Box<dyn Read> = match packing {
        Packing::None => Box::new(file),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Packing::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(file);
            Box::new(decoder.map_err(|error| packed("zstd", io::Error::other(error.to_string())))?)
        }
    };
    let failed = |error| match (error, packing) {
        (TraceError::Read(source), Packing::None) => unreadable(source),
        (TraceError::Read(source), Packing::Zstd) => packed("zstd", source),
        (TraceError::Read(source), Packing::Gzip) => packed("gzip", source),
        (source, _) => PredictError::Content {
            path: shown.clone(),
            source,
        },
    };
    let mut text = BufReader::new(text);
    let begins = text.fill_buf().map_err(|error| failed(TraceError::Read(error)))?;
    let is_recording = begins.starts_with(MAGIC.as_bytes());
    let format = if is_recording {
        Some(Format::Recording)
    } else {
        format
    };
    let format = format.ok_or_else(|| PredictError::Name(shown.clone()))?;
    Trace::read(text, format, block_bytes).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_format_and_compression() {
        assert_eq!(kind("P6.lis.zst"), (Some(Format::Lis), Packing::Zstd));
        assert_eq!(kind("a.CSV.gz"), (Some(Format::Csv), Packing::Gzip));
        assert_eq!(kind("a.lis"), (Some(Format::Lis), Packing::None));
        assert_eq!(kind("a.txt"), (None, Packing::None));
        assert_eq!(kind("lis.gz"), (None, Packing::Gzip));
    }

    #[test]
    fn a_recording_is_recognised_whatever_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let session = format!("{MAGIC}\t1\t{:032x}\t{:016x}\t0\t0\tx\n", 1, 2);
        let text = format!("{session}read\t1\t1\t1\tcc\t7\t200000\t0\t70000\n");
        for name in ["monday", "day.lis", "day.rec"] {
            let path = folder.path().join(name);
            std::fs::write(&path, &text).expect("a file");
            assert_eq!(read(&path, 65_536).expect("a trace").numbers, [0, 1], "{name}");
        }
        let path = folder.path().join("other");
        std::fs::write(&path, "text").expect("a file");
        assert!(matches!(read(&path, 65_536), Err(PredictError::Name(_))));
    }
}
