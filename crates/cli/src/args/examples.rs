//! The whole command line: clap's commands, with examples below their help.
//!
//! A test parses every example.

use clap::{CommandFactory, builder::StyledStr};

use super::Cli;

/// An example, and what it does.
type Example = (&'static str, &'static str);

/// Commands and their examples.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "copy",
        &[
            (
                "ropeway copy photos /mnt/stick",
                "makes /mnt/stick/photos; run it again to resume",
            ),
            (
                "ropeway copy photos smb://ann@nas/backup --verify",
                "to a share, and reads it back",
            ),
            (
                "ropeway copy smb://ann@nas/data/2026 . --exclude *.tmp",
                "from a share, without *.tmp",
            ),
            (
                "ropeway copy -T photos /mnt/stick/album --dry-run",
                "shows what would be copied",
            ),
        ],
    ),
    (
        "mirror",
        &[
            (
                "ropeway mirror photos /mnt/stick/photos --dry-run",
                "shows what would be copied and deleted",
            ),
            (
                "ropeway mirror photos smb://ann@nas/backup/photos",
                "asks before it deletes",
            ),
            (
                "ropeway mirror photos /mnt/stick/photos -y --max-delete 5%",
                "for scripts",
            ),
        ],
    ),
    (
        "check",
        &[
            (
                "ropeway check photos /mnt/stick/photos",
                "compares sizes, times and attributes",
            ),
            (
                "ropeway check photos smb://ann@nas/backup/photos --checksum",
                "compares every byte",
            ),
            (
                "ropeway check photos /mnt/stick/photos --tui",
                "shows the differences side by side, and copies those that you choose",
            ),
            (
                "ropeway check photos /mnt/stick/photos --json",
                "a JSON line for each difference",
            ),
        ],
    ),
    (
        "ls",
        &[
            ("ropeway ls smb://ann@nas/", "the shares of a server"),
            (
                "ropeway ls -l smb://ann@nas/backup",
                "with kind, permissions, size and time",
            ),
            (
                "ropeway ls -R /mnt/stick --json",
                "all folders below, for scripts",
            ),
        ],
    ),
    (
        "stat",
        &[
            ("ropeway stat photos/a.jpg", "everything that is known of a file"),
            ("ropeway stat smb://ann@nas/backup/a.jpg", "on a share"),
            ("ropeway stat photos --json", "for scripts"),
        ],
    ),
    (
        "mkdir",
        &[
            ("ropeway mkdir /mnt/stick/photos", "makes a folder"),
            ("ropeway mkdir smb://ann@nas/backup/photos", "on a share"),
            (
                "ropeway mkdir -p smb://ann@nas/backup/2026/11",
                "and the folders above it",
            ),
        ],
    ),
    (
        "rm",
        &[
            ("ropeway rm smb://ann@nas/backup/a.jpg", "removes a file"),
            (
                "ropeway rm -r smb://ann@nas/backup/2019",
                "counts what is in the folder, and asks",
            ),
            (
                "ropeway rm -r -n smb://ann@nas/backup/2019",
                "shows what would be removed",
            ),
        ],
    ),
    (
        "mv",
        &[
            (
                "ropeway mv smb://ann@nas/data/a.txt smb://ann@nas/data/b.txt",
                "renames a file at the server",
            ),
            (
                "ropeway mv /mnt/stick/a.txt /mnt/stick/old",
                "moves it into a folder",
            ),
            (
                "ropeway mv -T /mnt/stick/new /mnt/stick/album",
                "never moves into a folder",
            ),
        ],
    ),
    (
        "login",
        &[
            (
                "ropeway login smb://ann@nas",
                "asks for the password, tries and keeps it",
            ),
            ("ropeway login smb://ann@nas --keep-for 8h", "for a working day"),
            ("ropeway login --list", "whose passwords are kept"),
        ],
    ),
    (
        "logout",
        &[
            ("ropeway logout smb://ann@nas", "forgets one password"),
            ("ropeway logout --all", "forgets all of them"),
            ("ropeway logout smb://ann@nas --json", "for scripts"),
        ],
    ),
    (
        "serve",
        &[
            ("ropeway serve photos", "shares a folder with this machine only"),
            (
                "ropeway serve photos=/srv/photos:ro --listen 0.0.0.0:4450",
                "read-only, with the network",
            ),
            #[cfg(feature = "smb1")]
            (
                "ropeway serve --smb1 --listen 192.0.2.7 scans",
                "old scanners, too, on a network of their own",
            ),
            ("ropeway serve user add ann", "adds a user; asks for the password"),
            (
                "ropeway serve smb://ann@far/data --boost /flash",
                "a near server for a far one",
            ),
        ],
    ),
    (
        "mount",
        &[
            (
                "ropeway mount smb://ann@nas/photos /mnt/photos",
                "ends with: umount /mnt/photos",
            ),
            (
                "ropeway mount smb://ann@nas/photos /mnt/photos --boost /flash",
                "with a cache",
            ),
            (
                "ropeway mount /srv/slow /mnt/slow --read-only",
                "a folder, without changes",
            ),
        ],
    ),
    (
        "boost",
        &[
            (
                "ropeway boost test /mnt/stick --source smb://ann@nas/photos",
                "is it fast enough?",
            ),
            (
                "ropeway boost create /mnt/stick/boost --size 64G",
                "makes a cache",
            ),
            (
                "ropeway mount smb://ann@nas/photos /mnt/photos --boost /mnt/stick/boost",
                "uses it",
            ),
            (
                "ropeway boost learn /mnt/stick/boost monday",
                "teaches it from a recording",
            ),
            ("ropeway boost status /mnt/stick/boost", "shows it"),
        ],
    ),
    (
        "jobs",
        &[
            ("ropeway jobs", "lists unfinished jobs"),
            (
                "ropeway jobs resume 3f2a",
                "runs that job again with the same flags",
            ),
            ("ropeway jobs rm 3f2a", "forgets it and removes its leftovers"),
            (
                "ropeway jobs sweep -n /mnt/stick",
                "lists leftovers of killed runs by any user",
            ),
            ("ropeway jobs sweep smb://ann@nas/data", "removes them"),
        ],
    ),
    (
        "trace",
        &[
            ("ropeway copy photos /mnt/stick --trace t", "records a run"),
            (
                "ropeway trace t --summary",
                "operations by kind: count, bytes, times",
            ),
            ("ropeway trace t --kind write --longer-than 10ms", "slow writes"),
        ],
    ),
    (
        "dirty",
        &[
            ("ropeway dirty", "every device once"),
            ("ropeway dirty --watch", "again every second, in place"),
            (
                "ropeway dirty /media/stick --by file",
                "the dirty files of that device, also closed ones",
            ),
            (
                "ropeway dirty drain /media/stick",
                "waits until it is safe to unplug",
            ),
        ],
    ),
    (
        "bench",
        &[
            (
                "ropeway bench /mnt/stick --quick",
                "a folder's device, in minutes",
            ),
            (
                "ropeway bench smb://ann@nas/photos --report before",
                "a share; keeps the figures in a folder",
            ),
            (
                "ropeway bench . --sizes 1G --records 4K --patterns random-read --modes direct --depth 1,16,64",
                "one question",
            ),
        ],
    ),
    (
        "fleet",
        &[
            (
                "ropeway fleet submit /srv/data /mnt/nas/data",
                "makes a job; copies nothing itself",
            ),
            (
                "ropeway fleet work /mnt/nas/data",
                "works until it is complete; start it on many machines",
            ),
            (
                "ropeway fleet work smb://ann@nas/backup/data --source smb://ann@old/data",
                "with other names for the ends",
            ),
            (
                "ropeway fleet status /mnt/nas/data --failures",
                "what failed, and why",
            ),
            ("ropeway fleet resume /mnt/nas/data", "tries that again"),
        ],
    ),
    (
        "top",
        &[
            ("ropeway top", "every running ropeway of the user"),
            ("ropeway top --once", "a table"),
            ("ropeway top --once --json", "for scripts"),
        ],
    ),
    (
        "demo",
        &[
            ("ropeway demo", "copy, kill -9, resume, verify, compare"),
            ("ropeway demo --dir /mnt/stick", "on another device"),
            ("ropeway demo --keep --seed 2", "another tree, which stays"),
        ],
    ),
    (
        "lab",
        &[
            ("ropeway lab list", "the published experiments"),
            (
                "ropeway lab link --rtt 75ms --rate 155mbit -- rsync -a photos far::data",
                "over a line",
            ),
            ("ropeway lab quick", "a published table again, in a few minutes"),
        ],
    ),
];

