//! A strict little HTTP/1.1 responder for `/metrics` and `/healthz`: GET and HEAD, one answer for each connection.
//!
//! One thread polls a bounded number of connections; each has a bounded request and a deadline, so one that dawdles costs
//! nothing but its place. What is asked for is decided by [`respond`], which knows no socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::{Failure, code};

/// Connections at once. A guess: a scraper and a prober, several times.
const CLIENTS_MAX: usize = 16;
/// Longest request, headers and all. Bytes; usual servers take 8 KiB.
const REQUEST_MAX: usize = 8 << 10;
/// From the first byte asked to the last one answered.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Answers requests.
pub(super) trait Site: Send + 'static {
    /// The answer to what was received so far; `None` until it is whole.
    fn respond(&self, request: &[u8]) -> Option<Vec<u8>>;
}

/// Pages to look at.
pub(super) struct Looking<P>(pub(super) P);

impl<P: Pages> Site for Looking<P> {
    fn respond(&self, request: &[u8]) -> Option<Vec<u8>> {
        respond(request, &self.0)
    }
}

/// What the pages say.
pub(super) trait Pages: Send + 'static {
    /// `/metrics`.
    fn metrics(&self) -> String;
    /// `/healthz`: fine, or what is wrong.
    fn health(&self) -> Result<(), String>;
}

/// Listens, and answers on a thread that lives as long as the process. Gives where.
///
/// # Errors
/// The address cannot be had.
pub(super) fn start(address: SocketAddr, site: impl Site) -> Result<SocketAddr, Failure> {
    let fault = |error: &io::Error| {
        Failure::of_end(
            format!("cannot answer HTTP on {address}: {error}"),
            error,
            code::NETWORK,
        )
        .hint("choose another address with --http")
    };
    let listener = TcpListener::bind(address).map_err(|error| fault(&error))?;
    listener.set_nonblocking(true).map_err(|error| fault(&error))?;
    let bound = listener.local_addr().map_err(|error| fault(&error))?;
    let thread = std::thread::Builder::new().name("http".to_owned());
    thread
        .spawn(move || run(&listener, &site))
        .map_err(|error| fault(&error))?;
    Ok(bound)
}

struct Client {
    socket: TcpStream,
    deadline: Instant,
    request: Vec<u8>,
    /// What is still to be sent, once the request was whole.
    answer: Option<(Vec<u8>, usize)>,
}

fn run(listener: &TcpListener, site: &impl Site) {
    let mut clients: Vec<Client> = Vec::with_capacity(CLIENTS_MAX);
    loop {
        if wait(listener, &clients).is_err() {
            // No memory for poll: what else is there to do.
            std::thread::sleep(Duration::from_millis(100));
        }
        while clients.len() < CLIENTS_MAX {
            let Ok((socket, _)) = listener.accept() else { break };
            if socket.set_nonblocking(true).is_ok() {
                clients.push(Client {
                    socket,
                    deadline: Instant::now() + TIME_MAX,
                    request: Vec::new(),
                    answer: None,
                });
            }
        }
        clients.retain_mut(|client| client.go_on(site));
    }
}

/// Waits until something can be done, or a deadline has passed.
fn wait(listener: &TcpListener, clients: &[Client]) -> io::Result<()> {
    let now = Instant::now();
    let due = clients
        .iter()
        .map(|client| client.deadline.saturating_duration_since(now))
        .min();
    let timeout = due.map(|due| Timespec {
        tv_sec: i64::try_from(due.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(due.subsec_nanos()),
    });
    let mut fds: Vec<PollFd<'_>> = clients
        .iter()
        .map(|client| {
            let what = match client.answer {
                None => PollFlags::IN,
                Some(_) => PollFlags::OUT,
            };
            PollFd::from_borrowed_fd(client.socket.as_fd(), what)
        })
        .collect();
    if clients.len() < CLIENTS_MAX {
        fds.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
    }
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Client {
    /// Does what can be done without waiting; whether there is more to do.
    fn go_on(&mut self, site: &impl Site) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        if self.answer.is_none() {
            let mut part = [0; 2048];
            match self.socket.read(&mut part) {
                Ok(0) => return false,
                Ok(count) => self.request.extend_from_slice(&part[..count]),
                Err(error) => return is_patient(&error),
            }
            match site.respond(&self.request) {
                Some(answer) => self.answer = Some((answer, 0)),
                None => return true,
            }
        }
        let Some((answer, sent)) = &mut self.answer else {
            return true;
        };
        match self.socket.write(&answer[*sent..]) {
            Ok(count) => {
                *sent += count;
                *sent < answer.len()
            }
            Err(error) => is_patient(&error),
        }
    }
}

fn is_patient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The answer to a request; `None` until it is whole.
fn respond(request: &[u8], pages: &impl Pages) -> Option<Vec<u8>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    /// Prometheus' text format.
    const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
    let whole = request.windows(4).any(|end| end == b"\r\n\r\n");
    if !whole {
        let too_long = request.len() > REQUEST_MAX;
        return too_long.then(|| {
            answer(
                "431 Request Header Fields Too Large",
                TEXT,
                "too long\n",
                false,
                "",
            )
        });
    }
    if request.len() > REQUEST_MAX {
        return Some(answer(
            "431 Request Header Fields Too Large",
            TEXT,
            "too long\n",
            false,
            "",
        ));
    }
    let bad = || Some(answer("400 Bad Request", TEXT, "bad request\n", false, ""));
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else {
        return bad();
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return bad();
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !target.starts_with('/') {
        return bad();
    }
    let head = method == "HEAD";
    if !head && method != "GET" {
        return Some(answer(
            "405 Method Not Allowed",
            TEXT,
            "GET or HEAD\n",
            false,
            "Allow: GET, HEAD\r\n",
        ));
    }
    let path = target.split('?').next().unwrap_or_default();
    Some(match path {
        "/metrics" => answer("200 OK", METRICS, &pages.metrics(), head, ""),
        "/healthz" => match pages.health() {
            Ok(()) => answer("200 OK", TEXT, "ok\n", head, ""),
            Err(why) => answer("503 Service Unavailable", TEXT, &format!("{why}\n"), head, ""),
        },
        _ => answer(
            "404 Not Found",
            TEXT,
            "there are /metrics and /healthz\n",
            head,
            "",
        ),
    })
}

/// The answer to a POST whose body `reply` answers; `None` until it is whole. Bodies have a length, and no encoding.
pub(super) fn respond_to_post(
    request: &[u8],
    kind: &str,
    reply: impl FnOnce(&str, &[u8]) -> Option<String>,
) -> Option<Vec<u8>> {
    let bad = |status| Some(answer(status, "text/plain", "", false, ""));
    let Some(end) = request.windows(4).position(|end| end == b"\r\n\r\n") else {
        return if request.len() > REQUEST_MAX {
            bad("431 Request Header Fields Too Large")
        } else {
            None
        };
    };
    let Ok(head) = std::str::from_utf8(&request[..end]) else {
        return bad("400 Bad Request");
    };
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let ["POST", target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
        return bad("405 Method Not Allowed");
    };
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok());
    match length {
        None => bad("411 Length Required"),
        Some(length) if length > REQUEST_MAX => bad("413 Content Too Large"),
        Some(length) => {
            let body = request[end + 4..].get(..length)?;
            match reply(target, body) {
                Some(body) => Some(answer("200 OK", kind, &body, false, "")),
                None => bad("400 Bad Request"),
            }
        }
    }
}

