//! Simulated jobs: what was said of the time left, against what it came to.

use std::collections::BTreeMap;

use super::*;

const SECOND: i128 = 1_000_000_000;
/// Any moment.
const BEGIN: i128 = 1_700_000_000 * SECOND;

/// A job whose tasks take their time, by some workers.
struct Job {
    workers: usize,
    /// Seconds of a task.
    seconds: fn(&mut fastrand::Rng) -> f64,
    /// Tasks that the n-th task gives away.
    given: fn(u64) -> u64,
}

/// What was said at the end of each task, and what was left then, in seconds.
struct Said {
    at: f64,
    eta: Result<Eta, Unknown>,
    left: f64,
}

fn run(job: &Job, seed: u64) -> Vec<Said> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut outlook, mut done) = (Outlook::default(), Size::default());
    let (mut waiting, mut begun) = (1_u64, 0_u64);
    let mut running: BTreeMap<i128, (u64, Size)> = BTreeMap::new();
    let mut said = Vec::new();
    let mut now = BEGIN;
    loop {
        while running.len() < job.workers && waiting > 0 {
            let seconds = (job.seconds)(&mut random);
            let files = (seconds * 1_000.0) as u64;
            let size = Size {
                files,
                bytes: files * 50_000,
            };
            let end = now + (seconds * SECOND as f64) as i128 + i128::from(begun);
            running.insert(end, ((job.given)(begun), size));
            (waiting, begun) = (waiting - 1, begun + 1);
        }
        let Some((at, (given, size))) = running.pop_first() else {
            break;
        };
        now = at;
        done.files += size.files;
        done.bytes += size.bytes;
        waiting += given;
        outlook.add(&mut [EndedTask {
            at_ns: now,
            size,
            given,
        }]);
        let situation = Situation {
            now_ns: now,
            open: waiting + running.len() as u64,
            claimed: running.len() as u64,
            done,
            expected: None,
        };
        said.push(Said {
            at: (now - BEGIN) as f64 / SECOND as f64,
            eta: outlook.estimate(&situation),
            left: 0.0,
        });
    }
    let end = (now - BEGIN) as f64 / SECOND as f64;
    said.iter_mut().for_each(|said| said.left = end - said.at);
    said
}

fn uneven(random: &mut fastrand::Rng) -> f64 {
    2.0 + 6.0 * random.f64()
}

#[test]
fn a_folder_that_was_cut_at_once_has_a_range_that_holds() {
    // The first task gives away all others.
    let job = Job {
        workers: 4,
        seconds: uneven,
        given: |number| if number == 0 { 400 } else { 0 },
    };
    let (mut inside, mut count) = (0, 0);
    for seed in 0..20 {
        let said = run(&job, seed);
        for said in &said[40..said.len() - 8] {
            let eta = said.eta.unwrap();
            assert!(eta.low <= eta.seconds && eta.seconds <= eta.high, "{eta:?}");
            count += 1;
            inside += u32::from((eta.low..=eta.high).contains(&said.left));
        }
        let middle = &said[200];
        let eta = middle.eta.unwrap();
        assert!(
            (eta.seconds - middle.left).abs() < 0.2 * middle.left,
            "{eta:?} of {}",
            middle.left
        );
        assert!(eta.high - eta.low < 0.8 * middle.left, "{eta:?} is no help");
    }
    assert!(inside * 10 >= count * 9, "{inside} of {count}");
}

#[test]
fn nothing_is_said_while_the_tree_is_walked() {
    // A deep tree: each task leaves the rest to the next one, and sometimes to two.
    let job = Job {
        workers: 4,
        seconds: uneven,
        given: |number| match number {
            0..500 if number % 4 == 0 => 2,
            0..500 => 1,
            _ => 0,
        },
    };
    for seed in 0..10 {
        let said = run(&job, seed);
        let walking = said[..450].iter();
        walking.for_each(|said| assert!(said.eta.is_err(), "{:?} at {}", said.eta, said.at));
        assert_eq!(said[7].eta, Err(Unknown::StillWalking));
        assert_eq!(said[0].eta, Err(Unknown::TooEarly));
    }
}

#[test]
fn what_was_copied_before_is_expected_again() {
    let mut outlook = Outlook::default();
    let size = Size {
        files: 1_000,
        bytes: 1 << 30,
    };
    // Each task gives away one: by the tasks alone nothing is known.
    let mut tasks: Vec<EndedTask> = (0..40)
        .map(|number| EndedTask {
            at_ns: BEGIN + number * 10 * SECOND,
            size,
            given: 1,
        })
        .collect();
    outlook.add(&mut tasks);
    let mut situation = Situation {
        now_ns: BEGIN + 390 * SECOND,
        open: 1,
        claimed: 1,
        done: Size {
            files: 40_000,
            bytes: 40 << 30,
        },
        expected: None,
    };
    assert_eq!(outlook.estimate(&situation), Err(Unknown::StillWalking));
    situation.expected = Some(Size {
        files: 100_000,
        bytes: 100 << 30,
    });
    let eta = outlook.estimate(&situation).unwrap();
    assert!((eta.low..=eta.high).contains(&600.0), "{eta:?}");
    assert!((550.0..650.0).contains(&eta.seconds), "{eta:?}");
    assert!(eta.low > 400.0 && eta.high < 800.0, "{eta:?}");
    // There is more than before.
    situation.expected = Some(Size {
        files: 30_000,
        bytes: 1,
    });
    assert_eq!(outlook.estimate(&situation), Err(Unknown::StillWalking));
}

#[test]
fn a_night_without_workers_is_no_slowness() {
    let mut outlook = Outlook::default();
    let task = |at: i128| EndedTask {
        at_ns: BEGIN + at * SECOND,
        size: Size {
            files: 1_000,
            bytes: 1 << 20,
        },
        given: 0,
    };
    let night = 8 * 3_600;
    let mut tasks: Vec<EndedTask> = (0..20).chain(night..night + 20).map(task).collect();
    // In any order.
    fastrand::Rng::with_seed(1).shuffle(&mut tasks);
    outlook.add(&mut tasks[..25]);
    outlook.add(&mut tasks[25..]);
    let eta = outlook.estimate(&Situation {
        now_ns: BEGIN + (night + 20) * SECOND,
        open: 60,
        claimed: 2,
        done: Size::default(),
        expected: None,
    });
    let eta = eta.unwrap();
    assert!((40.0..80.0).contains(&eta.seconds) && eta.high < 200.0, "{eta:?}");
}
