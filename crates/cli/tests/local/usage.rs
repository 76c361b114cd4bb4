//! Wrong usage: one clear line, a hint, the right code, nothing changed. Configuration, environment
//! and help.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::{
    self, Finished, Place, Run, Snapshot, mixed, one_line_and_a_hint, or_skip, same, snapshot, text,
};

/// Makes `tree` (a folder), `file`, `other` (an empty folder), and `holds/file` (a folder with the
/// file's name).
fn ground() -> Place {
    let place = Place::new();
    mixed(&place.join("tree"));
    text(&place.join("file"), "content");
    place.folder("other");
    place.folder("holds/file");
    symlink("tree", place.join("link")).unwrap();
    place
}

/// Takes a snapshot of the place without the program's own output, sockets and temporary files.
fn all(place: &Place) -> Snapshot {
    let mut nodes = snapshot(place.path());
    let is_own = |path: &std::path::Path| [".out", ".run", ".tmp"].iter().any(|own| path.starts_with(own));
    nodes.retain(|path, _| !is_own(path) && !path.as_os_str().is_empty());
    nodes
}

/// Asserts one short line with the error, one that begins with `hint:`, and no more.
#[track_caller]
fn one_short_line_and_a_hint(finished: &Finished) {
    one_line_and_a_hint(finished);
    let line = finished.err.lines().find(|line| !line.trim().is_empty()).unwrap();
    assert!(line.len() < 300 && !line.contains("Os {"), "{finished}");
}

#[track_caller]
fn refused(place: &Place, code: i32, arguments: &[&str]) -> Finished {
    let before = all(place);
    let finished = place.ropeway(arguments[0]).args(&arguments[1..]).exits(code);
    assert_eq!(all(place), before, "something was changed: {finished}");
    one_short_line_and_a_hint(&finished);
    finished
}

#[test]
fn invalid_ends_are_refused() {
    let place = ground();
    refused(&place, 3, &["copy", "missing", "other"]);
    refused(&place, 3, &["copy", "tree", "missing", "other"]);
    refused(&place, 3, &["copy", "file/below a file", "other"]);
    refused(&place, 1, &["copy", "tree", "tree/inside"]);
    refused(&place, 1, &["copy", "tree", "tree"]);
    refused(&place, 1, &["copy", "tree", "tree/deep"]);
    refused(&place, 1, &["copy", "tree", "link/through a link"]);
    refused(&place, 1, &["copy", "-T", "tree", "link"]);
    refused(&place, 1, &["copy", "file", "file"]);
    refused(&place, 1, &["copy", "file", "./other/../file"]);
    refused(&place, 1, &["copy", "file", "."]);
    refused(&place, 1, &["copy", "tree", "file"]);
    refused(&place, 1, &["copy", "tree", "file/below"]);
    refused(&place, 1, &["copy", "file", "holds"]);
    refused(&place, 1, &["copy", "-T", "file", "other"]);
    refused(&place, 1, &["copy", "file", "tree", "missing"]);
    refused(&place, 4, &["copy", "file", "missing/folder/x"]);
    refused(&place, 1, &["copy", "", "other"]);
    refused(&place, 1, &["copy", "file", ""]);
}

#[test]
fn invalid_mirrors_and_checks_are_refused() {
    let place = ground();
    refused(&place, 3, &["mirror", "missing", "other"]);
    refused(&place, 1, &["mirror", "file", "other"]);
    refused(&place, 1, &["mirror", "tree", "file"]);
    refused(&place, 1, &["mirror", "--yes", "tree/deep", "tree"]);
    refused(&place, 1, &["mirror", "--yes", "tree", "tree/deep"]);
    refused(&place, 3, &["check", "missing", "other"]);
    refused(&place, 3, &["check", "tree", "missing"]).mentions("cannot read the target missing");
    refused(&place, 1, &["check", "tree"]);
    refused(&place, 1, &["check"]);
    refused(&place, 1, &["check", "tree", "file"]);
    let finished = place
        .ropeway("check")
        .args(["--manifest", "missing", "tree"])
        .run();
    finished.assert_code(&[1, 3]);
    text(&place.join("no manifest"), "this is\nno manifest\n");
    let finished = place
        .ropeway("check")
        .args(["--manifest", "no manifest", "tree"])
        .run();
    finished.assert_code(&[1, 3]);
    finished.mentions("hint:");
    let finished = place.ropeway("trace").arg("file").run();
    finished.assert_code(&[1, 3]);
}

