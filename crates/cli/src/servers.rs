//! The servers that a command uses: one client per server, one connection per share, opened on
//! first use. `smb1://` URLs go their own way ([`smb1`]).

#[cfg(feature = "smb1")]
pub(crate) mod smb1;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;

use ropeway_smb_client::{
    ChannelsAtStart, Client, ClientOptions, ConnectionInfo, DfsHosts, Endpoint, Error as SmbError,
    KerberosError, NtStatus, SessionRecord, Share, ShareInfo, SmbTree, SmbTreeOptions, Unprotected,
};
use ropeway_vfs::event::LostConnection;
use ropeway_vfs::{End, ErrorKind, Metadata, RelPath, Tree};
use tokio::sync::Mutex;

use crate::args::ShareArgs;
use crate::failure::{Failure, code};
use crate::line::LineReport;
use crate::secrets::{Auth, ChosenLogin, Keyring, LoginOptions, Secrets, Source};
use crate::url::{Address, Server, SmbUrl};

/// A share on a server; the names of shares are case-insensitive.
type ShareKey = (Server, String);

/// The servers of one command.
pub(crate) struct Servers {
    options: ClientOptions,
    /// Connections to open at the start, for commands that move much data.
    at_start: ChannelsAtStart,
    login_options: LoginOptions,
    acls: bool,
    connected: Mutex<Connected>,
    /// Logins that were used, so that a further connection asks for no password.
    logins: Logins,
    #[cfg(feature = "smb1")]
    smb1: smb1::Smb1Servers,
}

type Logins = Arc<parking_lot::Mutex<HashMap<Server, ChosenLogin>>>;

/// Clients and shares that are connected. It is locked while connecting, so a second URL of the
/// same server waits for the first.
#[derive(Default)]
struct Connected {
    secrets: Option<Secrets>,
    clients: HashMap<Server, Client>,
    shares: HashMap<ShareKey, SmbTree>,
}

