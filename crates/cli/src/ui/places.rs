//! Where a node lies at both ends, as a path or URL. Pure.

/// The place of one root of a job.
#[derive(Clone, Debug)]
pub(crate) struct RootPlace {
    /// The root at the source.
    pub(crate) source: String,
    /// Its path in events about the source.
    pub(crate) source_path: String,
    /// The root at the target; `None` if there is no second tree.
    pub(crate) target: Option<String>,
    /// Its path in events about the target.
    pub(crate) target_path: String,
}

/// The places of all roots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(pub(crate) Vec<RootPlace>);

/// A node at both ends, as far as that is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Both {
    pub(super) source: Option<String>,
    pub(super) target: Option<String>,
}

impl Places {
    /// Returns both places of a node with this path in an event about one end. The other end is not
    /// known for a name that may be written differently there.
    pub(super) fn both(&self, path: &str, on_source: bool) -> Both {
        let found = self.0.iter().map(|root| match on_source {
            true => (&root.source_path, Some(&root.source), root.target.as_ref()),
            false => (&root.target_path, root.target.as_ref(), Some(&root.source)),
        });
        let found = found.filter_map(|(prefix, own, other)| Some((below(path, prefix)?, own, other)));
        // The innermost root, where one lies in another.
        let Some((rest, own, other)) = found.min_by_key(|(rest, ..)| rest.len()) else {
            return Both::default();
        };
        let other = other.filter(|_| !is_mapped(rest)).map(|root| joined(root, rest));
        let own = own.map(|root| joined(root, rest));
        match on_source {
            true => Both {
                source: own,
                target: other,
            },
            false => Both {
                source: other,
                target: own,
            },
        }
    }
}

/// Returns the part of a path below another one.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let path = if path == "." { "" } else { path };
    if prefix.is_empty() || prefix == "." {
        return Some(path);
    }
    let rest = path.strip_prefix(prefix)?;
    match rest.is_empty() {
        true => Some(rest),
        false => rest.strip_prefix('/'),
    }
}

fn joined(base: &str, rest: &str) -> String {
    match rest.is_empty() {
        true => base.to_owned(),
        false => format!("{}/{rest}", base.trim_end_matches('/')),
    }
}

/// Whether a share and this machine may write one of the names differently.
fn is_mapped(path: &str) -> bool {
    let odd = |c: char| {
        c.is_control() || "\"*:<>?\\|\u{FFFD}".contains(c) || ('\u{E000}'..='\u{F8FF}').contains(&c)
    };
    path.chars().any(odd) || path.split('/').any(|name| name.ends_with(['.', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        let root = |name: &str, target: &str| RootPlace {
            source: format!("/data/{name}"),
            source_path: name.to_owned(),
            target: Some(format!("smb://ann@nas/share/{target}")),
            target_path: target.to_owned(),
        };
        Places(vec![root("photos", "backup/photos"), root("docs", "backup/docs")])
    }

    #[test]
    fn a_node_is_shown_at_both_ends() {
        let both = |path, on_source| {
            let both = places().both(path, on_source);
            (both.source.unwrap_or_default(), both.target.unwrap_or_default())
        };
        let source = "/data/photos/2026/IMG_0007.jpg".to_owned();
        let target = "smb://ann@nas/share/backup/photos/2026/IMG_0007.jpg".to_owned();
        assert_eq!(
            both("photos/2026/IMG_0007.jpg", true),
            (source.clone(), target.clone())
        );
        assert_eq!(both("backup/photos/2026/IMG_0007.jpg", false), (source, target));
        assert_eq!(both("docs", true).0, "/data/docs");
        assert_eq!(both("photos2/a", true), Default::default());
        // A name that a share cannot hold as it is.
        assert_eq!(
            both("photos/what?", true),
            ("/data/photos/what?".into(), String::new())
        );
    }

    #[test]
    fn a_root_that_is_the_whole_tree_has_no_prefix() {
        let root = RootPlace {
            source: "/".into(),
            source_path: String::new(),
            target: Some("/t".into()),
            target_path: ".".into(),
        };
        let both = Places(vec![root]).both("a", true);
        assert_eq!(
            (both.source.as_deref(), both.target.as_deref()),
            (Some("/a"), Some("/t/a"))
        );
    }
}
