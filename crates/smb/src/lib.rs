//! An SMB 2 and 3 client: shares as places to read, write and list, with the line full.
//!
//! Start with [`Client::connect`], then [`Client::share`], then [`Share::open`] for a [`Handle`], or
//! [`Share::put_small`] and [`Share::get_small`] for small files, which cost one round trip each.
//!
//! ```no_run
//! # async fn example() -> Result<(), ropeway_smb::Error> {
//! use ropeway_smb::{Client, ClientOptions, Endpoint, Login, OpenFile, Text};
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
//! Client ─┬─ Link (one server, one login)          client.rs, link/
//!         │    ├─ channel ── driver task ── smb_proto::client::Connection ── socket
//!         │    └─ channel ── …                      channels.rs, driver.rs, socket.rs
//!         └─ Share (one tree; connects again)      share.rs, reconnect.rs
//!              ├─ Handle                           handle.rs
//!              ├─ Directory                        directory.rs
//!              ├─ put_small, get_small             small.rs
//!              └─ SmbTree: a folder as vfs::Tree   smb_tree/
//! ```
//! One task owns one connection and its socket; everything else sends it chains of requests over a bounded queue.
//! Every future here may be dropped at any time: the request is cancelled, and its blocks are kept until the server
//! has answered. Nothing holds a lock over an await.

mod budget;
mod channel;
mod channels;
mod client;
mod depth;
mod dfs;
mod directory;
mod driver;
mod endpoint;
mod error;
mod handle;
mod link;
mod login;
mod open;
mod opened;
mod ops;
mod options;
mod share;
mod shares;
mod small;
mod smb_tree;
mod socket;
mod tree;

pub use client::{Client, ConnectionInfo};
pub use directory::Directory;
pub use endpoint::{Endpoint, EndpointFault, PORT};
pub use error::{Error, LostReason, Result};
pub use handle::Handle;
pub use login::Login;
pub use open::{Created, OpenFile};
pub use options::{ClientOptions, TcpOptions};
pub use ropeway_smb_proto::client::{Encryption, Operation, Reply, Signing};
pub use ropeway_smb_proto::rpc::srvsvc::{ShareInfo, ShareKind};
pub use ropeway_smb_proto::secret::Password;
pub use ropeway_smb_proto::wire::{FileAttributes, FileTime, NtStatus, Text};
pub use ropeway_vfs::Verdict;
pub use share::{Limits, Share, Volume};
pub use small::{GotSmall, PutDone, PutSmall};
pub use smb_tree::{SmbFile, SmbListing, SmbTree, SmbTreeOptions, SmbWatch};
