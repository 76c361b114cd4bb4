//! Temporary names: those of this job are known and end with it, those of dead jobs are swept, those of living ones stay.
//!
//! ```text
//!   own      claims of this job on the target, and the folders where it makes temporary names
//!   told     what a claim says
//!   others   whether the job behind a name lives
//!   sweep    removes what a dead job left
//!   search   looks for it where no claim tells
//! ```
//!
//! A claim is a file in the topmost folder of the target that a job works in. While the job lives it is held; after its
//! death it tells whoever finds it where its temporary names are ([`ropeway_vfs::claim`]). It outlives the journal, which
//! may lie on another machine. A name whose claim is nowhere to be seen may be a living job's, whose claim lies higher up
//! than this one sees: it is left alone.

mod others;
mod own;
mod report;
mod search;
mod sweep;
mod told;
mod vanished;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ropeway_plan::temporary::{Nonce, Temporary};
use ropeway_vfs::{Claim, End, Error, Name, RelPath, Tree};

use tokio::task::JoinHandle;

use self::others::{Fate, Found, Looker, Others};
use self::own::Own;
pub use self::report::{JobLeftovers, SweepReport, leftovers_of, sweep_below};
pub use self::sweep::Swept;
use self::told::Told;
use crate::context::{Context, RootContext, lock};
use crate::folder::{Folder, Placement};
use crate::journal::{Journal, JournalStore};
use crate::mutations::{self, Mutation};
use crate::status::{Fatal, Status};

/// Folders that are looked into for claims before a run: those of its first roots.
const BEGIN_MAX: usize = 32;
/// Tries to take the claim of a job that is dead, while others look at it.
const TAKE_TRIES: u32 = 10;

/// What a job knows of temporary names.
pub(crate) struct Temporaries {
    own: Arc<Own>,
    nonce: Nonce,
    looker: Looker,
    journals: Option<Arc<dyn JournalStore>>,
    /// The path of the only root.
    single: Option<RelPath>,
    /// The paths of all roots.
    roots: Vec<RelPath>,
    /// The target is far away, and nothing of an earlier run is there.
    aside: bool,
    looking: Mutex<Option<JoinHandle<()>>>,
    others: tokio::sync::Mutex<Others>,
    swept: AtomicU64,
    unknown: AtomicU64,
    in_source: AtomicU64,
    /// The target was tried by a folder that was made and removed.
    has_probed: AtomicBool,
    /// Something of this job could not be removed: its journal is needed still.
    stays: AtomicBool,
}

impl Temporaries {
    pub(crate) fn new(
        target: &Arc<dyn Tree>,
        (nonce, boot_id): (Nonce, &str),
        journal: Option<&Journal>,
        roots: &[Arc<RootContext>],
    ) -> Self {
        let journals = journal.map(|journal| Arc::clone(journal.store()));
        let looker = Looker {
            job: journal.map(|journal| journal.id().to_owned()),
            state: journals.as_ref().map(|journals| journals.identity()),
        };
        let resumed = journal.is_some_and(|journal| journal.memory().resumed());
        let aside = target.capabilities().far && !resumed;
        let single = (roots.len() == 1).then(|| roots[0].root.target_path.clone());
        let of = (looker.job.clone(), looker.state.clone());
        let boot_id = boot_id.to_owned();
        Self {
            own: Own::new(Arc::clone(target), nonce, of, (boot_id, aside)),
            nonce,
            looker,
            journals,
            single,
            roots: roots.iter().map(|root| root.root.target_path.clone()).collect(),
            aside,
            looking: Mutex::default(),
            others: tokio::sync::Mutex::default(),
            swept: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            in_source: AtomicU64::new(0),
            has_probed: AtomicBool::new(false),
            stays: AtomicBool::new(false),
        }
    }

    fn keep_if(&self, swept: &Swept) {
        self.stays.fetch_or(!swept.failed.is_empty(), Ordering::AcqRel);
    }

    /// A folder that tries the target is about to be made.
    pub(crate) fn probes(&self) {
        self.has_probed.store(true, Ordering::Release);
    }

    /// A temporary name is left that only the next run of this job can remove.
    pub(crate) fn must_stay(&self) {
        self.stays.store(true, Ordering::Release);
    }

