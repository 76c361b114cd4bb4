//! Flags of `boost`, and those that `mount` and `serve` share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ropeway_boost::Sequential;

use super::{AFTER_HELP, ShareArgs, values};

/// `ropeway boost`.
#[derive(Args, Clone, Debug)]
#[command(
    disable_help_subcommand = true,
    subcommand_value_name = "ACTION",
    after_long_help = AFTER_HELP
)]
pub(crate) struct BoostCommandArgs {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: BoostCommand,
}

/// Actions of `ropeway boost`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BoostCommand {
    /// Test whether a device is fast enough for a cache
    ///
    /// Reads 4 KB and writes 512 KB at random places of a temporary file in DIR, past the page
    /// cache, for about ten seconds. The device must reach 2.5 MB/s and 1.75 MB/s, and with
    /// --source must be faster than the source. Exit code 8 if it is refused. Nothing stays in DIR.
    #[command(after_long_help = AFTER_HELP)]
    Test(Box<BoostTestArgs>),
    /// Make a cache in an empty or new folder
    ///
    /// The whole size is taken at once, so that the cache is never short of space. The blocks in it
    /// are encrypted with a key beside them that only you can read.
    #[command(after_long_help = AFTER_HELP)]
    Create(BoostCreateArgs),
    /// Show hits, misses, and what was written to flash
    ///
    /// The figures are those of the mount that uses the cache, at most a second old, or those of
    /// the last one.
    #[command(after_long_help = AFTER_HELP)]
    Status(BoostStatusArgs),
    /// Teach a cache from a recording what will be asked of it
    ///
    /// `mount --record FILE` makes recordings. What the cache has learned already stays; learning one
    /// twice counts it twice. A mount with this cache then fetches what is usual from the beginning
    /// (see --prefetch). For example: ropeway boost learn /mnt/stick/boost monday
    #[command(after_long_help = AFTER_HELP)]
    Learn(BoostLearnArgs),
    /// Empty a cache that is not in use
    ///
    /// Its blocks cannot be read any more: the key is replaced. What was learned about their use is
    /// forgotten. The size stays.
    #[command(after_long_help = AFTER_HELP)]
    Clear(BoostClearArgs),
}

/// `ropeway boost test`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BoostTestArgs {
    /// Folder on the device
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Compare with random reads of this file, folder or share, which the cache should speed up
    ///
    /// Reads its largest files: those of the folder, and of folders in it until one has any.
    #[arg(long, value_name = "SRC")]
    pub(crate) source: Option<PathBuf>,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway boost create`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BoostCreateArgs {
    /// Empty or new folder, on the fast device
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Size, e.g. 64G (default: half of the free space, at most 32G)
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) size: Option<u64>,
}

/// `ropeway boost status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BoostStatusArgs {
    /// Folder of the cache
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Also show what would be fetched next and why, and how well that was known so far
    #[arg(long)]
    pub(crate) predict: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway boost learn`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BoostLearnArgs {
    /// Folder of the cache, which must not be in use
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The recording
    #[arg(value_name = "FILE")]
    pub(crate) recording: PathBuf,
}

/// `ropeway boost clear`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BoostClearArgs {
    /// Folder of the cache
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Only forget what was learned for --prefetch, and keep the blocks
    #[arg(long)]
    pub(crate) learned: bool,
}

/// Whether a source that is lost is replaced by the cache, and for how long at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfflineReads {
    /// Not at all.
    Off,
    /// For this time.
    For(Duration),
}

impl OfflineReads {
    /// Longest time: answers of the source are not kept longer.
    const MAX: Duration = Duration::from_secs(24 * 3600);

    /// Returns the time.
    pub(crate) fn bound(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::For(time) => Some(time),
        }
    }
}

impl Default for OfflineReads {
    /// Longer than a router or a line takes to come back, shorter than it takes until people at both
    /// ends have gone on with different versions of a document. A guess (docs/adr/0021).
    fn default() -> Self {
        Self::For(Duration::from_secs(600))
    }
}

/// Parses for how long a lost source is replaced by the cache.
pub(crate) fn offline_reads(given: &str) -> Result<OfflineReads, String> {
    match given {
        "off" => Ok(OfflineReads::Off),
        _ => match values::duration(given) {
            Ok(time) if time.is_zero() => Ok(OfflineReads::Off),
            Ok(time) if time <= OfflineReads::MAX => Ok(OfflineReads::For(time)),
            Ok(_) => Err("expected off, or at most 24h".to_owned()),
            Err(error) => Err(error),
        },
    }
}

/// A cache in front of a source.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Boost")]
pub(crate) struct BoostArgs {
    /// Keep what is read in a cache in this folder, on a device faster than the source
    ///
    /// An empty or new folder becomes a cache of the default size (see `boost create`). The cache
    /// stays after the end. If the device fails, the source serves alone.
    #[arg(long, value_name = "DIR")]
    pub(crate) boost: Option<PathBuf>,
    /// Keep files that are read in sequence: auto (default), always, never
    ///
    /// auto keeps them where the source delivers them slower than the device reads.
    #[arg(long, value_name = "WHEN", value_parser = sequential)]
    pub(crate) boost_sequential: Option<Sequential>,
    /// While the source does not answer, read what is in the cache, at most for this time; or off
    ///
    /// Files, attributes and listings are those that the source reported last. The time counts from
    /// the moment at which the source was lost (default 10m, at most 24h). What is not in the cache,
    /// and everything that writes or locks, waits for the source as ever.
    #[arg(long, value_name = "TIME|off", value_parser = offline_reads)]
    pub(crate) offline_reads: Option<OfflineReads>,
    /// Fetch what programs will probably read next into the cache: auto (default), off
    ///
    /// Learns which blocks, and which files of a program, follow each other, and what is used at
    /// which time of the day. Takes at most a fifth of the line, and nothing while programs keep it
    /// busy. Choose off on a metered line.
    #[arg(long, value_name = "WHEN", value_parser = prefetch)]
    pub(crate) prefetch: Option<Prefetch>,
    /// Fetch matching files ahead of need and keep them (repeatable)
    ///
    /// Patterns are those of `copy --exclude`; a folder's pattern takes all beneath it. Files are
    /// fetched while no program waits for the source, at most half the size of the cache.
    #[arg(long, value_name = "PATTERN", requires = "boost")]
    pub(crate) pin: Vec<String>,
    /// Ask for the names and attributes of matching files ahead of need (repeatable)
    #[arg(long, value_name = "PATTERN", requires = "boost")]
    pub(crate) pin_metadata: Vec<String>,
}

/// Whether what will probably be read next is fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Prefetch {
    /// Where predictions come true often enough.
    #[default]
    Auto,
    /// Not at all; nothing is learned either.
    Off,
}

/// Parses whether what will be read next is fetched.
pub(crate) fn prefetch(given: &str) -> Result<Prefetch, String> {
    match given {
        "auto" => Ok(Prefetch::Auto),
        "off" => Ok(Prefetch::Off),
        _ => Err("expected auto or off".to_owned()),
    }
}

/// Parses whether files read in sequence are kept.
fn sequential(given: &str) -> Result<Sequential, String> {
    match given {
        "auto" => Ok(Sequential::Auto),
        "always" => Ok(Sequential::Always),
        "never" => Ok(Sequential::Never),
        _ => Err("expected auto, always or never".to_owned()),
    }
}
