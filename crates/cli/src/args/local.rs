//! Flags of `ropeway lab dirty`, `lab vista` and `lab nas`: labs for this machine's own devices.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ropeway_lab::link::Rate;
use ropeway_lab::local::nas::plan::OPERATIONS;
use ropeway_lab::local::vista::plan::Target;
use ropeway_lab::scenario::Server;
use ropeway_plan::Engine;
use ropeway_vfs::decorate::slow::DeviceModel;

use super::{AFTER_HELP, values};

/// Labs for this machine's own devices.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LocalCommand {
    /// Find out when the page cache makes writers wait; --check compares `ropeway dirty` with the truth
    ///
    /// Writes an unnamed file in DIR, 1 MiB at a time, until well past the threshold, then waits
    /// until all of it is durable. Reports the memory rate, the threshold and the device's true
    /// rate, and compares them with the kernel's settings and with the model of delayed writing.
    /// Other writers on this machine have to wait meanwhile, as they would for any program that
    /// writes this much.
    Dirty(Box<LabDirtyArgs>),
    /// Compare the copy engines of XP, Vista, Vista SP1 and ropeway
    ///
    /// Copies one big file and many files to a second folder, to a modelled USB stick, and to a
    /// server over an emulated network of 1 Gbit/s, and back, while it times the reads of another
    /// process. The report shows one score by parts next to the published scores. The default scale
    /// takes about a quarter of an hour.
    Vista(Box<VistaArgs>),
    /// Sweep file and record sizes through an emulated network
    ///
    /// Writes, rewrites, reads and rereads one file with records of one size, one at a time and
    /// pipelined. The file is on a private server (ropeway's, and smbd if it is installed) behind a
    /// link of 1 Gbit/s. The report plots throughput against record size next to published figures
    /// of a NAS. The default takes about an hour and a half.
    Nas(Box<NasArgs>),
    /// See how much sooner programs are quick again after memory hogs, with a cache
    ///
    /// The published ReadyBoost experiment: memory hogs throw programs out of the page cache, and
    /// several readers start them again from a modelled disk (50 MB/s, 10 to 20 ms a seek), without a
    /// cache, with an empty one, and with a warm one on modelled flash (20 MB/s, 1 ms). Needs root.
    /// The default takes about 15 minutes. For example: ropeway lab boost --runs 5
    #[command(after_long_help = AFTER_HELP)]
    Boost(Box<LabBoostArgs>),
    /// Does one run of `lab boost`. The lab starts it.
    #[command(hide = true)]
    BoostWorker {
        /// What to do, as JSON
        task: String,
    },
    /// Serves the modelled device of `lab dirty --check`. The lab starts it.
    #[command(hide = true)]
    DirtyWorker {
        /// What to do, as JSON
        task: String,
    },
    /// Runs one pass of `lab nas`. The lab starts it at the near end of the link.
    #[command(hide = true)]
    NasWorker(Box<NasWorkerArgs>),
}

/// `ropeway lab nas`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct NasArgs {
    /// File sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "64M,128M,256M,512M,1G", value_parser = values::lab_file_size)]
    pub(crate) sizes: Vec<u64>,
    /// Record sizes: how many bytes one request carries
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "64K,128K,256K,512K,1M", value_parser = values::record_size)]
    pub(crate) records: Vec<u64>,
    /// Servers: ropeway, smbd
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "ropeway,smbd",
        value_parser = values::smb_server
    )]
    pub(crate) servers: Vec<Server>,
    /// Rate of the link, both ways
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub(crate) rate: Rate,
    /// Round-trip time of the link
    #[arg(long, value_name = "TIME", default_value = "0.3ms", value_parser = values::duration)]
    pub(crate) rtt: Duration,
    /// Runs of each cell, first one discarded if N > 1; a single run where a file takes more than
    /// 60 s
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Folder for the server's files (default: the folder for temporary files)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Time after which no new combination of file and record size starts
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = values::duration)]
    pub(crate) budget: Duration,
    /// Use a TCP relay with delay and rate instead of packets; the report says so
    ///
    /// Chosen automatically where namespaces are forbidden.
    #[arg(long)]
    pub(crate) relay: bool,
    /// Folder for the report
    #[arg(long, value_name = "DIR", default_value = "lab-nas")]
    pub(crate) out: PathBuf,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway lab boost`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabBoostArgs {
    /// Runs of each mode
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Programs that are in use
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    pub(crate) programs: u32,
    /// Blocks of 64 KiB of each program
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) blocks: u32,
    /// Programs that start at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) readers: u32,
    /// A small working set and one run of each mode: a minute, for a look
    #[arg(long)]
    pub(crate) quick: bool,
    /// Time after which a run has failed
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = values::duration)]
    pub(crate) limit: Duration,
    /// Folder for the programs and the flash device (default: the folder for temporary files)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Folder for the report
    #[arg(long, value_name = "DIR", default_value = "lab-boost")]
    pub(crate) out: PathBuf,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway lab nas-worker`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NasWorkerArgs {
    /// Address of the server
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) server: SocketAddr,
    /// User; the password is in ROPEWAY_PASSWORD
    #[arg(long, value_name = "NAME")]
    pub(crate) user: String,
    /// Share to connect to
    #[arg(long, value_name = "NAME")]
    pub(crate) share: String,
    /// Name of the file on the share
    #[arg(long, value_name = "NAME")]
    pub(crate) file: String,
    /// Operation to time
    #[arg(long, value_name = "NAME", value_parser = OPERATIONS)]
    pub(crate) pass: String,
    /// Size of the file
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: u64,
    /// Size of a request
    #[arg(long, value_name = "BYTES")]
    pub(crate) record: u64,
    /// Number of requests in flight
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) depth: u32,
    /// Path of the same file on this machine; it is dropped from the page cache first
    #[arg(long, value_name = "PATH")]
    pub(crate) evict: Option<PathBuf>,
}

