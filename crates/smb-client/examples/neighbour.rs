//! A client that a copy by another client should not slow down: it reads 4 KiB at random places of a file,
//! with a pause after each read, so that it is no load. `cargo xtask bench neighbour` runs it.
//!
//! ```text
//! ROPEWAY_PASSWORD=… cargo run --release -p ropeway-smb-client --example neighbour -- \
//!     server[:port] user share FILE
//! ```
//! It prints `ready`, reads until the standard input ends, and prints a line of JSON: the number of reads, and
//! percentiles of their times in microseconds. A read that stalls counts as all reads that would have waited
//! for it, since a long wait would else be one read of many (coordinated omission).

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

/// Returns a percentile of sorted times in microseconds (nearest rank).
fn percentile(sorted: &[Duration], percent: usize) -> u128 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).map_or(0, Duration::as_micros)
}

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
    while !has_ended.load(Ordering::Acquire) {
        let offset = random.u64(..blocks) * BLOCK as u64;
        let block = pool.get().await;
        let begun = Instant::now();
        file.read_at(offset, block, BLOCK).await.1?;
        let waits = std::iter::successors(Some(begun.elapsed()), |waited| {
            let rest = waited.checked_sub(PAUSE)?;
            (!rest.is_zero()).then_some(rest)
        });
        times.extend(waits.take(READS_MAX - times.len()));
        tokio::time::sleep(PAUSE).await;
    }
    times.sort_unstable();
    println!(
        "{{\"reads\":{},\"p50_us\":{},\"p99_us\":{},\"max_us\":{}}}",
        times.len(),
        percentile(&times, 50),
        percentile(&times, 99),
        percentile(&times, 100)
    );
    client.close_now().await;
    Ok(())
}
