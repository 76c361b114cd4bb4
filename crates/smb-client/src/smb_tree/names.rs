//! Operations on the paths of a tree.

use std::collections::{HashMap, HashSet};

use futures_util::StreamExt as _;
use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::reparse::{REPARSE_BUFFER_MAX, ReparseData};
use ropeway_smb_wire::info::{
    DirectoryRecord, FileAllInformation, FileBasicInformation, FileDispositionInformation,
    FileLinkInformation,
};
use ropeway_smb_wire::{FileAttributes, NtStatus, Text, upcase};
use ropeway_vfs::{
    Error, ErrorKind, Kind, Loss, Metadata, MetadataChange, Name, Op, RelPath, Result, Space, Verdict,
};

use super::compound::{self, Compound};
use super::errors::{tree_error, with_message};
use super::inner::Inner;
use super::links::{self, Special};
use super::map;
use crate::dfs::Route;
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::open::OpenFile;
use crate::open_summary::NodeSummary;
use crate::ops;

/// Maximum number of queries for single nodes in flight; the connection's credits limit it further.
/// A guess.
pub(crate) const AT_ONCE: usize = 128;
/// Number of names from which on a folder is listed rather than queried name by name.
const LOOKUP_LISTS_FROM: usize = 32;
/// Maximum number of folders remembered as reparse points whose content the server shows. A guess;
/// any further are listed as they are on the disk.
const CONTENT_SHOWN_MAX: usize = 1 << 16;