fn answer(status: &str, kind: &str, body: &str, head: bool, more: &str) -> Vec<u8> {
    let length = body.len();
    let shown = if head { "" } else { body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n{shown}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Pages for Fixed {
        fn metrics(&self) -> String {
            "a 1\n".to_owned()
        }

        fn health(&self) -> Result<(), String> {
            Err("stopping".to_owned())
        }
    }

    fn ask(request: &[u8]) -> Option<String> {
        respond(request, &Fixed).map(|answer| String::from_utf8(answer).unwrap())
    }

    #[test]
    fn what_is_there_is_told_and_nothing_else() {
        for (request, status, body) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200", "a 1\n"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200", "a 1\n"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200", ""),
            ("GET /healthz HTTP/1.1\r\n\r\n", "503", "stopping\n"),
            (
                "GET / HTTP/1.1\r\n\r\n",
                "404",
                "there are /metrics and /healthz\n",
            ),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405", "GET or HEAD\n"),
            ("GET /metrics\r\n\r\n", "400", "bad request\n"),
            ("GET metrics HTTP/1.1\r\n\r\n", "400", "bad request\n"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400", "bad request\n"),
            ("GET /metrics HTTP/2\r\n\r\n", "400", "bad request\n"),
            ("\r\n\r\n", "400", "bad request\n"),
        ] {
            let answer = ask(request.as_bytes()).unwrap();
            let (head, tail) = answer.split_once("\r\n\r\n").unwrap();
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:?}: {head}"
            );
            assert_eq!(tail, body, "{request:?}");
        }
        assert!(
            ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
                .unwrap()
                .contains("Content-Length: 4\r\n")
        );
        assert!(ask(b"\xff /metrics HTTP/1.1\r\n\r\n").unwrap().contains(" 400 "));
    }

    #[test]
    fn a_request_is_awaited_up_to_its_bound() {
        assert_eq!(ask(b""), None);
        assert_eq!(ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n"), None);
        let long = vec![b'x'; REQUEST_MAX + 1];
        assert!(ask(&long).unwrap().contains(" 431 "));
        let long = [&b"GET / HTTP/1.1\r\n"[..], &long, b"\r\n\r\n"].concat();
        assert!(ask(&long).unwrap().contains(" 431 "));
    }

    #[test]
    fn a_post_has_a_length() {
        let post = |request: &str| {
            let reply = |target: &str, body: &[u8]| {
                (target == "/x").then(|| format!("<{}>", String::from_utf8_lossy(body)))
            };
            let answer = respond_to_post(request.as_bytes(), "text/xml", reply)?;
            Some(String::from_utf8(answer).unwrap())
        };
        let whole = "POST /x HTTP/1.1\r\nHost: y\r\ncontent-length:  3\r\n\r\nabc";
        assert!(post(whole).unwrap().ends_with("\r\n\r\n<abc>"));
        for length in 0..whole.len() {
            assert_eq!(post(&whole[..length]), None, "{length}");
        }
        for (request, status) in [
            (whole.replace("/x", "/y"), " 400 "),
            (whole.replace("POST", "GET"), " 405 "),
            (whole.replace("length:  3", "length: -1"), " 411 "),
            (whole.replace("  3", "99999"), " 413 "),
            ("x".repeat(REQUEST_MAX + 1), " 431 "),
        ] {
            assert!(post(&request).unwrap().contains(status), "{request:.40}");
        }
    }

    #[test]
    fn one_that_dawdles_holds_nobody_up() {
        let address = start("127.0.0.1:0".parse().unwrap(), Looking(Fixed)).unwrap();
        let _silent: Vec<TcpStream> = (0..CLIENTS_MAX - 1)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(b"GET /metrics HT").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        socket.write_all(b"TP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\na 1\n"), "{answer}");
    }
}
