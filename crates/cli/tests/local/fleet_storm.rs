//! `fleet` under kills and stops at random moments, job after job over the same target.
//!
//! `ROPEWAY_KILLS=200 cargo test -p ropeway-cli --test local fleet_storm:: -- --nocapture` runs a longer one: 200
//! kills over 20,000 files. `ROPEWAY_STORM_FILES` gives another number of files, `ROPEWAY_STORM_LIFE` the longest life
//! of a worker in ms, and `ROPEWAY_STORM_SEED` other moments.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ropeway_peers::Instance;
use rustix::process::Signal;

use crate::support::{Compare, Place, Running, small_files};

/// Time for the rest of a job, at its end, without kills. A guess.
const RESUME: Duration = Duration::from_secs(3_600);

/// Workers at a time.
const SLOTS: usize = 3;

struct Storm {
    place: Place,
    random: fastrand::Rng,
    slots: Vec<(Running, Instant)>,
    /// Workers that are stopped (SIGSTOP), also those of earlier jobs.
    asleep: Vec<Running>,
    kills: usize,
    stops: usize,
    jobs: usize,
    /// Longest life of a worker, in ms.
    life: u64,
    /// The server that hands out tasks, if that is not the catalog.
    nats: Option<Instance>,
    nats_is_down: bool,
    nats_kills: usize,
}

impl Storm {
    fn worker(&mut self) -> (Running, Instant) {
        let life = Duration::from_millis(self.random.u64(20..self.life));
        let run = self.place.ropeway("fleet");
        let worker = run.args(["work", "dst", "--lease", "2s"]).start();
        (worker, Instant::now() + life)
    }

    /// Runs workers until one says that the job is complete, or until `kills`.
    fn job(&mut self, kills: usize) {
        self.submit();
        self.jobs += 1;
        let mut finished = false;
        while self.kills < kills && !finished {
            while self.slots.len() < SLOTS {
                let worker = self.worker();
                self.slots.push(worker);
            }
            std::thread::sleep(Duration::from_millis(5));
            for (mut running, end) in std::mem::take(&mut self.slots) {
                if !running.runs() {
                    // 4: it slept, and its job is over. 6: it was started without a server of NATS.
                    let ended = running.wait();
                    ended.assert_code(if self.nats.is_some() { &[0, 4, 6] } else { &[0, 4] });
                    finished |= ended.code() == Some(0);
                } else if Instant::now() < end {
                    self.slots.push((running, end));
                } else if self.random.u8(0..4) == 0 {
                    running.signal(Signal::STOP);
                    self.asleep.push(running);
                    self.stops += 1;
                } else {
                    running.kill();
                    self.kills += 1;
                }
            }
            self.kill_server();
            if self.random.u8(0..100) == 0 && !self.asleep.is_empty() {
                let at = self.random.usize(..self.asleep.len());
                let woken = self.asleep.swap_remove(at);
                woken.signal(Signal::CONT);
                let life = Duration::from_millis(self.random.u64(20..3_000));
                self.slots.push((woken, Instant::now() + life));
            }
        }
        for (running, _) in self.slots.drain(..) {
            running.kill();
        }
        self.start_server();
        let resume = self.place.ropeway("fleet");
        let resume = resume.args(["resume", "dst", "--lease", "2s"]);
        resume.hang_after(RESUME).ok();
        self.check();
    }

    fn start_server(&mut self) {
        if let Some(nats) = self.nats.as_mut().filter(|_| self.nats_is_down) {
            nats.restart().unwrap();
            self.nats_is_down = false;
        }
    }

    /// Makes a job; attempts before are killed.
    fn submit(&mut self) {
        self.start_server();
        let url = (self.nats.as_ref()).map(|nats| format!("--queue=nats://{}", nats.address()));
        let submit = |place: &Place| {
            let submit = place.ropeway("fleet").args(["submit", "--delete", "src", "dst"]);
            submit.args(&url)
        };
        for _ in 0..3 {
            let running = submit(&self.place).start();
            std::thread::sleep(Duration::from_millis(self.random.u64(..60)));
            running.kill();
            self.kills += 1;
        }
        // 8: the one that was killed had made it.
        submit(&self.place).run().assert_code(&[0, 8]);
    }

