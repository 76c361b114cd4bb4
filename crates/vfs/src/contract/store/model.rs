//! Random operations on a store, compared with a plain model of a folder.
//!
//! The model is a map from paths to contents. Every step does the same to both; a file is opened
//! anew or through a node that stayed open. Errors must agree in kind where the contract names it,
//! else in being errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Abilities, CREATE, LOOK, MAKE_DIR, READ, WRITE, content, list, path};
use crate::store::{Node, Store};
use crate::{ErrorKind, Kind};

/// Folders, besides the root.
const FOLDERS: [&str; 3] = ["x", "y", "x/z"];
/// Names of files in each folder.
const NAMES: [&str; 4] = ["a", "b", "c", "long name"];
/// Largest file, in bytes.
const SIZE_MAX: usize = 300_000;
/// Nodes that stay open.
const NODES_MAX: usize = 8;

/// The store under test and its model.
struct Bench<'a> {
    store: &'a dyn Store,
    random: fastrand::Rng,
    files: BTreeMap<String, Vec<u8>>,
    /// Open nodes with the path of their file, and its content if the name was removed.
    nodes: Vec<OpenNode>,
    can: Abilities,
}

struct OpenNode {
    node: Arc<dyn Node>,
    at: Result<String, Vec<u8>>,
}

/// Runs `steps` random operations. `disturb` is called before each with its number, to cut
/// connections or to restart a server.
///
/// # Panics
/// When store and model differ.
pub fn run(store: &dyn Store, can: Abilities, seed: u64, steps: usize, mut disturb: impl FnMut(usize)) {
    let mut bench = Bench {
        store,
        random: fastrand::Rng::with_seed(seed),
        files: BTreeMap::new(),
        nodes: Vec::new(),
        can,
    };
    for folder in FOLDERS {
        store.open(&path(folder), &MAKE_DIR).expect("the folder is made");
    }
    for step in 0..steps {
        disturb(step);
        bench.step(step);
    }
    bench.nodes.clear();
    bench.check_all();
}

