//! SRC as a store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_client::{SmbStore, SmbStoreOptions};
use ropeway_vfs::End;
use ropeway_vfs::store::Store;
use tokio::runtime::Runtime;

#[cfg(feature = "smb1")]
use super::options;
use super::options::credentials;
use crate::args::MountArgs;
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::{ServerError, Servers};
use crate::url::SmbUrl;

/// Longest time to wait for the server when the mount has ended.
const LOG_OFF_MAX: Duration = Duration::from_secs(2);

/// A store to mount.
pub(super) struct Source {
    /// The store.
    pub(super) store: Arc<dyn Store>,
    /// Its name for `mount` and `df`.
    pub(super) name: String,
    /// What serves a share.
    pub(super) share: Option<ConnectedShare>,
}

/// The connection to a server, and the runtime that its tasks run in.
pub(super) struct ConnectedShare {
    servers: Servers,
    runtime: Runtime,
}

impl ConnectedShare {
    /// Logs off. Everything is flushed already.
    pub(super) fn log_off(self) {
        self.runtime.block_on(self.servers.log_off());
        self.runtime.shutdown_timeout(LOG_OFF_MAX);
    }
}

/// Opens SRC.
///
/// # Errors
/// It cannot be opened, or MNT is inside of it.
pub(super) fn open_store(args: &MountArgs) -> Result<Source, Failure> {
    match Place::parse_end(&args.source)? {
        Place::Local(path) => open_folder(&path, &args.mountpoint),
        Place::Remote(url) => open_share(&url, args),
    }
}

fn open_share(url: &SmbUrl, args: &MountArgs) -> Result<Source, Failure> {
    let fault = |error: &ServerError| error.failure(&format!("cannot open {url}"), End::Source);
    let Ok(base) = std::str::from_utf8(url.path.as_bytes()) else {
        return Err(Failure::usage(format!("{url}: the path is not UTF-8")).hint("mount a folder above it"));
    };
    let mut share_args = args.share.clone();
    share_args.credentials.extend(credentials(args));
    let servers = Servers::new(&share_args)?.with_channels_at_start();
    let runtime = crate::job::runtime()?;
    #[cfg(feature = "smb1")]
    if url.server.is_smb1() {
        if options::boost(args)?.boost.is_some() {
            return Err(
                Failure::usage(format!("{url}: a share of SMB 1 is mounted without a cache"))
                    .hint("leave --boost out, or copy the share to a folder first"),
            );
        }
        let tree = runtime.block_on(servers.smb1_tree(url));
        let tree = tree.map_err(|error| fault(&error))?;
        let store = ropeway_smb1_client::Smb1Store::new(tree, runtime.handle().clone());
        return Ok(Source {
            store: Arc::new(store),
            name: url.to_string(),
            share: Some(ConnectedShare { servers, runtime }),
        });
    }
    let share = runtime.block_on(servers.smb_share(url));
    let share = share.map_err(|error| fault(&error))?;
    let options = SmbStoreOptions {
        description: Some(url.to_string()),
        ..SmbStoreOptions::default()
    };
    let store = SmbStore::of_share(share, base, options, runtime.handle().clone());
    let store = store.map_err(|error| fault(&ServerError::Smb(error)))?;
    Ok(Source {
        store: Arc::new(store),
        name: url.to_string(),
        share: Some(ConnectedShare { servers, runtime }),
    })
}

fn open_folder(path: &Path, mountpoint: &Path) -> Result<Source, Failure> {
    let store = LocalStore::open(path, &StoreOptions::default())
        .map_err(|error| Failure::of_tree(&path.display().to_string(), &error, End::Source))?;
    let whole = path.canonicalize();
    let whole = whole.map_err(|error| Failure::of_end(error.to_string(), &error, code::SOURCE))?;
    let inside = |mountpoint: &Path| mountpoint != whole && mountpoint.starts_with(&whole);
    if mountpoint
        .canonicalize()
        .is_ok_and(|mountpoint| inside(&mountpoint))
    {
        // The mount would contain itself.
        let message = format!("cannot mount {} inside itself", path.display());
        return Err(Failure::new(code::REFUSED, message).hint("choose a folder outside for the mount"));
    }
    Ok(Source {
        store: Arc::new(store),
        name: whole.display().to_string(),
        share: None,
    })
}
