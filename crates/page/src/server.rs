//! A small HTTP/1.1 server: short replies, and streams of events.
//!
//! hyper parses the requests. One thread serves a bounded number of connections, with one request
//! each. Heads and bodies of requests are bounded, and each connection has a deadline. When all places
//! are taken, the connection that has waited longest without a complete request gives up its place, so
//! many slow clients delay nobody who asks. A connection that receives a stream of events has no place
//! and no deadline; its site counts it, and it ends when its client stops reading.
//!
//! A [`Site`] decides on the replies and knows no socket.

mod body;
mod places;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

pub use self::body::Body;
use self::places::{Connection, Places};

/// Maximum size in bytes of a request's head, and of its body. Common servers allow 8 KiB; hyper
/// needs no less.
const REQUEST_MAX: usize = 8 << 10;
/// Pause after a failed accept, e.g. without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Content type of plain text.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// A reply.
pub type Reply = Response<Body>;

/// Replies to requests.
pub trait Site: Send + Sync + 'static {
    /// Methods of the requests that the site replies to; others get status 405.
    const METHODS: &'static [&'static str];

    /// Returns the reply to a request. The body is empty unless the method is POST.
    fn reply(&self, head: &Parts, body: &[u8]) -> Reply;
}

/// An address that is listened on, and not served yet.
pub struct Listener {
    socket: std::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Returns the address with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on a thread, until `beside` is done; it runs on the same thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve<S: Site>(
        self,
        site: Arc<S>,
        beside: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(self.socket)?
        };
        let thread = std::thread::Builder::new().name("http".to_owned());
        thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, site) => {}
                    () = beside => {}
                }
            });
        })?;
        Ok(())
    }
}

/// Listens, and serves on a thread that lives as long as the process. Returns the address.
///
/// # Errors
/// The address cannot be used, or no thread can be started.
pub fn start(address: SocketAddr, site: impl Site) -> io::Result<SocketAddr> {
    let listener = Listener::bind(address)?;
    let bound = listener.address();
    listener.serve(Arc::new(site), std::future::pending())?;
    Ok(bound)
}

async fn accept<S: Site>(listener: TcpListener, site: Arc<S>) {
    let places = Arc::new(Places::default());
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let (site, connection) = (Arc::clone(&site), places.connection());
                let task = tokio::spawn(attend(socket, site, Arc::clone(&connection)));
                places.take(connection, task.abort_handle());
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves one connection until it is over or too late.
async fn attend<S: Site>(socket: TcpStream, site: Arc<S>, connection: Arc<Connection>) {
    let served = serve(socket, site, &connection);
    tokio::pin!(served);
    loop {
        tokio::select! {
            () = &mut served => return,
            () = tokio::time::sleep_until(connection.deadline()) => {
                // It may have got another deadline meanwhile.
                if connection.deadline() <= tokio::time::Instant::now() {
                    tracing::debug!("an HTTP client is too slow");
                    return;
                }
            }
        }
    }
}

/// Serves one connection. A malformed head gets status 400 from hyper, a long one 431.
async fn serve<S: Site>(socket: TcpStream, site: Arc<S>, connection: &Arc<Connection>) {
    let service = service_fn(|request| {
        let (site, connection) = (Arc::clone(&site), Arc::clone(connection));
        async move {
            connection.asked();
            let reply = respond(&*site, request).await?;
            Ok::<_, hyper::Error>(reply.map(|body| body.watched(&connection)))
        }
    });
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
async fn respond<S: Site, B: hyper::body::Body>(site: &S, request: Request<B>) -> Result<Reply, B::Error> {
    let (head, body) = request.into_parts();
    // Origin form only (RFC 9112, 3.2.1).
    if head.uri.authority().is_some() || !head.uri.path().starts_with('/') {
        return Ok(reply(StatusCode::BAD_REQUEST, TEXT, "bad request\n"));
    }
    if !S::METHODS.contains(&head.method.as_str()) {
        return Ok(not_allowed(S::METHODS));
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

/// Returns the reply to a method other than these.
pub(crate) fn not_allowed(methods: &[&str]) -> Reply {
    let text = format!("{}\n", methods.join(" or "));
    let mut refused = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
    let allowed = HeaderValue::from_str(&methods.join(", ")).ok();
    refused
        .headers_mut()
        .extend(allowed.map(|allowed| (header::ALLOW, allowed)));
    refused
}

/// Returns a reply with a body of this type.
pub fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    reply_with(status, kind, Body::whole(body.into()))
}

/// As [`reply`], with a body of any form.
pub(crate) fn reply_with(status: StatusCode, kind: &'static str, body: Body) -> Reply {
    const NO_SNIFF: HeaderName = HeaderName::from_static("x-content-type-options");
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NO_SNIFF, HeaderValue::from_static("nosniff"));
    reply
}

#[cfg(test)]
mod tests;