    /// Kills the server of NATS now and then, and starts it again later, sometimes without what it has stored.
    fn kill_server(&mut self) {
        let Some(nats) = &mut self.nats else { return };
        // It is down for a short time: no worker can start then.
        let rarity = if self.nats_is_down { 10 } else { 100 };
        if self.random.u8(0..rarity) != 0 {
            return;
        }
        if self.nats_is_down {
            if self.random.u8(0..4) == 0 {
                let _ = fs::remove_dir_all(nats.folder().join("store"));
            }
            self.start_server();
        } else {
            nats.kill();
            self.nats_is_down = true;
            self.nats_kills += 1;
        }
    }

    fn check(&self) {
        Compare::ALL.check(&self.place.join("src"), &self.place.join("dst"));
        let status = self.place.ropeway("fleet");
        let status = status.args(["status", "dst", "--json"]).ok();
        let status = &status.of_type("fleet_status")[0];
        assert_eq!(
            (&status["state"], &status["failed"]),
            (&"complete".into(), &0.into())
        );
    }

    /// Replaces some files of the source, removes some, and puts others into the target.
    fn change(&mut self, files: u64) {
        for _ in 0..files / 50 {
            let number = self.random.u64(..files);
            let _ = fs::remove_file(self.place.join(format!("src/d{:03}/f{number:05}", number / 100)));
            let extra = format!("dst/d{:03}/extra{}", number / 100, self.random.u8(..));
            fs::write(self.place.join(&extra), "extra").unwrap();
        }
        for _ in 0..files / 10 {
            let number = self.random.u64(..files);
            let path = format!("src/d{:03}/f{number:05}", number / 100);
            let text = format!("job {}", self.jobs).repeat(self.random.usize(1..300));
            fs::write(self.place.join(&path), text).unwrap();
        }
    }
}

fn storm(kills: usize, nats: Option<Instance>) {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let files = given("ROPEWAY_STORM_FILES").unwrap_or(1_500.max(kills as u64 * 100));
    let place = Place::in_memory();
    small_files(&place.folder("src"), files, 5);
    links(&place.join("src"), files / 100);
    let mut storm = Storm {
        place,
        random: fastrand::Rng::with_seed(given("ROPEWAY_STORM_SEED").unwrap_or(17)),
        slots: Vec::new(),
        asleep: Vec::new(),
        kills: 0,
        stops: 0,
        jobs: 0,
        life: given("ROPEWAY_STORM_LIFE").unwrap_or(900),
        nats,
        nats_is_down: false,
        nats_kills: 0,
    };
    while storm.kills < kills {
        storm.job(kills);
        storm.change(files);
    }
    storm.job(kills);
    // Whoever still sleeps wakes up when all is done, and changes nothing.
    for running in std::mem::take(&mut storm.asleep) {
        running.signal(Signal::CONT);
        running.wait().assert_code(&[0, 4]);
    }
    storm.check();
    println!(
        "{files} files, {} kills, {} stops, {} jobs, {} kills of the queue's server",
        storm.kills, storm.stops, storm.jobs, storm.nats_kills
    );
}

/// Gives some files further names in another folder.
fn links(root: &Path, count: u64) {
    fs::create_dir(root.join("names")).unwrap();
    for number in 0..count {
        let file = root.join(format!("d{number:03}/f{:05}", number * 100 + 7));
        for name in ["one", "two"] {
            fs::hard_link(&file, root.join(format!("names/{number}-{name}"))).unwrap();
        }
    }
}

/// `ROPEWAY_KILLS=200` takes minutes.
fn kills() -> usize {
    let given = std::env::var("ROPEWAY_KILLS");
    given.map_or(12, |kills| kills.parse().expect("ROPEWAY_KILLS is a number"))
}

#[test]
fn kills_and_stops_lose_nothing() {
    storm(kills(), None);
}

#[cfg(feature = "nats")]
#[test]
fn kills_of_workers_and_of_the_nats_server_lose_nothing() {
    let nats = ropeway_peers::or_skip!(ropeway_peers::Nats::new().start());
    storm(kills(), Some(nats));
}
