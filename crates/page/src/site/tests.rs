use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt as _;
use hyper::Request;
use ropeway_live::model::{Job, Snapshot};
use ropeway_live::{Control as Asked, Live, Part, PartHandle, Response, View as Known};

use super::*;
use crate::guard::Token;

const TOKEN: &str = "0123456789abcdef";
const EVIL: &str = "\"><img src=x onerror=alert(1)>";

#[derive(Default)]
struct Copying {
    paused: AtomicBool,
}

impl Part for Copying {
    fn describe(&self, view: Known, snapshot: &mut Snapshot) {
        let mut job = Job {
            id: view.id,
            kind: "copy".into(),
            sources: vec![EVIL.into()],
            paused: self.paused.load(Ordering::Relaxed),
            ..Job::default()
        };
        job.controls.pause = true;
        snapshot.jobs.push(job);
    }

    fn control(&self, control: Asked<'_>) -> Response {
        match control {
            Asked::Pause => self.paused.store(true, Ordering::Relaxed),
            Asked::Resume => self.paused.store(false, Ordering::Relaxed),
            Asked::Bwlimit(_) => return Response::Refused("a copy like this has no limit".into()),
            Asked::CloseSession(_) => return Response::NotMine,
        }
        Response::Done
    }
}

struct Stage {
    site: PageSite,
    part: Arc<Copying>,
    _registered: PartHandle,
}

impl Stage {
    fn new(address: &str) -> Self {
        let live = Live::without_socket("copy", ["copy", "smb://ann:geheim@nas/s"].map(OsString::from));
        let part = Arc::new(Copying::default());
        let registered = live.add(Arc::clone(&part) as Arc<dyn Part>);
        let guard = Guard::new(&Token::Made(TOKEN.into()), address.parse().unwrap()).unwrap();
        Self {
            site: PageSite::new(guard, live.handle()),
            part,
            _registered: registered,
        }
    }

    fn cookie(&self) -> String {
        let cookie = self.site.guard.set_cookie();
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Returns status and text of a reply, and its headers.
    fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String, hyper::HeaderMap) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let (head, body) = self.site.reply(&head, body.as_bytes()).into_parts();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let text = match path {
            "/events" => String::new(),
            _ => {
                let bytes = runtime.block_on(body.collect()).unwrap().to_bytes();
                String::from_utf8(bytes.to_vec()).unwrap()
            }
        };
        (head.status.as_u16(), text, head.headers)
    }

    fn status(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
        self.ask(method, path, headers, "").0
    }
}

