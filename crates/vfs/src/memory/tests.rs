use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use ropeway_block::{Block, Pool};

use super::*;
use crate::{CacheMode, File, Tree};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

/// Returns the output of a future that is ready at once.
fn now<T>(future: crate::Pending<'_, T>) -> T {
    future.now_or_never().expect("memory never waits")
}

fn block(pool: &Pool, bytes: &[u8]) -> Block {
    let mut block = pool.try_get().unwrap();
    block.capacity_mut()[..bytes.len()].copy_from_slice(bytes);
    block.set_len(bytes.len());
    block.freeze()
}

fn open(tree: &MemoryTree, at: &str, create: Create) -> Arc<dyn File> {
    now(tree.open(&path(at), OpenOptions::write(create, CacheMode::Auto))).unwrap()
}

#[test]
fn holes_and_synthetic_files_cost_no_memory() {
    let tree = MemoryTree::new();
    tree.insert_file(&path("a/b/sparse"), b"x").unwrap();
    now(open(&tree, "a/b/sparse", Create::No).set_len(1 << 40)).unwrap();
    tree.insert_synthetic(&path("noise"), 4 << 30, 7).unwrap();
    assert_eq!(tree.shared.lock().used, content::PAGE);
    let pool = Pool::new(8192, 1);
    let file = open(&tree, "noise", Create::No);
    let (read, result) = now(file.read_at(pool.try_get().unwrap(), (3 << 30) + 5, 5000));
    result.unwrap();
    let mut wanted = vec![0; 5000];
    synthetic(7, (3 << 30) + 5, &mut wanted);
    assert_eq!(&read[..], wanted);
    drop(read);
    // Writing into it keeps the bytes around.
    now(file.write_at(block(&pool, b"hello"), (3 << 30) + 100)).unwrap();
    wanted[95..100].copy_from_slice(b"hello");
    let (read, _) = now(file.read_at(pool.try_get().unwrap(), (3 << 30) + 5, 5000));
    assert_eq!(&read[..], wanted);
}

#[test]
fn a_discarding_tree_keeps_lengths() {
    let tree = MemoryTree::new().with_discard().with_space(10_000);
    let pool = Pool::new(8192, 1);
    let file = open(&tree, "file", Create::New);
    now(file.write_at(block(&pool, &[1; 8000]), 0)).unwrap();
    assert_eq!(now(file.metadata()).unwrap().size, 8000);
    let full = now(file.write_at(block(&pool, &[1; 8000]), 8000)).unwrap_err();
    assert_eq!(full.kind, ErrorKind::NoSpace);
    assert_eq!(now(tree.space()).unwrap().available, 2000);
}

#[test]
fn space_runs_out_and_is_freed_again() {
    let tree = MemoryTree::new().with_space(8 * content::PAGE);
    let pool = Pool::new(8 * 4096, 1);
    let file = open(&tree, "file", Create::New);
    now(file.write_at(block(&pool, &[1; 7 * 4096]), 0)).unwrap();
    let full = now(file.write_at(block(&pool, &[1; 8192]), 7 * 4096)).unwrap_err();
    assert_eq!(full.kind, ErrorKind::NoSpace);
    assert_eq!(now(file.allocate(9 * 4096)).unwrap_err().kind, ErrorKind::NoSpace);
    now(file.punch_hole(4096, 8192)).unwrap();
    now(file.write_at(block(&pool, &[1; 8192]), 7 * 4096)).unwrap();
    now(tree.remove_file(&path("file"))).unwrap();
    assert_eq!(
        now(tree.space()).unwrap().available,
        4096,
        "an open file keeps its room"
    );
    drop(file);
    assert_eq!(now(tree.space()).unwrap().available, 8 * content::PAGE);
}