impl Bench<'_> {
    fn any_path(&mut self) -> String {
        let folder = self.random.usize(0..=FOLDERS.len());
        let name = NAMES[self.random.usize(0..NAMES.len())];
        match FOLDERS.get(folder) {
            Some(folder) => format!("{folder}/{name}"),
            None => name.to_owned(),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.random.u8(0..4) {
            0 => self.random.usize(1..60_000),
            _ => self.random.usize(1..600),
        };
        (0..length).map(|_| self.random.u8(..)).collect()
    }

    fn step(&mut self, step: usize) {
        let at = self.any_path();
        match self.random.u8(0..24) {
            0..=5 => self.write(&at, step),
            6..=9 => self.read(&at, step),
            10 => self.set_len(&at, step),
            11 => self.remove(&at, step),
            12 | 13 => self.rename(&at, step),
            14..=16 => self.look(&at, step),
            17 => self.list(step),
            18 => self.sync(&at, step),
            19 | 20 => self.open_and_keep(&at),
            21 => {
                if !self.nodes.is_empty() {
                    let which = self.random.usize(0..self.nodes.len());
                    drop(self.nodes.swap_remove(which));
                }
            }
            _ => self.use_node(step),
        }
    }

    fn write(&mut self, at: &str, step: usize) {
        let data = self.bytes();
        let opened = self.store.open(&path(at), &CREATE);
        let opened = opened.unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert_eq!(opened.created, !self.files.contains_key(at), "step {step}: {at}");
        let file = self.files.entry(at.to_owned()).or_default();
        assert_eq!(opened.stat.size, file.len() as u64, "step {step}: {at}");
        let offset = self.random.usize(0..=file.len().min(SIZE_MAX - data.len()));
        let written = opened.node.write_at(&data, offset as u64);
        written.unwrap_or_else(|error| panic!("step {step}: {error}"));
        apply(file, &data, offset);
        if self.random.bool() {
            let out = opened.node.write_out();
            out.unwrap_or_else(|error| panic!("step {step}: {error}"));
        }
    }

    fn read(&mut self, at: &str, step: usize) {
        let opened = self.store.open(&path(at), &READ);
        match (opened, self.files.get(at)) {
            (Ok(opened), Some(file)) => {
                let offset = self.random.usize(0..=file.len() + 10);
                check_read(
                    &*opened.node,
                    file,
                    offset,
                    self.random.usize(1..100_000),
                    step,
                    at,
                );
                if self.random.u8(0..4) == 0 {
                    assert!(content(&*opened.node) == *file, "step {step}: {at}");
                }
            }
            (Err(error), None) => assert_eq!(error.kind, ErrorKind::NotFound, "step {step}: {error}"),
            (Ok(_), None) => panic!("step {step}: {at} should not exist"),
            (Err(error), Some(_)) => panic!("step {step}: {error}"),
        }
    }

    fn set_len(&mut self, at: &str, step: usize) {
        let Some(file) = self.files.get_mut(at) else {
            return;
        };
        let length = self.random.usize(0..file.len() + 5000).min(SIZE_MAX);
        let node = self.store.open(&path(at), &WRITE).expect("it exists").node;
        let set = node.set_len(length as u64);
        set.unwrap_or_else(|error| panic!("step {step}: {error}"));
        file.resize(length, 0);
    }

    fn remove(&mut self, at: &str, step: usize) {
        match (self.store.remove(&path(at), false), self.files.remove(at)) {
            (Ok(()), Some(content)) => self.orphan(at, &content),
            (Err(error), None) => assert_eq!(error.kind, ErrorKind::NotFound, "step {step}"),
            (result, there) => panic!("step {step}: {at} {result:?}, existed: {}", there.is_some()),
        }
    }

    /// The open nodes of a removed name keep its content.
    fn orphan(&mut self, at: &str, content: &[u8]) {
        let is_at = |open: &OpenNode| open.at.as_ref().is_ok_and(|path| path == at);
        if !self.can.removed_files_survive {
            self.nodes.retain(|open| !is_at(open));
        }
        for open in &mut self.nodes {
            if is_at(open) {
                open.at = Err(content.to_vec());
            }
        }
    }

    fn rename(&mut self, from: &str, step: usize) {
        let (to, replace) = (self.any_path(), self.random.bool());
        let renamed = self.store.rename(&path(from), &path(&to), replace);
        let is_taken = self.files.contains_key(&to) && from != to && !replace;
        match (renamed, self.files.contains_key(from)) {
            (Err(error), false) => assert_eq!(error.kind, ErrorKind::NotFound, "step {step}: {error}"),
            (Err(error), true) => {
                assert!(
                    is_taken && error.kind == ErrorKind::AlreadyExists,
                    "step {step}: {error}"
                );
            }
            (Ok(()), true) if !is_taken => {
                if from == to {
                    return;
                }
                let moved = self.files.remove(from).expect("it exists");
                if let Some(replaced) = self.files.insert(to.clone(), moved) {
                    self.orphan(&to, &replaced);
                }
                for open in &mut self.nodes {
                    if open.at.as_ref().is_ok_and(|path| path == from) {
                        open.at = Ok(to.clone());
                    }
                }
            }
            (Ok(()), _) => panic!("step {step}: {from} was renamed to {to}"),
        }
    }

    fn look(&mut self, at: &str, step: usize) {
        match (self.store.open(&path(at), &LOOK), self.files.get(at)) {
            (Ok(opened), Some(file)) => {
                assert_eq!(opened.stat.size, file.len() as u64, "step {step}: {at}");
                let stat = opened.node.stat().expect("it has attributes");
                assert_eq!(
                    (stat.size, stat.kind),
                    (file.len() as u64, Kind::File),
                    "step {step}: {at}"
                );
            }
            (Err(error), None) => assert_eq!(error.kind, ErrorKind::NotFound, "step {step}: {error}"),
            (Ok(_), None) => panic!("step {step}: {at} should not exist"),
            (Err(error), Some(_)) => panic!("step {step}: {error}"),
        }
    }

    fn list(&mut self, step: usize) {
        let folder = ["", "x", "y", "x/z"][self.random.usize(0..4)];
        let node = self
            .store
            .open(&path(folder), &READ)
            .expect("the folder exists")
            .node;
        let found: Vec<(String, u64)> = list(&*node)
            .into_iter()
            .filter(|(_, stat)| stat.kind == Kind::File)
            .map(|(name, stat)| (name, stat.size))
            .collect();
        let prefix = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        let beneath = self.files.iter().filter_map(|(at, file)| {
            let name = at.strip_prefix(&prefix)?;
            (!name.contains('/')).then(|| (name.to_owned(), file.len() as u64))
        });
        assert_eq!(found, beneath.collect::<Vec<_>>(), "step {step}: {folder:?}");
    }

    fn sync(&mut self, at: &str, step: usize) {
        let synced = match self.files.contains_key(at) {
            true => self.store.open(&path(at), &WRITE).expect("it exists").node.sync(),
            false => self.store.sync(),
        };
        synced.unwrap_or_else(|error| panic!("step {step}: {error}"));
    }

    fn open_and_keep(&mut self, at: &str) {
        if self.files.contains_key(at) && self.nodes.len() < NODES_MAX {
            let node = self.store.open(&path(at), &WRITE).expect("it exists").node;
            self.nodes.push(OpenNode {
                node,
                at: Ok(at.to_owned()),
            });
        }
    }

    fn use_node(&mut self, step: usize) {
        if self.nodes.is_empty() {
            return;
        }
        let data = self.bytes();
        let which = self.random.usize(0..self.nodes.len());
        let open = &self.nodes[which];
        let file = match &open.at {
            Ok(at) => self.files.get(at).expect("it has a name"),
            Err(orphan) => orphan,
        };
        if self.random.bool() {
            let (offset, length) = (self.random.usize(0..=file.len()), self.random.usize(1..100_000));
            check_read(&*open.node, file, offset, length, step, "an open node");
            return;
        }
        let offset = self.random.usize(0..=file.len().min(SIZE_MAX - data.len()));
        let written = open.node.write_at(&data, offset as u64);
        written.unwrap_or_else(|error| panic!("step {step}: {error}"));
        match self.nodes[which].at.clone() {
            Ok(at) => apply(self.files.get_mut(&at).expect("it has a name"), &data, offset),
            // The nodes of one removed file are not told apart here: each keeps a content of its
            // own, so only one may write.
            Err(mut orphan) => {
                apply(&mut orphan, &data, offset);
                let id = |node: &Arc<dyn Node>| node.stat().map(|stat| stat.id).ok();
                let own = id(&self.nodes[which].node);
                for open in &mut self.nodes {
                    if open.at.is_err() && id(&open.node) == own {
                        open.at = Err(orphan.clone());
                    }
                }
            }
        }
    }

    fn check_all(&mut self) {
        self.store.sync().expect("all is flushed");
        for (at, file) in &self.files {
            let node = self.store.open(&path(at), &READ).expect("it exists").node;
            assert!(content(&*node) == *file, "{at}");
        }
    }
}

fn apply(file: &mut Vec<u8>, data: &[u8], offset: usize) {
    let end = offset + data.len();
    file.resize(file.len().max(end), 0);
    file[offset..end].copy_from_slice(data);
}

fn check_read(node: &dyn Node, file: &[u8], offset: usize, length: usize, step: usize, at: &str) {
    let mut buffer = vec![0xEE; length];
    let count = node.read_at(&mut buffer, offset as u64);
    let count = count.unwrap_or_else(|error| panic!("step {step}: {error}"));
    let end = (offset + length).min(file.len());
    let expected = &file[offset.min(end)..end];
    assert_eq!(
        count,
        expected.len(),
        "step {step}: {at}, {length} bytes at {offset} of {}",
        file.len()
    );
    assert!(
        buffer[..count] == *expected,
        "step {step}: {at}, {length} bytes at {offset}"
    );
}
