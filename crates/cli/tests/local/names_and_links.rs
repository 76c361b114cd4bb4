//! Names that shares cannot hold, links, and names in manifests; with the real binary against a private smbd.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{self, Ground, Place, lost, text};
use ropeway_peers::or_skip;

#[test]
fn names_are_mapped_and_come_back() {
    let ground = or_skip!(Ground::with_shares(&["data"], |_, share| share));
    let source = ground.place.folder("source");
    let mapped: &[&[u8]] = &[
        b"a:b",
        b"what?",
        b"star*",
        b"back\\slash",
        b"pipe|",
        b"tab\t",
        b"end.",
        b"end ",
        b"CON",
        b"nul.txt",
        b"\xff raw",
        b"\xed\xa0\xbd lone surrogate",
        b"\xef\x80\xa2 private",
    ];
    let plain: &[&[u8]] = &[
        "é".as_bytes(),
        "e\u{301}".as_bytes(),
        "日本語 🚠".as_bytes(),
        b" leading",
        b"~1",
    ];
    for name in mapped.iter().chain(plain) {
        fs::write(source.join(support::name_bytes(name)), name).unwrap();
        let folder = [*name, b" dir."].concat();
        fs::create_dir(source.join(support::name_bytes(&folder))).unwrap();
        text(&source.join(support::name_bytes(&folder)).join("leaf"), "leaf");
    }
    let from = source.to_str().unwrap();
    let up = ground.copied(&[], from, &ground.url("data/tree"));
    let folders = mapped.len() + plain.len();
    // Bytes that are not text are kept: the client spells them on the wire, and our own server
    // accepts them. Folders also have a dot at the end.
    let kept = 1;
    assert_eq!(lost(&up, "name"), (mapped.len() - kept + folders) as u64, "{up}");
    let notes: Vec<_> = up
        .json()
        .into_iter()
        .filter(|line| line["type"] == "note")
        .collect();
    let twins = notes
        .iter()
        .filter(|note| note["message"].as_str().unwrap().contains("looks the same"));
    assert_eq!(twins.count(), 2, "a file and a folder: {up}");
    let again = ground.copied(&[], from, &ground.url("data/tree"));
    assert_eq!(again.number("bytes_sent"), 0, "{again}");
    let back = ground.place.join("back");
    ground.copied(&[], &ground.url("data/tree"), back.to_str().unwrap());
    support::content_same(&source, &back);
    ground.run("check").args([from, &ground.url("data/tree")]).ok();
    // Names that are one on the share: the second is reported, and the first stays unchanged.
    let twins = ground.place.folder("twins");
    text(&twins.join("Same"), "one");
    text(&twins.join("same"), "other");
    text(&twins.join("further"), "further");
    let finished = ground
        .run("copy")
        .args(["--json", "twins"])
        .arg(ground.url("data"))
        .exits(2);
    assert_eq!(
        (finished.number("errors"), finished.number("files")),
        (1, 2),
        "{finished}"
    );
    assert!(finished.mentions("differs only in case"), "{finished}");
    // They are refused on request.
    let run = ground.run("copy").args(["--json", "--names", "refuse", "-T"]);
    let refused = run.args([from, &ground.url("data/refused")]).exits(2);
    assert!(refused.number("errors") >= 2 * mapped.len() as u64, "{refused}");
}

#[test]
fn links_are_reported_and_a_server_follows_its_own() {
    let ground = or_skip!(Ground::with_shares(&["data"], |_, share| share));
    let source = ground.place.folder("source");
    text(&source.join("file"), "content");
    symlink("file", source.join("link")).unwrap();
    let run = ground
        .run("copy")
        .args(["--json", "-T", source.to_str().unwrap()]);
    let finished = run.arg(ground.url("data/up")).exits(2);
    assert_eq!(
        (finished.number("errors"), finished.number("files")),
        (1, 1),
        "{finished}"
    );
    let error = &finished.of_type("item_error")[0];
    assert_eq!(error["path"], "up/link", "{finished}");
    assert!(!ground.behind("data/up/link").exists() && ground.behind("data/up/file").exists());
    // Links that came into the share in other ways: Samba shows their targets, and hides links that
    // dangle or lead out of the share.
    let tree = ground.behind("data/tree");
    fs::create_dir_all(tree.join("folder")).unwrap();
    text(&tree.join("folder/leaf"), "leaf");
    text(&ground.place.join("outside"), "secret");
    for (name, to) in [
        ("to file", "folder/leaf"),
        ("to folder", "folder"),
        ("dangling", "nowhere"),
        ("out", "../../outside"),
    ] {
        symlink(to, tree.join(name)).unwrap();
    }
    let run = ground
        .run("copy")
        .args(["--json", "-T"])
        .arg(ground.url("data/tree"));
    let down = run.arg("down").ok();
    assert_eq!(down.number("files"), 3, "{down}");
    let here = |name: &str| ground.place.join("down").join(name);
    assert_eq!(fs::read(here("to file")).unwrap(), b"leaf");
    assert_eq!(fs::read(here("to folder/leaf")).unwrap(), b"leaf");
    assert!(fs::symlink_metadata(here("to file")).unwrap().is_file());
    assert!(!here("out").exists() && !here("dangling").exists(), "{down}");
}

#[test]
fn a_manifest_includes_odd_names_and_skipped_files() {
    let place = Place::new();
    support::odd_names(&place.join("source"));
    place.copy("source", "target").ok();
    place
        .copy("source", "target")
        .args(["-T", "--manifest", "hashes"])
        .ok();
    place
        .ropeway("check")
        .args(["--json", "--manifest", "hashes", "target"])
        .ok();
    fs::remove_file(place.join("target/Case")).unwrap();
    place
        .ropeway("check")
        .args(["--json", "--manifest", "hashes", "target"])
        .exits(7);
}

/// sha256sum reads our manifests, and we read what it writes, with odd names.
#[test]
fn other_programs_check_manifests() {
    let place = Place::new();
    support::odd_names(&place.join("source"));
    for hash in ["sha256", "xxh3"] {
        let copy = place
            .copy("source", "target")
            .args(["-T", "--verify", "--hash", hash]);
        copy.args(["--manifest", "hashes"]).ok();
        let check = place
            .ropeway("check")
            .args(["--manifest", "hashes", "--hash", hash, "target"]);
        check.ok();
    }
    place
        .copy("source", "target")
        .args(["-T", "--hash", "sha256", "--manifest", "target.sha256"])
        .ok();
    let shell = |text: &str| {
        support::tool(
            "sh",
            &["-c", text, "sh", &place.join("target").display().to_string()],
        )
    };
    let checked = shell("cd \"$1\" && sha256sum --strict --quiet -c ../target.sha256");
    assert!(checked.is_ok(), "{checked:?}");
    let written = shell("cd \"$1\" && find . -type f -exec sha256sum -b {} + > ../theirs.sha256");
    assert!(written.is_ok(), "{written:?}");
    let check = || {
        place
            .ropeway("check")
            .args(["--manifest", "theirs.sha256", "target"])
    };
    check().ok();
    fs::write(place.join("target/Case"), "another").unwrap();
    check().exits(7);
    let wrong = place
        .ropeway("check")
        .args(["--manifest", "hashes", "--hash", "sha256", "target"]);
    assert!(wrong.exits(1).mentions("64 hexadecimal digits for sha256"));
}