    /// Whether the journal is needed still, for what could not be removed.
    pub(crate) fn keep_journal(&self) -> bool {
        self.stays.load(Ordering::Acquire)
    }
}

/// Whether a name in a source is no data but a temporary one of some job, and counts it.
pub(crate) fn is_none_of_the_source(context: &Context, name: &Name) -> bool {
    let is_one = Temporary::parse(name).is_some();
    if is_one {
        context.temporaries.in_source.fetch_add(1, Ordering::Relaxed);
    }
    is_one
}

/// To be called before a temporary name is made, looked at or used in a folder.
pub(crate) async fn before(context: &Context, folder: &Folder) {
    if folder.placement() == Placement::Direct || context.options.dry_run {
        return;
    }
    // The next run looks there for a claim, too.
    folder.marks(context);
    let (place, target) = (folder.path(), &folder.root().root.target_path);
    let is_inside = context.temporaries.single.is_some() && place.strip_prefix(target).is_some();
    let top = match target.parent() {
        Some(parent) if !is_inside && place.strip_prefix(&parent).is_some() => parent,
        _ if is_inside => target.clone(),
        _ => place.clone(),
    };
    if let Err(error) = context.temporaries.own.note(&top, &place).await {
        refused(context, &error);
    }
}

fn refused(context: &Context, error: &Error) {
    let message =
        format!("another run of this very copy, or one that removes what it left, is under way ({error})");
    context.fatal(Fatal::new(Status::Refused, message).hint("wait until it has ended, then run this again"));
}

/// Before the first write: removes what dead jobs left where this one works, and what this job needs no more.
pub(crate) async fn begin(context: &Arc<Context>, roots: &[Arc<RootContext>]) {
    if context.options.dry_run {
        return;
    }
    let (shared, roots) = (Arc::clone(context), roots.to_vec());
    let looking = async move { look_around(&shared, &roots).await };
    if context.temporaries.aside {
        // Round trips that nothing waits for: no name of this job is there yet.
        *lock(&context.temporaries.looking) = Some(tokio::spawn(looking));
    } else {
        looking.await;
    }
}

