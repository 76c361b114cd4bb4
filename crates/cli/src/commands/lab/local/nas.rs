//! `ropeway lab nas`.

use ropeway_lab::local::nas::{self, Options};
use ropeway_lab::scenario::Server;

use super::{Stopper, absolute};
use crate::args::NasArgs;
use crate::failure::Failure;

/// Allowed record sizes: from a page to the maximum that servers grant ([MS-SMB2] 3.3.5.4).
const RECORD: std::ops::RangeInclusive<u64> = 4096..=8 << 20;
/// Allowed file sizes.
const SIZE: std::ops::RangeInclusive<u64> = 4096..=1 << 40;

/// Runs the lab and returns its exit code.
///
/// # Errors
/// There is too little space, the link or no server can be started, or the lab was interrupted.
pub(super) fn run(args: &NasArgs) -> Result<u8, Failure> {
    if args.records.iter().any(|record| !RECORD.contains(record)) {
        return Err(Failure::usage("a record must have 4K to 8M").hint("for example: --records 64K,256K,1M"));
    }
    if args.sizes.iter().any(|size| !SIZE.contains(size)) {
        return Err(Failure::usage("a file must have 4K to 1T").hint("for example: --sizes 64M,1G"));
    }
    if args.servers.contains(&Server::Rsyncd) {
        return Err(Failure::usage("rsyncd does not speak SMB").hint("use --servers ropeway,smbd"));
    }
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let options = Options {
        program: super::program()?,
        dir: absolute(&dir)?,
        sizes: args.sizes.clone(),
        records: args.records.clone(),
        servers: args.servers.clone(),
        rate: args.rate,
        rtt: args.rtt,
        runs: args.runs,
        // Namespaces need a single thread, so this comes first.
        relay: args.relay || super::super::run::needs_relay(args.json),
        budget: args.budget,
        out: absolute(&args.out)?,
    };
    let stopper = Stopper::begin()?;
    let notify = |text: &str| super::say(text, args.json);
    let document = nas::run(&options, &stopper.stop, &notify).map_err(|error| super::failure(&error))?;
    Ok(super::conclude(&document, &options.out, args.json))
}
