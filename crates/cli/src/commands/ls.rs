//! `ropeway ls`.

use std::path::Path;
use std::sync::Arc;

use ropeway_smb_client::{ShareInfo, ShareKind};
use ropeway_smb_wire::names::{NameMapping, from_wire};
use ropeway_vfs::path::reorders;
use ropeway_vfs::{Ancestry, End, Error, ErrorKind, Kind, Metadata, RelPath, Tree};
use serde_json::{Map, json};
use tokio::task::JoinHandle;

use super::nodes::{self, Entries, Entry, Located, Printer, SORTED_MAX, fields, local_time, marks};
use crate::args::LsArgs;
use crate::failure::Failure;
use crate::place::Place;
use crate::servers::Servers;
use crate::url::{Server, SmbUrl};

/// Number of folders listed ahead of the one being printed; hides the round trip of a distant
/// server. A guess.
const AHEAD_MAX: usize = 32;
/// Bytes of entries kept for each of them.
const AHEAD_BYTES: usize = SORTED_MAX / AHEAD_MAX;

/// Runs the command and returns its exit code.
///
/// # Errors
/// Nothing could be listed.
pub(crate) fn run(args: &LsArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let mut view = View {
            args,
            printer: Printer::new(args.json),
        };
        let is_only = args.paths.len() == 1;
        for (index, path) in args.paths.iter().enumerate() {
            if !is_only {
                if index > 0 {
                    view.printer.line("");
                }
                view.printer.line(&format!("{}:", path.display()));
            }
            let result = view.argument(path, &servers).await;
            view.printer.finish_argument(result, is_only)?;
        }
        Ok(view.printer.finish())
    })
}

/// A folder to print; its listing may have been started already.
struct Folder {
    path: RelPath,
    /// Path of its entries relative to the argument.
    shown: RelPath,
    ancestry: Ancestry,
    listing: Option<JoinHandle<Result<Entries, Error>>>,
}

struct View<'a> {
    args: &'a LsArgs,
    printer: Printer,
}

