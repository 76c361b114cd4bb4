//! `ropeway lab boost`.

use ropeway_lab::local::boost::{self, Mode, Options};

use super::{Stopper, absolute};
use crate::args::LabBoostArgs;
use crate::failure::{Failure, code};

/// Programs and blocks of `--quick`.
const QUICK: (usize, usize) = (16, 8);

/// Runs the lab and returns its exit code.
///
/// # Errors
/// There is too little room, nothing can be mounted, or the lab was interrupted.
pub(super) fn run(args: &LabBoostArgs) -> Result<u8, Failure> {
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let (programs, blocks) = match args.quick {
        true => QUICK,
        false => (args.programs as usize, args.blocks as usize),
    };
    let options = Options {
        program: super::program()?,
        dir: absolute(&dir)?,
        programs,
        blocks,
        readers: args.readers as usize,
        runs: if args.quick { 1 } else { args.runs },
        limit: args.limit,
        modes: Mode::ALL.to_vec(),
        out: absolute(&args.out)?,
    };
    let stopper = Stopper::begin("boost")?;
    let notify = |text: &str| stopper.say(text, args.json);
    let document = boost::run(&options, &stopper.stop, &notify).map_err(|error| super::failure(&error))?;
    Ok(super::conclude(&document, &options.out, args.json))
}

/// Does what the lab has asked this process to do.
///
/// # Errors
/// It cannot be done.
pub(super) fn work(task: &str) -> Result<u8, Failure> {
    boost::work(task).map_err(|error| {
        Failure::new(code::TARGET, error.to_string())
            .hint("do not run this command yourself; `lab boost` starts it")
    })?;
    Ok(code::DONE)
}
