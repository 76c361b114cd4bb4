//! Finds or creates the file of a CREATE, and determines the granted access.

use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_proto::server::rules::create::{CreateIntent, Existing};
use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, CreateRequest};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::security::SecurityDescriptor;
use ropeway_smb_wire::{FileAttributes, NtStatus, Text, upcase};
use ropeway_vfs::store::{Access, Node, NodeOpen, NodeStat, Opened, Removal, Resolved, StreamOpen, Task};
use ropeway_vfs::{ErrorKind, Kind, Name, RelPath};

use super::contexts::CreateContexts;
use super::wants_content;
use crate::files::{attributes, security, short_name, status};
use crate::ops::name::{Target, fold_stream};
use crate::share::Share;
use crate::state::tunnel::Tunnel;
use crate::token::Token;

/// An opened file.
pub(super) struct FoundFile {
    pub(super) node: Arc<dyn Node>,
    /// The file that `node` is a stream of.
    pub(super) base: Option<Arc<dyn Node>>,
    pub(super) stat: NodeStat,
    pub(super) stream: Option<Name>,
    /// Path on disk.
    pub(super) path: RelPath,
    /// The short name by which it was found, if it was.
    pub(super) short_name: Option<Text>,
    pub(super) created: bool,
    /// Granted access.
    pub(super) access: AccessMask,
    /// Whether the user may change existing bytes.
    pub(super) may_overwrite: bool,
}

/// Where a file is looked for.
pub(super) struct Place<'a> {
    pub(super) share: &'a Arc<Share>,
    /// Index of the share.
    pub(super) share_id: u32,
    /// Names that come back.
    pub(super) tunnel: &'a Tunnel,
    /// The server's time.
    pub(super) now: Duration,
}

impl Place<'_> {
    /// Returns the path of a new file, given the path that the client asks for.
    fn path_of_new(&self, path: RelPath) -> RelPath {
        let restored = path.file_name().and_then(|name| {
            let is_short = self.share.name_view().short_names && short_name::may_be_short(name.as_bytes());
            let short = is_short.then(|| names::to_wire(name.as_bytes(), NameMapping::Sfm))?;
            self.tunnel.restored(self.now, self.share_id, &path, &short)
        });
        restored.unwrap_or(path)
    }
}

/// Why no file was opened.
pub(super) enum FindError {
    /// The request fails.
    Status(NtStatus),
    /// A large folder is being read; the request is woken afterwards.
    UnderWay,
    /// A large folder must be read first, by this task.
    After(Task),
}

impl FindError {
    /// Returns the status for one who does not wait.
    pub(super) fn into_status(self) -> NtStatus {
        match self {
            Self::Status(status) => status,
            Self::UnderWay | Self::After(_) => NtStatus::FILE_NOT_AVAILABLE,
        }
    }
}

impl From<NtStatus> for FindError {
    fn from(status: NtStatus) -> Self {
        Self::Status(status)
    }
}

/// Returns a task that wakes the request; `None` if the request must not wait for a large folder.
pub(super) type WakeRequest<'a> = Option<&'a dyn Fn() -> Task>;

/// Number of tries if a name appears and disappears meanwhile (a guess).
const RACE_TRIES: u32 = 8;

