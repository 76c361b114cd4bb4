//! Upper case for case-insensitive names, one UTF-16 unit at a time as file systems compare them.
//!
//! Windows maps each unit through a table before it compares (`$UpCase` on NTFS, fixed when the
//! volume was formatted). This module applies Rust's Unicode table under the same rules instead:
//! only characters of one unit map, to one character of one unit, never to another length (`ß`
//! stays `ß`), and never into ASCII (`ı` is not `I`, `ſ` not `S`), so that ASCII names stay
//! separate. The result differs from the server's table in two cases. Letters whose capital entered
//! Unicode after the volume's table was made (Georgian, Cherokee, …) compare equal here and differ
//! on the server. Surrogate pairs (Deseret, …) differ on both. To look a name up, ask the server;
//! use this module to find names that might collide.

use std::cmp::Ordering;

use crate::Text;

/// Returns the unit's upper case.
pub fn upcase(unit: u16) -> u16 {
    if unit < 0x80 {
        return match u8::try_from(unit) {
            Ok(byte) => u16::from(byte.to_ascii_uppercase()),
            Err(_) => unit,
        };
    }
    let Some(c) = char::from_u32(u32::from(unit)) else {
        return unit;
    };
    let mut upper = c.to_uppercase();
    match (
        upper.next().map(|upper| u16::try_from(u32::from(upper))),
        upper.next(),
    ) {
        (Some(Ok(upper)), None) if upper >= 0x80 => upper,
        _ => unit,
    }
}

/// Returns the name in upper case. The length never changes.
pub fn fold(name: &Text) -> Text {
    Text::from_units(name.units().iter().map(|unit| upcase(*unit)).collect())
}

/// Compares two names without regard to case.
pub fn compare(a: &Text, b: &Text) -> Ordering {
    let upper = |text: &Text| text.units().iter().map(|unit| upcase(*unit)).collect::<Vec<_>>();
    upper(a).cmp(&upper(b))
}

/// Returns whether two names differ in case at most.
pub fn equal(a: &Text, b: &Text) -> bool {
    a.units().len() == b.units().len()
        && a.units()
            .iter()
            .zip(b.units())
            .all(|(a, b)| upcase(*a) == upcase(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unit_to_one() {
        let folded = |text: &str| fold(&text.into()).to_string_lossy();
        assert_eq!(folded("aZäéжω."), "AZÄÉЖΩ.");
        assert_eq!(folded("ßﬁŉ"), "ßﬁŉ");
        assert_eq!(folded("ıſ"), "ıſ");
        assert_eq!(folded("ÿ"), "Ÿ");
        assert_eq!(folded("𐐨"), "𐐨");
        assert!(equal(&"Straße".into(), &"STRAßE".into()));
        assert!(!equal(&"a".into(), &"aa".into()));
        assert_eq!(compare(&"b".into(), &"A".into()), Ordering::Greater);
    }

    /// Otherwise equality would not be transitive.
    #[test]
    fn upper_case_is_its_own() {
        for unit in 0..=u16::MAX {
            let upper = upcase(unit);
            assert_eq!(upcase(upper), upper, "{unit:#x}");
            assert_eq!(upper < 0x80, unit < 0x80);
        }
    }
}
