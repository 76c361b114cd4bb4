//! `ropeway rm`: removes links without following them; removes folders only with `-r`, and asks
//! first.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use ropeway_vfs::{
    Backlog, End, Error, ErrorKind, FileId, Held, Listing, Metadata, Op, RelPath, holder_of, prove_child,
};
use serde_json::{Map, json};
use tokio::task::JoinSet;

use super::nodes::{self, Entries, Located, Printer, SORTED_MAX};
use crate::args::RmArgs;
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;
use crate::ui::format;
use crate::ui::messages::print_stderr;

/// Number of files of one folder removed at once; hides the round trip of a distant server. A
/// guess.
const REMOVALS_MAX: usize = 32;
/// Number of folders listed or removed at once at a server, for the same reason. A guess.
const FOLDERS_MAX: usize = 4;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The only node could not be removed, or a guard refused.
pub(crate) fn run(args: &RmArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let mut printer = Printer::new(args.json);
        for path in &args.paths {
            let result = remove(path, args, &servers, &mut printer).await;
            printer.finish_argument(result, args.paths.len() == 1)?;
        }
        Ok(printer.finish())
    })
}

async fn remove(path: &Path, args: &RmArgs, servers: &Servers, printer: &mut Printer) -> Result<(), Failure> {
    Place::parse_target(path)?;
    let located = match nodes::find(path, false, servers).await {
        Err(failure) if args.force && failure.code == code::SOURCE => return Ok(()),
        found => found?,
    };
    let metadata = match located.tree.metadata(&located.path).await {
        Ok(metadata) => metadata,
        Err(error) if args.force && error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(located.fault("remove", &error, End::Target)),
    };
    let mut removal = Removal {
        located: &located,
        volume: metadata.id.map(|id| id.volume),
        above: None,
        backlog: Backlog::of(&*located.tree),
        folders_at_once: match located.tree.capabilities().small_in_flight {
            _ if args.dry_run => 1,
            in_flight => in_flight.clamp(1, FOLDERS_MAX),
        },
        dry_run: args.dry_run,
        printer: RefCell::new(printer),
    };
    if !metadata.is_dir() {
        return removal.file().await;
    }
    if !args.recursive {
        return Err(Failure::usage(format!("{} is a folder", located.shown)).hint("use -r to remove folders"));
    }
    guard(&located, &metadata).await?;
    let above = holder_of(&*located.tree, &located.path, &metadata).await;
    removal.above = above.map_err(|error| located.fault("remove", &error, End::Target))?;
    if !args.yes && !args.dry_run {
        confirm(&located, removal.count().await?)?;
    }
    removal.folder().await
}

/// Refuses to remove folders that are removed by mistake only.
async fn guard(located: &Located, metadata: &Metadata) -> Result<(), Failure> {
    let refuse = |why: &str| {
        let message = format!("{} is {why}; nothing was removed", located.shown);
        Err(Failure::new(code::REFUSED, message).hint("name the files and folders to remove"))
    };
    let path = match &located.place {
        Place::Remote(_) if located.path.is_root() => return refuse("the top of a share"),
        Place::Remote(_) => return Ok(()),
        Place::Local(path) => path,
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let here = std::env::current_dir().ok();
    let holds = |folder: Option<PathBuf>| {
        let folder = folder.and_then(|folder| fs::canonicalize(folder).ok());
        folder.is_some_and(|folder| folder.starts_with(path))
    };
    if located.path.is_root() {
        return refuse("named by `.`, `..` or /");
    } else if holds(home) {
        return refuse("your home folder or a folder above it");
    } else if holds(here) {
        return refuse("the current folder or a folder above it");
    }
    let parent = located
        .tree
        .metadata(&located.path.parent().unwrap_or_default())
        .await;
    let volume = |metadata: &Metadata| metadata.id.map(|id| id.volume);
    match parent {
        Ok(parent) if volume(&parent) != volume(metadata) => refuse("the top of a volume"),
        _ => Ok(()),
    }
}

/// Asks whether to remove a folder with `count` nodes in it.
fn confirm(located: &Located, count: u64) -> Result<(), Failure> {
    if count == 0 {
        return Ok(());
    }
    let what = format!(
        "{} contains {}",
        located.shown,
        format::counted(count, "node", "nodes")
    );
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let message = format!("{what}, and there is no terminal to ask on; nothing was removed");
        return Err(Failure::new(code::REFUSED, message).hint("check with --dry-run, then use --yes"));
    }
    print_stderr(&format!("{what}."));
    let mut err = io::stderr().lock();
    _ = write!(err, "Remove all of it? [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer).is_ok();
    if read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(code::REFUSED, "nothing was removed").hint("--dry-run lists what would be removed"))
}

