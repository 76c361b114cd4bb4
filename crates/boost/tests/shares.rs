//! The common contract of stores and random operations beside a model, kept with a cache in front
//! of shares of our server and of smbd, while the cache's device fails, hangs and comes back.
//! `ROPEWAY_STORE_ROUNDS` sets the number of rounds.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::serve::Serve;
use crate::support::{boost, compare, disturb};
use ropeway_boost::{Boost, BoostStore, share_id};
use ropeway_cache::SimulatedDevice;
use ropeway_peers::{PeerError, Share, Smbd, or_skip};
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Login, SmbStore, SmbStoreOptions};
use ropeway_vfs::contract::store::{Abilities, check_store, model};
use ropeway_vfs::store::Store;
use tokio::runtime::Runtime;

const OUR_SERVER: Abilities = Abilities {
    case_sensitive: false,
    ..Abilities::ALL
};
/// Samba 4.17 makes no reparse points.
const SMBD: Abilities = Abilities {
    symlinks: false,
    ..OUR_SERVER
};

/// Steps between two comparisons.
const ROUND: usize = 200;
/// Rounds of an ordinary run. Each waits until what was written is old enough to be cached.
const ROUNDS: usize = 8;
/// After this time the store keeps nothing older, so that a file which was written is cached again:
/// the slack of `SmbStore`, and some time for slow machines.
const MEMORY: Duration = Duration::from_millis(1150);

/// A folder that a server shares, and what clients need.
struct Bench {
    runtime: Runtime,
    address: SocketAddr,
    folder: std::path::PathBuf,
    can: Abilities,
}

impl Bench {
    fn new(address: SocketAddr, folder: &Path, can: Abilities) -> Self {
        Self {
            runtime: Runtime::new().unwrap(),
            address,
            folder: folder.to_owned(),
            can,
        }
    }

    /// Makes a folder of the share, and returns a boosted store on it.
    fn store(&self, base: &str, boost: &Boost) -> BoostStore {
        std::fs::create_dir(self.folder.join(base)).unwrap();
        let endpoint = Endpoint::new(self.address.ip().to_string(), self.address.port());
        let login = Login::password("", "alice", "secret");
        let options = ClientOptions {
            timeout: Duration::from_secs(20),
            ..ClientOptions::default()
        };
        let client = self.runtime.block_on(Client::connect(&endpoint, login, options));
        let options = SmbStoreOptions {
            cache_timeout: Duration::ZERO,
            data_timeout: Duration::ZERO,
            ..SmbStoreOptions::default()
        };
        let handle = self.runtime.handle().clone();
        let store = SmbStore::connect(&client.unwrap(), "data", base, options, handle).unwrap();
        BoostStore::new(Arc::new(store), boost.clone(), share_id(base))
    }

    fn keeps_the_contract(&self) {
        let boost = boost(&SimulatedDevice::new(16 << 20));
        let count = AtomicUsize::new(0);
        check_store(
            || {
                let base = format!("rule{}", count.fetch_add(1, Ordering::Relaxed));
                Arc::new(self.store(&base, &boost)) as Arc<dyn Store>
            },
            self.can,
        );
    }

    fn agrees_with_a_model(&self, seed: u64) {
        let given = std::env::var("ROPEWAY_STORE_ROUNDS");
        let rounds = given.map_or(ROUNDS, |rounds| rounds.parse().unwrap());
        let device = SimulatedDevice::new(8 << 20);
        let boost = boost(&device);
        let base = format!("seed{seed}");
        let store = self.store(&base, &boost);
        let mut random = fastrand::Rng::with_seed(seed);
        model::run(&store, self.can, seed, rounds * ROUND, |step| {
            if step % ROUND != ROUND - 1 {
                return;
            }
            store.sync().unwrap();
            std::thread::sleep(MEMORY);
            // The first comparison fills the cache, the others read from it whatever the device
            // does.
            for _ in 0..6 {
                compare(&store, &self.folder.join(&base));
                disturb(&device, &mut random);
            }
        });
        let stats = boost.stats();
        println!("{rounds} rounds, seed {seed}: {stats:?}");
        assert!(stats.device_hits > 10 * rounds as u64, "{stats:?}");
        assert!(stats.turned_off > 0, "{stats:?}");
    }
}

#[test]
fn a_boosted_share_of_our_server_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    Bench::new(serve.address, folder.path(), OUR_SERVER).keeps_the_contract();
}

#[test]
fn random_operations_on_a_boosted_share_of_our_server_agree_with_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    Bench::new(serve.address, folder.path(), OUR_SERVER).agrees_with_a_model(1);
}

fn smbd(folder: &Path) -> Result<Smbd, PeerError> {
    let share = Share::new("data", folder).streams();
    let builder = Smbd::builder().user("alice", "secret").share(share);
    builder.durable_handles(true).start()
}

#[test]
fn a_boosted_share_of_smbd_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(smbd(folder.path()));
    Bench::new(smbd.address(), folder.path(), SMBD).keeps_the_contract();
}

#[test]
fn random_operations_on_a_boosted_share_of_smbd_agree_with_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(smbd(folder.path()));
    Bench::new(smbd.address(), folder.path(), SMBD).agrees_with_a_model(2);
}
