//! Finding the file of a CREATE, or making it, and the rights that are to be had.

use std::sync::Arc;

use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, CreateRequest};
use ropeway_smb_wire::security::SecurityDescriptor;
use ropeway_smb_wire::{FileAttributes, NtStatus};
use ropeway_vfs::store::{Access, Node, NodeOpen, NodeStat, Opened, Removal, Resolved, StreamOpen, Task};
use ropeway_vfs::{ErrorKind, Kind, Name, RelPath};

use super::super::name::{Target, fold_stream};
use super::check::Wish;
use super::contexts::Asked;
use super::wants_content;
use crate::share::{Share, Token};
use crate::{attributes, security, short_name, status};

/// The file, opened.
pub(super) struct Found {
    pub(super) node: Arc<dyn Node>,
    /// The file whose stream `node` is.
    pub(super) base: Option<Arc<dyn Node>>,
    pub(super) stat: NodeStat,
    pub(super) stream: Option<Name>,
    /// As on disk.
    pub(super) path: RelPath,
    pub(super) created: bool,
    /// Granted.
    pub(super) access: AccessMask,
}

/// Why there is no file.
pub(super) enum Missing {
    /// It is refused.
    Status(NtStatus),
    /// A large folder is read first, by somebody who wakes the request.
    UnderWay,
    /// The same, and this is what reads it.
    After(Task),
}

impl From<NtStatus> for Missing {
    fn from(status: NtStatus) -> Self {
        Self::Status(status)
    }
}

/// Gives what wakes the request; `None` for one that is not to wait for a large folder (again).
pub(super) type Waking<'a> = Option<&'a dyn Fn() -> Task>;

/// Tries where a name comes and goes meanwhile (a guess).
const RACE_TRIES: u32 = 8;

/// Finds or makes it.
pub(super) fn find(
    share: &Arc<Share>,
    token: &Token,
    request: &CreateRequest<'_>,
    wish: &Wish,
    asked: &Asked<'_>,
    target: &Target,
    waking: Waking<'_>,
) -> Result<Found, Missing> {
    if target.names_stream && wish.options.contains(CreateOptions::DIRECTORY_FILE) {
        return Err(NtStatus::NOT_A_DIRECTORY.into());
    }
    let read_only = !share.access().contains(AccessMask::WRITE_DATA);
    let how = how(wish, target, read_only);
    let mut tries = 1;
    let (path, opened) = loop {
        match look(share, target, &how, waking)? {
            (path, Some(opened)) => break (path, opened),
            (path, None) => match make(share, token, request, wish, asked, target, path, read_only) {
                // Somebody was faster: then it is there to be opened (smb2.create.mkdir-dup).
                Err(NtStatus::OBJECT_NAME_COLLISION)
                    if wish.disposition != CreateDisposition::Create && tries < RACE_TRIES =>
                {
                    tries += 1;
                }
                outcome => return outcome.map_err(Missing::Status),
            },
        }
    };
    let found = Found {
        node: opened.node,
        base: None,
        stat: opened.stat,
        stream: None,
        path,
        created: false,
        access: AccessMask::default(),
    };
    let found = match &target.stream {
        Some(stream) => open_stream(found, stream, wish, read_only)?,
        None => {
            check_kind(&found.stat, request, wish, target)?;
            found
        }
    };
    grant(share, token, request, wish, found).map_err(Missing::Status)
}

/// What the store is to open it for.
fn how(wish: &Wish, target: &Target, read_only: bool) -> NodeOpen {
    let writes = wish
        .access
        .intersects(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)
        || wish.overwrites();
    let maximal = wish.access.contains(AccessMask::MAXIMUM_ALLOWED);
    let access = if target.stream.is_some() {
        Access::Attributes
    } else if (writes || maximal) && !read_only {
        Access::Write
    } else if wants_content(wish.access) || maximal {
        Access::Read
    } else {
        Access::Attributes
    };
    NodeOpen {
        access,
        less_will_do: maximal && !writes,
        create: None,
        exclusive: false,
        link_itself: wish.options.contains(CreateOptions::OPEN_REPARSE_POINT),
    }
}

