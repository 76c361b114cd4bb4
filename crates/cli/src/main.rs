//! The binary `ropeway`: move and share files at the speed of the link, and tell the truth about
//! it.
//!
//! ```text
//! main ─ args (clap) ─ layers (flags > environment > config file)
//!      └ commands    one file for each command: copy, mirror, check, ls, stat, mkdir, rm, mv, login,
//!            │       logout, serve, mount, boost, bench, jobs, top, trace, dirty, fleet, demo, lab
//!            ├ place, url, spelling   what an argument names: a local path, or a place on a share
//!            ├ completing   what a shell's completion offers for jobs, logins and places
//!            ├ servers, secrets   connections to servers, and their logins
//!            ├ ends    what SRC and DST mean; refuses bad combinations before anything is changed
//!            ├ trees   opens both trees, with limits and models around them
//!            ├ job     runs a job: signals, progress, exit code
//!            ├ unplug  what may be said of the target's device at the end
//!            ├ ui      progress bar, JSON Lines, messages, log
//!            ├ live    what other processes see of this one
//!            └ tui     views that fill the terminal: top, check --tui
//! ```
//!
//! Every command returns an exit code or a [`failure::Failure`]: one line, a hint, a code.

mod args;
mod boot;
mod commands;
mod completing;
mod config;
mod demo;
mod eject;
mod ends;
mod failure;
mod filters;
mod habits;
mod job;
mod layers;
mod line;
mod live;
mod on_end;
mod page;
mod place;
mod secrets;
mod servers;
mod spelling;
mod told;
mod trace_file;
mod trees;
mod tui;
mod ui;
mod unplug;
mod url;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Command;
use clap_complete::CompleteEnv;
use failure::Failure;

fn main() -> ExitCode {
    // Ends the process if a shell asks for completions (COMPLETE=bash).
    CompleteEnv::with_factory(|| completing::with_completions(args::command())).complete();
    let arguments: Vec<OsString> = commands::mount::as_command(std::env::args_os().collect());
    // Arguments after `--` or `--run` belong to another command.
    let own = arguments
        .iter()
        .skip(1)
        .take_while(|argument| *argument != "--" && *argument != "--run");
    let json = own.into_iter().any(|argument| argument == "--json");
    ExitCode::from(match run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            ui::messages::report_failure(&failure, json);
            failure.code
        }
    })
}

fn run(arguments: Vec<OsString>) -> Result<u8, Failure> {
    if commands::mount::guard(&arguments) || ropeway_mount::reader(&arguments) {
        return Ok(failure::code::DONE);
    }
    boot::start_diagnostics();
    layers::check_environment(std::env::vars_os().map(|(name, _)| name))?;
    let config = config::Config::load(&boot::config_file())?;
    let command = match layers::parse(arguments, &|name| std::env::var_os(name), &config)? {
        layers::Parsed::Command(command) => command,
        layers::Parsed::Text { text, code } => {
            ui::messages::print(&text);
            return Ok(code);
        }
    };
    match *command {
        Command::Copy(args) => commands::copy::run(&args),
        Command::Mirror(args) => commands::mirror::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Ls(args) => commands::ls::run(&args),
        Command::Stat(args) => commands::stat::run(&args),
        Command::Mkdir(args) => commands::mkdir::run(&args),
        Command::Rm(args) => commands::rm::run(&args),
        Command::Mv(args) => commands::mv::run(&args),
        Command::Login(args) => commands::login::run(&args),
        Command::Logout(args) => commands::logout::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Mount(args) => commands::mount::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Boost(args) => commands::boost::run(&args),
        Command::Jobs(args) => commands::jobs::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Trace(args) => commands::trace::run(&args),
        Command::Dirty(args) => commands::dirty::run(&args),
        Command::Fleet(args) => commands::fleet::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Lab(args) => commands::lab::run(&args),
        Command::Man(args) => commands::man::run(&args),
    }
}
