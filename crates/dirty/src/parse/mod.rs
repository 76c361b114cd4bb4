//! Parsers of the kernel's texts. All are pure, and no input makes them fail otherwise than by
//! `None`: other kernels have other lines, and a text may be cut anywhere.

pub mod bdi;
pub mod block;
pub mod cgroup;
pub mod pressure;
pub mod process;
pub mod trace;
pub mod vmstat;

/// Bytes of a KiB, the unit of many lines.
const KIB: u64 = 1024;

/// Returns the first number after a name at the beginning of a line: `nr_dirty 12`, `BdiWritten:
/// 48 kB`. Blanks before the name are ignored.
pub(crate) fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix(name)?;
        // Otherwise `nr_dirty` would find `nr_dirty_threshold`.
        let rest = rest.strip_prefix([':', ' ', '\t'])?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

/// Returns the number of a line in kB, as bytes.
pub(crate) fn kibibytes(text: &str, name: &str) -> Option<u64> {
    Some(number(text, name)?.saturating_mul(KIB))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_whole_name_is_found() {
        let text = "nr_dirty_threshold 7\n  nr_dirty\t12\nBdiWritten:      48 kB\n";
        assert_eq!(number(text, "nr_dirty"), Some(12));
        assert_eq!(kibibytes(text, "BdiWritten"), Some(48 * 1024));
        assert_eq!(number(text, "nr_writ"), None);
        assert_eq!(number("nr_dirty -1", "nr_dirty"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "\\PC{0,80}(\n\\PC{0,20}){0,4}", name in "[a-zB]{1,6}") {
            _ = (number(&text, &name), kibibytes(&text, &name));
        }
    }
}
