use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use super::places::PLACES;
use super::*;

/// Replies to `GET /page` and `POST /x`, and streams three events.
struct Echo;

impl Site for Echo {
    const METHODS: &'static [&'static str] = &["GET", "HEAD", "POST"];

    fn reply(&self, head: &Parts, body: &[u8]) -> Reply {
        match (head.method.as_str(), head.uri.path()) {
            ("POST", "/x") => reply(StatusCode::OK, TEXT, [b"<", body, b">"].concat()),
            (_, "/page") => reply(StatusCode::OK, TEXT, "a 1\n"),
            (_, "/events") => {
                let events = ["one\n", "two\n", "three\n"].map(Bytes::from);
                let events = futures_util::stream::iter(events);
                reply_with(StatusCode::OK, TEXT, Body::events(events))
            }
            _ => reply(StatusCode::NOT_FOUND, TEXT, ""),
        }
    }
}

fn started() -> SocketAddr {
    start("127.0.0.1:0".parse().unwrap(), Echo).unwrap()
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
fn only_known_methods_and_origin_form_are_replied_to() {
    let address = started();
    for (request, status, body) in [
        ("GET /page HTTP/1.1\r\nHost: x\r\n\r\n", "200", "a 1\n"),
        ("GET /page?x=1 HTTP/1.0\r\n\r\n", "200", "a 1\n"),
        ("HEAD /page HTTP/1.1\r\n\r\n", "200", ""),
        ("GET / HTTP/1.1\r\n\r\n", "404", ""),
        ("PUT /page HTTP/1.1\r\n\r\n", "405", "GET or HEAD or POST\n"),
        ("OPTIONS * HTTP/1.1\r\n\r\n", "400", "bad request\n"),
        ("GET /page\r\n\r\n", "400", ""),
        ("GET page HTTP/1.1\r\n\r\n", "400", "bad request\n"),
        ("GET http://x/page HTTP/1.1\r\n\r\n", "400", "bad request\n"),
        ("GET  /page HTTP/1.1\r\n\r\n", "400", ""),
        ("GET /page HTTP/2\r\n\r\n", "400", ""),
    ] {
        let answer = ask(address, request.as_bytes());
        let (head, tail) = answer.split_once("\r\n\r\n").unwrap_or((&answer, "no end"));
        let version = match request.contains("HTTP/1.0") {
            true => "1.0",
            false => "1.1",
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
    let head = ask(address, b"HEAD /page HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: 4\r\n"), "{head}");
    let refused = ask(address, b"DELETE /page HTTP/1.1\r\n\r\n");
    assert!(refused.contains("\r\nAllow: GET, HEAD, POST\r\n"), "{refused}");
    assert!(ask(address, b"\xff /page HTTP/1.1\r\n\r\n").contains(" 400 "));
}

#[test]
fn events_are_streamed_to_the_end() {
    let address = started();
    let answer = ask(address, b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
    let places: Vec<usize> = ["one\n", "two\n", "three\n"]
        .iter()
        .map(|event| answer.find(event).unwrap())
        .collect();
    assert!(
        places.is_sorted() && answer.ends_with("\r\n0\r\n\r\n"),
        "{answer}"
    );
    let head = ask(address, b"HEAD /events HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.contains(" 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn an_incomplete_head_gets_no_reply_and_a_long_one_431() {
    let address = started();
    assert_eq!(ask(address, b""), "");
    assert_eq!(ask(address, b"GET /page HTTP/1.1\r\nHost: x\r\n"), "");
    let long = vec![b'x'; REQUEST_MAX + 1];
    assert!(ask(address, &long).contains(" 431 "));
    let long = [&b"GET / HTTP/1.1\r\nA: "[..], &long, b"\r\n\r\n"].concat();
    assert!(ask(address, &long).contains(" 431 "));
}

#[test]
fn a_post_needs_a_length() {
    let address = started();
    let post = |request: &str| ask(address, request.as_bytes());
    let whole = "POST /x HTTP/1.1\r\nHost: y\r\ncontent-length:  3\r\n\r\nabc";
    assert!(post(whole).ends_with("\r\n\r\n<abc>"));
    for length in 0..whole.len() {
        assert_eq!(post(&whole[..length]), "", "{length}");
    }
    for (request, status) in [
        (whole.replace("/x", "/y"), " 404 "),
        (whole.replace("POST", "PUT"), " 405 "),
        (whole.replace("length:  3", "type: x"), " 411 "),
        (whole.replace("length:  3", "length: -1"), " 400 "),
        (whole.replace("  3", "99999"), " 413 "),
        ("x".repeat(REQUEST_MAX + 1), " 431 "),
    ] {
        assert!(post(&request).contains(status), "{request:.40}");
    }
}

#[test]
fn silent_clients_delay_nobody_and_lose_their_places() {
    let address = started();
    let mut silent: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(b"GET /page HT").unwrap();
            socket
        })
        .collect();
    let answer = ask(address, b"GET /page HTTP/1.1\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\na 1\n"), "{answer}");
    // Those that came last have the places; all others were dropped.
    let early = &mut silent[0];
    early.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    assert!(matches!(early.read_to_end(&mut rest), Ok(0) | Err(_)));
    let last = silent.len() - PLACES / 2;
    let mut late = silent.swap_remove(last);
    late.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    late.write_all(b"TP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\na 1\n"), "{answer}");
}
