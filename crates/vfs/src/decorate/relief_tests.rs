use std::cell::{Cell, RefCell};

use futures_util::future::join_all;

use super::super::faults::{FaultRule, Faults};
use super::super::slow::{DeviceModel, Slow};
use super::super::test_kit::{clock, path};
use super::*;
use crate::clock::simulate;
use crate::{MemoryTree, RelPath, VirtualClock};

const SECOND: Duration = Duration::from_secs(1);
const WORKERS: usize = 4;

/// Operations in flight that a worker would have without a goal.
const EAGER: usize = 64;

/// Ends of the phases, in operations of the device: alone, beside others, alone again.
const PHASES: [u32; 3] = [10_000, 25_000, 50_000];

fn nas(op: Duration, clock: &Arc<dyn Clock>) -> Arc<dyn Tree> {
    let model = DeviceModel {
        per_operation: op,
        ..DeviceModel::instant()
    };
    Slow::new(Arc::new(MemoryTree::new()), model, Arc::clone(clock))
}

/// What was measured in the second half of each phase.
#[derive(Default)]
struct Seen {
    /// Operations of each worker.
    operations: RefCell<[[u32; WORKERS]; 3]>,
    /// How long another client waits for one operation.
    waits: RefCell<[Vec<Duration>; 3]>,
}

/// Returns the phase in whose second half this moment lies.
fn phase(now: Duration, op: Duration) -> Option<usize> {
    let begins = [0, PHASES[0], PHASES[1]];
    (0..3).find(|at| now >= op * ((begins[*at] + PHASES[*at]) / 2) && now < op * PHASES[*at])
}

/// Makes and removes a folder, again and again until `end`, with `rest` between. `seen` gets begin and end of each.
async fn again_and_again(
    (tree, path, clock): (&dyn Tree, RelPath, &VirtualClock),
    (end, rest): (Duration, Duration),
    seen: impl Fn(Duration, Duration),
) {
    while clock.now() < end {
        let begun = clock.now();
        tree.make_dir(&path, 0o755).await.unwrap();
        seen(begun, clock.now());
        tree.remove_dir(&path).await.unwrap();
        clock.sleep_until(clock.now() + rest).await;
    }
}

/// Four workers on a NAS that others use in the second phase with `others` operations at once.
fn fleet(op: Duration, goal: Option<Duration>, others: usize, seed: u64) -> Seen {
    let (time, clock) = clock();
    let nas = nas(op, &clock);
    let seen = Seen::default();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut late = || op * random.u32(0..1_000);
    let relieved = |_| match goal {
        Some(goal) => Relieved::new(Arc::clone(&nas), Relief::new(goal, Arc::clone(&clock))),
        None => Arc::clone(&nas),
    };
    let workers: Vec<_> = (0..WORKERS).map(relieved).collect();
    let end = op * PHASES[2];
    let (seen_ref, time_ref, nas_ref) = (&seen, &time, &nas);
    let work = (0..WORKERS * EAGER).map(|number| {
        let (tree, late) = (&workers[number % WORKERS], late());
        async move {
            time_ref.sleep_until(late).await;
            let path = path(&format!("w{number}"));
            again_and_again((&**tree, path, time_ref), (end, Duration::ZERO), |_, now| {
                if let Some(phase) = phase(now, op) {
                    seen_ref.operations.borrow_mut()[phase][number % WORKERS] += 1;
                }
            })
            .await;
        }
    });
    let others = (0..others).map(|number| async move {
        time_ref.sleep_until(op * PHASES[0]).await;
        let path = path(&format!("o{number}"));
        let end = op * PHASES[1];
        again_and_again((&**nas_ref, path, time_ref), (end, Duration::ZERO), |_, _| {}).await;
    });
    let user = again_and_again((&*nas, path("user"), &time), (end, op * 100), |begun, now| {
        if let Some(phase) = phase(begun, op) {
            seen.waits.borrow_mut()[phase].push(now - begun);
        }
    });
    simulate(
        &time,
        futures_util::future::join3(join_all(work), join_all(others), user),
    );
    seen
}

fn mean(waits: &[Duration]) -> Duration {
    waits.iter().sum::<Duration>() / u32::try_from(waits.len()).unwrap()
}

#[test]
fn four_workers_keep_to_a_goal_step_back_for_others_and_come_back() {
    for seed in 0..4 {
        let op = Duration::from_micros(500 + 500 * seed);
        let goal = op * 20;
        let seen = fleet(op, Some(goal), 100, seed);
        let [alone, beside, again] = seen.waits.take().map(|waits| mean(&waits));
        assert!(
            alone < goal * 5 / 4 && again < goal * 5 / 4,
            "{alone:?} {again:?}"
        );
        let operations = seen.operations.take();
        let sums = operations.map(|phase| phase.iter().sum::<u32>());
        // The others wait for each other, and hardly for the workers.
        assert!(beside < op * 115, "{beside:?}");
        assert!(sums[1] * 8 < sums[0], "{operations:?}");
        // All of the device, and all of it again: half of the operations in half of a phase.
        let most = [PHASES[0] / 4, (PHASES[2] - PHASES[1]) / 4];
        let is_used = sums[0] > most[0] * 9 / 10 && sums[2] > most[1] * 9 / 10;
        assert!(is_used, "{most:?} {operations:?}");
        assert!(operations[1].iter().all(|count| *count > 0), "{operations:?}");
        for phase in [operations[0], operations[2]] {
            let (least, most) = (phase.iter().min().unwrap(), phase.iter().max().unwrap());
            assert!(least * 2 > *most, "{operations:?}");
        }
    }
}

