//! The client of one server.

use std::sync::Arc;

use ropeway_smb_client::{Endpoint, Login, LostServer, Result, ShareInfo};

use crate::link::Link;
use crate::options::Smb1Options;
use crate::share::Share;
use crate::shares;

/// A connection to a server, which is made again when it is lost. Clones are the same client.
#[derive(Clone)]
pub struct Smb1Client {
    pub(crate) link: Arc<Link>,
}

impl Smb1Client {
    /// Connects and logs in. Port 139 means SMB over NetBIOS.
    ///
    /// # Errors
    /// The server cannot be reached, does not speak SMB 1, refuses the login, or offers less
    /// protection than the options require.
    pub async fn connect(endpoint: &Endpoint, login: &Login, options: Smb1Options) -> Result<Self> {
        let link = Link::connect(endpoint, login, options).await?;
        Ok(Self { link })
    }

    /// Connects to a share.
    ///
    /// # Errors
    /// There is no such share, or it may not be used; the errors of a lost connection.
    pub async fn share(&self, name: &str) -> Result<Share> {
        Share::connect(&self.link, name, Share::ANY).await
    }

    /// Lists the shares of the server: by srvsvc, or by RAP where the server has no RPC.
    ///
    /// # Errors
    /// The server refuses both; the errors of a lost connection.
    pub async fn shares(&self) -> Result<Vec<ShareInfo>> {
        shares::list(self).await
    }

    /// Returns whether messages are signed.
    ///
    /// # Errors
    /// The errors of a lost connection.
    pub async fn is_signing(&self) -> Result<bool> {
        Ok(self.link.channel().await?.signs)
    }

    /// Returns the server, while it does not answer and is tried again.
    pub fn lost(&self) -> Option<LostServer> {
        self.link.lost()
    }

    /// Returns how often the connection was made again.
    pub fn reconnects(&self) -> u64 {
        self.link.reconnects()
    }

    /// Ends the connection. Requests in flight are awaited for a short time.
    pub async fn close(&self) {
        self.link.close().await;
    }
}

impl std::fmt::Debug for Smb1Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Smb1Client({})", self.link.endpoint)
    }
}
