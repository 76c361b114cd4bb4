//! What all tests against a real server need.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::time::Duration;

use ropeway_block::{Block, Pool};
use ropeway_peers::{PeerError, Share as PeerShare, Smbd, SmbdBuilder};
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Error, Login, Text};

/// One user, one share on `folder`.
pub(crate) fn server(folder: &Path) -> SmbdBuilder {
    Smbd::builder()
        .user("alice", "secret")
        .share(PeerShare::new("data", folder))
}

/// The usual server, started.
pub(crate) fn start(folder: &Path) -> Result<Smbd, PeerError> {
    server(folder).start()
}

pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_secs(20),
        ..ClientOptions::default()
    }
}

pub(crate) fn endpoint(smbd: &Smbd) -> Endpoint {
    Endpoint::new(smbd.address().ip().to_string(), smbd.port())
}

pub(crate) async fn connect_with(smbd: &Smbd, options: ClientOptions) -> Result<Client, Error> {
    Client::connect(&endpoint(smbd), Login::password("", "alice", "secret"), options).await
}

pub(crate) async fn connect(smbd: &Smbd) -> Client {
    connect_with(smbd, options()).await.expect("a login")
}

pub(crate) fn text(path: &str) -> Text {
    Text::from(path)
}

/// Bytes that differ everywhere.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

/// A block with these bytes.
pub(crate) async fn block(pool: &Pool, bytes: &[u8]) -> Block {
    let mut block = pool.get().await;
    block.capacity_mut()[..bytes.len()].copy_from_slice(bytes);
    block.set_len(bytes.len());
    block.freeze()
}

/// What the client says of itself, with `RUST_LOG`.
pub(crate) fn log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        .try_init();
}

/// A way to the server that can be cut, as a failing network would: both ends see their connection end.
pub(crate) struct Way {
    pub(crate) endpoint: Endpoint,
    cut: tokio::sync::watch::Sender<u32>,
}

impl Way {
    pub(crate) async fn to(smbd: &Smbd) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new("127.0.0.1", listener.local_addr().unwrap().port());
        let (cut, heard) = tokio::sync::watch::channel(0);
        let server = smbd.address();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut heard = heard.clone();
                heard.mark_unchanged();
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                    let copy = tokio::io::copy_bidirectional(&mut client, &mut server);
                    tokio::select! {
                        _ = copy => {}
                        _ = heard.changed() => {}
                    }
                });
            }
        });
        Self { endpoint, cut }
    }

    pub(crate) fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}
