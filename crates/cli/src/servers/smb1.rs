//! Servers that speak SMB 1, by `smb1://` URLs. Each server prints a warning once in a run.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ropeway_smb_client::{Endpoint, LostServer, ShareInfo};
use ropeway_smb1_client::{Smb1Client, Smb1Options, Smb1Tree, Smb1TreeOptions};
use ropeway_vfs::RelPath;
use tokio::sync::Mutex;

use super::{ServerError, ShareKey, of_connect, share_of};
use crate::args::ShareArgs;
use crate::failure::Failure;
use crate::secrets::{ChosenLogin, LoginOptions, Secrets};
use crate::ui::messages;
use crate::url::{Address, Server, SmbUrl};

/// What `smb1://` means, in one line. It is printed for each server.
const WARNING: &str = "SMB 1 is neither encrypted nor safe: others on the network can read what is copied; use it only to copy \
     data off, and log in as a user of that machine alone";

/// The SMB 1 servers of one command.
pub(super) struct Smb1Servers {
    args: Option<ShareArgs>,
    connected: Mutex<Connected>,
}

#[derive(Default)]
struct Connected {
    secrets: Option<Secrets>,
    clients: HashMap<Server, Smb1Client>,
    shares: HashMap<ShareKey, Smb1Tree>,
}

impl Smb1Servers {
    pub(super) fn new(args: &ShareArgs) -> Self {
        Self {
            args: Some(args.clone()),
            connected: Mutex::default(),
        }
    }

    /// Knows no server.
    pub(super) fn none() -> Self {
        Self {
            args: None,
            connected: Mutex::default(),
        }
    }

    pub(super) async fn log_off(&self) {
        // The lock is held by a connect that nobody waits for any more.
        let Ok(mut connected) = self.connected.try_lock() else {
            return;
        };
        connected.shares.clear();
        for (_, client) in connected.clients.drain() {
            client.close().await;
        }
    }

    /// Returns a server that does not answer, if there is one.
    pub(super) fn lost(&self) -> Option<LostServer> {
        let connected = self.connected.try_lock().ok()?;
        connected.clients.values().find_map(Smb1Client::lost)
    }

    pub(super) async fn shares(&self, server: &Server) -> Result<Vec<ShareInfo>, ServerError> {
        let client = {
            let mut connected = self.connected.lock().await;
            self.client(&mut connected, server).await?
        };
        client.shares().await.map_err(ServerError::Smb)
    }

    /// Returns the share of a URL from its top folder.
    pub(super) async fn share(&self, url: &SmbUrl) -> Result<Smb1Tree, ServerError> {
        let name = share_of(url)?;
        let mut connected = self.connected.lock().await;
        let client = self.client(&mut connected, &url.server).await?;
        let key = (url.server.clone(), name.to_lowercase());
        match connected.shares.entry(key) {
            Entry::Occupied(share) => Ok(share.get().clone()),
            Entry::Vacant(vacant) => {
                let options = Smb1TreeOptions {
                    description: Some(url.with_path(RelPath::root()).to_string()),
                };
                let share = client.share(name).await.map_err(ServerError::Smb)?;
                let tree = Smb1Tree::open(share, "", options).await;
                Ok(vacant.insert(tree.map_err(ServerError::Smb)?).clone())
            }
        }
    }

    /// Opens the folder of a URL.
    pub(super) async fn tree(&self, url: &SmbUrl) -> Result<Smb1Tree, ServerError> {
        let top = self.share(url).await?;
        match url.path.is_root() {
            true => Ok(top),
            false => top.below(&url.path, url.to_string()).map_err(ServerError::Smb),
        }
    }

    async fn client(&self, connected: &mut Connected, server: &Server) -> Result<Smb1Client, ServerError> {
        if let Some(client) = connected.clients.get(server) {
            return Ok(client.clone());
        }
        let Some(args) = &self.args else {
            return Err(ServerError::Reported(Failure::usage(
                "no server can be used here",
            )));
        };
        let options = args.smb1_options().map_err(ServerError::Reported)?;
        let secrets = match &mut connected.secrets {
            Some(secrets) => secrets,
            empty => {
                let environment = |name: &str| std::env::var_os(name);
                let secrets = Secrets::load(&LoginOptions::of(args), &environment);
                let secrets = secrets.map_err(ServerError::Reported)?;
                // Old proofs need the password itself.
                empty.insert(match args.smb1.needs_password() {
                    true => secrets,
                    false => secrets.hashed(),
                })
            }
        };
        let chosen = secrets.login(server).map_err(ServerError::Reported)?;
        let client = connect(server, chosen, args, options)
            .await
            .map_err(ServerError::Reported)?;
        connected.clients.insert(server.clone(), client.clone());
        Ok(client)
    }
}

/// Connects and logs in to a server, and prints the warnings.
///
/// # Errors
/// The server cannot be reached, does not speak SMB 1, or refuses the login.
pub(crate) async fn connect(
    server: &Server,
    chosen: ChosenLogin,
    args: &ShareArgs,
    options: Smb1Options,
) -> Result<Smb1Client, Failure> {
    messages::print_stderr(&format!("warning: {}: {WARNING}", Address(server)));
    for warning in args.smb1_warnings() {
        messages::print_stderr(&format!("warning: {}: {warning}", Address(server)));
    }
    let endpoint = Endpoint::new(server.host.clone(), server.port);
    let connected = Smb1Client::connect(&endpoint, &chosen.login, options).await;
    connected.map_err(|error| of_connect(server, chosen.source, &error))
}
