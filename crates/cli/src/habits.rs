//! Commands and flags of cp, rsync, rclone and Robocopy, and what does the same here.
//!
//! The hint for an unknown flag comes from these tables. Clap's own guess is shown only if the flag
//! looks like a slip of the finger: for `--delete` it guesses `--dialect`.

/// Flags that copy and mirror follow without being asked.
const ALREADY_SO: &[&str] = &[
    "-a",
    "--archive",
    "-r",
    "-R",
    "--recursive",
    "-P",
    "--progress",
    "--partial",
    "--partial-dir",
    "-p",
    "--preserve",
    "-t",
    "--times",
    "--perms",
    "-o",
    "--owner",
    "-g",
    "--group",
    "-l",
    "--links",
    "-H",
    "--hard-links",
    "-A",
    "-X",
    "--xattrs",
    "-S",
    "--sparse",
    "--reflink",
    "--append",
    "--append-verify",
    "--info",
    "--stats",
    "--human-readable",
    "-d",
    "--dirs",
    "--create-empty-src-dirs",
    "--fsync",
    "--crtimes",
    "-N",
    "-U",
    "--atimes",
    "--specials",
    "--delay-updates",
];

/// Other flags, and what to write instead.
const INSTEAD: &[(&[&str], &str)] = &[
    (
        &[
            "--delete",
            "--del",
            "--delete-after",
            "--delete-before",
            "--delete-during",
            "--delete-delay",
        ],
        "`ropeway mirror SRC DST` also deletes what SRC does not have",
    ),
    (&["--remove-source-files", "--remove-source"], "write --move"),
    (
        &["-z", "--compression", "--compress-level", "-C"],
        "write --compress",
    ),
    (
        &["-i", "--itemize-changes", "--list-only"],
        "-v lists what is done, -n only what would be done",
    ),
    (&["-I", "--ignore-times"], "write --force"),
    (&["--no-clobber"], "write --ignore-existing"),
    (&["--no-perms", "--no-p"], "write --no-mode"),
    (&["--no-o", "--no-g", "--no-group"], "write --no-owner"),
    (&["--suffix"], "write --backup=SUFFIX"),
    (&["--log-file"], "write --log FILE"),
    (&["--timeout-connect", "--contimeout"], "write --timeout TIME"),
    (
        &["--password-file"],
        "write --credentials FILE, with user=… and password=…",
    ),
    (
        &[
            "-j",
            "--jobs",
            "--threads",
            "--transfers",
            "--checkers",
            "--multi-thread-streams",
            "-W",
            "--whole-file",
        ],
        "leave it out: how much is in flight follows from what the ends can do",
    ),
    (
        &["-e", "--rsh", "--rsync-path"],
        "for another machine write smb://user@host/share/path",
    ),
    (
        &["--vfs-cache-mode"],
        "`ropeway mount SRC MNT --boost DIR` keeps a cache in DIR",
    ),
    (
        &["--daemon", "--daemon-timeout"],
        "mount goes to the background by itself; --foreground keeps it",
    ),
];

/// Commands of other programs, and what does the same here.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["sync", "robocopy"],
        "`ropeway mirror SRC DST` makes DST equal to SRC, deletions included",
    ),
    (
        &["cp", "rsync", "get", "put", "copyto", "xcopy"],
        "`ropeway copy SRC… DST` copies",
    ),
    (
        &["move", "moveto"],
        "`ropeway copy --move SRC… DST` moves, `ropeway mv` renames",
    ),
    (&["rename", "ren"], "`ropeway mv FROM TO` renames"),
    (
        &["diff", "compare", "cmp", "verify"],
        "`ropeway check SRC DST` compares, with --checksum the contents too",
    ),
    (&["dir", "list", "lsd", "lsf", "lsl"], "`ropeway ls PLACE` lists"),
    (
        &["del", "delete", "rmdir", "rd", "purge"],
        "`ropeway rm PLACE` removes, with -r whole folders",
    ),
    (&["md"], "`ropeway mkdir PLACE` makes a folder"),
    (&["share", "server"], "`ropeway serve DIR` shares a folder"),
    (
        &["umount", "unmount"],
        "`umount MNT` ends a mount; as an ordinary user `fusermount3 -u MNT`",
    ),
    (&["cache"], "`ropeway boost` makes and shows caches"),
];

/// Switches of Robocopy, and what to write instead.
const ROBOCOPY: &[(&[&str], &str)] = &[
    (
        &["MIR", "PURGE"],
        "`ropeway mirror SRC DST` makes DST equal to SRC, deletions included",
    ),
    (
        &["E", "S", "Z", "ZB", "B", "DCOPY", "COPY", "TIMFIX", "SJ", "SL"],
        "leave it out: it is already so",
    ),
    (
        &["MT"],
        "leave it out: how much is in flight follows from what the ends can do",
    ),
    (&["R"], "write --retries N"),
    (&["W"], "leave it out: pauses between tries grow by themselves"),
    (&["XD", "XF"], "write --exclude PATTERN for each name"),
    (&["IF"], "write --include PATTERN for each name"),
    (&["LOG", "LOG+", "UNILOG", "UNILOG+"], "write --log FILE"),
    (&["NP"], "write --no-progress"),
    (&["NFL", "NDL", "NJH", "NJS", "NS", "NC"], "write -q"),
    (&["V", "TEE", "FP", "TS"], "write -v"),
    (&["L"], "write -n"),
    (&["MOV", "MOVE"], "write --move"),
    (
        &["SEC", "COPYALL"],
        "write --acls for shares; local attributes are always kept",
    ),
    (&["XO"], "write --update"),
    (&["XC", "XN"], "write --ignore-existing"),
    (&["IS", "IT"], "write --force"),
    (&["FFT", "DST"], "write --modify-window 2s (or 1h)"),
    (&["MAX"], "write --max-size SIZE"),
    (&["MIN"], "write --min-size SIZE"),
    (&["MAXAGE"], "write --newer AGE"),
    (&["MINAGE"], "write --older AGE"),
    (&["IPG"], "write --bwlimit RATE"),
    (&["J"], "write --cache direct"),
    (&["XJ", "XJD", "XJF", "ETA", "COMPRESS"], "leave it out"),
];

