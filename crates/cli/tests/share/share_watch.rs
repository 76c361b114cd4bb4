//! `--watch` with a share at one end: local changes are copied to it, and changes that the server
//! reports are copied here.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::support::{self, Ground, Watching, content_same, mixed, no_temporaries, text};
use ropeway_peers::or_skip;
use rustix::process::Signal;

/// Changes the watched side, a local folder or a share that another client writes to. (Samba does
/// not notice changes behind its back below the top folder.)
struct Changer<'a> {
    ground: &'a Ground,
    /// Path or URL of the tree.
    root: String,
}

impl Changer<'_> {
    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    fn run(&self, command: &str, arguments: &[&str]) {
        self.ground.run(command).args(arguments).ok();
    }

    fn write(&self, path: &str, content: &str) {
        text(&self.ground.place.join("written"), content);
        self.run("copy", &["-q", "-T", "written", &self.at(path)]);
    }
}

/// Checks that changes are copied, in either direction.
fn follow(change: &Changer<'_>, target: &Path, watching: &Watching) {
    let has = |path: &str, content: &str| support::holds(&target.join(path), content);
    change.write("new", "new");
    watching.follows("a new file", || has("new", "new"));
    change.write("new", "changed now");
    watching.follows("a change", || has("new", "changed now"));
    change.run("mkdir", &["-p", &change.at("x/y/z")]);
    change.write("x/y/z/leaf", "leaf");
    watching.follows("a new folder", || has("x/y/z/leaf", "leaf"));
    change.write("x/y/z/later", "later");
    watching.follows("a file in a new folder", || has("x/y/z/later", "later"));
    change.run("mv", &[&change.at("x"), &change.at("renamed")]);
    change.write("renamed/y/z/after", "after");
    watching.follows("a renamed folder", || {
        has("renamed/y/z/after", "after") && !target.join("x").exists()
    });
    change.run("rm", &[&change.at("new")]);
    watching.follows("a removal", || !target.join("new").exists());
    change.run("rm", &["-ry", &change.at("deep")]);
    watching.follows("the removal of a folder", || !target.join("deep").exists());
}

/// Makes a tree without links, which Samba does not accept.
fn tree(root: &Path) {
    mixed(root);
    for link in ["link", "dangling"] {
        fs::remove_file(root.join(link)).unwrap();
    }
}

#[test]
fn local_changes_are_copied_to_a_share() {
    let ground = or_skip!(Ground::start());
    let (source, target) = (ground.place.join("tree"), ground.behind("data/tree"));
    tree(&source);
    let url = ground.url("data/tree");
    let run = ground.run("mirror").args(["--yes", "tree", &url]);
    let watching = Watching::start(run);
    let root = source.display().to_string();
    let ground = &ground;
    follow(&Changer { ground, root }, &target, &watching);
    watching.end(Signal::TERM).assert_code(&[0, 130, 143]);
    content_same(&source, &target);
    no_temporaries(&ground.behind("data"));
}

#[test]
fn changes_on_a_share_are_copied_here() {
    let ground = or_skip!(Ground::start());
    let (source, target) = (ground.behind("data/tree"), ground.place.join("tree"));
    tree(&source);
    let url = ground.url("data/tree");
    let run = ground.run("mirror").args(["--yes", &url, "tree"]);
    let watching = Watching::start(run);
    let (ground, root) = (&ground, url.clone());
    follow(&Changer { ground, root }, &target, &watching);
    watching.end(Signal::INT).assert_code(&[0, 130]);
    content_same(&source, &target);
}

#[test]
fn a_watch_survives_a_restart_of_the_server() {
    let mut ground = or_skip!(Ground::start());
    let (source, target) = (ground.behind("data/tree"), ground.place.join("tree"));
    tree(&source);
    let url = ground.url("data/tree");
    let run = ground
        .run("mirror")
        .args(["--yes", "--timeout", "3s", &url, "tree"]);
    let watching = Watching::start(run);
    // A server without changes to report must not count as lost.
    thread::sleep(Duration::from_secs(4));
    text(&source.join("before"), "before");
    watching.follows("a change after a rest", || {
        support::holds(&target.join("before"), "before")
    });
    ground.smbd.kill();
    // No event reports this change: it is found when the server is back.
    text(&source.join("meanwhile"), "meanwhile");
    ground.smbd.restart().unwrap();
    watching.follows("what changed meanwhile", || {
        support::holds(&target.join("meanwhile"), "meanwhile")
    });
    text(&source.join("after"), "after");
    watching.follows("a change after it", || {
        support::holds(&target.join("after"), "after")
    });
    watching.end(Signal::TERM).assert_code(&[0, 130, 143]);
    content_same(&source, &target);
}
