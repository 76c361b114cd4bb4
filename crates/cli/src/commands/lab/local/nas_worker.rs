//! `ropeway lab nas-worker`: one pass over one file on a share, with requests of one size.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropeway_block::Pool;
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Error, Handle, Login, OpenFile, Share, Text};
use ropeway_smb_wire::create::CreateDisposition;
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use crate::args::NasWorkerArgs;
use crate::failure::{Failure, code};
use crate::ui::messages::print_line;

/// Runs the pass and prints what it took; gives the exit code.
///
/// # Errors
/// The server refuses, or the line breaks.
pub(super) fn run(args: &NasWorkerArgs) -> Result<u8, Failure> {
    let password = std::env::var("ROPEWAY_PASSWORD")
        .map_err(|_| Failure::usage("no password").hint("set ROPEWAY_PASSWORD"))?;
    let runtime = crate::job::runtime()?;
    let result = runtime.block_on(sweep(args, &password));
    runtime.shutdown_background();
    let span = result.map_err(|error| {
        Failure::new(code::NETWORK, error.to_string()).hint("`lab nas` starts this by itself")
    })?;
    print_line(&json!({ "pass": args.pass, "seconds": span.as_secs_f64() }).to_string());
    Ok(code::DONE)
}

async fn sweep(args: &NasWorkerArgs, password: &str) -> Result<Duration, Error> {
    let endpoint = Endpoint::new(args.server.ip().to_string(), args.server.port());
    let options = ClientOptions {
        // What is swept is one connection.
        channels_max: 1,
        durable: false,
        ..ClientOptions::default()
    };
    let client = Client::connect(&endpoint, Login::password("", &args.user, password), options).await?;
    let share = client.share(&args.share).await?;
    let path = Text::from(args.file.as_str());
    let pool = filled(args);
    let (open, reads) = match args.pass.as_str() {
        "write" => (OpenFile::write(CreateDisposition::Create), false),
        "rewrite" => (OpenFile::write(CreateDisposition::Open), false),
        _ => (OpenFile::read(), true),
    };
    evict(args.evict.as_deref());
    let result = pass(&share, &path, &open, &pool, Shape::of(args, reads)).await;
    client.leave().await;
    result
}

/// What a pass is like.
#[derive(Clone, Copy)]
struct Shape {
    size: u64,
    record: u64,
    depth: u32,
    reads: bool,
}

impl Shape {
    fn of(args: &NasWorkerArgs, reads: bool) -> Self {
        Self {
            size: args.size,
            record: args.record.max(1),
            depth: args.depth,
            reads,
        }
    }
}

/// From CREATE to the answer of CLOSE.
async fn pass(
    share: &Share,
    path: &Text,
    open: &OpenFile,
    pool: &Pool,
    shape: Shape,
) -> Result<Duration, Error> {
    let begun = Instant::now();
    let handle = Arc::new(share.open(path, open).await?);
    let next = Arc::new(AtomicU64::new(0));
    let pumps: Vec<_> = (0..shape.depth)
        .map(|_| {
            let (handle, next, pool) = (Arc::clone(&handle), Arc::clone(&next), pool.clone());
            tokio::spawn(async move { pump(&handle, &next, &pool, shape).await })
        })
        .collect();
    let mut result = Ok(());
    for pump in pumps {
        let ended = pump
            .await
            .unwrap_or(Err(Error::Misuse("a task of the worker panicked")));
        result = result.and(ended);
    }
    result?;
    if let Ok(handle) = Arc::try_unwrap(handle) {
        handle.close().await?;
    }
    Ok(begun.elapsed())
}

/// One record after the other, until none is left.
async fn pump(handle: &Handle, next: &AtomicU64, pool: &Pool, shape: Shape) -> Result<(), Error> {
    loop {
        let offset = next.fetch_add(shape.record, Ordering::Relaxed);
        if offset >= shape.size {
            return Ok(());
        }
        let length = shape.record.min(shape.size - offset) as usize;
        let mut block = pool.get().await;
        if shape.reads {
            let (block, result) = handle.read_at(offset, block, length).await;
            result?;
            if block.len() != length {
                return Err(Error::Misuse("the file is shorter than what was written"));
            }
        } else {
            block.capacity_mut()[..8].copy_from_slice(&offset.to_le_bytes());
            block.set_len(length);
            handle.write_at(offset, block.freeze()).await?;
        }
    }
}

/// A block for each request, filled with what does not compress.
fn filled(args: &NasWorkerArgs) -> Pool {
    let pool = Pool::new(args.record.max(8) as usize, args.depth as usize);
    let mut blocks: Vec<_> = std::iter::from_fn(|| pool.try_get()).collect();
    // An LCG's high bytes (Knuth, MMIX): enough to keep any compression away.
    let mut state = args.size | 1;
    for block in &mut blocks {
        for chunk in block.capacity_mut().chunks_mut(4) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            chunk.copy_from_slice(&state.to_be_bytes()[..chunk.len()]);
        }
    }
    drop(blocks);
    pool
}

/// Drops the file from the server's page cache: it is on the same machine. Where that is refused, reads are as rereads.
fn evict(path: Option<&Path>) {
    let Some(path) = path else { return };
    let dropped = || -> io::Result<()> {
        let file = File::open(path)?;
        // Dirty pages would stay.
        file.sync_data()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    };
    if let Err(error) = dropped() {
        tracing::debug!(%error, path = %path.display(), "the file stays in the page cache");
    }
}
