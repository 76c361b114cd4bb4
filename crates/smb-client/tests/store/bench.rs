//! A server over a folder, and stores on it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_client::{Client, ClientOptions, Endpoint, Login, SmbStore, SmbStoreOptions};
use ropeway_vfs::RelPath;
use ropeway_vfs::store::{Access, NewNode, Node, NodeOpen, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::way::Way;
use crate::serve::Serve;

/// A server with a relay before it, and a runtime for clients.
pub(crate) struct Bench {
    // Dropped in this order: clients before the server.
    pub(crate) runtime: Runtime,
    pub(crate) way: Way,
    pub(crate) serve: Serve,
    pub(crate) folder: TempDir,
}

impl Bench {
    pub(crate) fn start() -> Self {
        Self::with_delay(Duration::ZERO)
    }

    pub(crate) fn with_delay(delay: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let serve = Serve::start(folder.path());
        let runtime = Runtime::new().unwrap();
        let way = runtime.block_on(Way::to(serve.address, delay));
        Self {
            runtime,
            way,
            serve,
            folder,
        }
    }

    pub(crate) fn store(&self) -> SmbStore {
        self.store_with("", SmbStoreOptions::default())
    }

    pub(crate) fn store_with(&self, base: &str, options: SmbStoreOptions) -> SmbStore {
        connect(&self.runtime, self.way.address, base, options)
    }

    /// Makes a folder of the share, and returns a store on it.
    pub(crate) fn store_in(&self, base: &str) -> SmbStore {
        std::fs::create_dir(self.folder.path().join(base)).unwrap();
        self.store_with(base, SmbStoreOptions::default())
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Connects a client of its own.
pub(crate) fn connect(
    runtime: &Runtime,
    address: SocketAddr,
    base: &str,
    options: SmbStoreOptions,
) -> SmbStore {
    let endpoint = Endpoint::new(address.ip().to_string(), address.port());
    let login = Login::password("", "alice", "secret");
    let client_options = ClientOptions {
        timeout: Duration::from_secs(20),
        ..ClientOptions::default()
    };
    let client = runtime
        .block_on(Client::connect(&endpoint, login, client_options))
        .unwrap();
    SmbStore::connect(&client, "data", base, options, runtime.handle().clone()).unwrap()
}

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

pub(crate) const READ: NodeOpen = NodeOpen {
    access: Access::Read,
    allow_less_access: false,
    create: None,
    exclusive: false,
    link_itself: false,
};

pub(crate) const LOOK: NodeOpen = NodeOpen {
    access: Access::Attributes,
    ..READ
};

pub(crate) const CREATE: NodeOpen = NodeOpen {
    access: Access::Write,
    create: Some(NewNode {
        directory: false,
        dos_attributes: None,
    }),
    ..READ
};

/// As `cp` makes a file.
pub(crate) const NEW: NodeOpen = NodeOpen {
    exclusive: true,
    ..CREATE
};

pub(crate) const NEW_FOLDER: NodeOpen = NodeOpen {
    access: Access::Attributes,
    create: Some(NewNode {
        directory: true,
        dos_attributes: None,
    }),
    ..NEW
};

pub(crate) fn open(store: &SmbStore, at: &str, how: &NodeOpen) -> Arc<dyn Node> {
    store.open(&path(at), how).unwrap().node
}

pub(crate) fn content(node: &dyn Node) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 20];
    let count = node.read_at(&mut buffer, 0).unwrap();
    buffer.truncate(count);
    buffer
}

/// Returns pseudo-random bytes.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}
