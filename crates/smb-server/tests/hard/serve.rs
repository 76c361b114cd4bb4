//! A server over a folder, for tests.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_proto::server::Accounts;
use ropeway_smb_server::{Server, ServerHandle, ServerOptions, Share};
use ropeway_smb_wire::Text;

/// A server in this process; it is stopped at the end.
pub(crate) struct Serve {
    pub(crate) address: SocketAddr,
    pub(crate) handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Serve {
    /// Starts a server with the user alice (`secret`) and the share `data`.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::with(folder, |_| {})
    }

    pub(crate) fn with(folder: &Path, change: impl FnOnce(&mut ServerOptions)) -> Self {
        Self::at("127.0.0.1:0", folder, change)
    }

    pub(crate) fn at(address: &str, folder: &Path, change: impl FnOnce(&mut ServerOptions)) -> Self {
        crate::log();
        let hash = *nt_hash(&Password::from("secret")).expose();
        let alice = Text::from("alice");
        let accounts: Accounts =
            Arc::new(move |user: &Text, _: &Text| (*user == alice).then(|| NtHash::from_bytes(hash)));
        let store = LocalStore::open(folder, &StoreOptions::default()).unwrap();
        let mut options = ServerOptions::new("server", accounts);
        options.shares = vec![Share::new("data", Arc::new(store))];
        change(&mut options);
        let server = Server::bind(address.parse().unwrap(), options).unwrap();
        Self {
            address: server.local_addr().unwrap(),
            handle: server.handle(),
            thread: Some(std::thread::spawn(move || server.run().unwrap())),
        }
    }

    /// Waits until the tables have this many sessions and opens.
    pub(crate) fn settles_at(&self, sizes: (usize, usize)) {
        for _ in 0..1000 {
            if self.handle.sizes() == sizes {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("sessions and opens remain: {:?}", self.handle.sizes());
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        self.handle.stop();
        let outcome = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            outcome.unwrap().expect("the server ends well");
        }
    }
}