#[test]
fn every_path_is_what_it_says_and_no_other_is_there() {
    let stage = Stage::new("127.0.0.1:9450");
    let local = [("host", "127.0.0.1:9450")];
    for (path, kind) in [
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/icon.svg", "image/svg+xml"),
        ("/snapshot.json", "application/json"),
        ("/metrics", "text/plain"),
        ("/healthz", "text/plain"),
        ("/events", "text/event-stream"),
    ] {
        let (status, _, headers) = stage.ask("GET", path, &local, "");
        assert_eq!(status, 200, "{path}");
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert!(text("content-type").starts_with(kind), "{path}");
        assert_eq!(text("cache-control"), "no-store");
        assert_eq!(text("x-content-type-options"), "nosniff");
        assert!(text("content-security-policy").starts_with("default-src 'none'"));
        assert_eq!(stage.status("POST", path, &local), 405, "{path}");
    }
    for path in [
        "/x",
        "/../etc/passwd",
        "/%2e%2e/x",
        "//",
        "/page.js/",
        "/do/",
        "/.",
        "/events/1",
    ] {
        assert_eq!(stage.status("GET", path, &local), 404, "{path}");
    }
    assert_eq!(stage.status("GET", "/do", &local), 405);
    let (_, html, _) = stage.ask("GET", "/", &local, "");
    assert!(!html.contains("<img") && html.contains("&quot;&gt;&lt;img src=x"));
    assert!(!html.contains("geheim"));
    let (_, json, _) = stage.ask("GET", "/snapshot.json", &local, "");
    let snapshot: Snapshot = serde_json::from_str(&json).unwrap();
    assert_eq!(snapshot.jobs[0].sources[0], EVIL);
    let open = [("accept", "application/openmetrics-text; version=1.0.0")];
    let (_, text, headers) = stage.ask("GET", "/metrics", &open, "");
    assert!(text.ends_with("# EOF\n"));
    assert!(
        headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
}

#[test]
fn nothing_is_given_without_the_token_elsewhere() {
    let stage = Stage::new("0.0.0.0:9450");
    for path in [
        "/",
        "/page.css",
        "/page.js",
        "/icon.svg",
        "/events",
        "/snapshot.json",
        "/metrics",
        "/do",
        "/nothing",
    ] {
        for headers in [&[][..], &[("authorization", "Bearer wrong-wrong-wrong-1")]] {
            let (status, text, headers) = stage.ask("GET", path, headers, "");
            assert_eq!(status, 401, "{path}");
            assert_eq!(headers["www-authenticate"], "Bearer realm=\"ropeway\"");
            assert!(!text.contains("copy"), "{text}");
        }
    }
    let browser = [("accept", "text/html,*/*"), ("host", "nas:9450")];
    let (status, text, _) = stage.ask("GET", "/", &browser, "");
    assert_eq!((status, text.contains("type=\"password\"")), (401, true));
    assert_eq!(stage.status("GET", "/healthz", &browser), 200);
    assert_eq!(stage.status("GET", "/?token=wrong", &browser), 401);
    let (status, _, headers) = stage.ask("GET", &format!("//evil.example/?token={TOKEN}"), &browser, "");
    assert_eq!((status, headers["location"].to_str().unwrap()), (303, "/"));
    let cookie = headers["set-cookie"].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(
        stage.status("GET", "/", &[("cookie", cookie), ("host", "nas")]),
        200
    );
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(
        stage.status("GET", "/metrics", &[("authorization", &bearer)]),
        200
    );
}

#[test]
fn a_foreign_name_of_this_machine_is_refused() {
    let stage = Stage::new("127.0.0.1:9450");
    for path in ["/", "/metrics", "/healthz", "/events"] {
        assert_eq!(
            stage.status("GET", path, &[("host", "evil.example:9450")]),
            421,
            "{path}"
        );
    }
    let foreign = [("host", "127.0.0.1:9450"), ("origin", "http://evil.example")];
    assert_eq!(stage.status("GET", "/events", &foreign), 403);
}

#[test]
fn only_our_own_forms_change_something() {
    let stage = Stage::new("127.0.0.1:9450");
    let (cookie, form) = (stage.cookie(), stage.site.guard.form().to_owned());
    let own = [
        ("host", "127.0.0.1:9450"),
        ("origin", "http://127.0.0.1:9450"),
        ("cookie", &cookie),
    ];
    let paused = || stage.part.paused.load(Ordering::Relaxed);
    let pause = format!("form={form}&do=pause");
    // Without the cookie, with another form, by GET, from another website.
    assert_eq!(stage.ask("POST", "/do", &own[..2], &pause).0, 403);
    assert_eq!(stage.ask("POST", "/do", &own, "form=1&do=pause").0, 403);
    assert_eq!(stage.ask("POST", "/do", &own, "do=pause").0, 403);
    assert_eq!(stage.ask("GET", &format!("/do?{pause}"), &own, "").0, 405);
    let foreign = [own[0], ("origin", "http://evil.example"), own[2]];
    assert_eq!(stage.ask("POST", "/do", &foreign, &pause).0, 403);
    assert!(!paused());
    let (status, text, _) = stage.ask("POST", "/do", &own, &pause);
    assert!(status == 200 && text.contains("Paused"), "{text}");
    assert!(paused());
    // A program has the token, and no form.
    let bearer = format!("Bearer {TOKEN}");
    let program = [("authorization", bearer.as_str())];
    let (status, text, _) = stage.ask("POST", "/do", &program, "do=resume");
    assert!(status == 200 && text.contains("Resumed") && !paused(), "{text}");
    let (status, text, _) = stage.ask("POST", "/do", &program, "do=bwlimit&value=1M");
    assert!(status == 409 && text.contains("has no limit"), "{text}");
    let (status, text, _) = stage.ask("POST", "/do", &program, "do=close_session&id=zz");
    assert!(status == 409 && text.contains("hexadecimal"), "{text}");
    assert_eq!(stage.ask("POST", "/do", &program, "do=boil").0, 400);
}

#[test]
fn what_ends_something_is_asked_first() {
    let stage = Stage::new("127.0.0.1:9450");
    let (cookie, form) = (stage.cookie(), stage.site.guard.form().to_owned());
    let own = [("accept", "text/html"), ("cookie", cookie.as_str())];
    let body = format!("form={form}&do=close_session&id=1&ask=End+%3Cb%3E%3F");
    let (status, text, _) = stage.ask("POST", "/do", &own, &body);
    assert!(
        status == 200 && text.contains("End &lt;b&gt;?") && text.contains("name=\"sure\""),
        "{text}"
    );
    let (status, text, _) = stage.ask("POST", "/do", &own, &format!("{body}&sure=1"));
    assert!(
        status == 409 && text.contains("this process has no such session"),
        "{text}"
    );
}

#[test]
fn too_many_pages_are_refused_and_metrics_are_not() {
    let stage = Stage::new("127.0.0.1:9450");
    let head = || Request::builder().uri("/events").body(()).unwrap().into_parts().0;
    let mut open = Vec::new();
    let refused = loop {
        let reply = stage.site.reply(&head(), &[]);
        if reply.status() != 200 {
            break reply.status();
        }
        open.push(reply);
        assert!(open.len() < 1000);
    };
    assert_eq!((refused.as_u16(), open.len()), (503, 32));
    assert_eq!(stage.status("GET", "/metrics", &[]), 200);
    open.pop();
    assert_eq!(stage.site.reply(&head(), &[]).status(), 200);
}
