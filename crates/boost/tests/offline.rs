//! A cache in front of a folder behind a line that is cut: what is answered meanwhile, and what is
//! not.

#[path = "offline/remote.rs"]
mod remote;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use remote::{Remote, RemoteFile, WAITS};
use ropeway_boost::{Boost, BoostOptions, BoostStore, share_id};
use ropeway_cache::{Cache, Config, SimulatedDevice};
use ropeway_vfs::store::{Access, NewNode, Node, NodeOpen, NodeStat, Store as _};
use ropeway_vfs::{ErrorKind, RelPath, Result};

const READ: NodeOpen = NodeOpen {
    access: Access::Read,
    allow_less_access: false,
    create: None,
    exclusive: false,
    link_itself: false,
};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

fn boosted(remote: &Remote, offline_reads: Option<Duration>) -> BoostStore {
    let device = SimulatedDevice::new(16 << 20);
    let clock = device.clone();
    let config = Config {
        segment_bytes: 256 << 10,
        memory_bytes: 1 << 20,
        seed: 1,
    };
    let clock = Arc::new(move || clock.now());
    let (cache, _) = Cache::open(Box::new(device), &[7; 32], &config, clock).expect("a cache");
    let options = BoostOptions {
        offline_reads,
        ..BoostOptions::default()
    };
    let boost = Boost::new(cache, options).expect("threads start");
    BoostStore::new(Arc::new(remote.clone()), boost, share_id("test"))
}

fn bounded(remote: &Remote) -> BoostStore {
    boosted(remote, Some(Duration::from_secs(3600)))
}

/// Content of which every byte is that of one version.
fn content(version: u8, size: usize) -> Vec<u8> {
    vec![version; size]
}

/// Reads a whole file by its node.
fn read(node: &dyn Node) -> Result<Vec<u8>> {
    let mut buffer = vec![0; 1 << 20];
    let count = node.read_at(&mut buffer, 0)?;
    buffer.truncate(count);
    Ok(buffer)
}

fn read_at(store: &BoostStore, at: &RelPath) -> Result<(NodeStat, Vec<u8>)> {
    let opened = store.open(at, &READ)?;
    Ok((opened.stat, read(&*opened.node)?))
}

fn list(store: &BoostStore) -> Result<Vec<(RelPath, NodeStat)>> {
    let mut entries = store.open(&RelPath::root(), &READ)?.node.entries()?;
    let mut all = Vec::new();
    while let Some((name, stat)) = entries.next()? {
        all.push((RelPath::root().join(&name), stat));
    }
    Ok(all)
}

/// A folder with one file that was read, confirmed, and listed with its folder.
fn read_before() -> (Remote, BoostStore) {
    let remote = Remote::new();
    remote.state.lock().put(&path("f"), content(1, 150_000), false);
    remote.state.lock().advance(1000);
    let store = bounded(&remote);
    assert_eq!(
        read_at(&store, &path("f")).expect("it is read").1,
        content(1, 150_000)
    );
    store.look(&path("f")).expect("it is there");
    list(&store).expect("it is listed");
    (remote, store)
}

#[test]
fn what_was_read_is_read_again_while_the_line_is_cut() {
    let (remote, store) = read_before();
    let open = store.open(&path("f"), &READ).expect("it opens");
    remote.cut(true);
    let before = remote.calls.load(Ordering::SeqCst);
    let (stat, bytes) = read_at(&store, &path("f")).expect("from the cache");
    assert_eq!((stat.size, bytes), (150_000, content(1, 150_000)));
    assert_eq!(
        read(&*open.node).expect("also if it was open"),
        content(1, 150_000)
    );
    assert_eq!(store.look(&path("f")).expect("known"), stat);
    assert_eq!(list(&store).expect("known"), [(path("f"), stat)]);
    let missing = |at: &str| store.look(&path(at)).unwrap_err().kind;
    assert_eq!(missing("none"), ErrorKind::NotFound);
    assert_eq!(missing("F"), WAITS, "the server may find it");
    assert_eq!(store.resolve(&path("F")).expect("known"), path("f"));
    let end = open
        .node
        .read_at(&mut [0; 10], 150_000)
        .expect("the end is known");
    assert_eq!(end, 0);
    // What changes something waits.
    let write = NodeOpen {
        access: Access::Write,
        ..READ
    };
    assert_eq!(store.open(&path("f"), &write).err().expect("waits").kind, WAITS);
    assert_eq!(store.remove(&path("f"), false).unwrap_err().kind, WAITS);
    assert_eq!(remote.calls.load(Ordering::SeqCst), before);
    // An attempt to change a name makes it unknown.
    assert_eq!(missing("f"), WAITS);
}