impl Servers {
    /// Prepares for servers as the flags say; reads nothing and connects to nothing yet.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn new(args: &ShareArgs) -> Result<Self, Failure> {
        Ok(Self {
            options: args.options()?,
            at_start: args
                .channels
                .map_or(ChannelsAtStart::ByLine, ChannelsAtStart::Exactly),
            login_options: LoginOptions::of(args),
            acls: args.acls,
            connected: Mutex::default(),
            logins: Logins::default(),
            #[cfg(feature = "smb1")]
            smb1: smb1::Smb1Servers::new(args),
        })
    }

    /// Prepares for connections of their own to the same servers, with the same logins.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn apart(&self, args: &ShareArgs) -> Result<Self, Failure> {
        let mut apart = Self::new(args)?;
        apart.logins = Arc::clone(&self.logins);
        Ok(apart)
    }

    /// Opens several connections at the start, as many as the line or `--channels` asks for,
    /// because much data is about to be moved.
    pub(crate) fn with_channels_at_start(mut self) -> Self {
        self.options.channels_at_start = self.at_start;
        self
    }

    /// Ends the sessions of an earlier process that `record` has, and notes those of this one there.
    pub(crate) fn with_session_record(mut self, record: Option<Arc<dyn SessionRecord>>) -> Self {
        self.options.session_record = record;
        self
    }

    /// Returns an instance that knows no server, for local paths.
    pub(crate) fn none() -> Self {
        Self {
            options: ClientOptions::default(),
            at_start: ChannelsAtStart::ByLine,
            login_options: LoginOptions {
                credentials: Vec::new(),
                anonymous: true,
                auth: Auth::Ntlm,
                keyring: Keyring::Off,
            },
            acls: false,
            connected: Mutex::default(),
            logins: Logins::default(),
            #[cfg(feature = "smb1")]
            smb1: smb1::Smb1Servers::none(),
        }
    }

    /// Logs off from every server without waiting for the replies.
    pub(crate) async fn log_off(&self) {
        #[cfg(feature = "smb1")]
        self.smb1.log_off().await;
        // The lock is held by a connect that nobody waits for any more.
        let Ok(mut connected) = self.connected.try_lock() else {
            return;
        };
        connected.shares.clear();
        for (_, client) in connected.clients.drain() {
            client.close_now().await;
        }
    }

    /// Returns a server that does not answer, if there is one.
    pub(crate) fn lost(&self) -> Option<LostConnection> {
        // While a server is connected to for the first time, no job runs.
        let connected = self.connected.try_lock().ok()?;
        let lost = connected.clients.values().find_map(Client::lost);
        #[cfg(feature = "smb1")]
        let lost = lost.or_else(|| self.smb1.lost());
        let lost = lost?;
        Some(LostConnection {
            server: lost.host,
            silent_seconds: lost.silent.map(|time| time.as_secs_f64()),
            seconds_left: lost.left.map(|time| time.as_secs_f64()),
        })
    }

    /// Returns what is known of the connection to a server; `None` if there is none.
    pub(crate) async fn connection(&self, server: &Server) -> Option<ConnectionInfo> {
        let connected = self.connected.lock().await;
        connected.clients.get(server).map(Client::info)
    }

    /// Returns what TCP reports of the line to the server that most was moved to or from; `None`
    /// without a server.
    pub(crate) fn line(&self) -> Option<LineReport> {
        // While a server is connected to for the first time, no job runs.
        let connected = self.connected.try_lock().ok()?;
        let lines = connected.clients.values().map(|client| {
            let info = client.info();
            LineReport {
                channels: info.channels,
                round_trip: info.round_trip.unwrap_or_default(),
                info: info.line,
                compresses_by_line: info.compression.by_line,
            }
        });
        lines.max_by_key(|line| line.info.info.sent + line.info.info.received)
    }

    /// Lists the shares that a server offers.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the list.
    pub(crate) async fn shares(&self, server: &Server) -> Result<Vec<ShareInfo>, ServerError> {
        #[cfg(feature = "smb1")]
        if server.is_smb1() {
            return self.smb1.shares(server).await;
        }
        let client = {
            let mut connected = self.connected.lock().await;
            self.client(&mut connected, server).await?
        };
        client.shares().await.map_err(ServerError::Smb)
    }

    /// Returns the metadata of the node a URL names; a link is not followed.
    ///
    /// # Errors
    /// The node does not exist, or the server cannot be reached.
    pub(crate) async fn metadata(&self, url: &SmbUrl) -> Result<Metadata, ServerError> {
        self.metadata_with(url, false).await
    }

    /// Returns the metadata of a node that is about to be read. If the node is a folder, its first
    /// entries come in the same round trip.
    ///
    /// # Errors
    /// The node does not exist, or the server cannot be reached.
    pub(crate) async fn metadata_of_source(&self, url: &SmbUrl) -> Result<Metadata, ServerError> {
        self.metadata_with(url, true).await
    }

    async fn metadata_with(&self, url: &SmbUrl, names: bool) -> Result<Metadata, ServerError> {
        #[cfg(feature = "smb1")]
        if url.server.is_smb1() {
            let top = self.smb1.share(url).await?;
            return top.metadata(&url.path).await.map_err(ServerError::Tree);
        }
        let top = self.share(url, names).await?;
        top.metadata(&url.path).await.map_err(ServerError::Tree)
    }

    /// Returns the share of a URL as a tree, from its top folder.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(crate) async fn share_tree(&self, url: &SmbUrl) -> Result<Arc<dyn Tree>, ServerError> {
        #[cfg(feature = "smb1")]
        if url.server.is_smb1() {
            return Ok(Arc::new(self.smb1.share(url).await?));
        }
        Ok(Arc::new(self.share(url, true).await?))
    }

    /// Opens a folder as a tree.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(crate) async fn tree(&self, url: &SmbUrl) -> Result<Arc<dyn Tree>, ServerError> {
        #[cfg(feature = "smb1")]
        if url.server.is_smb1() {
            return Ok(Arc::new(self.smb1.tree(url).await?));
        }
        let top = self.share(url, true).await?;
        if url.path.is_root() {
            return Ok(Arc::new(top));
        }
        let tree = top.below(&url.path, url.to_string());
        Ok(Arc::new(tree.map_err(ServerError::Smb)?))
    }

    /// Opens a folder on a server of SMB 1, to mount it.
    ///
    /// # Errors
    /// The server cannot be reached.
    #[cfg(feature = "smb1")]
    pub(crate) async fn smb1_tree(&self, url: &SmbUrl) -> Result<ropeway_smb1_client::Smb1Tree, ServerError> {
        self.smb1.tree(url).await
    }

    /// Connects to the share of a URL, to serve or mount it.
    ///
    /// # Errors
    /// The URL names no share or a server of SMB 1, or the server cannot be reached.
    pub(crate) async fn smb_share(&self, url: &SmbUrl) -> Result<Share, ServerError> {
        if url.server.is_smb1() {
            return Err(ServerError::Reported(
                Failure::usage(format!("{url}: a share of SMB 1 cannot be served again"))
                    .hint("copy it to a folder first, and serve that: `ropeway copy --gentle SHARE DIR`"),
            ));
        }
        let name = share_of(url)?;
        let client = {
            let mut connected = self.connected.lock().await;
            self.client(&mut connected, &url.server).await?
        };
        client.share(name).await.map_err(ServerError::Smb)
    }

    /// Returns the share of a URL from its top folder. A new connection looks up the URL's path at
    /// once, and with `names` lists the folder too.
    async fn share(&self, url: &SmbUrl, names: bool) -> Result<SmbTree, ServerError> {
        let name = share_of(url)?;
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
                Ok(vacant.insert(top.map_err(ServerError::Smb)?).clone())
            }
        }
    }

    async fn client(&self, connected: &mut Connected, server: &Server) -> Result<Client, ServerError> {
        if let Some(client) = connected.clients.get(server) {
            return Ok(client.clone());
        }
        let known = self.logins.lock().get(server).cloned();
        let chosen = match known {
            Some(known) => known,
            None => {
                let secrets = match &mut connected.secrets {
                    Some(secrets) => secrets,
                    empty => {
                        let environment = |name: &str| std::env::var_os(name);
                        let secrets = Secrets::load(&self.login_options, &environment);
                        empty.insert(secrets.map_err(ServerError::Reported)?.hashed())
                    }
                };
                secrets.login(server).map_err(ServerError::Reported)?
            }
        };
        let mut options = self.options.clone();
        if chosen.source == Source::Keyring {
            // The password was stored for this host only.
            options.dfs = DfsHosts::Own;
        }
        let client = connect(server, chosen.clone(), options).await;
        let client = client.map_err(ServerError::Reported)?;
        self.logins.lock().insert(server.clone(), chosen);
        connected.clients.insert(server.clone(), client.clone());
        Ok(client)
    }
}

