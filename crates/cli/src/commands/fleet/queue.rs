//! The queue of a job: its catalog, or a server of NATS.

use std::sync::Arc;
use std::time::Duration;

use ropeway_fleet::job::QueueServer;
use ropeway_fleet::queue::{Queue, ShareQueue};
use ropeway_fleet::store::Store;
use ropeway_vfs::Clock;

use crate::args::NatsArgs;
use crate::failure::Failure;

/// Opens the queue of a job for a worker.
///
/// # Errors
/// The server does not answer, refuses the login, or has a stream that would lose tasks.
pub(super) async fn open(
    server: Option<&QueueServer>,
    args: &NatsArgs,
    (store, clock): (&Arc<Store>, &Arc<dyn Clock>),
    lease: Duration,
) -> Result<Arc<dyn Queue>, Failure> {
    match server {
        Some(server) => nats::open(server, args, (Arc::clone(store), Arc::clone(clock)), lease).await,
        None => {
            let (seed, store, clock) = (store.worker().0, Arc::clone(store), Arc::clone(clock));
            Ok(Arc::new(ShareQueue::new(store, clock, lease, seed)))
        }
    }
}

/// Finds out whether a server can be used, before a job is made that needs it.
///
/// # Errors
/// It does not answer, or refuses the login.
pub(super) async fn check(
    server: Option<&QueueServer>,
    args: &NatsArgs,
    store: Store,
) -> Result<(), Failure> {
    let Some(server) = server else { return Ok(()) };
    if server.servers.contains('@') {
        // The URL is not shown: it holds a password.
        return Err(Failure::usage("--queue with a login: the job holds no secrets")
            .hint("use --nats-credentials, --nats-nkey or --nats-user"));
    }
    nats::check(server, args, store).await
}

#[cfg(feature = "nats")]
mod nats {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use ropeway_copy::RuntimeClock;
    use ropeway_fleet::error::Error;
    use ropeway_fleet::job::QueueServer;
    use ropeway_fleet::queue::Queue;
    use ropeway_fleet::run::WorkOptions;
    use ropeway_fleet::store::Store;
    use ropeway_fleet_nats::{NatsOptions, NatsQueue};
    use ropeway_vfs::Clock;

    use crate::args::NatsArgs;
    use crate::failure::{Failure, code};
    use crate::secrets::private;

    /// Variable with the password for `--nats-user`.
    const PASSWORD: &str = "ROPEWAY_NATS_PASSWORD";

    pub(super) async fn open(
        server: &QueueServer,
        args: &NatsArgs,
        (store, clock): (Arc<Store>, Arc<dyn Clock>),
        lease: Duration,
    ) -> Result<Arc<dyn Queue>, Failure> {
        let opened = NatsQueue::open(&options(server, args)?, store, clock, lease).await;
        Ok(Arc::new(opened.map_err(|error| of_server(&error))?))
    }

    pub(super) async fn check(server: &QueueServer, args: &NatsArgs, store: Store) -> Result<(), Failure> {
        let ends: (_, Arc<dyn Clock>) = (Arc::new(store), Arc::new(RuntimeClock::new()));
        let lease = WorkOptions::default().lease;
        let checked = NatsQueue::check(&options(server, args)?, ends, lease).await;
        checked.map_err(|error| of_server(&error))
    }

    fn of_server(error: &Error) -> Failure {
        let code = match error {
            Error::QueueLogin(_) => code::PERMISSION,
            _ => code::NETWORK,
        };
        Failure::new(code, format!("cannot use NATS: {error}")).hint(
            "check the server, its JetStream, and the login (--nats-credentials, --nats-nkey or --nats-user)",
        )
    }

    fn missing(path: &Path) -> Failure {
        Failure::usage(format!("there is no file {}", path.display())).hint("check the flags --nats-…")
    }

    fn options(server: &QueueServer, args: &NatsArgs) -> Result<NatsOptions, Failure> {
        let user = match &args.nats_user {
            None => None,
            Some(user) => {
                let password = std::env::var(PASSWORD)
                    .map_err(|_| Failure::usage(format!("--nats-user needs the password in {PASSWORD}")))?;
                Some((user.clone(), password))
            }
        };
        for (path, what) in [
            (&args.nats_credentials, "the file of --nats-credentials"),
            (&args.nats_nkey, "the file of --nats-nkey"),
        ] {
            if let Some(path) = path
                && private::file(path, what)?.is_none()
            {
                return Err(missing(path));
            }
        }
        if let Some(path) = args.nats_ca.as_ref().filter(|path| !path.is_file()) {
            return Err(missing(path));
        }
        Ok(NatsOptions {
            user,
            servers: server.servers.clone(),
            credentials: args.nats_credentials.clone(),
            nkey: args.nats_nkey.clone(),
            ca: args.nats_ca.clone(),
            replicas: server.replicas,
        })
    }
}

#[cfg(not(feature = "nats"))]
#[allow(clippy::unused_async, reason = "as with the feature")]
mod nats {
    use std::sync::Arc;
    use std::time::Duration;

    use ropeway_fleet::job::QueueServer;
    use ropeway_fleet::queue::Queue;
    use ropeway_fleet::store::Store;
    use ropeway_vfs::Clock;

    use crate::args::NatsArgs;
    use crate::failure::Failure;

    pub(super) async fn open(
        _: &QueueServer,
        _: &NatsArgs,
        _: (Arc<Store>, Arc<dyn Clock>),
        _: Duration,
    ) -> Result<Arc<dyn Queue>, Failure> {
        Err(missing())
    }

    pub(super) async fn check(_: &QueueServer, _: &NatsArgs, _: Store) -> Result<(), Failure> {
        Err(missing())
    }

    fn missing() -> Failure {
        Failure::usage("this program was built without NATS")
            .hint("build it with `cargo build --release --features nats`")
    }
}