#[test]
fn what_was_asked_of_a_folder_is_known_until_it_is_changed() {
    let (remote, store) = read_before();
    let root = || store.open(&RelPath::root(), &READ).expect("known").node;
    assert!(root().eas().expect("asked").is_empty());
    remote.cut(true);
    assert!(root().eas().expect("known").is_empty());
    assert_eq!(root().security().unwrap_err().kind, WAITS, "nobody asked");
    remote.cut(false);
    store.remove(&path("f"), false).expect("it is removed");
    list(&store).expect("it is listed");
    remote.cut(true);
    assert_eq!(root().eas().unwrap_err().kind, WAITS);
}

#[test]
fn without_offline_reads_everything_waits() {
    let remote = Remote::new();
    remote.state.lock().put(&path("f"), content(1, 150_000), false);
    remote.state.lock().advance(1000);
    let store = boosted(&remote, None);
    read_at(&store, &path("f")).expect("it is read");
    store.look(&path("f")).expect("it is there");
    remote.cut(true);
    assert_eq!(store.look(&path("f")).unwrap_err().kind, WAITS);
    assert_eq!(read_at(&store, &path("f")).unwrap_err().kind, WAITS);
}

#[test]
fn answers_end_after_the_bound() {
    let remote = Remote::new();
    remote.state.lock().put(&path("f"), content(1, 10), false);
    remote.state.lock().advance(1000);
    let store = boosted(&remote, Some(Duration::from_millis(300)));
    store.look(&path("f")).expect("it is there");
    remote.cut(true);
    store.look(&path("f")).expect("known");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(store.look(&path("f")).unwrap_err().kind, WAITS);
}

#[test]
fn a_block_that_was_read_after_a_change_is_not_given_out_unconfirmed() {
    let remote = Remote::new();
    let at = path("f");
    remote.state.lock().put(&at, content(1, 150_000), false);
    remote.state.lock().advance(1000);
    let store = bounded(&remote);
    let opened = store.open(&at, &READ).expect("it opens");
    let mut buffer = vec![0; 65_536];
    // The first block is of the first version, the second one of another.
    opened.node.read_at(&mut buffer, 0).expect("it is read");
    remote.state.lock().put(&at, content(2, 150_000), true);
    opened.node.read_at(&mut buffer, 65_536).expect("it is read");
    assert_eq!(
        buffer[0], 2,
        "no question is asked for a block that is not in the cache"
    );
    remote.cut(true);
    assert_eq!(read_at(&store, &at).unwrap_err().kind, WAITS);
    remote.cut(false);
    assert_eq!(read_at(&store, &at).expect("it is read").1, content(2, 150_000));
}

#[test]
fn a_file_that_is_read_in_the_background_is_confirmed() {
    let remote = Remote::new();
    let at = path("f");
    remote.state.lock().put(&at, content(1, 150_000), false);
    remote.state.lock().advance(1000);
    let store = bounded(&remote);
    read_at(&store, &at).expect("it is read");
    // Nobody else asks for the attributes.
    let is_read = (0..40).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        remote.cut(true);
        let is_read = read_at(&store, &at).is_ok();
        remote.cut(false);
        is_read
    });
    assert!(is_read);
}

