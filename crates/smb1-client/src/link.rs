//! The link to one server with one login: holds the current connection and makes a new one when it
//! is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ropeway_smb_client::common::{connect, random};
use ropeway_smb_client::{
    Endpoint, Error, FileTime, Login, LostReason, LostServer, Password, Result, Verdict,
};
use ropeway_smb1::client::{Config, Connection, Entropy, Identity};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::channel::{Channel, queues};
use crate::driver::Driver;
use crate::frames::NETBIOS_PORT;
use crate::options::Smb1Options;

/// Longest time for one attempt to open a TCP connection to a server that is lost, as in the client
/// of SMB 2.
const RECONNECT_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// The link to one server with one login.
pub(crate) struct Link {
    pub(crate) endpoint: Endpoint,
    pub(crate) options: Smb1Options,
    identity: Identity,
    guest_allowed: bool,
    current: Mutex<Option<Arc<Channel>>>,
    /// Held while a connection is made; waiters then look at `current` and `failure`.
    connecting: tokio::sync::Mutex<()>,
    failure: Mutex<Option<(Instant, Error)>>,
    is_closed: AtomicBool,
    generations: AtomicU64,
    /// When an attempt to connect again is given up, while there is one.
    given_up_at: Mutex<Option<Instant>>,
}

/// An attempt to connect again, until it is dropped.
struct Tried<'a>(&'a Mutex<Option<Instant>>);

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// Returns who logs in.
fn identity(login: &Login) -> Result<Identity> {
    let user = |domain: &str, user: &str, hash, password| Identity::User {
        domain: domain.to_owned(),
        user: user.to_owned(),
        hash,
        password,
    };
    Ok(match login {
        Login::Anonymous => Identity::Anonymous,
        Login::Guest => {
            let password = Password::from("");
            let hash = ropeway_smb_proto::auth::ntlm::nt_hash(&password);
            user("", "guest", hash, Some(password))
        }
        Login::Password {
            domain,
            user: name,
            password,
        } => {
            let hash = ropeway_smb_proto::auth::ntlm::nt_hash(password);
            user(domain, name, hash, Some(password.clone()))
        }
        Login::Hash {
            domain,
            user: name,
            hash,
        } => user(domain, name, hash.clone(), None),
        _ => return Err(Error::Misuse("SMB 1 logins take a password")),
    })
}

