//! Models a slow device in front of a fast tree: seek time, bandwidth and an optional write cache.
//!
//! The device has one arm or channel, so it serves accesses one after the other, each at its own
//! time. An access that does not continue where the last one ended costs a seek. All times are
//! computed, not measured, so a virtual clock gives the same times as a real one.
//!
//! With a write cache, writes return at memory speed and reach the device in the background. When
//! the cache is full, a write waits for room (the two modes of delayed writing: facts file, section
//! E). Reads come before the background writes, but then each side pays for moving the arm there
//! and back. `sync` and `wait_writeback` wait until their data has reached the device.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::text::{self, TextError};
use super::{Action, Call, Done, Layer, Layered, Operation};
use crate::{Clock, RelPath, Result, Tree};

/// A tree on a modelled device.
pub type Slow = Layered<SlowLayer>;

impl Layered<SlowLayer> {
    /// Gives `inner` the times of `model`. Reads and writes share the device, so wrap a tree only
    /// once.
    pub fn new(inner: Arc<dyn Tree>, model: DeviceModel, clock: Arc<dyn Clock>) -> Arc<Self> {
        let layer = SlowLayer {
            model,
            clock,
            device: Mutex::new(Device::default()),
        };
        Self::wrap(inner, layer)
    }

    /// Returns the bytes in the write cache.
    pub fn dirty(&self) -> u64 {
        let mut device = self.layer.lock();
        device.advance(self.layer.clock.now());
        device.dirty
    }
}

/// The costs of a device.
///
/// As text (see [`FromStr`]): `usb-flash`, `disk`, `instant`, or
/// `seek=1ms,read=20MB,write=7MB,op=1ms,cache=64M`. Keys that are not given are as for `instant`.
/// Both forms may be combined: `disk,cache=64M`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// Name for display.
    pub name: String,
    /// Time to start an access that does not continue where the last one ended.
    pub seek: Duration,
    /// Bytes a second read; `u64::MAX` takes no time.
    pub read_bytes_per_s: u64,
    /// Bytes a second written; `u64::MAX` takes no time.
    pub write_bytes_per_s: u64,
    /// Time of an operation that changes names: create, make a folder or link, rename, remove.
    pub per_operation: Duration,
    /// Size of the write cache; `None`: a write returns when the device has it.
    pub cache_bytes: Option<u64>,
}

/// Rate of a write into the cache (facts file, section E: 8 MB in 10 ms).
const MEMORY_BYTES_PER_S: u64 = 800_000_000;

/// A cached write counts as at least one page; this also bounds the list of cached writes.
const PAGE_BYTES: u64 = 4096;

impl DeviceModel {
    /// Returns a device that takes no time.
    pub fn instant() -> Self {
        Self {
            name: "instant".into(),
            seek: Duration::ZERO,
            read_bytes_per_s: u64::MAX,
            write_bytes_per_s: u64::MAX,
            per_operation: Duration::ZERO,
            cache_bytes: None,
        }
    }

    /// Returns the flash stick of the facts file (section on ReadyBoost, D): 20 MB/s reading, 7
    /// MB/s writing, 1 ms for a random read.
    pub fn usb_flash() -> Self {
        Self {
            name: "usb-flash".into(),
            seek: Duration::from_millis(1),
            read_bytes_per_s: 20_000_000,
            write_bytes_per_s: 7_000_000,
            per_operation: Duration::from_millis(1),
            cache_bytes: None,
        }
    }

    /// Returns the disk of the facts file (D): 50 MB/s, 10 to 20 ms for a random read (here the
    /// middle).
    pub fn disk() -> Self {
        Self {
            name: "disk".into(),
            seek: Duration::from_millis(15),
            read_bytes_per_s: 50_000_000,
            write_bytes_per_s: 50_000_000,
            per_operation: Duration::from_millis(15),
            cache_bytes: None,
        }
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// A message that names the part that cannot be parsed.
    pub fn parse(text: &str) -> std::result::Result<Self, TextError> {
        text.parse()
    }
}

impl FromStr for DeviceModel {
    type Err = TextError;

