//! Opens nodes: from the cache, where no request is needed, or in one round trip.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_vfs::store::{Access, NewNode, NodeChange, NodeOpen, NodeStat, Opened};
use ropeway_vfs::{CacheMode, Create, Error, ErrorKind, File as _, Kind, Op, OpenOptions, RelPath, Result};

use super::creation::Creation;
use super::node::SmbNode;
use super::node_cache::{Asked, Known};
use super::shared::Shared;
use super::stat::goes_away;
use crate::smb_tree::SmbFile;

/// Maximum number of links followed on one path; Linux has the same limit (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// The DOS attributes that follow from the kind of a node, and are never kept: DIRECTORY, NORMAL,
/// REPARSE_POINT ([MS-FSCC] 2.6).
const OF_KIND: u32 = 0x10 | 0x80 | 0x400;

impl Shared {
    /// Opens a node if no request is needed for that: what the cache knows, to look at it or to
    /// list it.
    pub(super) fn open_known(self: &Arc<Self>, path: &RelPath, how: &NodeOpen) -> Option<Opened> {
        if how.create.is_some() {
            return None;
        }
        let Known::There(stat) = self.known(path)? else {
            return None;
        };
        let is_enough = match stat.kind {
            Kind::File => how.access == Access::Attributes,
            Kind::Symlink => how.link_itself,
            _ => true,
        };
        is_enough.then(|| self.opened(path, stat, how.access, false))
    }

    /// Opens a known file to read it, and the server is asked at the first read.
    pub(super) fn open_later(self: &Arc<Self>, path: &RelPath) -> Option<Opened> {
        match self.known(path)? {
            Known::There(stat) if stat.kind == Kind::File => {
                Some(self.opened(path, stat, Access::Read, false))
            }
            _ => None,
        }
    }

    /// Opens or makes a node.
    pub(super) async fn open(self: &Arc<Self>, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let mut at = path.clone();
        for _ in 0..LINKS_MAX {
            match self.open_here(&at, how).await {
                Err(error) if error.kind == ErrorKind::SymbolicLink => {
                    at = match self.follow(&at, !how.link_itself).await? {
                        Some(target) => target,
                        None => {
                            return Err(Error {
                                path: path.clone(),
                                ..error
                            });
                        }
                    };
                }
                opened => return opened,
            }
        }
        Err(Error::new(Op::Open, path, ErrorKind::SymbolicLink))
    }

    /// Opens or makes a node, without following a link.
    async fn open_here(self: &Arc<Self>, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        match how.create {
            Some(new) if new.directory => self.make_folder(path, how, new).await,
            Some(new) => self.make_file(path, how, new).await,
            None => self.open_existing(path, how).await.map_err(goes_away),
        }
    }

    async fn open_existing(self: &Arc<Self>, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let known = match self.known(path) {
            Some(Known::There(stat)) => Some(stat),
            Some(Known::Missing) => return Err(Error::new(Op::Open, path, ErrorKind::NotFound)),
            None => None,
        };
        let is_content = how.access != Access::Attributes;
        if is_content && known.is_none_or(|stat| stat.kind == Kind::File) && !path.is_root() {
            match self.open_content(path, how, known).await {
                // It is no file.
                Err(error) if matches!(error.kind, ErrorKind::IsADirectory) => {}
                Err(error) if error.kind == ErrorKind::SymbolicLink && how.link_itself => {}
                Err(error) if error.kind == ErrorKind::PermissionDenied && how.allow_less_access => {}
                opened => return opened,
            }
        }
        let stat = match known {
            Some(stat) => stat,
            None => self.ask(Op::Open, path).await?,
        };
        if stat.kind == Kind::Symlink && !how.link_itself {
            return Err(Error::new(Op::Open, path, ErrorKind::SymbolicLink));
        }
        let access = if stat.kind == Kind::File {
            Access::Attributes
        } else {
            how.access
        };
        Ok(self.opened(path, stat, access, false))
    }

