//! Whole trees copied to shares and back: very many files, odd names, attributes, DFS, snapshots.

use std::fs;
use std::path::Path;

use crate::support::{
    self, Compare, Ground, Place, content_same, no_temporaries, odd_names, one_line_and_a_hint, set_times,
    small_files, text, tool, walk,
};
use ropeway_peers::{Share, or_skip};

/// Names, contents, owners, modes, times and xattrs; a share keeps no hard links.
const ATTRIBUTES: Compare = Compare {
    hard_links: false,
    ..Compare::ALL
};

/// Removes the DOS attributes and creation times that a copy from a share stores (`user.DOSATTRIB`). The source of
/// the first copy, a local folder, has none.
fn without_dos_attributes(root: &Path) {
    let nodes = walk(root);
    let removed = nodes
        .iter()
        .filter(|path| rustix::fs::lremovexattr(path.as_path(), "user.DOSATTRIB").is_ok());
    assert!(removed.count() > 0, "a copy from a share keeps DOS attributes");
    _ = rustix::fs::lremovexattr(root, "user.DOSATTRIB");
}

/// Removes symbolic links, which Samba 4.17 does not accept from SMB clients.
fn without_links(root: &Path) {
    for path in walk(root) {
        if path.is_symlink() {
            fs::remove_file(path).unwrap();
        }
    }
}

/// Gives every node a different time in SMB's unit of 100 ns. The deepest come first, because a
/// folder's time changes with its contents.
fn times_of_their_own(root: &Path) {
    let mut nodes = walk(root);
    nodes.push(root.to_owned());
    nodes.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for (number, path) in (0_u32..).zip(nodes) {
        set_times(
            &path,
            1_000_000_000 + u64::from(number) * 61,
            number % 10_000_000 * 100,
        );
    }
}

#[test]
fn twenty_thousand_files_go_both_ways() {
    let ground = or_skip!(Ground::at(Place::in_memory(), |place, builder| {
        builder.share(Share::new("data", &place.folder("data")))
    }));
    let source = ground.place.join("tree");
    let bytes = small_files(&source, 20_000, 3);
    let url = ground.url("data/tree");
    let up = ground.copy("tree", &url).ok();
    assert_eq!((up.number("files"), up.number("bytes")), (20_000, bytes), "{up}");
    content_same(&source, &ground.behind("data/tree"));
    ground.run("check").args(["tree", &url]).ok();
    ground.run("check").args(["--checksum", &url, "tree"]).ok();
    let again = ground.copy("tree", &url).arg("-T").ok();
    assert_eq!(again.number("bytes_sent"), 0, "{again}");
    let down = ground.copy(&url, "back").ok();
    assert_eq!(
        (down.number("files"), down.number("bytes")),
        (20_000, bytes),
        "{down}"
    );
    content_same(&ground.behind("data/tree"), &ground.place.join("back"));
    ground.run("check").args([&url, "back"]).ok();
    // A mirror finds and repairs a difference, and deletes extra files.
    text(&ground.behind("data/tree/d100/f10000"), "another");
    text(&ground.behind("data/tree/d100/extra"), "extra");
    let check = ground.run("check").args(["--json", "tree", &url]).exits(7);
    // The folder's own time is the third.
    assert_eq!(check.number("differences"), 3, "{check}");
    let mirror = ground.run("mirror").args(["--json", "--yes", "tree", &url]).ok();
    assert_eq!(
        (mirror.number("deleted"), mirror.number("files")),
        (1, 20_000),
        "{mirror}"
    );
    content_same(&source, &ground.behind("data/tree"));
    ground.run("rm").args(["-ry", &url]).ok();
    assert!(!ground.behind("data/tree").exists());
}

#[test]
fn odd_names_go_both_ways() {
    let ground = or_skip!(Ground::sharing(|share| share));
    let source = ground.place.join("tree");
    odd_names(&source);
    without_links(&source);
    // Servers do not report reliably whether they are case-sensitive, so ropeway ignores the
    // report: a separate test.
    for twin in ["case", "CASE"] {
        fs::remove_file(source.join(twin)).unwrap();
        fs::remove_dir_all(source.join("folders").join(twin)).unwrap();
    }
    times_of_their_own(&source);
    let url = ground.url("data/tree");
    let up = ground.copy("tree", &url).arg("--verify").ok();
    assert_eq!(up.number("errors"), 0, "{up}");
    no_temporaries(&ground.behind("data"));
    // As many nodes behind the share, with the same contents and times, whatever their names are
    // there.
    let there = walk(&ground.behind("data/tree"));
    assert_eq!(there.len(), walk(&source).len());
    ground.run("check").args(["--checksum", "tree", &url]).ok();
    let again = ground.copy("tree", &url).arg("-T").ok();
    assert_eq!(again.number("bytes_sent"), 0, "{again}");
    let down = ground.copy(&url, "back").ok();
    assert_eq!(down.number("errors"), 0, "{down}");
    without_dos_attributes(&ground.place.join("back"));
    ATTRIBUTES.check(&source, &ground.place.join("back"));
    // Inside the server too, where all names are its own.
    ground.copy(&url, &ground.url("data/inside")).ok();
    ATTRIBUTES.check(&ground.behind("data/tree"), &ground.behind("data/inside"));
}

