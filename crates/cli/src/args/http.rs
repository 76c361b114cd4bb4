//! Flags of the web page, which several commands share.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::values;

/// The web page.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct HttpArgs {
    /// Show this process as a web page on this port, e.g. 9450
    ///
    /// /metrics is there too. The address to open is printed at the start. A port without an address is a port of 127.0.0.1:
    /// everybody on this machine can read the page there; to pause, limit or stop something, the token in
    /// the printed address is needed. On any other address the token is needed for everything but /healthz.
    /// See docs/page.md.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = values::http)]
    pub(crate) http: Option<SocketAddr>,
    /// 0600 file whose first line is the token of the page
    ///
    /// Without it a token is made for each run. With it the token is needed on 127.0.0.1 too, also to
    /// read the page. It has at least 16 letters, digits, or -._~ characters.
    #[arg(long, value_name = "FILE")]
    pub(crate) http_token_file: Option<PathBuf>,
}