#[test]
fn places_on_other_machines_are_never_local_files() {
    let place = ground();
    for (target, instead) in [
        ("nas:backup", "smb://user@nas/SHARE/backup"),
        ("ann@nas:/x", "smb://ann@nas/SHARE/x"),
        (r"C:\x", "smb://user@server/share/path"),
        (r"smb:\\nas\x", "smb://nas/x"),
        ("s3://bucket/x", "rclone mount"),
        ("sftp://nas/x", "sshfs"),
        ("/MIR", "ropeway mirror"),
        ("/R:3", "--retries"),
    ] {
        refused(&place, 1, &["copy", "file", target]).mentions(instead);
        refused(&place, 1, &["mkdir", target]).mentions(instead);
    }
    // A UNC name is a share: nobody is named to log in.
    for share in [r"\\nas.invalid\photos\f1", "//nas.invalid/photos/f1"] {
        let failed = refused(&place, 1, &["copy", "file", share]);
        failed.mentions("smb://user@nas.invalid");
    }
    let nowhere = ["ls", "smb://nas.invalid/photos", "--anonymous"];
    refused(&place, 6, &nowhere).mentions("cannot find the server nas.invalid");
    // With a path before it, it is a local file.
    place.copy("file", "./nas:backup").ok();
    place.copy("nas:backup", "other").ok();
    assert_eq!(fs::read(place.join("other/nas:backup")).unwrap(), b"content");
    refused(&place, 1, &["copy", "file", "nas:backup"]).mentions("./nas:backup");
}

#[test]
fn habits_of_other_programs_are_answered() {
    let place = ground();
    for (arguments, instead) in [
        (&["copy", "--delete", "tree", "other"][..], "ropeway mirror"),
        (&["copy", "-a", "tree", "other"], "leave -a out"),
        (&["copy", "-rP", "tree", "other"], "leave -r out"),
        (&["mirror", "--progress", "tree", "other"], "leave --progress out"),
        (&["mirror", "--delete", "tree", "other"], "always deletes"),
        (&["sync", "tree", "other"], "ropeway mirror"),
        (&["diff", "tree", "other"], "ropeway check"),
        (&["compare", "tree", "other"], "ropeway check"),
        (&["copy", "--verfy", "tree", "other"], "--verify"),
        (&["mkdir", "a/b/c"], "-p creates"),
    ] {
        let code = if arguments[0] == "mkdir" { 4 } else { 1 };
        let failed = refused(&place, code, arguments);
        failed.mentions(instead);
        assert!(!failed.err.contains("dialect"), "{failed}");
        assert!(!failed.err.contains("--max-delete"), "{failed}");
    }
    refused(&place, 4, &["mkdir", "a/b/c"]).mentions("there is no folder a/b");
    let failed = place.ropeway("ls").env("ROPEWAY_VERIFI", "1").exits(1);
    failed.mentions("ROPEWAY_VERIFY");
}