#[test]
fn a_crash_keeps_what_was_synced() {
    let tree = MemoryTree::new().with_crash_model();
    let pool = Pool::new(1 << 16, 1);
    now(tree.make_dir(&path("dir"), 0o755)).unwrap();
    let kept = open(&tree, "dir/kept", Create::New);
    now(kept.write_at(block(&pool, &[1; 20_000]), 0)).unwrap();
    now(kept.sync(false)).unwrap();
    now(tree.sync_dir(&path("dir"))).unwrap();
    let torn = open(&tree, "dir/torn", Create::New);
    now(torn.write_at(block(&pool, &[2; 60_000]), 0)).unwrap();
    now(kept.write_at(block(&pool, &[3; 4096]), 8192)).unwrap();
    now(tree.rename(&path("dir/torn"), &path("dir/final"), false)).unwrap();
    let mut outcomes = BTreeMap::new();
    for seed in 0..200 {
        let after = tree.crash(seed);
        let content = after.content(&path("dir/kept")).unwrap();
        assert_eq!(content.len(), 20_000);
        assert!(
            content[..8192]
                .iter()
                .chain(&content[12_288..])
                .all(|byte| *byte == 1)
        );
        assert!(
            content[8192..12_288].iter().all(|byte| [1, 3].contains(byte)),
            "old or new bytes"
        );
        let torn = ["dir/torn", "dir/final"].map(|at| after.content(&path(at)).map(|bytes| bytes.len()).ok());
        assert!(torn.iter().flatten().count() <= 1, "a rename happened or not");
        *outcomes.entry(torn.map(|length| length.is_some())).or_insert(0) += 1;
        for byte in torn
            .iter()
            .zip(["dir/torn", "dir/final"])
            .filter(|(length, _)| length.is_some())
        {
            let bytes = after.content(&path(byte.1)).unwrap();
            assert!(bytes.iter().all(|byte| [0, 2].contains(byte)));
        }
        assert_eq!(
            tree.crash(seed).content(&path("dir/kept")).unwrap(),
            content,
            "by seed"
        );
    }
    assert_eq!(outcomes.len(), 3, "not there, old name, new name: {outcomes:?}");
    now(tree.sync()).unwrap();
    for seed in 0..20 {
        let after = tree.crash(seed);
        assert_eq!(after.content(&path("dir/final")).unwrap(), [2; 60_000]);
        assert_eq!(after.shared.lock().used, tree.shared.lock().used);
    }
}

#[test]
fn a_file_that_was_not_synced_may_be_lost_under_its_final_name() {
    let tree = MemoryTree::new().with_crash_model();
    let pool = Pool::new(1 << 16, 1);
    tree.insert_file(&path("file"), b"old and durable").unwrap();
    now(tree.sync()).unwrap();
    let file = open(&tree, "tmp", Create::New);
    now(file.write_at(block(&pool, b"new"), 0)).unwrap();
    now(tree.rename(&path("tmp"), &path("file"), true)).unwrap();
    now(tree.sync_dir(&RelPath::root())).unwrap();
    let lost = (0..50).any(|seed| tree.crash(seed).content(&path("file")).unwrap() != b"new");
    assert!(lost, "the model shows the missing fsync");
    now(file.sync(true)).unwrap();
    assert!((0..50).all(|seed| tree.crash(seed).content(&path("file")).unwrap() == b"new"));
}

