//! `fleet` with shares as ends, of smbd and of `ropeway serve`: workers with wrong passwords or without rights, rights
//! that are taken away, and a share that is full.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{
    Finished, Ground, PASSWORD, Place, Run, Running, Served, Volume, content_same, no_secret, small_files,
};
use ropeway_peers::{Share, or_skip};

/// A server with a share `data` and its user.
enum Server {
    Smbd(Box<Ground>),
    Serve(Served),
}

impl Server {
    /// smbd if there is one, and `ropeway serve`.
    fn each() -> Vec<Self> {
        let mut servers = vec![Self::Serve(Served::start(&[]))];
        match Ground::sharing(|share| share) {
            Ok(ground) => servers.push(Self::Smbd(Box::new(ground))),
            Err(reason) => println!("skipped: {reason}"),
        }
        servers
    }

    fn url(&self, path: &str) -> String {
        match self {
            Self::Smbd(ground) => ground.url(&format!("data/{path}")),
            Self::Serve(served) => served.url(path),
        }
    }

    fn behind(&self, path: &str) -> PathBuf {
        match self {
            Self::Smbd(ground) => ground.behind(&format!("data/{path}")),
            Self::Serve(served) => served.behind(path),
        }
    }

    fn place(&self) -> &Place {
        match self {
            Self::Smbd(ground) => &ground.place,
            Self::Serve(served) => &served.place,
        }
    }

    fn fleet(&self, args: &[&str]) -> Run {
        fleet(self.place(), args)
    }
}

fn fleet(place: &Place, args: &[&str]) -> Run {
    let run = place.ropeway("fleet").env("ROPEWAY_PASSWORD", PASSWORD);
    run.args(args)
}

fn status(place: &Place, target: &str) -> serde_json::Value {
    let status = fleet(place, &["status", target, "--json"]).ok();
    status.of_type("fleet_status").remove(0)
}

