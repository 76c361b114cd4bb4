//! Texts for one line of a terminal.

/// Longest text in a snapshot, in characters. A guess: more than a path of 4096 bytes needs.
pub(crate) const TEXT_MAX: usize = 4096;

/// Returns at most `max` characters; a cut text ends with `…`.
pub fn bounded(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => {
            let mut cut: String = text.chars().take(max.saturating_sub(1)).collect();
            cut.push('…');
            cut
        }
    }
}

/// Returns the text without what moves a terminal's cursor or reorders a line, bounded.
pub fn clean(text: &str) -> String {
    let plain = |c: char| match c.is_control() || ropeway_vfs::path::reorders(c) {
        true => '\u{fffd}',
        false => c,
    };
    match text.chars().all(|c| plain(c) == c) && text.len() <= TEXT_MAX {
        true => text.to_owned(),
        false => bounded(&text.chars().map(plain).collect::<String>(), TEXT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(bounded("abc", 3), "abc");
        assert_eq!(bounded("äöüß", 3), "äö…");
        assert_eq!(bounded("", 0), "");
        assert_eq!(clean(&"x".repeat(5000)).chars().count(), TEXT_MAX);
    }

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(clean("Grüße ☃"), "Grüße ☃");
    }
}