/// Finds or creates the file.
pub(super) fn find(
    place: &Place<'_>,
    token: &Token,
    request: &CreateRequest<'_>,
    intent: &CreateIntent,
    contexts: &CreateContexts<'_>,
    target: &Target,
    wake_request: WakeRequest<'_>,
) -> Result<FoundFile, FindError> {
    let share = place.share;
    if target.names_stream && intent.options.contains(CreateOptions::DIRECTORY_FILE) {
        return Err(NtStatus::NOT_A_DIRECTORY.into());
    }
    let read_only = !share.access().contains(AccessMask::WRITE_DATA);
    let mut rights = FolderRights::default();
    let mut create = |path| {
        create_new(
            share,
            token,
            request,
            intent,
            contexts,
            target,
            path,
            read_only,
            &mut rights,
        )
    };
    if let Some(path) = path_if_missing(share, intent, target, read_only, wake_request)?
        && let Ok(found) = create(path)
    {
        return Ok(found);
    }
    let how = how(intent, target, read_only);
    let mut tries = 1;
    let (path, opened) = loop {
        match lookup(share, target, &how, wake_request)? {
            (path, Some(opened)) => break (path, opened),
            (path, None) => {
                let path = match intent.creates() && !read_only {
                    true => place.path_of_new(path),
                    false => path,
                };
                match create(path) {
                    // Another client was faster, so the file exists now (smb2.create.mkdir-dup).
                    Err(NtStatus::OBJECT_NAME_COLLISION)
                        if intent.disposition != CreateDisposition::Create && tries < RACE_TRIES =>
                    {
                        tries += 1;
                    }
                    outcome => return outcome.map_err(FindError::Status),
                }
            }
        }
    };
    let found = FoundFile {
        node: opened.node,
        base: None,
        stat: opened.stat,
        stream: None,
        short_name: short_name_used(&path, target),
        path,
        created: false,
        access: AccessMask::default(),
        may_overwrite: false,
    };
    let found = match &target.stream {
        Some(stream) => open_stream(found, stream, intent, read_only)?,
        None => {
            intent.check_existing(Existing {
                directory: found.stat.kind == Kind::Directory,
                attributes: attributes::of(&found.stat, false),
                names_stream: target.names_stream,
            })?;
            found
        }
    };
    grant(share, token, request, intent, found).map_err(FindError::Status)
}

/// The security descriptor of the folder in which files are made, once it is known. It is kept for one
/// request: all of its files are made by the rights of one moment.
#[derive(Default)]
pub(super) struct FolderRights(Option<(RelPath, Option<SecurityDescriptor>)>);

impl FolderRights {
    /// Checks that the user may add a node, and returns the descriptor of its folder.
    fn check_adding(
        &mut self,
        share: &Share,
        token: &Token,
        path: &RelPath,
        directory: bool,
    ) -> Result<Option<&SecurityDescriptor>, NtStatus> {
        let folder = path.parent().unwrap_or_default();
        let is_known = self.0.as_ref().is_some_and(|(known, _)| *known == folder);
        if !is_known {
            self.0 = Some((folder, security::parent_descriptor(share, path)?));
        }
        let descriptor = self.0.as_ref().and_then(|(_, descriptor)| descriptor.as_ref());
        security::check_adding_to(descriptor, token, directory)?;
        Ok(descriptor)
    }
}

/// Makes a file that must be new, for a worker, who may wait for a large folder.
pub(super) fn make(
    place: &Place<'_>,
    token: &Token,
    request: &CreateRequest<'_>,
    intent: &CreateIntent,
    target: &Target,
    rights: &mut FolderRights,
) -> Result<FoundFile, NtStatus> {
    let share = place.share;
    let contexts = CreateContexts::default();
    let read_only = !share.access().contains(AccessMask::WRITE_DATA);
    let no_wake = || -> Task { Box::new(|| ()) };
    let path = match path_if_missing(share, intent, target, read_only, Some(&no_wake)) {
        Ok(path) => path,
        Err(FindError::After(task)) => {
            task();
            None
        }
        Err(_) => None,
    };
    if let Some(path) = path
        && let Ok(found) = create_new(
            share, token, request, intent, &contexts, target, path, read_only, rights,
        )
    {
        return Ok(found);
    }
    // The ordinary way finds what is in the way, and says so.
    find(place, token, request, intent, &contexts, target, None).map_err(FindError::into_status)
}

