//! `ropeway mount --boost` while the cache's device is full, overcommitted, read-only, slow,
//! unmounted or gone: with the real binary and kernel, on loop devices, over our own server.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{self, Running, Served, Volume, can_mount, detach, or_skip, power_cut};
use serde_json::Value;

const FAILED: &str = "the cache's device failed or hangs; going on without the cache";
const BACK: &str = "the cache is in use again";
/// Files of the share, and bytes of each.
const FILES: usize = 24;
const LENGTH: usize = 1 << 20;
/// Longest time until a fault is noticed, or until the cache is back: it tries a device after 30 s.
const LONG: Duration = Duration::from_secs(100);
/// Longest time of one read of [`LENGTH`] bytes, whatever the device does: a second until the
/// device counts as hanging, and some for a busy machine.
const READ_MAX: Duration = Duration::from_secs(8);

/// A mounted share with a cache on a volume.
struct Bench {
    name: &'static str,
    running: Option<Running>,
    volume: Volume,
    served: Served,
}

impl Bench {
    fn new(name: &'static str, volume: Volume) -> Self {
        let served = Served::start(&[]);
        fs::create_dir(served.place.join("mnt")).unwrap();
        for number in 0..FILES {
            fs::write(served.behind(&format!("f{number}")), content(number)).unwrap();
        }
        let create = served.place.ropeway("boost").args(["create", "--size", "128M"]);
        create.arg(volume.join("cache")).run().assert_code(&[0]);
        // What is read within two seconds of its change is not cached for a while.
        std::thread::sleep(Duration::from_millis(2500));
        Self {
            name,
            running: None,
            volume,
            served,
        }
    }

    fn mount(&mut self) {
        let run = self.served.run("mount").hang_after(Duration::from_secs(900));
        let run = run.args(["--foreground", "--boost-sequential", "always", "--boost"]);
        let run = run.arg(self.volume.join("cache"));
        let mut running = run.args([self.served.url(""), "mnt".to_owned()]).start();
        let is_up = running.until(|running| running.stdout().contains("is mounted on"));
        assert!(is_up, "{}: {}{}", self.name, running.stdout(), running.stderr());
        self.running = Some(running);
    }

    fn at(&self, name: &str) -> PathBuf {
        self.served.place.join("mnt").join(name)
    }

    /// Reads a file past the kernel's cache, and checks its content and the time it took.
    fn read(&self, number: usize) {
        let file = fs::File::open(self.at(&format!("f{}", number % FILES))).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut read = vec![0; LENGTH];
        let start = Instant::now();
        file.read_exact_at(&mut read, 0).unwrap();
        let (name, took) = (self.name, start.elapsed());
        assert!(read == content(number), "{name}: wrong content of {number}");
        assert!(took < READ_MAX, "{name}: a read took {took:?}");
    }

