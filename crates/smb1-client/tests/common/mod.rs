//! Helpers for tests against a real server.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::time::Duration;

use ropeway_peers::{Share, Smbd, SmbdBuilder};
use ropeway_smb_client::{Endpoint, Error, Login};
use ropeway_smb1_client::{Smb1Client, Smb1Options};

/// Configures a server that speaks SMB 1, with one user and one share on `folder`.
pub(crate) fn smb1_server(folder: &Path) -> SmbdBuilder {
    Smbd::builder()
        .smb1()
        .user("alice", "secret")
        .share(Share::new("data", folder))
}

pub(crate) fn endpoint(smbd: &Smbd) -> Endpoint {
    Endpoint::new("127.0.0.1", smbd.port())
}

pub(crate) fn login() -> Login {
    Login::password("", "alice", "secret")
}

pub(crate) async fn connect_with(smbd: &Smbd, options: Smb1Options) -> Result<Smb1Client, Error> {
    let options = Smb1Options {
        timeout: options.timeout.min(Duration::from_secs(20)),
        ..options
    };
    Smb1Client::connect(&endpoint(smbd), &login(), options).await
}
