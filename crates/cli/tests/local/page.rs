//! The web page of running processes (`--http`), as browsers, scrapers and attackers see it.
//!
//! ```text
//! flags     which commands have it, tokens, what is printed, metrics, the Grafana dashboard
//! attacks   many connections, slow ones, readers that stop, the end of the process
//! browser   the page in Chromium, over its DevTools protocol
//! ```

mod attacks;
mod browser;
mod chromium;
mod flags;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Place, Running, file};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// How long something may take. Generous: two cores may be shared with a whole build.
const PATIENCE: Duration = Duration::from_secs(120);

/// A copy that takes long, with its page.
struct Copying {
    running: Running,
    /// Address and port.
    address: String,
    /// What to open, with the token.
    url: String,
}

impl Copying {
    /// Starts a copy of `source` with these flags.
    fn start(place: &Place, flags: &[&str]) -> Self {
        let run = place
            .copy("source", "target")
            .args(["--bwlimit", "1M", "--http", "0"]);
        let mut running = run.args(flags).start();
        assert!(running.until(|running| listening(&running.stdout()).is_some()));
        let listening = listening(&running.stdout()).unwrap();
        let text = |name: &str| listening[name].as_str().unwrap().to_owned();
        Self {
            address: text("http"),
            url: text("http_url"),
            running,
        }
    }

    fn token(&self) -> &str {
        self.url.split_once("token=").unwrap().1
    }
}

/// Makes a source that takes a minute at 1 MiB a second.
fn big_source(place: &Place) {
    file(&place.folder("source").join("big"), 64 * MIB, 1);
}

/// Finds the line about the page.
fn listening(out: &str) -> Option<Value> {
    let lines = out.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line["type"] == "listening" && line["http"].is_string())
}

fn connect(address: &str) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a request, with lines of headers; returns head and body of the reply.
fn ask(address: &str, request: &str, headers: &str, body: &str) -> (String, String) {
    let mut socket = connect(address);
    let text = format!("{request} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n{body}");
    // The server may refuse it before it has read everything.
    _ = socket.write_all(text.as_bytes());
    let mut answer = Vec::new();
    _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

fn get(address: &str, path: &str) -> (String, String) {
    ask(address, &format!("GET {path}"), "", "")
}

/// Returns the status of a head.
fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or("none")
}
