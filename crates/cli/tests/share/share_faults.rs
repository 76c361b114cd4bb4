//! Failures at the server while a copy runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::support::{
    self, Finished, Ground, Run, Running, Volume, content_same, file, no_temporaries, one_line_and_a_hint,
    skip, snapshot, text,
};
use fastrand::Rng;
use ropeway_peers::{PeerError, Share, or_skip};

const MIB: u64 = 1 << 20;

/// Makes a tree whose copy takes a while at a limited rate: 8 files of 4 MiB, and 400 small ones.
fn tree(root: &Path) {
    fs::create_dir_all(root).unwrap();
    for number in 0..8 {
        file(&root.join(format!("large {number}")), 4 * MIB, number);
    }
    support::small_files(&root.join("small"), 400, 5);
}

/// A server, and the two ends of a copy of [`tree`] to it or from it.
struct Ends {
    ground: Ground,
    up: bool,
    /// Name of the copy, on either side.
    target: String,
}

impl Ends {
    fn start(up: bool) -> Result<Self, PeerError> {
        let ends = Self {
            ground: Ground::start()?,
            up,
            target: "copied".to_owned(),
        };
        tree(&ends.source_here());
        Ok(ends)
    }

    fn source_here(&self) -> PathBuf {
        self.ground.behind(if self.up { "tree" } else { "data/tree" })
    }

    fn target_here(&self) -> PathBuf {
        let folder = if self.up { "data" } else { "" };
        self.ground.behind(folder).join(&self.target)
    }

    fn copy(&self) -> Run {
        let there = |name: &str| self.ground.url(&format!("data/{name}"));
        let (from, to) = match self.up {
            true => ("tree".to_owned(), there(&self.target)),
            false => (there("tree"), self.target.clone()),
        };
        self.ground.copy(&from, &to).arg("-T")
    }

    /// Starts a copy that is far from its end; it waits 2 s for a lost server.
    fn begun(&self) -> Running {
        let run = self.copy().args(["--timeout", "2s", "--bwlimit", "16M"]);
        // Far less than the default of a minute to wait for a server, with slack for a busy
        // machine.
        let mut running = run.hang_after(Duration::from_secs(30)).start();
        running.reach("bytes_sent", 6 * MIB);
        running
    }

    /// Checks that the same command succeeds and resumes.
    #[track_caller]
    fn resumes(&self) {
        let again = self.copy().ok();
        assert_eq!(again.summary()["resumed"], true, "{again}");
        self.same();
    }

    #[track_caller]
    fn same(&self) {
        content_same(&self.source_here(), &self.target_here());
        no_temporaries(&self.ground.behind("data"));
    }
}

