//! Flags of `fleet`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{AFTER_HELP, ShareArgs, values};

/// `ropeway fleet`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetArgs {
    /// The action.
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

/// Actions of `ropeway fleet`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Make a job: copy the content of SRC to DST, by all workers together
    ///
    /// Copies nothing itself. DST becomes the copy of SRC. The job lives in a folder
    /// `.ropeway-fleet-…` beside DST (inside, if DST is the top of a volume or share). A job that is
    /// not complete is refused (exit 8).
    #[command(after_long_help = AFTER_HELP)]
    Submit(FleetSubmitArgs),
    /// Work on the job of DST until it is complete
    ///
    /// Start it on as many machines as help, at any time. Each uses its own credentials. A worker
    /// that dies loses nothing: others go on with its task after --lease.
    #[command(after_long_help = AFTER_HELP)]
    Work(FleetWorkArgs),
    /// Show the job of DST: tasks, rates, time left, stragglers, failures
    #[command(after_long_help = AFTER_HELP)]
    Status(FleetStatusArgs),
    /// Show the job of DST again and again, until it is complete
    #[command(after_long_help = AFTER_HELP)]
    Top(FleetTopArgs),
    /// Show the job of DST as a web page, until Ctrl-C
    ///
    /// The same figures as `status`, kept up to date; /snapshot.json has them for programs. See docs/page.md.
    #[command(after_long_help = AFTER_HELP)]
    Page(FleetPageArgs),
    /// Try again what failed, and work until the job is complete
    ///
    /// A job that is not complete goes on where its workers stopped; that needs no memory of any of
    /// them.
    #[command(after_long_help = AFTER_HELP)]
    Resume(FleetWorkArgs),
}

/// `ropeway fleet submit`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetSubmitArgs {
    /// Folder whose content is copied, here or on a share
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// Folder that becomes its copy; the folder above it must exist
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Remove from DST what SRC does not have, at the end and only if nothing failed
    #[arg(long)]
    pub(crate) delete: bool,
    /// Limit in bytes a second for all workers together, e.g. 50M, or a timetable
    ///
    /// As with `copy --bwlimit`. Each worker takes an equal share; when one starts or ends, the others follow within
    /// seconds; if one dies, after --lease.
    #[arg(long, value_name = "RATE", value_parser = values::bwlimit_text)]
    pub(crate) bwlimit: Option<String>,
    /// What all workers together may ask of the ends.
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
    /// NATS server with JetStream that hands out the tasks: nats://HOST:PORT or tls://HOST:PORT; separate several with commas
    ///
    /// Without it the folder of the job does, which needs no service. What is done is recorded in that folder in
    /// either case.
    #[arg(long, value_name = "URL", value_parser = values::nats_servers)]
    pub(crate) queue: Option<String>,
    /// Copies of each message in a cluster of NATS servers, 1 to 5
    #[arg(long, value_name = "N", requires = "queue", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) queue_replicas: u8,
    /// Login to the NATS server.
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// What all workers of a job together may ask of its ends.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BudgetArgs {
    /// Limit of operations on names and attributes at SRC, a second, for all workers together
    ///
    /// Opening, listing, examining, creating, renaming and flushing count, also each name that is looked up, and a
    /// small file that is read or written at once as one; reads and writes of larger files do not, see --bwlimit. As
    /// with --bwlimit each worker takes an equal share. The folder of the job is not limited.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) source_ops: Option<u64>,
    /// Limit of operations on names and attributes at DST, a second, for all workers together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) target_ops: Option<u64>,
    /// Time that one operation at SRC or DST should take at most, e.g. 50ms (1ms to 1m)
    ///
    /// If operations take longer, each worker has fewer of them in flight, at last one with pauses between, and more
    /// again when they are faster. So a server that others use too, or that slows down, is given less by all workers.
    /// A read or write of more than 64 KiB may take longer in proportion. The goal must be at least twice what an
    /// operation takes while the server is idle.
    #[arg(long, value_name = "TIME", value_parser = values::latency)]
    pub(crate) latency_goal: Option<Duration>,
    /// Another goal for SRC
    #[arg(long, value_name = "TIME", value_parser = values::latency)]
    pub(crate) source_latency_goal: Option<Duration>,
    /// Another goal for DST
    #[arg(long, value_name = "TIME", value_parser = values::latency)]
    pub(crate) target_latency_goal: Option<Duration>,
}

