//! A folder of a share as a [`Store`]: what a mount or a server needs of it, by open node.
//!
//! ```text
//! SmbStore ── Shared ─┬─ smb_tree::Inner      paths, metadata, links, attributes, files
//!                     ├─ NodeCache            attributes, missing names, listings; pure
//!                     └─ files ── SharedFile  one for each file in use, by its id
//! SmbNode ─────────────────────────┘ ├─ ReadAhead, ReadBuffers    what to read ahead; pure
//!                                    ├─ WriteBack                 unflushed writes; pure
//!                                    ├─ RangeLocks                byte-range locks
//!                                    └─ SmbFile                   the open file on the server
//! ```
//!
//! **Calls.** A store is synchronous. Each call runs on the caller's thread, which blocks until the
//! tasks of the runtime have done the work. A thread of the runtime itself must not call the store:
//! it would wait for work that it has to do.
//!
//! **Reads.** A second read in sequence begins to read ahead, as deep as the line needs
//! (`read_ahead`). A random read takes one round trip. Of a folder whose files are read whole, one
//! after the other, the next ones are opened and read ahead (`files_ahead`, `read_on`). Of a tree that is listed
//! folder by folder the next folders are listed ahead (`folder_ahead`).
//!
//! **Writes** return at once. They are gathered to large blocks and sent in the background, many at
//! the same time (`write_back`). [`Node::write_out`](ropeway_vfs::store::Node::write_out) waits
//! until the server has answered them, [`Node::sync`](ropeway_vfs::store::Node::sync) until it has
//! flushed them. Both return the error of a write that failed in the background, once to each node that
//! was open then. Whatever the server has not flushed stays in memory, at most
//! [`SmbStoreOptions::write_buffer_max`] bytes of all files; then the store flushes by itself, and writers
//! wait. If a server comes back without the open file, or a flush fails, those writes are sent again.
//!
//! **Names and attributes** are kept for [`SmbStoreOptions::cache_timeout`], or as long as the server
//! grants a lease on the listed folder (`folders`). A listing brings the attributes of its entries.
//! Changes through the store are seen at once.
//!
//! **A lost connection.** Calls wait until the client has reconnected, at most
//! [`ClientOptions::timeout`](crate::ClientOptions::timeout), and go on. Impatient calls
//! ([`ropeway_vfs::patience`]) fail as soon as the server is known to be lost (`reach`).
//!
//! **Open files that are removed** or replaced get a hidden temporary name, and the server deletes
//! them when they are closed: servers keep the name of a deleted file until then. `entries` leaves
//! such names out. If the connection is lost meanwhile, the server may delete such a file at once.
//!
//! **Leases.** An open file has a lease (read, handle) where the server grants one. It does
//! not ask for write caching: another client's open would have to wait for this store. A break ends
//! what was read under the lease; for a watched file the observer is asked first, and what it
//! writes is sent before the break is acknowledged (`leases`).
//!
//! **Watches.** A watched file ([`Node::watch`](ropeway_vfs::store::Node::watch)) stays open with its
//! lease, which is requested again after a break; without a lease it cannot be watched. A watched
//! folder has a CHANGE_NOTIFY at the server (`watches`).

mod ahead_table;
mod asked_folders;
mod attributes;
mod breaks;
mod creation;
mod entries;
mod files;
mod files_ahead;
mod folder_ahead;
mod folder_table;
mod folders;
mod leases;
mod lifetime;
mod links;
mod listings_ahead;
mod locking;
mod names;
mod node;
mod node_cache;
mod open;
mod options;
mod own_changes;
mod range_locks;
mod ranges;
mod read_ahead;
mod read_buffers;
mod read_on;
mod reading;
mod reports;
mod shared;
mod shared_file;
mod stat;
mod stream;
mod top_folder;
mod watch_table;
mod watches;
mod write_back;
mod writing;

use std::sync::Arc;

use ropeway_smb_wire::Text;
use ropeway_vfs::external::Observer;
use ropeway_vfs::patience::Reachability;
use ropeway_vfs::store::{Node, NodeOpen, Opened, Removal, Store, StoreFeatures, Versioning};
use ropeway_vfs::tree::Space;
use ropeway_vfs::{FileId, RelPath, Result};

use self::node::SmbNode;
pub use self::options::SmbStoreOptions;
use self::shared::Shared;
use crate::client::Client;
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::handle::Handle;
use crate::open::OpenFile;
use crate::share::Share;
use crate::smb_tree::{SmbTree, SmbTreeOptions};

/// A folder of a share as a [`Store`]. Clones are the same store.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ropeway_smb_client::{Client, ClientOptions, Endpoint, Login, SmbStore, SmbStoreOptions};
/// use ropeway_vfs::store::{NodeOpen, Store};
/// use ropeway_vfs::RelPath;
///
/// let runtime = tokio::runtime::Runtime::new()?;
/// let login = Login::password("", "user", "secret");
/// let endpoint = Endpoint::new("server", 445);
/// let client = runtime.block_on(Client::connect(&endpoint, login, ClientOptions::default()))?;
/// let options = SmbStoreOptions::default();
/// let runtime = runtime.handle().clone();
/// let store = SmbStore::connect(&client, "public", "some/folder", options, runtime)?;
/// let root = store.open(&RelPath::root(), &NodeOpen::default())?;
/// let mut entries = root.node.entries()?;
/// while let Some((name, stat)) = entries.next()? {
///     println!("{name} {}", stat.size);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SmbStore {
    shared: Arc<Shared>,
}

