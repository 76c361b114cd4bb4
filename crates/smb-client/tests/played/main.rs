//! Tests the client against a server simulated in memory, for behaviour that Samba does not show.
//! The server is that of `smb-proto`'s own tests.

mod channels;
mod compounds;
mod endless;
mod lies;
mod limits;
mod shutdown;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::chance::content;
use crate::peer::{Hub, Peer, Setup};
use ropeway_smb_client::{Client, ClientOptions, Endpoint, Login, Text};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A simulated server on its own port.
struct Played {
    endpoint: Endpoint,
    hub: Arc<Mutex<Hub>>,
    /// How late it answers.
    delay: Arc<Mutex<Duration>>,
}

impl Played {
    async fn start(setup: Setup) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new("127.0.0.1", listener.local_addr().unwrap().port());
        let hub = Arc::<Mutex<Hub>>::default();
        let known = Arc::clone(&hub);
        let delay = Arc::<Mutex<Duration>>::default();
        let its_delay = Arc::clone(&delay);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut peer = Peer::new(setup.clone());
                peer.hub = Arc::clone(&known);
                let delay = Arc::clone(&its_delay);
                tokio::spawn(async move {
                    let mut bytes = vec![0; 64 << 10];
                    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                        peer.feed(&bytes[..count]);
                        peer.work();
                        let output = std::mem::take(&mut peer.output);
                        let late = *delay.lock().unwrap();
                        tokio::time::sleep(late).await;
                        if stream.write_all(&output).await.is_err() || peer.closed {
                            break;
                        }
                    }
                });
            }
        });
        Self { endpoint, hub, delay }
    }

    async fn client(&self, options: ClientOptions) -> Client {
        let login = Login::password("", "anna", "secret");
        Client::connect(&self.endpoint, login, options).await.unwrap()
    }

    fn hub<T>(&self, look: impl FnOnce(&mut Hub) -> T) -> T {
        look(&mut self.hub.lock().unwrap())
    }
}

fn options() -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_secs(20),
        ..ClientOptions::default()
    }
}

fn text(path: &str) -> Text {
    Text::from(path)
}
