//! Three faults that foyer was found with, tried on both engines: compression without effect, a
//! full disk that ends writing, removed entries that come back after a restart.

use std::fs::{File, create_dir_all};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use foyer::Compression;
use ropeway_cache::{BLOCK_BYTES, FileKey};

use crate::ours::Ours;
use crate::replay::engine::{Content, content, key};
use crate::theirs::Theirs;
use crate::{Budget, Engine, Outcome};

const MIB: usize = 1 << 20;
const BLOCKS: u32 = 200;

/// Runs all and prints what happened.
pub(crate) fn all(dir: &Path) -> Outcome<()> {
    compression(dir)?;
    removed(dir)?;
    full(dir)
}

fn budget(flash: usize) -> Budget {
    // Next to no memory: what is found comes from the device.
    Budget {
        flash,
        memory: BLOCK_BYTES,
    }
}

fn fill(engine: &mut dyn Engine, blocks: std::ops::Range<u32>) -> Outcome<()> {
    let mut bytes = vec![0; BLOCK_BYTES];
    for block in blocks {
        content(block, Content::Half, &mut bytes);
        engine.insert(block, &bytes)?;
        engine.settle()?;
    }
    Ok(())
}

fn count(engine: &mut dyn Engine, blocks: std::ops::Range<u32>) -> usize {
    blocks.filter(|block| engine.has(*block).unwrap_or(false)).count()
}

/// Runs what may panic in a library; returns what happened.
fn survives(run: impl FnOnce() -> Outcome<()>) -> String {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => "succeeds".to_owned(),
        Ok(Err(error)) => format!("fails ({error})"),
        Err(_) => "panics".to_owned(),
    }
}

fn count_surviving(engine: &mut dyn Engine, blocks: std::ops::Range<u32>) -> String {
    let counted = catch_unwind(AssertUnwindSafe(|| count(engine, blocks)));
    counted.map_or_else(|_| "a panic instead".to_owned(), |count| count.to_string())
}

fn compression(dir: &Path) -> Outcome<()> {
    let taken = BLOCKS as usize * BLOCK_BYTES;
    println!("compression of {BLOCKS} blocks that LZ4 halves, {taken} bytes:");
    for setting in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let folder = tempfile::tempdir_in(dir)?;
        let mut theirs = Theirs::with(folder.path(), budget(64 * MIB), setting, false)?;
        fill(&mut theirs, 0..BLOCKS)?;
        println!("  foyer, {setting:?}: {} bytes written", theirs.written());
    }
    let folder = tempfile::tempdir_in(dir)?;
    let mut ours = Ours::new(folder.path(), budget(128 * MIB))?;
    fill(&mut ours, 0..BLOCKS)?;
    ours.cache.flush()?;
    println!("  ropeway: {} bytes written, with a checkpoint", ours.written());
    Ok(())
}

fn removed(dir: &Path) -> Outcome<()> {
    println!("{BLOCKS} blocks, half of them removed, then a restart:");
    for has_tombstones in [false, true] {
        let folder = tempfile::tempdir_in(dir)?;
        let open = || Theirs::with(folder.path(), budget(64 * MIB), Compression::None, has_tombstones);
        let mut theirs = open()?;
        fill(&mut theirs, 0..BLOCKS)?;
        for block in 0..BLOCKS / 2 {
            theirs.cache.remove(&u64::from(block));
        }
        theirs.settle()?;
        let before = count(&mut theirs, 0..BLOCKS / 2);
        theirs.runtime.block_on(theirs.cache.close())?;
        drop(theirs);
        let mut theirs = open()?;
        println!(
            "  foyer, tombstone log {has_tombstones}: {before} of the removed before, {} after, {} of the kept",
            count(&mut theirs, 0..BLOCKS / 2),
            count(&mut theirs, BLOCKS / 2..BLOCKS)
        );
    }
    let folder = tempfile::tempdir_in(dir)?;
    let mut ours = Ours::new(folder.path(), budget(128 * MIB))?;
    fill(&mut ours, 0..BLOCKS)?;
    // It forgets files, not blocks.
    let file: FileKey = key(0).file;
    ours.cache.forget(&file)?;
    drop(ours);
    let mut ours = Ours::new(folder.path(), budget(128 * MIB))?;
    println!(
        "  ropeway, the whole file forgotten: {} after",
        count(&mut ours, 0..BLOCKS)
    );
    Ok(())
}

/// A file system in memory, which is taken away at the end.
struct Volume(PathBuf);

impl Volume {
    fn new(at: PathBuf, mib: usize) -> Outcome<Self> {
        create_dir_all(&at)?;
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
            .arg(&at)
            .status()?;
        if !status.success() {
            return Err("cannot mount a tmpfs: run it as root".into());
        }
        Ok(Self(at))
    }

    fn resize(&self, mib: usize) -> Outcome<()> {
        let options = format!("remount,size={mib}m");
        Command::new("mount")
            .args(["-o", &options])
            .arg(&self.0)
            .status()?;
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A volume that is full after 16 MiB of a cache of 128 MiB, and later is not any more.
fn full(dir: &Path) -> Outcome<()> {
    println!("a volume that is full, and then has room again; blocks found that were inserted after that:");
    let folder = tempfile::tempdir_in(dir)?;
    let volume = Volume::new(folder.path().join("theirs"), 16)?;
    let mut theirs = Theirs::with(&volume.0, budget(128 * MIB), Compression::None, false)?;
    let filled = survives(|| fill(&mut theirs, 0..2 * BLOCKS));
    let before = count_surviving(&mut theirs, 0..2 * BLOCKS);
    volume.resize(256)?;
    sleep(Duration::from_secs(31));
    let again = survives(|| fill(&mut theirs, 1000..1000 + BLOCKS));
    let after = count_surviving(&mut theirs, 1000..1000 + BLOCKS);
    println!(
        "  foyer: filling it {filled}, {before} of {} are found; after 31 s of room,",
        2 * BLOCKS
    );
    println!("    inserting {again}, {after} of {BLOCKS} are found");
    drop(theirs);
    drop(volume);
    let volume = Volume::new(folder.path().join("ours"), 16)?;
    // Without preallocation, which would report the full volume at once.
    File::create(volume.0.join("blocks"))?.set_len(128 * MIB as u64)?;
    let mut ours = Ours::new(&volume.0, budget(128 * MIB))?;
    for block in 0..2 * BLOCKS {
        // An error turns the cache off, and the caller goes on.
        let _ = fill(&mut ours, block..block + 1);
    }
    let before = count(&mut ours, 0..2 * BLOCKS);
    volume.resize(256)?;
    // Ours tries the device again after 30 s.
    sleep(Duration::from_secs(31));
    fill(&mut ours, 1000..1000 + BLOCKS)?;
    let after = count(&mut ours, 1000..1000 + BLOCKS);
    println!(
        "  ropeway: {before} of {} are found while it is full; after 31 s of room,",
        2 * BLOCKS
    );
    println!("    {after} of {BLOCKS} are found");
    Ok(())
}
