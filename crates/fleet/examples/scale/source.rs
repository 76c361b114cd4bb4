//! A source that is computed: each folder is a pure function of its path and the seed.
//!
//! A folder has the number of entries below it in its name, so nothing has to be remembered. Names
//! that begin with `d` are folders, with `h` huge folders without folders in them, with `f` files,
//! and with `x` large files.

use std::any::Any;
use std::sync::Arc;

use ropeway_block::BlockMut;
use ropeway_vfs::{
    Capabilities, DirEntry, Error, ErrorKind, Extent, File, FileId, Kind, Listing, Loss, Metadata,
    MetadataChange, Name, Op, OpenOptions, Pending, RelPath, Result, Space, Timestamp, Tree, Xattr,
};

/// Contents that files have. Few, so that the hashes of the catalog compress.
pub(crate) const CONTENTS: u64 = 16;

/// Large files, in the root.
const LARGE: u64 = 3;

/// Their size: ten parts each.
const LARGE_BYTES: u64 = 9 << 30;

/// Of so many pairs of files one is a file of two names.
const LINKED_EACH: u64 = 40_000;

/// Begin of the times of the source, in seconds since 1970.
const EPOCH_S: u64 = 1_700_000_000;

/// The generated tree.
pub(crate) struct Source {
    entries: u64,
    seed: u64,
    capabilities: Capabilities,
}

/// What a folder holds.
struct Plan {
    /// Number from which its files follow.
    hash: u64,
    files: u64,
    large: u64,
    /// Names of its folders.
    folders: Vec<Vec<u8>>,
}

