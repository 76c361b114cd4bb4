//! A tree in memory, for tests, models and previews.
//!
//! It keeps everything that the contract knows: folders, sparse files, links, special nodes,
//! extended attributes, owners, times, identities. File content is kept in pages, so a sparse file
//! of 1 TB costs nothing. Two more kinds of file cost nothing:
//! [synthetic](MemoryTree::insert_synthetic) files, whose bytes follow from a seed, and the files
//! of a [discarding](MemoryTree::with_discard) tree, of which only the length is kept.
//!
//! With the [crash model](MemoryTree::with_crash_model) the tree also remembers what was made
//! durable. [`MemoryTree::crash`] then returns a tree as a power cut could leave it.
//!
//! All futures are ready at once. One mutex guards the tree; it is never held across an await.

mod claim;
mod content;
mod crash;
mod digest;
mod far;
mod file;
mod listing;
mod names;
mod nodes;
mod random;
mod state;
mod tree;
mod watch;
mod writeback;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use self::content::Base;
pub use self::content::synthetic;
pub use self::far::FarChunks;
use self::state::State;
use crate::{
    Capabilities, Clock, Create, Error, ErrorKind, Name, Op, OpenOptions, RelPath, Result, Timestamp,
};

/// A tree in memory.
pub struct MemoryTree {
    shared: Arc<Shared>,
    /// Count of the write-back failures that a `sync` through this object has reported.
    reported: Arc<AtomicU64>,
}

struct Shared {
    capabilities: Capabilities,
    clock: Option<Arc<dyn Clock>>,
    /// Bytes of content that fit; `None` means no limit.
    space_total: Option<u64>,
    discard: bool,
    /// What the tree says about chunks, if it is a far end.
    far: Option<FarChunks>,
    /// Whether it has digests of its folders, as a far end.
    has_digests: bool,
    crash_model: bool,
    volume: u64,
    state: Mutex<State>,
}

/// Zero of a memory tree's clock: 2023-11-14 22:13:20 UTC; any fixed moment works.
const EPOCH: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// Returns the default capabilities of a memory tree: everything.
fn capabilities_full() -> Capabilities {
    Capabilities {
        remote: false,
        on_network: false,
        far: false,
        page_cache: false,
        time_granularity_ns: 1,
        time_granularity_known: true,
        sizes_known: true,
        case_sensitive: true,
        // As on most Linux file systems.
        name_max: 255,
        windows_names: false,
        raw_names: true,
        file_size_max: i64::MAX as u64,
        owners: true,
        modes: true,
        xattrs: true,
        short_xattrs: false,
        security: false,
        symlinks: true,
        hard_links: true,
        special_files: true,
        sparse: true,
        stable_ids: true,
        journals_metadata: true,
        folder_renames: true,
        replaces_open: true,
        creation_times: true,
        batches_in_flight: 1,
        small_in_flight: 1,
        small_puts_in_flight: 0,
        small_gets_in_flight: 0,
        blocks_in_flight: 0,
        named_streams: false,
        links_shown: true,
    }
}

impl Default for MemoryTree {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryTree {
    /// Makes an empty tree that can hold everything, without limit. Each change takes a microsecond
    /// of the tree's own time.
    pub fn new() -> Self {
        static VOLUMES: AtomicU64 = AtomicU64::new(1);
        Self {
            reported: Default::default(),
            shared: Arc::new(Shared {
                capabilities: capabilities_full(),
                clock: None,
                space_total: None,
                discard: false,
                far: None,
                has_digests: false,
                crash_model: false,
                volume: VOLUMES.fetch_add(1, Ordering::Relaxed),
                state: Mutex::new(State::new()),
            }),
        }
    }

    /// Makes the tree behave as `capabilities` say: it refuses names, ignores case, rounds times
    /// and reports losses.
    ///
    /// # Panics
    /// If a file, listing or watch of the tree is open. This applies to the other `with_` functions
    /// too.
    #[must_use]
    pub fn with_capabilities(self, capabilities: Capabilities) -> Self {
        self.configured(|shared| shared.capabilities = capabilities)
    }

    /// Takes the times of nodes from a clock whose zero is 2023-11-14 22:13:20 UTC.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.configured(|shared| shared.clock = Some(clock))
    }

