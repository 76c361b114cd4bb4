//! A relay to a server that can be cut as by a failing network, and that can be long.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The relay. It ends with its runtime.
pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    cut: watch::Sender<u32>,
}

impl Way {
    /// Starts a relay on the current runtime. Bytes take `delay` each way.
    pub(crate) async fn to(server: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, heard) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut heard = heard.clone();
                heard.mark_unchanged();
                tokio::spawn(async move {
                    // The server may be down: then the client's connection ends.
                    let Ok(server) = TcpStream::connect(server).await else {
                        return;
                    };
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = relay(from_client, to_server, delay) => {}
                        () = relay(from_server, to_client, delay) => {}
                        _ = heard.changed() => {}
                    }
                });
            }
        });
        Self { address, cut }
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}

async fn relay(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    delay: Duration,
) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(4096);
    let receive = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if sender
                .send((Instant::now() + delay, buffer[..count].to_vec()))
                .await
                .is_err()
            {
                break;
            }
        }
    };
    let send = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(receive, send);
}