async fn look_around(context: &Arc<Context>, roots: &[Arc<RootContext>]) {
    let resumed = resumed(context);
    let mut dirs: Vec<RelPath> = Vec::new();
    for root in roots.iter().take(BEGIN_MAX) {
        let path = &root.root.target_path;
        for dir in path.parent().into_iter().chain([path.clone()]) {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
    }
    // Together: each may be a round trip.
    let looks = dirs.into_iter().map(|dir| claims_in(context, dir));
    for (dir, claims) in futures_util::future::join_all(looks).await {
        for nonce in claims {
            if nonce != context.temporaries.nonce {
                consider(context, (&*context.target, &dir), nonce, roots).await;
            } else if resumed && let Err(error) = context.temporaries.own.take_again(&dir).await {
                return refused(context, &error);
            }
        }
    }
    if roots.iter().any(|root| root.root.target_path.is_root()) {
        beside_root(context).await;
    }
    if resumed {
        vanished::remove(context, roots).await;
    }
}

/// The target was not there when an earlier run began, and is the tree's root now: what that run left beside it is not
/// below this tree, and nobody goes on with it.
async fn beside_root(context: &Context) {
    let Some(above) = context.target.above() else {
        return;
    };
    let top = RelPath::root();
    for nonce in sweep::claims_in(&*above, &top).await.unwrap_or_default() {
        consider(context, (&*above, &top), nonce, &[]).await;
    }
}

async fn claims_in(context: &Context, dir: RelPath) -> (RelPath, Vec<Nonce>) {
    let claims = sweep::claims_in(&*context.target, &dir).await;
    (dir, claims.unwrap_or_default())
}

fn resumed(context: &Context) -> bool {
    let journal = context.journal.as_ref();
    journal.is_some_and(|journal| journal.memory().resumed())
}

/// A claim of another job lies where this one works: if that job is dead and nobody will go on with it, what it left goes.
/// Where its claim may not tell of all folders, those below `roots` are searched.
async fn consider(
    context: &Context,
    (target, dir): (&dyn Tree, &RelPath),
    nonce: Nonce,
    roots: &[Arc<RootContext>],
) {
    let temporaries = &context.temporaries;
    let Found::Abandoned(claim, told) = others::look(target, dir, nonce).await else {
        return;
    };
    // Only its age, which counts where nothing else tells.
    let metadata = target.metadata(&dir.join(&nonce.claim())).await.ok();
    let has_journal = |job: &str| {
        let journals = temporaries.journals.as_ref();
        journals.is_some_and(|journals| journals.has_journal(job))
    };
    if temporaries.looker.is_orphan(
        &told,
        metadata.as_ref(),
        context.environment.clock.now(),
        has_journal,
    ) {
        let mut found = Swept::default();
        if told.is_partial(claim.kind(), &context.environment.boot_id) {
            let paths = roots.iter().map(|root| &root.root.target_path);
            let below = paths.filter(|path| path.strip_prefix(dir).is_some());
            let goes_on = || !context.stopped();
            search::remove_below(target, below.cloned().collect(), nonce, goes_on, &mut found).await;
        }
        let is_whole = found.failed.is_empty() && !context.stopped();
        account(context, found).await;
        if !is_whole {
            return;
        }
        sweep_claim(context, (target, dir), nonce, (claim, &told)).await;
    }
}

async fn sweep_claim(
    context: &Context,
    (target, dir): (&dyn Tree, &RelPath),
    nonce: Nonce,
    claim: (Box<dyn Claim>, &Told),
) {
    let swept = sweep::claim(target, dir, nonce, claim).await;
    if swept.failed.is_empty() {
        let mut others = context.temporaries.others.lock().await;
        others.learn(nonce, Fate::Dead(None));
    }
    account(context, swept).await;
}

/// Counts what was removed, and names what could not be.
async fn account(context: &Context, swept: Swept) {
    context
        .temporaries
        .swept
        .fetch_add(swept.names, Ordering::Relaxed);
    if swept.names > 0 {
        context.sync.touched();
    }
    for error in swept.failed {
        let path = error.path.clone();
        context.fail(&path, error, End::Target).await;
    }
}

/// Whether an entry that a mirror lists on its target is a temporary one, which is no data: counted by no guard, deleted
/// only if its job is dead.
pub(crate) async fn passes_over(context: &Context, dir: &RelPath, name: &Name, only_looks: bool) -> bool {
    let Some(temporary) = Temporary::parse(name) else {
        return false;
    };
    let (nonce, temporaries) = (temporary.nonce(), &context.temporaries);
    if nonce == temporaries.nonce || only_looks || context.options.dry_run {
        return true;
    }
    let fate = temporaries
        .others
        .lock()
        .await
        .fate(&*context.target, dir, nonce)
        .await;
    match (fate, temporary) {
        (Fate::Alive, _) => {}
        (Fate::Unknown, _) => drop(temporaries.unknown.fetch_add(1, Ordering::Relaxed)),
        (Fate::Dead(Some(at)), Temporary::Claim { .. }) if at == *dir => {
            if let Some((claim, told)) = take_dead(context, dir, nonce).await {
                sweep_claim(context, (&*context.target, dir), nonce, (claim, &told)).await;
            }
        }
        // One further up is not this mirror's, nor are the other folders that it tells of.
        (Fate::Dead(_), Temporary::Claim { .. }) => {}
        (Fate::Dead(_), Temporary::Node { .. }) => {
            let mut swept = Swept::default();
            sweep::remove_in(&*context.target, dir, vec![name.clone()], &mut swept).await;
            account(context, swept).await;
        }
    }
    true
}

async fn take_dead(context: &Context, dir: &RelPath, nonce: Nonce) -> Option<(Box<dyn Claim>, Told)> {
    for _ in 0..TAKE_TRIES {
        match others::look(&*context.target, dir, nonce).await {
            Found::Abandoned(claim, told) => return Some((claim, told)),
            // Perhaps it was only looked at, a moment ago.
            Found::Held => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            Found::Unknown | Found::Absent => return None,
        }
    }
    None
}

/// Whether a node below something that is removed must stay: a temporary one of a job that is not known to be dead.
pub(crate) async fn may_be_alive(context: &Context, path: &RelPath) -> bool {
    let Some((dir, temporary)) = path
        .parent()
        .zip(path.file_name().and_then(|name| Temporary::parse(&name)))
    else {
        return false;
    };
    let nonce = temporary.nonce();
    if nonce == context.temporaries.nonce {
        return false;
    }
    let fate = context
        .temporaries
        .others
        .lock()
        .await
        .fate(&*context.target, &dir, nonce)
        .await;
    !matches!(fate, Fate::Dead(_))
}

/// Folders in which this job has made temporary names, in all its runs.
async fn places(context: &Context) -> Vec<RelPath> {
    let mut places = context.temporaries.own.places().await;
    let journalled = context.journal.as_ref().and_then(|journal| journal.places().ok());
    places.extend(journalled.unwrap_or_default());
    sweep::each_once(places)
}

/// At the end of a job that is done: no temporary name of it stays anywhere.
pub(crate) async fn end(context: &Context) {
    if context.options.dry_run {
        return say(context);
    }
    let interrupted = context.cancel.is_cancelled() && !context.watch_ended();
    if interrupted || context.failures.is_fatal() {
        return;
    }
    let temporaries = &context.temporaries;
    temporaries.own.notes_end().await;
    let looking = lock(&temporaries.looking).take();
    if let Some(looking) = looking {
        // It ends by itself: each of its steps has its tries.
        let _ = looking.await;
    }
    let retried = context.live.retries.load(Ordering::Relaxed) > 0;
    let mut had_probe = temporaries.has_probed.load(Ordering::Acquire);
    let was_refused = temporaries.own.was_refused().await;
    let mut has_removed = false;
    if resumed(context) || retried || was_refused || context.failures.items() > 0 {
        match context.remove_probe().await {
            Ok(was_there) => had_probe |= was_there,
            Err(_) => temporaries.must_stay(),
        }
        let mut places = places(context).await;
        let mut swept = sweep::places(&*context.target, places.clone(), temporaries.nonce).await;
        if context
            .journal
            .as_ref()
            .is_some_and(|journal| journal.outlived_a_boot())
        {
            // A power cut may have taken what journal and claim said of places.
            let goes_on = || !context.stopped();
            let roots = temporaries.roots.clone();
            let found =
                search::remove_below(&*context.target, roots, temporaries.nonce, goes_on, &mut swept).await;
            places.extend(found);
        }
        if swept.failed.is_empty() {
            let (all, removed) =
                sweep::claims(&*context.target, &places, temporaries.nonce, &mut swept).await;
            if !all {
                temporaries.must_stay();
            }
            has_removed |= removed;
        }
        has_removed |= swept.names > 0;
        temporaries.keep_if(&swept);
        account(context, swept).await;
    }
    if !temporaries.keep_journal() {
        has_removed |= had_probe || temporaries.own.holds().await;
        let swept = temporaries.own.finish(temporaries.single.as_ref()).await;
        temporaries.keep_if(&swept);
        account(context, swept).await;
        let is_mutated = mutations::is(Mutation::NamesNotFlushed);
        let is_far = context.target.capabilities().far;
        // Else a power cut would bring them back, and without the journal no run knows of them.
        if has_removed
            && context.wants_durable()
            && !is_far
            && !is_mutated
            && let Err(error) = context.target.sync().await
        {
            temporaries.must_stay();
            let why = "a power cut may bring temporary names back, which the same command removes";
            context.note(None, format!("{error}; {why}"));
        }
    }
    say(context);
}

fn say(context: &Context) {
    let count = |number: &AtomicU64| number.swap(0, Ordering::Relaxed);
    let temporaries = &context.temporaries;
    let names = |number: u64| match number {
        1 => "1 temporary name".to_owned(),
        number => format!("{number} temporary names"),
    };
    match count(&temporaries.swept) {
        0 => {}
        number => context.note(
            None,
            format!("removed {} that ended runs had left", names(number)),
        ),
    }
    match count(&temporaries.unknown) {
        0 => {}
        number => {
            let message = "of other runs left alone: whether those have ended cannot be told here; \
                           `ropeway jobs sweep --all DIR` removes them";
            context.note(None, format!("{} {message}", names(number)));
        }
    }
    match count(&temporaries.in_source) {
        0 => {}
        number => context.note(
            None,
            format!("{} of other runs in the source skipped", names(number)),
        ),
    }
}