#[derive(Clone, Debug)]
enum Action {
    Write(usize, u8, usize, usize),
    SetLen(usize, usize),
    Punch(usize, usize, usize),
    Remove(usize),
    Rename(usize, usize, bool),
    Link(usize, usize),
    Sync(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let (file, at) = (0..5_usize, 0..40_000_usize);
    prop_oneof![
        (file.clone(), 1..=255_u8, at.clone(), 0..9_000_usize)
            .prop_map(|(f, b, o, l)| Action::Write(f, b, o, l)),
        (file.clone(), at.clone()).prop_map(|(f, l)| Action::SetLen(f, l)),
        (file.clone(), at.clone(), at).prop_map(|(f, o, l)| Action::Punch(f, o, l)),
        file.clone().prop_map(Action::Remove),
        (file.clone(), file.clone(), any::<bool>()).prop_map(|(a, b, r)| Action::Rename(a, b, r)),
        (file.clone(), file.clone()).prop_map(|(a, b)| Action::Link(a, b)),
        file.prop_map(Action::Sync),
    ]
}

/// Names to files, files to bytes: as simple as possible.
#[derive(Default)]
struct Model {
    names: BTreeMap<usize, usize>,
    files: Vec<Vec<u8>>,
}

impl Model {
    fn apply(&mut self, action: &Action) -> Result<(), ErrorKind> {
        let find = |names: &BTreeMap<usize, usize>, file: &usize| names.get(file).copied();
        match action {
            Action::Write(file, byte, offset, length) => {
                let fresh = self.files.len();
                let index = *self.names.entry(*file).or_insert(fresh);
                if index == fresh {
                    self.files.push(Vec::new());
                }
                let bytes = &mut self.files[index];
                if *length > 0 {
                    bytes.resize(bytes.len().max(offset + length), 0);
                    bytes[*offset..offset + length].fill(*byte);
                }
            }
            Action::SetLen(file, length) => {
                let index = find(&self.names, file).ok_or(ErrorKind::NotFound)?;
                self.files[index].resize(*length, 0);
            }
            Action::Punch(file, offset, length) => {
                let index = find(&self.names, file).ok_or(ErrorKind::NotFound)?;
                let size = self.files[index].len();
                self.files[index][(*offset).min(size)..(offset + length).min(size)].fill(0);
            }
            Action::Remove(file) => {
                self.names.remove(file).ok_or(ErrorKind::NotFound)?;
            }
            Action::Rename(from, to, replace) => {
                let index = find(&self.names, from).ok_or(ErrorKind::NotFound)?;
                match find(&self.names, to) {
                    _ if from == to => {}
                    Some(_) if !replace => return Err(ErrorKind::AlreadyExists),
                    Some(other) if other == index => {}
                    _ => {
                        self.names.remove(from);
                        self.names.insert(*to, index);
                    }
                }
            }
            Action::Link(from, to) => {
                let index = find(&self.names, from).ok_or(ErrorKind::NotFound)?;
                if self.names.contains_key(to) {
                    return Err(ErrorKind::AlreadyExists);
                }
                self.names.insert(*to, index);
            }
            Action::Sync(file) => {
                find(&self.names, file).ok_or(ErrorKind::NotFound)?;
            }
        }
        Ok(())
    }
}

fn carry_out(tree: &MemoryTree, pool: &Pool, action: &Action) -> Result<()> {
    let at = |file: &usize| path(&format!("dir/{file}"));
    let open = |file: &usize, create| now(tree.open(&at(file), OpenOptions::write(create, CacheMode::Auto)));
    match action {
        Action::Write(file, byte, offset, length) => {
            let file = open(file, Create::IfMissing)?;
            now(file.write_at(block(pool, &vec![*byte; *length]), *offset as u64))
        }
        Action::SetLen(file, length) => now(open(file, Create::No)?.set_len(*length as u64)),
        Action::Punch(file, offset, length) => {
            now(open(file, Create::No)?.punch_hole(*offset as u64, *length as u64))
        }
        Action::Remove(file) => now(tree.remove_file(&at(file))),
        Action::Rename(from, to, replace) => now(tree.rename(&at(from), &at(to), *replace)),
        Action::Link(from, to) => now(tree.make_hard_link(&at(from), &at(to))),
        Action::Sync(file) => now(open(file, Create::No)?.sync(false)),
    }
}

fn holds(tree: &MemoryTree, model: &Model) {
    for file in 0..5 {
        let found = tree.content(&path(&format!("dir/{file}")));
        match model.names.get(&file) {
            Some(index) => assert!(found.unwrap() == model.files[*index], "content of {file}"),
            None => assert_eq!(found.unwrap_err().kind, ErrorKind::NotFound),
        }
    }
    let indices: std::collections::BTreeSet<_> = model.names.values().collect();
    let state = tree.shared.lock();
    if state.log.is_none() {
        assert_eq!(state.nodes.len(), indices.len() + 2, "nothing is left behind");
    }
    for node in state.nodes.values() {
        let nodes::Body::File(content) = &node.body else {
            continue;
        };
        let mut at = 0;
        let mut data = 0;
        while let Some(extent) = content.next_extent(at) {
            assert!(extent.offset >= at && extent.length > 0);
            at = extent.offset + extent.length;
            data += extent.length;
        }
        assert!(at <= content.size() && data <= content.allocated());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_memory_tree_behaves_like_a_plain_model(actions in prop::collection::vec(action(), 1..60), crash_model: bool) {
        let pool = Pool::new(1 << 16, 1);
        let mut tree = MemoryTree::new();
        if crash_model {
            tree = tree.with_crash_model();
        }
        now(tree.make_dir(&path("dir"), 0o755)).unwrap();
        let mut model = Model::default();
        for action in &actions {
            let wanted = model.apply(action);
            let found = carry_out(&tree, &pool, action).map_err(|error| error.kind);
            prop_assert_eq!(found, wanted, "{:?}", action);
        }
        holds(&tree, &model);
        if crash_model {
            now(tree.sync()).unwrap();
            holds(&tree.crash(1), &model);
        }
        for file in model.names.keys() {
            now(tree.remove_file(&path(&format!("dir/{file}")))).unwrap();
        }
        now(tree.sync()).unwrap();
        prop_assert_eq!(tree.shared.lock().used, 0);
        prop_assert_eq!(tree.shared.lock().nodes.len(), 2);
    }
}

#[test]
fn failed_write_back_is_told_once_to_each_and_lost_for_good() {
    let tree = MemoryTree::new().with_crash_model();
    let path = RelPath::parse(b"file").unwrap();
    tree.insert_file(&path, &[7; 64 << 10]).unwrap();
    let other = tree.reopen();
    assert!(tree.fail_writeback(1));
    let sync = |tree: &MemoryTree| now(tree.sync()).is_err();
    assert_eq!([sync(&tree), sync(&tree)], [true, false]);
    assert_eq!([sync(&other), sync(&other)], [true, false]);
    assert!(!sync(&tree.reopen()), "others were told");
    assert_eq!(tree.content(&path).unwrap(), [7; 64 << 10], "the cache has it");
    let after = tree.crash(3).content(&path).unwrap();
    assert_ne!(after, [7; 64 << 10], "the device has not");
}
