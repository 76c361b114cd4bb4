//! Storms of random frames, repeatable by seed: hostile requests against the server, hostile
//! responses against the client, all in one process.
//!
//! A storm holds the keys of its sessions. What it changes below signature, compression and
//! encryption is signed, compressed and encrypted correctly, so that it reaches the code behind.
//! `cargo xtask attack server` and `cargo xtask attack client` run it. A panic in any thread ends
//! the process and names the session to repeat.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod blobs;
mod canaries;
#[path = "../../../smb-proto/tests/client/chance.rs"]
#[allow(dead_code, reason = "the played server needs more of it")]
mod chance;
mod checks;
mod client;
mod compress;
mod connection;
mod grammar;
mod mutate;
mod mutator;
#[path = "../hard/raw.rs"]
mod raw;
mod runner;
#[path = "../hard/samples.rs"]
#[allow(dead_code, reason = "the tests of the server need more of it")]
mod samples;
mod server;
mod session_kind;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Number of frames that must reach the code behind signature and encryption.
    pub(crate) frames: u64,
    /// Number of the first session.
    pub(crate) session: u64,
    /// An empty folder on a small volume.
    pub(crate) folder: PathBuf,
    pub(crate) threads: u64,
    /// Time in seconds after which no further session begins.
    pub(crate) seconds_max: u64,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let side = arguments.next().unwrap_or_default();
    let mut plan = Plan {
        seed: 1,
        frames: 20_000,
        session: 0,
        folder: PathBuf::new(),
        threads: 2,
        seconds_max: u64::MAX,
    };
    while let (Some(option), Some(value)) = (arguments.next(), arguments.next()) {
        let number = || value.parse().expect("a number");
        match option.as_str() {
            "--seed" => plan.seed = number(),
            "--frames" => plan.frames = number(),
            "--session" => plan.session = number(),
            "--threads" => plan.threads = number(),
            "--seconds" => plan.seconds_max = number(),
            "--folder" => plan.folder = value.into(),
            other => panic!("no option is called {other}"),
        }
    }
    assert!(plan.folder.is_dir(), "--folder names a folder on a small volume");
    runner::end_by_panic(&side);
    let outcome = match side.as_str() {
        "server" => runner::storm(&plan, server::session),
        "client" => runner::storm(&plan, client::session),
        _ => panic!("either `server` or `client`"),
    };
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            println!("FAILED: {fault}");
            ExitCode::FAILURE
        }
    }
}
