//! Wildcards of QUERY_DIRECTORY: matches a name against an expression ([MS-FSA] 2.1.4.4,
//! `FsRtlIsNameInExpression`).
//!
//! | | matches |
//! |---|---|
//! | `*` | any units, or none |
//! | `?` | one unit |
//! | `<` (DOS_STAR) | any units, or none, except the last dot of the name |
//! | `>` (DOS_QM) | one unit other than a dot; nothing before a dot and at the end of the name |
//! | `"` (DOS_DOT) | a dot; nothing at the end of the name |
//!
//! Windows programs' `*.`, `?` and `.` arrive as the last three. The matcher follows all states of
//! the expression at once, so a peer's expression costs at most the product of both lengths.

use crate::Text;

const STAR: u16 = b'*' as u16;
const QUESTION: u16 = b'?' as u16;
const DOS_STAR: u16 = b'<' as u16;
const DOS_QM: u16 = b'>' as u16;
const DOS_DOT: u16 = b'"' as u16;
const DOT: u16 = b'.' as u16;

/// Returns whether the expression contains wildcards. Without any it names one file.
pub fn has_wildcard(expression: &Text) -> bool {
    let is_wildcard = |unit: &u16| matches!(*unit, STAR | QUESTION | DOS_STAR | DOS_QM | DOS_DOT);
    expression.units().iter().any(is_wildcard)
}

/// Returns whether `name` matches `expression`. Units are compared after `fold`: pass
/// [`upcase`](crate::upcase::upcase), or the identity if case matters.
pub fn matches(expression: &Text, name: &Text, fold: impl Fn(u16) -> u16) -> bool {
    let (expression, name) = (expression.units(), name.units());
    // [MS-FSA] 2.1.4.4: an empty name matches the empty expression only, and "*.*" matches every
    // name.
    if expression.is_empty() || name.is_empty() {
        return expression.is_empty() && name.is_empty();
    }
    if expression == [STAR] || expression == [STAR, DOT, STAR] {
        return true;
    }
    let last_dot = name.iter().rposition(|unit| *unit == DOT);
    // `states[at]`: the units read so far match the expression's first `at` units.
    let mut states = vec![false; expression.len() + 1];
    states[0] = true;
    for (at, unit) in name.iter().enumerate() {
        let is_last_dot = last_dot == Some(at);
        states = step(expression, states, *unit, is_last_dot, &fold);
        if !states.contains(&true) {
            return false;
        }
    }
    // A tail of wildcards that match nothing at the end of the name may be left over.
    let passed = expression
        .iter()
        .rposition(|unit| !matches!(*unit, STAR | DOS_STAR | DOS_QM | DOS_DOT))
        .map_or(0, |at| at + 1);
    states[passed..].contains(&true)
}

/// Returns the states after one more unit of the name.
fn step(
    expression: &[u16],
    mut states: Vec<bool>,
    unit: u16,
    is_last_dot: bool,
    fold: &impl Fn(u16) -> u16,
) -> Vec<bool> {
    let mut next = vec![false; states.len()];
    for (at, expected) in expression.iter().enumerate() {
        if !states[at] {
            continue;
        }
        match *expected {
            STAR => {
                next[at] = true;
                states[at + 1] = true;
            }
            DOS_STAR => {
                next[at] |= !is_last_dot;
                states[at + 1] = true;
            }
            DOS_QM if unit == DOT => states[at + 1] = true,
            QUESTION | DOS_QM => next[at + 1] = true,
            DOS_DOT => next[at + 1] |= unit == DOT,
            literal => next[at + 1] |= fold(literal) == fold(unit),
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upcase::upcase;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn is_in(expression: &str, name: &str) -> bool {
        matches(&expression.into(), &name.into(), upcase)
    }

    #[test]
    fn stars_and_questions() {
        for (expression, name) in [
            ("*", "a"),
            ("*.*", "no dot"),
            ("*.txt", "a.b.TXT"),
            ("a*b*c", "aXbXbc"),
            ("?b", "ab"),
            ("ä", "Ä"),
            ("", ""),
            ("a", "A"),
            ("**a", "a"),
        ] {
            assert!(is_in(expression, name), "{expression} {name}");
        }
        for (expression, name) in [
            ("*", ""),
            ("", "a"),
            ("?", "ab"),
            ("??", "a"),
            ("*.txt", "atxt"),
            ("a*b", "abc"),
        ] {
            assert!(!is_in(expression, name), "{expression} {name}");
        }
        assert!(!matches(&"a".into(), &"A".into(), |unit| unit));
    }

    #[test]
    fn dos_wildcards() {
        for (expression, name) in [
            ("<", "abc"),
            ("<.txt", "a.b.txt"),
            ("<\"", "abc"),
            ("<\"*", "a.b"),
            ("a>>>", "ab"),
            (">>>.txt", "ab.txt"),
            ("a\"", "a"),
            ("a\"", "a."),
            ("a\"b", "a.b"),
            ("<<", "abc"),
            ("<.<", "a.b.c"),
        ] {
            assert!(is_in(expression, name), "{expression} {name}");
        }
        for (expression, name) in [
            ("<", "a.b"),
            ("<.b", "a.b.c"),
            ("a>>", "abcd"),
            ("a\"b", "ab"),
            (">>", "a.b"),
            ("a\"", "ab"),
        ] {
            assert!(!is_in(expression, name), "{expression} {name}");
        }
        assert!(has_wildcard(&"a\"".into()) && !has_wildcard(&"a.b".into()));
    }

    /// A backtracking matcher would practically never finish.
    #[test]
    fn many_stars_take_no_exponential_time() {
        let expression = format!("{}b", "*a".repeat(200));
        assert!(!is_in(&expression, &"a".repeat(1000)));
        assert!(!is_in(&"<".repeat(300), &format!("{}.", "a".repeat(300))));
    }

    /// The specification's rules taken literally, with backtracking.
    fn naive(expression: &[u8], name: &[u8], at: usize) -> bool {
        let dot_later = name.iter().skip(at + 1).any(|byte| *byte == b'.');
        let here = name.get(at);
        let Some((first, rest)) = expression.split_first() else {
            return here.is_none();
        };
        let consume = |expression: &[u8]| here.is_some() && naive(expression, name, at + 1);
        match first {
            b'*' => naive(rest, name, at) || consume(expression),
            b'?' => consume(rest),
            b'<' => naive(rest, name, at) || ((here != Some(&b'.') || dot_later) && consume(expression)),
            b'>' if matches!(here, None | Some(b'.')) => naive(rest, name, at),
            b'>' => consume(rest),
            b'"' if here.is_none() => naive(rest, name, at),
            b'"' => here == Some(&b'.') && consume(rest),
            literal => here == Some(literal) && consume(rest),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn as_the_rules_say(expression in "[ab.*?<>\"]{1,7}", name in "[ab.]{1,7}") {
            let expected = expression == "*.*" || naive(expression.as_bytes(), name.as_bytes(), 0);
            prop_assert_eq!(is_in(&expression, &name), expected);
        }

        #[test]
        fn hostile_expressions_never_panic(expression in vec(any::<u16>(), 0..30), name in vec(any::<u16>(), 0..30)) {
            _ = matches(&Text::from_units(expression), &Text::from_units(name), upcase);
        }
    }
}