#[test]
fn without_a_goal_they_do_not() {
    let op = Duration::from_millis(1);
    let seen = fleet(op, None, 100, 1);
    let [alone, beside, _] = seen.waits.take().map(|waits| mean(&waits));
    assert!(alone > op * 200 && beside > op * 300, "{alone:?} {beside:?}");
}

/// Each operation takes 100 ms, however many there are.
fn far(goal: Duration) -> (f64, Duration, Duration) {
    let (time, clock) = clock();
    let rules = FaultRule::parse("make_dir:delay=100ms").unwrap();
    let far = Faults::new(Arc::new(MemoryTree::new()), rules, Arc::clone(&clock));
    let relief = Relief::new(goal, Arc::clone(&clock));
    let tree = Relieved::new(far, Arc::clone(&relief));
    let names: Vec<_> = (0..400).map(|number| path(&format!("d{number}"))).collect();
    simulate(&time, async {
        let made = join_all(names.iter().map(|name| tree.make_dir(name, 0o755))).await;
        assert!(made.iter().all(Result::is_ok));
    });
    (relief.window(), relief.held_back(), clock.now())
}

#[test]
fn an_end_that_is_far_away_is_used_up_to_the_goal_and_goes_on_above_it() {
    let (window, held_back, took) = far(Duration::from_millis(200));
    assert!(window > 50.0 && took < SECOND, "{window} {took:?}");
    assert_eq!(held_back, took - Duration::from_millis(100));
    // A pause of 700 ms after each operation.
    let (window, _, took) = far(Duration::from_millis(50));
    assert_eq!(window, WINDOW_MIN);
    assert!(took > SECOND * 250 && took < SECOND * 350, "{took:?}");
}

#[test]
fn an_operation_that_hangs_keeps_no_other_away() {
    let (time, clock) = clock();
    let rules = FaultRule::parse("make_dir:contains=hangs,delay=forever").unwrap();
    let tree = Faults::new(Arc::new(MemoryTree::new()), rules, Arc::clone(&clock));
    let tree = Relieved::new(tree, Relief::new(SECOND, Arc::clone(&clock)));
    // All places, and all that are left after the window has shrunk.
    let names: Vec<_> = (0..12).map(|number| path(&format!("hangs{number}"))).collect();
    let done = Cell::new(false);
    simulate(&time, async {
        let hung = join_all(names.iter().map(|name| tree.make_dir(name, 0o755)));
        let works = async {
            tree.make_dir(&path("works"), 0o755).await.unwrap();
            done.set(true);
        };
        futures_util::pin_mut!(hung, works);
        futures_util::future::select(hung, works).await;
    });
    assert!(done.get() && clock.now() < SECOND * 30, "{:?}", clock.now());
}

/// It got the first number of operations every ten seconds, for ever.
#[test]
fn an_end_where_everything_hangs_gets_fewer_and_fewer_operations() {
    let (time, clock) = clock();
    let rules = FaultRule::parse("make_dir:contains=hangs,delay=forever").unwrap();
    let tree = Faults::new(Arc::new(MemoryTree::new()), rules, Arc::clone(&clock));
    let relief = Relief::new(SECOND, Arc::clone(&clock));
    let tree = Relieved::new(tree, Arc::clone(&relief));
    let names: Vec<_> = (0..200).map(|number| path(&format!("hangs{number}"))).collect();
    let flying = || relief.state.lock().flying.len();
    simulate(&time, async {
        let hung = join_all(names.iter().map(|name| tree.make_dir(name, 0o755)));
        let look = async {
            // Together they count once.
            time.sleep_until(SECOND * 15).await;
            assert_eq!(relief.window(), WINDOW_FIRST * SHRINK_MAX);
            time.sleep_until(SECOND * 100).await;
            assert!(relief.window() < 1.0, "{}", relief.window());
            let before = flying();
            time.sleep_until(SECOND * 200).await;
            assert!((8..=11).contains(&(flying() - before)), "{before} {}", flying());
        };
        futures_util::pin_mut!(hung, look);
        futures_util::future::select(hung, look).await;
    });
}

/// A long read or a long goal is no reason.
#[test]
fn an_operation_that_may_take_long_does_not_hang() {
    let (time, clock) = clock();
    let rules = FaultRule::parse("make_dir:delay=15s").unwrap();
    let tree = Faults::new(Arc::new(MemoryTree::new()), rules, Arc::clone(&clock));
    let relief = Relief::new(SECOND * 20, Arc::clone(&clock));
    let tree = Relieved::new(tree, Arc::clone(&relief));
    let names: Vec<_> = (0..30).map(|number| path(&format!("d{number}"))).collect();
    simulate(&time, async {
        let made = join_all(names.iter().map(|name| tree.make_dir(name, 0o755))).await;
        assert!(made.iter().all(Result::is_ok));
    });
    assert!(relief.window() >= WINDOW_FIRST, "{}", relief.window());
}

#[test]
fn what_is_dropped_while_it_waits_frees_its_place() {
    let (time, clock) = clock();
    let nas = nas(SECOND, &clock);
    let relief = Relief::new(SECOND, Arc::clone(&clock));
    let tree = Relieved::new(nas, relief);
    let names: Vec<_> = (0..30).map(|number| path(&format!("d{number}"))).collect();
    simulate(&time, async {
        {
            let waiting = join_all(names.iter().map(|name| tree.make_dir(name, 0o755)));
            let end = time.sleep_until(SECOND / 2);
            futures_util::pin_mut!(waiting);
            futures_util::future::select(waiting, end).await;
        }
        tree.metadata(&RelPath::root()).await.unwrap();
        assert_eq!(time.now(), SECOND / 2);
    });
}
