//! What servers and mounts tell.

use std::fs;

use serde_json::{Value, json};

use crate::support::{self, Mounted, Place, Served, content_same, file, or_skip, wait_until};
use crate::top::{MIB, PATIENCE, View, top};

#[test]
fn a_server_tells_its_sessions_and_ends_one() {
    let served = Served::start(&["--http", "0"]);
    file(&served.behind("big"), 48 * MIB, 1);
    let place = Place::new();
    let copying = served
        .run("copy")
        .args(["--json", "--bwlimit", "2M", &served.url("big")])
        .arg(place.join("big"))
        .start();
    let mut view = View::open(&served.place, served.id());
    let mut server = Value::Null;
    let reads = wait_until(PATIENCE, || {
        server = view.snapshot()["servers"][0].take();
        server["sessions"][0]["bytes_read"].as_u64() > Some(MIB)
    });
    assert!(reads, "{server}");
    let session = &server["sessions"][0];
    assert_eq!(
        (&session["user"], &session["dialect"]),
        (&json!("ann"), &json!("3.1.1")),
        "{server}"
    );
    assert_eq!(session["shares"], json!(["data"]), "{server}");
    assert!(
        session["clients"][0].as_str().unwrap().starts_with("127.0.0.1:"),
        "{server}"
    );
    assert!(
        session["operations"]["read"]["count"].as_u64() > Some(0),
        "{server}"
    );
    assert_eq!(
        (&server["users"], &server["shares"][0]["sessions"]),
        (&json!(1), &json!(1)),
        "{server}"
    );
    let open = server["open_files"].as_array().unwrap();
    let big = open
        .iter()
        .find(|open| open["path"] == "big")
        .unwrap_or_else(|| panic!("{server}"));
    assert_eq!(
        (&big["reads"], &big["folder"], &big["share"]),
        (&json!(true), &json!(false), &json!("data"))
    );
    let buckets = server["latency"]["buckets"].as_array().unwrap();
    assert!(buckets.iter().any(|count| count.as_u64() > Some(0)), "{server}");

    let id = session["id"].as_str().unwrap().to_owned();
    let refused = view.ask(json!({"do": "close_session", "id": "dead"}));
    assert!(
        refused["error"].as_str().unwrap().contains("no such session"),
        "{refused}"
    );
    view.order(json!({"do": "close_session", "id": id}));
    let gone = |server: &Value| {
        let sessions = server["sessions"].as_array().unwrap();
        sessions.iter().all(|session| session["id"] != id.as_str())
    };
    assert!(wait_until(PATIENCE, || gone(&view.snapshot()["servers"][0])));
    // The client logs in again, and the copy goes on.
    copying.wait().assert_code(&[0]);
    content_same(&served.behind("big"), &place.join("big"));
    let refused = view.ask(json!({"do": "pause"}));
    assert!(
        refused["error"].as_str().unwrap().contains("no such job"),
        "{refused}"
    );
    served.stop();
}

#[test]
fn no_secret_is_told() {
    let served = Served::start(&[]);
    let place = &served.place;
    let told = top(place);
    let text = Value::from(told).to_string();
    assert!(
        text.contains("--password-file") && !text.contains(support::PASSWORD),
        "{text}"
    );
    served.stop();
}

#[test]
fn a_mount_tells_what_it_does_and_is_ended() {
    let mut mounted = or_skip!(Mounted::new(&["-o", "nopassthrough"]));
    fs::write(mounted.at("file"), vec![1; 1 << 20]).unwrap();
    fs::read(mounted.at("file")).unwrap();
    let told = top(&mounted.place);
    let mount = told
        .iter()
        .find_map(|process| process["mounts"].get(0))
        .unwrap_or_else(|| panic!("{told:?}"));
    assert!(mount["mountpoint"].as_str().unwrap().ends_with("/mnt"), "{mount}");
    assert!(mount["requests"].as_u64() > Some(0), "{mount}");
    let running = mounted.running.take().unwrap();
    assert_eq!(told[0]["process"]["pid"], running.id(), "{told:?}");
    View::open(&mounted.place, running.id()).order(json!({"do": "cancel"}));
    running.wait().assert_code(&[0]);
    assert!(!support::is_mounted(&mounted.at("")));
}