impl View<'_> {
    async fn argument(&mut self, path: &Path, servers: &Servers) -> Result<(), Failure> {
        if let Place::Remote(url) = Place::parse(path)?
            && url.share.is_none()
        {
            let shares = servers.shares(&url.server).await;
            let mut shares = shares
                .map_err(|error| error.failure(&format!("cannot list the shares of {url}"), End::Source))?;
            shares.sort_by_key(|share| share.name.to_string().to_lowercase());
            self.shares(&url.server, &shares);
            return Ok(());
        }
        let located = nodes::find(path, !self.args.long, servers).await?;
        let metadata = located.metadata(End::Source).await?;
        if metadata.is_dir() {
            return self.tree(&located, &metadata).await;
        }
        let name = located.shown.clone();
        self.node(&located.tree, &located.path, &name, &metadata).await;
        Ok(())
    }

    /// Prints a folder, and with `-R` the folders in it, depth first. Starts listings ahead of
    /// time.
    async fn tree(&mut self, located: &Located, metadata: &Metadata) -> Result<(), Failure> {
        let mut open = vec![Folder {
            path: located.path.clone(),
            shown: RelPath::root(),
            ancestry: Ancestry::begin(&*located.tree, metadata),
            listing: None,
        }];
        let mut ahead = 0;
        while let Some(mut folder) = open.pop() {
            let listing = folder.listing.take();
            ahead -= usize::from(listing.is_some());
            let first = open.len();
            if let Err(error) = self.folder(located, &folder, listing, &mut open).await {
                if folder.shown.is_root() && self.printer.is_empty() {
                    return Err(located.fault("list", &error, End::Source));
                }
                self.fail(located, "list", &folder.shown, &error);
            }
            open[first..].reverse();
            if self.printer.is_closed() {
                return Ok(());
            }
            for folder in open.iter_mut().rev().take(AHEAD_MAX) {
                if ahead < AHEAD_MAX && folder.listing.is_none() {
                    let (tree, path) = (Arc::clone(&located.tree), folder.path.clone());
                    folder.listing = Some(tokio::spawn(async move {
                        Entries::of(&*tree, &path, AHEAD_BYTES).await
                    }));
                    ahead += 1;
                }
            }
        }
        Ok(())
    }

    /// Prints the entries of a folder, and adds the folders in it to `open`.
    async fn folder(
        &mut self,
        located: &Located,
        folder: &Folder,
        listing: Option<JoinHandle<Result<Entries, Error>>>,
        open: &mut Vec<Folder>,
    ) -> Result<(), Error> {
        let mut entries = match listing {
            Some(listing) => listing
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?,
            None => Entries::of(&*located.tree, &folder.path, SORTED_MAX).await?,
        };
        entries.keep(SORTED_MAX).await?;
        if !entries.is_sorted() {
            self.printer.note(&format!(
                "{}/{} has too many entries to sort; they are shown unsorted",
                located.shown, folder.shown
            ));
        }
        loop {
            let batch = entries.next().await?;
            if batch.is_empty() || self.printer.is_closed() {
                return Ok(());
            }
            for entry in batch {
                self.entry(located, folder, entry, open).await?;
            }
        }
    }

    /// Prints an entry.
    async fn entry(
        &mut self,
        located: &Located,
        folder: &Folder,
        (name, metadata): Entry,
        open: &mut Vec<Folder>,
    ) -> Result<(), Error> {
        let (path, shown) = (folder.path.join(&name), folder.shown.join(&name));
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) => {
                self.fail(located, "examine", &shown, &error);
                return Ok(());
            }
        };
        self.node(&located.tree, &path, &shown.to_string(), &metadata)
            .await;
        if !self.args.recursive || !metadata.is_dir() {
            return Ok(());
        }
        match folder.ancestry.enter(&path, &metadata) {
            Ok(ancestry) => open.push(Folder {
                path,
                shown,
                ancestry,
                listing: None,
            }),
            // Too many folders are waiting; the rest of this one is left out.
            Err(error) if error.kind == ErrorKind::PeerMisbehaved => return Err(error),
            Err(error) => self.fail(located, "list", &shown, &error),
        }
        Ok(())
    }

    fn fail(&mut self, located: &Located, verb: &str, shown: &RelPath, error: &Error) {
        let what = match shown.is_root() {
            true => format!("cannot {verb} {}", located.shown),
            false => format!("cannot {verb} {}/{shown}", located.shown),
        };
        self.printer.fail(&Failure::of_node(&what, error, End::Source));
    }

    async fn node(&mut self, tree: &Arc<dyn Tree>, path: &RelPath, shown: &str, metadata: &Metadata) {
        self.printer.done();
        if !self.args.long && !self.args.json {
            self.printer.line(shown);
            return;
        }
        let link = match metadata.kind {
            Kind::Symlink => tree.read_link(path).await.ok(),
            _ => None,
        };
        let link = link.map(|bytes| printable(&String::from_utf8_lossy(&bytes)));
        if self.args.json {
            self.printer
                .object("entry", fields(shown, metadata, link.as_deref()));
            return;
        }
        let arrow = link.map(|text| format!(" -> {text}")).unwrap_or_default();
        self.printer.line(&format!(
            "{} {:>14} {} {shown}{arrow}",
            marks(metadata),
            metadata.size,
            metadata
                .modified
                .known()
                .map_or_else(|| format!("{:<19}", "-"), |time| local_time(time, false)),
        ));
    }

    fn shares(&mut self, server: &Server, shares: &[ShareInfo]) {
        for share in shares {
            let text = |text| String::from_utf8_lossy(&from_wire(text, NameMapping::None)).into_owned();
            let (name, remark) = (text(&share.name), text(&share.remark));
            let kind = match share.kind.base() {
                ShareKind::DISK => "disk",
                ShareKind::PRINT_QUEUE => "printer",
                ShareKind::DEVICE => "device",
                ShareKind::IPC => "pipes",
                _ => "unknown",
            };
            self.printer.done();
            if self.args.json {
                let mut fields = Map::new();
                fields.insert("name".to_owned(), json!(name));
                fields.insert("kind".to_owned(), json!(kind));
                fields.insert(
                    "hidden".to_owned(),
                    json!(share.kind.is_special() || name.ends_with('$')),
                );
                fields.insert("remark".to_owned(), json!(remark));
                fields.insert(
                    "url".to_owned(),
                    json!(SmbUrl::of_share(server, &name).to_string()),
                );
                self.printer.object("share", fields);
            } else if self.args.long {
                let line = format!("{kind:<8} {:<24} {}", printable(&name), printable(&remark));
                self.printer.line(line.trim_end());
            } else if share.kind.is_disk() {
                self.printer.line(&printable(&name));
            }
        }
    }
}

/// Replaces control characters in text from a server, so that it cannot control the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || reorders(c) { '?' } else { c })
        .collect()
}