/// Mixes the bits of a number (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the number of a path, from which everything in it follows.
fn hash_of(seed: u64, path: &RelPath) -> u64 {
    let mut hash = mix(seed);
    for part in path.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

/// Sizes of the folders that are cut by ranges of names, for a tree of so many entries.
fn huge(entries: u64) -> Vec<u64> {
    match entries {
        1_000_000_000.. => vec![5_000_000, 1_000_000, 1_000_000, 1_000_000],
        100_000_000.. => vec![1_000_000, 1_000_000],
        1_000_000.. => vec![200_000],
        _ => Vec::new(),
    }
}

impl Source {
    /// Makes a tree of exactly `entries` entries, the root not counted.
    pub(crate) fn new(entries: u64, seed: u64, capabilities: Capabilities) -> Self {
        Self {
            entries,
            seed,
            capabilities,
        }
    }

    /// Returns what a folder holds; `None` if there is no such folder.
    fn plan(&self, path: &RelPath) -> Option<Plan> {
        let hash = hash_of(self.seed, path);
        let mut plan = Plan {
            hash,
            files: 0,
            large: 0,
            folders: Vec::new(),
        };
        if path.is_root() {
            plan.large = LARGE.min(self.entries);
            let mut left = self.entries - plan.large;
            for (size, number) in huge(self.entries).into_iter().zip(0..) {
                plan.folders.push(folder_name(b'h', number, size));
                left -= size + 1;
            }
            plan.divide(left, 1);
            return Some(plan);
        }
        let name = path.file_name()?;
        let budget = below(name.as_bytes())?;
        match name.as_bytes()[0] {
            b'h' => plan.files = budget,
            _ => plan.divide(budget, 0),
        }
        Some(plan)
    }

    fn lookup_one(&self, path: &RelPath) -> Option<Metadata> {
        let Some(name) = path.file_name() else {
            return Some(self.folder_metadata(path));
        };
        match name.as_bytes()[0] {
            b'd' | b'h' => below(name.as_bytes()).map(|_| self.folder_metadata(path)),
            kind => {
                let plan = self.plan(&path.parent()?)?;
                let digits = std::str::from_utf8(name.as_bytes().get(1..9)?).ok()?;
                let index: u64 = digits.parse().ok()?;
                match kind {
                    b'x' => (index < plan.large).then(|| large_metadata(index)),
                    _ => (index < plan.files).then(|| plan.file_metadata(index)),
                }
            }
        }
    }

    fn folder_metadata(&self, path: &RelPath) -> Metadata {
        folder_metadata(hash_of(self.seed, path))
    }

    fn absent<T>(op: Op, path: &RelPath) -> Result<T> {
        Err(Error::new(op, path, ErrorKind::NotFound))
    }
}

/// Returns how many entries are below a folder of this name.
fn below(name: &[u8]) -> Option<u64> {
    let dot = name.iter().position(|byte| *byte == b'.')?;
    std::str::from_utf8(&name[dot + 1..]).ok()?.parse().ok()
}

fn folder_name(kind: u8, number: u64, below: u64) -> Vec<u8> {
    format!("{}{number:03}.{below}", char::from(kind)).into_bytes()
}

fn folder_metadata(hash: u64) -> Metadata {
    let modified = Timestamp(i128::from(time_of(hash)) * 1_000_000_000);
    let mut metadata = Metadata::bare(Kind::Directory, 0, modified);
    metadata.mode = Some(0o755);
    metadata
}

fn time_of(hash: u64) -> u64 {
    EPOCH_S + hash % 50_000_000
}

fn large_metadata(index: u64) -> Metadata {
    let modified = Timestamp(i128::from(EPOCH_S) * 1_000_000_000);
    Metadata {
        mode: Some(0o644),
        changed: Some(modified),
        ..Metadata::bare(Kind::File, LARGE_BYTES + index, modified)
    }
}

impl Plan {
    /// Divides what is below a folder between its files and its folders.
    fn divide(&mut self, below: u64, is_root: u64) {
        let mut random = fastrand::Rng::with_seed(self.hash);
        if is_root == 0 && below <= random.u64(20..400) {
            self.files = below;
            return;
        }
        self.files = random.u64(0..80).min(below);
        let left = below - self.files;
        if left == 0 {
            return;
        }
        // Chains, wide folders, and what is usual.
        let wanted = match (is_root, random.u64(0..16)) {
            (0, 0) => 1,
            (0, 1) => random.u64(50..200),
            (0, _) => random.u64(2..12),
            _ => 64,
        };
        let count = wanted.min(left / 16).max(1);
        let weights: Vec<u64> = (0..count).map(|_| random.u64(1..16)).collect();
        let sum: u64 = weights.iter().sum();
        let inside = left.saturating_sub(count);
        let mut rest = inside;
        for (weight, number) in weights.into_iter().zip(0..) {
            let is_last = number + 1 == count;
            let share = if is_last { rest } else { inside / sum * weight };
            rest -= share;
            self.folders.push(folder_name(b'd', number, share));
        }
    }

    fn file_metadata(&self, index: u64) -> Metadata {
        let pair = index & !1;
        let of_pair = mix(self.hash ^ pair);
        let is_linked = of_pair.is_multiple_of(LINKED_EACH) && pair + 1 < self.files;
        let number = if is_linked { pair } else { index };
        let content = mix(self.hash.wrapping_add(number)) % CONTENTS;
        let modified = Timestamp(i128::from(time_of(self.hash)) * 1_000_000_000);
        // From 64 bytes to a megabyte; the low four bits say which content it is.
        let size = (64 << (content % 15)) + content;
        Metadata {
            mode: Some(0o644),
            changed: Some(modified),
            links: if is_linked { 2 } else { 1 },
            id: is_linked.then_some(FileId {
                volume: 1,
                index: of_pair,
            }),
            ..Metadata::bare(Kind::File, size, modified)
        }
    }
}

/// Returns the name of a file.
fn file_name(kind: u8, mut index: u64) -> Name {
    let mut text = *b"f00000000.dat";
    text[0] = kind;
    for digit in text[1..9].iter_mut().rev() {
        *digit = b'0' + (index % 10) as u8;
        index /= 10;
    }
    Name::new(&text).expect("letters and digits are a name")
}

struct GeneratedListing {
    seed: u64,
    path: RelPath,
    plan: Plan,
    at: u64,
    stride: u64,
}

impl GeneratedListing {
    fn entry(&self, at: u64) -> Option<DirEntry> {
        let folders = self.plan.folders.len() as u64;
        if let Some(name) = self.plan.folders.get(at as usize) {
            let name = Name::new(name)?;
            let path = self.path.join(&name);
            let metadata = folder_metadata(hash_of(self.seed, &path));
            return Some(DirEntry {
                name,
                metadata: Ok(metadata),
            });
        }
        let at = at - folders;
        if at < self.plan.large {
            return Some(DirEntry {
                name: file_name(b'x', at),
                metadata: Ok(large_metadata(at)),
            });
        }
        let at = at - self.plan.large;
        // Not in the order of names, as with real folders.
        (at < self.plan.files).then(|| {
            let index = at * self.stride % self.plan.files;
            DirEntry {
                name: file_name(b'f', index),
                metadata: Ok(self.plan.file_metadata(index)),
            }
        })
    }
}

impl Listing for GeneratedListing {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>> {
        let left = self.plan.folders.len() as u64 + self.plan.large + self.plan.files - self.at;
        let end = self.at + left.min(max as u64);
        let entries = (self.at..end).filter_map(|at| self.entry(at)).collect();
        self.at = end;
        Box::pin(async { Ok(entries) })
    }
}

/// A large file: one hole.
struct Hole {
    path: RelPath,
    metadata: Metadata,
}

macro_rules! refused {
    ($path:expr) => {
        Box::pin(async { Err(Error::new(Op::Write, &$path.clone(), ErrorKind::ReadOnly)) })
    };
}

impl File for Hole {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn path(&self) -> &RelPath {
        &self.path
    }
    fn metadata(&self) -> Pending<'_, Result<Metadata>> {
        Box::pin(async { Ok(self.metadata.clone()) })
    }
    fn read_at(
        &self,
        mut block: BlockMut,
        offset: u64,
        length: usize,
    ) -> Pending<'_, (BlockMut, Result<()>)> {
        let length = (self.metadata.size.saturating_sub(offset)).min(length as u64) as usize;
        block.capacity_mut()[..length].fill(0);
        block.set_len(length);
        Box::pin(async { (block, Ok(())) })
    }
    fn write_at(&self, _: ropeway_block::Block, _: u64) -> Pending<'_, Result<()>> {
        refused!(self.path)
    }
    fn next_extent(&self, _: u64) -> Pending<'_, Result<Option<Extent>>> {
        Box::pin(async { Ok(None) })
    }
    fn set_len(&self, _: u64) -> Pending<'_, Result<()>> {
        refused!(self.path)
    }
    fn allocate(&self, _: u64) -> Pending<'_, Result<()>> {
        refused!(self.path)
    }
    fn punch_hole(&self, _: u64, _: u64) -> Pending<'_, Result<()>> {
        refused!(self.path)
    }
    fn start_writeback(&self, _: u64, _: u64) -> Pending<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    fn wait_writeback(&self, _: u64, _: u64) -> Pending<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    fn sync(&self, _: bool) -> Pending<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    fn drop_cache(&self, _: u64, _: u64) -> Pending<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    fn cached(&self, _: u64, _: u64) -> Pending<'_, Result<Option<u64>>> {
        Box::pin(async { Ok(None) })
    }
    fn set_metadata<'a>(&'a self, _: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>> {
        refused!(self.path)
    }
    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl Tree for Source {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        format!("{} generated entries", self.entries)
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>> {
        let found = self.lookup_one(path);
        Box::pin(async move { found.map_or_else(|| Self::absent(Op::Stat, path), Ok) })
    }
    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>> {
        let found = names.iter().map(|name| Ok(self.lookup_one(&dir.join(name))));
        let found = found.collect();
        Box::pin(async { Ok(found) })
    }
    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let Some(plan) = self.plan(dir) else {
                return Self::absent(Op::List, dir);
            };
            // Primes: one of them has no divisor in common with the number of files.
            let stride = if plan.files.is_multiple_of(7_919) {
                7_907
            } else {
                7_919
            };
            let listing: Box<dyn Listing> = Box::new(GeneratedListing {
                seed: self.seed,
                path: dir.clone(),
                plan,
                at: 0,
                stride,
            });
            Ok(listing)
        })
    }
    fn open<'a>(&'a self, path: &'a RelPath, _: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let Some(metadata) = self.lookup_one(path) else {
                return Self::absent(Op::Open, path);
            };
            let file: Arc<dyn File> = Arc::new(Hole {
                path: path.clone(),
                metadata,
            });
            Ok(file)
        })
    }
    fn make_dir<'a>(&'a self, path: &'a RelPath, _: u32) -> Pending<'a, Result<()>> {
        refused!(path)
    }
    fn make_symlink<'a>(&'a self, path: &'a RelPath, _: &'a [u8]) -> Pending<'a, Result<()>> {
        refused!(path)
    }
    fn make_hard_link<'a>(&'a self, _: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        refused!(new)
    }
    fn make_special<'a>(&'a self, path: &'a RelPath, _: &'a Metadata) -> Pending<'a, Result<()>> {
        refused!(path)
    }
    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        refused!(path)
    }
    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        refused!(path)
    }
    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        refused!(path)
    }
    fn rename<'a>(&'a self, from: &'a RelPath, _: &'a RelPath, _: bool) -> Pending<'a, Result<()>> {
        refused!(from)
    }
    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        _: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        refused!(path)
    }
    fn xattrs<'a>(&'a self, _: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn space(&self) -> Pending<'_, Result<Space>> {
        let space = Space {
            total: 0,
            available: 0,
            nodes_available: None,
        };
        Box::pin(async move { Ok(space) })
    }
    fn sync(&self) -> Pending<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
    fn sync_dir<'a>(&'a self, _: &'a RelPath) -> Pending<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