fn reasons(status: &serde_json::Value) -> Vec<String> {
    let workers = status["workers"].as_array().unwrap().iter();
    workers
        .filter_map(|worker| worker["reason"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn a_worker_with_a_wrong_password_is_told_and_left_out() {
    for server in Server::each() {
        let place = server.place();
        small_files(&server.behind("src"), 300, 3);
        let source = server.url("src");
        server.fleet(&["submit", &source, "dst"]).ok();
        let wrong = |target: &str| {
            let run = server.fleet(&["work", target]).env("ROPEWAY_PASSWORD", "wrong");
            let refused = run.exits(5);
            assert!(refused.err.contains("hint:"), "{refused}");
            no_secret(&refused);
        };
        let good = server.fleet(&["work", "dst"]).start();
        wrong("dst");
        good.wait().assert_code(&[0]);
        content_same(&server.behind("src"), &place.join("dst"));
        let reasons = reasons(&status(place, "dst"));
        assert!(
            reasons.len() == 1 && reasons[0].contains("password"),
            "{reasons:?}"
        );
        // Without the target it can tell nobody else.
        let target = server.url("back");
        server.fleet(&["submit", "dst", &target]).ok();
        wrong(&target);
        server.fleet(&["work", &target]).ok();
        content_same(&place.join("dst"), &server.behind("back"));
    }
}

/// All files were reported as failed, and the job as complete.
#[test]
fn an_account_without_rights_leaves_the_work_to_others() {
    let ground = or_skip!(Ground::with_shares(&["data"], |_, share| share.as_themselves()));
    let source = ground.behind("data/src");
    small_files(&source, 200, 3);
    for path in crate::support::walk(&source) {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = if source.join(&path).is_dir() { 0o777 } else { 0o666 };
        fs::set_permissions(source.join(&path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (ann, bob) = (
        ground.url("data/src"),
        ground.smbd.url_as(Some("bob"), "data/src"),
    );
    fleet(&ground.place, &["submit", &ann, "dst"]).ok();
    close(&source, 0o600);
    let denied = fleet(&ground.place, &["work", "dst", "--source", &bob]).exits(5);
    assert!(
        denied.err.contains("hint:") || denied.mentions("denied"),
        "{denied}"
    );
    let found = status(&ground.place, "dst");
    assert_eq!(
        (&found["state"], &found["failed"]),
        (&"open".into(), &0.into()),
        "{found}"
    );
    assert!(reasons(&found)[0].starts_with("source: "), "{found}");
    close(&source, 0o666);
    fleet(&ground.place, &["work", "dst"]).ok();
    content_same(&source, &ground.place.join("dst"));
}

fn close(source: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    for path in crate::support::walk(source) {
        if source.join(&path).is_file() {
            fs::set_permissions(source.join(&path), fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

#[test]
fn rights_that_are_taken_away_in_the_middle_stop_the_workers_and_the_job_goes_on_later() {
    let ground = or_skip!(Ground::sharing(|share| share));
    let place = &ground.place;
    small_files(&ground.behind("data/src"), 1_500, 3);
    let source = ground.url("data/src");
    fleet(place, &["submit", "--source-ops", "600", &source, "dst"]).ok();
    let start = || fleet(place, &["work", "dst", "--lease", "4s"]).start();
    let running = [start(), start()];
    let copied = |least: usize| {
        crate::support::wait_until(Duration::from_secs(60), || {
            let target = place.join("dst");
            target.is_dir() && crate::support::walk(&target).len() > least
        })
    };
    assert!(copied(50));
    ground
        .smbd
        .reconfigure("data", &[("valid users", "nobody-else")])
        .unwrap();
    ground.smbd.close_share("data").unwrap();
    for worker in running {
        let ended = worker.wait();
        // The share is gone, or it is refused.
        ended.assert_code(&[3, 5, 6]);
        assert!(
            ended.err.contains("hint:") && !ended.mentions("panicked"),
            "{ended}"
        );
    }
    let open = status(place, "dst");
    assert_eq!(
        (&open["state"], &open["failed"]),
        (&"open".into(), &0.into()),
        "{open}"
    );
    let reasons = reasons(&open);
    assert!(
        reasons.len() == 2 && reasons.iter().all(|reason| reason.starts_with("source: ")),
        "{open}"
    );
    let again = [("available", "yes"), ("valid users", "")];
    ground.smbd.reconfigure("data", &again).unwrap();
    fleet(place, &["work", "dst"]).ok();
    content_same(&ground.behind("data/src"), &place.join("dst"));
}

fn full(place: &Place, target: &str, behind: &Path, volume: &Volume) {
    let source = place.folder("src");
    small_files(&source.join("small"), 300, 3);
    for number in 0..20 {
        fs::write(source.join(format!("f{number}")), vec![number; 700_000]).unwrap();
    }
    fleet(place, &["submit", "src", target]).ok();
    let work = || fleet(place, &["work", target, "--lease", "4s"]).start();
    let ended: Vec<Finished> = [work(), work()].map(Running::wait).into();
    for worker in ended {
        worker.assert_code(&[4]);
        assert!(
            worker.err.contains("space") && worker.err.contains("hint:"),
            "{worker}"
        );
    }
    let open = status(place, target);
    assert_eq!(
        (&open["state"], &open["failed"]),
        (&"open".into(), &0.into()),
        "{open}"
    );
    for path in crate::support::walk(behind) {
        if behind.join(&path).is_file() {
            assert!(
                fs::read(behind.join(&path)).unwrap() == fs::read(source.join(&path)).unwrap(),
                "{path:?}"
            );
        }
    }
    volume.resize(64);
    for worker in [work(), work()] {
        worker.wait().assert_code(&[0]);
    }
    content_same(&source, behind);
}

#[test]
fn workers_stop_at_a_full_share_of_smbd_and_go_on() {
    let volume = crate::support::or_skip!(Volume::tmpfs(10));
    let folder = volume.root();
    let ground = or_skip!(Ground::with(
        |_, builder| builder.share(Share::new("data", &folder))
    ));
    full(
        &ground.place,
        &ground.url("data/dst"),
        &folder.join("dst"),
        &volume,
    );
}

#[test]
fn workers_stop_at_a_full_share_of_ours_and_go_on() {
    let volume = crate::support::or_skip!(Volume::tmpfs(10));
    let folder = volume.root();
    let served = Served::serving(Place::in_memory(), &folder, &[]);
    full(&served.place, &served.url("dst"), &folder.join("dst"), &volume);
}

#[test]
fn budgets_hold_at_servers() {
    for server in Server::each() {
        small_files(&server.place().folder("src"), 400, 3);
        let takes = |flags: &[&str], name: &str| {
            let target = server.url(name);
            let submit = server.fleet(&["submit", "src", &target]).args(flags);
            submit.ok();
            let begun = Instant::now();
            let other = server.fleet(&["work", &target]).start();
            server.fleet(&["work", &target]).ok();
            other.wait().assert_code(&[0]);
            let took = begun.elapsed();
            content_same(&server.place().join("src"), &server.behind(name));
            took
        };
        let budget = ["--target-ops", "150", "--target-latency-goal", "2s"];
        let (free, limited) = (takes(&[], "free"), takes(&budget, "dst"));
        // Each file is looked up, written and renamed.
        assert!(limited > Duration::from_secs(7), "{limited:?}");
        // So the budget is what takes the time.
        assert!(limited > free + Duration::from_secs(2), "{limited:?} {free:?}");
    }
}
