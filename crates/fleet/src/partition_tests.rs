use std::collections::{BTreeMap, BTreeSet};

use ropeway_vfs::{Kind, Metadata, Timestamp};

use super::*;
use crate::cut::Collector;

type Tree = BTreeMap<RelPath, Vec<(Name, bool)>>;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Makes a tree with `count` entries, of which one in six is a folder.
fn tree(random: &mut fastrand::Rng, count: usize) -> Tree {
    let mut tree = Tree::from([(RelPath::root(), Vec::new())]);
    for number in 0..count {
        let folders: Vec<RelPath> = tree.keys().cloned().collect();
        let folder = random.choice(&folders).unwrap().clone();
        let is_dir = random.u8(0..6) == 0;
        let entry = name(&format!("n{number}"));
        if is_dir {
            tree.insert(folder.join(&entry), Vec::new());
        }
        tree.get_mut(&folder).unwrap().push((entry, is_dir));
    }
    tree
}

fn collected(tree: &Tree, path: &RelPath, scope: &Scope, limits: WalkLimits, seed: u64) -> Collected {
    let range = match scope {
        Scope::Range(range) => range.clone(),
        Scope::Names(_) => NameRange::default(),
    };
    let mut collector = Collector::new(range, limits.entries_max, fastrand::Rng::with_seed(seed));
    for (name, is_dir) in tree.get(path).into_iter().flatten() {
        let kind = if *is_dir { Kind::Directory } else { Kind::File };
        if scope.contains(name) {
            collector.push(Entry {
                key: name.clone(),
                name: name.clone(),
                metadata: Metadata::bare(kind, 1, Timestamp(0)),
            });
        }
    }
    collector.finish()
}

/// Runs tasks until none is left; some walks stop anywhere and are begun again. Returns how often
/// each entry was taken by walks that ended, and the number of tasks.
fn run(tree: &Tree, random: &mut fastrand::Rng, limits: WalkLimits) -> (BTreeMap<RelPath, u32>, usize) {
    let mut todo = vec![Task::root()];
    let mut known = BTreeSet::from([Task::root().id()]);
    let mut taken = BTreeMap::new();
    while let Some(task) = todo.pop() {
        let mut given: Vec<Task> = Vec::new();
        loop {
            let mut walk = Walk::new(&task, given.clone(), limits);
            let mut now = Vec::new();
            let dies = random.u8(0..4) == 0;
            let has_ended = loop {
                if dies && random.u8(0..10) == 0 {
                    break false;
                }
                let mut gives = Vec::new();
                if random.u8(0..8) == 0 {
                    given.extend(walk.split(random.usize(0..4)));
                }
                match walk.advance() {
                    Next::List { path, scope } => {
                        gives.extend(walk.listed(collected(tree, &path, &scope, limits, random.u64(..))));
                    }
                    Next::Node { folder, entry } | Next::Folder { folder, entry } => {
                        now.push(folder.join(&entry.name));
                    }
                    Next::Give(tasks) => gives.extend(tasks),
                    Next::Finished => break true,
                }
                assert!(walk.held() <= limits.held_max + limits.entries_max);
                // Recorded at once.
                given.extend(gives.iter().cloned());
            };
            if has_ended {
                assert!(now.len() <= limits.entries_max);
                now.into_iter()
                    .for_each(|path| *taken.entry(path).or_insert(0) += 1);
                break;
            }
        }
        for task in given {
            if known.insert(task.id()) {
                todo.push(task);
            }
        }
    }
    (taken, known.len())
}

#[test]
fn each_entry_belongs_to_one_task_whatever_is_given_away_or_dies() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = WalkLimits {
            entries_max: random.usize(1..30),
            held_max: random.usize(1..40),
            split_min: random.usize(1..4),
        };
        let count = random.usize(0..150);
        let tree = tree(&mut random, count);
        let (taken, _) = run(&tree, &mut random, limits);
        assert_eq!(taken.len(), count, "seed {seed}");
        let twice: Vec<_> = taken.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "seed {seed}: {limits:?} {twice:?}");
    }
}

#[test]
fn tasks_are_few_although_entries_are_many() {
    let mut random = fastrand::Rng::with_seed(7);
    let tree = tree(&mut random, 6_000);
    let limits = WalkLimits {
        entries_max: 200,
        held_max: 600,
        split_min: 32,
    };
    let mut todo = vec![Task::root()];
    let (mut tasks, mut entries) = (0, 0);
    while let Some(task) = todo.pop() {
        tasks += 1;
        let mut walk = Walk::new(&task, Vec::new(), limits);
        loop {
            match walk.advance() {
                Next::List { path, scope } => {
                    todo.extend(walk.listed(collected(&tree, &path, &scope, limits, 1)))
                }
                Next::Give(tasks) => todo.extend(tasks),
                Next::Finished => break,
                _ => entries += 1,
            }
        }
    }
    assert_eq!(entries, 6_000);
    assert!(tasks < 400, "{tasks} tasks");
}

/// Begins a walk, and takes `taken` entries.
fn begun(tree: &Tree, sizes: impl Fn(&Name) -> u64, taken: usize) -> Walk {
    let limits = WalkLimits::default();
    let mut walk = Walk::new(&Task::root(), Vec::new(), limits);
    let Next::List { path, scope } = walk.advance() else {
        panic!("a listing first");
    };
    let Collected::Entries(mut entries) = collected(tree, &path, &scope, limits, 1) else {
        panic!("few entries");
    };
    for entry in &mut entries {
        entry.metadata.size = sizes(&entry.name);
    }
    walk.listed(Collected::Entries(entries));
    for _ in 0..taken {
        walk.advance();
    }
    walk
}

fn range(after: &str, until: Option<&str>) -> Task {
    let range = NameRange {
        after: Some(name(after)),
        until: until.map(name),
    };
    Task::folder(0, RelPath::root(), Scope::Range(range))
}

#[test]
fn a_split_gives_shares_of_the_shallowest_folder() {
    let folder = |text: &str| (name(text), true);
    let tree = Tree::from([
        (RelPath::root(), ["a", "b", "c", "d"].map(folder).to_vec()),
        (RelPath::parse(b"a").unwrap(), vec![(name("x"), false)]),
    ]);
    assert_eq!(begun(&tree, |_| 0, 1).split(1), [range("b", None)]);
    let three = [range("c", None), range("b", Some("c")), range("a", Some("b"))];
    // It keeps what is below `a`.
    assert_eq!(begun(&tree, |_| 0, 1).split(2), three[..2]);
    assert!(begun(&tree, |_| 0, 1).split(0).is_empty());
    // Nothing is begun: it keeps one folder.
    assert_eq!(begun(&tree, |_| 0, 0).split(8), three);
}

#[test]
fn shares_have_the_same_weight_and_what_is_light_is_not_split() {
    let files = ["a", "b", "c", "d", "e"].map(|text| (name(text), false));
    let tree = Tree::from([(RelPath::root(), files.to_vec())]);
    assert!(begun(&tree, |_| 1 << 18, 0).split(4).is_empty());
    assert_eq!(begun(&tree, |_| 32 << 20, 0).split(1), [range("b", None)]);
    let first = |name: &Name| {
        if name.as_bytes() == b"a" {
            1 << 40
        } else {
            32 << 20
        }
    };
    assert_eq!(begun(&tree, first, 0).split(3), [range("a", None)]);
}
