//! A small HTTP/1.1 server for `/metrics` and `/healthz`, and for the metadata of WS-Discovery.
//!
//! hyper parses the requests. One thread serves a bounded number of connections, with one request
//! each. The head and the body of a request are bounded, and each connection has a deadline, so a
//! slow client occupies one place until then and delays nobody else. A [`Site`] decides on the
//! replies and knows no socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::failure::{Failure, code};

/// Maximum number of connections. A guess: several times a scraper and a prober.
const CLIENTS_MAX: usize = 16;
/// Maximum size in bytes of a request's head, and of its body. Common servers allow 8 KiB; hyper
/// needs no less.
const REQUEST_MAX: usize = 8 << 10;
/// Time from accepting a connection to the end of its reply.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a failed accept, e.g. without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
/// Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A reply with its whole body.
pub(crate) type Reply = Response<Full<Bytes>>;

/// Replies to requests.
pub(crate) trait Site: Send + Sync + 'static {
    /// Methods of the requests that the site replies to; others get status 405.
    const METHODS: &'static [&'static str];

    /// Returns the reply to a request. The body is empty unless the method is POST.
    fn reply(&self, head: &Parts, body: &[u8]) -> Reply;
}

/// The contents of the monitoring pages.
pub(crate) trait Pages: Send + Sync + 'static {
    /// Returns `/metrics`.
    fn metrics(&self) -> String;
    /// Checks the server for `/healthz`; an error says what is wrong.
    fn health(&self) -> Result<(), String>;
}

/// The site of the monitoring pages.
pub(crate) struct Monitoring<P>(pub(crate) P);

impl<P: Pages> Site for Monitoring<P> {
    const METHODS: &'static [&'static str] = &["GET", "HEAD"];

    fn reply(&self, head: &Parts, _: &[u8]) -> Reply {
        match head.uri.path() {
            "/metrics" => reply(StatusCode::OK, METRICS, self.0.metrics()),
            "/healthz" => match self.0.health() {
                Ok(()) => reply(StatusCode::OK, TEXT, "ok\n"),
                Err(why) => reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
            },
            _ => reply(
                StatusCode::NOT_FOUND,
                TEXT,
                "the pages are /metrics and /healthz\n",
            ),
        }
    }
}

/// Listens, and serves on a thread that lives as long as the process. Returns the address.
///
/// # Errors
/// The address cannot be used, or no thread can be started.
pub(crate) fn start(address: SocketAddr, site: impl Site) -> Result<SocketAddr, Failure> {
    let fault = |error: &io::Error| {
        Failure::of_end(
            format!("cannot serve HTTP on {address}: {error}"),
            error,
            code::NETWORK,
        )
        .hint("choose another address with --http")
    };
    let started = || -> io::Result<SocketAddr> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let thread = std::thread::Builder::new().name("http".to_owned());
        thread.spawn(move || runtime.block_on(accept(listener, Arc::new(site))))?;
        Ok(bound)
    };
    started().map_err(|error| fault(&error))
}

