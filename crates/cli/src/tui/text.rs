//! Texts that fit: shortened names, bars, numbers of any size.

use ratatui::text::{Line, Span};

use super::Theme;
pub(crate) use ropeway_live::format::{per_second, percent, seconds, share};

/// Returns the number of columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns a line of keys, each with what it does: as many as fit.
pub(crate) fn keys(all: &[(&'static str, &str)], max: usize, theme: Theme) -> Line<'static> {
    let (mut spans, mut used) = (Vec::new(), 1);
    for (key, what) in all {
        let more = width(key) + width(what) + 3;
        if used + more > max {
            break;
        }
        used += more;
        spans.push(Span::raw(" "));
        spans.push(Span::styled(*key, theme.chosen()));
        spans.push(Span::raw(format!(" {what}")));
    }
    Line::from(spans)
}

/// Returns a text of at most `max` columns; the beginning of a longer one goes, since the end of a path
/// says more.
pub(crate) fn tail(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    let mut kept: Vec<char> = Vec::new();
    let mut used = 1;
    for c in text.chars().rev() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > max {
            break;
        }
        kept.push(c);
    }
    match max {
        0 => String::new(),
        _ => ['…'].into_iter().chain(kept.into_iter().rev()).collect(),
    }
}

/// Returns a text of at most `max` columns; the end of a longer one goes.
pub(crate) fn head(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > max {
            break;
        }
        kept.push(c);
    }
    match max {
        0 => String::new(),
        _ => kept + "…",
    }
}

/// Returns a text of exactly `max` columns, filled with blanks on the right.
pub(crate) fn padded(text: &str, max: usize) -> String {
    let mut text = head(text, max);
    let missing = max.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// Returns a text of exactly `max` columns, filled with blanks on the left.
pub(crate) fn right(text: &str, max: usize) -> String {
    let text = head(text, max);
    let missing = max.saturating_sub(width(&text));
    " ".repeat(missing) + &text
}

/// Returns a bar of `columns` for a share of 0 to 1, in eighths of a column.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let eighths = (share * columns as f64 * 8.0).round() as usize;
    let (whole, rest) = (eighths / 8, eighths % 8);
    let mut text = "█".repeat(whole.min(columns));
    if whole < columns {
        text.push(EIGHTHS[rest]);
        text.extend(std::iter::repeat_n(' ', columns - whole - 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_names_are_shortened() {
        assert_eq!(tail("/srv/photos/2024", 8), "…os/2024");
        assert_eq!(tail("/srv", 8), "/srv");
        assert_eq!(head("/srv/photos", 5), "/srv…");
        assert_eq!(padded("ab", 4), "ab  ");
        assert_eq!(right("ab", 4), "  ab");
        assert_eq!((tail("abc", 0), head("abc", 1)), (String::new(), "…".to_owned()));
    }

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(0.0, 4), "    ");
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(0.28, 4), "█▏  ");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(f64::NAN, 2), "  ");
    }

    #[test]
    fn numbers_of_any_size_are_shown() {
        assert_eq!(seconds(61.0), "1m01s");
        assert_eq!(seconds(f64::MAX), seconds(1e12));
        assert_eq!(seconds(f64::NAN), "0.00s");
        assert_eq!(
            (per_second(3.25), per_second(12_345.6)),
            ("3.2/s".into(), "12,345/s".into())
        );
        assert_eq!(
            (per_second(f64::INFINITY), per_second(-1.0)),
            ("0/s".into(), "0/s".into())
        );
        assert_eq!((percent(0.404), percent(f64::NAN)), ("40%".into(), "0%".into()));
        assert_eq!((share(1, 0), share(5, 4)), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn texts_fit(text in ".{0,60}", max in 0_usize..40, part in any::<f64>()) {
            prop_assert!(width(&tail(&text, max)) <= max);
            prop_assert!(width(&head(&text, max)) <= max);
            prop_assert_eq!(width(&padded(&text, max)), max);
            prop_assert_eq!(width(&right(&text, max)), max);
            prop_assert_eq!(bar(part, max).chars().count(), max);
        }
    }
}