impl Link {
    /// Connects for the first time. Makes only one attempt, so that a wrong address is reported at
    /// once.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        login: &Login,
        options: Smb1Options,
    ) -> Result<Arc<Self>> {
        options.validate()?;
        let link = Arc::new(Self {
            endpoint: endpoint.clone(),
            identity: identity(login)?,
            guest_allowed: login.accepts_guest(),
            options,
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            failure: Mutex::new(None),
            is_closed: AtomicBool::new(false),
            generations: AtomicU64::new(0),
            given_up_at: Mutex::default(),
        });
        let channel = link.attempt(link.options.timeout).await?;
        *link.current.lock() = Some(channel);
        Ok(link)
    }

    /// Returns the connection, made again if it was lost.
    pub(crate) async fn channel(self: &Arc<Self>) -> Result<Arc<Channel>> {
        let asked_at = Instant::now();
        if let Some(channel) = self.live()? {
            return Ok(channel);
        }
        let _guard = self.connecting.lock().await;
        if let Some(channel) = self.live()? {
            return Ok(channel);
        }
        if let Some((at, error)) = self.failure.lock().clone()
            && (at >= asked_at || matches!(error, Error::Tampered(_)))
        {
            return Err(error);
        }
        match self.reconnect(asked_at + self.options.timeout).await {
            Ok(channel) => {
                *self.current.lock() = Some(Arc::clone(&channel));
                Ok(channel)
            }
            Err(error) => {
                *self.failure.lock() = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn live(&self) -> Result<Option<Arc<Channel>>> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::Lost(LostReason::ClientClosed));
        }
        let current = self.current.lock().clone();
        // Whoever changed messages would only get another chance.
        if let Some(error @ Error::Tampered(_)) = current.as_ref().and_then(|channel| channel.ended.get()) {
            return Err(error.clone());
        }
        Ok(current.filter(|channel| channel.is_alive()))
    }

    async fn reconnect(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Channel>> {
        let pace = self.options.pace;
        let mut pause = pace.reconnect_first;
        *self.given_up_at.lock() = Some(deadline);
        let _tried = Tried(&self.given_up_at);
        loop {
            let limit = self.options.timeout.min(RECONNECT_MAX);
            let error = match tokio::time::timeout_at(deadline, self.attempt(limit)).await {
                Ok(Ok(channel)) => {
                    tracing::info!(server = %self.endpoint, "reconnected");
                    return Ok(channel);
                }
                Ok(Err(error)) if !is_transient(&error) => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => return Err(Error::Lost(LostReason::NotBack)),
            };
            tracing::debug!(server = %self.endpoint, %error, "no connection yet; trying again");
            if Instant::now() + pause >= deadline {
                return Err(Error::Lost(LostReason::NotBack));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(pace.reconnect_last);
        }
    }

    /// Connects and logs in. `limit`: longest time for the TCP connection.
    async fn attempt(self: &Arc<Self>, limit: std::time::Duration) -> Result<Arc<Channel>> {
        let options = &self.options;
        let connected = connect(&self.endpoint, &options.tcp, limit, options.timeout).await?;
        let config = Config {
            signing: options.signing,
            weak_auth: options.weak_auth,
            guest_allowed: self.guest_allowed,
            extended_security: options.extended_security,
            unicode: options.unicode,
            large_io: true,
            in_flight_max: options.in_flight_max,
            code_page: options.code_page,
            ..Config::new(self.identity.clone())
        };
        let entropy = Entropy {
            wall_time: now(),
            client_challenge: random()?,
            session_key: zeroize::Zeroizing::new(random()?),
        };
        let (senders, queues) = queues();
        let (sender, ready) = oneshot::channel();
        let ended = Arc::new(OnceLock::new());
        let driver = Driver::new(
            connected.stream,
            Connection::new(config, entropy),
            queues,
            options,
            self.endpoint.port == NETBIOS_PORT,
            (sender, Arc::clone(&ended)),
        );
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let span = tracing::debug_span!(parent: None, "smb1", server = %self.endpoint, generation);
        tokio::spawn(driver.run().instrument(span));
        let ready = match tokio::time::timeout(options.timeout, ready).await {
            Ok(Ok(ready)) => ready?,
            Ok(Err(_)) => return Err(Error::Lost(LostReason::Closed)),
            Err(_) => return Err(Error::Lost(LostReason::TimedOut)),
        };
        Ok(Arc::new(Channel::new(senders, generation, ready, ended)))
    }

    /// Returns what is known of the server, if it is tried again.
    pub(crate) fn lost(&self) -> Option<LostServer> {
        let deadline = (*self.given_up_at.lock())?;
        Some(LostServer {
            host: self.endpoint.host.clone(),
            silent: None,
            left: Some(deadline.saturating_duration_since(Instant::now())),
        })
    }

    /// Returns how often the connection was made again.
    pub(crate) fn reconnects(&self) -> u64 {
        self.generations.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Ends the connection and waits until its driver has ended.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let channel = self.current.lock().clone();
        if let Some(channel) = channel {
            channel.shut_down();
            channel.closed().await;
        }
    }
}

/// Returns the time of day.
fn now() -> FileTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    FileTime::from_unix(
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        since.subsec_nanos(),
    )
}

/// Returns whether another attempt may succeed.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Local { .. } | Error::Lost(_) => true,
        // Typical of a server that is starting or stopping.
        Error::PeerRefused { .. } => error.verdict() == Verdict::Retry,
        // A machine that starts may answer nonsense for a moment.
        Error::PeerMisbehaved(_) => true,
        _ => false,
    }
}
