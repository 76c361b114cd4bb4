use proptest::prelude::*;

use super::*;

/// Counts what it is asked for.
#[derive(Default)]
struct Counted {
    snapshots: u64,
    controls: Vec<Request>,
}

impl Handler for Counted {
    fn snapshot(&mut self, _: bool) -> Snapshot {
        self.snapshots += 1;
        Snapshot::default()
    }

    fn control(&mut self, request: &Request) -> Reply {
        self.controls.push(request.clone());
        Reply::done()
    }
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Takes everything, and returns the replies.
fn taken(client: &mut Client, now: Duration, handler: &mut Counted) -> Vec<Reply> {
    let mut all = Vec::new();
    while !client.output().is_empty() {
        let count = client.output().len();
        all.extend_from_slice(client.output());
        client.sent(now, count, handler);
    }
    let lines = all.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[test]
fn each_request_of_the_manual_is_understood() {
    let request = |text: &str| Request::parse(text.as_bytes()).unwrap();
    assert_eq!(request(r#"{"do":"status"}"#), Request::Status { history: true });
    let watch = Request::Watch {
        interval_ms: 1000,
        history: true,
    };
    assert_eq!(request(r#"{"do":"watch","interval_ms":1000}"#), watch);
    assert_eq!(request(r#"{"do":"watch"}"#), watch);
    assert_eq!(request(r#"{"do":"pause"}"#), Request::Pause { job: None });
    assert_eq!(
        request(r#"{"do":"resume","job":2}"#),
        Request::Resume { job: Some(2) }
    );
    let bwlimit = Request::Bwlimit {
        value: "20M".into(),
        job: None,
    };
    assert_eq!(request(r#"{"do":"bwlimit","value":"20M"}"#), bwlimit);
    assert_eq!(request(r#"{"do":"cancel"}"#), Request::Cancel);
    let close = Request::CloseSession { id: "1f".into() };
    assert_eq!(request(r#"{"do":"close_session","id":"1f"}"#), close);
    for bad in [
        "",
        "{}",
        "[]",
        r#"{"do":"boil"}"#,
        r#"{"do":"bwlimit"}"#,
        r#"{"do":"pause","job":-1}"#,
        "\u{0}",
    ] {
        assert!(Request::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    for request in [watch, bwlimit, close] {
        let text = serde_json::to_vec(&request).unwrap();
        assert_eq!(Request::parse(&text), Ok(request));
    }
}

#[test]
fn each_line_gets_one_line_back() {
    let (mut client, mut handler) = (Client::new(at(0)), Counted::default());
    client.input(
        at(1),
        b"{\"do\":\"pause\"}\n\n{\"do\":\"nothing\"}\n{\"do\":\"sta",
        &mut handler,
    );
    let replies = taken(&mut client, at(2), &mut handler);
    assert_eq!(replies.len(), 2);
    assert!(replies[0].ok && !replies[1].ok && replies[1].error.is_some());
    client.input(at(3), b"tus\"}\n", &mut handler);
    let replies = taken(&mut client, at(4), &mut handler);
    assert!(replies.len() == 1 && replies[0].snapshot.is_some());
    assert_eq!(handler.controls, [Request::Pause { job: None }]);
}

#[test]
fn a_watch_sends_a_snapshot_each_interval_until_it_ends() {
    let (mut client, mut handler) = (Client::new(at(0)), Counted::default());
    client.input(at(0), b"{\"do\":\"watch\",\"interval_ms\":500}\n", &mut handler);
    assert_eq!(taken(&mut client, at(0), &mut handler).len(), 1);
    assert_eq!(client.deadline(), at(500));
    for step in 1..=10 {
        client.tick(at(step * 250), &mut handler);
        let count = taken(&mut client, at(step * 250), &mut handler).len();
        assert_eq!(count, usize::from(step % 2 == 0), "step {step}");
    }
    client.input(at(2600), b"{\"do\":\"watch\",\"interval_ms\":0}\n", &mut handler);
    assert!(taken(&mut client, at(2600), &mut handler)[0].snapshot.is_none());
    client.tick(at(90_000), &mut handler);
    assert!(client.output().is_empty());
}

#[test]
fn a_client_that_reads_nothing_costs_one_snapshot_and_is_dropped() {
    let (mut client, mut handler) = (Client::new(at(0)), Counted::default());
    client.input(at(0), b"{\"do\":\"watch\",\"interval_ms\":100}\n", &mut handler);
    let size = client.output().len();
    for step in 1..100 {
        client.tick(at(step * 100), &mut handler);
        assert_eq!(client.output().len(), size);
        assert!(!client.is_over(at(step * 100)));
    }
    assert!(client.is_over(at(10_000)));
    assert!(!client.wants_input(), "nor does it send further requests");
}

#[test]
fn a_silent_client_is_dropped_and_a_watching_one_is_not() {
    let (mut client, mut handler) = (Client::new(at(0)), Counted::default());
    assert!(!client.is_over(at(299_000)) && client.is_over(at(300_000)));
    client.input(at(0), b"{\"do\":\"watch\"}\n", &mut handler);
    taken(&mut client, at(0), &mut handler);
    assert!(!client.is_over(at(30_000_000)));
}

#[test]
fn a_line_without_end_is_refused() {
    let (mut client, mut handler) = (Client::new(at(0)), Counted::default());
    client.input(at(0), &vec![b'x'; REQUEST_MAX + 1], &mut handler);
    let replies = taken(&mut client, at(0), &mut handler);
    assert_eq!(replies[0].error.as_deref(), Some("a line is too long"));
    assert!(client.is_over(at(0)) && !client.wants_input());
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic_and_are_bounded(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..600), 0..40)) {
        let (mut client, mut handler) = (Client::new(at(0)), Counted::default());
        for (step, chunk) in (0..).zip(&chunks) {
            if client.wants_input() {
                client.input(at(step), chunk, &mut handler);
            }
            client.tick(at(step), &mut handler);
            prop_assert!(client.lines.buffer.len() <= REQUEST_MAX + 600);
            taken(&mut client, at(step), &mut handler);
        }
    }

    #[test]
    fn requests_do_not_depend_on_how_they_are_cut(cuts in proptest::collection::vec(1_usize..40, 1..20)) {
        let text = b"{\"do\":\"pause\"}\n{\"do\":\"resume\",\"job\":3}\n{\"do\":\"bwlimit\",\"value\":\"off\"}\n{\"do\":\"cancel\"}\n";
        let (mut client, mut handler) = (Client::new(at(0)), Counted::default());
        let (mut rest, mut cuts) = (&text[..], cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            client.input(at(0), head, &mut handler);
            taken(&mut client, at(0), &mut handler);
            rest = tail;
        }
        prop_assert_eq!(handler.controls.len(), 4);
    }

    #[test]
    fn lines_are_those_of_the_stream(lines in proptest::collection::vec("[a-z]{0,30}", 0..10)) {
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let (mut cut, mut found) = (Lines::default(), Vec::new());
        for byte in text.as_bytes() {
            cut.push(&[*byte]);
            while let Some(line) = cut.next(30).unwrap() {
                found.push(String::from_utf8(line).unwrap());
            }
        }
        prop_assert_eq!(found, lines);
    }
}
