//! Hostile responses against the client: it logs in to a server whose responses are changed, and
//! works.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropeway_block::Pool;
use ropeway_copy::{Delete, Job, JobSpec, Options, Root};
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_smb_client::{
    Client, ClientOptions, CompressionOffer, Encryption, Endpoint, Error, Login, Share, SmbTree,
    SmbTreeOptions, Text,
};
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_server::{Server, ServerHandle};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_vfs::{CacheMode, MetadataChange, OpenOptions, RelPath, Timestamp, Tree};

use crate::canaries::Canaries;
use crate::chance::Random;
use crate::mutator::{MutationRates, StormMutator};
use crate::runner::{Counts, Session};
use crate::server::{fill_share, options};
use crate::values::one_of;

/// Timeout of a request and of a reconnect.
const TIMEOUT: Duration = Duration::from_millis(700);
/// Time after which an operation counts as hung. A job has tens of requests, and a few never get a
/// response.
const HANG: Duration = Duration::from_secs(60);
/// Time after which a session starts no further operation.
const SESSION: Duration = Duration::from_secs(6);
/// Number of parallel workers.
const WORKERS: u64 = 6;
/// Number of operations of each worker.
const OPERATIONS: u64 = 60;

/// A server that changes its responses; stopped at the end.
struct MutatingServer {
    endpoint: Endpoint,
    handle: ServerHandle,
    thread: Option<std::thread::JoinHandle<()>>,
    mutator: Arc<StormMutator>,
    /// Whether forged responses are the only change.
    is_honest: bool,
}

impl MutatingServer {
    fn start(share: &Path, random: &mut Random, rates: MutationRates, lznt1: bool) -> Result<Self, String> {
        let mutator = Arc::new(StormMutator::new(rates, Random::new(random.next())));
        let mut options = options(share, Random::new(random.next()));
        options.config.compression = Algorithms {
            lz4: !lznt1,
            lznt1,
            pattern_v1: true,
            zstd: !lznt1,
        };
        options.io_threads = 2;
        options.reply_mutator = Some(Arc::clone(&mutator) as _);
        let server = Server::bind(([127, 0, 0, 1], 0).into(), options).map_err(|error| error.to_string())?;
        let address = server.local_addr().map_err(|error| error.to_string())?;
        Ok(Self {
            endpoint: Endpoint::new("127.0.0.1", address.port()),
            handle: server.handle(),
            mutator,
            is_honest: rates.mutation_percent == 0,
            thread: Some(std::thread::spawn(move || server.run().expect("it serves"))),
        })
    }

    fn logins(&self) -> u64 {
        let counters = self.handle.counters();
        counters.logins.load(Ordering::Relaxed) + counters.logins_failed.load(Ordering::Relaxed)
    }
}

impl Drop for MutatingServer {
    fn drop(&mut self) {
        self.handle.stop();
        _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Draws the client's options.
fn client_options(random: &mut Random) -> (ClientOptions, &'static str) {
    let sealed = random.percent(50);
    let compression = random.percent(50);
    let offer = match (compression, random.percent(60)) {
        (false, _) => CompressionOffer::Off,
        (true, false) => CompressionOffer::OwnEnds,
        (true, true) => CompressionOffer::On,
    };
    let dialects = match random.below(8) {
        0 => Dialect::Smb202..=Dialect::Smb210,
        1 | 2 => Dialect::Smb300..=Dialect::Smb302,
        _ => Dialect::Smb202..=Dialect::Smb311,
    };
    let is_new = *dialects.end() == Dialect::Smb311;
    let sealed = sealed && *dialects.start() <= *dialects.end() && *dialects.end() >= Dialect::Smb302;
    let group = match (sealed, compression && is_new, is_new) {
        (false, false, _) => "frames signed",
        (false, true, _) => "frames signed and compressed",
        (true, _, false) => "frames sealed, AES-128-CCM",
        (true, false, true) => "frames sealed, AES-128-GCM",
        (true, true, true) => "frames sealed and compressed, AES-128-GCM",
    };
    let options = ClientOptions {
        dialects,
        encryption: match sealed {
            true => Encryption::Required,
            false => Encryption::Off,
        },
        compression: offer,
        channels_max: 1,
        timeout: TIMEOUT,
        ..ClientOptions::default()
    };
    (options, group)
}

struct Worker {
    client: Client,
    share: Share,
    tree: Option<Arc<SmbTree>>,
    local: Arc<dyn Tree>,
    random: Random,
    number: u64,
}

/// Runs a session.
///
/// # Errors
/// What the client did wrong.
pub(crate) fn session(session: &mut Session<'_>) -> Result<Counts, String> {
    let kept = Canaries::new(session.folder)?;
    let share = session.folder.join("share");
    fill_share(&share).map_err(|error| format!("no share: {error}"))?;
    let local = session.folder.join("local");
    let random = &mut session.random;
    let rates = MutationRates {
        mutation_percent: one_of(random, &[0, 3, 10, 30, 70]),
        damage_per_10000: one_of(random, &[0, 0, 0, 20, 100]),
        from_start: random.percent(20),
    };
    let (options, group) = client_options(random);
    let lznt1 = random.percent(40);
    let mut server = MutatingServer::start(&share, random, rates, lznt1)?;
    let mut counts = Counts::default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let seed = Random::new(random.next());
    let done = runtime.block_on(play(&mut server, options, &local, seed, session))?;
    runtime.shutdown_timeout(Duration::from_secs(5));
    let mutator = Arc::clone(&server.mutator);
    drop(server);
    counts.reached = mutator.responses.load(Ordering::Relaxed);
    counts.add(group, counts.reached);
    counts.add(
        "frames changed under signature or seal",
        mutator.changed.load(Ordering::Relaxed),
    );
    counts.add("frames changed after it", mutator.damaged.load(Ordering::Relaxed));
    counts.add("operations done", done.fine);
    counts.add("operations that failed with an error", done.failed);
    counts.add(
        "clients that were tampered with, and stayed out",
        u64::from(done.tampered),
    );
    kept.check()?;
    let mut names = std::fs::read_dir(session.folder)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.file_name()))
                .collect::<Result<Vec<_>, _>>()
        })
        .map_err(|error| error.to_string())?;
    names.sort();
    if names != ["local", "outside", "share"] {
        return Err(format!("something was written beside the target: {names:?}"));
    }
    Ok(counts)
}

