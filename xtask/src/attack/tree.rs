//! Trees by seed, and changes of other programs between two runs.
//!
//! Every content is unique. So a hash identifies the version of a file, and a mixture of two versions is
//! unknown.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, FileTimes};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ropeway_lab::random::SplitMix64 as Rng;
use walkdir::WalkDir;

use super::snapshot::{Hash, Snapshot, is_temporary, read_node};
use crate::process::capture;

/// All whole contents that a path has ever had, on either side.
#[derive(Debug, Default)]
pub(crate) struct History {
    known: HashMap<PathBuf, HashSet<Hash>>,
    /// Files that were rewritten with their size and modification time kept.
    pub(crate) stealthy: HashSet<PathBuf>,
    versions: u64,
}

impl History {
    /// Records all contents of a tree.
    pub(crate) fn learn(&mut self, tree: &Snapshot) {
        for (path, node) in tree {
            if let Some(hash) = node.hash() {
                self.known.entry(path.clone()).or_default().insert(hash);
            }
        }
    }

    /// Whether a content is a whole version of this file.
    pub(crate) fn is_version(&self, path: &Path, hash: &Hash) -> bool {
        self.known.get(path).is_some_and(|known| known.contains(hash))
    }

    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    fn renamed(&mut self, root: &Path, from: &Path, to: &Path) -> Result<()> {
        if self.stealthy.contains(from.strip_prefix(root)?) {
            self.stealthy.insert(to.strip_prefix(root)?.to_path_buf());
        }
        Ok(())
    }

    fn learn_one(&mut self, root: &Path, file: &Path) -> Result<()> {
        let below = file.strip_prefix(root)?.to_path_buf();
        if let Some(hash) = read_node(file)?.hash() {
            self.known.entry(below.clone()).or_default().insert(hash);
        }
        self.stealthy.insert(below);
        Ok(())
    }
}

/// Size and kinds of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of small files.
    pub(crate) files: u64,
    /// Number of files of some MiB, which an interrupted copy continues.
    pub(crate) big: u64,
    /// Whether there are links, FIFOs and hard links.
    pub(crate) odd_kinds: bool,
}

/// Creates a tree at `root`, which must not exist.
///
/// # Errors
/// It cannot be written.
pub(crate) fn make(root: &Path, shape: Shape, rng: &mut Rng, history: &mut History) -> Result<()> {
    fs::create_dir_all(root)?;
    let mut folders = vec![PathBuf::new()];
    for number in 0..2 + rng.below(4) {
        let above = &folders[rng.below(folders.len() as u64) as usize];
        folders.push(above.join(format!("d{number}")));
    }
    for folder in &folders {
        fs::create_dir_all(root.join(folder))?;
    }
    for number in 0..shape.files {
        let folder = &folders[rng.below(folders.len() as u64) as usize];
        let name = match rng.below(12) {
            0 => format!("f{number}.tmp"),
            1 => format!("f {number} é"),
            _ => format!("f{number}"),
        };
        write_file(&root.join(folder).join(name), small_size(rng), rng, history)?;
    }
    for number in 0..shape.big {
        let folder = &folders[rng.below(folders.len() as u64) as usize];
        let size = (3 << 20) + rng.below(9 << 20);
        write_file(
            &root.join(folder).join(format!("big{number}")),
            size,
            rng,
            history,
        )?;
    }
    if shape.odd_kinds {
        add_odd_kinds(root, &folders, rng)?;
    }
    for folder in folders.iter().rev() {
        set_time(&root.join(folder), random_time(rng))?;
    }
    Ok(())
}

fn add_odd_kinds(root: &Path, folders: &[PathBuf], rng: &mut Rng) -> Result<()> {
    for number in 0..rng.below(4) {
        let folder = root.join(&folders[rng.below(folders.len() as u64) as usize]);
        let path = folder.join(format!("o{number}"));
        match rng.below(3) {
            0 => symlink(format!("target {number}"), &path)?,
            1 => make_fifo(&path)?,
            _ => {
                if let Some(file) = any_file(root, rng)? {
                    fs::hard_link(file, &path)?;
                }
            }
        }
    }
    Ok(())
}

fn make_fifo(path: &Path) -> Result<()> {
    capture(std::process::Command::new("mkfifo").arg(path)).map(drop)
}

fn small_size(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => 0,
        1 => 1 + rng.below(1 << 20),
        _ => 1 + rng.below(70_000),
    }
}

