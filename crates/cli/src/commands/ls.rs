//! `ropeway ls`.

use std::path::Path;
use std::sync::Arc;

use ropeway_smb_client::{ShareInfo, ShareKind};
use ropeway_smb_wire::names::{NameMapping, from_wire};
use ropeway_vfs::path::reorders;
use ropeway_vfs::{Ancestry, Error, ErrorKind, Kind, Metadata, RelPath, Tree};
use serde_json::{Map, json};
use tokio::task::JoinHandle;

use super::nodes::{self, Entries, Entry, SORTED_MAX, Spot, Voice, fields, local_time, marks};
use crate::args::LsArgs;
use crate::failure::Failure;
use crate::place::Place;
use crate::servers::Servers;
use crate::url::{Server, SmbUrl};

/// Folders listed ahead of the one being shown: hides the round trip of a distant server. A guess.
const AHEAD_MAX: usize = 32;
/// Bytes of entries that are kept of each of them.
const AHEAD_BYTES: usize = SORTED_MAX / AHEAD_MAX;

/// Runs the command; gives its exit code.
///
/// # Errors
/// Nothing could be listed.
pub(crate) fn run(args: &LsArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let mut view = View {
            args,
            voice: Voice::new(args.json),
        };
        let is_only = args.paths.len() == 1;
        for (index, path) in args.paths.iter().enumerate() {
            if !is_only {
                if index > 0 {
                    view.voice.line("");
                }
                view.voice.line(&format!("{}:", path.display()));
            }
            let result = view.argument(path, &servers).await;
            view.voice.take(result, is_only)?;
        }
        Ok(view.voice.finish())
    })
}

/// A folder to be shown, perhaps being listed already.
struct Folder {
    path: RelPath,
    /// How its entries are called: relative to the argument.
    shown: RelPath,
    ancestry: Ancestry,
    listing: Option<JoinHandle<Result<Entries, Error>>>,
}

struct View<'a> {
    args: &'a LsArgs,
    voice: Voice,
}

impl View<'_> {
    async fn argument(&mut self, path: &Path, servers: &Servers) -> Result<(), Failure> {
        if let Place::Remote(url) = Place::parse(path)?
            && url.share.is_none()
        {
            let shares = servers.shares(&url.server).await;
            let mut shares = shares
                .map_err(|trouble| trouble.failure(&format!("cannot list the shares of {url}"), true))?;
            shares.sort_by_key(|share| share.name.to_string().to_lowercase());
            self.shares(&url.server, &shares);
            return Ok(());
        }
        let spot = nodes::find(path, !self.args.long, servers).await?;
        let metadata = spot.metadata(true).await?;
        if metadata.is_dir() {
            return self.tree(&spot, &metadata).await;
        }
        let name = spot.shown.clone();
        self.node(&spot.tree, &spot.path, &name, &metadata).await;
        Ok(())
    }

    /// Shows a folder, and with `-R` those in it, depth first; listings are asked for ahead.
    async fn tree(&mut self, spot: &Spot, metadata: &Metadata) -> Result<(), Failure> {
        let mut open = vec![Folder {
            path: spot.path.clone(),
            shown: RelPath::root(),
            ancestry: Ancestry::begin(&*spot.tree, metadata),
            listing: None,
        }];
        let mut ahead = 0;
        while let Some(mut folder) = open.pop() {
            let listing = folder.listing.take();
            ahead -= usize::from(listing.is_some());
            let first = open.len();
            if let Err(error) = self.folder(spot, &folder, listing, &mut open).await {
                if folder.shown.is_root() && self.voice.is_silent() {
                    return Err(spot.fault("list", &error, true));
                }
                self.fail(spot, "list", &folder.shown, &error);
            }
            open[first..].reverse();
            if self.voice.is_gone() {
                return Ok(());
            }
            for folder in open.iter_mut().rev().take(AHEAD_MAX) {
                if ahead < AHEAD_MAX && folder.listing.is_none() {
                    let (tree, path) = (Arc::clone(&spot.tree), folder.path.clone());
                    folder.listing = Some(tokio::spawn(async move {
                        Entries::of(&*tree, &path, AHEAD_BYTES).await
                    }));
                    ahead += 1;
                }
            }
        }
        Ok(())
    }

    /// Shows what a folder holds, and notes the folders in it.
    async fn folder(
        &mut self,
        spot: &Spot,
        folder: &Folder,
        listing: Option<JoinHandle<Result<Entries, Error>>>,
        open: &mut Vec<Folder>,
    ) -> Result<(), Error> {
        let mut entries = match listing {
            Some(listing) => listing
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?,
            None => Entries::of(&*spot.tree, &folder.path, SORTED_MAX).await?,
        };
        entries.keep(SORTED_MAX).await?;
        if !entries.is_sorted() {
            self.voice.note(&format!(
                "{}/{} holds too much to be sorted; shown as it is listed",
                spot.shown, folder.shown
            ));
        }
        loop {
            let batch = entries.next().await?;
            if batch.is_empty() || self.voice.is_gone() {
                return Ok(());
            }
            for entry in batch {
                self.entry(spot, folder, entry, open).await?;
            }
        }
    }

    /// Shows an entry.
    async fn entry(
        &mut self,
        spot: &Spot,
        folder: &Folder,
        (name, metadata): Entry,
        open: &mut Vec<Folder>,
    ) -> Result<(), Error> {
        let (path, shown) = (folder.path.join(&name), folder.shown.join(&name));
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) => {
                self.fail(spot, "examine", &shown, &error);
                return Ok(());
            }
        };
        self.node(&spot.tree, &path, &shown.to_string(), &metadata).await;
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
            // More folders than can wait: the rest of this one is left out.
            Err(error) if error.kind == ErrorKind::PeerMisbehaved => return Err(error),
            Err(error) => self.fail(spot, "list", &shown, &error),
        }
        Ok(())
    }

    fn fail(&mut self, spot: &Spot, verb: &str, shown: &RelPath, error: &Error) {
        let what = match shown.is_root() {
            true => format!("cannot {verb} {}", spot.shown),
            false => format!("cannot {verb} {}/{shown}", spot.shown),
        };
        self.voice.fail(&Failure::of_node(&what, error, true));
    }

    async fn node(&mut self, tree: &Arc<dyn Tree>, path: &RelPath, shown: &str, metadata: &Metadata) {
        self.voice.done();
        if !self.args.long && !self.args.json {
            self.voice.line(shown);
            return;
        }
        let link = match metadata.kind {
            Kind::Symlink => tree.read_link(path).await.ok(),
            _ => None,
        };
        let link = link.map(|bytes| printable(&String::from_utf8_lossy(&bytes)));
        if self.args.json {
            self.voice
                .object("entry", fields(shown, metadata, link.as_deref()));
            return;
        }
        let arrow = link.map(|text| format!(" -> {text}")).unwrap_or_default();
        self.voice.line(&format!(
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
            self.voice.done();
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
                self.voice.object("share", fields);
            } else if self.args.long {
                let line = format!("{kind:<8} {:<24} {}", printable(&name), printable(&remark));
                self.voice.line(line.trim_end());
            } else if share.kind.is_disk() {
                self.voice.line(&printable(&name));
            }
        }
    }
}

/// What a server says, without control characters: it may not write to our terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || reorders(c) { '?' } else { c })
        .collect()
}
