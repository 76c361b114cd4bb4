//! A client that a copy by another client should not slow down: it reads 4 KiB at random places of a file,
//! with a pause after each read, so that it is no load. `cargo xtask bench neighbour` runs it.
//!
//! ```text
//! ROPEWAY_PASSWORD=… cargo run --release -p ropeway-smb-client --example neighbour -- \
//!     server[:port] user share FILE
//! ```
//! It prints `ready`, reads until the standard input ends, and prints a line of JSON: its pause, and the time of
//! each read, in microseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropeway_block::Pool;
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Error, Login, OpenFile, Text};

/// Bytes of a read.
const BLOCK: usize = 4096;
/// Pause after a read.
const PAUSE: Duration = Duration::from_millis(5);
/// Largest number of reads that are kept: hours.
const READS_MAX: usize = 1 << 22;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, user, share, file] = &args[..] else {
        return Err(Error::Misuse("usage: neighbour server[:port] user share FILE"));
    };
    let endpoint: Endpoint = server.parse().map_err(|_| Error::Misuse("not a server's name"))?;
    let password = std::env::var("ROPEWAY_PASSWORD").unwrap_or_default();
    let login = Login::password("", user, &password);
    let client = Client::connect(&endpoint, login, ClientOptions::default()).await?;
    let share = client.share(share).await?;
    let file = share.open(&Text::from(file.as_str()), &OpenFile::read()).await?;
    let blocks = file.created().end_of_file / BLOCK as u64;
    if blocks == 0 {
        return Err(Error::Misuse("the file has less than 4 KiB"));
    }
    println!("ready");
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    std::thread::spawn(move || {
        _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        ended.store(true, Ordering::Release);
    });
    let (pool, mut times, mut random) = (Pool::new(BLOCK, 1), Vec::new(), fastrand::Rng::with_seed(blocks));
    while !has_ended.load(Ordering::Acquire) && times.len() < READS_MAX {
        let offset = random.u64(..blocks) * BLOCK as u64;
        let block = pool.get().await;
        let begun = Instant::now();
        file.read_at(offset, block, BLOCK).await.1?;
        times.push(begun.elapsed().as_micros().to_string());
        tokio::time::sleep(PAUSE).await;
    }
    println!(
        "{{\"pause_us\":{},\"times_us\":[{}]}}",
        PAUSE.as_micros(),
        times.join(",")
    );
    client.close_now().await;
    Ok(())
}