    /// Limits the content to `bytes` (whole pages of 4 KiB; in a discarding tree, lengths).
    #[must_use]
    pub fn with_space(self, bytes: u64) -> Self {
        self.configured(|shared| shared.space_total = Some(bytes))
    }

    /// Keeps only the length of new files; they read as zeroes.
    #[must_use]
    pub fn with_discard(self) -> Self {
        self.configured(|shared| shared.discard = true)
    }

    /// Remembers what was made durable, for [`crash`](Self::crash). Until the next `sync` each
    /// change costs memory.
    #[must_use]
    pub fn with_crash_model(self) -> Self {
        self.configured(|shared| {
            shared.crash_model = true;
            let state = shared.state.get_mut();
            state.begin_crash_model();
        })
    }

    /// Makes the tree a far end that says this about the chunks of its files. Its capabilities stay
    /// as they are.
    #[must_use]
    pub fn with_far_content(self, far: FarChunks) -> Self {
        self.configured(|shared| shared.far = Some(far))
    }

    /// Makes the tree a far end that has digests of its folders. Its capabilities stay as they are.
    #[must_use]
    pub fn with_folder_digests(self) -> Self {
        self.configured(|shared| shared.has_digests = true)
    }

    fn configured(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        let shared = Arc::get_mut(&mut self.shared);
        change(shared.expect("a memory tree is configured before it is used"));
        self
    }

    /// Makes a file with the bytes of [`synthetic`] for `seed`, and the folders that lead to it.
    ///
    /// # Errors
    /// As for `make_dir` and `open`; [`ErrorKind::AlreadyExists`] if the file exists.
    pub fn insert_synthetic(&self, path: &RelPath, size: u64, seed: u64) -> Result<()> {
        self.insert(path, |state, index| {
            if let Some(content) = state.content_mut(index) {
                content.fill_synthetic(size, seed);
            }
        })
    }

    /// Makes a file with this content, and the folders that lead to it.
    ///
    /// # Errors
    /// As for `make_dir`, `open` and `write_at`; [`ErrorKind::AlreadyExists`] if the file exists.
    pub fn insert_file(&self, path: &RelPath, bytes: &[u8]) -> Result<()> {
        let mut written = Ok(());
        self.insert(path, |state, index| {
            written = state.write(&self.shared, index, path, 0, bytes);
        })?;
        written
    }

    fn insert(&self, path: &RelPath, fill: impl FnOnce(&mut State, u64)) -> Result<()> {
        let mut state = self.shared.lock();
        let names: Vec<Name> = path.components().collect();
        let mut dir = RelPath::root();
        for name in names.iter().take(names.len().saturating_sub(1)) {
            dir = dir.join(name);
            match state.make_dir(&self.shared, &dir, 0o755) {
                Err(error) if error.kind != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let options = OpenOptions {
            mode: 0o644,
            ..OpenOptions::write(Create::New, Default::default())
        };
        let index = state.open(&self.shared, path, options)?;
        fill(&mut state, index);
        state.close(index);
        Ok(())
    }

    /// Returns the whole content of a file.
    ///
    /// # Errors
    /// As for `open`; [`ErrorKind::FileTooLarge`] above 1 GiB.
    pub fn content(&self, path: &RelPath) -> Result<Vec<u8>> {
        /// Largest content that a test may sensibly ask for.
        const CONTENT_MAX: u64 = 1 << 30;
        let state = self.shared.lock();
        let index = state.resolve_file(&self.shared, Op::Read, path)?;
        let content = state.content(index);
        let size = content.map_or(0, |content| content.size());
        if size > CONTENT_MAX {
            return Err(Error::new(Op::Read, path, ErrorKind::FileTooLarge));
        }
        let mut bytes = vec![0; size as usize];
        if let Some(content) = content {
            content.read(0, &mut bytes);
        }
        Ok(bytes)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Rounds a time as this tree keeps it.
    fn rounded(&self, time: Timestamp) -> Timestamp {
        let granularity = i128::from(self.capabilities.time_granularity_ns.max(1));
        Timestamp(time.0.div_euclid(granularity) * granularity)
    }

    fn new_base(&self) -> Base {
        if self.discard { Base::Discard } else { Base::Zero }
    }
}

#[cfg(test)]
#[path = "memory/tests.rs"]
mod tests;
