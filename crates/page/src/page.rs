//! The page of a process, until it is dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ropeway_live::Handle;
use tokio::sync::oneshot;

use crate::guard::{Guard, NoRandom, Token};
use crate::server::Listener;
use crate::site::PageSite;

/// Longest wait for open pages at the end.
const END_MAX: Duration = Duration::from_millis(500);

/// A page that is served. When this is dropped, open pages get the last figures.
pub struct Page {
    address: SocketAddr,
    token: Token,
    stop: Option<oneshot::Sender<()>>,
    ended: mpsc::Receiver<()>,
}

/// Why there is no page.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be used, or no thread can be started.
    Io(io::Error),
    /// The kernel returns no random numbers.
    NoRandom,
}

impl From<NoRandom> for StartError {
    fn from(_: NoRandom) -> Self {
        Self::NoRandom
    }
}

impl Page {
    /// Listens, and serves on a thread. Without a token one is made.
    ///
    /// # Errors
    /// The address cannot be used, no thread can be started, or there are no random numbers.
    pub fn start(address: SocketAddr, token: Option<Token>, handle: Handle) -> Result<Self, StartError> {
        let token = match token {
            Some(token) => token,
            None => Token::random()?,
        };
        let listener = Listener::bind(address).map_err(StartError::Io)?;
        let address = listener.address();
        let site = Arc::new(PageSite::new(Guard::new(&token, address)?, handle));
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = mpsc::channel();
        let beside = {
            let site = Arc::clone(&site);
            async move {
                site.feed(async { _ = stopped.await }).await;
                drop(end);
            }
        };
        listener.serve(site, beside).map_err(StartError::Io)?;
        Ok(Self {
            address,
            token,
            stop: Some(stop),
            ended,
        })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what to type into a browser, with the token if it was made for this run.
    pub fn url(&self) -> String {
        let port = self.address.port();
        let host = match self.address.ip() {
            // A browser cannot go to "all addresses".
            ip if ip.is_unspecified() => format!("{}:{port}", machine()),
            _ => self.address.to_string(),
        };
        match &self.token {
            Token::Made(token) => format!("http://{host}/?token={token}"),
            Token::Given(_) => format!("http://{host}/"),
        }
    }
}

/// Returns the name of this machine.
fn machine() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().into_owned();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    match !name.is_empty() && name.bytes().all(is_plain) {
        true => name,
        false => "localhost".to_owned(),
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails if the thread is gone.
            _ = stop.send(());
            _ = self.ended.recv_timeout(END_MAX);
        }
    }
}
