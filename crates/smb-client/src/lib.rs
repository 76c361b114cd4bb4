//! An SMB 2 and 3 client. It opens, reads, writes and lists the files of a share, and keeps enough
//! requests in flight to fill the line.
//!
//! Start with [`Client::connect`], then [`Client::share`], then [`Share::open`] for a [`Handle`],
//! or [`Share::put_small`] and [`Share::get_small`] for small files, which cost one round trip
//! each.
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
//! # Structure
//! ```text
//! Client ── Link (one server, one login; reconnects)         client, link, login, socket
//!   │         └─ Session ─┬─ Channel ── Driver (a task)      session, channel, driver
//!   │                     │               └─ smb_proto::client::Connection ── socket
//!   │                     └─ Channel ── …
//!   │         bytes in flight                                window, budget
//!   │         number of connections                          channel_policy, warm_channels
//!   ├─ shares()                                              shares
//!   └─ Share (one tree; reconnects)                          share, tree, path_ops, …
//!        ├─ Handle (reclaimed, or opened again by path)      handle, reopen, durable, …
//!        ├─ Directory                                        directory
//!        ├─ put_small, get_small                             small, compound, compound_support
//!        ├─ many small files in one request, at own servers  put_files, get_files, same_files
//!        ├─ copy                                             server_copy
//!        ├─ SmbTree: a folder as vfs::Tree                   smb_tree
//!        └─ SmbStore: a folder as vfs::store::Store          smb_store
//! ```
//! One task owns one connection and its socket. Everything else sends it compounds of requests over
//! a bounded queue. You may drop any future of this crate at any time: the client cancels the
//! request, keeps its blocks until the server has answered, and closes what the request had opened.
//! Poll all futures in a tokio runtime with I/O and time, the one in which [`Client::connect`] was
//! called.
//!
//! # When the connection is lost
//! The next request reconnects, with growing pauses, until [`ClientOptions::timeout`]. Requests
//! that arrive meanwhile wait for the same attempt. Reads, writes and queries are sent again. A
//! request that must not run twice (exclusive creation, renaming) fails with
//! [`LostReason::OutcomeUnknown`] if it had been sent. If the server has lost an open file, the
//! client opens it again by its path, provided that it is still the same file. From then on
//! [`Handle::flush`] reports that writes not flushed before are in doubt.

mod budget;
mod caching;
mod channel;
mod channel_policy;
mod client;
pub mod common;
mod compound;
mod compound_support;
mod dfs;
mod directory;
mod driver;
mod durable;
mod endpoint;
mod error;
mod get_files;
mod handle;
mod line;
mod link;
mod login;
mod loss_policy;
mod open;
mod open_summary;
mod ops;
mod options;
mod path_ops;
mod private;
mod put_files;
mod reach;
mod recovery;
mod reopen;
mod replies;
mod same_files;
mod server_copy;
mod session;
mod session_record;
mod share;
mod shares;
mod small;
mod smb_store;
mod smb_tree;
mod snapshot;
mod socket;
mod times;
mod together;
mod tree;
mod warm_channels;
mod window;
mod wire_log;

pub use client::{Client, ConnectionInfo, LostServer};
pub use directory::Directory;
pub use endpoint::{Endpoint, EndpointError, PORT};
pub use error::{Error, LostReason, Result, Unprotected};
pub use handle::Handle;
pub use line::LineInfo;
pub use login::Login;
pub use open::{Created, OpenFile};
pub use options::{ChannelsAtStart, ClientOptions, Compounds, DfsHosts, TcpOptions};
pub use ropeway_smb_gss::KerberosError;
pub use ropeway_smb_proto::client::{CompressionOffer, Encryption, Operation, Reply, Signing};
pub use ropeway_smb_proto::compression::{Compression, Saved};
pub use ropeway_smb_proto::secret::{NtHash, Password};
pub use ropeway_smb_wire::rpc::srvsvc::{ShareInfo, ShareKind};
pub use ropeway_smb_wire::{FileAttributes, FileTime, NtStatus, Text};
pub use ropeway_tcp::{Congestion, LONG_ROUND_TRIP, LOSSY, how_to_allow_bbr};
pub use ropeway_vfs::Verdict;
pub use session_record::SessionRecord;
pub use share::{Limits, Share, Volume};
pub use small::{GotSmall, PutDone, PutSmall};
pub use smb_store::{SmbStore, SmbStoreOptions};
pub use smb_tree::{SmbFile, SmbListing, SmbTree, SmbTreeOptions, SmbWatch};
