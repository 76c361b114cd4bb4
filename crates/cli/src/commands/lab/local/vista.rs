//! `ropeway lab vista`.

use ropeway_lab::local::vista::plan::Target;
use ropeway_lab::local::vista::{self, Options};

use super::{Stopper, absolute};
use crate::args::VistaArgs;
use crate::failure::Failure;

/// Scales that make sense: below, no work is left; above, no disk holds it.
const SCALE: std::ops::RangeInclusive<f64> = 1e-5..=4.0;

/// Compares; gives the exit code.
///
/// # Errors
/// There is no room, the link or server cannot be made, or it was interrupted.
pub(super) fn run(args: &VistaArgs) -> Result<u8, Failure> {
    if !SCALE.contains(&args.scale) {
        return Err(
            Failure::usage(format!("a scale of {} makes no sense", args.scale))
                .hint("give a part such as 0.05, at most 4"),
        );
    }
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
        // Namespaces want a single thread, so this comes before all else.
        relay: args.relay
            || args.targets.contains(&Target::Remote) && super::super::run::falls_back(args.json),
        budget: args.budget,
        out: absolute(&args.out)?,
    };
    let stopper = Stopper::begin()?;
    let told = |text: &str| super::say(text, args.json);
    let document = vista::run(&options, &stopper.stop, &told).map_err(|error| super::failure(&error))?;
    Ok(super::conclude(&document, &options.out, args.json))
}
