//! `ropeway lab …`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ropeway_lab::link::{Congestion, Rate};
use ropeway_lab::scenario::{Client, Direction, Server};
use ropeway_lab::work::Work;

use super::local::LocalCommand;
use super::{AFTER_HELP, LabCompareArgs, LabReportArgs, values};

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
    /// Makes two network namespaces joined by a delay line and runs COMMAND on the near side. Its exit code is ours.
    /// ROPEWAY_FAR is the far side's address, ROPEWAY_FAR_NETNS its namespace: `nsenter --net=$ROPEWAY_FAR_NETNS SERVER`
    /// runs a server there. Works as root, or in a user namespace that it makes. At the end nothing is left: what still
    /// runs on either side is ended.
    Link(Box<LinkArgs>),
    /// Measure what a scenario asks for
    ///
    /// SCENARIO is a TOML file or one that ships (`lab list`): links, works, directions, clients with servers, runs. Clients
    /// and servers that are not installed are left out by name. The report in --out is written after each run; the same
    /// command goes on with what is missing.
    Run(LabFileArgs),
    /// Measure TR-3869: 52 to 1,000 Mbit/s, 32 and 75 ms, one file and 300, both ways
    ///
    /// Up to three hours. Published seconds stand beside measured ones in the report.
    Tr3869(LabNamedArgs),
    /// Measure a tenth of it over one link, in five minutes
    Quick(LabNamedArgs),
    /// List the scenarios that ship
    List(LabListArgs),
    /// Labs of this machine's own devices.
    #[command(flatten)]
    Local(LocalCommand),
    /// Write the reports of a report.json again
    ///
    /// Shows the table, and writes report.md, report.html and each plot as SVG and PNG: what a lab does at its end, from
    /// what it wrote, whether it came to its end or not.
    Report(LabReportArgs),
    /// Show what changed from one report.json to another
    ///
    /// Machine, versions, settings, works and links that differ come first; then each cell that both have: both medians,
    /// their ratio, and whether the change is larger than the spread of the runs on either side (and than 2 %, or 5 %
    /// where a side has one run). Exit code 7 if a cell is slower by more than that, or has no run that counts any more.
    Compare(LabCompareArgs),
}

/// `ropeway lab run`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabFileArgs {
    /// A TOML file, or the name of one that ships
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// How to run it.
    #[command(flatten)]
    pub(crate) how: LabRunArgs,
}

/// `ropeway lab tr3869` and the other names.
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
    /// Folder for the report; goes on with what is there [default: lab-NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Share of the works' full size, e.g. 0.1
    #[arg(long, value_name = "F")]
    pub(crate) scale: Option<f64>,
    /// Runs of each cell, the first of which is discarded
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<u32>,
    /// Only these clients: ropeway, smbclient, rclone, rsync, cp
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) clients: Vec<Client>,
    /// Only these servers: ropeway, smbd, rsyncd
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) servers: Vec<Server>,
    /// Only these links, by the names that the scenario gives them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) links: Vec<String>,
    /// These works instead, e.g. file100mb or small3000
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) works: Vec<Work>,
    /// Only these directions: read, write
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) directions: Vec<Direction>,
    /// What all of it may take: then repeats are left out, then cells
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) budget: Option<Duration>,
    /// Slow links at the same time, while the sum of their rates is no more; `off`: one after the other
    #[arg(long, value_name = "RATE", value_parser = values::side_by_side)]
    pub(crate) side_by_side: Option<SideBySide>,
    /// No packets: TCP relays with delay and rate, named so in every result
    ///
    /// Chosen by itself where namespaces are forbidden.
    #[arg(long)]
    pub(crate) relay: bool,
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

/// Links at the same time: the sum of their rates, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SideBySide(pub(crate) Option<Rate>);