impl SmbStore {
    /// Connects to a share and opens its folder `base` as a store; the empty path is the whole
    /// share. `runtime` is the one in which the client was connected. Blocks the calling thread,
    /// which must not belong to the runtime.
    ///
    /// # Errors
    /// The errors of [`Client::share`] and of any request; the folder does not exist.
    pub fn connect(
        client: &Client,
        share: &str,
        base: &str,
        options: SmbStoreOptions,
        runtime: tokio::runtime::Handle,
    ) -> ClientResult<Self> {
        let share = runtime.block_on(client.share(share))?;
        Self::of_share(share, base, options, runtime)
    }

    /// Opens a folder of a connected share, like [`connect`](Self::connect).
    ///
    /// # Errors
    /// The errors of any request; the folder does not exist.
    pub fn of_share(
        share: Share,
        base: &str,
        options: SmbStoreOptions,
        runtime: tokio::runtime::Handle,
    ) -> ClientResult<Self> {
        let shared = runtime.block_on(async {
            let volume = share.volume().await?;
            let tree_options = SmbTreeOptions {
                case_sensitive: options.case_sensitive,
                description: options.description.clone(),
                ..SmbTreeOptions::default()
            };
            let tree = SmbTree::open(share.clone(), base, tree_options).await?.inner;
            // The root must exist, or every later call would fail with a misleading error.
            let mut top = None;
            if let Ok(text) = tree.base.text(ropeway_vfs::Op::Open, &RelPath::root()) {
                let leased = async {
                    // Not where every question is to reach the server.
                    if !options.cache_timeout.is_zero() {
                        top = open_leased(&share, &text).await;
                    }
                };
                tokio::join!(share.stat(&text), leased).0?;
            }
            let shared = Shared::new(tree, &volume, options, runtime.clone());
            if let Some(top) = top {
                drop(shared.keep_folder(&RelPath::root(), Some(&top.inner)));
            }
            Ok::<_, ClientError>(shared)
        })?;
        Ok(Self { shared })
    }

    /// Returns the share.
    pub fn share(&self) -> &Share {
        &self.shared.tree.share
    }
}

/// Opens the topmost folder with a lease: each program that uses a path asks for names in it.
async fn open_leased(share: &Share, text: &Text) -> Option<Handle> {
    let mut open = OpenFile::directory();
    open.directory_lease = true;
    let opened = share.open(text, &open).await;
    opened
        .inspect_err(|error| tracing::debug!(%error, "no lease on the topmost folder"))
        .ok()
}

impl std::fmt::Debug for SmbStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SmbStore({})", self.shared.tree.description)
    }
}

impl Store for SmbStore {
    fn features(&self) -> &StoreFeatures {
        &self.shared.features
    }

    fn space(&self) -> Result<Space> {
        self.shared.wait(self.shared.tree.space())
    }

    fn may_have_xattrs(&self) -> bool {
        false
    }

    fn versioning(&self) -> Option<Versioning> {
        self.shared.versioning()
    }

    fn reachability(&self) -> Option<Reachability> {
        Some(match self.shared.lost_for() {
            Some(silent) => Reachability::Lost { silent },
            None => Reachability::Answers,
        })
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        self.shared.wait(self.shared.resolve(path))
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let shared = &self.shared;
        if let Some(opened) = shared.open_known(path, how) {
            return Ok(opened);
        }
        shared.wait(async {
            let _still = shared.moving.read().await;
            shared.open(path, how).await
        })
    }

    fn open_known(&self, path: &RelPath) -> Option<Opened> {
        self.shared.open_later(path)
    }

    fn list_soon(&self, dir: &RelPath) {
        self.shared.list_soon(dir);
    }

    fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        self.shared.wait(self.shared.remove(path, directory))
    }

    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        self.shared.wait(self.shared.remove_node(id, path, what))
    }

    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.shared.wait(self.shared.rename(from, to, replace))
    }

    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.shared.wait(async {
            self.shared.check_id(id, from).await?;
            self.shared.rename(from, to, replace).await
        })
    }

    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()> {
        let from = self.shared.own_node(node, to)?.current_path()?;
        self.shared.wait(self.shared.link(&from, to, replace))
    }

    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.shared.wait(self.shared.link(from, to, replace))
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        self.shared.wait(self.shared.symlink(path, target))
    }

    fn observe(&self, observer: Arc<dyn Observer>) {
        self.shared.reports.observe(observer);
    }

    fn sync(&self) -> Result<()> {
        self.shared.wait(self.shared.sync())
    }
}

impl Shared {
    /// Returns a node of this store.
    fn own_node<'a>(&self, node: &'a dyn Node, path: &RelPath) -> Result<&'a SmbNode> {
        let node = node.as_any().downcast_ref::<SmbNode>();
        let own = node.filter(|node| std::ptr::eq(Arc::as_ptr(&node.file().store), self));
        own.ok_or_else(|| {
            ropeway_vfs::Error::new(ropeway_vfs::Op::Link, path, ropeway_vfs::ErrorKind::Misuse)
        })
    }
}