#[derive(Debug, Default)]
struct Completed {
    fine: u64,
    failed: u64,
    tampered: bool,
}

/// Logs in and works until the end of the session.
async fn play(
    server: &mut MutatingServer,
    options: ClientOptions,
    local: &Path,
    mut random: Random,
    session: &Session<'_>,
) -> Result<Completed, String> {
    std::fs::create_dir_all(local.join("own/sub")).map_err(|error| error.to_string())?;
    std::fs::write(local.join("own/sub/file"), vec![7; 100_000]).map_err(|error| error.to_string())?;
    std::fs::write(local.join("own/small"), "small").map_err(|error| error.to_string())?;
    let login = Login::password("", "alice", "secret");
    let begins = Client::connect(&server.endpoint, login, options);
    let client = limited("login", begins).await?;
    let mut done = Completed::default();
    let Ok(client) = client else {
        done.failed += 1;
        return Ok(done);
    };
    let tree: Arc<dyn Tree> =
        LocalTree::open(local, LocalOptions::default()).map_err(|error| error.to_string())?;
    let end = Instant::now() + SESSION;
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let Ok(share) = limited("share", client.share("data")).await? else {
            done.failed += 1;
            continue;
        };
        let worker = Worker {
            client: client.clone(),
            share,
            tree: None,
            local: Arc::clone(&tree),
            random: Random::new(random.next()),
            number,
        };
        workers.push(tokio::spawn(worker.run(end)));
    }
    for (index, worker) in workers.into_iter().enumerate() {
        let (fine, failed) = worker.await.map_err(|error| error.to_string())??;
        done.fine += fine;
        done.failed += failed;
        session.at(index as u64);
    }
    // A wrong signature ends everything: no operation succeeds any more, and the client does not
    // log in again.
    let before = server.logins();
    let text = Text::from("file");
    let last = match limited("last share", client.share("data")).await? {
        Ok(share) => limited("final check", share.stat(&text)).await?.map(drop),
        Err(error) => Err(error),
    };
    done.tampered = matches!(last, Err(Error::Tampered(_)));
    if done.tampered && server.logins() != before {
        return Err("there was a login after the connection was tampered with".into());
    }
    // With other changes, the connection may have ended before the forged response was read.
    if server.is_honest && server.mutator.has_forged() && !done.tampered {
        return Err(format!("a forged answer was taken: {last:?}"));
    }
    limited("close", client.close()).await?;
    Ok(done)
}