impl Inner {
    /// Maps the error of an operation on a path. Distinguishes a path through a file from a path
    /// that does not exist; servers have one status for both ([MS-FSA] 2.1.5.1).
    pub(crate) async fn map_error<T>(&self, op: Op, path: &RelPath, result: ClientResult<T>) -> Result<T> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        // On the heap: nearly all requests succeed, and thousands are under way.
        Err(Box::pin(self.refined(op, path, error)).await)
    }

    /// Looks for what the status does not tell.
    async fn refined(&self, op: Op, path: &RelPath, error: ClientError) -> Error {
        let mut refined = tree_error(op, path, error.clone());
        if error.status() == Some(NtStatus::STOPPED_ON_SYMLINK)
            && let Some(sentence) = self.link_in(op, path).await
        {
            refined.source = Some(std::io::Error::other(sentence));
        }
        if error.status() != Some(NtStatus::OBJECT_PATH_NOT_FOUND) {
            return refined;
        }
        let mut at = path.parent();
        while let Some(parent) = at.filter(|parent| !parent.is_root()) {
            let Ok(text) = self.base.text(op, &parent) else {
                break;
            };
            match self.share.stat(&text).await {
                Ok(all) if !all.standard.directory => {
                    refined.kind = ErrorKind::NotADirectory;
                    break;
                }
                Ok(_) => break,
                Err(_) => at = parent.parent(),
            }
        }
        refined
    }

    /// Returns the cached metadata of a node, or that it does not exist; `None` if it is not
    /// cached.
    pub(crate) fn cached_metadata(&self, path: &RelPath) -> Option<Result<Metadata>> {
        let text = self.base.text(Op::Stat, path).ok()?;
        Some(match self.listing_cache.node(&text)? {
            NodeSummary::There(all) => Ok(self.all(&all)),
            NodeSummary::Missing => Err(Error::new(Op::Stat, path, ErrorKind::NotFound)),
        })
    }

    /// Converts the reply to a query.
    pub(crate) fn all(&self, all: &FileAllInformation) -> Metadata {
        let mut metadata = map::all(all, self.volume);
        metadata.has_xattrs = self.has_xattrs_by_ea_size(all.basic.attributes, all.ea.ea_size);
        metadata
    }

    /// Converts a record of a directory.
    pub(crate) fn record(&self, record: &DirectoryRecord) -> Metadata {
        let mut metadata = map::record(record, self.volume);
        metadata.has_xattrs = self.has_xattrs_by_ea_size(record.attributes, record.ea_size);
        metadata
    }

    /// Returns whether a node has extended attributes, where `EaSize` decides that. It does not
    /// cover streams and security descriptors, and for a reparse point it is the tag ([MS-FSCC]
    /// 2.4.17).
    fn has_xattrs_by_ea_size(&self, attributes: FileAttributes, ea_size: u32) -> Option<bool> {
        let only_eas = !self.has_streams && !self.options.acls;
        (only_eas && !attributes.contains(FileAttributes::REPARSE_POINT)).then_some(ea_size > 0)
    }

    /// Returns a message that names the link on a path. The server reports it only in the reply to
    /// the failed CREATE ([MS-SMB2] 2.2.2.2.1), or not at all (macOS).
    async fn link_in(&self, op: Op, path: &RelPath) -> Option<String> {
        let mut at = RelPath::root();
        for name in path.components() {
            at = at.join(&name);
            let text = self.base.text(op, &at).ok()?;
            let read = match self.read_reparse(&text).await {
                Ok(read) => read,
                // This path is already beyond the link.
                Err(error) if error.status() == Some(NtStatus::STOPPED_ON_SYMLINK) => return None,
                Err(_) => continue,
            };
            if let Some(target) = read.and_then(|special| special.text) {
                let target = String::from_utf8_lossy(&target).into_owned();
                return Some(format!(
                    "{at} is a symbolic link to {target:?}, and links are not followed (STATUS_STOPPED_ON_SYMLINK)"
                ));
            }
        }
        None
    }

    /// Returns the metadata of a node, without following a link.
    pub(crate) async fn stat(&self, op: Op, path: &RelPath) -> Result<Metadata> {
        let text = self.base.text(op, path)?;
        let all = self.map_error(op, path, self.share.stat(&text).await).await?;
        let mut metadata = self.all(&all);
        if all.basic.attributes.contains(FileAttributes::REPARSE_POINT) {
            self.read_reparse_kind(op, path, &mut metadata).await?;
            self.note_content_shown(path, metadata.kind);
        }
        Ok(metadata)
    }

    /// Remembers a folder that is a reparse point whose content the server shows.
    pub(crate) fn note_content_shown(&self, path: &RelPath, kind: Kind) {
        let mut shown = self.content_shown.lock();
        if kind == Kind::Directory && shown.len() < CONTENT_SHOWN_MAX {
            shown.insert(path.clone());
        }
    }

    /// Returns whether to list a folder through its reparse point.
    pub(crate) fn is_content_shown(&self, path: &RelPath) -> bool {
        let shown = self.content_shown.lock();
        shown.contains(path)
    }

    /// Completes the metadata of a reparse point from its data.
    pub(crate) async fn read_reparse_kind(
        &self,
        op: Op,
        path: &RelPath,
        metadata: &mut Metadata,
    ) -> Result<()> {
        let Some(special) = self.special(op, path).await? else {
            return Ok(());
        };
        metadata.kind = special.kind;
        metadata.size = special.text.map_or(0, |text| text.len() as u64);
        metadata.device = special.device;
        Ok(())
    }

    /// Reads a reparse point; `None` if the server shows its content.
    async fn special(&self, op: Op, path: &RelPath) -> Result<Option<Special>> {
        let text = self.base.text(op, path)?;
        let read = self.read_reparse(&text).await;
        self.map_error(op, path, read).await
    }

    async fn read_reparse(&self, text: &Text) -> ClientResult<Option<Special>> {
        let open = OpenFile::metadata(AccessMask::READ_ATTRIBUTES);
        let reply = Compound::open("read a reparse point", text, &open)
            .ioctl(CtlCode::GET_REPARSE_POINT, Vec::new(), REPARSE_BUFFER_MAX)
            .run(&self.share)
            .await?;
        let output = compound::ioctl_output(&reply)?;
        Ok(Special::of(&ReparseData::decode(output)?))
    }

    pub(crate) async fn lookup(
        &self,
        dir: &RelPath,
        names: &[Name],
    ) -> Result<Vec<Result<Option<Metadata>>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let listed = match names.len() < LOOKUP_LISTS_FROM {
            true => None,
            false => self.listed(dir, names).await?,
        };
        let listed = &listed;
        let lookups = names.iter().cloned().map(|name| async move {
            // Only the server knows how it folds other letters, and its short names, so those are
            // queried.
            let is_plain = name.as_bytes().is_ascii() && !name.as_bytes().contains(&b'~');
            if let (Some(listed), true) = (listed, is_plain) {
                return Ok(listed.get(&self.folded(&name)).cloned());
            }
            match self.stat(Op::Stat, &dir.join(&name)).await {
                Ok(metadata) => Ok(Some(metadata)),
                Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
                // A name that the server cannot store does not exist.
                Err(error) if error.kind == ErrorKind::NameRefused => Ok(None),
                Err(error) => Err(error),
            }
        });
        let found: Vec<_> = futures_util::stream::iter(lookups)
            .buffered(AT_ONCE)
            .collect()
            .await;
        if found.iter().all(|one| matches!(one, Ok(None))) && listed.is_none() {
            // Either nothing exists or this is not a folder: one more query decides.
            self.stat_folder(dir).await?;
        }
        match found
            .iter()
            .position(|one| matches!(one, Err(error) if error.kind == ErrorKind::NotADirectory))
        {
            Some(_) => Err(Error::new(Op::Stat, dir, ErrorKind::NotADirectory)),
            None => Ok(found),
        }
    }

    async fn stat_folder(&self, dir: &RelPath) -> Result<()> {
        match self.stat(Op::Stat, dir).await?.is_dir() {
            true => Ok(()),
            false => Err(Error::new(Op::Stat, dir, ErrorKind::NotADirectory)),
        }
    }

    fn folded(&self, name: &Name) -> Text {
        let text =
            ropeway_smb_wire::names::to_wire(name.as_bytes(), ropeway_smb_wire::names::NameMapping::None);
        match self.capabilities.case_sensitive {
            true => text,
            false => upcase::fold(&text),
        }
    }

    /// Lists a folder and returns the metadata of these names, by folded name. Other names take no
    /// memory.
    async fn listed(&self, dir: &RelPath, names: &[Name]) -> Result<Option<HashMap<Text, Metadata>>> {
        let wanted: HashSet<Text> = names.iter().map(|name| self.folded(name)).collect();
        let text = self.base.text(Op::Stat, dir)?;
        let mut listing = self
            .map_error(Op::Stat, dir, self.share.list(&text, "*").await)
            .await?;
        let mut found = HashMap::new();
        while let Some(records) = self.map_error(Op::Stat, dir, listing.next().await).await? {
            for record in records {
                let Some(name) = super::paths::name_of(&record.name) else {
                    continue;
                };
                let folded = self.folded(&name);
                if !wanted.contains(&folded) {
                    continue;
                }
                let mut metadata = self.record(&record);
                if record.attributes.contains(FileAttributes::REPARSE_POINT) {
                    self.read_reparse_kind(Op::Stat, &dir.join(&name), &mut metadata)
                        .await?;
                }
                found.insert(folded, metadata);
            }
        }
        Ok(Some(found))
    }

    pub(crate) async fn make_dir(&self, path: &RelPath) -> Result<()> {
        let text = self.base.new_text(Op::MakeDir, path)?;
        if path.is_root() {
            return Err(Error::new(Op::MakeDir, path, ErrorKind::AlreadyExists));
        }
        self.map_error(Op::MakeDir, path, self.share.make_directory(&text).await)
            .await
    }

    pub(crate) async fn make_symlink(&self, path: &RelPath, link: &[u8]) -> Result<()> {
        let text = self.base.new_text(Op::Link, path)?;
        if !self.capabilities.symlinks {
            let sentence = "the share does not support symbolic links";
            return Err(with_message(Op::Link, path, ErrorKind::Unsupported, sentence));
        }
        let open = OpenFile {
            attributes: FileAttributes::NORMAL,
            disposition: CreateDisposition::Create,
            ..OpenFile::metadata(AccessMask::WRITE_ATTRIBUTES | AccessMask::WRITE_DATA | AccessMask::DELETE)
        };
        let Some(data) = links::link_data(link) else {
            let sentence = "the link's text is too long for a server";
            return Err(with_message(Op::Link, path, ErrorKind::NameRefused, sentence));
        };
        let made = Compound::open("make a link", &text, &open)
            .once()
            .ioctl(CtlCode::SET_REPARSE_POINT, data, 0)
            .run(&self.share)
            .await;
        let Err(error) = made else { return Ok(()) };
        let taken = error.status() == Some(NtStatus::OBJECT_NAME_COLLISION);
        if !taken && matches!(error, ClientError::PeerRefused { .. }) && self.is_empty_file(&text).await {
            // The file was created but did not become a link. If it cannot be removed, the original
            // error matters more.
            let _ = self.share.remove(&text).await;
        }
        self.map_error(Op::Link, path, Err(error)).await
    }

    async fn is_empty_file(&self, text: &Text) -> bool {
        let all = self.share.stat(text).await;
        all.is_ok_and(|all| !all.standard.directory && all.standard.end_of_file == 0)
    }

    pub(crate) async fn read_link(&self, path: &RelPath) -> Result<Vec<u8>> {
        let not_a_link = || with_message(Op::Stat, path, ErrorKind::Misuse, "it is not a symbolic link");
        let special = match self.special(Op::Stat, path).await {
            Ok(special) => special,
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(error);
            }
            Err(error) => {
                self.stat(Op::Stat, path).await?;
                return Err(match error.kind.verdict() {
                    ropeway_vfs::Verdict::Skip => not_a_link(),
                    _ => error,
                });
            }
        };
        special.and_then(|special| special.text).ok_or_else(not_a_link)
    }

    pub(crate) async fn make_hard_link(&self, existing: &RelPath, new: &RelPath) -> Result<()> {
        let (from, name) = (
            self.base.text(Op::Link, existing)?,
            self.base.new_text(Op::Link, new)?,
        );
        let there = Route::start(&self.share, &from).share;
        if let Err(elsewhere) = self.share.redirected_name("link", &name, &there) {
            return self.map_error(Op::Link, new, Err(elsewhere)).await;
        }
        let open = OpenFile::metadata(AccessMask::WRITE_ATTRIBUTES | AccessMask::READ_ATTRIBUTES);
        let share = self.share.clone();
        let link = move |tree, file| {
            // DFS refers both names to the same place.
            let information = FileLinkInformation {
                replace_if_exists: false,
                name: Route::start(&share, &name).path,
            };
            ops::set_file(tree, file, &information)
        };
        let linked = Compound::open("make a hard link", &from, &open)
            .once()
            .and(link)
            .run(&self.share)
            .await;
        self.map_error(Op::Link, new, linked.map(drop)).await
    }

    pub(crate) async fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        let text = self.base.text(Op::Remove, path)?;
        if path.is_root() {
            return Err(Error::new(Op::Remove, path, ErrorKind::Misuse));
        }
        let mut open = OpenFile::delete();
        open.options |= match directory {
            true => CreateOptions::DIRECTORY_FILE,
            false => CreateOptions::NON_DIRECTORY_FILE,
        };
        let unflushed = self.dirty.at(path);
        let mut removed = self.delete(&text, &open).await;
        match removed.as_ref().err().and_then(ClientError::status) {
            // A read-only file ([MS-FSA] 2.1.5.15.3).
            Some(NtStatus::CANNOT_DELETE | NtStatus::ACCESS_DENIED) if self.make_writable(&text).await => {
                removed = self.delete(&text, &open).await;
            }
            // To servers a link to a folder is a folder.
            Some(NtStatus::FILE_IS_A_DIRECTORY)
                if self
                    .stat(Op::Remove, path)
                    .await
                    .is_ok_and(|found| found.kind == Kind::Symlink) =>
            {
                removed = self.share.remove(&text).await;
            }
            _ => {}
        }
        if removed.is_ok() {
            // It cannot be opened any more, while somebody else still has it open.
            unflushed.into_iter().for_each(|ticket| self.dirty.clean(ticket));
            // The name disappears with the last handle, and one of ours may still be closing.
            self.wait_for_closes().await;
        }
        self.map_error(Op::Remove, path, removed).await
    }

    /// Marks a file that is open elsewhere as deleted. It disappears when its last handle is
    /// closed.
    pub(crate) async fn remove_pending(&self, path: &RelPath) -> Result<()> {
        let text = self.base.text(Op::Remove, path)?;
        let mut removed = self.delete(&text, &OpenFile::delete()).await;
        if removed
            .as_ref()
            .is_err_and(|error| error.status() == Some(NtStatus::CANNOT_DELETE))
            && self.make_writable(&text).await
        {
            removed = self.delete(&text, &OpenFile::delete()).await;
        }
        self.map_error(Op::Remove, path, removed).await
    }

    /// Returns the names in a folder that differ from a name at most in case, in one round trip.
    pub(crate) async fn names_matching(&self, dir: &RelPath, name: &Name) -> Result<Vec<Name>> {
        let text = self.base.text(Op::List, dir)?;
        // Refuses patterns.
        self.base.text(Op::List, &dir.join(name))?;
        let pattern = super::paths::wire_name(name);
        let listed = self.share.list_matching(&text, &pattern).await;
        let mut listing = self.map_error(Op::List, dir, listed).await?;
        let mut names = Vec::new();
        while let Some(records) = self.map_error(Op::List, dir, listing.next().await).await? {
            names.extend(
                records
                    .iter()
                    .filter_map(|record| super::paths::name_of(&record.name)),
            );
        }
        Ok(names)
    }

    async fn delete(&self, text: &Text, open: &OpenFile) -> ClientResult<()> {
        let disposition = FileDispositionInformation { delete_pending: true };
        let removed = Compound::open("remove", text, open).once().set(&disposition);
        removed.run(&self.share).await.map(drop)
    }

    /// Clears the read-only attribute. Returns whether it was set.
    pub(crate) async fn make_writable(&self, text: &Text) -> bool {
        let Ok(all) = self.share.stat(text).await else {
            return false;
        };
        if !all.basic.attributes.contains(FileAttributes::READONLY) {
            return false;
        }
        let attributes = match all.basic.attributes.difference(FileAttributes::READONLY) {
            none if none.is_empty() => FileAttributes::NORMAL,
            rest => rest,
        };
        let change = FileBasicInformation {
            attributes,
            ..FileBasicInformation::default()
        };
        self.set_basic(text, &change).await.is_ok()
    }

    pub(crate) async fn set_basic(&self, text: &Text, change: &FileBasicInformation) -> ClientResult<()> {
        let open = OpenFile::metadata(AccessMask::WRITE_ATTRIBUTES);
        let set = Compound::open("set attributes", text, &open).set(change);
        set.run(&self.share).await.map(drop)
    }

    pub(crate) async fn set_metadata(&self, path: &RelPath, change: &MetadataChange) -> Result<Vec<Loss>> {
        let text = self.base.text(Op::SetAttributes, path)?;
        let mut losses = map::losses(change);
        let sddl = match &change.xattrs {
            Some(xattrs) => self.set_xattrs(path, xattrs, false, &mut losses).await?,
            None => None,
        };
        // Empty attributes of a folder must not become those of a plain file.
        let is_directory = match change.dos_attributes {
            Some(_) => self.stat(Op::SetAttributes, path).await?.is_dir(),
            None => false,
        };
        match map::change(change, is_directory) {
            Some(basic) => {
                let set = self.set_basic(&text, &basic).await;
                self.map_error(Op::SetAttributes, path, set).await?;
            }
            None => self.stat(Op::SetAttributes, path).await.map(drop)?,
        }
        if let Some(sddl) = sddl {
            self.set_sddl(path, sddl, &mut losses).await?;
        }
        Ok(losses)
    }

    pub(crate) async fn space(&self) -> Result<Space> {
        let volume = self.share.volume().await;
        let volume = volume.map_err(|error| tree_error(Op::Stat, &RelPath::root(), error))?;
        let unit = volume.size.unit_bytes().unwrap_or(0);
        Ok(Space {
            total: volume.size.total_allocation_units.saturating_mul(unit),
            available: volume.size.caller_available_allocation_units.saturating_mul(unit),
            nodes_available: None,
        })
    }

    /// Notes a change of this node, or in its folder.
    pub(crate) fn note_change(&self, path: &RelPath) {
        self.listing_cache.forget();
        self.changed.add(path);
    }

    /// Flushes every file written since its last flush, then every folder in which names changed,
    /// many at a time.
    pub(crate) async fn sync(&self) -> Result<()> {
        let flush = |path: RelPath| async move { self.flush_path(&path).await };
        self.dirty.flush_all(AT_ONCE, flush).await?;
        self.sync_names().await
    }

    /// Flushes a file that has other names, before one of them is removed or replaced: it could not
    /// be flushed by that name any more. Returns whether there is such a file.
    pub(crate) async fn flush_linked(&self, path: &RelPath) -> Result<bool> {
        let links = match self.stat(Op::Remove, path).await {
            Ok(metadata) if metadata.kind == Kind::File => metadata.links,
            _ => return Ok(false),
        };
        if links < 2 {
            return Ok(false);
        }
        if self.dirty.holds(path) {
            self.flush_path(path).await?;
            self.dirty.forget(path);
        }
        Ok(true)
    }

    /// Flushes the folders in which names changed. A server that cannot flush folders keeps their
    /// order by itself.
    async fn sync_names(&self) -> Result<()> {
        let folders = self.changed.take();
        let flushes = folders.clone().into_iter().map(|folder| async move {
            match self.flush_folder(&folder).await {
                Err(error) if error.verdict() == Verdict::Retry => Err(error),
                _ => Ok(()),
            }
        });
        let flushed: Vec<Result<()>> = futures_util::stream::iter(flushes)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let flushed: Result<()> = flushed.into_iter().collect();
        if flushed.is_err() {
            self.changed.put_back(folders);
        }
        flushed
    }

    /// Flushes a folder, so that its names are durable.
    pub(crate) async fn flush_folder(&self, folder: &RelPath) -> Result<()> {
        let text = self.base.text(Op::Sync, folder)?;
        // A folder is flushed only with the right to add files ([MS-SMB2] 3.3.5.11).
        let mut open = OpenFile::metadata(AccessMask::WRITE_DATA);
        open.options |= CreateOptions::DIRECTORY_FILE;
        let flushed = Compound::open("flush a folder", &text, &open).flush();
        let flushed = flushed.run(&self.share).await;
        self.map_error(Op::Sync, folder, flushed.map(drop)).await
    }

    async fn flush_path(&self, path: &RelPath) -> Result<()> {
        let text = self.base.text(Op::Sync, path)?;
        let mut open = OpenFile::metadata(AccessMask::WRITE_DATA);
        open.options |= CreateOptions::NON_DIRECTORY_FILE;
        // Not repeatable: after a loss the server may lack earlier writes.
        let flushed = Compound::open("flush", &text, &open).once().flush();
        let flushed = flushed.run(&self.share).await;
        self.map_error(Op::Sync, path, flushed.map(drop)).await
    }
}
