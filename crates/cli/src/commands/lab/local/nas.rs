//! `ropeway lab nas`.

use ropeway_lab::local::nas::{self, Options};

use super::{Stopper, absolute};
use crate::args::NasArgs;
use crate::failure::Failure;

/// Runs the lab and returns its exit code.
///
/// # Errors
/// There is too little space, the link or no server can be started, or the lab was interrupted.
pub(super) fn run(args: &NasArgs) -> Result<u8, Failure> {
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
    let stopper = Stopper::begin("nas")?;
    let notify = |text: &str| stopper.say(text, args.json);
    let document = nas::run(&options, &stopper.stop, &notify).map_err(|error| super::failure(&error))?;
    Ok(super::conclude(&document, &options.out, args.json))
}