#[test]
fn an_open_from_the_outage_stays_with_its_version() {
    for change in 0..5 {
        let (remote, store) = read_before();
        remote.cut(true);
        let read_then = store.open(&path("f"), &READ).expect("known");
        let untouched = store.open(&path("f"), &READ).expect("known");
        assert_eq!(read(&*read_then.node).expect("known"), content(1, 150_000));
        let mut state = remote.state.lock();
        state.advance(100);
        match change {
            0 => {}
            1 => state.put(&path("f"), content(2, 150_000), true),
            2 => state.put(&path("f"), content(2, 150_000), false),
            3 => state.put(&path("f"), content(1, 70_000), true),
            _ => state.rename(&path("f"), &path("g")),
        }
        state.advance(100);
        drop(state);
        remote.cut(false);
        let (again, first) = (read(&*read_then.node), read(&*untouched.node));
        match change {
            0 => assert_eq!(
                (again.unwrap(), first.unwrap()),
                (content(1, 150_000), content(1, 150_000))
            ),
            // The same file: what has read nothing of it may read what it is now.
            1 => assert_eq!(
                (again.unwrap_err().kind, first.unwrap()),
                (ErrorKind::Gone, content(2, 150_000))
            ),
            3 => assert_eq!(
                (again.unwrap_err().kind, first.unwrap()),
                (ErrorKind::Gone, content(1, 70_000))
            ),
            _ => assert_eq!(
                (again.unwrap_err().kind, first.unwrap_err().kind),
                (ErrorKind::Gone, ErrorKind::Gone)
            ),
        }
        assert_eq!(read_then.node.stat().is_ok(), change == 0);
        // A new open has what is there now.
        assert_eq!(read_at(&store, &path("f")).is_ok(), change != 4);
    }
}

#[test]
fn an_own_change_that_is_not_known_to_the_source_is_not_hidden() {
    let (remote, store) = read_before();
    let write = NodeOpen {
        access: Access::Write,
        create: Some(NewNode {
            directory: false,
            dos_attributes: None,
        }),
        ..READ
    };
    let opened = store.open(&path("f"), &write).expect("it opens");
    opened.node.write_at(&content(9, 10), 0).expect("it is written");
    remote.cut(true);
    assert_eq!(opened.node.write_at(&content(9, 10), 20).unwrap_err().kind, WAITS);
    assert_eq!(read(&*opened.node).unwrap_err().kind, WAITS);
    assert_eq!(store.look(&path("f")).unwrap_err().kind, WAITS);
    assert_eq!(list(&store).unwrap_err().kind, WAITS);
}

/// What the folder held, as long as it is remembered.
struct Past {
    /// Files by their path, with the number of the step in which they came.
    states: Vec<(usize, RelPath, RemoteFile)>,
    /// The step of the last own change of a path.
    own: std::collections::BTreeMap<RelPath, usize>,
}

impl Past {
    fn note(&mut self, step: usize, remote: &Remote) {
        for (at, file) in &remote.state.lock().files {
            let is_known = self
                .states
                .iter()
                .any(|(_, known, state)| known == at && state == file);
            if !is_known {
                self.states.push((step, at.clone(), file.clone()));
            }
        }
    }

    /// Whether a path had this content, and since its last own change.
    fn had(&self, at: &RelPath, bytes: &[u8]) -> bool {
        let own = self.own.get(at).copied().unwrap_or(0);
        let mut states = self.states.iter().rev();
        states.any(|(step, known, file)| *step >= own && known == at && file.content == bytes)
    }
}

/// Changes the folder as another client does.
fn change(remote: &Remote, random: &mut fastrand::Rng, version: u8) {
    let names = [path("a"), path("b"), path("c")];
    let (one, other) = (&names[random.usize(..3)], &names[random.usize(..3)]);
    let size = random.usize(1..200_000);
    let mut state = remote.state.lock();
    match random.u8(0..6) {
        0 => drop(state.files.remove(one)),
        1 => state.rename(one, other),
        2 => state.put(one, content(version, size), false),
        _ => state.put(one, content(version, size), true),
    }
}

