//! Flags and `-o` as options of a mount.

use std::path::PathBuf;

use ropeway_mount::{MountOptions, View};

use crate::args::{self, BoostArgs, MountArgs};
use crate::failure::Failure;

/// Options that the kernel takes.
const KERNEL: [&str; 11] = [
    "dev", "nodev", "suid", "nosuid", "exec", "noexec", "atime", "noatime", "sync", "async", "dirsync",
];

/// Options that mount(8) and systemd use themselves, and what is so in any case.
const IGNORED: [&str; 20] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "relatime",
    "norelatime",
    "strictatime",
    "diratime",
    "nodiratime",
    "default_permissions",
    "silent",
    "loud",
    "auto_unmount",
];

/// Most threads (a guess).
const THREADS_MAX: usize = 256;

/// Returns the options; the source's name is not among them.
pub(super) fn of(args: &MountArgs) -> Result<MountOptions, Failure> {
    let mut options = MountOptions {
        read_only: args.read_only,
        allow_other: args.allow_other,
        view: View {
            user: args.uid,
            group: args.gid,
            umask: args.umask.unwrap_or(0),
        },
        ..MountOptions::default()
    };
    for option in args.options.iter().flat_map(|list| list.split(',')) {
        set(&mut options, option.trim())?;
    }
    Ok(options)
}

/// Returns the files with user and password that `-o credentials=FILE` names.
pub(super) fn credentials(args: &MountArgs) -> Vec<PathBuf> {
    let all = args.options.iter().flat_map(|list| list.split(','));
    all.filter_map(|option| option.trim().strip_prefix("credentials="))
        .map(PathBuf::from)
        .collect()
}

/// Returns the flags of the cache, with the folder that `-o boost=DIR` names.
///
/// # Errors
/// `-o offline_reads=TIME` or `-o prefetch=WHEN` is wrong.
pub(super) fn boost(args: &MountArgs) -> Result<BoostArgs, Failure> {
    let all = args.options.iter().flat_map(|list| list.split(','));
    let named = all
        .clone()
        .filter_map(|option| option.trim().strip_prefix("boost="))
        .next_back();
    let mut boost = args.boost.clone();
    boost.boost = boost.boost.or_else(|| named.map(PathBuf::from));
    let prefetch = all
        .clone()
        .filter_map(|option| option.trim().strip_prefix("prefetch="))
        .next_back();
    if let (None, Some(given)) = (boost.prefetch, prefetch) {
        let parsed = args::prefetch(given);
        boost.prefetch = Some(parsed.map_err(|what| wrong(&format!("prefetch={given}"), &what))?);
    }
    let offline = all
        .filter_map(|option| option.trim().strip_prefix("offline_reads="))
        .next_back();
    if let (None, Some(given)) = (boost.offline_reads, offline) {
        let parsed = args::offline_reads(given);
        boost.offline_reads = Some(parsed.map_err(|what| wrong(&format!("offline_reads={given}"), &what))?);
    }
    Ok(boost)
}

/// Returns the file to record in, which `-o record=FILE` may name too.
pub(super) fn record(args: &MountArgs) -> Option<PathBuf> {
    let all = args.options.iter().flat_map(|list| list.split(','));
    let mut named = all.filter_map(|option| option.trim().strip_prefix("record="));
    let named = named.next_back();
    args.record.clone().or_else(|| named.map(PathBuf::from))
}

fn set(options: &mut MountOptions, option: &str) -> Result<(), Failure> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    match name {
        "ro" => options.read_only = true,
        "allow_other" => options.allow_other = true,
        "nonempty" => options.nonempty = true,
        "close" => {
            options.late_close = match value {
                "now" => false,
                "later" => true,
                _ => return Err(wrong(option, "expected now or later")),
            };
        }
        "nopassthrough" => options.passthrough = false,
        "uid" => options.view.user = Some(number(option, value)?),
        "gid" => options.view.group = Some(number(option, value)?),
        "umask" => {
            options.view.umask = args::umask(value).map_err(|what| wrong(option, &what))?;
        }
        "threads" => {
            options.threads = match number(option, value)? as usize {
                threads @ 1..=THREADS_MAX => threads,
                _ => return Err(wrong(option, &format!("expected 1 to {THREADS_MAX}"))),
            };
        }
        name if KERNEL.contains(&name) => options.kernel.push(name.to_owned()),
        "" | "comment" | "fsname" | "subtype" | "credentials" | "boost" | "offline_reads" | "prefetch"
        | "record" => {}
        name if IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-") => {}
        _ => return Err(wrong(option, "there is no such option")),
    }
    Ok(())
}

fn number(option: &str, value: &str) -> Result<u32, Failure> {
    value.parse().map_err(|_| wrong(option, "expected a number"))
}

fn wrong(option: &str, what: &str) -> Failure {
    Failure::usage(format!("wrong mount option {option}: {what}"))
        .hint("`ropeway mount --help` lists the options")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        mount: MountArgs,
    }

    fn arguments(given: &str) -> MountArgs {
        Command::parse_from(["mount", "/a", "/b", "--uid", "3", "-o", given]).mount
    }

    fn options(given: &str) -> Result<MountOptions, Failure> {
        of(&arguments(given))
    }

    #[test]
    fn credentials_come_from_options_too() {
        let args = arguments("ro,credentials=/etc/a,credentials=/etc/b");
        assert_eq!(
            credentials(&args),
            [PathBuf::from("/etc/a"), PathBuf::from("/etc/b")]
        );
        assert!(of(&args).unwrap().read_only);
    }

    #[test]
    fn the_folder_of_the_cache_comes_from_options_too() {
        let folder = |given| boost(&arguments(given)).unwrap().boost;
        assert_eq!(folder("ro,boost=/fast/dir"), Some(PathBuf::from("/fast/dir")));
        assert_eq!(folder("ro"), None);
        assert_eq!(
            record(&arguments("record=/a/day,ro")),
            Some(PathBuf::from("/a/day"))
        );
        assert_eq!(record(&arguments("ro")), None);
        let offline = |given| boost(&arguments(given)).map(|boost| boost.offline_reads);
        assert_eq!(offline("ro").unwrap(), None);
        assert_eq!(
            offline("prefetch=off,offline_reads=off,boost=/d").unwrap(),
            Some(args::OfflineReads::Off)
        );
        let minute = args::OfflineReads::For(std::time::Duration::from_secs(60));
        assert_eq!(offline("offline_reads=1m").unwrap(), Some(minute));
        assert_eq!(offline("offline_reads=25h").unwrap_err().code, 1);
    }

    #[test]
    fn options_of_fstab_are_read() {
        let all = options("rw,uid=1000,umask=022,x-systemd.automount,_netdev,noatime,threads=4").unwrap();
        assert_eq!(
            (all.view.user, all.view.umask, all.threads),
            (Some(1000), 0o022, 4)
        );
        assert_eq!(all.kernel, ["noatime"]);
        assert!(options("ro,allow_other,nonempty").unwrap().read_only);
        assert_eq!(options("").unwrap().view.user, Some(3));
        let all = options("close=later,nopassthrough").unwrap();
        assert!(all.late_close && !all.passthrough);
        assert!(!options("close=later,close=now").unwrap().late_close);
        for wrong in ["big", "close=never", "close", "uid=x", "threads=0", "umask=9"] {
            assert_eq!(options(wrong).unwrap_err().code, 1, "{wrong}");
        }
    }
}
