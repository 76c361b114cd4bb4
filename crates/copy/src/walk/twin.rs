//! A folder of a far end that holds the same as its twin on this machine is not listed: a digest tells
//! (docs/adr/0036).
//!
//! ```text
//! twin, on this machine ── list ──┐
//! far end ── digest of the folder ┴─ equal ─▶ the listing, made of both
//!                                    other ─▶ list the far folder
//! ```
//!
//! The listing that is made has everything that decides whether a file is copied, so whoever reads it sees
//! no difference. Where a digest cannot tell enough, the folder is listed: links and files with several
//! names, attributes that differ. Where folders mostly differ, no digests are asked for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_plan::Engine;
use ropeway_vfs::{
    DirEntry, Error, ErrorKind, FolderDigest, Kind, Listing, Metadata, Name, Origin, Pending, RelPath, Tree,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::job::config::JobConfig;
use crate::job::options::Options;
use crate::job::root::JobRoot;
use crate::verify::hashes::Hashes;
use crate::walk::balance::Balance;
use crate::walk::list_ahead::{Begun, CHUNK, FRESH};

/// Largest number of entries of a folder that is compared: some 300 bytes each, for as long as the listing
/// waits.
const ENTRIES_MAX: usize = 4 * CHUNK;
/// Largest number of entries in spare listings: as many as are listed ahead.
const SPARE_MAX: usize = 4 * ENTRIES_MAX;

/// The tree near to us that mirrors a far one.
pub(crate) struct Twin {
    near: Arc<dyn Tree>,
    /// The same folder in both.
    far_top: RelPath,
    near_top: RelPath,
    balance: Balance,
    spare: Option<Arc<SpareListings>>,
}

/// Listings of folders of this machine that were made to compare them, for the walk that lists them next.
/// Only those of folders that were found equal: where a folder differs, the far end is listed later than this
/// one, and what has come to both meanwhile would look as if only the far end had it.
#[derive(Default)]
pub(crate) struct SpareListings {
    listings: Mutex<HashMap<RelPath, (Instant, Begun, usize)>>,
}

impl SpareListings {
    fn put(&self, folder: RelPath, at: Instant, listing: TwinListing) {
        let mut listings = self.listings.lock();
        listings.retain(|_, (at, ..)| at.elapsed() < FRESH);
        let spare: usize = listings.values().map(|(.., entries)| entries).sum();
        let entries = listing.ready.len();
        if spare + entries <= SPARE_MAX {
            let (begun, _) = listing.begin();
            listings.insert(folder, (at, begun, entries));
        }
    }

    /// Takes the listing of a folder, if there is one that is not too old.
    pub(crate) fn take(&self, folder: &RelPath) -> Option<Begun> {
        let (at, begun, _) = self.listings.lock().remove(folder)?;
        (at.elapsed() < FRESH).then_some(begun)
    }
}

/// Twins of a job's ends; at most one of them has one.
#[derive(Default)]
pub(crate) struct Twins {
    pub(crate) of_source: Option<Arc<Twin>>,
    pub(crate) of_target: Option<Arc<Twin>>,
}

/// Whether digests tell all that a job with these options compares. A job that continues another one, or
/// that looks at contents, asks for more of a file than a digest has.
pub(crate) fn may_digest(options: &Options, hashes: Option<&Hashes>, is_resumed: bool) -> bool {
    options.engine == Engine::Auto
        && !options.checksum
        && !options.force
        && !options.move_source
        && !options.watch
        && hashes.is_none()
        && !is_resumed
}

impl Twins {
    /// Returns those of a root. `spare` keeps what is listed of the near end.
    pub(crate) fn of(config: &JobConfig, root: &JobRoot, spare: Option<&Arc<SpareListings>>) -> Self {
        let Some(balance) = root.digests.as_ref().filter(|_| !root.rules.sizes_unknown) else {
            return Self::default();
        };
        let source = (&root.root.source, &root.whole.0);
        let target = (&config.target, &root.whole.1);
        Self::between(source, target, balance, spare)
    }

    /// Returns those of two folders.
    pub(crate) fn between(
        source: (&Arc<dyn Tree>, &RelPath),
        target: (&Arc<dyn Tree>, &RelPath),
        balance: &Balance,
        spare: Option<&Arc<SpareListings>>,
    ) -> Self {
        Self {
            of_source: Twin::new(source, target, balance, spare),
            of_target: Twin::new(target, source, balance, spare),
        }
    }
}

impl Twin {
    fn new(
        far: (&Arc<dyn Tree>, &RelPath),
        near: (&Arc<dyn Tree>, &RelPath),
        balance: &Balance,
        spare: Option<&Arc<SpareListings>>,
    ) -> Option<Arc<Self>> {
        let (is_far, is_near) = (far.0.capabilities(), near.0.capabilities());
        // A tree that shows links as what they lead to reports more about each folder than a digest has.
        (is_far.remote && is_far.links_shown && !is_near.remote).then(|| {
            Arc::new(Self {
                near: Arc::clone(near.0),
                far_top: far.1.clone(),
                near_top: near.1.clone(),
                balance: balance.clone(),
                spare: spare.cloned(),
            })
        })
    }

    /// Whether folders were mostly equal so far, so that digests of folders far ahead are worth asking for.
    pub(crate) fn is_promising(&self) -> bool {
        self.balance.is_promising()
    }

    /// Returns the listing of a folder of the far tree, and the number of its entries, if the folder has the
    /// same content as its twin. `None`: list it. `asked` is the digest, if it was asked for before.
    ///
    /// # Errors
    /// Messages were tampered with. Whatever else fails, the listing meets it as well.
    pub(crate) async fn listing(
        &self,
        far: &dyn Tree,
        folder: &RelPath,
        asked: Option<Asked>,
    ) -> Result<Option<(Begun, usize)>, Error> {
        let Some(below) = folder.strip_prefix(&self.far_top) else {
            return Ok(None);
        };
        let near = self.near_top.join_path(&below);
        if let Some(spare) = &self.spare {
            // The far folder may be listed anew, and then the near one must be as well.
            spare.take(&near);
        }
        if self.balance.is_hopeless() {
            return Ok(None);
        }
        // Before the far end is asked, unless folders were mostly equal so far: there may be nothing to
        // compare with.
        let at = Instant::now();
        let Ok(Some(mut twin)) = list_whole(&*self.near, &near).await else {
            return Ok(None);
        };
        let digest = match asked {
            // The runtime ends, and everything with it.
            Some(mut asked) => (&mut asked.task).await.unwrap_or(Ok(None)),
            None => far.folder_digest(folder).await,
        };
        let digest = match digest {
            Err(error) if error.kind == ErrorKind::Tampered => return Err(error),
            digest => digest.ok().flatten(),
        };
        let has_digest = digest.is_some();
        let found = digest.and_then(|digest| Some((entries_of(&*digest, &mut twin.ready)?, digest.origin())));
        self.balance.weigh(has_digest.then_some(found.is_some()));
        let Some((entries, origin)) = found else {
            return Ok(None);
        };
        if let Some(spare) = &self.spare {
            spare.put(near, at, twin);
        }
        let ready = entries.into();
        Ok(Some(TwinListing { ready, origin }.begin()))
    }
}

/// A digest that was asked for before its folder's turn.
pub(crate) struct Asked {
    pub(crate) at: Instant,
    task: JoinHandle<Result<Option<Box<dyn FolderDigest>>, Error>>,
}

impl Asked {
    /// Asks for the digest of a folder.
    pub(crate) fn ask(far: &Arc<dyn Tree>, folder: RelPath) -> Self {
        let far = Arc::clone(far);
        Self {
            at: Instant::now(),
            task: tokio::spawn(async move { far.folder_digest(&folder).await }),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lists a folder to its end; `None` if it is empty or has too many entries.
async fn list_whole(tree: &dyn Tree, folder: &RelPath) -> Result<Option<TwinListing>, Error> {
    let mut listing = tree.list(folder).await?;
    let mut ready = VecDeque::new();
    loop {
        let entries = listing.next(CHUNK).await?;
        if entries.is_empty() {
            let origin = listing.origin();
            return Ok((!ready.is_empty()).then_some(TwinListing { ready, origin }));
        }
        if ready.len() + entries.len() > ENTRIES_MAX {
            return Ok(None);
        }
        ready.extend(entries);
    }
}

/// Returns the entries of the far folder if they are equal to those of the twin in all that is compared.
fn entries_of(digest: &dyn FolderDigest, twin: &mut VecDeque<DirEntry>) -> Option<Vec<DirEntry>> {
    let twin = &*twin.make_contiguous();
    let entries = digest.entries(twin)?;
    let own: HashMap<&Name, &Metadata> = twin
        .iter()
        .filter_map(|entry| Some((&entry.name, entry.metadata.as_ref().ok()?)))
        .collect();
    let is_equal = |entry: &DirEntry| {
        let Ok(found) = &entry.metadata else { return false };
        own.get(&entry.name).is_some_and(|twin| are_equal(twin, found))
    };
    (entries.len() == twin.len() && entries.iter().all(is_equal)).then_some(entries)
}

/// Whether a copy would find nothing to do for this file, whatever it preserves. Of folders everything is
/// known that a listing has.
fn are_equal(twin: &Metadata, found: &Metadata) -> bool {
    fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
        one.is_none() || other.is_none() || one == other
    }
    match (twin.kind, found.kind) {
        (Kind::File, Kind::File) => {
            // Names of one file are told by ids, which the digest does not have.
            twin.links < 2
                && twin.size == found.size
                && agree(twin.dos_attributes, found.dos_attributes)
                && agree(twin.mode, found.mode)
                && agree(twin.owner, found.owner)
        }
        (twin, found) => twin == Kind::Directory && found == Kind::Directory,
    }
}

/// A listing whose entries are all here.
struct TwinListing {
    ready: VecDeque<DirEntry>,
    origin: Option<Origin>,
}

impl TwinListing {
    /// Returns the listing with its first entries, and the number of all.
    fn begin(mut self) -> (Begun, usize) {
        let count = self.ready.len();
        let first = self.ready.drain(..count.min(CHUNK)).collect();
        ((Mutex::new(Box::new(self)), first), count)
    }
}

impl Listing for TwinListing {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>, Error>> {
        let count = max.min(self.ready.len());
        let entries = self.ready.drain(..count).collect();
        Box::pin(std::future::ready(Ok(entries)))
    }

    fn origin(&self) -> Option<Origin> {
        self.origin
    }
}

#[cfg(test)]
mod tests {
    use ropeway_vfs::memory::MemoryTree;
    use ropeway_vfs::{Capabilities, Owner, Timestamp};

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn far() -> MemoryTree {
        let capabilities = Capabilities {
            remote: true,
            ..MemoryTree::new().capabilities().clone()
        };
        MemoryTree::new()
            .with_capabilities(capabilities)
            .with_folder_digests()
    }

    async fn filled(tree: MemoryTree, top: &str, folders: usize) -> Arc<dyn Tree> {
        for number in 0..folders * 3 {
            let at = path(&format!("{top}/d{}/f{number}", number % folders));
            tree.insert_file(&at, b"content").unwrap();
            let change = ropeway_vfs::MetadataChange {
                modified: Some(Timestamp(5_000_000_000)),
                ..Default::default()
            };
            tree.set_metadata(&at, &change).await.unwrap();
        }
        Arc::new(tree)
    }

    async fn pair(folders: usize) -> (Arc<dyn Tree>, Arc<dyn Tree>, Arc<Twin>) {
        let (near, far) = (
            filled(MemoryTree::new(), "n", folders).await,
            filled(far(), "f", folders).await,
        );
        let twins = Twins::between((&near, &path("n")), (&far, &path("f")), &Balance::default(), None);
        assert!(twins.of_source.is_none());
        (near, far, twins.of_target.unwrap())
    }

    #[tokio::test]
    async fn an_equal_folder_is_not_listed() {
        let (near, far, twin) = pair(1).await;
        let ((listing, first), count) = twin.listing(&*far, &path("f/d0"), None).await.unwrap().unwrap();
        assert_eq!((first.len(), count), (3, 3));
        assert!(listing.into_inner().next(9).await.unwrap().is_empty());
        near.remove_file(&path("n/d0/f1")).await.unwrap();
        assert!(twin.listing(&*far, &path("f/d0"), None).await.unwrap().is_none());
        // A folder that is not below the top, and one without a twin.
        assert!(twin.listing(&*far, &path("g"), None).await.unwrap().is_none());
        assert!(
            twin.listing(&*far, &path("f/other"), None)
                .await
                .unwrap()
                .is_none()
        );
    }

    #[tokio::test]
    async fn where_folders_differ_no_digests_are_asked_for() {
        let (near, far, twin) = pair(9).await;
        for folder in 0..5 {
            near.remove_file(&path(&format!("n/d{folder}/f{folder}")))
                .await
                .unwrap();
            assert!(
                twin.listing(&*far, &path(&format!("f/d{folder}")), None)
                    .await
                    .unwrap()
                    .is_none()
            );
        }
        assert!(
            twin.listing(&*far, &path("f/d7"), None).await.unwrap().is_none(),
            "although it is equal"
        );
    }

    /// A reply that was tampered with must not be passed over.
    #[tokio::test]
    async fn an_attack_is_told_and_other_errors_lead_to_a_listing() {
        let (_, far, twin) = pair(2).await;
        let with = |kind: &str| -> Arc<dyn Tree> {
            let rule = format!("list:path=f/d0,kind={kind}").parse().unwrap();
            let clock = Arc::new(crate::RuntimeClock::new());
            ropeway_vfs::decorate::faults::Faults::new(Arc::clone(&far), vec![rule], clock)
        };
        let folder = path("f/d0");
        let tampered = twin.listing(&*with("tampered"), &folder, None).await;
        assert_eq!(tampered.err().unwrap().kind, ErrorKind::Tampered);
        let other = twin.listing(&*with("permission_denied"), &folder, None).await;
        assert!(other.unwrap().is_none());
    }

    #[test]
    fn what_a_copy_compares_counts() {
        let file = Metadata {
            mode: Some(0o644),
            owner: Some(Owner { user: 1, group: 1 }),
            dos_attributes: Some(32),
            ..Metadata::bare(Kind::File, 5, Timestamp(7))
        };
        let known_less = Metadata {
            mode: None,
            owner: None,
            dos_attributes: None,
            ..file.clone()
        };
        assert!(are_equal(&file, &file) && are_equal(&file, &known_less) && are_equal(&known_less, &file));
        let with = |change: fn(&mut Metadata)| {
            let mut other = file.clone();
            change(&mut other);
            other
        };
        for other in [
            with(|file| file.size = 6),
            with(|file| file.mode = Some(0o600)),
            with(|file| file.owner = Some(Owner { user: 2, group: 1 })),
            with(|file| file.dos_attributes = Some(34)),
            with(|file| file.kind = Kind::Directory),
            with(|file| file.kind = Kind::Symlink),
        ] {
            assert!(!are_equal(&file, &other), "{other:?}");
        }
        let linked = with(|file| file.links = 2);
        assert!(!are_equal(&linked, &file));
        let link = with(|file| file.kind = Kind::Symlink);
        assert!(!are_equal(&link, &link));
    }

    #[tokio::test]
    async fn twins_are_of_one_far_end_and_one_near() {
        let near: Arc<dyn Tree> = Arc::new(MemoryTree::new());
        let digests: Arc<dyn Tree> = Arc::new(far());
        let capabilities = Capabilities {
            links_shown: false,
            ..digests.capabilities().clone()
        };
        let follows: Arc<dyn Tree> = Arc::new(MemoryTree::new().with_capabilities(capabilities));
        let top = RelPath::root();
        let has = |source, target| {
            let twins = Twins::between((source, &top), (target, &top), &Balance::default(), None);
            (twins.of_source.is_some(), twins.of_target.is_some())
        };
        assert_eq!(has(&near, &digests), (false, true));
        assert_eq!(has(&digests, &near), (true, false));
        assert_eq!(has(&digests, &digests), (false, false));
        assert_eq!(has(&near, &near), (false, false));
        assert_eq!(has(&near, &follows), (false, false));
    }
}
