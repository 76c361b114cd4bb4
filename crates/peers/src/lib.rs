//! Servers and clients of other people, each a private instance: for tests, and for the laboratory.
//!
//! [`Smbd`] is Samba's smbd, [`Kdc`] MIT's Kerberos server, [`Rsyncd`] an rsync daemon, [`Nats`] a server of NATS,
//! [`RopewayServe`] a `ropeway serve`. [`ClosedPort`] and [`SilentPort`] behave like peers that are
//! down or hang. [`Remote`] calls clients: smbclient, rclone, rsync. [`chromium`] prepares a browser. [`Recorder`] records
//! what goes over a connection, and [`Dissection`] is what tshark reads in it.
//!
//! Every [`Instance`] has its own port (reserved among all processes that use this crate) and its
//! own folder for everything it keeps. It is ended by the ids of its processes, never by name: on
//! drop, and also when the process that started it dies without dropping it.
//!
//! ```no_run
//! # fn test() {
//! use ropeway_peers::{Share, Smbd, or_skip};
//! let folder = std::path::Path::new("/tmp/somewhere");
//! let smbd = or_skip!(Smbd::builder().user("alice", "secret").share(Share::new("data", folder)).start());
//! println!("{} as alice, password secret", smbd.url("data"));
//! # }
//! ```
//!
//! This crate uses no crate of the workspace: a check against a peer never checks the product
//! against itself.

mod again;
mod browser;
mod client;
mod error;
mod instance;
mod kdc;
mod nats;
mod port;
pub mod procfs;
mod recorder;
mod rsyncd;
mod serve;
mod session;
mod smbd;

pub use again::run_again;
pub use browser::chromium;
pub use client::{Remote, smbclient_get, smbclient_put};
pub use error::PeerError;
pub use instance::Instance;
pub use kdc::{Kdc, KdcBuilder};
pub use nats::Nats;
pub use port::{ClosedPort, SilentPort};
pub use procfs::program;
pub use recorder::{Dissection, Recorder};
pub use rsyncd::Rsyncd;
pub use serve::{RopewayServe, write_secret};
pub use session::feed;
pub use smbd::{Account, Dialect, Encryption, Login, Share, Signing, Smbd, SmbdBuilder};

/// Unwraps a peer, or returns from the test with a line that begins with `skipped:` when the
/// machine lacks what the peer needs. Panics when the peer is installed and does not start.
#[macro_export]
macro_rules! or_skip {
    ($peer:expr) => {
        match $peer {
            Ok(peer) => peer,
            Err(error @ $crate::PeerError::Missing { .. }) => {
                println!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    };
}
