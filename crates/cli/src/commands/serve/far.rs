//! Far servers: the stores of shares given as URLs. All of them use one runtime and one cache, and
//! shares of one server use one login.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_boost::{Session, Status};
use ropeway_smb_client::{SmbStore, SmbStoreOptions};
use ropeway_vfs::End;
use ropeway_vfs::store::Store;
use tokio::runtime::Runtime;

use super::printer::Printer;
use super::shares::RequestedShare;
use super::write_back::{self, BacklogStatus, Journals};
use crate::args::FarArgs;
use crate::commands::boost::open;
use crate::failure::Failure;
use crate::place::Place;
use crate::servers::{ServerError, Servers};
use crate::url::SmbUrl;

/// Returns the figures of the cache of far shares.
pub(super) type CacheStatus = Arc<dyn Fn() -> Status + Send + Sync>;

/// Longest time to wait for far servers when this server has stopped.
const LOG_OFF_MAX: Duration = Duration::from_secs(2);

/// The far servers, connected when the first share of one is opened.
pub(super) struct FarServers {
    args: FarArgs,
    connected: Mutex<Option<Connected>>,
    cache: Mutex<Option<Session>>,
    journals: Journals,
    printer: Arc<Printer>,
}

struct Connected {
    servers: Servers,
    runtime: Runtime,
}

impl FarServers {
    /// Prepares for far servers; connects to nothing yet. Opens the cache that the flags name.
    ///
    /// # Errors
    /// The cache cannot be used.
    pub(super) fn new(args: &FarArgs, printer: &Arc<Printer>) -> Result<Self, Failure> {
        let warner = Arc::clone(printer);
        let say = Arc::new(move |line: &str| warner.warn(line));
        let cache = open::session(&args.boost, "serve", |line| printer.note(line), say)?;
        Ok(Self {
            args: args.clone(),
            connected: Mutex::default(),
            cache: Mutex::new(cache),
            journals: Journals::default(),
            printer: Arc::clone(printer),
        })
    }

    /// Returns the figures of the cache; `None` without one.
    pub(super) fn cache_status(&self) -> Option<CacheStatus> {
        self.cache.lock().as_ref().map(Session::status)
    }

    /// Returns the figures of the write-back journals.
    pub(super) fn backlog_status(&self) -> BacklogStatus {
        self.journals.status()
    }

    /// Refuses a folder that has a backlog of a share that is not served.
    ///
    /// # Errors
    /// It has one.
    pub(super) fn check_backlogs(&self, wanted: &[RequestedShare]) -> Result<(), Failure> {
        let urls: Vec<String> = wanted
            .iter()
            .filter_map(|share| match &share.place {
                Place::Remote(url) => Some(url.to_string()),
                Place::Local(_) => None,
            })
            .collect();
        write_back::check(&self.args, &urls)
    }

    /// Knows no far server and has no cache.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self {
            args: FarArgs::none(),
            connected: Mutex::default(),
            cache: Mutex::default(),
            journals: Journals::default(),
            printer: Arc::new(Printer::new(false)),
        }
    }

    /// Opens a far share, or a folder of it. Must not be called in a runtime.
    ///
    /// # Errors
    /// The server cannot be reached or refuses the login, or the folder does not exist.
    pub(super) fn open(&self, url: &SmbUrl) -> Result<Arc<dyn Store>, Failure> {
        let fault = |error: &ServerError| error.failure(&format!("cannot share {url}"), End::Source);
        let Ok(base) = std::str::from_utf8(url.path.as_bytes()) else {
            return Err(
                Failure::usage(format!("{url}: the path is not UTF-8")).hint("share a folder above it")
            );
        };
        let mut connected = self.connected.lock();
        let Connected { servers, runtime } = match &mut *connected {
            Some(connected) => connected,
            empty => empty.insert(Connected {
                servers: Servers::new(&self.args.share_args())?
                    .with_channels_at_start()
                    .with_session_record(write_back::session_record(&self.args)?),
                runtime: crate::job::runtime()?,
            }),
        };
        let share = runtime.block_on(servers.smb_share(url));
        let share = share.map_err(|error| fault(&error))?;
        let options = SmbStoreOptions {
            description: Some(url.to_string()),
            ..SmbStoreOptions::default()
        };
        let store = SmbStore::of_share(share, base, options, runtime.handle().clone());
        let store = store.map_err(|error| fault(&ServerError::Smb(error)))?;
        let store: Arc<dyn Store> = match &*self.cache.lock() {
            Some(cache) => open::boosted(&self.args.boost, cache, Arc::new(store), &url.to_string())?,
            None => Arc::new(store),
        };
        self.journals
            .wrap(&self.args, &url.to_string(), store, &self.printer)
    }

    /// Writes back what the journals hold, for a limited time, closes the cache and logs off from all of them. Everything is flushed already, and nothing
    /// is read any more.
    pub(super) fn log_off(&self) {
        self.journals.close(&self.printer);
        if let Some(cache) = self.cache.lock().take() {
            cache.close();
        }
        if let Some(Connected { servers, runtime }) = self.connected.lock().take() {
            runtime.block_on(servers.log_off());
            runtime.shutdown_timeout(LOG_OFF_MAX);
        }
    }
}