/// `ropeway fleet work` and `resume`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetWorkArgs {
    /// The DST of the job
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Where SRC is for this machine (default: as `submit` was told)
    #[arg(long, value_name = "SRC")]
    pub(crate) source: Option<PathBuf>,
    /// Time without a sign of life after which others take over, 2s to 1h (default 30s)
    ///
    /// A shorter time costs nothing but work that is done again: a worker that was only slow cannot
    /// overwrite anything. All workers of a job should have the same.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) lease: Option<Duration>,
    /// NATS server of the job (default: as `submit` was told)
    ///
    /// With a login and a DST on a share it must be given: others may have written the job.
    #[arg(long, value_name = "URL", value_parser = values::nats_servers)]
    pub(crate) queue: Option<String>,
    /// Login to the NATS server.
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// Login at a server of NATS. It is no part of the job: each worker has its own.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NatsArgs {
    /// File with credentials for NATS (JWT and nkey), as `nsc` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_credentials: Option<PathBuf>,
    /// File with the seed of an nkey for NATS
    #[arg(long, value_name = "FILE", conflicts_with = "nats_credentials")]
    pub(crate) nats_nkey: Option<PathBuf>,
    /// User for NATS; the password is in the variable ROPEWAY_NATS_PASSWORD
    #[arg(long, value_name = "NAME", conflicts_with_all = ["nats_credentials", "nats_nkey"])]
    pub(crate) nats_user: Option<String>,
    /// Certificates (PEM) of authorities for TLS to NATS, besides those of the system
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_ca: Option<PathBuf>,
}

impl NatsArgs {
    /// Whether one of them was given.
    pub(crate) fn is_given(&self) -> bool {
        self.nats_user.is_some()
            || [&self.nats_credentials, &self.nats_nkey, &self.nats_ca]
                .iter()
                .any(|path| path.is_some())
    }
}

/// `ropeway fleet status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetStatusArgs {
    /// The DST of the job
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// List what failed in the last round, with reasons
    #[arg(long)]
    pub(crate) failures: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway fleet top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetTopArgs {
    /// The DST of the job
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Time between two updates, 100ms to 1h (default 2s)
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) interval: Option<Duration>,
    /// JSON Lines on standard output, one for each update
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway fleet page`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetPageArgs {
    /// The DST of the job
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Address of the page. On any other than 127.0.0.1 the token in the printed address is needed
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = values::http, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// 0600 file whose first line is the token of the page
    ///
    /// Without it a token is made for each run. With it the token is needed on 127.0.0.1 too. It has at least 16
    /// letters, digits, or -._~ characters.
    #[arg(long, value_name = "FILE")]
    pub(crate) http_token_file: Option<PathBuf>,
    /// JSON Lines on standard output: where the page is
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use crate::args::Cli;

    /// Parses a command line of an example.
    #[track_caller]
    fn can_be_typed(words: &[&str]) {
        let parsed = Cli::try_parse_from(words);
        assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
    }

    fn example(name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/fleet");
        std::fs::read_to_string(folder.join(name)).unwrap()
    }

    /// Returns the words of a list of texts in brackets.
    fn list(line: &str) -> Vec<&str> {
        let inside = line.split_once('[').unwrap().1.rsplit_once(']').unwrap().0;
        inside
            .split(',')
            .map(|word| word.trim().trim_matches('"'))
            .collect()
    }

    #[test]
    fn the_command_lines_of_the_examples_of_deployment_can_be_typed() {
        let unit = example("ropeway-fleet@.service");
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"))
            .unwrap();
        let flags = unit.lines().find_map(|line| line.split_once("FLAGS=")).unwrap().1;
        let flags = flags.split_once("  ").unwrap().0;
        let line = line
            .replace("$FLAGS", flags)
            .replace("${TARGET}", "/mnt/nas/data");
        can_be_typed(&line.split_whitespace().collect::<Vec<_>>());

        let kubernetes = example("kubernetes.yaml");
        let commands = kubernetes.lines().filter(|line| line.contains("command: ["));
        let commands: Vec<_> = commands.map(list).collect();
        assert_eq!(commands.len(), 2);
        commands.iter().for_each(|words| can_be_typed(words));

        let slurm = example("slurm.sh");
        let line = slurm.lines().find_map(|line| line.strip_prefix("srun ")).unwrap();
        can_be_typed(&line.split_whitespace().collect::<Vec<_>>());

        let image = example("Containerfile");
        let line = image.lines().find(|line| line.starts_with("ENTRYPOINT")).unwrap();
        let mut words = list(line);
        words.push("/mnt/nas/data");
        can_be_typed(&words);
    }
}
