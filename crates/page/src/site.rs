//! The site: which path gets what, and who gets it.

use std::future::Future;

use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use ropeway_live::Handle;
use serde_json::json;

use crate::actions::{self, Form};
use crate::feed::{Feed, Moment};
use crate::guard::{Asker, Guard, Refusal};
use crate::html::{self, Control};
use crate::metrics::{self, Format};
use crate::server::{Body, Reply, Site, TEXT, not_allowed, reply, reply_with};
use crate::view::View;

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json; charset=utf-8";

/// What the page may load and do: only what this server gives, and no frames around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The page of a process.
pub(crate) struct PageSite {
    guard: Guard,
    handle: Handle,
    feed: Feed,
}

impl Site for PageSite {
    const METHODS: &'static [&'static str] = &["GET", "HEAD", "POST"];

    fn reply(&self, head: &Parts, body: &[u8]) -> Reply {
        let mut reply = self.answer(head, body);
        let headers = reply.headers_mut();
        for (name, value) in [
            ("content-security-policy", POLICY),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("x-frame-options", "DENY"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        reply
    }
}

impl PageSite {
    pub(crate) fn new(guard: Guard, handle: Handle) -> Self {
        Self {
            guard,
            handle,
            feed: Feed::default(),
        }
    }

    /// Sends events to open pages until `stop` is done.
    pub(crate) async fn feed(&self, stop: impl Future<Output = ()>) {
        self.feed.run(|| self.moment(), stop).await;
    }

    fn answer(&self, head: &Parts, body: &[u8]) -> Reply {
        let path = head.uri.path();
        if path == "/healthz" {
            // It says nothing of the process, and probes have no token.
            return match (self.guard.is_host_own(head), head.method == Method::POST) {
                (_, true) => not_allowed(&["GET", "HEAD"]),
                (Ok(()), _) => reply(StatusCode::OK, TEXT, "ok\n"),
                (Err(refusal), _) => refused(refusal, head),
            };
        }
        if let Some(answer) = self.token_in_address(head) {
            return answer;
        }
        let asker = match self.guard.judge(head) {
            Ok(asker) => asker,
            Err(refusal) => return refused(refusal, head),
        };
        let is_post = head.method == Method::POST;
        match path {
            "/do" if is_post => self.act(asker, head, body),
            "/do" => not_allowed(&["POST"]),
            _ if is_post => not_allowed(&["GET", "HEAD"]),
            "/" => self.page(asker),
            "/events" => self.events(asker),
            "/page.css" => reply(StatusCode::OK, "text/css; charset=utf-8", html::CSS),
            "/page.js" => reply(StatusCode::OK, "text/javascript; charset=utf-8", html::SCRIPT),
            "/icon.svg" => reply(StatusCode::OK, "image/svg+xml", html::ICON),
            "/snapshot.json" => {
                let snapshot = self.handle.snapshot(true);
                reply(
                    StatusCode::OK,
                    JSON,
                    serde_json::to_vec(&snapshot).unwrap_or_default(),
                )
            }
            "/metrics" => {
                let format = Format::wanted(head.headers.get(header::ACCEPT));
                let text = metrics::page(&self.handle.snapshot(false)).text(format);
                reply(StatusCode::OK, format.content_type(), text)
            }
            _ => reply(
                StatusCode::NOT_FOUND,
                TEXT,
                "the pages are /, /snapshot.json, /metrics and /healthz\n",
            ),
        }
    }

    /// Answers a request with `?token=`: with the cookie, and the address without the token.
    fn token_in_address(&self, head: &Parts) -> Option<Reply> {
        let query = head.uri.query().unwrap_or_default();
        let mut fields = form_urlencoded::parse(query.as_bytes());
        let (_, token) = fields.find(|(name, _)| name == "token")?;
        if !self.guard.is_token(&token) {
            return Some(refused(Refusal::WrongToken, head));
        }
        let mut answer = reply(StatusCode::SEE_OTHER, TEXT, "");
        let headers = answer.headers_mut();
        headers.insert(header::LOCATION, HeaderValue::from_static("/"));
        let cookie = HeaderValue::from_str(&self.guard.set_cookie()).ok();
        headers.extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
        Some(answer)
    }

    fn page(&self, asker: Asker) -> Reply {
        let view = View::of(&self.handle.snapshot(true));
        let page = match asker {
            Asker::Reader => html::page(&view.for_readers(), Control::None),
            Asker::Owner | Asker::Program => html::page(&view, Control::Forms(self.guard.form())),
        };
        reply(StatusCode::OK, HTML, page)
    }

    fn events(&self, asker: Asker) -> Reply {
        let is_owner = asker != Asker::Reader;
        match self.feed.subscribe(is_owner, || self.moment()) {
            Some(events) => reply_with(StatusCode::OK, "text/event-stream", Body::events(events)),
            None => reply(
                StatusCode::SERVICE_UNAVAILABLE,
                TEXT,
                "too many pages are open; close one\n",
            ),
        }
    }

    fn moment(&self) -> Moment {
        let view = View::of(&self.handle.snapshot(true));
        // Structs with text keys always serialize.
        let bytes = |view: &View| Bytes::from(serde_json::to_vec(view).unwrap_or_default());
        let owner = bytes(&view);
        let reader = bytes(&view.for_readers());
        Moment { reader, owner }
    }

    /// Does what a form asks for.
    fn act(&self, asker: Asker, head: &Parts, body: &[u8]) -> Reply {
        let form = Form::parse(body);
        let may = match asker {
            Asker::Reader => false,
            Asker::Owner => self.guard.is_own_form(&form.form),
            Asker::Program => true,
        };
        if !may {
            let why = match asker {
                Asker::Reader => "this needs the token: open the address that was printed at the start",
                _ => "this form is not of this page any more: load the page again",
            };
            return said(head, StatusCode::FORBIDDEN, "Refused", why);
        }
        let request = match form.request() {
            Ok(request) => request,
            Err(why) => return said(head, StatusCode::BAD_REQUEST, "Refused", &why),
        };
        // A program that has the token knows what it does.
        if asker == Asker::Owner && actions::needs_question(&request) && !form.is_sure {
            let text = match form.field("ask") {
                "" => "This cannot be undone.",
                text => text,
            };
            let mut fields = vec![("form".to_owned(), form.form.clone())];
            fields.extend(form.fields.iter().filter(|(name, _)| name != "ask").cloned());
            return reply(StatusCode::OK, HTML, html::question(text, &fields));
        }
        let answer = self.handle.control(&request);
        tracing::info!(?request, ok = answer.ok, "asked by HTTP");
        match answer.error {
            None if answer.ok => said(head, StatusCode::OK, "Done", &actions::done(&request)),
            why => {
                let why = why.unwrap_or_else(|| "it was refused".to_owned());
                said(head, StatusCode::CONFLICT, "Not done", &why)
            }
        }
    }
}

/// Returns words for people, or for the script.
fn said(head: &Parts, status: StatusCode, title: &str, text: &str) -> Reply {
    match accepts_html(head) {
        true => reply(status, HTML, html::message(title, text)),
        false => {
            let object = json!({"ok": status == StatusCode::OK, "text": text});
            reply(status, JSON, object.to_string())
        }
    }
}

/// Whether it is a browser that will show the reply.
fn accepts_html(head: &Parts) -> bool {
    let accept = head.headers.get(header::ACCEPT);
    accept.is_some_and(|accept| accept.to_str().is_ok_and(|accept| accept.contains("text/html")))
}

fn refused(refusal: Refusal, head: &Parts) -> Reply {
    let (status, text) = match refusal {
        Refusal::Host => (
            StatusCode::MISDIRECTED_REQUEST,
            "without a token this page is for the names and addresses of this machine only, such as localhost",
        ),
        Refusal::Foreign => (StatusCode::FORBIDDEN, "another website made this request"),
        Refusal::NoToken => (
            StatusCode::UNAUTHORIZED,
            "The token was printed at the start, or is in the file of --http-token-file.",
        ),
        Refusal::WrongToken => (StatusCode::UNAUTHORIZED, "This is not the token."),
    };
    if status != StatusCode::UNAUTHORIZED {
        return reply(status, TEXT, format!("{text}\n"));
    }
    let mut answer = match accepts_html(head) {
        true => reply(status, HTML, html::login(text)),
        false => reply(status, TEXT, format!("{text}\n")),
    };
    let bearer = HeaderValue::from_static("Bearer realm=\"ropeway\"");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    answer
}

#[cfg(test)]
mod tests;