/// `ropeway lab link`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true, subcommand_value_name = "ACTION")]
pub(crate) struct LinkArgs {
    /// What the link is like.
    #[command(flatten)]
    pub(crate) shape: LinkShape,
    /// Cut the link so long after the start
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) cut_at: Option<Duration>,
    /// Restore it after so long [default: never]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) cut_for: Option<Duration>,
    /// No packets: relay local port NEAR to FAR with delay and rate (repeat for more)
    ///
    /// For places where neither namespaces nor user namespaces are allowed. COMMAND runs where it is, and finds the far
    /// side at ROPEWAY_FAR=127.0.0.1, port NEAR. Only delays, rates and --mtu count.
    #[arg(long, value_name = "NEAR:FAR", value_parser = values::ports)]
    pub(crate) relay: Vec<RelayPorts>,
    /// Say nothing on stderr
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Measure the link instead.
    #[command(subcommand)]
    pub(crate) action: Option<LinkAction>,
    /// The command to run, with its arguments
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Measurements of the link itself.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LinkAction {
    /// Prove rate, round trip and loss of the emulator
    ///
    /// Measures with sockets of its own between the namespaces, for 155 Mbit/s and 32 ms, 622 Mbit/s and 75 ms, 1 Gbit/s
    /// and 10 ms, or for the one link that is given: rate within 1 %, round trip within 2 %, loss within 4 standard
    /// deviations. Exit code 7 if one is not.
    Check(LinkCheckArgs),
    /// Measure what bare TCP needs for the same bytes
    ///
    /// Four round trips to begin with, then the bytes over 1, 4 and 16 connections; the best is the floor for any copy
    /// over this link.
    Floor(LinkFloorArgs),
}

/// What a link is like.
#[derive(Args, Clone, Debug)]
pub(crate) struct LinkShape {
    /// Round trip, half of it each way, e.g. 75ms
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) rtt: Option<Duration>,
    /// Instead of --rtt: what the way from near to far takes
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) up_delay: Option<Duration>,
    /// Beside --up-delay: what the way from far to near takes
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) down_delay: Option<Duration>,
    /// Rate in bits on the wire, e.g. 622mbit; `none`: no limit
    ///
    /// IP bytes and 38 bytes of Ethernet around each segment count: 1448 bytes of payload are 1538 on the wire.
    #[arg(long, value_name = "RATE", value_parser = values::link_rate)]
    pub(crate) rate: Option<LinkRate>,
    /// Another rate from far to near
    #[arg(long, value_name = "RATE", value_parser = values::link_rate)]
    pub(crate) down_rate: Option<LinkRate>,
    /// Part of segments that get lost, e.g. 0.1%
    #[arg(long, value_name = "P", value_parser = values::loss)]
    pub(crate) loss: Option<f64>,
    /// Each packet's delay varies by up to so much; the order is kept
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) jitter: Option<Duration>,
    /// Bytes that may wait for the line [default: rate x rtt, at least 64K]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) queue: Option<u64>,
    /// Most bytes of a packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub(crate) mtu: u16,
    /// Congestion control of both ends: bbr, cubic, reno, … [default: the system's]
    #[arg(long, value_name = "NAME", value_parser = values::congestion)]
    pub(crate) congestion: Option<Congestion>,
    /// Most bytes of TCP's buffers, both ends [default: the system's]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) tcp_max: Option<u64>,
    /// Most bytes of TCP window, both ends, e.g. 17520
    #[arg(long, value_name = "BYTES")]
    pub(crate) window: Option<u32>,
    /// Initial congestion window, segments
    #[arg(long, value_name = "N")]
    pub(crate) initcwnd: Option<u32>,
    /// Both ends ask for ECN
    #[arg(long)]
    pub(crate) ecn: bool,
    /// Seed of losses and jitter
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// `ropeway lab link check`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LinkCheckArgs {
    /// Check this one link instead of the table.
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
    /// Over this link.
    #[command(flatten)]
    pub(crate) shape: LinkShape,
    /// How much to move (100MB is a hundred million bytes, 100M is 100 MiB)
    #[arg(long, value_name = "SIZE", default_value = "100MB", value_parser = values::size)]
    pub(crate) bytes: u64,
    /// From far to near instead
    #[arg(long)]
    pub(crate) download: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// A rate, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRate(pub(crate) Option<Rate>);

/// Ports of a relay on the loopback device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayPorts {
    /// Where clients connect.
    pub(crate) near: u16,
    /// Where the server listens.
    pub(crate) far: u16,
}
