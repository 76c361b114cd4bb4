use futures_util::future::join;
use ropeway_block::Pool;

use super::*;
use crate::clock::simulate;
use crate::decorate::test_kit::{clock, create, path, read, reader, source, write};
use crate::{CacheMode, Create, MemoryTree, OpenOptions, VirtualClock};

fn slow(size: u64, model: &str) -> (VirtualClock, Arc<Slow>) {
    let (clock, time) = clock();
    (
        clock,
        Slow::new(source(size), DeviceModel::parse(model).unwrap(), time),
    )
}

fn seconds(clock: &VirtualClock) -> f64 {
    clock.now().as_secs_f64()
}

#[test]
fn models_are_parsed() {
    let own = DeviceModel::parse("seek=1ms,read=20MB,write=7MB,op=1ms,cache=64M").unwrap();
    let flash = DeviceModel::usb_flash();
    assert_eq!(
        own,
        DeviceModel {
            name: own.name.clone(),
            cache_bytes: Some(64 << 20),
            ..flash
        }
    );
    let disk = DeviceModel::parse("disk,cache=1M").unwrap();
    assert_eq!(
        (disk.seek, disk.cache_bytes),
        (Duration::from_millis(15), Some(1 << 20))
    );
    for bad in ["floppy", "seek=fast", "read=0", "disk,colour=red", ""] {
        assert!(DeviceModel::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn four_gibibytes_from_flash_take_their_time() {
    let (clock, tree) = slow(4 << 30, "usb-flash");
    let pool = Pool::new(4 << 20, 1);
    simulate(&clock, async {
        let file = reader(&*tree).await;
        let mut at = 0;
        while at < 4 << 30 {
            at += read(&*file, &pool, at, 4 << 20).await.unwrap() as u64;
        }
    });
    let wanted = (4_u64 << 30) as f64 / 20e6 + 0.001;
    assert!((seconds(&clock) - wanted).abs() < 0.01, "{} s", seconds(&clock));
}

#[test]
fn random_reads_pay_for_each_seek() {
    let (clock, tree) = slow(1 << 30, "disk");
    let pool = Pool::new(4096, 2);
    simulate(&clock, async {
        let file = reader(&*tree).await;
        for n in 0..50 {
            read(&*file, &pool, n * 1_000_000, 4096).await.unwrap();
            // Continuing from there costs no seek.
            read(&*file, &pool, n * 1_000_000 + 4096, 4096).await.unwrap();
        }
    });
    let wanted = 50.0 * 0.015 + 100.0 * 4096.0 / 50e6;
    assert!((seconds(&clock) - wanted).abs() < 1e-4, "{} s", seconds(&clock));
}

#[test]
fn one_arm_serves_all_accesses() {
    let (clock, tree) = slow(1 << 30, "disk");
    let pool = Pool::new(1 << 20, 2);
    simulate(&clock, async {
        let file = reader(&*tree).await;
        let (one, two) = join(
            read(&*file, &pool, 0, 1 << 20),
            read(&*file, &pool, 1 << 29, 1 << 20),
        )
        .await;
        one.unwrap();
        two.unwrap();
    });
    let wanted = 2.0 * (0.015 + (1 << 20) as f64 / 50e6);
    assert!((seconds(&clock) - wanted).abs() < 1e-4, "{} s", seconds(&clock));
}

#[test]
fn each_change_of_a_name_costs_an_operation() {
    let (clock, tree) = slow(0, "seek=0ms,op=10ms");
    simulate(&clock, async {
        tree.make_dir(&path("dir"), 0o755).await.unwrap();
        create(&*tree, "dir/file").await.unwrap();
        tree.metadata(&path("dir/file")).await.unwrap();
        tree.rename(&path("dir/file"), &path("new"), false).await.unwrap();
        tree.remove_file(&path("new")).await.unwrap();
    });
    assert_eq!(clock.now(), Duration::from_millis(40));
}

/// Writes `bytes` in blocks of 64 KiB. Returns the seconds until the last write returned and until
/// all was durable.
fn delayed(bytes: u64, model: &str) -> (f64, f64) {
    let (clock, time) = clock();
    let inner = Arc::new(MemoryTree::new().with_discard());
    let tree = Slow::new(inner, DeviceModel::parse(model).unwrap(), time);
    let pool = Pool::new(1 << 16, 1);
    let perceived = simulate(&clock, async {
        let file = create(&*tree, "new").await.unwrap();
        for at in (0..bytes).step_by(1 << 16) {
            write(&*file, &pool, at, 1 << 16).await.unwrap();
        }
        let perceived = seconds(&clock);
        file.sync(false).await.unwrap();
        perceived
    });
    assert_eq!(tree.dirty(), 0);
    (perceived, seconds(&clock))
}

/// Facts file, section E: with a threshold of 510 MB and a disk of 20 MB/s, 1 GB takes about 26 s,
/// after which the disk goes on for the threshold's 25 s. With 256 MB the dialog closes about 13 s
/// early. 8 MB take about 10 ms.
#[test]
fn delayed_writes_have_two_modes() {
    let (perceived, durable) = delayed(1_000_000_000, "write=20MB,cache=510MB");
    assert!((durable - 50.0).abs() < 0.5, "durable after {durable} s");
    assert!(
        (durable - perceived - 25.5).abs() < 0.5,
        "{perceived} of {durable} s"
    );
    let (perceived, durable) = delayed(1_000_000_000, "write=20MB,cache=256MB");
    assert!(
        (durable - perceived - 12.8).abs() < 0.5,
        "{perceived} of {durable} s"
    );
    let (perceived, _) = delayed(8 << 20, "write=20MB,cache=510MB");
    assert!((0.009..0.012).contains(&perceived), "{perceived} s");
}

#[test]
fn reads_are_served_before_delayed_writes() {
    let (clock, tree) = slow(1 << 20, "seek=10ms,read=50MB,write=10MB,cache=64M");
    let pool = Pool::new(1 << 20, 1);
    simulate(&clock, async {
        let target = create(&*tree, "new").await.unwrap();
        for n in 0..20 {
            write(&*target, &pool, n << 20, 1 << 20).await.unwrap();
        }
        let before = seconds(&clock);
        let source = reader(&*tree).await;
        read(&*source, &pool, 0, 4096).await.unwrap();
        assert!(
            seconds(&clock) - before < 0.03,
            "the read waited {} s",
            seconds(&clock) - before
        );
        target.wait_writeback(0, 1 << 20).await.unwrap();
        let first = seconds(&clock);
        tree.sync().await.unwrap();
        assert!(
            seconds(&clock) - first > 1.5,
            "a range is written before the rest"
        );
    });
    let wanted = (20 << 20) as f64 / 10e6;
    assert!((seconds(&clock) - wanted).abs() < 0.1, "{} s", seconds(&clock));
}

#[test]
fn direct_writes_bypass_the_cache() {
    let (clock, tree) = slow(0, "write=1MB,cache=64M");
    let pool = Pool::new(1 << 20, 1);
    simulate(&clock, async {
        let options = OpenOptions::write(Create::New, CacheMode::Direct);
        let file = tree.open(&path("new"), options).await.unwrap();
        write(&*file, &pool, 0, 1_000_000).await.unwrap();
    });
    assert!((seconds(&clock) - 1.0).abs() < 1e-6, "{} s", seconds(&clock));
}
