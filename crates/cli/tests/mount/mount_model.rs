//! Random operations on a mount and on a plain folder: each must have the same result, and both
//! trees must stay equal. A local folder, a share of `ropeway serve` and a share of smbd are
//! mounted, each with and without a cache. `ROPEWAY_MOUNT_STEPS` sets the number of steps,
//! `ROPEWAY_MOUNT_SEED` the seed; with `ROPEWAY_MOUNT_TOLD` every step is printed.

mod sides;
mod sources;

use std::time::Instant;

use crate::support::or_skip;
use sides::{Side, Step, compare, tree};
use sources::{Kind, Source};

/// Steps between two comparisons of the trees.
const COMPARED_EVERY: u64 = 250;
/// From so many steps on, a local file becomes old enough for a cache first: that takes a minute.
const LONG: u64 = 20_000;

fn number(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Runs random steps on a mount of this kind.
fn run(kind: Kind, is_boosted: bool, usual: u64) {
    let (seed, steps) = (
        number("ROPEWAY_MOUNT_SEED", 1),
        number("ROPEWAY_MOUNT_STEPS", usual),
    );
    let mut source = or_skip!(Source::new(kind, is_boosted, steps >= LONG));
    let mut random = fastrand::Rng::with_seed(seed);
    let can = source.can();
    let mut sides = [source.at(), source.plain()].map(|root| Side::new(root, can));
    let start = Instant::now();
    let is_told = std::env::var_os("ROPEWAY_MOUNT_TOLD").is_some();
    for number in 0..steps {
        let mut step = Step::new(&mut random);
        if is_boosted && number % 4 == 3 {
            step.on_old_files();
        }
        if !step.is_possible(can) {
            continue;
        }
        let [mounted, plain] = sides.each_mut().map(|side| side.run(&step));
        let (one, two) = (step.one.display(), step.two.display());
        if is_told {
            println!("step {number}: {step:?}: {plain:?}");
        }
        assert_eq!(
            mounted, plain,
            "seed {seed}, step {number}: {} {one} {two}",
            step.kind
        );
        if number % COMPARED_EVERY == 0 {
            compare(&sides, seed, number);
        }
    }
    compare(&sides, seed, steps);
    println!(
        "{kind:?}, boosted: {is_boosted}: {steps} steps in {:.1?}",
        start.elapsed()
    );
    let [mounted, plain] = &mut sides;
    mounted.open.clear();
    // Removed files that were open have gone when the mount has ended.
    let hits = source.end();
    assert_eq!(
        tree(&source.behind(), can),
        tree(&plain.root, can),
        "what was mounted is not what is behind it"
    );
    if is_boosted && (kind != Kind::Folder || steps >= LONG) {
        assert!(hits > steps / 20, "{hits} hits");
    }
}

#[test]
fn a_mount_does_what_a_folder_does() {
    run(Kind::Folder, false, 4000);
}

#[test]
fn a_mount_with_a_cache_does_what_a_folder_does() {
    run(Kind::Folder, true, 500);
}

#[test]
fn a_mounted_share_does_what_a_folder_does() {
    run(Kind::Served, false, 500);
}

#[test]
fn a_mounted_share_with_a_cache_does_what_a_folder_does() {
    run(Kind::Served, true, 500);
}

#[test]
fn a_mounted_share_of_smbd_does_what_a_folder_does() {
    run(Kind::Smbd, false, 500);
}

#[test]
fn a_mounted_share_of_smbd_with_a_cache_does_what_a_folder_does() {
    run(Kind::Smbd, true, 500);
}
