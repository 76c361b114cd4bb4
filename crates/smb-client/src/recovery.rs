//! Finds out when a lost server can be reached again, while no request waits for it.
//!
//! Callers that have another answer give their requests up, so none of them would re-establish a
//! lost connection. And a connection that was not lost, but whose packets vanished, sends its next
//! packet only when TCP's timer says so, which after a cut of 30 s may be 20 s later. So a task
//! opens another connection from time to time. When the server answers there for the first time, and
//! the old connection stays silent, the old one is given up: its requests are sent again on a new
//! one. A server that answers new connections all the time is only busy with what the old one asks
//! for: then the old one is kept.

use std::net::SocketAddr;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_smb_proto::client::Connection;
use ropeway_smb_wire::SessionId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::link::{Link, RECONNECT_MAX};
use crate::login::random;
use crate::socket;

/// Time between two attempts. A guess: less than a person notices after an outage.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the old connection may stay silent after the server has answered on another one. A
/// guess: more than a round trip.
const GRACE: Duration = Duration::from_secs(1);

/// Admits another task when it is dropped.
struct Running(Weak<Link>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            link.is_recovering.store(false, Ordering::Release);
        }
    }
}

/// Runs until the server of a link is heard, or the link is closed.
pub(crate) async fn recover(link: Weak<Link>) {
    let _running = Running(Weak::clone(&link));
    let mut was_away = false;
    while let Some(link) = link.upgrade() {
        if link.reach.lost_for().is_none() {
            return;
        }
        match link.live_session() {
            // It is closed, or must not be used any more.
            Err(_) => return,
            Ok(None) => drop(link.session().await),
            Ok(Some(session)) => {
                let is_answering = link.is_answering(session.address).await;
                was_away |= !is_answering;
                if is_answering && was_away {
                    tokio::time::sleep(GRACE).await;
                    if link.reach.lost_for().is_some() {
                        tracing::info!(server = %link.endpoint, "the server answers on a new connection only");
                        session.give_up();
                        continue;
                    }
                }
            }
        }
        drop(link);
        tokio::time::sleep(PAUSE).await;
    }
}

impl Link {
    /// Whether the server answers a NEGOTIATE on a new connection.
    async fn is_answering(&self, address: SocketAddr) -> bool {
        let asked = async {
            let limit = self.options.timeout;
            let mut stream = socket::connect_to(address, &self.options.tcp, limit).await.ok()?;
            let mut negotiation = Connection::new(self.config(SessionId(0)), random().ok()?);
            for part in negotiation.poll_transmit()?.parts {
                stream.write_all(part.as_slice()).await.ok()?;
            }
            stream.read_exact(&mut [0; 4]).await.ok()
        };
        let asked = tokio::time::timeout(self.options.timeout.min(RECONNECT_MAX), asked).await;
        matches!(asked, Ok(Some(_)))
    }
}