#[test]
fn names_that_differ_only_in_case_are_reported() {
    let ground = or_skip!(Ground::start());
    let source = ground.place.folder("tree");
    for name in ["Case", "case", "other", "Folder", "folder"] {
        match name.to_lowercase() == "folder" {
            true => drop(ground.place.folder(&format!("tree/{name}/in"))),
            false => text(&source.join(name), name),
        }
    }
    let finished = ground.copy("tree", &ground.url("data/tree")).run();
    finished.assert_code(&[2]);
    let told = finished.of_type("item_error");
    assert!(
        told.iter()
            .any(|line| line["path"].as_str().is_some_and(|path| path.ends_with("ase")))
    );
    // The first one is complete; neither is mixed with the other.
    let kept = ["Case", "case"].map(|name| fs::read_to_string(ground.behind("data/tree").join(name)).ok());
    assert!(
        matches!(&kept, [Some(one), None] if one == "Case")
            || matches!(&kept, [None, Some(one)] if one == "case"),
        "{kept:?}"
    );
    assert!(ground.behind("data/tree/other").is_file());
}

#[test]
fn attributes_go_from_share_to_share() {
    let ground = or_skip!(Ground::with(|place, builder| {
        let share = |name: &str| Share::new(name, &place.folder(name)).streams();
        builder.share(share("data")).share(share("more"))
    }));
    let source = ground.place.join("tree");
    small_files(&source, 30, 8);
    times_of_their_own(&source);
    ground.copy("tree", &ground.url("data/tree")).ok();
    let commands = "cd tree; setmode d000/f00001 +h; setmode d000/f00002 +rs; setmode d000 +h; setmode d000/f00003 +a; \
                    utimes d000/f00004 2001:02:03-04:05:06 -1 2002:02:03-04:05:06 -1; \
                    put stream d000/f00005:stream";
    text(&ground.place.join("stream"), "in a stream");
    let output = ground
        .smbd
        .smbclient("data")
        .unwrap()
        .current_dir(ground.place.path())
        .args(["-c", commands])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    // Its change time is Linux's, in nanoseconds.
    set_times(&ground.behind("data/tree/d000/f00005"), 1_500_000_000, 700);
    let finished = ground
        .copy(&ground.url("data/tree"), &ground.url("more/tree"))
        .ok();
    assert_eq!(finished.summary()["losses"], serde_json::json!({}), "{finished}");
    // Byte for byte in the server's xattrs: DOS attributes, creation times and streams.
    let dump = tool(
        "getfattr",
        &[
            "-d",
            "-m",
            "-",
            ground.behind("data/tree/d000/f00001").to_str().unwrap(),
        ],
    );
    if let Ok(dump) = dump {
        assert!(dump.contains("user.DOSATTRIB"), "{dump}");
    }
    ATTRIBUTES.check(&ground.behind("data/tree"), &ground.behind("more/tree"));
    ground
        .run("check")
        .args([ground.url("data/tree"), ground.url("more/tree")])
        .ok();
}