    /// Reads one file after the other until something is so.
    fn read_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        for number in 0.. {
            self.read(number);
            if is_so(self) {
                return;
            }
            let status = fs::read_to_string(self.volume.join("cache/status.json")).unwrap_or_default();
            assert!(
                start.elapsed() < LONG,
                "{}: not {what}: {}\n{status}",
                self.name,
                self.said()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn said(&self) -> String {
        let running = self.running.as_ref().unwrap();
        format!("{}{}", running.stdout(), running.stderr())
    }

    fn count(&self, part: &str) -> usize {
        self.said().matches(part).count()
    }

    /// A counter of the status, which is up to a second old; 0 if there is none.
    fn counter(&self, name: &str) -> u64 {
        let text = fs::read(self.volume.join("cache/status.json")).unwrap_or_default();
        let status: Value = serde_json::from_slice(&text).unwrap_or_default();
        status[name].as_u64().unwrap_or(0)
    }

    /// Reads until the cache answers, from its device or memory.
    fn warm_up(&self) {
        let before = self.hits();
        self.read_until("warm", |bench| bench.hits() > before + 200);
    }

    /// Mounts it with a warm cache of which nothing is in memory.
    fn mount_warm(&mut self) {
        self.mount();
        self.warm_up();
        self.unmount();
        self.mount();
    }

    fn hits(&self) -> u64 {
        self.counter("memory_hits") + self.counter("device_hits")
    }

    /// Reads until the fault is noticed, and goes on for a while: there is one line.
    fn goes_on_without(&self) {
        self.read_until("off", |bench| bench.count(FAILED) > 0);
        (0..2 * FILES).for_each(|number| self.read(number));
        assert_eq!(self.count(FAILED), 1, "{}: {}", self.name, self.said());
    }

    /// Reads until the cache is in use again, and answers.
    fn comes_back(&self) {
        self.read_until("back", |bench| bench.count(BACK) > 0);
        self.warm_up();
    }

    fn unmount(&mut self) {
        support::unmount(&self.at(""));
        self.running.take().unwrap().wait().assert_code(&[0]);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.running.take());
        detach(&self.at(""));
    }
}

fn content(number: usize) -> Vec<u8> {
    let mut content = vec![0; LENGTH];
    fastrand::Rng::with_seed((number % FILES) as u64).fill(&mut content);
    content
}

/// A file system that cannot preallocate is filled by others: writes fail with ENOSPC.
fn full() -> Result<(), String> {
    let outer = Volume::tmpfs(400)?;
    let volume = Volume::within(&outer, "ext2", 200, "mkfs.ext2", &["-q", "-F", "-m", "0"])?;
    let mut bench = Bench::new("full", volume);
    let filler = bench.volume.join("filler");
    let file = fs::File::create(&filler).unwrap();
    let block = vec![0x55; 1 << 16];
    let mut at = 0;
    while file.write_all_at(&block, at).is_ok() {
        at += block.len() as u64;
    }
    drop(file);
    bench.mount();
    bench.goes_on_without();
    fs::remove_file(filler).unwrap();
    bench.comes_back();
    bench.unmount();
    Ok(())
}

/// A preallocated file on a volume that promises more than it has: writes fail with EIO.
fn overcommitted() -> Result<(), String> {
    let outer = Volume::tmpfs(500)?;
    let options = [
        "-q",
        "-F",
        "-m",
        "0",
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0",
    ];
    let volume = Volume::within(&outer, "ext4", 200, "mkfs.ext4", &options)?;
    let mut bench = Bench::new("overcommitted", volume);
    let space = rustix::fs::statvfs(outer.root()).unwrap();
    let used = (space.f_blocks - space.f_bfree) * space.f_frsize;
    outer.resize(used / (1 << 20) + 6);
    bench.mount();
    bench.goes_on_without();
    outer.resize(500);
    // The file system may have given up its journal by now. Then the cache stays away.
    bench.unmount();
    Ok(())
}

/// The file system makes itself read-only after an error.
fn read_only() -> Result<(), String> {
    let outer = Volume::tmpfs(400)?;
    let options = ["-q", "-F", "-m", "0", "-e", "remount-ro"];
    let volume = Volume::within(&outer, "ext4", 200, "mkfs.ext4", &options)?;
    let number = fs::metadata(volume.root()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap();
    let name = device.file_name().unwrap().to_str().unwrap().to_owned();
    let trigger = PathBuf::from(format!("/sys/fs/ext4/{name}/trigger_fs_error"));
    if !trigger.exists() {
        return Err("this kernel cannot cause an error of ext4".to_owned());
    }
    let mut bench = Bench::new("read-only", volume);
    bench.mount();
    bench.read(0);
    fs::write(trigger, "test").unwrap();
    bench.goes_on_without();
    bench.unmount();
    Ok(())
}

/// A limit of requests a second of a volume's device (cgroup v1); lifted on drop.
struct Slow(String);

impl Slow {
    const FILES: [&str; 2] = ["read_iops_device", "write_iops_device"];

    fn new(volume: &Volume, requests: u32) -> Result<Self, String> {
        let number = fs::metadata(volume.root()).unwrap().dev();
        let slow = Self(format!(
            "{}:{}",
            rustix::fs::major(number),
            rustix::fs::minor(number)
        ));
        slow.set(requests)
            .map_err(|error| format!("no throttle: {error}"))?;
        Ok(slow)
    }

    fn set(&self, requests: u32) -> std::io::Result<()> {
        for file in Self::FILES {
            let path = format!("/sys/fs/cgroup/blkio/blkio.throttle.{file}");
            fs::write(path, format!("{} {requests}", self.0))?;
        }
        Ok(())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.set(0);
    }
}

/// A device that takes 200 ms for each request, one after the other.
fn slow() -> Result<(), String> {
    let mut bench = Bench::new("slow", Volume::ext4(200)?);
    bench.mount_warm();
    let slow = Slow::new(&bench.volume, 5)?;
    bench.goes_on_without();
    drop(slow);
    bench.comes_back();
    bench.unmount();
    Ok(())
}

/// A lazy unmount leaves the cache its open file: nothing changes until the end of the mount. Then
/// the cache is there again when its volume is.
fn unmounted() -> Result<(), String> {
    let mut bench = Bench::new("unmounted", Volume::ext4(200)?);
    bench.mount();
    bench.warm_up();
    bench.volume.unmount();
    (0..3 * FILES).for_each(|number| bench.read(number));
    assert_eq!(bench.count(FAILED), 0, "{}", bench.said());
    bench.unmount();
    bench.volume.mount()?;
    bench.mount();
    bench.read(0);
    bench.read_until("warm at once", |bench| bench.counter("device_hits") > 10);
    bench.unmount();
    Ok(())
}

/// Every operation fails from one moment on, as with a stick that is pulled.
fn pulled() -> Result<(), String> {
    let mut bench = Bench::new("pulled", Volume::ext4(200)?);
    bench.mount_warm();
    power_cut(&bench.volume.root())?;
    bench.goes_on_without();
    bench.unmount();
    Ok(())
}

/// All at once, since the cache tries a device that failed only after half a minute.
#[test]
fn a_mount_goes_on_whatever_its_caches_device_does() {
    or_skip!(can_mount());
    let cases = [full, overcommitted, read_only, slow, unmounted, pulled];
    std::thread::scope(|scope| {
        let running = cases.map(|case| scope.spawn(case));
        for case in running {
            match case.join() {
                Ok(Ok(())) => {}
                Ok(Err(why)) => println!("skipped: {why}"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
}
