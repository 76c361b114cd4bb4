//! The web page of a running process, its metrics, and the HTTP server behind both.
//!
//! ```text
//!   browser ── GET /        html ◄── view ◄── Snapshot      complete without scripts
//!           ── GET /events  feed ◄── view                   one event a second for all open pages
//!           ── POST /do     actions ──► Handle              pause, bwlimit, end a session …
//!   scraper ── GET /metrics metrics ◄── Snapshot
//!                │
//!              server   hyper: places, deadlines, bounds
//!              guard    token, cookie, host, origin
//! ```
//!
//! * `view`: what the page shows, in words. Both the page and the script that keeps it up to
//!   date are filled from it, so that they cannot differ; the script knows no units and no names.
//! * Texts of peers, users and files enter the page escaped, and the script sets text only.
//! * [`Page`] serves until it is dropped; then open pages get the last figures and are told so.
//!
//! Nothing here may delay the work that is watched: all of it runs on one thread of its own.

mod actions;
mod feed;
mod guard;
mod html;
mod metrics;
mod page;
pub mod server;
mod site;
mod view;

pub use guard::{NoRandom, Token};
pub use page::{Page, StartError};