/// Looks for the file: its path as on disk, and the file if there is one.
fn look(
    share: &Share,
    target: &Target,
    how: &NodeOpen,
    waking: Waking<'_>,
) -> Result<(RelPath, Option<Opened>), Missing> {
    match share.store.open(&target.path, how) {
        Ok(opened) => return Ok((target.path.clone(), Some(opened))),
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        // A folder is never opened for writing.
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
    let resolved = match waking {
        Some(then) => share.store.resolve_soon(&target.path, then),
        None => share.store.resolve(&target.path).map(Resolved::Path),
    };
    let resolved = resolved.map_err(|error| match error.kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory => NtStatus::OBJECT_PATH_NOT_FOUND,
        _ => status::of(&error),
    })?;
    let path = match resolved {
        Resolved::Path(path) => path,
        Resolved::UnderWay => return Err(Missing::UnderWay),
        Resolved::After(task) => return Err(Missing::After(task)),
    };
    if path == target.path {
        return Ok(look_short(share, path, how)?);
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

/// A name that is not there may be the short one of a name that is.
fn look_short(share: &Share, path: RelPath, how: &NodeOpen) -> Result<(RelPath, Option<Opened>), NtStatus> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path, None));
    };
    if !share.names().short_names || !short_name::may_be_short(name.as_bytes()) {
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

/// Makes a file or folder that is not there.
#[allow(clippy::too_many_arguments, reason = "what a CREATE says, taken apart")]
fn make(
    share: &Arc<Share>,
    token: &Token,
    request: &CreateRequest<'_>,
    wish: &Wish,
    asked: &Asked<'_>,
    target: &Target,
    path: RelPath,
    read_only: bool,
) -> Result<Found, NtStatus> {
    if !wish.creates() {
        return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    }
    if read_only {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if path.is_root() {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let directory = wish.options.contains(CreateOptions::DIRECTORY_FILE);
    if wish.options.contains(CreateOptions::DELETE_ON_CLOSE)
        && request.file_attributes.contains(FileAttributes::READONLY)
    {
        return Err(NtStatus::CANNOT_DELETE);
    }
    let parent = security::check_adding(share, token, &path, directory)?;
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
    let outcome = furnish(
        opened,
        path,
        token,
        wish,
        asked,
        target,
        parent.as_ref(),
        read_only,
    );
    if outcome.is_err() {
        // What a failed CREATE has made goes with it. That it cannot is not this request's outcome.
        let what = if directory {
            Removal::Directory
        } else {
            Removal::File
        };
        _ = share.store.remove_node(id, &made, what);
    }
    outcome
}

/// Gives a new file or folder what belongs to it from the beginning: its security descriptor, the stream that was asked for.
#[allow(clippy::too_many_arguments, reason = "what a CREATE says, taken apart")]
fn furnish(
    opened: Opened,
    path: RelPath,
    token: &Token,
    wish: &Wish,
    asked: &Asked<'_>,
    target: &Target,
    parent: Option<&SecurityDescriptor>,
    read_only: bool,
) -> Result<Found, NtStatus> {
    let directory = opened.stat.kind == Kind::Directory;
    let descriptor = security::for_new(parent, asked.security()?, token, directory);
    if let Some(descriptor) = &descriptor {
        security::store(&*opened.node, descriptor)?;
    }
    let mut found = Found {
        node: opened.node,
        base: None,
        stat: opened.stat,
        stream: None,
        path,
        created: true,
        access: AccessMask::default(),
    };
    // Who makes a file gets what it asked for, whatever is to apply from then on.
    found.access = full(wish.access);
    match &target.stream {
        Some(stream) => {
            let mut found = open_stream(found, stream, wish, read_only)?;
            found.created = true;
            Ok(found)
        }
        None => Ok(found),
    }
}

/// All that was asked for, MAXIMUM_ALLOWED being everything.
fn full(access: AccessMask) -> AccessMask {
    let rights = access.difference(AccessMask::MAXIMUM_ALLOWED);
    if access.contains(AccessMask::MAXIMUM_ALLOWED) {
        rights | AccessMask::FILE_ALL
    } else {
        rights
    }
}

fn open_stream(found: Found, stream: &Name, wish: &Wish, read_only: bool) -> Result<Found, NtStatus> {
    let base = found.node;
    let how = StreamOpen {
        create: wish.creates() && !read_only,
        exclusive: wish.disposition == CreateDisposition::Create,
    };
    let (node, created) = base
        .open_stream(stream, &how)
        .map_err(|error| status::of(&error))?;
    let stat = node.stat().map_err(|error| status::of(&error))?;
    let name = if created {
        stream.clone()
    } else {
        kept_name(&*base, stream)
    };
    Ok(Found {
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

/// A stream's name as it is kept.
fn kept_name(base: &dyn Node, asked: &Name) -> Name {
    let wanted = fold_stream(asked);
    let streams = base.streams().unwrap_or_default();
    let kept = streams.into_iter().map(|stream| stream.name);
    let mut kept = kept.filter(|name| fold_stream(name) == wanted);
    kept.next().unwrap_or_else(|| asked.clone())
}

/// Whether it is what the request wants, and may be replaced if it wants that.
fn check_kind(
    stat: &NodeStat,
    request: &CreateRequest<'_>,
    wish: &Wish,
    target: &Target,
) -> Result<(), NtStatus> {
    if wish.disposition == CreateDisposition::Create {
        return Err(NtStatus::OBJECT_NAME_COLLISION);
    }
    let directory = stat.kind == Kind::Directory;
    if directory && (wish.options.contains(CreateOptions::NON_DIRECTORY_FILE) || target.names_stream) {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    if !directory && wish.options.contains(CreateOptions::DIRECTORY_FILE) {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    if !wish.overwrites() {
        return Ok(());
    }
    if directory {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    // [MS-FSA] 2.1.5.1.2.1: hidden and system files are not replaced unawares.
    let kept = attributes::of(stat, false);
    for guarded in [FileAttributes::HIDDEN, FileAttributes::SYSTEM] {
        if kept.contains(guarded) && !request.file_attributes.contains(guarded) {
            return Err(NtStatus::ACCESS_DENIED);
        }
    }
    Ok(())
}

/// What of the rights asked for is granted on a file that was there ([MS-FSA] 2.1.5.1.2.1).
fn grant(
    share: &Arc<Share>,
    token: &Token,
    request: &CreateRequest<'_>,
    wish: &Wish,
    mut found: Found,
) -> Result<Found, NtStatus> {
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
        allowed = security::without_writing(allowed);
    }
    let mut needed = wish.access;
    if wish.overwrites() {
        needed |= AccessMask::WRITE_DATA;
    }
    security::granted(allowed, needed)?;
    found.access = security::granted(allowed, wish.access)?;
    if kept.contains(FileAttributes::READONLY) && is_file && wish.access.contains(AccessMask::MAXIMUM_ALLOWED)
    {
        found.access = found
            .access
            .difference(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA);
    }
    // What MAXIMUM_ALLOWED gives need not be the right to delete.
    if deletes && !found.access.contains(AccessMask::DELETE) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(found)
}

/// All that this user may do with a file.
pub(super) fn allowed(share: &Arc<Share>, token: &Token, found: &Found) -> Result<AccessMask, NtStatus> {
    let node = found.base.as_deref().unwrap_or(&*found.node);
    security::rights(share, token, node, &found.stat, &found.path)
}
