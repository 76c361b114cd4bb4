//! Clients that are not as they should be, and a process that ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use crate::page::{Copying, MIB, PATIENCE, ask, big_source, connect, get, status};
use crate::support::{Place, Served, wait_until};

/// Pages that a process shows at once.
const PAGES: usize = 32;

fn events(address: &str) -> TcpStream {
    let mut socket = connect(address);
    let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

/// Reads lines until one begins with this; returns it.
fn until(lines: &mut impl BufRead, start: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before {start}");
        if line.starts_with(start) {
            return line;
        }
    }
}

/// Returns the resident memory in bytes.
fn memory(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Asks what must be refused, while all pages are in use.
#[track_caller]
fn refused(address: &str) {
    for (request, headers, expected) in [
        ("GET /../../etc/passwd", "", "404"),
        ("GET /%2e%2e/%2e%2e/etc/passwd", "", "404"),
        ("PUT /", "Content-Length: 0\r\n", "405"),
        ("OPTIONS /", "", "405"),
        ("DELETE /do", "", "405"),
        ("TRACE /", "", "405"),
        ("GET /do?do=cancel&sure=1", "", "405"),
        ("POST /do", "", "411"),
        ("POST /do", "Content-Length: 99999999\r\n", "413"),
        ("GET /?token=wrong-wrong-wrong", "", "401"),
        ("GET /", "Authorization: Bearer wrong\r\n", "401"),
        ("GET /", "Authorization: Basic cm9vdDpyb290\r\n", "401"),
        ("GET /", "Origin: http://evil.example\r\n", "403"),
        (
            "GET /",
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
            "403",
        ),
        ("HEAD /", "", "200"),
        ("HEAD /events", "", "503"),
    ] {
        let (head, _) = ask(address, request, headers, "");
        assert_eq!(status(&head), expected, "{request}");
    }
    let (head, body) = ask(address, "HEAD /", "", "");
    assert!(head.contains("Content-Length: ") && body.is_empty());
    let huge = format!("X: {}\r\n", "x".repeat(100_000));
    assert!(["431", "none"].contains(&status(&ask(address, "GET /", &huge, "").0)));
    let mut rebound = connect(address);
    rebound
        .write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    rebound.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 421 "), "{text}");
}

#[test]
fn hostile_clients_delay_neither_the_copy_nor_each_other() {
    let place = Place::new();
    big_source(&place);
    let copying = Copying::start(&place, &[]);
    let address = &copying.address;
    // Open pages, some of which never read.
    let mut pages: Vec<TcpStream> = (0..PAGES).map(|_| events(address)).collect();
    let mut first = BufReader::new(pages.pop().unwrap());
    assert!(until(&mut first, "HTTP/1.1").contains(" 200 "));
    until(&mut first, "event: view");
    assert!(wait_until(PATIENCE, || status(&get(address, "/events?full").0) == "503"));
    // Two hundred that send a part of a head.
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut socket = connect(address);
            _ = socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ");
            socket
        })
        .collect();
    for _ in 0..20 {
        let (head, text) = get(address, "/metrics");
        assert!(
            status(&head) == "200" && text.contains("ropeway_job_info"),
            "{head}"
        );
    }
    let before = copying.running.counter("bytes_read");
    refused(address);
    // The copy went on meanwhile.
    assert!(wait_until(PATIENCE, || {
        copying.running.counter("bytes_read") >= before + MIB
    }));
    drop(slow);
    // Pages that do not read are dropped; then there is room again.
    assert!(wait_until(PATIENCE, || status(&get(address, "/healthz").0) == "200"));
    until(&mut first, "event: view");
    drop(pages);
    copying.running.signal(Signal::INT);
    until(&mut first, "event: end");
    assert!(until(&mut first, "data: ").contains("stopping"));
    let mut rest = String::new();
    first.read_to_string(&mut rest).unwrap();
    copying.running.wait().assert_code(&[130]);
}

/// What a night is made of, without its length: pages that come and go, and one that stays. A server
/// without clients, since the buffers of a copy grow in its first seconds.
#[test]
fn pages_that_come_and_go_cost_no_memory() {
    let served = Served::start(&["--http", "0"]);
    let (address, pid) = (&crate::page::flags::host(&served.page()), served.id());
    let mut stays = BufReader::new(events(address));
    until(&mut stays, "event: view");
    let mut visit = |count: usize| {
        for number in 0..count {
            assert_eq!(status(&get(address, "/").0), "200");
            if number % 20 == 0 {
                until(&mut stays, "event: view");
                // A page that is gone is noticed with its next event.
                assert!(wait_until(PATIENCE, || {
                    let mut lines = BufReader::new(events(address));
                    until(&mut lines, "HTTP/1.1").contains(" 200 ")
                }));
            }
        }
    };
    visit(100);
    let before = memory(pid);
    visit(500);
    let after = memory(pid);
    assert!(after < before + 8 * MIB, "from {before} to {after} bytes");
    served.stop();
}
