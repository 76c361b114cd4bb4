//! The queue of a job: its catalog, or a server of NATS.

use std::sync::Arc;
use std::time::Duration;

use ropeway_fleet::job::QueueServer;
use ropeway_fleet::queue::{Queue, ShareQueue};
use ropeway_fleet::store::Store;
use ropeway_vfs::Clock;

use crate::args::NatsArgs;
use crate::failure::Failure;

/// Variable with the password for `--nats-user`.
#[cfg(feature = "nats")]
const NATS_PASSWORD: &str = "ROPEWAY_NATS_PASSWORD";

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
        Some(server) => nats(server, args, Arc::clone(store), lease).await,
        None => {
            let (seed, store, clock) = (store.worker().0, Arc::clone(store), Arc::clone(clock));
            Ok(Arc::new(ShareQueue::new(store, clock, lease, seed)))
        }
    }
}

#[cfg(feature = "nats")]
async fn nats(
    server: &QueueServer,
    args: &NatsArgs,
    store: Arc<Store>,
    lease: Duration,
) -> Result<Arc<dyn Queue>, Failure> {
    use crate::failure::code;

    let user = match &args.nats_user {
        None => None,
        Some(user) => {
            let password = std::env::var(NATS_PASSWORD)
                .map_err(|_| Failure::usage(format!("--nats-user needs the password in {NATS_PASSWORD}")))?;
            Some((user.clone(), password))
        }
    };
    let options = ropeway_fleet_nats::NatsOptions {
        user,
        servers: server.servers.clone(),
        credentials: args.nats_credentials.clone(),
        nkey: args.nats_nkey.clone(),
        ca: args.nats_ca.clone(),
        replicas: server.replicas,
    };
    match ropeway_fleet_nats::NatsQueue::open(&options, store, lease).await {
        Ok(queue) => Ok(Arc::new(queue)),
        Err(error) => Err(Failure::new(code::NETWORK, format!("cannot use NATS: {error}"))
            .hint("check the server, its JetStream, and the login (--nats-credentials, --nats-nkey or --nats-user)")),
    }
}

#[cfg(not(feature = "nats"))]
#[allow(clippy::unused_async, reason = "as with the feature")]
async fn nats(_: &QueueServer, _: &NatsArgs, _: Arc<Store>, _: Duration) -> Result<Arc<dyn Queue>, Failure> {
    Err(Failure::usage("this program was built without NATS")
        .hint("build it with `cargo build --release --features nats`"))
}