struct Removal<'a> {
    located: &'a Located,
    volume: Option<u64>,
    /// Identity of the parent folder of the one to remove.
    above: Option<FileId>,
    backlog: Backlog,
    folders_at_once: usize,
    dry_run: bool,
    printer: RefCell<&'a mut Printer>,
}

/// A folder to visit and the identity of the folder that listed it.
type ListedFolder = (RelPath, Option<FileId>, Held);

/// A folder whose files are removed and whose subfolders are not yet.
struct OpenFolder {
    path: RelPath,
    id: Option<FileId>,
    folders: VecDeque<(RelPath, Held)>,
    /// Index of its parent among the open folders.
    parent: Option<usize>,
    /// Whether something in it could not be removed.
    stays: bool,
}

impl Removal<'_> {
    /// Counts the nodes below the folder.
    async fn count(&self) -> Result<u64, Failure> {
        let mut folders = vec![(self.located.path.clone(), self.above, Held::default())];
        let mut count = 0;
        while !folders.is_empty() {
            let first = folders.len().saturating_sub(self.folders_at_once);
            let batch = folders.split_off(first);
            let counts = join_all(batch.iter().map(|folder| self.count_in(folder))).await;
            for ((folder, ..), counted) in batch.iter().zip(counts) {
                match counted {
                    Ok((more, inner)) => {
                        count += more;
                        folders.extend(inner);
                    }
                    // The folder stays, and the removal will report the reason.
                    Err(error) if error.kind == ErrorKind::SymbolicLink && *folder != self.located.path => {}
                    Err(error) => return Err(self.located.fault("list", &error, End::Target)),
                }
            }
        }
        Ok(count)
    }

    /// Counts the nodes in one folder. Returns its subfolders as well. Checks that the folder is still in
    /// the parent where it was found.
    async fn count_in(
        &self,
        (folder, above, _): &ListedFolder,
    ) -> Result<(u64, impl Iterator<Item = ListedFolder>), Error> {
        let tree = &*self.located.tree;
        let mut listing: Box<dyn Listing> = tree.list(folder).await?;
        let (mut inner, mut count) = (Vec::new(), 0);
        loop {
            let entries = listing.next(nodes::ENTRIES_AT_ONCE).await?;
            if entries.is_empty() {
                break;
            }
            count += entries.len() as u64;
            for entry in entries {
                if entry.metadata.is_ok_and(|metadata| metadata.is_dir()) {
                    let path = folder.join(&entry.name);
                    let held = self.backlog.hold(&path)?;
                    inner.push((path, held));
                }
            }
        }
        let origin = listing.origin();
        prove_child(tree, folder, *above, origin)?;
        let id = origin.and_then(|origin| origin.own);
        Ok((count, inner.into_iter().map(move |(path, held)| (path, id, held))))
    }

    /// Lists a folder and returns its identity. Checks that the folder is still in the parent where
    /// it was found.
    async fn list(&self, path: &RelPath, above: Option<FileId>) -> Result<(Entries, Option<FileId>), Error> {
        let tree = &*self.located.tree;
        let entries = Entries::of(tree, path, SORTED_MAX / self.folders_at_once).await?;
        prove_child(tree, path, above, entries.origin())?;
        let id = entries.origin().and_then(|origin| origin.own);
        Ok((entries, id))
    }

    async fn file(&self) -> Result<(), Failure> {
        if !self.dry_run {
            let removed = self.located.tree.remove_file(&self.located.path).await;
            removed.map_err(|error| self.located.fault("remove", &error, End::Target))?;
        }
        self.removed(&self.located.path);
        Ok(())
    }

    /// Removes a folder and everything below it, depth first. Failures are reported, and the
    /// removal continues.
    async fn folder(&self) -> Result<(), Failure> {
        let top = self.open(self.located.path.clone(), self.above, None).await;
        let mut open = vec![top.map_err(|error| self.located.fault("list", &error, End::Target))?];
        while let Some(folder) = open.last_mut() {
            let batch = folder.folders.len().min(self.folders_at_once);
            let batch: Vec<(RelPath, Held)> = folder.folders.drain(..batch).collect();
            let emptied = match batch.is_empty() {
                true => open.pop().into_iter().collect(),
                false => self.open_all(batch, &mut open).await,
            };
            let removals = join_all(emptied.iter().map(|folder| self.remove_emptied(folder))).await;
            for (folder, is_removed) in emptied.iter().zip(removals) {
                if let Some(parent) = folder.parent.filter(|_| !is_removed) {
                    open[parent].stays = true;
                }
            }
        }
        Ok(())
    }

    /// Opens some subfolders of the last open folder. Returns those that have no subfolders themselves, and
    /// adds the others to the open folders.
    async fn open_all(&self, batch: Vec<(RelPath, Held)>, open: &mut Vec<OpenFolder>) -> Vec<OpenFolder> {
        let parent = open.len() - 1;
        let (above, mut emptied) = (open[parent].id, Vec::new());
        let opened = batch
            .iter()
            .map(|(path, _)| self.open(path.clone(), above, Some(parent)));
        for ((path, _), opened) in batch.iter().zip(join_all(opened).await) {
            match opened {
                Ok(inner) if inner.folders.is_empty() => emptied.push(inner),
                Ok(inner) => open.push(inner),
                Err(error) => {
                    open[parent].stays = true;
                    self.failed(path, &error);
                }
            }
        }
        emptied
    }

    /// Removes a folder that should be empty by now. Returns whether it is removed.
    async fn remove_emptied(&self, emptied: &OpenFolder) -> bool {
        if emptied.stays {
            return false;
        }
        if !self.dry_run
            && let Err(error) = self.located.tree.remove_dir(&emptied.path).await
        {
            self.failed(&emptied.path, &error);
            return false;
        }
        self.removed(&emptied.path);
        true
    }

    /// Lists a folder and removes everything in it but folders.
    async fn open(
        &self,
        path: RelPath,
        above: Option<FileId>,
        parent: Option<usize>,
    ) -> Result<OpenFolder, Error> {
        let (mut entries, id) = self.list(&path, above).await?;
        let mut open = OpenFolder {
            path,
            id,
            folders: VecDeque::new(),
            parent,
            stays: false,
        };
        let mut removals = JoinSet::new();
        let emptied = self.empty(&mut entries, &mut open, &mut removals).await;
        while !removals.is_empty() {
            self.joined(removals.join_next().await, &mut open);
        }
        emptied.map(|()| open)
    }

    /// Removes everything but folders, and notes the folders.
    async fn empty(
        &self,
        entries: &mut Entries,
        open: &mut OpenFolder,
        removals: &mut JoinSet<(RelPath, Result<(), Error>)>,
    ) -> Result<(), Error> {
        loop {
            let batch = entries.next().await?;
            if batch.is_empty() {
                return Ok(());
            }
            for (name, metadata) in batch {
                let path = open.path.join(&name);
                match metadata {
                    Ok(metadata) if metadata.is_dir() => self.note(path, &metadata, open)?,
                    // A node that cannot be examined may still be removable.
                    _ if self.dry_run => self.removed(&path),
                    _ => {
                        let tree = self.located.tree.clone();
                        removals.spawn(async move {
                            let removed = tree.remove_file(&path).await;
                            (path, removed)
                        });
                        if removals.len() == REMOVALS_MAX {
                            self.joined(removals.join_next().await, open);
                        }
                    }
                }
            }
        }
    }

    /// Adds a subfolder to those of the folder being emptied. A folder on another volume stays.
    fn note(&self, path: RelPath, metadata: &Metadata, open: &mut OpenFolder) -> Result<(), Error> {
        if metadata.id.map(|id| id.volume) == self.volume {
            let held = self.backlog.hold(&path)?;
            open.folders.push_back((path, held));
        } else {
            open.stays = true;
            let error = Error::new(Op::Remove, &path, ErrorKind::CrossDevice);
            self.failed(&path, &error);
        }
        Ok(())
    }

    fn joined(&self, joined: Joined, open: &mut OpenFolder) {
        match joined {
            Some(Ok((path, Ok(())))) => self.removed(&path),
            Some(Ok((path, Err(error)))) => {
                open.stays = true;
                self.failed(&path, &error);
            }
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Some(Err(_)) => open.stays = true,
            None => {}
        }
    }

    fn removed(&self, path: &RelPath) {
        let mut printer = self.printer.borrow_mut();
        printer.done();
        let place = self.located.place_of(path).to_string();
        if self.dry_run {
            printer.line(&format!("would remove {place}"));
        }
        let mut fields = Map::new();
        fields.insert("path".to_owned(), json!(place));
        fields.insert("action".to_owned(), json!("delete"));
        printer.object("item", fields);
    }

    fn failed(&self, path: &RelPath, error: &Error) {
        let what = format!("cannot remove {}", self.located.place_of(path));
        let mut printer = self.printer.borrow_mut();
        printer.fail(&Failure::of_node(&what, error, End::Target));
    }
}

type Joined = Option<Result<(RelPath, Result<(), Error>), tokio::task::JoinError>>;
