//! Builds a job's filter from the flags, including files of patterns and lists of paths.

use std::io::Read;
use std::path::Path;

use ropeway_plan::filter::parse_file_list;
use ropeway_plan::{Filter, FilterSpec};

use crate::args::SelectArgs;
use crate::failure::Failure;

/// Maximum size in bytes of a file of patterns or paths: a bound, enough for some million paths.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Builds the filter for the flags.
///
/// # Errors
/// A file cannot be read, or a pattern, size or path is invalid.
pub(crate) fn build(args: &SelectArgs) -> Result<Filter, Failure> {
    Filter::new(&spec(args)?).map_err(|error| {
        Failure::usage(error.to_string())
            .hint("patterns are those of gitignore; `ropeway copy --help` explains them")
    })
}

/// Returns what the flags ask for.
///
/// # Errors
/// A file cannot be read, or a path is invalid.
pub(crate) fn spec(args: &SelectArgs) -> Result<FilterSpec, Failure> {
    let mut spec = FilterSpec {
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        ignore_case: args.ignore_case,
        size_min: args.min_size,
        size_max: args.max_size,
        newer_than: args.newer,
        older_than: args.older,
        files_from: None,
        folders_alone: Vec::new(),
    };
    for path in &args.exclude_from {
        spec.exclude
            .extend(patterns(&read("--exclude-from", path)?, path)?);
    }
    if let Some(path) = &args.files_from {
        let bytes = read("--files-from", path)?;
        let list = parse_file_list(&bytes, args.null)
            .map_err(|error| Failure::usage(format!("--files-from {}: {error}", path.display())))?;
        spec.files_from = Some(list);
    } else if args.null {
        return Err(Failure::usage("--null applies to --files-from, which is missing")
            .hint("add --files-from FILE, or leave out --null"));
    }
    Ok(spec)
}

/// Returns the lines that are not empty and do not begin with `#`, as in a `.gitignore`.
fn patterns(bytes: &[u8], path: &Path) -> Result<Vec<String>, Failure> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        Failure::usage(format!("{}:{line}: the line is not UTF-8", path.display()))
            .hint("patterns are UTF-8; use `?` for other bytes")
    })?;
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let result = if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(LIST_BYTES_MAX)
            .read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(LIST_BYTES_MAX).read_to_end(&mut bytes))
    };
    result.map_err(|error| {
        Failure::usage(format!("{flag}: cannot read {}: {error}", path.display())).hint("check the file name")
    })?;
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(
            Failure::usage(format!("{flag}: {} is UTF-16, not UTF-8", path.display()))
                .hint("save it as UTF-8, with or without a byte-order mark"),
        );
    }
    // Editors on Windows put a byte-order mark at the start of a file.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_files_skip_comments() {
        let parsed = patterns(b"# objects\n*.o\n\n  \n/build\n", Path::new("f")).unwrap();
        assert_eq!(parsed, ["*.o", "/build"]);
        let failure = patterns(b"a\n\xff\n", Path::new("f")).unwrap_err();
        assert!(failure.message.starts_with("f:2: "), "{}", failure.message);
    }
}