/// Returns the path for a file that must be new, if no name in another case stands for it. Then it is
/// made at once, since it is nearly always missing: looking for it would cost as much as making it. If it
/// is there after all, making it fails, and all goes the ordinary way.
fn path_if_missing(
    share: &Share,
    intent: &CreateIntent,
    target: &Target,
    read_only: bool,
    wake_request: WakeRequest<'_>,
) -> Result<Option<RelPath>, FindError> {
    let (Some(name), Some(then)) = (target.path.file_name(), wake_request) else {
        return Ok(None);
    };
    if intent.disposition != CreateDisposition::Create
        || read_only
        || target.stream.is_some()
        || share.name_view().short_names && short_name::may_be_short(name.as_bytes())
    {
        return Ok(None);
    }
    match share.store.resolve_soon(&target.path, then) {
        Ok(Resolved::Path(path)) => Ok((path == target.path).then_some(path)),
        Ok(Resolved::UnderWay) => Err(FindError::UnderWay),
        Ok(Resolved::After(task)) => Err(FindError::After(task)),
        // The ordinary way says what is wrong.
        Err(_) => Ok(None),
    }
}

/// Returns how the store must open the file.
fn how(intent: &CreateIntent, target: &Target, read_only: bool) -> NodeOpen {
    let writes = intent
        .access
        .intersects(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)
        || intent.overwrites();
    let maximal = intent.access.contains(AccessMask::MAXIMUM_ALLOWED);
    let access = if target.stream.is_some() {
        Access::Attributes
    } else if (writes || maximal) && !read_only {
        Access::Write
    } else if wants_content(intent.access) || maximal {
        Access::Read
    } else {
        Access::Attributes
    };
    NodeOpen {
        access,
        allow_less_access: maximal && !writes,
        create: None,
        exclusive: false,
        link_itself: intent.options.contains(CreateOptions::OPEN_REPARSE_POINT),
    }
}

/// Looks for the file. Returns its path on disk, and the file if it exists.
fn lookup(
    share: &Share,
    target: &Target,
    how: &NodeOpen,
    wake_request: WakeRequest<'_>,
) -> Result<(RelPath, Option<Opened>), FindError> {
    match share.store.open(&target.path, how) {
        Ok(opened) => return Ok((target.path.clone(), Some(opened))),
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        // A folder cannot be opened for writing.
        Err(error) if error.kind == ErrorKind::IsADirectory => {
            let how = NodeOpen {
                access: Access::Read,
                ..*how
            };
            let opened = share
                .store
                .open(&target.path, &how)
                .map_err(|error| status::of(&error))?;
            return Ok((target.path.clone(), Some(opened)));
        }
        Err(error) => return Err(status::of(&error).into()),
    }
    let resolved = match wake_request {
        Some(then) => share.store.resolve_soon(&target.path, then),
        None => share.store.resolve(&target.path).map(Resolved::Path),
    };
    let resolved = resolved.map_err(|error| match error.kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory => NtStatus::OBJECT_PATH_NOT_FOUND,
        _ => status::of(&error),
    })?;
    let path = match resolved {
        Resolved::Path(path) => path,
        Resolved::UnderWay => return Err(FindError::UnderWay),
        Resolved::After(task) => return Err(FindError::After(task)),
    };
    if path == target.path {
        return Ok(lookup_short(share, path, how)?);
    }
    let opened = match share.store.open(&path, how) {
        Err(error) if error.kind == ErrorKind::IsADirectory => share.store.open(
            &path,
            &NodeOpen {
                access: Access::Read,
                ..*how
            },
        ),
        opened => opened,
    };
    match opened {
        Ok(opened) => Ok((path, Some(opened))),
        Err(error) if error.kind == ErrorKind::NotFound => Ok((path, None)),
        Err(error) => Err(status::of(&error).into()),
    }
}

/// Returns the name that the client used, if it is the short name of what was found.
fn short_name_used(found: &RelPath, target: &Target) -> Option<Text> {
    let used = target.path.file_name()?;
    let is_short = *found != target.path && short_name::may_be_short(used.as_bytes());
    let used = names::to_wire(used.as_bytes(), NameMapping::Sfm);
    let own = names::to_wire(found.file_name()?.as_bytes(), NameMapping::Sfm);
    (is_short && !upcase::equal(&used, &own)).then_some(used)
}

