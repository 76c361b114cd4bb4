//! The servers that a command speaks with: one client for each, one connection to each share, made when first needed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;

use ropeway_smb_client::{
    ChannelsAtStart, Client, ClientOptions, DfsHosts, Endpoint, Error as SmbError, KerberosError, NtStatus,
    ShareInfo, SmbTree, SmbTreeOptions, Unprotected,
};
use ropeway_vfs::{ErrorKind, Metadata, RelPath, Tree};
use tokio::sync::Mutex;

use crate::args::ShareArgs;
use crate::failure::{Failure, code};
use crate::secrets::{Auth, Chosen, Means, Ring, Secrets, Source};
use crate::url::{Address, Server, SmbUrl};

/// A share of a server; names of shares have no case.
type ShareKey = (Server, String);

/// The servers of one command.
pub(crate) struct Servers {
    options: ClientOptions,
    /// For those about to move much.
    at_start: ChannelsAtStart,
    means: Means,
    acls: bool,
    connected: Mutex<Connected>,
}

/// Everything that is connected so far. Locked while connecting: the second URL of a server waits for the first.
#[derive(Default)]
struct Connected {
    secrets: Option<Secrets>,
    clients: HashMap<Server, Client>,
    shares: HashMap<ShareKey, SmbTree>,
}

impl Servers {
    /// As the flags say; nothing is read or connected yet.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn new(args: &ShareArgs) -> Result<Self, Failure> {
        Ok(Self {
            options: args.options()?,
            at_start: args
                .channels
                .map_or(ChannelsAtStart::ByLine, ChannelsAtStart::Exactly),
            means: Means::of(args),
            acls: args.acls,
            connected: Mutex::default(),
        })
    }

    /// With several connections from the start, as many as the line or `--channels` wants: much is about to be moved.
    pub(crate) fn for_much(mut self) -> Self {
        self.options.channels_at_start = self.at_start;
        self
    }

    /// No server is known, as for paths of this machine.
    pub(crate) fn none() -> Self {
        Self {
            options: ClientOptions::default(),
            at_start: ChannelsAtStart::ByLine,
            means: Means {
                credentials: Vec::new(),
                anonymous: true,
                auth: Auth::Ntlm,
                keyring: Ring::Off,
            },
            acls: false,
            connected: Mutex::default(),
        }
    }

    /// Takes leave of all servers, without waiting for what they say to it.
    pub(crate) async fn leave(&self) {
        // Whoever holds it is connecting still, and nobody waits for that any more.
        let Ok(mut connected) = self.connected.try_lock() else {
            return;
        };
        connected.shares.clear();
        for (_, client) in connected.clients.drain() {
            client.close_now().await;
        }
    }

    /// The shares that a server offers.
    ///
    /// # Errors
    /// It cannot be reached, or does not say.
    pub(crate) async fn shares(&self, server: &Server) -> Result<Vec<ShareInfo>, Trouble> {
        let client = {
            let mut connected = self.connected.lock().await;
            self.client(&mut connected, server).await?
        };
        client.shares().await.map_err(Trouble::Smb)
    }

    /// Metadata of what a URL names; a link is not followed.
    ///
    /// # Errors
    /// It is not there, or cannot be reached.
    pub(crate) async fn metadata(&self, url: &SmbUrl) -> Result<Metadata, Trouble> {
        let top = self.share(url, false).await?;
        top.metadata(&url.path).await.map_err(Trouble::Tree)
    }

    /// The same of what is about to be read: its names, if it has some, come along.
    ///
    /// # Errors
    /// It is not there, or cannot be reached.
    pub(crate) async fn metadata_of_source(&self, url: &SmbUrl) -> Result<Metadata, Trouble> {
        let top = self.share(url, true).await?;
        top.metadata(&url.path).await.map_err(Trouble::Tree)
    }

    /// The share of a URL as a tree, from its top.
    ///
    /// # Errors
    /// It cannot be reached.
    pub(crate) async fn top(&self, url: &SmbUrl) -> Result<Arc<dyn Tree>, Trouble> {
        Ok(Arc::new(self.share(url, true).await?))
    }

    /// Opens a folder as a tree.
    ///
    /// # Errors
    /// It cannot be reached.
    pub(crate) async fn tree(&self, url: &SmbUrl) -> Result<Arc<dyn Tree>, Trouble> {
        let top = self.share(url, true).await?;
        if url.path.is_root() {
            return Ok(Arc::new(top));
        }
        let tree = top.below(&url.path, url.to_string());
        Ok(Arc::new(tree.map_err(Trouble::Smb)?))
    }

    /// The share of a URL from its top. Made for this URL, it has looked at it already, and with `names` into it.
    async fn share(&self, url: &SmbUrl, names: bool) -> Result<SmbTree, Trouble> {
        let Some(name) = &url.share else {
            return Err(Trouble::Said(
                Failure::usage(format!("{url} names a server and no share"))
                    .hint(format!("`ropeway ls {url}` lists its shares")),
            ));
        };
        let mut connected = self.connected.lock().await;
        let client = self.client(&mut connected, &url.server).await?;
        let key = (url.server.clone(), name.to_lowercase());
        match connected.shares.entry(key) {
            Entry::Occupied(share) => Ok(share.get().clone()),
            Entry::Vacant(vacant) => {
                let options = SmbTreeOptions {
                    acls: self.acls,
                    description: Some(url.with_path(RelPath::root()).to_string()),
                    ..SmbTreeOptions::default()
                };
                let top = SmbTree::connect(&client, name, &url.path, names, options).await;
                Ok(vacant.insert(top.map_err(Trouble::Smb)?).clone())
            }
        }
    }

    async fn client(&self, connected: &mut Connected, server: &Server) -> Result<Client, Trouble> {
        if let Some(client) = connected.clients.get(server) {
            return Ok(client.clone());
        }
        let secrets = match &mut connected.secrets {
            Some(secrets) => secrets,
            empty => {
                let environment = |name: &str| std::env::var_os(name);
                let secrets = Secrets::load(&self.means, &environment);
                empty.insert(secrets.map_err(Trouble::Said)?.hashed())
            }
        };
        let chosen = secrets.login(server).map_err(Trouble::Said)?;
        let mut options = self.options.clone();
        if chosen.source == Source::Keyring {
            // It was kept for this host.
            options.dfs = DfsHosts::Own;
        }
        let client = connect(server, chosen, options).await;
        let client = client.map_err(Trouble::Said)?;
        connected.clients.insert(server.clone(), client.clone());
        Ok(client)
    }
}

