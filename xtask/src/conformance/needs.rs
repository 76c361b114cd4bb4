//! What some suites need besides a server with a share: flags of the server, a file, a snapshot, options.

/// Name of the file that some suites look for.
pub(super) const FILE: &str = "testfile";
/// Token of the snapshot.
const SNAPSHOT: &str = "@GMT-2026.11.26-04.25.00";

/// What a suite needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Flags of `serve`.
    pub(super) flags: &'static [&'static str],
    /// Options of smbtorture.
    pub(super) options: &'static [&'static str],
    /// Whether there is a file [`FILE`] in the share.
    pub(super) file: bool,
    /// Name of the snapshot of the share, which has such a file.
    pub(super) snapshot: Option<&'static str>,
    /// Names of further shares of the folder, where the share is to be continuously available; those
    /// that begin with `ca` are, too.
    pub(super) available: Option<&'static [&'static str]>,
    /// Seconds that it takes, if that is more than the limit of other suites.
    pub(super) seconds: u64,
}

impl Needs {
    /// Returns what a suite needs, by its full name.
    pub(super) fn of(suite: &str) -> Self {
        let plain = Self {
            // As in the measurements of Samba: each suite decides whether it signs.
            flags: &["--sign", "offered"],
            options: &[],
            file: false,
            snapshot: None,
            available: None,
            seconds: 0,
        };
        match suite {
            // Samba lets anonymous users in, at IPC$, where nothing else is said.
            "smb2.session" => Self {
                flags: &["--sign", "offered", "--anonymous"],
                ..plain
            },
            "smb2.session-require-signing" => Self {
                flags: &["--sign", "required"],
                ..plain
            },
            "smb2.set-sparse-ioctl" => Self {
                options: &["torture:filename=testfile", "torture:set_sparse=1"],
                file: true,
                ..plain
            },
            "smb2.zero-data-ioctl" => Self {
                options: &[
                    "torture:filename=testfile",
                    "torture:offset=4096",
                    "torture:beyond_final_zero=8192",
                ],
                file: true,
                ..plain
            },
            "smb2.twrp" => Self {
                options: &[
                    "torture:twrp_snapshot=@GMT-2026.11.26-04.25.00",
                    "torture:twrp_file=testfile",
                ],
                snapshot: Some(SNAPSHOT),
                ..plain
            },
            "smb2.persistent-open" => Self {
                // Names that Samba's own tests have. What is skipped needs a share that scales out or a
                // cluster; of the next suite also two tests that are switched off, or for Samba alone.
                available: Some(&["ca_fo", "ca_fo_max_rwh", "fo"]),
                ..plain
            },
            // It waits a second or more in each of some five hundred cases.
            "smb2.persistent-open-reconnect-contended" => Self {
                available: Some(&[]),
                seconds: 1200,
                ..plain
            },
            // One test of each is about persistent handles.
            "smb2.replay" | "smb2.durable-v2-open" => Self {
                available: Some(&[]),
                ..plain
            },
            _ => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_name_the_snapshot_and_the_file() {
        let needs = Needs::of("smb2.twrp");
        let all = needs.options.join(" ");
        assert!(all.contains(SNAPSHOT) && all.contains(FILE), "{all}");
        assert!(!Needs::of("smb2.lock").file);
    }
}
