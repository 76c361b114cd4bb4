//! What an operation does with one open file or two: queries, changes, listings, FSCTLs, security.
//!
//! These functions need no connection. The operations in `ops` call them.
//!
//! ```text
//! attributes    NodeStat -> attributes, times     output_buffer  limits of response buffers
//! query_file    QUERY_INFO of files               query_fs       QUERY_INFO of volumes
//! set_file      SET_INFO of both                  eas            extended attributes
//! directory     QUERY_DIRECTORY                   short_name     8.3 names
//! security/     derived, inherited, checked       apple          AAPL context and listings
//! fsctl/        IOCTL                             links          rules for new symbolic links
//! status        error of a store -> NTSTATUS
//! ```

pub(crate) mod apple;
pub(crate) mod attributes;
pub(crate) mod directory;
pub(crate) mod eas;
pub(crate) mod fsctl;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod links;
pub(crate) mod output_buffer;
pub(crate) mod query_file;
pub(crate) mod query_fs;
pub(crate) mod security;
pub(crate) mod set_file;
pub(crate) mod short_name;
pub(crate) mod status;
