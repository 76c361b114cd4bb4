//! The value of a share: `[NAME=]DIR[:ro][:encrypt][:timemachine][:bin][:snapshots][:ca]`, where DIR may be the URL of a far share.

use std::path::PathBuf;

use ropeway_plan::filter::parse_size;

/// Maximum length of a share's name in UTF-16 units, as on Windows (`NNLEN`).
const NAME_UNITS_MAX: usize = 80;

/// A folder or a far share to share, as it is written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareSpec {
    /// Name of the share; `None` for the folder's own name.
    pub(crate) name: Option<String>,
    /// The folder or URL as given.
    pub(crate) folder: PathBuf,
    /// Its options.
    pub(crate) options: ShareOptions,
}

/// What follows the folder of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareOptions {
    /// Whether clients cannot change anything.
    pub(crate) read_only: bool,
    /// Whether only clients that encrypt may connect.
    pub(crate) encrypt: bool,
    /// Whether Macs are told that it takes their backups.
    pub(crate) time_machine: bool,
    /// Whether handles survive the server (`:ca`, continuously available).
    pub(crate) available: bool,
    /// Whether deleted files are kept.
    pub(crate) bin: Option<BinSpec>,
    /// Where the snapshots lie that clients may look at.
    pub(crate) snapshots: Option<SnapshotSpec>,
}

/// Where the snapshots of a folder lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotSpec {
    /// Where ZFS or snapper keep them: `:snapshots`.
    Found,
    /// Here, with `*` for their names: `:snapshots=/data/.snapshots/*/snapshot`.
    Pattern(PathBuf),
}

impl SnapshotSpec {
    /// Parses what follows `snapshots`: nothing, or `=` with a path. `None` for anything else.
    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('=') {
            None => text.is_empty().then_some(Self::Found),
            Some(path) => (!path.is_empty()).then(|| Self::Pattern(path.into())),
        }
    }
}

/// How long and how many deleted files are kept, as far as it is said: `:bin=30d,20G`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BinSpec {
    /// Days.
    pub(crate) days: Option<u32>,
    /// Bytes.
    pub(crate) bytes: Option<u64>,
}

impl BinSpec {
    /// Parses what follows `bin`: nothing, or `=` with days, a size, or both. `None` for anything else.
    fn parse(text: &str) -> Option<Self> {
        let mut spec = Self::default();
        if text.is_empty() {
            return Some(spec);
        }
        for part in text.strip_prefix('=')?.split(',') {
            // `30` could be days, and is 30 bytes as a size.
            if part.ends_with(|last: char| last.is_ascii_digit()) {
                return None;
            }
            let days = part.strip_suffix('d').and_then(|days| days.parse().ok());
            match days {
                Some(days) if spec.days.is_none() => spec.days = Some(days),
                None if spec.bytes.is_none() => spec.bytes = Some(parse_size(part).ok()?),
                _ => return None,
            }
        }
        Some(spec)
    }
}

impl ShareSpec {
    /// Parses a share. The folder need not exist.
    ///
    /// # Errors
    /// There is no folder, or the name is not valid for a share.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = match text.split_once('=') {
            // In `photos:bin=30d` the sign belongs to the option.
            Some((name, rest)) if !name.is_empty() && !name.contains(['/', ':']) => (Some(name), rest),
            _ => (None, text),
        };
        let (folder, options) = without_options(rest);
        if folder.is_empty() {
            return Err("the folder is missing; write NAME=DIR or DIR".to_owned());
        }
        if let Some(name) = name {
            check_share_name(name).map_err(|why| format!("{name:?} cannot be the name of a share: {why}"))?;
        }
        Ok(Self {
            name: name.map(str::to_owned),
            folder: folder.into(),
            options,
        })
    }
}

/// Splits the folder from its options (`:ro`); an empty option ends the options.
fn without_options(text: &str) -> (&str, ShareOptions) {
    let (mut folder, mut options) = (text, ShareOptions::default());
    while let Some((before, option)) = folder.rsplit_once(':') {
        match option {
            "ro" => options.read_only = true,
            "encrypt" => options.encrypt = true,
            "timemachine" => options.time_machine = true,
            "ca" => options.available = true,
            "" => return (before, options),
            _ => {
                let bin = option.strip_prefix("bin").and_then(BinSpec::parse);
                let snapshots = option.strip_prefix("snapshots").and_then(SnapshotSpec::parse);
                if bin.is_none() && snapshots.is_none() {
                    break;
                }
                options.bin = bin.or(options.bin);
                options.snapshots = snapshots.or(options.snapshots);
            }
        }
        folder = before;
    }
    (folder, options)
}