    /// Opens a file to read or write it.
    async fn open_content(
        self: &Arc<Self>,
        path: &RelPath,
        how: &NodeOpen,
        known: Option<NodeStat>,
    ) -> Result<Opened> {
        let write = how.access == Access::Write;
        // The file is in use, and the name is known to be its own.
        if let Some(stat) = known
            && let Some(file) = self.files.get(stat.id)
            && file.held(write).is_some()
        {
            return Ok(self.opened(path, stat, how.access, false));
        }
        if write {
            self.give_up_ahead_now(path).await;
        } else if let Some(stat) = known
            && let Some(opened) = self.open_read_ahead(path, stat, how.access).await
        {
            return Ok(opened);
        }
        if !write && known.is_some() {
            self.read_files_ahead(path);
        }
        // Only the query has the number of links. Both take one round trip together.
        let options = options(write, Create::No);
        let asked = self.cache.lock().ask();
        let parent = self.lease_key_for(path);
        let opening = SmbFile::open_beneath(&self.tree, path, options, parent);
        let (file, stat) = match known {
            Some(stat) => (opening.await, Ok(stat)),
            None => tokio::join!(opening, self.ask(Op::Open, path)),
        };
        match file {
            Ok(file) => self.content(path, file, asked, stat.ok(), how.access, false),
            Err(error) if write && how.allow_less_access && error.kind == ErrorKind::PermissionDenied => {
                let file = SmbFile::open(&self.tree, path, options_for_reading()).await?;
                self.content(path, file, asked, stat.ok(), Access::Read, false)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a file that was read ahead. An error is left to the open that follows.
    async fn open_read_ahead(
        self: &Arc<Self>,
        path: &RelPath,
        stat: NodeStat,
        access: Access,
    ) -> Option<Opened> {
        if !self.files_ahead.has(path) {
            return None;
        }
        let file = self.files.of(self, stat.id, stat.kind, path);
        // It is in use from here on.
        let node = SmbNode::new(Arc::clone(&file), access);
        file.handle(false).await.ok()?;
        Some(Opened {
            node: Arc::new(node),
            stat: self.with_unsent(stat),
            created: false,
        })
    }

    async fn make_file(self: &Arc<Self>, path: &RelPath, how: &NodeOpen, new: NewNode) -> Result<Opened> {
        if path.is_root()
            || path
                .file_name()
                .is_some_and(|name| super::names::is_temporary(&name))
        {
            return self.open_taken(path, how).await;
        }
        let create = if how.exclusive {
            Create::New
        } else {
            Create::IfMissing
        };
        self.give_up_ahead_now(path).await;
        let creation = Creation::begin(self, path);
        let (asked, parent) = (creation.asked, creation.parent);
        let file = match SmbFile::open_beneath(&self.tree, path, options(true, create), parent).await {
            Ok(file) => file,
            Err(error) if error.kind == ErrorKind::IsADirectory => {
                drop(creation);
                return self.open_taken(path, how).await;
            }
            Err(error) => return Err(error),
        };
        let is_new = file.is_new();
        match file.at_open().filter(|metadata| is_new && metadata.id.is_some()) {
            Some(metadata) => creation.made(&self.node_stat(&metadata, path)),
            None => drop(creation),
        }
        let stat = match is_new {
            true => None,
            false => self.ask(Op::Open, path).await.ok(),
        };
        self.tree.note_change(path);
        let mut opened = self.content(path, file, asked, stat, Access::Write, is_new)?;
        if let Some(attributes) = new.dos_attributes.filter(|_| is_new) {
            opened.stat = self.set_attributes(&opened, attributes).await?;
        }
        Ok(opened)
    }

    async fn make_folder(self: &Arc<Self>, path: &RelPath, how: &NodeOpen, new: NewNode) -> Result<Opened> {
        let creation = Creation::begin(self, path);
        let made = match self.tree.make_dir_open(path, creation.parent).await {
            // Whoever may make a folder need not be allowed to list it.
            Err(error) if error.kind == ErrorKind::PermissionDenied => {
                self.tree.make_dir(path).await.map(|()| None)
            }
            made => made.map(Some),
        };
        let made = match made {
            Ok(made) => made,
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                drop(creation);
                return self.open_taken(path, how).await;
            }
            Err(error) => return Err(error),
        };
        self.tree.note_change(path);
        // Without a handle the creation ends here, and nothing is known.
        let known = made.and_then(|made| creation.made_folder(&made));
        let stat = match known {
            Some(stat) => stat,
            None => self.ask(Op::Create, path).await?,
        };
        let mut opened = self.opened(path, stat, how.access, true);
        if let Some(attributes) = new.dos_attributes {
            opened.stat = self.set_attributes(&opened, attributes).await?;
        }
        Ok(opened)
    }

    /// Opens what has the name of a node to make, unless it must be new.
    async fn open_taken(self: &Arc<Self>, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        if how.exclusive {
            return Err(Error::new(Op::Create, path, ErrorKind::AlreadyExists));
        }
        self.open_existing(path, &NodeOpen { create: None, ..*how }).await
    }

    async fn set_attributes(&self, opened: &Opened, attributes: u32) -> Result<NodeStat> {
        let change = NodeChange {
            dos_attributes: Some(attributes & !OF_KIND),
            ..NodeChange::default()
        };
        let node = opened.node.as_any().downcast_ref::<SmbNode>();
        // `opened` comes from this module.
        let node = node.expect("a node of this store");
        node.file().change(&change).await?;
        node.file().stat().await
    }

    /// Returns a node without content.
    fn opened(self: &Arc<Self>, path: &RelPath, stat: NodeStat, access: Access, created: bool) -> Opened {
        let file = self.files.of(self, stat.id, stat.kind, path);
        let stat = self.with_unsent(stat);
        let access = match stat.kind {
            Kind::File | Kind::Directory => access,
            _ => Access::Attributes,
        };
        Opened {
            node: Arc::new(SmbNode::new(file, access)),
            stat,
            created,
        }
    }

    /// Returns a node with content: `file` is open, and was asked for at `asked`.
    fn content(
        self: &Arc<Self>,
        path: &RelPath,
        file: SmbFile,
        asked: Asked,
        stat: Option<NodeStat>,
        access: Access,
        created: bool,
    ) -> Result<Opened> {
        let at_open = file.at_open().map(|metadata| self.node_stat(&metadata, path));
        // A server without ids on disk reports the id only to a query, which `stat` was.
        let same = stat.filter(|stat| at_open.is_none_or(|at_open| at_open.id == stat.id));
        let stat = same.or(at_open).or(stat);
        let stat = stat.ok_or_else(|| Error::new(Op::Open, path, ErrorKind::InvalidReply))?;
        let shared = self.files.of(self, stat.id, Kind::File, path);
        shared.begin_use();
        if self.cache.lock().is_file_changed_since(asked, stat.id) {
            shared.is_end_doubtful.store(true, Ordering::Release);
        }
        shared.adopt(Arc::new(file), access == Access::Write);
        self.give_up_ahead_of(stat.id);
        let node = SmbNode::with_use(shared, access);
        Ok(Opened {
            node: Arc::new(node),
            stat: self.with_unsent(stat),
            created,
        })
    }
}

fn options(write: bool, create: Create) -> OpenOptions {
    OpenOptions {
        write,
        create,
        ..OpenOptions::read(CacheMode::default())
    }
}

fn options_for_reading() -> OpenOptions {
    options(false, Create::No)
}
