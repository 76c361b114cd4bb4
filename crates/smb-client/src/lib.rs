//! An SMB 2 and 3 client: shares as places to read, write and list, with the line full.
//!
//! Start with [`Client::connect`], then [`Client::share`], then [`Share::open`] for a [`Handle`], or
//! [`Share::put_small`] and [`Share::get_small`] for small files, which cost one round trip each.
//!
//! ```no_run
//! # async fn example() -> Result<(), ropeway_smb_client::Error> {
//! use ropeway_smb_client::{Client, ClientOptions, Endpoint, Login, OpenFile, Text};
//!
//! let endpoint = Endpoint::new("server", 445);
//! let login = Login::password("", "user", "secret");
//! let client = Client::connect(&endpoint, login, ClientOptions::default()).await?;
//! let share = client.share("public").await?;
//! let file = share.open(&Text::from("folder\\file.bin"), &OpenFile::read()).await?;
//!
//! let pool = ropeway_block::Pool::new(1 << 20, 4);
//! let (block, outcome) = file.read_at(0, pool.get().await, 1 << 20).await;
//! outcome?;
//! println!("{} bytes", block.len());
//! file.close().await
//! # }
//! ```
//!
//! # What is where
//! ```text
//! Client ── Link (one server, one login; comes back by itself)   client.rs, link.rs, login.rs (gss/), socket.rs
//!   │         └─ Session ─┬─ Channel ── Driver (task) ── smb_proto::client::Connection ── socket
//!   │                     └─ Channel ── …                          channel.rs, driver.rs
//!   │         how much is under way: depth.rs, budget.rs; on how many connections: channels.rs, spares.rs
//!   ├─ shares()                                                    shares.rs
//!   └─ Share (one tree; comes back by itself)                      share.rs, tree.rs, look.rs; dfs.rs
//!        ├─ Handle (reclaimed, or opened again by path)            handle.rs, opened.rs, open.rs, durable.rs, rights.rs
//!        ├─ Directory                                              directory.rs
//!        ├─ put_small, get_small                                   small.rs, compound.rs
//!        ├─ copy                                                   copying.rs
//!        └─ SmbTree: a folder as vfs::Tree                         smb_tree/
//! ```
//! One task owns one connection and its socket; everything else sends it chains of requests over a bounded queue.
//! Every future here may be dropped at any time: the request is cancelled, its blocks are kept until the server has
//! answered, and what it opened meanwhile is closed. All must be polled in a tokio runtime with I/O and time, the one
//! that [`Client::connect`] was called in.
//!
//! # When the connection is lost
//! The next request connects again, with growing pauses, until [`ClientOptions::timeout`]; requests that meet it
//! meanwhile wait for the same attempt. Reads, writes and questions are sent again; what would be something else the
//! second time (exclusive creation, renaming) ends with [`LostReason::OutcomeUnknown`] if it had been sent. A file that
//! the server does not have open any more is opened by its path if it is the same file; from then on [`Handle::flush`] says
//! that writes not flushed before are in doubt.

mod budget;
mod channel;
mod channels;
mod client;
mod compound;
mod copying;
mod depth;
mod dfs;
mod directory;
mod driver;
mod durable;
mod endpoint;
mod error;
mod handle;
mod link;
mod login;
mod look;
mod open;
mod opened;
mod ops;
mod options;
mod rights;
mod share;
mod shares;
mod small;
mod smb_tree;
mod snapshot;
mod socket;
mod spares;
mod tree;
mod wire_log;

pub use client::{Client, ConnectionInfo};
pub use directory::Directory;
pub use endpoint::{Endpoint, EndpointFault, PORT};
pub use error::{Error, LostReason, Result, Unprotected};
pub use handle::Handle;
pub use login::Login;
pub use open::{Created, OpenFile};
pub use options::{ChannelsAtStart, ClientOptions, DfsHosts, TcpOptions};
pub use ropeway_smb_gss::KerberosFault;
pub use ropeway_smb_proto::client::{Encryption, Operation, Reply, Signing};
pub use ropeway_smb_proto::secret::{NtHash, Password};
pub use ropeway_smb_wire::rpc::srvsvc::{ShareInfo, ShareKind};
pub use ropeway_smb_wire::{FileAttributes, FileTime, NtStatus, Text};
pub use ropeway_vfs::Verdict;
pub use share::{Limits, Share, Volume};
pub use small::{GotSmall, PutDone, PutSmall};
pub use smb_tree::{SmbFile, SmbListing, SmbTree, SmbTreeOptions, SmbWatch};
