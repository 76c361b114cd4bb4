//! How to reach the server.

use std::path::PathBuf;

use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use ropeway_fleet::error::Error;

/// How to reach a NATS server, and how its stream is made.
#[derive(Clone, Default)]
pub struct NatsOptions {
    /// `nats://host:port` or `tls://host:port`, several with commas.
    pub servers: String,
    /// File with credentials (JWT and nkey seed) as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// File with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// Certificates of authorities for TLS, in PEM; those of the system are used too.
    pub ca: Option<PathBuf>,
    /// Copies of the stream in a cluster, 1 to 5.
    pub replicas: usize,
}

impl NatsOptions {
    /// Connects, and tries for as long as the client library does by default.
    ///
    /// # Errors
    /// [`Error::Queue`]: a file cannot be read, no server answers, or the credentials are refused.
    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        let mut options = ConnectOptions::new().name("ropeway fleet");
        if let Some(path) = &self.credentials {
            let read = options.credentials_file(path).await;
            options = read.map_err(|error| Error::queue(format!("{}: {error}", path.display())))?;
        }
        if let Some(path) = &self.nkey {
            let seed = std::fs::read_to_string(path);
            let seed = seed.map_err(|error| Error::queue(format!("{}: {error}", path.display())))?;
            options = options.nkey(seed.trim().to_owned());
        }
        if let Some((user, password)) = &self.user {
            options = options.user_and_password(user.clone(), password.clone());
        }
        if let Some(path) = &self.ca {
            options = options.add_root_certificates(path.clone());
        }
        let servers: Vec<String> = self.servers.split(',').map(str::to_owned).collect();
        let connected = options.connect(servers).await;
        connected.map_err(|error| {
            let reason = format!("{}: {error}", self.servers);
            match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    Error::QueueLogin(reason)
                }
                _ => Error::queue(reason),
            }
        })
    }
}
