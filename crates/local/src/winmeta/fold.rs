//! Case folding of names, as Windows compares them.
//!
//! Names are compared in upper case by the rule of [`upcase`]: characters of one UTF-16 unit map to one
//! such character, never into ASCII (`ß` stays `ß`, `ı` is not `I`). Bytes that are not UTF-8 stay as they
//! are.

use ropeway_smb_wire::upcase;

/// Returns the form that is the same for all names that differ only in case.
pub(crate) fn fold(name: &[u8]) -> Vec<u8> {
    if name.is_ascii() {
        return name.to_ascii_uppercase();
    }
    let mut folded = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            folded.extend_from_slice(upcase(c).encode_utf8(&mut [0; 4]).as_bytes());
        }
        folded.extend_from_slice(chunk.invalid());
    }
    folded
}

/// Whether two names differ in case at most.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a == b || fold(a) == fold(b)
}

fn upcase(c: char) -> char {
    match u16::try_from(u32::from(c)) {
        Ok(unit) => char::from_u32(u32::from(upcase::upcase(unit))).unwrap_or(c),
        Err(_) => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unit_to_one() {
        let folded = |text: &str| String::from_utf8(fold(text.as_bytes())).unwrap();
        assert_eq!(folded("aZäéжω."), "AZÄÉЖΩ.");
        assert_eq!(folded("ßﬁŉ"), "ßﬁŉ");
        assert_eq!(folded("ıſÿ"), "ıſŸ");
        assert_eq!(folded("𐐨"), "𐐨");
        assert!(equal(b"a\xffB", b"A\xffb") && !equal(b"a\xff", b"a\xfe"));
        assert!(equal("Straße".as_bytes(), "STRAßE".as_bytes()));
    }
}
