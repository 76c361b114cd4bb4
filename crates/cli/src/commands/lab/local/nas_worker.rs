//! `ropeway lab nas-worker`: one pass over a file on a share with requests of one size.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_block::{Block, BlockMut};
use ropeway_lab::bench::io::{Records, Sweep};
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Handle, Login, OpenFile, Share, Text};
use ropeway_smb_wire::create::CreateDisposition;
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use crate::args::NasWorkerArgs;
use crate::failure::{Failure, code};
use crate::ui::messages::print_line;

/// Runs the pass, prints its duration and returns the exit code.
///
/// # Errors
/// The server refuses a request, or the connection fails.
pub(super) fn run(args: &NasWorkerArgs) -> Result<u8, Failure> {
    let password = std::env::var("ROPEWAY_PASSWORD")
        .map_err(|_| Failure::usage("there is no password").hint("set ROPEWAY_PASSWORD"))?;
    let runtime = crate::job::runtime()?;
    let result = runtime.block_on(sweep(args, &password));
    runtime.shutdown_background();
    let span = result?;
    print_line(&json!({ "pass": args.pass, "seconds": span.as_secs_f64() }).to_string());
    Ok(code::DONE)
}

async fn sweep(args: &NasWorkerArgs, password: &str) -> Result<Duration, Failure> {
    let endpoint = Endpoint::new(args.server.ip().to_string(), args.server.port());
    let options = ClientOptions {
        // The lab measures a single connection.
        channels_max: 1,
        durable: false,
        ..ClientOptions::default()
    };
    let login = Login::password("", &args.user, password);
    let client = Client::connect(&endpoint, login, options).await.map_err(failed)?;
    let share = client.share(&args.share).await.map_err(failed)?;
    let path = Text::from(args.file.as_str());
    let (open, writes) = match args.pass.as_str() {
        "write" => (OpenFile::write(CreateDisposition::Create), true),
        "rewrite" => (OpenFile::write(CreateDisposition::Open), true),
        _ => (OpenFile::read(), false),
    };
    let sweep = Sweep::new(args.size, args.record, args.depth, writes);
    evict(args.evict.as_deref());
    let result = pass(&share, &path, &open, &sweep).await;
    client.close_now().await;
    result
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(code::NETWORK, error.to_string())
        .hint("do not run this command yourself; `lab nas` starts it")
}

/// Runs the pass, from CREATE to the reply to CLOSE.
async fn pass(share: &Share, path: &Text, open: &OpenFile, sweep: &Sweep) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let handle = Arc::new(share.open(path, open).await.map_err(failed)?);
    sweep.run(Opened(Arc::clone(&handle))).await.map_err(failed)?;
    if let Ok(handle) = Arc::try_unwrap(handle) {
        handle.close().await.map_err(failed)?;
    }
    Ok(begun.elapsed())
}

/// An open file of the share.
struct Opened(Arc<Handle>);

impl Records for Opened {
    async fn read(&self, block: BlockMut, offset: u64, length: usize) -> (BlockMut, Result<(), String>) {
        let (block, result) = self.0.read_at(offset, block, length).await;
        (block, result.map_err(|error| error.to_string()))
    }

    async fn write(&self, block: Block, offset: u64) -> Result<(), String> {
        let written = self.0.write_at(offset, block).await;
        written.map_err(|error| error.to_string())
    }
}

/// Drops the file from the server's page cache, since the server is on the same machine. If the
/// kernel refuses, reads are as fast as rereads.
fn evict(path: Option<&Path>) {
    let Some(path) = path else { return };
    let dropped = || -> io::Result<()> {
        let file = File::open(path)?;
        // Dirty pages would stay in the cache.
        file.sync_data()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    };
    if let Err(error) = dropped() {
        tracing::debug!(%error, path = %path.display(), "the file stays in the page cache");
    }
}
