//! Journals with any content: a job that finds one copies everything, whatever the journal says.
//!
//! The first byte is a set of flags (see the constants). The second says how much of a temporary
//! file an earlier run left behind. The rest is the journal, either unchanged or (`FRAMED`) with
//! one record on each line, which is framed here with length and checksum so that the fuzzer gets
//! past the checksum. In framed lines `$T` stands for the file's token, `$M` for its time.

#![no_main]

use std::fs;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ropeway_copy::{
    Environment, Job, JobKey, JobSpec, JournalFolder, JournalSpec, Options, Root, Status, TEMPORARY_PREFIX,
    is_temporary,
};
use ropeway_vfs::memory::{MemoryTree, synthetic};
use ropeway_vfs::{MetadataChange, RelPath, Tree};

/// The journal is framed here.
const FRAMED: u8 = 1;
/// An earlier run left a temporary file: a true prefix of the content.
const LEFTOVER: u8 = 2;
/// That file has the source's time, as if it were complete.
const TIMED: u8 = 4;
/// The file is large enough to have journal records of its own.
const LARGE: u8 = 8;

/// Larger than the size from which the copy crate journals a file (4 MiB), and not a whole number
/// of blocks.
const SIZE_LARGE: usize = (4 << 20) + 100;
/// A few pages and a part of one.
const SIZE_SMALL: usize = 4 * 4096 + 100;
const FILE: &str = "f";

/// Token of the file: a hash of the root's number and the path.
fn token() -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&0_u64.to_le_bytes());
    hasher.update(FILE.as_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Frames each line as a record: length, checksum, text.
fn framed(lines: &[u8], modified: i128) -> Vec<u8> {
    let text = String::from_utf8_lossy(lines);
    let text = text
        .replace("$T", &token().to_string())
        .replace("$M", &modified.to_string());
    let mut journal = Vec::new();
    for line in text.lines().map(str::as_bytes) {
        journal.extend_from_slice(&(line.len() as u32).to_le_bytes());
        journal.extend_from_slice(&crc32fast::hash(line).to_le_bytes());
        journal.extend_from_slice(line);
    }
    journal
}

async fn run(flags: u8, part: u8, body: &[u8]) {
    let size = if flags & LARGE == 0 {
        SIZE_SMALL
    } else {
        SIZE_LARGE
    };
    let mut content = vec![0; size];
    synthetic(1, 0, &mut content);
    let file = RelPath::parse(FILE.as_bytes()).expect("a plain name");
    let (source, target) = (Arc::new(MemoryTree::new()), Arc::new(MemoryTree::new()));
    source
        .insert_file(&file, &content)
        .expect("an empty tree takes a file");
    let modified = source.metadata(&file).await.expect("it was made above").modified;

    // The journal is synced, which costs nothing in memory.
    let state = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let state = state.expect("a folder for the journal");
    let key = JobKey::new(&["source".to_owned()], "target");
    let folder = state.path().join(key.id());
    let journal = if flags & FRAMED == 0 {
        body.to_vec()
    } else {
        framed(body, modified.0)
    };
    fs::create_dir(&folder).expect("a new folder");
    fs::write(folder.join("journal"), journal).expect("a new file");

    if flags & LEFTOVER != 0 {
        let name = format!("{TEMPORARY_PREFIX}{}-{:016x}", key.id(), token());
        let leftover = RelPath::parse(name.as_bytes()).expect("a plain name");
        let there = &content[..size * usize::from(part) / 255];
        target
            .insert_file(&leftover, there)
            .expect("an empty tree takes a file");
        if flags & TIMED != 0 {
            let modified = Some(modified);
            let change = MetadataChange {
                modified,
                ..MetadataChange::default()
            };
            target
                .set_metadata(&leftover, &change)
                .await
                .expect("it was made above");
        }
    }
    let root = Root {
        source,
        source_name: RelPath::root(),
        source_path: RelPath::root(),
        target_path: RelPath::root(),
    };
    let outcome = Job::new(JobSpec {
        roots: vec![root],
        target: Arc::<MemoryTree>::clone(&target),
        options: Options::default(),
        environment: Environment {
            boot_id: "boot".to_owned(),
            ..Environment::default()
        },
        journal: Some(JournalSpec {
            store: Arc::new(JournalFolder::new(state.path())),
            key,
            sources: vec!["source".to_owned()],
            target: "target".to_owned(),
        }),
    })
    .run(Arc::new(|_| {}))
    .await;
    assert_eq!(outcome.status, Status::Done, "{outcome:?}");
    let copied = target.content(&file).expect("it was copied");
    assert!(copied == content, "the copy differs");
    let mut listing = target.list(&RelPath::root()).await.expect("the root is there");
    let names = listing.next(100).await.expect("memory can be listed");
    // A file without a valid beginning is not a journal: its content is not known to be ours.
    if flags & LEFTOVER == 0 {
        assert!(
            !names.iter().any(|entry| is_temporary(&entry.name)),
            "a temporary file is left"
        );
    }
}

fuzz_target!(|data: &[u8]| {
    let [flags, part, body @ ..] = data else {
        return;
    };
    // Time is paused, so waiting costs nothing.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime on this thread");
    runtime.block_on(run(*flags, *part, body));
});