/// Writes a file with a new content, a random time and a random mode.
fn write_file(path: &Path, size: u64, rng: &mut Rng, history: &mut History) -> Result<()> {
    let shown = || format!("cannot write {}", path.display());
    let mut file = File::create(path).with_context(shown)?;
    file.write_all(&content(size, history.next_version()))
        .with_context(shown)?;
    let mode = [0o644, 0o600, 0o755, 0o440][rng.below(4) as usize];
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    set_time(path, random_time(rng))
}

/// Returns the bytes of a version, which are unique.
fn content(size: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    Rng::new(version).fill(&mut bytes);
    bytes
}

/// Returns a random time of the last years, in steps of 100 ns as in SMB.
fn random_time(rng: &mut Rng) -> SystemTime {
    let seconds = 1_500_000_000 + rng.below(200_000_000);
    UNIX_EPOCH + Duration::new(seconds, rng.below(10_000_000) as u32 * 100)
}

fn set_time(path: &Path, time: SystemTime) -> Result<()> {
    let times = FileTimes::new().set_accessed(time).set_modified(time);
    File::open(path)
        .and_then(|file| file.set_times(times))
        .with_context(|| format!("cannot set the time of {}", path.display()))
}

/// Returns the regular files below a folder, in order.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let nodes = nodes(root)?;
    let is_file = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    Ok(nodes.into_iter().filter(is_file).collect())
}

/// Returns all nodes below a folder except temporary ones, in order.
fn nodes(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = WalkDir::new(root).min_depth(1).into_iter();
    let entries = entries.filter_entry(|entry| !is_temporary(entry));
    let mut found = entries
        .map(|entry| Ok(entry?.into_path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    found.sort();
    Ok(found)
}

fn any_file(root: &Path, rng: &mut Rng) -> Result<Option<PathBuf>> {
    let files = files(root)?;
    Ok(files.get(rng.below(files.len() as u64) as usize).cloned())
}

/// Changes a tree as another program does. A tree keeps at least one file, and special kinds are added only
/// with `odd_kinds`.
///
/// # Errors
/// It cannot be changed.
pub(crate) fn change(root: &Path, odd_kinds: bool, rng: &mut Rng, history: &mut History) -> Result<()> {
    let all = nodes(root)?;
    let files = files(root)?;
    if files.len() < 3 {
        return Ok(());
    }
    let any = &all[rng.below(all.len() as u64) as usize];
    let file = &files[rng.below(files.len() as u64) as usize];
    match rng.below(if odd_kinds { 11 } else { 9 }) {
        0 => write_file(file, small_size(rng), rng, history),
        1 => rewrite_stealthily(root, file, history),
        2 => turn_into_folder(file, rng, history),
        3 if is_folder(any) && files.iter().filter(|file| !file.starts_with(any)).count() > 2 => {
            fs::remove_dir_all(any)?;
            write_file(any, small_size(rng), rng, history)
        }
        4 => fs::remove_file(file).map_err(Into::into),
        5 => {
            let moved = file.with_extension("moved");
            fs::rename(file, &moved)?;
            history.renamed(root, file, &moved)
        }
        6 => {
            fs::set_permissions(file, fs::Permissions::from_mode(0o640))?;
            Ok(())
        }
        7 => set_time(file, random_time(rng)),
        8 => {
            let path = root.join(format!("new{}", rng.below(9)));
            match fs::symlink_metadata(&path) {
                // It has another kind by now.
                Ok(found) if !found.is_file() => Ok(()),
                _ => write_file(&path, small_size(rng), rng, history),
            }
        }
        9 => {
            fs::remove_file(file)?;
            symlink("elsewhere", file).map_err(Into::into)
        }
        10 => {
            fs::remove_file(file)?;
            make_fifo(file)
        }
        _ => Ok(()),
    }
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn turn_into_folder(file: &Path, rng: &mut Rng, history: &mut History) -> Result<()> {
    fs::remove_file(file)?;
    fs::create_dir(file)?;
    write_file(&file.join("inside"), small_size(rng), rng, history)
}

/// Rewrites a file like `cp -p` over it: other bytes, the same size and modification time.
fn rewrite_stealthily(root: &Path, file: &Path, history: &mut History) -> Result<()> {
    let metadata = fs::metadata(file)?;
    let bytes = content(metadata.len(), history.next_version());
    File::options().write(true).open(file)?.write_all_at(&bytes, 0)?;
    set_time(file, metadata.modified()?)?;
    // All hard links of the file have the new content.
    let inode = fs::metadata(file)?.ino();
    for name in files(root)? {
        if fs::metadata(&name)?.ino() == inode {
            history.learn_one(root, &name)?;
        }
    }
    Ok(())
}
