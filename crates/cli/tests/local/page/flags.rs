//! Commands, tokens, and what is printed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::page::{Copying, MIB, PATIENCE, ask, big_source, get, status};
use crate::support::{Mounted, Place, Served, can_mount, file, or_skip, wait_until};

const TOKEN: &str = "0123456789abcdef-of-a-file";

/// Returns address and port of a URL.
pub(crate) fn host(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    rest.split('/').next().unwrap().to_owned()
}

fn page_of(mounted: &Mounted) -> String {
    let out = mounted.running.as_ref().unwrap().stdout();
    host(out.lines().find_map(|line| line.strip_prefix("page: ")).unwrap())
}

fn token_file(place: &Place, mode: u32, text: &str) -> String {
    let path = place.join(format!("token-{mode:o}"));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

#[test]
fn a_copy_has_a_page_with_everything_but_its_secrets() {
    let place = Place::new();
    big_source(&place);
    let copying = Copying::start(&place, &[]);
    let address = &copying.address;
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let read = |text: &str| -> u64 {
        let snapshot: Value = serde_json::from_str(text).unwrap();
        snapshot["jobs"][0]["counters"]["bytes_read"]
            .as_u64()
            .unwrap_or(0)
    };
    assert!(wait_until(PATIENCE, || read(&get(address, "/snapshot.json").1) > MIB));
    let (head, html) = get(address, "/");
    assert!(
        status(&head) == "200" && html.contains("/source → "),
        "{head}\n{html}"
    );
    assert!(
        html.contains("copying") && html.contains(" of 64.0 MiB"),
        "{html}"
    );
    // Reading needs no token, and gives none away.
    assert!(!html.contains(copying.token()));
    let (_, metrics) = get(address, "/metrics");
    let line = "ropeway_job_read_bytes_total{job=\"1\",kind=\"copy\"} ";
    assert!(metrics.contains(line), "{metrics}");
    let (head, open) = ask(
        address,
        "GET /metrics",
        "Accept: application/openmetrics-text\r\n",
        "",
    );
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(open.ends_with("# EOF\n"), "{open}");
    assert_eq!(get(address, "/healthz").1, "ok\n");

    // To change something the token is needed.
    let length = |body: &str| format!("Content-Length: {}\r\n", body.len());
    let pause = "do=pause";
    let (head, _) = ask(address, "POST /do", &length(pause), pause);
    assert_eq!(status(&head), "403", "{head}");
    let bearer = format!("Authorization: Bearer {}\r\n", copying.token());
    let (head, said) = ask(address, "POST /do", &(bearer.clone() + &length(pause)), pause);
    assert!(
        status(&head) == "200" && said.contains("Paused"),
        "{head}\n{said}"
    );
    let (_, html) = get(address, "/");
    assert!(html.contains("PAUSED"), "{html}");
    let limit = "do=bwlimit&value=fast";
    let (head, said) = ask(address, "POST /do", &(bearer.clone() + &length(limit)), limit);
    assert!(
        status(&head) == "409" && said.contains("is not a bandwidth"),
        "{head}\n{said}"
    );
    let cancel = "do=cancel";
    let (head, _) = ask(address, "POST /do", &(bearer + &length(cancel)), cancel);
    assert_eq!(status(&head), "200");
    copying.running.wait().assert_code(&[130]);
}

#[test]
fn the_address_is_printed_unless_quiet() {
    let place = Place::new();
    file(&place.folder("source").join("small"), 1000, 1);
    let plain = place.ropeway("copy").args(["--http", "0", "source", "one"]).ok();
    let line = plain.err.lines().find(|line| line.starts_with("page: ")).unwrap();
    assert!(
        line.starts_with("page: http://127.0.0.1:") && line.contains("/?token="),
        "{plain}"
    );
    let quiet = place
        .ropeway("copy")
        .args(["--quiet", "--http", "0", "source", "two"])
        .ok();
    assert!(!quiet.err.contains("page:"), "{quiet}");
    let check = place
        .ropeway("check")
        .args(["--json", "--http", "0", "source", "one"])
        .run();
    assert!(crate::page::listening(&check.out).is_some(), "{check}");
    let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = used.local_addr().unwrap().port().to_string();
    let refused = place
        .ropeway("copy")
        .args(["--http", &port, "source", "three"])
        .exits(6);
    assert!(
        refused.err.contains("cannot serve HTTP on") && refused.err.contains("hint:"),
        "{refused}"
    );
    assert!(!place.join("three").exists());
}

#[test]
fn a_token_file_closes_the_page_and_must_be_private() {
    let place = Place::new();
    big_source(&place);
    for (path, code) in [
        (token_file(&place, 0o644, TOKEN), 5),
        (token_file(&place, 0o400, "short"), 1),
        (place.join("none").display().to_string(), 1),
    ] {
        let run = place
            .ropeway("copy")
            .args(["--http", "0", "--http-token-file", &path]);
        let refused = run.args(["source", "target"]).exits(code);
        assert!(
            refused.err.contains("token file") && refused.err.contains("hint:"),
            "{refused}"
        );
    }
    let path = token_file(&place, 0o600, &format!("{TOKEN}\n"));
    let copying = Copying::start(&place, &["--http-token-file", &path]);
    assert!(!copying.url.contains(TOKEN), "{}", copying.url);
    let address = &copying.address;
    for path in ["/", "/metrics", "/snapshot.json", "/events"] {
        let (head, text) = get(address, path);
        assert!(
            status(&head) == "401" && !text.contains("source"),
            "{head}\n{text}"
        );
    }
    assert_eq!(get(address, "/healthz").1, "ok\n");
    let (head, _) = get(address, &format!("/?token={TOKEN}"));
    assert!(status(&head) == "303" && head.contains("Location: /"), "{head}");
    let cookie = head
        .lines()
        .find_map(|line| line.strip_prefix("Set-Cookie: "))
        .unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap();
    let (head, html) = ask(address, "GET /", &format!("Cookie: {cookie}\r\n"), "");
    assert!(status(&head) == "200" && html.contains("name=\"do\""), "{head}");
    // Another website does not get the name of this machine.
    let (head, _) = ask(address, "GET /healthz", "Origin: http://evil.example\r\n", "");
    assert_eq!(status(&head), "200", "it says nothing");
    let foreign = format!("Cookie: {cookie}\r\nOrigin: http://evil.example\r\n");
    assert_eq!(status(&ask(address, "GET /events", &foreign, "").0), "403");
    copying.running.signal(Signal::INT);
    copying.running.wait().assert_code(&[130]);
}

/// Each metric that a panel of the dashboard asks for is printed by a process that has it.
#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/ropeway.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(folder).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(queries.len() > 10, "{queries:?}");
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for query in &queries {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        wanted.extend(
            words
                .filter(|word| word.starts_with("ropeway_") || word.starts_with("process_"))
                .map(str::to_owned),
        );
    }
    let mut printed = String::new();
    let place = Place::new();
    big_source(&place);
    let copying = Copying::start(&place, &[]);
    assert!(wait_until(PATIENCE, || {
        let metrics = get(&copying.address, "/metrics").1;
        let has_jobs = metrics.contains("ropeway_job_left_seconds");
        printed = metrics;
        has_jobs
    }));
    drop(copying);
    let served = Served::start(&["--http", "0"]);
    let address = host(&served.page());
    served.run("ls").arg(served.url("")).ok();
    printed += &get(&address, "/metrics").1;
    served.stop();
    let mut missing: BTreeSet<&String> = wanted.iter().collect();
    let has = |name: &str| {
        printed
            .lines()
            .any(|line| line.split(['{', ' ']).next() == Some(name))
    };
    missing.retain(|name| !has(name));
    let others: Vec<_> = missing
        .iter()
        .filter(|name| !name.starts_with("ropeway_mount_") && !name.starts_with("ropeway_boost_"))
        .collect();
    assert!(others.is_empty(), "{others:?}\n{printed}");
    // Mounts and caches need FUSE.
    or_skip!(can_mount());
    let place = Place::new();
    let made = place.ropeway("boost").args(["create", "cache", "--size", "128M"]);
    made.ok();
    let mounted = or_skip!(Mounted::of(place, &["--http", "0", "--boost", "cache"]));
    fs::write(mounted.at("file"), "x").unwrap();
    fs::read(mounted.at("file")).unwrap();
    printed += &get(&page_of(&mounted), "/metrics").1;
    let missing: Vec<_> = wanted
        .iter()
        .filter(|name| {
            !printed
                .lines()
                .any(|line| line.split(['{', ' ']).next() == Some(name.as_str()))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}\n{printed}");
}

#[test]
fn a_mount_has_a_page_without_a_cache() {
    let mut mounted = or_skip!(Mounted::new(&["--http", "0"]));
    fs::write(mounted.at("file"), vec![1; 1 << 20]).unwrap();
    let address = page_of(&mounted);
    let (head, html) = get(&address, "/");
    assert!(status(&head) == "200" && html.contains("/mnt"), "{html}");
    assert!(
        get(&address, "/metrics")
            .1
            .contains("\nropeway_mount_requests_total ")
    );
    mounted.unmount();
}
