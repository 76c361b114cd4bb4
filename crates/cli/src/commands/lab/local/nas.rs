//! `ropeway lab nas`.

use ropeway_lab::local::nas::{self, Options};
use ropeway_lab::scenario::Server;

use super::{Stopper, absolute};
use crate::args::NasArgs;
use crate::failure::Failure;

/// Records that make sense: a page, and what servers grant at most ([MS-SMB2] 3.3.5.4).
const RECORD: std::ops::RangeInclusive<u64> = 4096..=8 << 20;
/// Files that make sense.
const SIZE: std::ops::RangeInclusive<u64> = 4096..=1 << 40;

/// Sweeps; gives the exit code.
///
/// # Errors
/// There is no room, the link or no server can be made, or it was interrupted.
pub(super) fn run(args: &NasArgs) -> Result<u8, Failure> {
    if args.records.iter().any(|record| !RECORD.contains(record)) {
        return Err(Failure::usage("a record is of 4K to 8M").hint("for example: --records 64K,256K,1M"));
    }
    if args.sizes.iter().any(|size| !SIZE.contains(size)) {
        return Err(Failure::usage("a file is of 4K to 1T").hint("for example: --sizes 64M,1G"));
    }
    if args.servers.contains(&Server::Rsyncd) {
        return Err(Failure::usage("rsyncd does not speak SMB").hint("--servers ropeway,smbd"));
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
        // Namespaces want a single thread, so this comes before all else.
        relay: args.relay || super::super::run::falls_back(args.json),
        budget: args.budget,
        out: absolute(&args.out)?,
    };
    let stopper = Stopper::begin()?;
    let told = |text: &str| super::say(text, args.json);
    let document = nas::run(&options, &stopper.stop, &told).map_err(|error| super::failure(&error))?;
    Ok(super::conclude(&document, &options.out, args.json))
}
