//! Flags of `ropeway lab documents`.

use std::time::Duration;

use clap::Args;

use super::{AFTER_HELP, values};

/// Most documents: the first 24 bits number files in predictions, and a day has to end.
const FILES_MAX: u64 = 10_000;

/// `ropeway lab documents`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabDocumentsArgs {
    /// Documents, each opened once a day
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=FILES_MAX))]
    pub(crate) files: u64,
    /// Days, each with a mount of its own
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) days: u32,
    /// Time for which the user looks at a document
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = values::duration)]
    pub(crate) pause: Duration,
    /// Seed for sizes and order of the documents
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// JSON Lines on standard output, one object for each day
    #[arg(long)]
    pub(crate) json: bool,
}