/// Commands whose short help names the flags of shares in one line.
const SMALL: &[&str] = &["ls", "stat", "mkdir", "rm", "mv", "login", "logout"];

/// Begin of the heading above the flags of shares.
const SHARES: &str = "Shares (";

/// Returns the commands of the program, with their examples: for help, manual pages and completions.
/// To parse a command line, [`Cli`] alone will do.
pub(crate) fn command() -> clap::Command {
    EXAMPLES.iter().fold(Cli::command(), |command, (name, examples)| {
        command.mut_subcommand(name, |sub| with_examples(sub, examples, SMALL.contains(name)))
    })
}

fn with_examples(mut command: clap::Command, examples: &[Example], is_small: bool) -> clap::Command {
    let width = examples
        .iter()
        .map(|(line, _)| line.len())
        .filter(|width| *width < 60)
        .max();
    let width = width.unwrap_or(0);
    let lines: String = examples
        .iter()
        .map(|(line, what)| format!("\n  {line:width$}  {what}"))
        .collect();
    let examples = format!("Examples:{lines}");
    let below = command.get_after_long_help().map(StyledStr::to_string);
    let long = below.map_or_else(|| examples.clone(), |below| format!("{examples}\n\n{below}"));
    let mut short = examples;
    if is_small {
        let shares = |arg: &clap::Arg| {
            arg.get_help_heading()
                .is_some_and(|heading| heading.starts_with(SHARES))
        };
        short =
            format!("Shares: --credentials, --auth, --encrypt… as for `copy` (--help lists them)\n\n{short}");
        command = command.mut_args(|arg| {
            if shares(&arg) {
                arg.hide_short_help(true)
            } else {
                arg
            }
        });
    }
    command.after_help(short).after_long_help(long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn every_command_has_three_examples() {
        for sub in Cli::command().get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let found = EXAMPLES.iter().find(|(name, _)| *name == sub.get_name());
            let count = found.map_or(0, |(_, examples)| examples.len());
            assert!(count >= 3, "{} has {count} examples", sub.get_name());
        }
    }

    #[test]
    fn every_example_can_be_typed() {
        for (name, examples) in EXAMPLES {
            for (line, _) in *examples {
                let parsed = Cli::try_parse_from(line.split(' '));
                assert!(parsed.is_ok(), "{name}: {line}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn small_commands_name_the_flags_of_shares_in_one_line() {
        let mut all = command();
        let list = all.find_subcommand_mut("ls").unwrap();
        assert!(!list.render_help().to_string().contains("--tcp-window"));
        assert!(list.render_long_help().to_string().contains("--tcp-window"));
    }
}