#[test]
fn dfs_leads_to_another_share() {
    let ground = or_skip!(Ground::with(|place, builder| {
        builder
            .share(Share::new("root", &place.folder("root")).dfs_root())
            .share(Share::new("near", &place.folder("near")))
            .share(Share::new("proxy", &place.folder("proxy")).dfs_proxy("\\127.0.0.1\\near"))
    }));
    ground.smbd.dfs_link("root", "link", "127.0.0.1\\near").unwrap();
    let source = ground.place.join("tree");
    small_files(&source, 120, 4);
    support::patterned(&source.join("large"), 5 << 20);
    fs::hard_link(source.join("large"), source.join("d001/its other name")).unwrap();
    for share in ["root/link", "proxy"] {
        let url = |path: &str| ground.url(&format!("{share}/{path}"));
        ground.copy("tree", &url("tree")).arg("--verify").ok();
        content_same(&source, &ground.behind("near/tree"));
        assert_eq!(ground.run("ls").arg(url("tree")).ok().out, "d000\nd001\nlarge\n");
        ground
            .run("check")
            .args(["--checksum", "tree", &url("tree")])
            .ok();
        let back = format!("back {}", share.len());
        ground.copy(&url("tree"), &back).ok();
        content_same(&source, &ground.place.join(&back));
        ground.run("mkdir").args(["-p", &url("a/b")]).ok();
        ground
            .run("mv")
            .args([&url("tree/large"), &url("a/b/named")])
            .ok();
        assert!(ground.behind("near/a/b/named").is_file());
        assert!(ground.run("stat").arg(url("a/b/named")).ok().mentions("5.0 MiB"));
        ground.run("mirror").args(["--yes", "tree", &url("tree")]).ok();
        content_same(&source, &ground.behind("near/tree"));
        ground.run("rm").args(["-ry", &url("tree"), &url("a")]).ok();
        assert_eq!(fs::read_dir(ground.behind("near")).unwrap().count(), 0);
    }
    assert_eq!(ground.run("ls").arg(ground.url("root")).ok().out, "link\n");
    ground.run("ls").arg(ground.url("nowhere")).exits(3);
    // A DFS link without a target is an error for that path, with a readable message.
    ground
        .smbd
        .dfs_link("root", "astray", "127.0.0.1\\nowhere")
        .unwrap();
    let finished = ground.run("ls").arg(ground.url("root/astray")).exits(3);
    one_line_and_a_hint(&finished);
}

#[test]
fn a_snapshot_is_read_and_restored_from() {
    const THEN: &str = "@GMT-2026.01.01-00.00.00";
    let ground = or_skip!(Ground::sharing(Share::snapshots));
    let (now, then) = (ground.behind("data"), ground.behind("data/.snapshots").join(THEN));
    small_files(&then.join("dir"), 30, 1);
    text(&then.join("dir/file"), "as it was");
    small_files(&now.join("dir"), 20, 2);
    text(&now.join("dir/file"), "as it is now");
    text(&now.join("dir/new"), "new");
    for dialect in ["2.1", "3.1.1"] {
        let run = |command: &str| ground.run(command).args(["--dialect", dialect]);
        for path in [format!("{THEN}/dir"), format!("dir/{THEN}")] {
            let url = ground.url(&format!("data/{path}"));
            assert_eq!(run("ls").arg(&url).ok().out, "d000\nfile\n");
            assert!(run("stat").arg(format!("{url}/file")).ok().mentions("9 B"));
            let copied = format!("copied {dialect} {}", path.len());
            run("copy").args(["-T", &url, &copied]).ok();
            content_same(&then.join("dir"), &ground.place.join(&copied));
            run("check").args(["--checksum", &url, &copied]).ok();
        }
    }
    // Snapshots are read-only.
    let there = |path: &str| ground.url(&format!("data/{THEN}/{path}"));
    text(&ground.place.join("local"), "local");
    for arguments in [
        vec!["copy".to_owned(), "local".to_owned(), there("dir/")],
        vec!["mirror".to_owned(), "copied 2.1".to_owned(), there("dir")],
        vec!["mkdir".to_owned(), there("made")],
        vec!["mv".to_owned(), there("dir/file"), there("dir/named")],
        vec!["rm".to_owned(), there("dir/file")],
    ] {
        let finished = ground.run(&arguments[0]).args(&arguments[1..]).exits(4);
        one_line_and_a_hint(&finished);
    }
    // An old version is restored from the snapshot, on the server itself.
    let restored = ground.copy(&there("dir/file"), &ground.url("data/dir/")).ok();
    assert_eq!(restored.number("files"), 1);
    assert_eq!(fs::read_to_string(now.join("dir/file")).unwrap(), "as it was");
    ground
        .run("mirror")
        .args(["--yes", &there("dir"), &ground.url("data/dir")])
        .ok();
    content_same(&then.join("dir"), &now.join("dir"));
    // A time without a snapshot.
    let url = ground.url("data/@GMT-2020.01.01-00.00.00/dir");
    one_line_and_a_hint(&ground.run("ls").arg(url).exits(3));
}

/// A listing of a server does not tell how many names a file has, so the copy asks.
#[test]
fn in_place_spares_the_other_names_of_a_file_on_a_share() {
    let ground = or_skip!(Ground::start());
    ground.place.folder("tree");
    fs::create_dir_all(ground.behind("data/tree")).unwrap();
    text(&ground.place.join("tree/f"), "new content");
    text(&ground.behind("data/tree/f"), "old");
    fs::hard_link(ground.behind("data/tree/f"), ground.behind("data/snapshot")).unwrap();
    ground.copied(&["--inplace"], "tree", &ground.url("data/tree"));
    assert_eq!(fs::read(ground.behind("data/snapshot")).unwrap(), b"old");
    assert_eq!(fs::read(ground.behind("data/tree/f")).unwrap(), b"new content");
}
