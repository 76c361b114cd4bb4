//! Flags of `ropeway bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ropeway_lab::bench::cell::{Mode, Pattern};
use ropeway_lab::link::Rate;
use ropeway_vfs::CacheMode;

use super::{AFTER_HELP, ShareArgs, values};
use crate::failure::Failure;

/// `ropeway bench`.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = AFTER_HELP,
    override_usage = "ropeway bench [OPTIONS] <TARGET>\n       ropeway bench --compare <BEFORE> <AFTER>"
)]
pub(crate) struct BenchArgs {
    /// TARGET: a folder, a mount, or smb://user@host/share; with --compare BEFORE and AFTER
    #[arg(value_name = "TARGET", required = true, num_args = 1..=2)]
    pub(crate) paths: Vec<PathBuf>,
    /// A minute instead of a quarter of an hour: two file sizes, three record sizes, two rounds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print what would be done and how long it would take, and stop
    ///
    /// Looks at the target for a few seconds, for which it writes 32 MiB.
    #[arg(long)]
    pub(crate) estimate: bool,
    /// Compare the reports of two runs (bench.json, or its folder)
    ///
    /// Exit code 7 if a figure of AFTER is worse by more than the runs of either report differ.
    #[arg(long)]
    pub(crate) compare: bool,
    /// Options for what is measured.
    #[command(flatten)]
    pub(crate) what: BenchGridArgs,
    /// Options for how it is measured.
    #[command(flatten)]
    pub(crate) how: BenchRunArgs,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// What `bench` measures.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What")]
pub(crate) struct BenchGridArgs {
    /// File sizes, e.g. 64K,1G or 64K..4G:16 (default: that)
    ///
    /// A range goes up by a factor, 4 unless another one follows a colon, and includes its end.
    #[arg(long, value_name = "SIZES", value_parser = values::bench_file_sizes)]
    pub(crate) sizes: Option<SizeList>,
    /// Record sizes: how many bytes one request carries (default: 4K..16M)
    #[arg(long, value_name = "SIZES", value_parser = values::bench_record_sizes)]
    pub(crate) records: Option<SizeList>,
    /// Patterns: write, rewrite, read, reread, random-read, random-write, strided (default: all)
    ///
    /// `write` makes a new file, `rewrite` writes over an existing one. `read` finds nothing in the
    /// page cache, `reread` what was just read. Random orders go through all records once, by
    /// --seed. `strided` reads every 17th record, then the next ones, as iozone does.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) patterns: Vec<Pattern>,
    /// Modes: cached, fsync, direct (default: these), uncached
    ///
    /// `cached` uses the page cache as usual. `fsync` includes the flush at the end. `direct`
    /// bypasses the page cache. `uncached` drops the pages after use (RWF_DONTCACHE). A share has
    /// cached and fsync: this machine keeps nothing of it.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) modes: Vec<Mode>,
    /// Requests in flight (default: 1,16)
    ///
    /// One: pread(2) and pwrite(2), as iozone does. More: io_uring, or threads if ROPEWAY_IO=psync or
    /// there is no io_uring; requests in flight over the connections of a share.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) depth: Vec<u32>,
    /// Files to create, stat, list, rename and remove (default: 1000, --quick: 200); 0: none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) files: Option<u64>,
}

/// How `bench` measures.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "How")]
pub(crate) struct BenchRunArgs {
    /// Rounds; each goes through all cells (default: 3, --quick: 2)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: Option<u32>,
    /// Time after which nothing new begins (default: 15m, --quick: 1m)
    ///
    /// The time limit of a pass follows from it. If time runs out all the same, repeats are missing.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) budget: Option<Duration>,
    /// Time limit of a pass (default: by the budget, 0.1 to 5 s)
    ///
    /// A pass that has not finished its file then ends, and its cell is marked.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) pass_time: Option<Duration>,
    /// Use of the page cache: auto (default), keep, leave, direct
    ///
    /// `auto` drops the pages of a file before a pass that is to find nothing. `keep` never drops
    /// them, as iozone. `leave` is --modes uncached, `direct` is --modes direct.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = values::cache, hide_default_value = true)]
    pub(crate) cache: CacheMode,
    /// Drop all caches of this machine before such a pass, not only the file's (needs root)
    #[arg(long)]
    pub(crate) drop_caches: bool,
    /// Seed of random orders and of the data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Rate of the line to the server, e.g. 1gbit, if the interface does not tell
    ///
    /// `lab link` sets ROPEWAY_LINK_RATE for its command.
    #[arg(long, value_name = "RATE")]
    pub(crate) link_rate: Option<Rate>,
    /// Write bench.json, bench.html, bench.md and plots into this folder
    ///
    /// A run that was cut continues if the same command is repeated. The results of another run
    /// are kept under another name.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Record every operation in this file (see `ropeway trace`)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// A list of sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SizeList(pub(crate) Vec<u64>);

impl BenchArgs {
    /// Checks combinations of flags.
    ///
    /// # Errors
    /// Two of them cannot be used together, or a path is missing.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match (self.compare, self.paths.len()) {
            (true, 2) | (false, 1) => {}
            (true, _) => {
                return Err(Failure::usage("--compare needs two reports")
                    .hint("for example: ropeway bench --compare before after"));
            }
            (false, _) => {
                return Err(Failure::usage("bench measures one target")
                    .hint("run it once for each; `--compare BEFORE AFTER` compares their reports"));
            }
        }
        let is_chosen = matches!(self.how.cache, CacheMode::Leave | CacheMode::Direct);
        let contradictions = [
            (
                is_chosen && !self.what.modes.is_empty(),
                "--cache leave or direct",
                "--modes",
            ),
            (
                self.how.cache == CacheMode::Keep && self.how.drop_caches,
                "--cache keep",
                "--drop-caches",
            ),
            (
                self.estimate && self.how.report.is_some(),
                "--estimate",
                "--report",
            ),
        ];
        match contradictions.into_iter().find(|(both, ..)| *both) {
            Some((_, one, two)) => Err(Failure::usage(format!("{one} and {two} cannot be used together"))
                .hint("leave out one of them")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parsed(flags: &[&str]) -> Result<BenchArgs, String> {
        let line = ["x"].iter().chain(flags);
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        line.bench.check().map_err(|failure| failure.message)?;
        Ok(line.bench)
    }

    #[test]
    fn lists_and_ranges_are_read() {
        let args = parsed(&[
            ".",
            "--sizes=64K..1M:16,5M",
            "--records=512,4K",
            "--patterns=read,random-read",
            "--modes=direct",
            "--depth=1,64",
            "--files=0",
        ])
        .unwrap();
        let what = args.what;
        assert_eq!(what.sizes, Some(SizeList(vec![64 << 10, 1 << 20, 5 << 20])));
        assert_eq!(what.records, Some(SizeList(vec![512, 4096])));
        assert_eq!(what.patterns, [Pattern::Read, Pattern::RandomRead]);
        assert_eq!((what.depth, what.files), (vec![1, 64], Some(0)));
    }

    #[test]
    fn bad_values_and_combinations_are_refused() {
        for bad in [
            &[".", "--sizes=1"][..],
            &[".", "--records=100"],
            &[".", "--records=1G"],
            &[".", "--depth=0"],
            &[".", "--depth=2000"],
            &[".", "--modes=fast"],
            &[".", "--runs=0"],
            &[".", "--cache=direct", "--modes=cached"],
            &[".", "--cache=keep", "--drop-caches"],
            &[".", "--estimate", "--report=x"],
            &[".", "other"],
            &["--compare", "one"],
            &[],
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
        assert!(parsed(&["--compare", "one", "two"]).is_ok());
    }
}
