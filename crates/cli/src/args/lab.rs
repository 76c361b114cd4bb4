//! Flags of `ropeway lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ropeway_lab::link::{Congestion, Rate};
use ropeway_lab::scenario::{Client, Direction, Server};
use ropeway_lab::work::Work;

use super::local::LocalCommand;
use super::{AFTER_HELP, LabCompareArgs, LabDocumentsArgs, LabPredictArgs, LabReportArgs, values};

/// `ropeway lab`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// The commands of the laboratory.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run a command over an emulated WAN link
    ///
    /// Creates two network namespaces joined by a delay line, runs COMMAND at the near end and
    /// returns its exit code. ROPEWAY_FAR holds the address of the far end, ROPEWAY_FAR_NETNS its
    /// namespace: `nsenter --net=$ROPEWAY_FAR_NETNS SERVER` runs a server there. Works as root, or
    /// in a user namespace that it creates. When COMMAND ends, every process left on either side is
    /// ended and both namespaces are removed.
    Link(Box<LinkArgs>),
    /// Run the measurements of a scenario
    ///
    /// SCENARIO is a TOML file or the name of a built-in scenario (`lab list`). It names links,
    /// works, directions, clients with servers, and the number of runs. Clients and servers that
    /// are not installed are left out, and the report names them. The report in --out is written
    /// after each run; the same command resumes with the missing runs.
    Run(LabFileArgs),
    /// Measure TR-3869: 52 to 1,000 Mbit/s, 32 and 75 ms, one file and 300, both ways
    ///
    /// Takes up to three hours. The report shows the published seconds next to the measured ones.
    Tr3869(LabNamedArgs),
    /// Measure lossy lines: 1 Gbit/s, 100 ms, 0.1, 1 and 3 % of loss, BBR and CUBIC apart
    ///
    /// Takes up to an hour and a half. Bare TCP is measured under the same loss, over 1, 4 and 16 connections,
    /// and the report shows the congestion control of both ends.
    Far(LabNamedArgs),
    /// Measure a tenth of TR-3869 over one link, in five minutes
    Quick(LabNamedArgs),
    /// List the built-in scenarios
    List(LabListArgs),
    /// Replay a recorded trace with predictions
    ///
    /// Prints hit ratio, precision, late requests and traffic of the cache with predictions, beside
    /// the cache without any, plain read-ahead, successors, S3-FIFO and the optimum of Belady.
    Predict(LabPredictArgs),
    /// Open the same documents day after day over a long line
    ///
    /// Run it over a line: `ropeway lab link --rtt 75ms --rate 622mbit -- ropeway lab documents`. A far
    /// server has documents in eight folders; each day the share is mounted with the cache of the day
    /// before, and all are opened and read in the same order. Shows how many first reads were answered
    /// without waiting for the line, with `mount --prefetch off` and `auto`. Needs root, as `mount` does
    /// in a namespace.
    Documents(LabDocumentsArgs),
    /// Labs for this machine's own devices.
    #[command(flatten)]
    Local(LocalCommand),
    /// Write the reports for a report.json again
    ///
    /// Shows the table and writes report.md, report.html, and each plot as SVG and PNG, as a lab
    /// does at its end. It works for a lab that was interrupted too.
    Report(LabReportArgs),
    /// Show what changed between two report.json files
    ///
    /// Lists the differences of machine, versions, settings, works and links first. Then, for each
    /// cell that both files have, it shows both medians, their ratio, and whether the change is
    /// larger than the spread of the runs on either side (and than 2 %, or 5 % where a side has one
    /// run). Exit code 7 if a cell is slower by more than that, or no longer has a run that counts.
    Compare(LabCompareArgs),
}

/// `ropeway lab run`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabFileArgs {
    /// A TOML file, or the name of a built-in scenario
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// How to run it.
    #[command(flatten)]
    pub(crate) how: LabRunArgs,
}

/// `ropeway lab tr3869` and the other built-in scenarios.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabNamedArgs {
    /// How to run it.
    #[command(flatten)]
    pub(crate) how: LabRunArgs,
}