    fn from_str(text: &str) -> std::result::Result<Self, TextError> {
        let (first, rest) = text.split_once(',').unwrap_or((text, ""));
        let (mut model, rest) = match first.trim() {
            "usb-flash" => (Self::usb_flash(), rest),
            "disk" => (Self::disk(), rest),
            "instant" => (Self::instant(), rest),
            other if other.contains('=') => (Self::instant(), text),
            other => return Err(format!("no device model \"{other}\" (usb-flash, disk, instant)").into()),
        };
        for pair in text::pairs(rest) {
            let (key, value) = pair?;
            match key {
                "seek" => model.seek = text::duration(value)?,
                "read" => model.read_bytes_per_s = rate(value)?,
                "write" => model.write_bytes_per_s = rate(value)?,
                "op" => model.per_operation = text::duration(value)?,
                "cache" => model.cache_bytes = Some(text::bytes(value)?),
                _ => return Err(format!("a device model has no \"{key}\"").into()),
            }
        }
        if text.contains('=') {
            model.name = text.to_string();
        }
        Ok(model)
    }
}

fn rate(value: &str) -> std::result::Result<u64, String> {
    match text::bytes(value)? {
        0 => Err("a rate must not be 0".to_string()),
        rate => Ok(rate),
    }
}

/// Returns the time that `bytes` take at a rate.
fn transfer(bytes: u64, bytes_per_s: u64) -> Duration {
    if bytes_per_s == u64::MAX {
        return Duration::ZERO;
    }
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The layer of [`Slow`].
pub struct SlowLayer {
    model: DeviceModel,
    clock: Arc<dyn Clock>,
    device: Mutex<Device>,
}

/// Where an access ended: file and offset.
type Head = (u64, u64);

/// A write in the cache.
struct Cached {
    file: u64,
    offset: u64,
    end: u64,
    dirty: u64,
    /// Total background work when this write has reached the device.
    done_at: Duration,
}

#[derive(Default)]
struct Device {
    /// The moment that the state below describes.
    at: Duration,
    /// Until then the device serves accesses that callers wait for.
    busy_until: Duration,
    head: Option<Head>,
    /// Where the last cached write ends.
    cache_head: Option<Head>,
    /// Background work given to the device so far, and the part that is done, in device time.
    queued: Duration,
    drained: Duration,
    cached: VecDeque<Cached>,
    dirty: u64,
}

impl Device {
    /// Advances the background writes up to `now`.
    fn advance(&mut self, now: Duration) {
        let idle = now.saturating_sub(self.at.max(self.busy_until));
        self.at = self.at.max(now);
        self.drained = (self.drained + idle).min(self.queued);
        while let Some(first) = self.cached.front() {
            if first.done_at > self.drained {
                break;
            }
            self.dirty -= first.dirty;
            self.cached.pop_front();
        }
    }

    /// Adds an access that a caller waits for. Returns when it is served.
    fn serve(
        &mut self,
        now: Duration,
        head: Option<Head>,
        bytes: u64,
        model: &DeviceModel,
        time: Duration,
    ) -> Duration {
        self.advance(now);
        let mut service = time;
        if let Some((file, offset)) = head {
            if self.head != head {
                service += model.seek;
            }
            if !self.cached.is_empty() {
                // The arm leaves the background writes; its way back to them is paid here too.
                service += model.seek;
            }
            self.head = Some((file, offset.saturating_add(bytes)));
        }
        self.busy_until = self.busy_until.max(now) + service;
        self.busy_until
    }

    /// Returns when the device will have done background work up to `target` if nothing intervenes;
    /// `None` if it has.
    fn drained_at(&self, now: Duration, target: Duration) -> Option<Duration> {
        let missing = target.saturating_sub(self.drained);
        (!missing.is_zero()).then(|| self.busy_until.max(now) + missing)
    }

    fn cache_write(&mut self, file: u64, offset: u64, bytes: u64, model: &DeviceModel) {
        let mut work = transfer(bytes, model.write_bytes_per_s);
        if self.cache_head != Some((file, offset)) {
            work += model.seek;
        }
        let end = offset.saturating_add(bytes);
        self.cache_head = Some((file, end));
        self.queued += work;
        let dirty = bytes.max(PAGE_BYTES);
        self.dirty += dirty;
        self.cached.push_back(Cached {
            file,
            offset,
            end,
            dirty,
            done_at: self.queued,
        });
    }

    /// Returns the background work after which a range of a file is on the device.
    fn work_of(&self, file: u64, offset: u64, end: u64) -> Duration {
        let touching = |cached: &&Cached| cached.file == file && cached.offset < end && cached.end > offset;
        self.cached
            .iter()
            .rev()
            .find(touching)
            .map_or(self.drained, |cached| cached.done_at)
    }
}

impl SlowLayer {
    fn lock(&self) -> MutexGuard<'_, Device> {
        self.device.lock()
    }

    fn serve(&self, head: Option<Head>, bytes: u64, time: Duration) -> Duration {
        self.lock()
            .serve(self.clock.now(), head, bytes, &self.model, time)
    }

    /// Waits until the background work that `target` returns is done. `target` is called once.
    async fn wait_drained(&self, target: impl FnOnce(&Device) -> Duration) {
        let target = {
            let mut device = self.lock();
            device.advance(self.clock.now());
            target(&device)
        };
        loop {
            let wait = {
                let now = self.clock.now();
                let mut device = self.lock();
                device.advance(now);
                device.drained_at(now, target)
            };
            match wait {
                Some(deadline) => self.clock.sleep_until(deadline).await,
                None => return,
            }
        }
    }

    /// Waits for room in the cache and adds a write to it.
    async fn write_cached(&self, call: &Call<'_>, cache_bytes: u64) {
        let file = file_key(call.path);
        loop {
            let wait = {
                let now = self.clock.now();
                let mut device = self.lock();
                device.advance(now);
                let full = device.dirty > 0 && device.dirty + call.length > cache_bytes;
                let first = device.cached.front().filter(|_| full).map(|first| first.done_at);
                match first {
                    Some(done_at) => device.drained_at(now, done_at),
                    None => {
                        device.cache_write(file, call.offset, call.length, &self.model);
                        break;
                    }
                }
            };
            if let Some(deadline) = wait {
                self.clock.sleep_until(deadline).await;
            }
        }
        let copy = transfer(call.length, MEMORY_BYTES_PER_S);
        self.clock.sleep_until(self.clock.now() + copy).await;
    }
}

/// Returns a key to recognise sequential accesses to a file. Two files with the same key would only
/// save a seek.
fn file_key(path: &RelPath) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

impl Layer for SlowLayer {
    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        let head = Some((file_key(call.path), call.offset));
        let served = match call.action {
            // The length is known only after the read, since a read at the end is short.
            Action::Read => {
                let result = operation().await;
                let bytes = result.as_ref().map_or(0, |done| done.amount);
                let time = transfer(bytes, self.model.read_bytes_per_s);
                let served = self.serve(head, bytes, time);
                self.clock.sleep_until(served).await;
                return result;
            }
            Action::Write => match self.model.cache_bytes.filter(|_| !call.direct) {
                Some(cache_bytes) => {
                    self.write_cached(&call, cache_bytes).await;
                    return operation().await;
                }
                None => {
                    let time = transfer(call.length, self.model.write_bytes_per_s);
                    self.serve(head, call.length, time)
                }
            },
            Action::Create
            | Action::MakeDir
            | Action::Symlink
            | Action::HardLink
            | Action::Special
            | Action::RemoveFile
            | Action::RemoveDir
            | Action::Rename => self.serve(None, 0, self.model.per_operation),
            Action::SyncTree => {
                self.wait_drained(|device| device.queued).await;
                return operation().await;
            }
            Action::SyncFile => {
                let file = file_key(call.path);
                self.wait_drained(|device| device.work_of(file, 0, u64::MAX))
                    .await;
                return operation().await;
            }
            Action::WaitWriteback => {
                let (file, end) = (file_key(call.path), call.offset.saturating_add(call.length));
                self.wait_drained(|device| device.work_of(file, call.offset, end))
                    .await;
                return operation().await;
            }
            _ => return operation().await,
        };
        let result = operation().await;
        self.clock.sleep_until(served).await;
        result
    }
}

#[cfg(test)]
#[path = "slow_tests.rs"]
mod tests;