/// Checks whether a name is valid for a share; returns the reason if not.
pub(crate) fn check_share_name(name: &str) -> Result<(), &'static str> {
    /// Characters with a meaning in UNC paths, patterns and lists ([MS-FSCC] 2.1.6).
    const FORBIDDEN: &str = "\"/\\[]:|<>+=;,*?";
    /// Names that every server uses itself ([MS-SRVS] 3.1.1.7 refuses `PIPE` and `MAILSLOT` too).
    const RESERVED: [&str; 3] = ["IPC$", "PIPE", "MAILSLOT"];
    if name.is_empty() || name.trim() != name {
        return Err("it is empty, or has blanks at its start or end");
    }
    if name.encode_utf16().count() > NAME_UNITS_MAX {
        return Err("it is longer than 80 characters");
    }
    if name.chars().any(|c| c.is_control() || FORBIDDEN.contains(c)) {
        return Err("it must not contain \"/\\[]:|<>+=;,*?");
    }
    if name == "." || name == ".." || name.contains('\u{FFFD}') {
        return Err("clients cannot use such a name");
    }
    if RESERVED
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
    {
        return Err("it is reserved for the server");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_found_or_named() {
        let snapshots = |text| {
            let spec = ShareSpec::parse(text).unwrap();
            (spec.folder, spec.options.snapshots)
        };
        let folder = PathBuf::from("/srv");
        assert_eq!(
            snapshots("/srv:snapshots:ro"),
            (folder.clone(), Some(SnapshotSpec::Found))
        );
        let pattern = SnapshotSpec::Pattern("/srv/.s/*/snapshot".into());
        assert_eq!(
            snapshots("data=/srv:bin:snapshots=/srv/.s/*/snapshot"),
            (folder, Some(pattern))
        );
        for text in ["/srv:snapshots=", "/srv:snapshot"] {
            assert_eq!(snapshots(text), (text.into(), None));
        }
    }

    #[test]
    fn options_follow_the_folder() {
        for (text, expected) in [
            ("/srv", ("/srv", false, false)),
            ("/srv:ro", ("/srv", true, false)),
            ("/srv:encrypt:ro", ("/srv", true, true)),
            ("/srv:rw", ("/srv:rw", false, false)),
            ("/a:b:ro", ("/a:b", true, false)),
            ("/odd:ro:", ("/odd:ro", false, false)),
            ("/odd:ro::encrypt", ("/odd:ro", false, true)),
            ("/odd::", ("/odd:", false, false)),
            (
                "smb://ann@nas:4450/data:ro",
                ("smb://ann@nas:4450/data", true, false),
            ),
            ("smb://ann@nas:4450", ("smb://ann@nas:4450", false, false)),
        ] {
            let (folder, options) = without_options(text);
            assert_eq!((folder, options.read_only, options.encrypt), expected, "{text}");
            assert!(!options.time_machine, "{text}");
        }
    }

    #[test]
    fn a_share_may_be_for_backups() {
        let (folder, options) = without_options("/srv:timemachine:encrypt");
        assert_eq!(folder, "/srv");
        assert!(options.time_machine && options.encrypt && !options.read_only);
    }

    #[test]
    fn a_share_may_be_continuously_available() {
        let (folder, options) = without_options("/srv:ca:encrypt");
        assert_eq!((folder, options.available, options.encrypt), ("/srv", true, true));
        assert_eq!(
            without_options("/srv:cache"),
            ("/srv:cache", ShareOptions::default())
        );
    }

    #[test]
    fn deleted_files_may_be_kept() {
        let bin = |text: &str| without_options(text).1.bin.map(|bin| (bin.days, bin.bytes));
        assert_eq!(bin("/srv:bin"), Some((None, None)));
        assert_eq!(bin("/srv:bin=7d:ro"), Some((Some(7), None)));
        assert_eq!(bin("/srv:bin=7d,20G"), Some((Some(7), Some(20 << 30))));
        assert_eq!(bin("/srv:bin=1M,7d"), Some((Some(7), Some(1 << 20))));
        for other in [
            "/srv:bin=",
            "/srv:binary",
            "/srv:bin=7d,8d",
            "/srv:bin=many",
            "/srv:bin=1G,2G",
            "/srv:bin=-1d",
            "/srv:bin=30",
        ] {
            assert_eq!(
                without_options(other),
                (other, ShareOptions::default()),
                "{other}"
            );
        }
        let spec = ShareSpec::parse("photos:bin=7d").unwrap();
        assert_eq!((spec.name, spec.folder), (None, "photos".into()));
        let spec = ShareSpec::parse("p=photos:bin=7d").unwrap();
        assert_eq!((spec.name, spec.folder), (Some("p".to_owned()), "photos".into()));
    }

    #[test]
    fn a_name_precedes_the_folder() {
        let parts = |text: &str| ShareSpec::parse(text).map(|spec| (spec.name, spec.folder));
        assert_eq!(
            parts("Photos=/srv/a=b:ro"),
            Ok((Some("Photos".to_owned()), "/srv/a=b".into()))
        );
        assert_eq!(parts("./a=b"), Ok((None, "./a=b".into())));
        assert_eq!(
            parts("far=smb://ann@nas/a=b:encrypt"),
            Ok((Some("far".to_owned()), "smb://ann@nas/a=b".into()))
        );
        assert_eq!(parts("smb://nas/a=b"), Ok((None, "smb://nas/a=b".into())));
        for bad in ["", "x=", "x=:ro", "IPC$=/srv", ":ro"] {
            assert!(parts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        for bad in [
            "",
            " a",
            "ipc$",
            "Pipe",
            "a\\b",
            "a:b",
            "a\tb",
            "..",
            &"x".repeat(81),
        ] {
            assert!(check_share_name(bad).is_err(), "{bad}");
        }
        for good in ["a", "Ann's photos", "zoë", "hidden$", &"x".repeat(80)] {
            assert!(check_share_name(good).is_ok(), "{good}");
        }
    }
}
