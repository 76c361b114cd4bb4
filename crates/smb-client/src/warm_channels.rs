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

use crate::channel::{Control, SessionShared};
use crate::channel_policy::initial_channels;
use crate::link::{Begin, Link, Session};
use crate::socket::Connected;
use crate::window::FAR_ROUND_TRIP;
use crate::{ChannelsAtStart, Result};

/// Connections that wait for a session. Dropped without one, they end.
pub(crate) struct WarmChannels {
    starting_channels: u16,
    session: watch::Sender<Option<Arc<Session>>>,
}

impl WarmChannels {
    /// Begins as many as the options ask for, if the line is long.
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
                    tracing::debug!(%error, "a further connection was not to be had");
                }
            });
        }
        Self {
            starting_channels,
            session,
        }
    }

    /// Connections that begin together, the first among them.
    pub(crate) fn starting_channels(&self) -> u16 {
        self.starting_channels
    }

    /// There is a session, which may have so many connections.
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
        // There will be none.
        Err(_) => None,
    };
    let Some((session, secret)) = session.and_then(|session| session.secret.clone().map(|it| (session, it)))
    else {
        return Ok(());
    };
    let mechanisms = link.authenticator.mechanisms().await?;
    channel.send_control(Control::Bind(Box::new((secret, mechanisms))));
    let ready = link.logged_in(ready).await?;
    session.admit(channel, &ready)
}