#[test]
fn unknown_or_impossible_flags_exit_with_1() {
    let place = ground();
    for arguments in [
        &["copy"][..],
        &["copy", "file"],
        &["copy", "--no-such-flag", "file", "other"],
        &["copy", "--engine", "win7", "file", "other"],
        &["copy", "--durability", "maybe", "file", "other"],
        &["copy", "--bwlimit", "fast", "file", "other"],
        &["copy", "--retries", "-1", "file", "other"],
        &["copy", "--exclude", "[z-a]", "file", "other"],
        &["copy", "--fault", "source:boil", "file", "other"],
        &["copy", "--timeout", "0", "file", "other"],
        &["mirror", "--max-delete", "all", "tree", "other"],
        &["frobnicate"],
    ] {
        let before = all(&place);
        let finished = place.ropeway(arguments[0]).args(&arguments[1..]).exits(1);
        assert_eq!(all(&place), before, "{finished}");
        assert!(
            !finished.err.trim().is_empty() && finished.out.is_empty(),
            "{finished}"
        );
    }
}

#[test]
fn with_json_the_last_line_is_an_error_object() {
    let place = ground();
    for (code, arguments) in [(3, ["missing", "other"]), (1, ["tree", "tree/inside"])] {
        let finished = place.ropeway("copy").arg("--json").args(arguments).exits(code);
        let last = finished.json().pop().unwrap_or_else(|| panic!("{finished}"));
        assert_eq!(last["type"], "error", "{finished}");
        assert!(
            last["message"].as_str().is_some_and(|text| !text.is_empty()),
            "{last}"
        );
        assert!(
            last["hint"].as_str().is_some_and(|text| !text.is_empty()),
            "{last}"
        );
    }
}

#[track_caller]
fn as_nobody(place: &Place, code: i32, arguments: &[&str]) -> Result<(), String> {
    let before = all(place);
    let finished = place.ropeway_as_nobody("copy")?.args(arguments).exits(code);
    assert_eq!(all(place), before, "{finished}");
    one_short_line_and_a_hint(&finished);
    Ok(())
}

#[test]
fn missing_permissions_exit_with_5() {
    let place = ground();
    let close =
        |name: &str| fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o700)).unwrap();
    place.folder("closed");
    text(&place.join("closed/file"), "secret");
    close("closed");
    text(&place.join("secret"), "secret");
    fs::set_permissions(place.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    place.folder_of_nobody("home");
    or_skip!(as_nobody(&place, 5, &["closed", "home"]));
    or_skip!(as_nobody(&place, 5, &["closed/file", "home"]));
    or_skip!(as_nobody(&place, 5, &["secret", "home"]));
    or_skip!(as_nobody(&place, 5, &["tree", "other"]));
    or_skip!(as_nobody(&place, 5, &["tree", "new"]));
    or_skip!(as_nobody(&place, 5, &["tree", "closed/new"]));
}

#[test]
fn a_read_only_target() {
    let volume = or_skip!(support::Volume::tmpfs(8));
    let place = ground();
    or_skip!(support::tool(
        "mount",
        &["-o".as_ref(), "remount,ro".as_ref(), volume.root().as_os_str()]
    ));
    let target = volume.join("new");
    let finished = place.ropeway("copy").arg("tree").arg(&target).exits(4);
    one_short_line_and_a_hint(&finished);
}

#[test]
fn an_invalid_configuration_is_refused() {
    let place = ground();
    let config = place.config_file();
    for (content, part) in [
        ("verify = yes", "config.toml:1"),
        ("\n\nno-such-flag = 1\n", "config.toml:3"),
        ("[no-such-command]\nverify = true\n", "no-such-command"),
        ("engine = \"win7\"", "win7"),
        ("retries = \"many\"", "retries"),
        ("verify = 7", "verify"),
    ] {
        text(&config, content);
        let finished = refused(&place, 1, &["copy", "tree", "new"]);
        assert!(finished.mentions(part), "{content:?}: {finished}");
    }
    fs::write(&config, b"verify = \"\xff\"").unwrap();
    refused(&place, 1, &["copy", "tree", "new"]);
    fs::remove_file(&config).unwrap();
    fs::create_dir(&config).unwrap();
    refused(&place, 1, &["copy", "tree", "new"]);
}

