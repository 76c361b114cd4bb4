//! UNC paths (`\\host\share`) for TREE_CONNECT and paths inside a share ([MS-FSCC] 2.1.5, [MS-SMB2]
//! 2.2.9 and 2.2.13).

use crate::Text;

/// Separates components.
const SEPARATOR: u16 = b'\\' as u16;
/// Longest share name in units ([MS-FSCC] 2.1.6: at most 80 characters).
const SHARE_UNITS_MAX: usize = 80;
/// Longest component in units ([MS-FSCC] 2.1.5).
const COMPONENT_UNITS_MAX: usize = 255;
/// Most components accepted from a peer: Windows' longest path (32,767 units) with one-character
/// names.
const COMPONENTS_MAX: usize = 16_384;

/// Reasons for rejecting a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathFault {
    /// The path does not have the form `\\host\share`.
    #[error("not of the form \\\\host\\share")]
    NotUnc,
    /// A component is empty: two backslashes in a row, or one at the end.
    #[error("a component is empty")]
    Empty,
    /// A component is `.` or `..`. The client has to resolve these ([MS-FSCC] 2.1.5.1).
    #[error("a component is . or ..")]
    Dots,
    /// The path contains a slash or NUL; or the host or share name contains a character it must not
    /// have.
    #[error("a character is not allowed")]
    Character,
    /// A component, or the whole path, is too long.
    #[error("too long")]
    TooLong,
}

/// The address of a share: host and share name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharePath {
    host: Text,
    share: Text,
}

impl SharePath {
    /// Creates the address from two names without backslashes. For an IPv6 host prefer the
    /// `ipv6-literal.net` form; most servers look at the share name only and accept any host.
    ///
    /// # Errors
    /// A name is empty, too long, or contains a separator or NUL.
    pub fn new(host: &str, share: &str) -> Result<Self, PathFault> {
        Self::from_parts(host.into(), share.into())
    }

    /// Parses `\\host\share`, the form in which TREE_CONNECT carries it.
    ///
    /// # Errors
    /// The path has another form, or a name in it is not valid.
    pub fn parse(path: &Text) -> Result<Self, PathFault> {
        let rest = path
            .units()
            .strip_prefix(&[SEPARATOR; 2])
            .ok_or(PathFault::NotUnc)?;
        let mut parts = rest.split(|unit| *unit == SEPARATOR);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(host), Some(share), None) => {
                Self::from_parts(Text::from_units(host.to_vec()), Text::from_units(share.to_vec()))
            }
            _ => Err(PathFault::NotUnc),
        }
    }

    fn from_parts(host: Text, share: Text) -> Result<Self, PathFault> {
        for (name, units_max) in [(&host, COMPONENT_UNITS_MAX), (&share, SHARE_UNITS_MAX)] {
            let is_bad = |unit: &u16| matches!(*unit, 0 | SEPARATOR) || *unit == u16::from(b'/');
            if name.is_empty() {
                return Err(PathFault::Empty);
            } else if name.units().len() > units_max {
                return Err(PathFault::TooLong);
            } else if name.units().iter().any(is_bad) {
                return Err(PathFault::Character);
            }
        }
        Ok(Self { host, share })
    }

    /// Returns the host name.
    pub fn host(&self) -> &Text {
        &self.host
    }

    /// Returns the share name.
    pub fn share(&self) -> &Text {
        &self.share
    }

    /// Returns the path `\\host\share`.
    pub fn to_text(&self) -> Text {
        let mut units = vec![SEPARATOR; 2];
        units.extend_from_slice(self.host.units());
        units.push(SEPARATOR);
        units.extend_from_slice(self.share.units());
        Text::from_units(units)
    }
}

/// Joins components into the path that CREATE carries: separated by backslashes, none at either
/// end. Components come from [`names::to_wire`](crate::names::to_wire).
///
/// # Panics
/// Panics if a component is empty or contains a backslash.
pub fn join<'a>(components: impl IntoIterator<Item = &'a Text>) -> Text {
    let mut units = Vec::new();
    for component in components {
        let is_name = !component.is_empty() && !component.units().contains(&SEPARATOR);
        assert!(is_name, "a component is one name");
        if !units.is_empty() {
            units.push(SEPARATOR);
        }
        units.extend_from_slice(component.units());
    }
    Text::from_units(units)
}

/// Splits a peer's path inside a share into components. The root (the empty path) has none.
///
/// # Errors
/// The path is not relative to the share's root, leaves it, or a component is not valid.
pub fn split(path: &Text) -> Result<Vec<Text>, PathFault> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let mut components = Vec::new();
    for component in path.units().split(|unit| *unit == SEPARATOR) {
        let is_dot = |unit: &u16| *unit == u16::from(b'.');
        if component.is_empty() {
            return Err(PathFault::Empty);
        } else if component.len() <= 2 && component.iter().all(is_dot) {
            return Err(PathFault::Dots);
        } else if component.contains(&0) || component.contains(&u16::from(b'/')) {
            return Err(PathFault::Character);
        } else if component.len() > COMPONENT_UNITS_MAX || components.len() == COMPONENTS_MAX {
            return Err(PathFault::TooLong);
        }
        components.push(Text::from_units(component.to_vec()));
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn shares() {
        let path = SharePath::new("nas", "Mein Archiv$").unwrap();
        assert_eq!(path.to_text(), Text::from(r"\\nas\Mein Archiv$"));
        assert_eq!(SharePath::parse(&path.to_text()), Ok(path));
        for (bad, fault) in [
            ("", PathFault::NotUnc),
            (r"\nas\a", PathFault::NotUnc),
            (r"\\nas", PathFault::NotUnc),
            (r"\\nas\", PathFault::Empty),
            (r"\\\a", PathFault::Empty),
            (r"\\nas\a\b", PathFault::NotUnc),
            (r"\\nas\a/b", PathFault::Character),
            ("\\\\nas\\a\0", PathFault::Character),
        ] {
            assert_eq!(SharePath::parse(&bad.into()), Err(fault), "{bad}");
        }
        assert_eq!(SharePath::new("a", &"b".repeat(81)), Err(PathFault::TooLong));
    }

    #[test]
    fn paths() {
        assert_eq!(split(&"".into()), Ok(vec![]));
        assert_eq!(
            split(&r"a\b c\d".into()),
            Ok(vec!["a".into(), "b c".into(), "d".into()])
        );
        for (bad, fault) in [
            (r"\a", PathFault::Empty),
            (r"a\", PathFault::Empty),
            (r"a\..\b", PathFault::Dots),
            (r".", PathFault::Dots),
            (r"a/../b", PathFault::Character),
            ("a\0", PathFault::Character),
        ] {
            assert_eq!(split(&bad.into()), Err(fault), "{bad}");
        }
        assert_eq!(split(&"x".repeat(256).as_str().into()), Err(PathFault::TooLong));
    }

    proptest! {
        #[test]
        fn paths_round_trip(names in vec("[a-z.]{3,10}", 0..6)) {
            let names: Vec<Text> = names.iter().map(|name| name.as_str().into()).collect();
            prop_assert_eq!(split(&join(&names)), Ok(names));
        }

        #[test]
        fn hostile_paths_never_panic(units in vec(prop_oneof![Just(SEPARATOR), Just(0x2E), any::<u16>()], 0..20)) {
            let text = Text::from_units(units);
            if let Ok(names) = split(&text) {
                prop_assert_eq!(join(&names), text.clone());
            }
            if let Ok(path) = SharePath::parse(&text) {
                prop_assert_eq!(path.to_text(), text);
            }
        }
    }
}
