//! Types that come from `smb_proto::client`; here until it is merged.
#![allow(missing_docs)]
use ropeway_block::{Block, BlockMut};
use ropeway_smb_proto::wire::TreeId;
use ropeway_smb_proto::wire::header::{Command, Header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    Required,
    Offered,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    Off,
    Desired,
    Required,
}
#[derive(Debug)]
pub struct Operation {
    pub command: Command,
    pub tree: TreeId,
    pub body: Vec<u8>,
    pub payload: Option<Block>,
    pub receive: Option<BlockMut>,
    pub response_max: u32,
}
#[derive(Debug)]
pub struct Reply {
    pub header: Header,
    pub message: Vec<u8>,
    pub payload: Option<BlockMut>,
}