/// Returns the name of the share in a URL.
fn share_of(url: &SmbUrl) -> Result<&str, ServerError> {
    url.share.as_deref().ok_or_else(|| {
        ServerError::Reported(
            Failure::usage(format!("{url} names a server, but no share"))
                .hint(format!("`ropeway ls {url}` lists its shares")),
        )
    })
}

/// Connects and logs in to a server.
///
/// # Errors
/// The server cannot be reached, or refuses the login.
pub(crate) async fn connect(
    server: &Server,
    chosen: ChosenLogin,
    options: ClientOptions,
) -> Result<Client, Failure> {
    let endpoint = Endpoint::new(server.host.clone(), server.port);
    let connected = Client::connect(&endpoint, chosen.login, options).await;
    connected.map_err(|error| of_connect(server, chosen.source, &error))
}

/// Errors while using a server.
#[derive(Debug)]
pub(crate) enum ServerError {
    /// An error that already has a message and a hint.
    Reported(Failure),
    /// The SMB client's error.
    Smb(SmbError),
    /// A tree operation's error.
    Tree(ropeway_vfs::Error),
}

impl ServerError {
    /// Returns whether the node does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::Reported(_) => false,
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

    /// Returns the kind of a tree's error.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Tree(error) => Some(error.kind),
            _ => None,
        }
    }

    /// Converts the error to a failure; `what` says what could not be done.
    pub(crate) fn failure(&self, what: &str, end: End) -> Failure {
        match self {
            Self::Reported(failure) => failure.clone(),
            Self::Smb(error) => {
                let failure = Failure::new(code_of(error, end), format!("{what}: {}", clause(error)));
                with_hint(failure, error)
            }
            Self::Tree(error) => Failure::of_node(what, error, end),
        }
    }
}

/// Makes a failure for a server that cannot be reached or that refuses the login.
fn of_connect(server: &Server, source: Source, error: &SmbError) -> Failure {
    let code = match error {
        // A local error at this point concerns the network, not the source or the target.
        SmbError::Local { .. } => code::NETWORK,
        other => code_of(other, End::Source),
    };
    let code = if code == code::SOURCE { code::NETWORK } else { code };
    if error.is_lookup() {
        let message = format!("cannot find the server {}: {}", Address(server), clause(error));
        return Failure::new(code, message).hint(
            "check its name, and that this machine has a network; an address works too: smb://192.0.2.7/…",
        );
    }
    let failure = Failure::new(
        code,
        format!("cannot connect to {}: {}", Address(server), clause(error)),
    );
    match error {
        SmbError::Local { .. } => failure.hint(format!(
            "check that the server is running and listens on port {}; `{}host:port/…` names another port",
            server.port,
            server.prefix()
        )),
        // The password may have changed since it was stored.
        SmbError::PeerRefused {
            status: NtStatus::LOGON_FAILURE | NtStatus::WRONG_PASSWORD,
            ..
        } if source == Source::Keyring => failure.hint(format!(
            "the password comes from the keyring: `ropeway login {server}` replaces it, `ropeway logout {server}` removes it"
        )),
        _ => with_hint(failure, error),
    }
}

fn with_hint(failure: Failure, error: &SmbError) -> Failure {
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None if failure.code == code::NETWORK => {
            failure.hint("check the server and the network, then run it again")
        }
        None => failure,
    }
}

/// Returns the server's message without the name of the request, which users do not know.
fn clause(error: &SmbError) -> String {
    match error {
        SmbError::PeerRefused { status, .. } => format!("{} ({status})", status.sentence()),
        SmbError::Local { source, .. } => crate::ends::cause(source),
        other => other.to_string(),
    }
}

fn code_of(error: &SmbError, end: End) -> u8 {
    let side = match end {
        End::Source => code::SOURCE,
        End::Target => code::TARGET,
    };
    match error {
        SmbError::Kerberos(KerberosError::NotBuiltIn) => code::USAGE,
        SmbError::Kerberos(KerberosError::NoKdc { .. }) => code::NETWORK,
        SmbError::Login(_)
        | SmbError::Kerberos(_)
        | SmbError::ReferralRefused { .. }
        | SmbError::Unprotected(Unprotected::Guest | Unprotected::ClearText) => code::PERMISSION,
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

/// Returns the clause and the hint of a client's error inside a tree's error.
pub(crate) fn inside(error: &io::Error) -> Option<(String, Option<&'static str>)> {
    let error: &SmbError = error.get_ref()?.downcast_ref()?;
    Some((clause(error), error.hint()))
}
