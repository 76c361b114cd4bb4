//! `docs/output.schema.json` describes what the program really prints.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::says::validator::Validator;
use crate::support::{Finished, Place, file, or_skip, small_files, text};

const MIB: u64 = 1 << 20;

/// Returns the schema, in which fields that it does not name are wrong.
fn strict() -> Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/output.schema.json");
    let mut schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    for (_, line) in schema["$defs"].as_object_mut().unwrap() {
        line["additionalProperties"] = json!(false);
    }
    Validator(schema)
}

#[track_caller]
fn fits(schema: &Validator, finished: &Finished) {
    let lines = finished.json();
    assert!(!lines.is_empty(), "{finished}");
    for line in lines {
        let wrong = schema.errors(&line);
        assert!(wrong.is_empty(), "{line}: {wrong:?}");
    }
}

fn kinds(finished: &Finished) -> Vec<String> {
    let lines = finished.json();
    lines
        .iter()
        .map(|line| line["type"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn copies_checks_and_mirrors_fit_the_schema() {
    let schema = strict();
    let place = Place::new();
    small_files(&place.join("source"), 20, 1);
    let json =
        |command: &str, arguments: &[&str]| place.ropeway(command).args(["--json", "-v"]).args(arguments);
    let copied = json("copy", &["--verify", "source", "target"]).ok();
    fits(&schema, &copied);
    assert_eq!(copied.json()[0]["type"], "start", "{copied}");
    assert_eq!(copied.summary()["version"], copied.json()[0]["version"]);
    assert_eq!(copied.summary()["job"], copied.json()[0]["job"]);
    fits(&schema, &json("copy", &["-n", "source", "target"]).ok());
    fits(&schema, &json("copy", &["missing", "target"]).exits(3));
    text(&place.join("target/extra"), "x");
    text(&place.join("source/missing"), "x");
    text(&place.join("target/d000/wrong"), "x");
    fits(
        &schema,
        &json("check", &["--checksum", "source", "target"]).exits(7),
    );
    fits(&schema, &json("mirror", &["--yes", "source", "target"]).ok());
    // Counts agree between commands.
    let (copied, checked) = (
        json("copy", &["-T", "source", "target"]).ok(),
        json("check", &["source", "target"]).ok(),
    );
    for name in ["files", "directories"] {
        assert_eq!(copied.number(name), checked.number(name), "{copied}{checked}");
    }
    assert_eq!(
        (copied.number("files"), copied.number("directories")),
        (21, 2),
        "{copied}"
    );
}

#[test]
fn errors_name_both_ends() {
    let schema = strict();
    let place = Place::new();
    place.folder_of_nobody("home");
    fs::create_dir_all(place.join("photos/2026")).unwrap();
    text(&place.join("photos/2026/IMG_0007.jpg"), "secret");
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(place.join("photos/2026/IMG_0007.jpg"), closed).unwrap();
    let run = or_skip!(place.ropeway_as_nobody("copy"));
    let failed = run.args(["--json", "photos", "home"]).exits(5);
    fits(&schema, &failed);
    let error = &failed.of_type("item_error")[0];
    let (source, target) = (
        place.join("photos/2026/IMG_0007.jpg"),
        place.join("home/photos/2026/IMG_0007.jpg"),
    );
    assert_eq!(error["source"], source.display().to_string(), "{error}");
    assert_eq!(error["target"], target.display().to_string(), "{error}");
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("cannot open photos/2026/IMG_0007.jpg"), "{error}");
}

#[test]
fn interrupted_jobs_servers_and_top_fit_the_schema() {
    let schema = strict();
    let place = Place::new();
    file(&place.join("big"), 32 * MIB, 1);
    let copy = place
        .ropeway("copy")
        .args(["--json", "--http", "0", "--bwlimit", "1M", "big", "target"]);
    let mut running = copy.start();
    running.reach("bytes_sent", 1);
    let seen = place.ropeway("top").args(["--once", "--json"]).ok();
    let array: Value = serde_json::from_str(&seen.out).unwrap();
    assert_eq!(schema.errors(&array), Vec::<String>::new());
    running.signal(Signal::INT);
    let interrupted = running.wait();
    interrupted.assert_code(&[130]);
    fits(&schema, &interrupted);
    assert!(
        kinds(&interrupted).contains(&"listening".to_owned()),
        "{interrupted}"
    );
    let listed = place.ropeway("jobs").arg("--json").ok();
    fits(&schema, &listed);
    assert_eq!(
        listed.of_type("job")[0]["id"],
        interrupted.summary()["job"],
        "{listed}"
    );
    let mut server = place
        .ropeway("serve")
        .args(["--json", "--anonymous", "--listen", "127.0.0.1:0", "."])
        .start();
    assert!(
        server.until(|server| server.stdout().contains("listening")),
        "{}",
        server.stderr()
    );
    server.signal(Signal::TERM);
    let stopped = server.wait();
    fits(&schema, &stopped);
    assert!(kinds(&stopped).contains(&"stopped".to_owned()), "{stopped}");
}
