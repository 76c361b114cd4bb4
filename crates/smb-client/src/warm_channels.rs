//! Warm channels: further connections that are opened while the first one logs in.
//!
//! ```text
//! first   SYN ─ NEGOTIATE ─ SESSION_SETUP ─ SESSION_SETUP ─ TREE_CONNECT ─ …
//! warm          SYN ─────── NEGOTIATE ─────────────────────┴ SESSION_SETUP ×2 (bind) ─ data
//! ```
//! A new TCP connection doubles its congestion window each round trip, from 14 KB. Four connections
//! are two round trips ahead of one, and the client waits for none of their handshakes. If the
//! server refuses one, nothing is lost.

use std::net::SocketAddr;
use std::sync::Arc;

use ropeway_smb_wire::SessionId;
use tokio::sync::watch;

use crate::channel::{Control, SessionShared};
use crate::channel_policy::initial_channels;
use crate::error::Result;
use crate::link::{Begin, Link};
use crate::options::ChannelsAtStart;
use crate::session::Session;
use crate::socket::Connected;
use crate::window::FAR_ROUND_TRIP;

/// Connections that wait for a session. They end if this is dropped without one.
pub(crate) struct WarmChannels {
    starting_channels: u16,
    session: watch::Sender<Option<Arc<Session>>>,
}

impl WarmChannels {
    /// Opens as many connections as the options ask for, if the line is long.
    pub(crate) fn begin(link: &Arc<Link>, connected: &Connected, shared: &Arc<SessionShared>) -> Self {
        let starting_channels = match link.options.channels_at_start {
            _ if connected.round_trip < FAR_ROUND_TRIP => 1,
            ChannelsAtStart::Exactly(count) => count,
            ChannelsAtStart::ByLine => {
                let congestion = rustix::net::sockopt::tcp_congestion(&connected.stream);
                initial_channels(congestion.as_deref().unwrap_or_default())
            }
        };
        let starting_channels = starting_channels.min(link.options.channels_max);
        let (session, bound) = watch::channel(None);
        for _ in 1..starting_channels {
            let (link, shared, bound) = (Arc::clone(link), Arc::clone(shared), bound.clone());
            let address = connected.address;
            tokio::spawn(async move {
                if let Err(error) = open_warm(&link, (address, starting_channels), &shared, bound).await {
                    tracing::debug!(%error, "no further connection could be opened");
                }
            });
        }
        Self {
            starting_channels,
            session,
        }
    }

    /// Returns the number of connections that start together, including the first.
    pub(crate) fn starting_channels(&self) -> u16 {
        self.starting_channels
    }

    /// Binds the waiting connections to a session, which may have up to `channels_max` connections.
    pub(crate) fn bind(self, session: &Arc<Session>, channels_max: usize) {
        if channels_max > 1 {
            self.session.send_replace(Some(Arc::clone(session)));
        }
    }
}

async fn open_warm(
    link: &Arc<Link>,
    (address, starting_channels): (SocketAddr, u16),
    shared: &Arc<SessionShared>,
    mut bound: watch::Receiver<Option<Arc<Session>>>,
) -> Result<()> {
    let stream = link.connect_further(address).await?;
    let begin = Begin::Negotiate { starting_channels };
    let (channel, ready) = link.start_driver(stream, shared, SessionId(0), begin)?;
    let session = match bound.wait_for(Option::is_some).await {
        Ok(session) => session.clone(),
        // The login failed: there will be no session.
        Err(_) => None,
    };
    let session = session.filter(|session| session.tampered().is_none());
    let Some((session, secret)) = session.and_then(|session| session.secret.clone().map(|it| (session, it)))
    else {
        return Ok(());
    };
    let mechanisms = link.authenticator.mechanisms().await?;
    channel.send_control(Control::Bind(Box::new((secret, mechanisms))));
    let ready = link.logged_in(ready).await?;
    session.admit(channel, &ready)
}
