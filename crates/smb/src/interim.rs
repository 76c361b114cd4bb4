//! Types of `smb_proto::client` under this crate's names.
pub use ropeway_smb_proto::client::{Encryption, Operation, Reply, Signing};
