//! Formats numbers and names for people: three significant digits, and no characters that control a
//! terminal or a browser.

pub(crate) use ropeway_live::format::count;
use ropeway_live::format::grouped;

/// Largest length of a name in characters; the rest is cut off.
pub(super) const NAME_MAX: usize = 120;
/// Largest length of a sentence in characters.
pub(super) const TEXT_MAX: usize = 2_000;

/// Formats `17.4`, `0.0213`, `1,111`: three significant digits, all digits before the point; `?` for
/// non-finite values.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "?".to_owned();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-6..1e15).contains(&size) {
        return format!("{value:.2e}");
    }
    // 999.6 is shown as 1,000, and 9.996 as 10.0.
    let mut decimals = decimals_for(size);
    let rounded = format!("{size:.decimals$}").parse().unwrap_or(size);
    decimals = decimals.min(decimals_for(rounded));
    let text = format!("{size:.decimals$}");
    let (whole, rest) = text
        .split_once('.')
        .map_or((text.as_str(), None), |(w, r)| (w, Some(r)));
    let sign = if value < 0.0 { "-" } else { "" };
    let rest = rest.map_or(String::new(), |rest| format!(".{rest}"));
    format!("{sign}{}{rest}", grouped(whole))
}

fn decimals_for(size: f64) -> usize {
    // `as` is bounded: -6 to 15 for what is shown so.
    let exponent = size.log10().floor() as i32;
    usize::try_from(2 - exponent).unwrap_or(0)
}

/// Formats `17.4 s`.
pub(crate) fn seconds(value: f64) -> String {
    format!("{} s", number(value))
}

/// Formats a factor `1.03×`; two decimals up to ten.
pub(crate) fn factor(value: f64) -> String {
    if value.is_finite() && (0.0..9.995).contains(&value) {
        format!("{value:.2}×")
    } else {
        format!("{}×", number(value))
    }
}

/// Formats a change `+7.1 %`.
pub(crate) fn change(share: f64) -> String {
    if !share.is_finite() {
        return "?".to_owned();
    }
    if share.abs() < 10.0 {
        format!("{:+.1} %", share * 100.0)
    } else {
        format!(
            "{}{} %",
            if share < 0.0 { "-" } else { "+" },
            number(share.abs() * 100.0)
        )
    }
}

/// Formats a share `12 %`.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() && share.abs() < 100.0 {
        let decimals = usize::from(share.abs() < 0.0995 && share != 0.0);
        format!("{:.decimals$} %", share * 100.0)
    } else {
        "?".to_owned()
    }
}

/// Formats bytes `100 MB` by powers of 1000, as the published works do.
pub(crate) fn bytes(count: u64) -> String {
    prefixed(count as f64, "B")
}

/// Formats a rate `622 Mbit/s`.
pub(crate) fn bits(rate: f64) -> String {
    prefixed(rate, "bit/s")
}

/// Formats a value with the fitting prefix, by powers of 1000.
pub(crate) fn prefixed(value: f64, unit: &str) -> String {
    let (divisor, prefix) = prefix(value);
    let text = number(value / divisor);
    // `100`, not `100.0`: exact values need no decimals.
    let text = match text.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|digit| digit == b'0') => whole.to_owned(),
        _ => text,
    };
    format!("{text} {prefix}{unit}")
}

/// Returns divisor and prefix for values of this size.
pub(crate) fn prefix(value: f64) -> (f64, &'static str) {
    match value.abs() {
        size if size < 1e3 => (1.0, ""),
        size if size < 1e6 => (1e3, "k"),
        size if size < 1e9 => (1e6, "M"),
        size if size < 1e12 => (1e9, "G"),
        size if size.is_finite() => (1e12, "T"),
        _ => (1.0, ""),
    }
}

/// Formats a record size `64 KiB` by powers of 1024.
pub(crate) fn binary(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = number(value);
    let text = if value.fract() == 0.0 && value < 1e6 {
        format!("{value:.0}")
    } else {
        text
    };
    format!("{text} {}", UNITS[unit])
}

/// Formats a count `1 file`, `2 files`.
pub(crate) fn counted(number: usize, one: &str, many: &str) -> String {
    let word = if number == 1 { one } else { many };
    format!("{} {word}", count(u64::try_from(number).unwrap_or(u64::MAX)))
}

/// Returns foreign text on one line, without characters that move a cursor or change the reading
/// direction, cut to `most` characters.
pub(crate) fn clean(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most * 4));
    for (position, letter) in text.chars().enumerate() {
        if position + 1 >= most && text.chars().nth(most).is_some() {
            shown.push('…');
            break;
        }
        shown.push(match letter {
            '\n' | '\t' | '\r' => ' ',
            // Direction marks, and characters that XML 1.0, 2.2, forbids.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            letter if letter.is_control() => '\u{fffd}',
            letter => letter,
        });
    }
    shown
}

/// Formats a time as `2026-11-21 22:14 UTC`; other text than RFC 3339 in UTC stays as it is.
pub(crate) fn moment(stamp: &str) -> String {
    match (
        stamp.get(..10),
        stamp.get(10..11),
        stamp.get(11..16),
        stamp.ends_with('Z'),
    ) {
        (Some(day), Some("T"), Some(minute), true) => format!("{day} {minute} UTC"),
        _ => stamp.to_owned(),
    }
}

/// Capitalises the first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// Returns a cleaned name.
pub(crate) fn name(text: &str) -> String {
    clean(text, NAME_MAX)
}

/// Escapes and cleans text for XML or HTML elements and attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in clean(text, TEXT_MAX).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (17.42, "17.4"),
            (1111.4, "1,111"),
            (0.021_34, "0.0213"),
            (9.996, "10.0"),
            (999.6, "1,000"),
            (-2.5, "-2.50"),
            (0.0, "0"),
            (f64::NAN, "?"),
            (f64::INFINITY, "?"),
            (1e300, "1.00e300"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(bytes(100_000_000), "100 MB");
        assert_eq!(bits(622e6), "622 Mbit/s");
        assert_eq!(binary(65536.0), "64 KiB");
        assert_eq!(factor(1.034), "1.03×");
        assert_eq!(change(0.071), "+7.1 %");
        assert_eq!(percent(0.021), "2.1 %");
    }

    #[test]
    fn foreign_text_cannot_do_anything() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c\nd", 99), "a\u{fffd}[2Jb\u{fffd}c d");
        assert_eq!(clean("abcdef", 4), "abc…");
        assert_eq!(clean("abcd", 4), "abcd");
        assert_eq!(
            escape("<script a='\"'>&"),
            "&lt;script a=&#39;&quot;&#39;&gt;&amp;"
        );
    }
}