/// `ropeway lab vista`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct VistaArgs {
    /// Fraction of the works' full size, which is 2.5 GB each
    #[arg(long, value_name = "F", default_value_t = 0.05, value_parser = values::scale)]
    pub(crate) scale: f64,
    /// Runs of each cell; the first one is discarded if there are several
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Only these engines: xp, vista, vista-sp1, auto
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "xp,vista,vista-sp1,auto", value_parser = values::local_engine, hide_default_value = true)]
    pub(crate) engines: Vec<Engine>,
    /// Only these targets: local, stick, remote-xp, remote-vista
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "local,stick,remote-xp,remote-vista",
        hide_default_value = true
    )]
    pub(crate) targets: Vec<Target>,
    /// First folder (default: the folder for temporary files)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Second folder, preferably on another disk (default: the first folder)
    #[arg(long, value_name = "DIR")]
    pub(crate) dir2: Option<PathBuf>,
    /// Model of the stick, as for copy --slow-target (default: writes 7 MB/s, reads 20 MB/s, 1 ms)
    #[arg(long, value_name = "MODEL", default_value = "usb-flash", value_parser = values::model, hide_default_value = true)]
    pub(crate) stick: DeviceModel,
    /// Time after which no new run starts
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = values::duration)]
    pub(crate) budget: Duration,
    /// Use a TCP relay with delay and rate instead of packets; the report says so
    ///
    /// Chosen automatically where namespaces are forbidden.
    #[arg(long)]
    pub(crate) relay: bool,
    /// Folder for the report
    #[arg(long, value_name = "DIR", default_value = "lab-vista")]
    pub(crate) out: PathBuf,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway lab dirty`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabDirtyArgs {
    /// Folder to write to; the device below it is measured
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    pub(crate) dir: PathBuf,
    /// Compare what `ropeway dirty` says with what is true, on two slow devices (root)
    ///
    /// Writes 512 MiB (or --bytes) to ext4 on a throttled loop device, whose image is in DIR, and to a
    /// FUSE model of a stick, and drains both with `ropeway dirty drain`. Compares the backlogs that
    /// `ropeway dirty` shows with /proc/vmstat and with what the device has taken, and its times to drain
    /// with the real ones. Exit code 7 if a backlog is off by more than 5 % or a time by more than 20 %.
    #[arg(long)]
    pub(crate) check: bool,
    /// Rate of the two devices of --check
    #[arg(long, value_name = "SIZE", default_value = "20MB", value_parser = values::size)]
    pub(crate) rate: u64,
    /// How much to write (default: 2.5 x the expected threshold, at most half of the free space)
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) bytes: Option<u64>,
    /// Time limit for writing, and again for write-back
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::duration)]
    pub(crate) limit: Duration,
    /// Time for small synced writes at the start, from which the kernel learns the device's speed
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = values::duration)]
    pub(crate) warm_up: Duration,
    /// Folder for the report
    #[arg(long, value_name = "DIR", default_value = "lab-dirty")]
    pub(crate) out: PathBuf,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