#[track_caller]
fn ends_with_error(finished: &Finished, code: i32) {
    let last = finished.json().pop().unwrap();
    assert_eq!(last["exit_code"].as_i64(), Some(code.into()), "{finished}");
    assert!(
        last["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
        "{last}"
    );
}

#[test]
fn a_share_that_may_only_be_read() {
    let ground = or_skip!(Ground::start());
    text(&ground.place.join("local"), "content");
    support::small_files(&ground.place.join("tree"), 50, 1);
    text(&ground.behind("fixed/there"), "there");
    fs::create_dir(ground.behind("fixed/dir")).unwrap();
    let before = snapshot(&ground.behind("fixed"));
    let (top, dir) = (ground.url("fixed"), ground.url("fixed/dir"));
    let there = ground.url("fixed/there");
    let new = ground.url("fixed/new");
    for (code, arguments) in [
        (5, &["copy", "local", &top][..]),
        (5, &["copy", "local", &there]),
        (5, &["copy", "tree", &dir]),
        (5, &["copy", "-T", "tree", &new]),
        (5, &["mirror", "--yes", "tree", &dir]),
        (5, &["mkdir", &new]),
        (5, &["mkdir", "-p", &format!("{new}/a/b")]),
        (5, &["rm", &there]),
        (5, &["rm", "-ry", &dir]),
        (4, &["mv", &there, &new]),
    ] {
        let finished = ground.run(arguments[0]).args(&arguments[1..]).run();
        finished.assert_code(&[code]);
        assert!(finished.err.contains("hint:"), "{finished}");
        assert!(snapshot(&ground.behind("fixed")) == before, "{finished}");
    }
    // Reading is allowed.
    ground.run("copy").args([&top, "read"]).ok();
    content_same(&ground.behind("fixed"), &ground.place.join("read"));
}

#[test]
fn a_full_disk_behind_a_share() {
    let volume = match Volume::ext4(24) {
        Ok(volume) => volume,
        Err(why) => skip!("{why}"),
    };
    let ground = or_skip!(Ground::with(
        |_, builder| builder.share(Share::new("data", &volume.root()))
    ));
    let source = ground.place.join("tree");
    tree(&source);
    text(&source.join("early"), "early");
    let finished = ground.copy("tree", &ground.url("data/tree")).exits(4);
    assert!(
        finished.mentions("STATUS_DISK_FULL") || finished.mentions("space"),
        "{finished}"
    );
    ends_with_error(&finished, 4);
    // A smaller source makes space, and the same command resumes.
    for number in 4..8 {
        fs::remove_file(source.join(format!("large {number}"))).unwrap();
    }
    for number in 4..8 {
        let _ = fs::remove_file(volume.join(format!("tree/large {number}")));
    }
    let again = ground.copy("tree", &ground.url("data/tree")).arg("-T").ok();
    assert_eq!(again.summary()["resumed"], true, "{again}");
    content_same(&source, &volume.join("tree"));
    no_temporaries(&volume.root());
}

#[test]
fn a_share_that_goes_away() {
    for up in [true, false] {
        let ends = or_skip!(Ends::start(up));
        let running = ends.begun();
        ends.ground.smbd.close_share("data").unwrap();
        let finished = running.wait();
        let code = if up { 4 } else { 3 };
        finished.assert_code(&[code]);
        ends_with_error(&finished, code);
        // The folder is shared again, and the same command resumes.
        ends.ground
            .smbd
            .reconfigure("data", &[("available", "yes")])
            .unwrap();
        ends.resumes();
    }
}

/// Kills and restarts the server this many times while copies run; the copies must not fail.
fn through_restarts(up: bool, times: u32) {
    let mut ends = or_skip!(Ends::start(up));
    let (mut killed, mut copies) = (0, 0);
    let mut rng = Rng::with_seed(7);
    while killed < times {
        copies += 1;
        ends.target = format!("copied {copies}");
        // Longer than all restarts take together on a busy machine.
        let flags = ["--timeout", "90s", "--bwlimit", "2M", "--verify"];
        let mut running = ends.copy().args(flags).start();
        while killed < times && running.until(|running| running.counter("bytes_sent") > 0) {
            // Some restarts hit a copy that is resuming, some one that is logging in.
            thread::sleep(Duration::from_millis(20 + rng.u64(..300)));
            if !running.runs() {
                break;
            }
            ends.ground.smbd.kill();
            thread::sleep(Duration::from_millis(rng.u64(..100)));
            ends.ground.smbd.restart().unwrap();
            killed += 1;
        }
        let finished = running.wait();
        finished.assert_code(&[0]);
        assert_eq!(finished.number("errors"), 0, "{finished}");
        assert_eq!(finished.number("files"), 408, "{finished}");
        ends.same();
    }
    println!("{killed} restarts in {copies} copies");
}

#[test]
fn a_server_killed_and_restarted_20_times_while_written_to() {
    through_restarts(true, 20);
}

#[test]
fn a_server_killed_and_restarted_20_times_while_read_from() {
    through_restarts(false, 20);
}

#[test]
fn a_server_that_never_comes_back() {
    for up in [true, false] {
        let mut ends = or_skip!(Ends::start(up));
        let running = ends.begun();
        ends.ground.smbd.kill();
        let finished = running.wait();
        finished.assert_code(&[6]);
        ends_with_error(&finished, 6);
        let listed = finished.of_type("item_error");
        assert!(
            !listed.is_empty() && finished.mentions("did not come back"),
            "{finished}"
        );
        // The other commands report it too, each in time.
        let url = ends.ground.url("data");
        for arguments in [&["ls", &url][..], &["check", &url, "tree"], &["rm", "-ry", &url]] {
            let run = ends.ground.run(arguments[0]).args(&arguments[1..]);
            one_line_and_a_hint(&run.args(["--timeout", "1s"]).exits(6));
        }
        ends.ground.smbd.restart().unwrap();
        ends.resumes();
    }
}