/// Returns what does the same as an unknown flag of `command`.
pub(crate) fn flag(command: &str, flag: &str) -> Option<String> {
    let flag = flag.split('=').next().unwrap_or(flag);
    let moves = matches!(command, "copy" | "mirror");
    if moves && ALREADY_SO.contains(&flag) {
        return Some(format!("leave {flag} out: {command} always does this"));
    }
    let instead = find(INSTEAD, flag)?;
    match (command, flag) {
        ("mirror", flag) if flag.starts_with("--del") => Some(format!(
            "leave {flag} out: mirror always deletes what SRC does not have"
        )),
        _ => Some(instead.to_owned()),
    }
}

/// Returns what does the same as an unknown command.
pub(crate) fn command(name: &str) -> Option<&'static str> {
    find(COMMANDS, name)
}

/// Returns what does the same as a switch of Robocopy, which looks like a path: `/MIR`, `/R:3`.
pub(crate) fn robocopy(argument: &[u8]) -> Option<&'static str> {
    let switch = std::str::from_utf8(argument.strip_prefix(b"/")?).ok()?;
    let name = switch.split(':').next().unwrap_or(switch);
    find(ROBOCOPY, &name.to_ascii_uppercase())
}

/// Whether clap's guess for an unknown flag is worth showing: the flag begins like it, or differs from
/// it by one or two letters.
pub(crate) fn is_slip(given: &str, guess: &str) -> bool {
    let (given, guess) = (given.trim_start_matches('-'), guess.trim_start_matches('-'));
    let distance = strsim::osa_distance(given, guess);
    (given.len() > 1 && guess.starts_with(given)) || distance * 3 <= given.chars().count().min(6)
}

fn find(table: &[(&[&str], &'static str)], name: &str) -> Option<&'static str> {
    let mut rows = table.iter();
    rows.find(|(names, _)| names.contains(&name))
        .map(|(_, instead)| *instead)
}

/// Returns what to write instead of a flag that takes a value here and none elsewhere.
pub(crate) fn value(flag: &str) -> Option<&'static str> {
    flag.starts_with("--progress ").then_some(
        "the bar appears by itself: leave --progress out, or write --progress 30s for a plain line each 30 s",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn habits_are_answered() {
        for archive in [
            "-a",
            "--archive",
            "-r",
            "-P",
            "--progress",
            "--partial",
            "--info=progress2",
        ] {
            assert!(
                flag("copy", archive).is_some_and(|hint| hint.contains("always does this")),
                "{archive}"
            );
        }
        assert!(flag("copy", "--delete").is_some_and(|hint| hint.contains("ropeway mirror")));
        assert!(flag("mirror", "--delete").is_some_and(|hint| hint.contains("leave --delete out")));
        assert_eq!(flag("ls", "-r"), None);
        assert_eq!(flag("copy", "--unheard-of"), None);
        for (name, instead) in [
            ("sync", "mirror"),
            ("diff", "check"),
            ("compare", "check"),
            ("cp", "copy"),
        ] {
            assert!(command(name).is_some_and(|hint| hint.contains(instead)), "{name}");
        }
        for (switch, instead) in [
            ("/MIR", "mirror"),
            ("/E", "already so"),
            ("/Z", "already so"),
            ("/MT:8", "leave it out"),
            ("/r:3", "--retries"),
            ("/W:5", "pauses"),
            ("/XD", "--exclude"),
            ("/XF", "--exclude"),
            ("/LOG:a.txt", "--log"),
        ] {
            assert!(
                robocopy(switch.as_bytes()).is_some_and(|hint| hint.contains(instead)),
                "{switch}"
            );
        }
        for path in ["/mnt", "/MIR/a", "MIR", "/", "", "/e/", "/ü"] {
            assert_eq!(robocopy(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn a_guess_is_shown_for_a_slip_only() {
        for (given, guess) in [
            ("--verfy", "--verify"),
            ("--exlude", "--exclude"),
            ("--bw", "--bwlimit"),
            ("--jsno", "--json"),
        ] {
            assert!(is_slip(given, guess), "{given} {guess}");
        }
        for (given, guess) in [
            ("--delete", "--dialect"),
            ("-a", "--acls"),
            ("--rsh", "--trace"),
            ("--cats", "--acls"),
        ] {
            assert!(!is_slip(given, guess), "{given} {guess}");
        }
    }
}
