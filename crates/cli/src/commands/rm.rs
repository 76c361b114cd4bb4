//! `ropeway rm`: removes links without following them; removes folders only with `-r`, and asks
//! first.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

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
        dry_run: args.dry_run,
        printer,
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
    dry_run: bool,
    printer: &'a mut Printer,
}

/// A folder whose files are removed and whose subfolders are not yet.
struct OpenFolder {
    path: RelPath,
    id: Option<FileId>,
    folders: VecDeque<(RelPath, Held)>,
    /// Whether something in it could not be removed.
    stays: bool,
}

impl Removal<'_> {
    /// Counts the nodes below the folder.
    async fn count(&self) -> Result<u64, Failure> {
        let mut folders = vec![(self.located.path.clone(), self.above, Held::default())];
        let mut count = 0;
        while let Some((folder, above, _held)) = folders.pop() {
            match self.count_in(&folder, above, &mut folders).await {
                Ok(more) => count += more,
                // The folder stays, and the removal will report the reason.
                Err(error) if error.kind == ErrorKind::SymbolicLink && folder != self.located.path => {}
                Err(error) => return Err(self.located.fault("list", &error, End::Target)),
            }
        }
        Ok(count)
    }

    /// Counts the nodes in one folder and adds its subfolders to `folders`. Checks first that the
    /// folder is still in the parent where it was found.
    async fn count_in(
        &self,
        folder: &RelPath,
        above: Option<FileId>,
        folders: &mut Vec<(RelPath, Option<FileId>, Held)>,
    ) -> Result<u64, Error> {
        let tree = &*self.located.tree;
        let mut listing: Box<dyn Listing> = tree.list(folder).await?;
        let (first, mut count) = (folders.len(), 0);
        loop {
            let entries = listing.next(nodes::ENTRIES_AT_ONCE).await?;
            count += entries.len() as u64;
            let is_end = entries.is_empty();
            for entry in entries {
                if entry.metadata.is_ok_and(|metadata| metadata.is_dir()) {
                    let path = folder.join(&entry.name);
                    let held = self.backlog.hold(&path)?;
                    folders.push((path, None, held));
                }
            }
            if is_end {
                break;
            }
        }
        let origin = listing.origin();
        if let Err(error) = prove_child(tree, folder, above, origin) {
            folders.truncate(first);
            return Err(error);
        }
        for (_, id, _) in &mut folders[first..] {
            *id = origin.and_then(|origin| origin.own);
        }
        Ok(count)
    }

    /// Lists a folder and returns its identity. Checks that the folder is still in the parent where
    /// it was found.
    async fn list(&self, path: &RelPath, above: Option<FileId>) -> Result<(Entries, Option<FileId>), Error> {
        let tree = &*self.located.tree;
        let entries = Entries::of(tree, path, SORTED_MAX).await?;
        prove_child(tree, path, above, entries.origin())?;
        let id = entries.origin().and_then(|origin| origin.own);
        Ok((entries, id))
    }

    async fn file(&mut self) -> Result<(), Failure> {
        if !self.dry_run {
            let removed = self.located.tree.remove_file(&self.located.path).await;
            removed.map_err(|error| self.located.fault("remove", &error, End::Target))?;
        }
        self.removed(&self.located.path.clone());
        Ok(())
    }

    /// Removes a folder and everything below it, depth first. Failures are reported, and the
    /// removal continues.
    async fn folder(&mut self) -> Result<(), Failure> {
        let top = self.open(self.located.path.clone(), self.above).await;
        let mut open = vec![top.map_err(|error| self.located.fault("list", &error, End::Target))?];
        while let Some(folder) = open.last_mut() {
            if let Some((inner, _held)) = folder.folders.pop_front() {
                let above = folder.id;
                match self.open(inner.clone(), above).await {
                    Ok(inner) => open.push(inner),
                    Err(error) => {
                        folder.stays = true;
                        self.failed(&inner, &error);
                    }
                }
                continue;
            }
            let Some(mut emptied) = open.pop() else { break };
            if !emptied.stays
                && !self.dry_run
                && let Err(error) = self.located.tree.remove_dir(&emptied.path).await
            {
                emptied.stays = true;
                self.failed(&emptied.path, &error);
            }
            if !emptied.stays {
                self.removed(&emptied.path);
            } else if let Some(parent) = open.last_mut() {
                parent.stays = true;
            }
        }
        Ok(())
    }

    /// Lists a folder and removes everything in it but folders.
    async fn open(&mut self, path: RelPath, above: Option<FileId>) -> Result<OpenFolder, Error> {
        let (mut entries, id) = self.list(&path, above).await?;
        let mut open = OpenFolder {
            path,
            id,
            folders: VecDeque::new(),
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
        &mut self,
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
    fn note(&mut self, path: RelPath, metadata: &Metadata, open: &mut OpenFolder) -> Result<(), Error> {
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

    fn joined(&mut self, joined: Joined, open: &mut OpenFolder) {
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

    fn removed(&mut self, path: &RelPath) {
        self.printer.done();
        let place = self.located.place_of(path).to_string();
        if self.dry_run {
            self.printer.line(&format!("would remove {place}"));
        }
        let mut fields = Map::new();
        fields.insert("path".to_owned(), json!(place));
        fields.insert("action".to_owned(), json!("delete"));
        self.printer.object("item", fields);
    }

    fn failed(&mut self, path: &RelPath, error: &Error) {
        let what = format!("cannot remove {}", self.located.place_of(path));
        self.printer.fail(&Failure::of_node(&what, error, End::Target));
    }
}

type Joined = Option<Result<(RelPath, Result<(), Error>), tokio::task::JoinError>>;