/// Looks for a file whose short name is the missing name.
fn lookup_short(share: &Share, path: RelPath, how: &NodeOpen) -> Result<(RelPath, Option<Opened>), NtStatus> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path, None));
    };
    if !share.name_view().short_names || !short_name::may_be_short(name.as_bytes()) {
        return Ok((path, None));
    }
    let folder_how = NodeOpen {
        access: Access::Read,
        ..NodeOpen::default()
    };
    let opened = share
        .store
        .open(&folder, &folder_how)
        .map_err(|error| status::of(&error))?;
    let Some(name) = short_name::find(&*opened.node, name.as_bytes())? else {
        return Ok((path, None));
    };
    let path = folder.join(&name);
    match share.store.open(&path, how) {
        Ok(opened) => Ok((path, Some(opened))),
        Err(error) if error.kind == ErrorKind::NotFound => Ok((path, None)),
        Err(error) => Err(status::of(&error)),
    }
}

/// Creates a file or folder.
#[allow(clippy::too_many_arguments, reason = "what a CREATE says, taken apart")]
fn create_new(
    share: &Arc<Share>,
    token: &Token,
    request: &CreateRequest<'_>,
    intent: &CreateIntent,
    contexts: &CreateContexts<'_>,
    target: &Target,
    path: RelPath,
    read_only: bool,
    rights: &mut FolderRights,
) -> Result<FoundFile, NtStatus> {
    intent.check_missing(read_only)?;
    if path.is_root() {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let directory = intent.options.contains(CreateOptions::DIRECTORY_FILE);
    let parent = rights.check_adding(share, token, &path, directory)?;
    let new = attributes::new_node(directory, request.file_attributes);
    let how = NodeOpen {
        access: if directory { Access::Read } else { Access::Write },
        create: Some(new),
        exclusive: true,
        ..NodeOpen::default()
    };
    let opened = share.store.open(&path, &how).map_err(|error| match error.kind {
        ErrorKind::AlreadyExists => NtStatus::OBJECT_NAME_COLLISION,
        _ => status::of(&error),
    })?;
    let (id, made) = (opened.stat.id, path.clone());
    let outcome = initialize(opened, path, token, intent, contexts, target, parent, read_only);
    if outcome.is_err() {
        // A failed CREATE removes what it created. An error of that does not change the outcome.
        let what = if directory {
            Removal::Directory
        } else {
            Removal::File
        };
        _ = share.store.remove_node(id, &made, what);
    }
    outcome
}

/// Gives a new file or folder its security descriptor, and opens its stream.
#[allow(clippy::too_many_arguments, reason = "what a CREATE says, taken apart")]
fn initialize(
    opened: Opened,
    path: RelPath,
    token: &Token,
    intent: &CreateIntent,
    contexts: &CreateContexts<'_>,
    target: &Target,
    parent: Option<&SecurityDescriptor>,
    read_only: bool,
) -> Result<FoundFile, NtStatus> {
    let directory = opened.stat.kind == Kind::Directory;
    let descriptor = security::for_new(parent, contexts.security()?, token, directory);
    let stat = match &descriptor {
        Some(descriptor) => {
            security::store(&*opened.node, descriptor)?;
            opened.node.stat().map_err(|error| status::of(&error))?
        }
        None => opened.stat,
    };
    let mut found = FoundFile {
        node: opened.node,
        base: None,
        stat,
        stream: None,
        path,
        short_name: None,
        created: true,
        access: AccessMask::default(),
        // There are no bytes of others yet.
        may_overwrite: true,
    };
    // The creator gets the requested access, whatever the descriptor says.
    found.access = expand_maximum(intent.access);
    match &target.stream {
        Some(stream) => {
            let mut found = open_stream(found, stream, intent, read_only)?;
            found.created = true;
            Ok(found)
        }
        None => Ok(found),
    }
}

/// Returns the requested access; MAXIMUM_ALLOWED means everything.
fn expand_maximum(access: AccessMask) -> AccessMask {
    let rights = access.difference(AccessMask::MAXIMUM_ALLOWED);
    if access.contains(AccessMask::MAXIMUM_ALLOWED) {
        rights | AccessMask::FILE_ALL
    } else {
        rights
    }
}

fn open_stream(
    found: FoundFile,
    stream: &Name,
    intent: &CreateIntent,
    read_only: bool,
) -> Result<FoundFile, NtStatus> {
    let base = found.node;
    let how = StreamOpen {
        create: intent.creates() && !read_only,
        exclusive: intent.disposition == CreateDisposition::Create,
    };
    let (node, created) = base
        .open_stream(stream, &how)
        .map_err(|error| status::of(&error))?;
    let stat = node.stat().map_err(|error| status::of(&error))?;
    let name = if created {
        stream.clone()
    } else {
        stored_name(&*base, stream)
    };
    Ok(FoundFile {
        node,
        stat: NodeStat {
            kind: Kind::File,
            ..stat
        },
        stream: Some(name),
        base: Some(base),
        created,
        ..found
    })
}

/// Returns the name of a stream as stored.
pub(in crate::ops) fn stored_name(base: &dyn Node, contexts: &Name) -> Name {
    let wanted = fold_stream(contexts);
    let streams = base.streams().unwrap_or_default();
    let kept = streams.into_iter().map(|stream| stream.name);
    let mut kept = kept.filter(|name| fold_stream(name) == wanted);
    kept.next().unwrap_or_else(|| contexts.clone())
}

/// Determines the granted access to an existing file ([MS-FSA] 2.1.5.1.2.1).
fn grant(
    share: &Arc<Share>,
    token: &Token,
    request: &CreateRequest<'_>,
    intent: &CreateIntent,
    mut found: FoundFile,
) -> Result<FoundFile, NtStatus> {
    let kept = attributes::of(&found.stat, false);
    let is_file = found.stat.kind != Kind::Directory;
    let deletes = request.options.contains(CreateOptions::DELETE_ON_CLOSE);
    if deletes && kept.contains(FileAttributes::READONLY) {
        return Err(NtStatus::CANNOT_DELETE);
    }
    if deletes && !is_file && found.stream.is_none() {
        let mut entries = found.node.entries().map_err(|error| status::of(&error))?;
        if entries.next().map_err(|error| status::of(&error))?.is_some() {
            return Err(NtStatus::DIRECTORY_NOT_EMPTY);
        }
    }
    if deletes && found.stream.is_none() {
        let checked = share.store.check_remove(&found.path);
        checked.map_err(|error| status::of(&error))?;
    }
    let mut allowed = allowed(share, token, &found)?;
    if kept.contains(FileAttributes::READONLY) && is_file {
        allowed = security::without_write_rights(allowed);
    }
    let mut needed = intent.access;
    if intent.overwrites() {
        needed |= AccessMask::WRITE_DATA;
    }
    security::granted(allowed, needed)?;
    found.access = security::granted(allowed, intent.access)?;
    found.may_overwrite = allowed.contains(AccessMask::WRITE_DATA);
    if kept.contains(FileAttributes::READONLY)
        && is_file
        && intent.access.contains(AccessMask::MAXIMUM_ALLOWED)
    {
        found.access = found
            .access
            .difference(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA);
    }
    // MAXIMUM_ALLOWED may not include the right to delete.
    if deletes && !found.access.contains(AccessMask::DELETE) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(found)
}

/// Returns all rights of this user to a file.
pub(super) fn allowed(share: &Arc<Share>, token: &Token, found: &FoundFile) -> Result<AccessMask, NtStatus> {
    let node = found.base.as_deref().unwrap_or(&*found.node);
    security::rights(share, token, node, &found.stat, &found.path)
}