const CREATE: NodeOpen = NodeOpen {
    access: Access::Write,
    create: Some(NewNode {
        directory: false,
        dos_attributes: None,
    }),
    ..READ
};

/// A folder, a cache in front of it, and files that stay open for a while.
struct World {
    random: fastrand::Rng,
    remote: Remote,
    store: BoostStore,
    past: Past,
    is_cut: bool,
    open: Vec<Arc<dyn Node>>,
    answered: usize,
    waited: usize,
    stale: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let remote = Remote::new();
        Self {
            random: fastrand::Rng::with_seed(seed),
            store: bounded(&remote),
            remote,
            past: Past {
                states: Vec::new(),
                own: std::collections::BTreeMap::new(),
            },
            is_cut: false,
            open: Vec::new(),
            answered: 0,
            waited: 0,
            stale: 0,
        }
    }

    fn step(&mut self, step: usize) {
        self.remote.state.lock().advance(self.random.i128(0..40));
        let at = path(["a", "b", "c"][self.random.usize(..3)]);
        match self.random.u8(0..20) {
            0..=2 => change(&self.remote, &mut self.random, step as u8),
            3 => {
                self.is_cut = !self.is_cut;
                self.remote.cut(self.is_cut);
            }
            4 if !self.is_cut => {
                self.past.own.insert(at.clone(), step);
                let opened = self.store.open(&at, &CREATE).expect("it opens");
                let size = self.random.usize(1..200_000);
                opened.node.set_len(0).expect("it is truncated");
                let written = opened.node.write_at(&content(step as u8, size), 0);
                written.expect("it is written");
            }
            5 if !self.is_cut => {
                self.past.own.insert(at.clone(), step);
                // It may be missing.
                let _ = self.store.remove(&at, false);
            }
            6 | 7 => assert!(list(&self.store).is_ok() || self.is_cut),
            8 if self.open.len() < 4 => self
                .open
                .extend(self.store.open(&at, &READ).map(|opened| opened.node)),
            9 if !self.open.is_empty() => {
                let place = self.random.usize(..self.open.len());
                if let Ok(bytes) = read(&*self.open[place]) {
                    let is_one = bytes.windows(2).all(|pair| pair[0] == pair[1]);
                    assert!(is_one, "step {step}: parts of two versions");
                }
                if self.random.bool() {
                    self.open.swap_remove(place);
                }
            }
            10..=12 => drop(self.store.look(&at)),
            _ => self.read(&at, step),
        }
        self.past.note(step, &self.remote);
    }

    fn read(&mut self, at: &RelPath, step: usize) {
        let present = self.remote.state.lock().files.get(at).cloned();
        self.past.note(step, &self.remote);
        match read_at(&self.store, at) {
            Ok((stat, bytes)) => {
                assert_eq!(stat.size, bytes.len() as u64, "step {step}");
                let is_present = present.is_some_and(|file| file.content == bytes);
                assert!(self.is_cut || is_present, "step {step}: old, and nothing is cut");
                assert!(self.past.had(at, &bytes), "step {step}: it never was");
                self.answered += usize::from(self.is_cut);
                self.stale += usize::from(!is_present);
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                assert!(self.is_cut || present.is_none(), "step {step}");
            }
            Err(error) => {
                assert!(self.is_cut, "step {step}: {error}");
                assert_eq!(error.kind, WAITS, "step {step}");
                self.waited += 1;
            }
        }
    }
}

#[test]
fn random_outages_show_nothing_that_never_was() {
    let (mut answered, mut waited, mut stale) = (0, 0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        for step in 1..250 {
            world.step(step);
        }
        answered += world.answered;
        waited += world.waited;
        stale += world.stale;
    }
    assert!(
        answered > 300 && waited > 100 && stale > 30,
        "{answered} {waited} {stale}"
    );
}
