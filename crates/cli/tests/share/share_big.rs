//! A file of 5 GiB copied to a share and back: more than 32 bits can count.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Ground, Place, no_temporaries, skip};
use fastrand::Rng;
use ropeway_peers::{Share, or_skip};

const GIB: u64 = 1 << 30;
const SIZE: u64 = 5 * GIB + 4_097;

/// Space for two such files, and a reserve for others.
const ROOM: u64 = 2 * SIZE + 4 * GIB;

/// The limit is 64 MiB of resident memory. The code of a program that is not optimised takes 16 MiB more:
/// `ropeway --version` has a peak of 26 MiB, and of 10 MiB as it is installed.
const PEAK_KIB_MAX: u64 = if cfg!(debug_assertions) {
    80 << 10
} else {
    64 << 10
};

/// Returns a place in memory if two such files fit there, else on the disk.
fn place() -> Option<Place> {
    let free = |path: &str| {
        let statistics = rustix::fs::statvfs(path).ok()?;
        Some(statistics.f_bavail * statistics.f_frsize)
    };
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available: Option<u64> = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok());
    let memory = available
        .map_or(0, |kib| kib << 10)
        .min(free("/dev/shm").unwrap_or(0));
    if memory >= ROOM {
        return Some(Place::in_memory());
    }
    (free(std::env::temp_dir().to_str()?)? >= ROOM).then(Place::new)
}

/// Writes the same random bytes repeatedly, with a number in each page, so that no two pages are
/// equal and none is zero.
fn write(path: &Path) {
    const PAGE: usize = 4 << 10;
    let mut rng = Rng::with_seed(1);
    let mut block: Vec<u8> = (0..(4 << 20) / 8)
        .flat_map(|_| rng.u64(..).to_le_bytes())
        .collect();
    let output = File::create(path).unwrap();
    let mut at = 0;
    while at < SIZE {
        for (number, page) in (0_u64..).zip(block.chunks_mut(PAGE)) {
            page[..8].copy_from_slice(&(at / PAGE as u64 + number).to_le_bytes());
        }
        let length = (SIZE - at).min(block.len() as u64);
        output.write_all_at(&block[..length as usize], at).unwrap();
        at += length;
    }
}

#[track_caller]
fn same(one: &Path, other: &Path) {
    let output = Command::new("cmp").args([one, other]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

#[test]
fn five_gibibytes_both_ways() {
    let Some(place) = place() else {
        skip!("there is no space for {ROOM} bytes, in memory or on the disk");
    };
    let ground = or_skip!(Ground::at(place, |place, builder| {
        builder.share(Share::new("data", &place.folder("data")))
    }));
    let (source, there) = (ground.place.join("big"), ground.behind("data/big"));
    write(&source);
    let hang = Duration::from_secs(300);
    let up = ground.copy("big", &ground.url("data/")).hang_after(hang).ok();
    assert_eq!(
        (up.number("bytes"), up.number("bytes_sent")),
        (SIZE, SIZE),
        "{up}"
    );
    same(&source, &there);
    fs::remove_file(&source).unwrap();
    let down = ground.copy(&ground.url("data/big"), "back").hang_after(hang).ok();
    assert_eq!(
        (down.number("bytes"), down.number("bytes_sent")),
        (SIZE, SIZE),
        "{down}"
    );
    same(&there, &ground.place.join("back"));
    no_temporaries(&ground.behind("data"));
    // Memory use is bounded, whatever the size of the file.
    for (way, finished) in [("up", &up), ("down", &down)] {
        println!("{way}: {} KiB resident at most", finished.peak_kib());
        assert!(
            finished.peak_kib() <= PEAK_KIB_MAX,
            "{way}: {} KiB",
            finished.peak_kib()
        );
    }
}
