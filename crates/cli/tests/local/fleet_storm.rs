//! `fleet` under kills and stops at random moments, job after job over the same target.
//!
//! `cargo test -p ropeway-cli --test local fleet_storm:: -- --ignored --nocapture` runs the long one: 200
//! kills over 20,000 files. `ROPEWAY_STORM_SEED` chooses other moments.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Compare, Place, Running, small_files};
use rustix::process::Signal;

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
}

impl Storm {
    fn worker(&mut self) -> (Running, Instant) {
        let life = Duration::from_millis(self.random.u64(20..900));
        let run = self.place.ropeway("fleet");
        let worker = run.args(["work", "dst", "--lease", "2s"]).start();
        (worker, Instant::now() + life)
    }

    /// Runs workers until one says that the job is complete, or until `kills`.
    fn job(&mut self, kills: usize) {
        let submit = self.place.ropeway("fleet");
        submit.args(["submit", "--delete", "src", "dst"]).ok();
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
                    // 4: it slept, and its job is over.
                    let ended = running.wait();
                    ended.assert_code(&[0, 4]);
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
        let resume = self.place.ropeway("fleet");
        resume.args(["resume", "dst", "--lease", "2s"]).ok();
        self.check();
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

fn storm(files: u64, kills: usize) {
    let place = Place::in_memory();
    small_files(&place.folder("src"), files, 5);
    links(&place.join("src"), files / 100);
    let seed = std::env::var("ROPEWAY_STORM_SEED").map_or(17, |seed| seed.parse().unwrap());
    let mut storm = Storm {
        place,
        random: fastrand::Rng::with_seed(seed),
        slots: Vec::new(),
        asleep: Vec::new(),
        kills: 0,
        stops: 0,
        jobs: 0,
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
        "{} kills, {} stops, {} jobs",
        storm.kills, storm.stops, storm.jobs
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
#[test]
fn kills_and_stops_lose_nothing() {
    let given = std::env::var("ROPEWAY_KILLS");
    let kills = given.map_or(12, |kills| kills.parse().expect("ROPEWAY_KILLS is a number"));
    storm(1_500.max(kills as u64 * 100), kills);
}
