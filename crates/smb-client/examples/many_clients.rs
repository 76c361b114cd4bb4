//! Many clients of one server at once, each with a connection and a login of its own. `cargo xtask
//! bench clients` runs it against `ropeway serve` and smbd.
//!
//! ```text
//! ROPEWAY_PASSWORD=… cargo run --release -p ropeway-smb-client --example many_clients -- \
//!     server[:port] user share WORK CLIENTS COUNT
//! ```
//! * `files`: each client opens, reads and closes COUNT files one after another. The share has the
//!   files `files\0` to `files\999` of at most 64 KiB.
//! * `bulk`: each client reads COUNT MiB of the file `big`, four reads of 1 MiB in flight.
//! * `idle`: the clients connect, log in and open `files\0`. Then a line is printed, and they wait
//!   until the standard input ends.
//!
//! The result of the first two is a line of JSON: seconds, operations, bytes, and percentiles of the time of an open
//! in microseconds.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use futures_util::{TryStreamExt, stream};
use ropeway_block::Pool;
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Error, Handle, Login, OpenFile, Share, Text};

/// Number of files in the folder `files`.
const FILES: u64 = 1000;
/// Largest size in bytes of one of them.
const FILE_MAX: usize = 64 << 10;
/// Bytes of a read of `big`, and reads in flight.
const RECORD: u64 = 1 << 20;
const DEPTH: usize = 4;
/// Number of clients that log in at the same time.
const LOGINS: usize = 16;

/// What one client did.
#[derive(Default)]
struct Done {
    bytes: u64,
    opens: Vec<Duration>,
}

async fn connect(endpoint: &Endpoint, user: &str, share: &str) -> Result<Share, Error> {
    let password = std::env::var("ROPEWAY_PASSWORD").unwrap_or_default();
    let options = ClientOptions {
        channels_max: 1,
        ..ClientOptions::default()
    };
    let client = Client::connect(endpoint, Login::password("", user, &password), options).await?;
    client.share(share).await
}

/// Connects all clients, some at a time.
async fn connect_all(
    endpoint: &Endpoint,
    user: &str,
    share: &str,
    count: usize,
) -> Result<Vec<Share>, Error> {
    let mut shares = Vec::new();
    while shares.len() < count {
        let group = LOGINS.min(count - shares.len());
        shares.extend(try_join_all((0..group).map(|_| connect(endpoint, user, share))).await?);
    }
    Ok(shares)
}

async fn open(share: &Share, name: &str) -> Result<Handle, Error> {
    share.open(&Text::from(name), &OpenFile::read()).await
}

/// Opens, reads and closes files one after another.
async fn files(share: &Share, client: u64, count: u64) -> Result<Done, Error> {
    let pool = Pool::new(FILE_MAX, 1);
    let mut done = Done::default();
    for number in 0..count {
        // Another order for each client, with 7 and 1000 coprime.
        let name = format!("files\\{}", (client * 61 + number * 7) % FILES);
        let begun = Instant::now();
        let file = open(share, &name).await?;
        done.opens.push(begun.elapsed());
        let length = file.created().end_of_file.min(FILE_MAX as u64);
        let (_, outcome) = file.read_at(0, pool.get().await, length as usize).await;
        outcome?;
        done.bytes += length;
        file.close().await?;
    }
    Ok(done)
}

/// Reads the start of the file `big`.
async fn bulk(share: &Share, count: u64) -> Result<Done, Error> {
    let begun = Instant::now();
    let file = open(share, "big").await?;
    let opens = vec![begun.elapsed()];
    let pool = Pool::new(RECORD as usize, DEPTH);
    stream::iter((0..count).map(Ok))
        .try_for_each_concurrent(DEPTH, |index| {
            let (file, pool) = (&file, &pool);
            async move {
                let block = pool.get().await;
                file.read_at(index * RECORD, block, RECORD as usize).await.1
            }
        })
        .await?;
    file.close().await?;
    Ok(Done {
        bytes: count * RECORD,
        opens,
    })
}

/// Returns a percentile of sorted times in microseconds.
fn percentile(sorted: &[Duration], percent: usize) -> u128 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(0, Duration::as_micros)
}

fn print(seconds: f64, done: Vec<Done>) {
    let bytes: u64 = done.iter().map(|client| client.bytes).sum();
    let mut opens: Vec<Duration> = done.into_iter().flat_map(|client| client.opens).collect();
    opens.sort_unstable();
    println!(
        "{{\"seconds\":{seconds:.6},\"operations\":{},\"bytes\":{bytes},\"open_p50_us\":{},\"open_p99_us\":{},\"open_max_us\":{}}}",
        opens.len(),
        percentile(&opens, 50),
        percentile(&opens, 99),
        percentile(&opens, 100)
    );
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let usage = Error::Misuse("usage: many_clients server[:port] user share files|bulk|idle CLIENTS COUNT");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, user, share, work, clients, count] = &args[..] else {
        return Err(usage);
    };
    let (Ok(clients), Ok(count)) = (clients.parse::<usize>(), count.parse::<u64>()) else {
        return Err(usage);
    };
    let endpoint: Endpoint = server.parse().map_err(|_| Error::Misuse("not a server's name"))?;
    let shares = connect_all(&endpoint, user, share, clients).await?;
    let begun = Instant::now();
    let done = match work.as_str() {
        "files" => {
            let all = shares.iter().enumerate();
            try_join_all(all.map(|(client, share)| files(share, client as u64, count))).await?
        }
        "bulk" => try_join_all(shares.iter().map(|share| bulk(share, count))).await?,
        "idle" => {
            let handles = try_join_all(shares.iter().map(|share| open(share, "files\\0"))).await?;
            println!("ready: {}", handles.len());
            let wait = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            _ = tokio::task::spawn_blocking(wait).await;
            return Ok(());
        }
        _ => return Err(usage),
    };
    print(begun.elapsed().as_secs_f64(), done);
    for share in &shares {
        share.client().clone().close_now().await;
    }
    Ok(())
}
