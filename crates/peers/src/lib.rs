//! Other people's servers, each a private instance: for tests of `smb` and `cli`, and for benchmarks.
//!
//! [`Smbd`] is Samba's smbd, [`Kdc`] MIT's Kerberos server, [`Rsyncd`] an rsync daemon, [`ClosedPort`] and [`SilentPort`] are peers that are not
//! there. Every instance has its own port (reserved among all processes that use this crate), its own folder with
//! everything it keeps, and is ended by the ids of its processes, never by name: when dropped, and (smbd) also when
//! the process that started it dies without dropping it.
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
//! Nothing here knows the product: what is checked against a peer is not checked against ourselves.

mod again;
mod error;
mod kdc;
mod port;
mod process;
mod rsyncd;
mod smbd;

pub use again::run_again;
pub use error::PeerError;
pub use kdc::{Kdc, KdcBuilder};
pub use port::{ClosedPort, SilentPort};
pub use process::program;
pub use rsyncd::{Rsyncd, RsyncdBuilder};
pub use smbd::{Account, Dialect, Encryption, Login, Share, Signing, Smbd, SmbdBuilder};

/// The peer; or returns from the test with a line that begins with `skipped:` when what it needs is not installed.
/// A peer that is installed and does not start is a failure.
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