/// Logs in to a server.
///
/// # Errors
/// It cannot be reached, or does not let us in.
pub(crate) async fn connect(
    server: &Server,
    chosen: Chosen,
    options: ClientOptions,
) -> Result<Client, Failure> {
    let endpoint = Endpoint::new(server.host.clone(), server.port);
    let connected = Client::connect(&endpoint, chosen.login, options).await;
    connected.map_err(|error| of_connect(server, chosen.source, &error))
}

/// Why something on a server cannot be had.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Already in words for people.
    Said(Failure),
    /// The client's.
    Smb(SmbError),
    /// A tree's.
    Tree(ropeway_vfs::Error),
}

impl Trouble {
    /// Whether there is nothing of that name.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::Said(_) => false,
            Self::Smb(error) => matches!(
                error.status(),
                Some(
                    NtStatus::OBJECT_NAME_NOT_FOUND
                        | NtStatus::OBJECT_PATH_NOT_FOUND
                        | NtStatus::NO_SUCH_FILE
                )
            ),
            Self::Tree(error) => error.kind == ErrorKind::NotFound,
        }
    }

    /// The kind of a tree's error.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Tree(error) => Some(error.kind),
            _ => None,
        }
    }

    /// As a failure; `what` could not be done.
    pub(crate) fn failure(&self, what: &str, on_source: bool) -> Failure {
        match self {
            Self::Said(failure) => failure.clone(),
            Self::Smb(error) => {
                let failure = Failure::new(code_of(error, on_source), format!("{what}: {}", clause(error)));
                with_hint(failure, error)
            }
            Self::Tree(error) => Failure::of_node(what, error, on_source),
        }
    }
}

/// A server that cannot be reached, or does not let us in.
fn of_connect(server: &Server, source: Source, error: &SmbError) -> Failure {
    let code = match error {
        // Nothing that this machine failed at has to do with a source or target yet.
        SmbError::Local { .. } => code::NETWORK,
        other => code_of(other, true),
    };
    let code = if code == code::SOURCE { code::NETWORK } else { code };
    let failure = Failure::new(
        code,
        format!("cannot connect to {}: {}", Address(server), clause(error)),
    );
    match error {
        SmbError::Local { .. } => failure.hint(format!(
            "is the server on, and does it listen on port {}? `smb://host:port/…` names another port",
            server.port
        )),
        // What was kept may have been changed since.
        SmbError::PeerRefused {
            status: NtStatus::LOGON_FAILURE | NtStatus::WRONG_PASSWORD,
            ..
        } if source == Source::Keyring => failure.hint(format!(
            "the password comes from the keyring: `ropeway login {server}` keeps another, `ropeway logout {server}` forgets it"
        )),
        _ => with_hint(failure, error),
    }
}

fn with_hint(failure: Failure, error: &SmbError) -> Failure {
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None if failure.code == code::NETWORK => {
            failure.hint("check the server and the line; then run it again")
        }
        None => failure,
    }
}

/// The server's sentence without the name of the request, which people do not know.
fn clause(error: &SmbError) -> String {
    match error {
        SmbError::PeerRefused { status, .. } => format!("{} ({status})", status.sentence()),
        SmbError::Local { source, .. } => crate::ends::cause(source),
        other => other.to_string(),
    }
}

fn code_of(error: &SmbError, on_source: bool) -> u8 {
    let side = if on_source { code::SOURCE } else { code::TARGET };
    match error {
        SmbError::Kerberos(KerberosError::NotBuiltIn) => code::USAGE,
        SmbError::Kerberos(KerberosError::NoKdc { .. }) => code::NETWORK,
        SmbError::Login(_)
        | SmbError::Kerberos(_)
        | SmbError::ReferralRefused { .. }
        | SmbError::Unprotected(Unprotected::Guest) => code::PERMISSION,
        SmbError::PeerRefused { status, .. } => match *status {
            NtStatus::ACCESS_DENIED | NtStatus::NETWORK_ACCESS_DENIED | NtStatus::PRIVILEGE_NOT_HELD => {
                code::PERMISSION
            }
            status if status.refuses_login() => code::PERMISSION,
            _ => side,
        },
        SmbError::Local { .. } => side,
        SmbError::Misuse(_) => code::USAGE,
        _ => code::NETWORK,
    }
}

/// The client's error in a tree's error: its clause and hint.
pub(crate) fn inside(error: &io::Error) -> Option<(String, Option<&'static str>)> {
    let error: &SmbError = error.get_ref()?.downcast_ref()?;
    Some((clause(error), error.hint()))
}