#[test]
fn an_unreadable_configuration_is_refused() {
    let place = ground();
    text(&place.config_file(), "verify = true");
    fs::set_permissions(place.config_file(), fs::Permissions::from_mode(0o600)).unwrap();
    place.folder_of_nobody("home");
    or_skip!(as_nobody(&place, 1, &["tree", "home"]));
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let place = ground();
    let excludes = |run: Run| {
        let target = place.join("out");
        if target.exists() {
            fs::remove_dir_all(&target).unwrap();
        }
        run.arg("tree").arg(&target).ok();
        ["empty", "one byte", "link"]
            .map(|name| !target.join(name).exists() && !target.join(name).is_symlink())
    };
    assert_eq!(excludes(place.ropeway("copy")), [false; 3]);
    text(
        &place.config_file(),
        "exclude = [\"/empty\"]\n[mirror]\nexclude = [\"/link\"]\n",
    );
    assert_eq!(excludes(place.ropeway("copy")), [true, false, false]);
    assert_eq!(
        excludes(place.ropeway("mirror")),
        [false, false, true],
        "a command's table overrides the top level"
    );
    assert_eq!(
        excludes(place.ropeway("copy").env("ROPEWAY_EXCLUDE", "/one byte")),
        [false, true, false]
    );
    let both = place
        .ropeway("copy")
        .env("ROPEWAY_EXCLUDE", "/one byte")
        .args(["--exclude", "/link"]);
    assert_eq!(excludes(both), [false, false, true]);
    text(&place.config_file(), "dry-run = true\n");
    place.ropeway("copy").args(["tree", "dry"]).ok();
    assert!(!place.join("dry").exists());
    place
        .ropeway("copy")
        .args(["tree", "dry"])
        .env("ROPEWAY_DRY_RUN", "false")
        .ok();
    assert!(place.join("dry").exists());
    let finished = place
        .ropeway("copy")
        .args(["tree", "more"])
        .env("ROPEWAY_ENGINE", "win7")
        .exits(1);
    assert!(finished.mentions("ROPEWAY_ENGINE"), "{finished}");
}

#[test]
fn help_short_and_long() {
    let place = Place::new();
    for command in ["copy", "mirror", "check", "trace", "demo"] {
        let short = place.ropeway(command).arg("-h").ok();
        let long = place.ropeway(command).arg("--help").ok();
        assert!(short.err.is_empty() && long.err.is_empty());
        assert!(
            short.out.contains("Usage:") && long.out.len() > short.out.len(),
            "{command}"
        );
    }
    for flag in ["--help", "-h", "--version", "-V"] {
        let finished = place.ropeway(flag).ok();
        assert!(finished.out.contains("ropeway"));
    }
    let finished = place.ropeway("copy").arg("-h").ok();
    for flag in [
        "--durability",
        "--verify",
        "--engine",
        "--trace",
        "--cache",
        "--bwlimit",
        "--watch",
        "--json",
    ] {
        let lines = finished
            .out
            .lines()
            .filter(|line| line.trim_start().starts_with('-') && line.contains(flag))
            .count();
        assert_eq!(lines, 1, "{flag} has one line");
    }
}

#[test]
fn a_closed_standard_output_is_no_panic() {
    let place = ground();
    let binary = env!("CARGO_BIN_EXE_ropeway");
    let script = format!(
        "'{binary}' copy --json -v tree out | head -c 1 >/dev/null; '{binary}' copy --help | head -c 1 >/dev/null"
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(place.path())
        .env("XDG_STATE_HOME", place.join(".state"))
        .env("XDG_CONFIG_HOME", place.join(".config"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn flags_stand_anywhere_among_the_paths() {
    let place = Place::new();
    place.folder("a");
    text(&place.join("a/file"), "x");
    for words in [["-T", "a", "one"], ["a", "-T", "two"], ["a", "three", "-T"]] {
        place.ropeway("copy").args(words).ok();
    }
    for target in ["one", "two", "three"] {
        same(&place.join("a"), &place.join(target));
    }
    place.ropeway("copy").args(["a"]).run().assert_code(&[1]);
}
