//! Random reads of a source: how fast it answers what a cache would answer instead.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_block::Pool;
use ropeway_cache::qualify::{READ_BYTES, Series};
use ropeway_vfs::{CacheMode, End, File, Kind, OpenOptions, RelPath};

use super::super::nodes::{self, Located};
use crate::failure::{Failure, code};
use crate::servers::Servers;

/// Time for the reads.
const SPAN: Duration = Duration::from_secs(3);
/// Files that are read, at most: the largest.
const FILES: usize = 8;
/// Folders that are listed to find them, at most.
const FOLDERS: usize = 64;
/// Entries that are looked at in a folder, at most.
const ENTRIES: usize = 10_000;
/// A guess: in smaller files a disk hardly seeks.
const WORTHWHILE_BYTES: u64 = 1 << 20;

/// Measures random reads of a file, folder or share, past the page cache.
///
/// # Errors
/// It cannot be read, or has no file of at least 4 KB.
pub(super) async fn measure(source: &Path, servers: &Servers) -> Result<Series, Failure> {
    let located = nodes::find(source, true, servers).await?;
    let found = find_files(&located).await?;
    let mut files = Vec::new();
    for (size, path) in found {
        let open = located
            .tree
            .open(&path, OpenOptions::read(CacheMode::Direct))
            .await;
        files.push((
            size,
            open.map_err(|error| located.fault("open a file of", &error, End::Source))?,
        ));
    }
    let times = read(&files, &located).await?;
    Series::of(READ_BYTES, times).ok_or_else(|| {
        Failure::new(
            code::SOURCE,
            format!("{} has no file of 4 KB or more", located.shown),
        )
        .hint("name a folder with large files, or one large file")
    })
}

/// Returns the largest files, with their sizes.
async fn find_files(located: &Located) -> Result<Vec<(u64, RelPath)>, Failure> {
    let metadata = located.metadata(End::Source).await?;
    let mut files = Vec::new();
    if metadata.kind == Kind::File {
        files.push((metadata.size, located.path.clone()));
    }
    let mut folders = vec![located.path.clone()];
    let mut at = 0;
    while metadata.kind == Kind::Directory && at < folders.len().min(FOLDERS) {
        let folder = folders[at].clone();
        at += 1;
        let large = files.iter().filter(|(size, _)| *size >= WORTHWHILE_BYTES);
        if large.count() >= FILES {
            break;
        }
        match list(located, &folder).await {
            Ok((more_files, more_folders)) => {
                files.extend(more_files);
                folders.extend(more_folders);
            }
            // Folders below that may not be read are not looked at.
            Err(error) if at == 1 => return Err(error),
            Err(_) => {}
        }
    }
    files.retain(|(size, _)| *size >= READ_BYTES as u64);
    files.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    files.truncate(FILES);
    Ok(files)
}

type Found = (Vec<(u64, RelPath)>, Vec<RelPath>);

async fn list(located: &Located, folder: &RelPath) -> Result<Found, Failure> {
    let fault = |error| located.fault("list", &error, End::Source);
    let mut listing = located.tree.list(folder).await.map_err(fault)?;
    let (mut files, mut folders, mut seen) = (Vec::new(), Vec::new(), 0);
    while seen < ENTRIES {
        let entries = listing.next(nodes::ENTRIES_AT_ONCE).await.map_err(fault)?;
        if entries.is_empty() {
            break;
        }
        seen += entries.len();
        for entry in entries {
            let path = folder.join(&entry.name);
            match entry.metadata {
                Ok(metadata) if metadata.kind == Kind::File => files.push((metadata.size, path)),
                Ok(metadata) if metadata.kind == Kind::Directory => folders.push(path),
                _ => {}
            }
        }
    }
    Ok((files, folders))
}

async fn read(files: &[(u64, Arc<dyn File>)], located: &Located) -> Result<Vec<Duration>, Failure> {
    let mut rng = fastrand::Rng::new();
    let pool = Pool::new(READ_BYTES, 1);
    let mut block = pool.try_get().expect("the pool has one slot");
    let (start, mut times) = (Instant::now(), Vec::new());
    while !files.is_empty() && (times.is_empty() || start.elapsed() < SPAN) {
        let (size, file) = &files[rng.usize(..files.len())];
        let offset = rng.u64(..size / READ_BYTES as u64) * READ_BYTES as u64;
        let begun = Instant::now();
        let (back, result) = file.read_at(block, offset, READ_BYTES).await;
        times.push(begun.elapsed());
        result.map_err(|error| located.fault("read", &error, End::Source))?;
        block = back;
    }
    Ok(times)
}
