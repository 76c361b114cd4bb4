//! `ropeway lab vista`.

use ropeway_lab::local::vista::{self, Options};

use super::{Stopper, absolute};
use crate::args::VistaArgs;
use crate::failure::Failure;

/// Runs the lab and returns its exit code.
///
/// # Errors
/// There is too little space, the link or the server cannot be started, or the lab was interrupted.
pub(super) fn run(args: &VistaArgs) -> Result<u8, Failure> {
    let first = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let second = args.dir2.clone().unwrap_or_else(|| first.clone());
    let options = Options {
        program: super::program()?,
        dirs: [absolute(&first)?, absolute(&second)?],
        scale: args.scale,
        runs: args.runs,
        engines: args.engines.clone(),
        targets: args.targets.clone(),
        stick: args.stick.name.clone(),
        // Namespaces need a single thread, so this comes first.
        relay: args.relay
            || args.targets.iter().any(|target| target.is_remote())
                && super::super::run::needs_relay(args.json),
        budget: args.budget,
        out: absolute(&args.out)?,
    };
    let stopper = Stopper::begin("vista")?;
    let notify = |text: &str| stopper.say(text, args.json);
    let document = vista::run(&options, &stopper.stop, &notify).map_err(|error| super::failure(&error))?;
    Ok(super::conclude(&document, &options.out, args.json))
}
