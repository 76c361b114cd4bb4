//! Further connections that are opened while the first one logs in.
//!
//! ```text
//! first   SYN ─ NEGOTIATE ─ SESSION_SETUP ─ SESSION_SETUP ─ TREE_CONNECT ─ …
//! spare         SYN ─────── NEGOTIATE ─────────────────────┴ SESSION_SETUP ─ SESSION_SETUP (bind) ─ data
//! ```
//! A new TCP connection doubles what it has under way each round trip, from 14 KB; four of them are two round trips
//! ahead of one, and none of their own set-up is waited for. What a server refuses of it is nobody's loss.

use std::net::SocketAddr;
use std::sync::Arc;

use ropeway_smb_wire::SessionId;
use tokio::sync::watch;

use crate::channel::{Common, Side};
use crate::channels::at_start;
use crate::depth::FAR;
use crate::link::{Begin, Link, Session};
use crate::socket::Reached;
use crate::{ChannelsAtStart, Result};

/// Connections that wait for a session. Dropped without one, they end.
pub(crate) struct Spares {
    together: u16,
    session: watch::Sender<Option<Arc<Session>>>,
}

impl Spares {
    /// Begins as many as the options ask for, if the line is long.
    pub(crate) fn begin(link: &Arc<Link>, reached: &Reached, common: &Arc<Common>) -> Self {
        let together = match link.options.channels_at_start {
            _ if reached.round_trip < FAR => 1,
            ChannelsAtStart::Exactly(count) => count,
            ChannelsAtStart::ByLine => {
                let congestion = rustix::net::sockopt::tcp_congestion(&reached.stream);
                at_start(congestion.as_deref().unwrap_or_default())
            }
        };
        let together = together.min(link.options.channels_max);
        let (session, bound) = watch::channel(None);
        for _ in 1..together {
            let (link, common, bound) = (Arc::clone(link), Arc::clone(common), bound.clone());
            let address = reached.address;
            tokio::spawn(async move {
                if let Err(error) = spare(&link, (address, together), &common, bound).await {
                    tracing::debug!(%error, "a further connection was not to be had");
                }
            });
        }
        Self { together, session }
    }

    /// Connections that begin together, the first among them.
    pub(crate) fn together(&self) -> u16 {
        self.together
    }

    /// There is a session, which may have so many connections.
    pub(crate) fn bind(self, session: &Arc<Session>, channels_max: usize) {
        if channels_max > 1 {
            self.session.send_replace(Some(Arc::clone(session)));
        }
    }
}

async fn spare(
    link: &Arc<Link>,
    (address, together): (SocketAddr, u16),
    common: &Arc<Common>,
    mut bound: watch::Receiver<Option<Arc<Session>>>,
) -> Result<()> {
    let stream = link.connect_further(address).await?;
    let begin = Begin::Negotiate { together };
    let (channel, ready) = link.start_driver(stream, common, SessionId(0), begin)?;
    let session = match bound.wait_for(Option::is_some).await {
        Ok(session) => session.clone(),
        // There will be none.
        Err(_) => None,
    };
    let Some((session, secret)) = session.and_then(|session| session.secret.clone().map(|it| (session, it)))
    else {
        return Ok(());
    };
    let mechanisms = link.authenticator.mechanisms().await?;
    channel.aside(Side::Bind(Box::new((secret, mechanisms))));
    let ready = link.logged_in(ready).await?;
    session.admit(channel, &ready)
}