async fn accept(listener: TcpListener, site: Arc<impl Site>) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((socket, _)) => {
                let site = Arc::clone(&site);
                tokio::spawn(async move {
                    if let Err(error) = tokio::time::timeout(TIME_MAX, serve(socket, site)).await {
                        tracing::debug!(%error, "an HTTP client is too slow");
                    }
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves one connection. A malformed head gets status 400 from hyper, a long one 431.
async fn serve(socket: TcpStream, site: Arc<impl Site>) {
    let service = service_fn(|request| respond(&*site, request));
    let served = http1::Builder::new()
        .keep_alive(false)
        // A client may end its side of the connection after the request.
        .half_close(true)
        .auto_date_header(false)
        .title_case_headers(true)
        .max_buf_size(REQUEST_MAX)
        .serve_connection(TokioIo::new(socket), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP request failed");
    }
}

/// Checks a request, reads the body of a POST, and asks the site for the reply.
///
/// # Errors
/// The body ends early; then there is no reply.
async fn respond<S: Site, B: Body>(site: &S, request: Request<B>) -> Result<Reply, B::Error> {
    let (head, body) = request.into_parts();
    // Origin form only (RFC 9112, 3.2.1).
    if head.uri.authority().is_some() || !head.uri.path().starts_with('/') {
        return Ok(reply(StatusCode::BAD_REQUEST, TEXT, "bad request\n"));
    }
    if !S::METHODS.contains(&head.method.as_str()) {
        let mut refused = reply(
            StatusCode::METHOD_NOT_ALLOWED,
            TEXT,
            format!("{}\n", S::METHODS.join(" or ")),
        );
        let allowed = HeaderValue::from_str(&S::METHODS.join(", "));
        refused
            .headers_mut()
            .extend(allowed.ok().map(|allowed| (header::ALLOW, allowed)));
        return Ok(refused);
    }
    if head.method != Method::POST {
        return Ok(site.reply(&head, &[]));
    }
    // A body needs a length, so that its size is known before it is read.
    let length = head.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    Ok(match length {
        None => reply(StatusCode::LENGTH_REQUIRED, TEXT, ""),
        Some(length) if length > REQUEST_MAX => reply(StatusCode::PAYLOAD_TOO_LARGE, TEXT, ""),
        Some(_) => {
            let body = body.collect().await?.to_bytes();
            site.reply(&head, &body)
        }
    })
}

/// Returns a reply with a body of this type.
pub(super) fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    const NO_SNIFF: HeaderName = HeaderName::from_static("x-content-type-options");
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NO_SNIFF, HeaderValue::from_static("nosniff"));
    reply
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};

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

    /// Replies to `POST /x` with the body in angle brackets.
    struct Echo;

    impl Site for Echo {
        const METHODS: &'static [&'static str] = &["POST"];

        fn reply(&self, head: &Parts, body: &[u8]) -> Reply {
            match head.uri.path() {
                "/x" => reply(StatusCode::OK, TEXT, [b"<", body, b">"].concat()),
                _ => reply(StatusCode::BAD_REQUEST, TEXT, ""),
            }
        }
    }

    fn started(site: impl Site) -> SocketAddr {
        start("127.0.0.1:0".parse().unwrap(), site).unwrap()
    }

    /// Sends a request and nothing after it; returns the reply, which is empty if there is none.
    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut socket = TcpStream::connect(address).unwrap();
        // The server may close the connection before it has read everything.
        let _ = socket.write_all(request);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn only_the_pages_are_served_and_only_by_get_and_head() {
        let address = started(Monitoring(Fixed));
        for (request, status, body) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200", "a 1\n"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200", "a 1\n"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200", ""),
            ("GET /healthz HTTP/1.1\r\n\r\n", "503", "stopping\n"),
            (
                "GET / HTTP/1.1\r\n\r\n",
                "404",
                "the pages are /metrics and /healthz\n",
            ),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405", "GET or HEAD\n"),
            ("GET /metrics\r\n\r\n", "400", ""),
            ("GET metrics HTTP/1.1\r\n\r\n", "400", "bad request\n"),
            ("GET http://x/metrics HTTP/1.1\r\n\r\n", "400", "bad request\n"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400", ""),
            ("GET /metrics HTTP/2\r\n\r\n", "400", ""),
        ] {
            let answer = ask(address, request.as_bytes());
            let (head, tail) = answer.split_once("\r\n\r\n").unwrap_or((&answer, "no end"));
            let version = if request.contains("HTTP/1.0") {
                "1.0"
            } else {
                "1.1"
            };
            assert!(
                head.starts_with(&format!("HTTP/{version} {status} ")),
                "{request:?}: {head}"
            );
            assert_eq!(tail, body, "{request:?}");
            assert!(
                version == "1.0" || head.contains("\r\nConnection: close"),
                "{request:?}: {head}"
            );
        }
        let head = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 4\r\n"), "{head}");
        let refused = ask(address, b"DELETE /metrics HTTP/1.1\r\n\r\n");
        assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
        assert!(ask(address, b"\xff /metrics HTTP/1.1\r\n\r\n").contains(" 400 "));
    }

    #[test]
    fn an_incomplete_head_gets_no_reply_and_a_long_one_431() {
        let address = started(Monitoring(Fixed));
        assert_eq!(ask(address, b""), "");
        assert_eq!(ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n"), "");
        let long = vec![b'x'; REQUEST_MAX + 1];
        assert!(ask(address, &long).contains(" 431 "));
        let long = [&b"GET / HTTP/1.1\r\nA: "[..], &long, b"\r\n\r\n"].concat();
        assert!(ask(address, &long).contains(" 431 "));
    }

    #[test]
    fn a_post_needs_a_length() {
        let address = started(Echo);
        let post = |request: &str| ask(address, request.as_bytes());
        let whole = "POST /x HTTP/1.1\r\nHost: y\r\ncontent-length:  3\r\n\r\nabc";
        assert!(post(whole).ends_with("\r\n\r\n<abc>"));
        for length in 0..whole.len() {
            assert_eq!(post(&whole[..length]), "", "{length}");
        }
        for (request, status) in [
            (whole.replace("/x", "/y"), " 400 "),
            (whole.replace("POST", "GET"), " 405 "),
            (whole.replace("length:  3", "type: x"), " 411 "),
            (whole.replace("length:  3", "length: -1"), " 400 "),
            (whole.replace("  3", "99999"), " 413 "),
            ("x".repeat(REQUEST_MAX + 1), " 431 "),
        ] {
            assert!(post(&request).contains(status), "{request:.40}");
        }
    }

    #[test]
    fn slow_clients_do_not_delay_others() {
        let address = started(Monitoring(Fixed));
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

    #[test]
    fn silent_clients_lose_their_places_at_the_deadline() {
        let address = started(Monitoring(Fixed));
        let _silent: Vec<TcpStream> = (0..CLIENTS_MAX)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with("\r\n\r\na 1\n"), "{answer}");
    }
}