/// Waits for an operation for a limited time.
async fn limited<T>(what: &str, operation: impl Future<Output = T>) -> Result<T, String> {
    let outcome = tokio::time::timeout(HANG, operation).await;
    outcome.map_err(|_| format!("{what} does not end"))
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

impl Worker {
    /// Returns the numbers of successful and failed operations.
    async fn run(mut self, end: Instant) -> Result<(u64, u64), String> {
        let (mut fine, mut failed) = (0, 0);
        for _ in 0..OPERATIONS {
            if Instant::now() > end {
                break;
            }
            let which = self.random.below(22);
            let outcome = limited(&format!("operation {which}"), self.operation(which)).await?;
            match outcome {
                true => fine += 1,
                false => failed += 1,
            }
        }
        Ok((fine, failed))
    }

    async fn operation(&mut self, which: usize) -> bool {
        if which >= 8 && self.tree.is_none() {
            let share = self.share.clone();
            let Ok(tree) = SmbTree::open(share, "", SmbTreeOptions::default()).await else {
                return false;
            };
            self.tree = Some(Arc::new(tree));
        }
        match (which, self.tree.clone()) {
            (8.., Some(tree)) => self.of_tree(which, tree).await,
            _ => self.of_share(which).await,
        }
    }

    async fn of_share(&mut self, which: usize) -> bool {
        let number = self.number;
        let own = Text::from(format!("own{number}").as_str());
        match which {
            0 | 1 => self.share.stat(&Text::from("folder\\inner")).await.is_ok(),
            2 => {
                let Ok(mut listing) = self.share.list(&Text::from("folder"), "*").await else {
                    return false;
                };
                for _ in 0..50 {
                    match listing.next().await {
                        Ok(Some(_)) => {}
                        Ok(None) => return true,
                        Err(_) => return false,
                    }
                }
                true
            }
            3 => self.share.make_directory(&own).await.is_ok(),
            4 => self.share.remove(&own).await.is_ok(),
            5 => {
                let other = Text::from(format!("other{number}").as_str());
                self.share.rename(&own, &other, true).await.is_ok()
            }
            6 => self.share.volume().await.is_ok(),
            _ => match self.random.percent(20) {
                true => self.client.shares().await.is_ok(),
                false => self.share.stat(&Text::from("missing")).await.is_ok(),
            },
        }
    }

    async fn of_tree(&mut self, which: usize, tree: Arc<SmbTree>) -> bool {
        let file = path("file");
        match which {
            8 | 9 => tree.metadata(&path("folder/inner")).await.is_ok(),
            10 | 11 => walk(&*tree).await,
            12..15 => read(&*tree, &file).await,
            15 => tree.xattrs(&file).await.is_ok(),
            16 => tree.read_link(&path("link")).await.is_ok(),
            17 => {
                let change = MetadataChange {
                    modified: Some(Timestamp::from_unix(1_600_000_000, 0)),
                    ..MetadataChange::default()
                };
                tree.set_metadata(&file, &change).await.is_ok()
            }
            18 => tree.space().await.is_ok(),
            19 => {
                self.copy(&(Arc::clone(&self.local)), &(tree as _), "own", "up")
                    .await
            }
            _ => {
                self.copy(&(tree as _), &Arc::clone(&self.local), "", "down")
                    .await
            }
        }
    }

    /// Copies or mirrors into this worker's own folder.
    async fn copy(&mut self, source: &Arc<dyn Tree>, target: &Arc<dyn Tree>, from: &str, to: &str) -> bool {
        let root = Root {
            source: Arc::clone(source),
            source_name: RelPath::root(),
            source_path: path(from),
            target_path: path(&format!("{to}{}", self.number)),
        };
        let mut options = Options {
            delete: self.random.percent(50).then(Delete::default),
            timeout: Some(TIMEOUT),
            ..Options::default()
        };
        options.retry.tries_max = 1;
        let spec = JobSpec {
            roots: vec![root],
            target: Arc::clone(target),
            options,
            journal: None,
            environment: Default::default(),
        };
        let events = AtomicU64::new(0);
        let job = Job::new(spec).run(Arc::new(move |_| {
            events.fetch_add(1, Ordering::Relaxed);
        }));
        job.await.status == ropeway_copy::Status::Done
    }
}

/// Lists recursively, up to a limit.
async fn walk(tree: &dyn Tree) -> bool {
    let mut folders = vec![RelPath::root()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let Ok(mut listing) = tree.list(&folder).await else {
            return false;
        };
        loop {
            let Ok(entries) = listing.next(100).await else {
                return false;
            };
            if entries.is_empty() || seen > 300 {
                break;
            }
            for entry in entries {
                seen += 1;
                let is_folder = entry
                    .metadata
                    .as_ref()
                    .is_ok_and(|known| known.kind == ropeway_vfs::Kind::Directory);
                if is_folder && folders.len() < 20 {
                    folders.push(folder.join(&entry.name));
                }
            }
        }
        if seen > 300 {
            break;
        }
    }
    true
}

async fn read(tree: &dyn Tree, file: &RelPath) -> bool {
    let Ok(open) = tree.open(file, OpenOptions::read(CacheMode::Auto)).await else {
        return false;
    };
    let pool = Pool::new(16 << 10, 1);
    let mut fine = true;
    for offset in [0, 4000, 9999, 10_000] {
        let (_, outcome) = open.read_at(pool.get().await, offset, 16 << 10).await;
        fine &= outcome.is_ok();
    }
    fine
}