/// How to run a scenario.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabRunArgs {
    /// Folder for the report; an unfinished report there is resumed [default: lab-NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Fraction of the works' full size, e.g. 0.1
    #[arg(long, value_name = "F")]
    pub(crate) scale: Option<f64>,
    /// Runs of each cell; the first one is discarded
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<u32>,
    /// Only these clients: ropeway, smbclient, rclone, rsync, cp
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) clients: Vec<Client>,
    /// Only these servers: ropeway, smbd, rsyncd
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) servers: Vec<Server>,
    /// Only these links, by their names in the scenario
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) links: Vec<String>,
    /// Use these works instead, e.g. file100mb or small3000
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) works: Vec<Work>,
    /// Only these directions: read, write
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) directions: Vec<Direction>,
    /// Time limit for the whole lab: repeats are dropped first, then cells
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) budget: Option<Duration>,
    /// Run slow links at once, up to this sum of rates; `off`: one link at a time
    #[arg(long, value_name = "RATE", value_parser = values::side_by_side)]
    pub(crate) side_by_side: Option<SideBySide>,
    /// Use TCP relays with delay and rate instead of packets; each result says so
    ///
    /// Chosen automatically where namespaces are forbidden.
    #[arg(long)]
    pub(crate) relay: bool,
    /// Keep the trace of ropeway's first run of each cell, in the folder traces of the report
    ///
    /// `ropeway trace FILE` shows them, with connections and rings.
    #[arg(long)]
    pub(crate) keep_traces: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway lab list`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabListArgs {
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Limit on links that run at once: the sum of their rates, or `None` for one link at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SideBySide(pub(crate) Option<Rate>);

/// `ropeway lab link`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true, subcommand_value_name = "ACTION")]
pub(crate) struct LinkArgs {
    /// Properties of the link.
    #[command(flatten)]
    pub(crate) shape: LinkShape,
    /// Cut the link this long after the start
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) cut_at: Option<Duration>,
    /// Restore the link after this time [default: never]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) cut_for: Option<Duration>,
    /// Relay local port NEAR to FAR with delay and rate, without packets (repeatable)
    ///
    /// For machines that allow neither network namespaces nor user namespaces. COMMAND runs in the
    /// current namespace and reaches the far end at ROPEWAY_FAR=127.0.0.1, port NEAR. Only delays,
    /// rates and --mtu take effect.
    #[arg(long, value_name = "NEAR:FAR", value_parser = values::ports)]
    pub(crate) relay: Vec<RelayPorts>,
    /// Print nothing on stderr
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Measurements of the link, instead of a command.
    #[command(subcommand)]
    pub(crate) action: Option<LinkAction>,
    /// The command to run, with its arguments
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Measurements of the link itself.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LinkAction {
    /// Check the emulator's rate, round trip and loss
    ///
    /// Measures with its own sockets between the namespaces, at 155 Mbit/s and 32 ms, 622 Mbit/s
    /// and 75 ms, 1 Gbit/s and 10 ms, or over the one link that you give. The rate must hold within
    /// 1 %, the round trip within 2 %, the loss within 4 standard deviations. Exit code 7
    /// otherwise.
    Check(LinkCheckArgs),
    /// Measure how long bare TCP takes for the same bytes
    ///
    /// Makes four round trips first, then moves the bytes over 1, 4 and 16 connections. The best
    /// time is the floor for any copy over this link.
    Floor(LinkFloorArgs),
}

/// Properties of an emulated link.
#[derive(Args, Clone, Debug)]
pub(crate) struct LinkShape {
    /// Round-trip time, half of it each way, e.g. 75ms
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) rtt: Option<Duration>,
    /// One-way delay from near to far, instead of --rtt
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) up_delay: Option<Duration>,
    /// One-way delay from far to near, with --up-delay
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) down_delay: Option<Duration>,
    /// Rate in bits per second on the wire, e.g. 622mbit; `none`: no limit
    ///
    /// IP packets count, and 38 bytes of Ethernet for each: 1448 bytes of payload are 1538 bytes on
    /// the wire.
    #[arg(long, value_name = "RATE", value_parser = values::link_rate)]
    pub(crate) rate: Option<LinkRate>,
    /// A different rate from far to near
    #[arg(long, value_name = "RATE", value_parser = values::link_rate)]
    pub(crate) down_rate: Option<LinkRate>,
    /// Fraction of segments to lose, e.g. 0.1%
    #[arg(long, value_name = "P", value_parser = values::loss)]
    pub(crate) loss: Option<f64>,
    /// Vary each packet's delay by up to this time; packets stay in order
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) jitter: Option<Duration>,
    /// Queue length in bytes [default: rate x rtt, at least 64K]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) queue: Option<u64>,
    /// Maximum packet size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub(crate) mtu: u16,
    /// Congestion control at both ends: bbr, cubic, reno, … [default: the system's]
    #[arg(long, value_name = "NAME", value_parser = values::congestion)]
    pub(crate) congestion: Option<Congestion>,
    /// Let programs choose another congestion control for their sockets
    #[arg(long, requires = "congestion")]
    pub(crate) congestion_open: bool,
    /// Maximum TCP buffer size at both ends [default: the system's]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) tcp_max: Option<u64>,
    /// Maximum TCP window in bytes at both ends, e.g. 17520
    #[arg(long, value_name = "BYTES")]
    pub(crate) window: Option<u32>,
    /// Initial congestion window, in segments
    #[arg(long, value_name = "N")]
    pub(crate) initcwnd: Option<u32>,
    /// Request ECN at both ends
    #[arg(long)]
    pub(crate) ecn: bool,
    /// Seed for losses and jitter
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// `ropeway lab link check`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LinkCheckArgs {
    /// Checks this link instead of the table.
    #[command(flatten)]
    pub(crate) shape: LinkShape,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway lab link floor`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LinkFloorArgs {
    /// The link to measure.
    #[command(flatten)]
    pub(crate) shape: LinkShape,
    /// How much to move (100MB is 100 million bytes, 100M is 100 MiB)
    #[arg(long, value_name = "SIZE", default_value = "100MB", value_parser = values::size)]
    pub(crate) bytes: u64,
    /// Move the bytes from far to near
    #[arg(long)]
    pub(crate) download: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// A rate, or `None` for a link without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRate(pub(crate) Option<Rate>);

/// Ports of a relay on the loopback interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayPorts {
    /// Port on which the relay listens.
    pub(crate) near: u16,
    /// Port on which the server listens.
    pub(crate) far: u16,
}
