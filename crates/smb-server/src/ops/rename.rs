//! SET_INFO that changes names: rename, hard link, delete ([MS-FSA] 2.1.5.15.3, .6, .12).

use std::sync::Arc;

use ropeway_smb_proto::server::hub::{BreakOutcome, BreakTrigger, OpenId};
use ropeway_smb_wire::change_notify::{Action, CompletionFilter};
use ropeway_smb_wire::create::{AccessMask, ShareAccess};
use ropeway_smb_wire::info::{DispositionFlags, RenameFlags};
use ropeway_smb_wire::names::without_extra_separators;
use ropeway_smb_wire::{FileAttributes, NtStatus, Text};
use ropeway_vfs::store::NodeOpen;
use ropeway_vfs::{ErrorKind, Kind, Name, RelPath};

use super::context::{Context, Execution};
use super::folder_leases;
use super::name::{self, key_of};
use super::persistent;
use crate::files::{attributes, links, security, status};
use crate::state::SharedState;
use crate::state::open::{Handle, Open};

/// `None` to continue, or how the request waits for others.
type StepResult = Result<Option<Execution>, NtStatus>;

/// Breaks the caching of other clients, and waits if necessary.
fn break_caching(context: &Context<'_>, open: &Open, why: BreakTrigger) -> StepResult {
    let now = context.shared.uptime();
    let outcome =
        context
            .shared
            .hub()
            .break_caching(now, Some(open.hub_id()), &open.file, why, context.waiter);
    step_result(outcome)
}

fn step_result(outcome: BreakOutcome) -> StepResult {
    match outcome {
        BreakOutcome::Ready => Ok(None),
        BreakOutcome::Wait => Ok(Some(Execution::Pending)),
        BreakOutcome::Refused(status) => Err(status),
    }
}

/// Does the same before a rename, for everything in a folder too.
fn break_caching_beneath(context: &Context<'_>, open: &Open, share_id: u32, path: &Text) -> StepResult {
    if !open.directory {
        return break_caching(context, open, BreakTrigger::Rename);
    }
    let now = context.shared.uptime();
    let outcome = {
        let mut hub = context.shared.hub();
        hub.break_beneath(now, Some(open.hub_id()), share_id, path, context.waiter)
    };
    match step_result(outcome)? {
        None => break_caching(context, open, BreakTrigger::Rename),
        waits => Ok(waits),
    }
}

/// Executes FileDispositionInformation and FileDispositionInformationEx.
pub(super) fn set_disposition(context: &Context<'_>, open: &Open, flags: DispositionFlags) -> StepResult {
    let delete = flags.contains(DispositionFlags::DELETE);
    if delete {
        let stat = open.node.stat().map_err(|error| status::of(&error))?;
        let kept = attributes::of(&stat, false);
        let ignores = flags.contains(DispositionFlags::IGNORE_READONLY_ATTRIBUTE);
        if kept.contains(FileAttributes::READONLY) && !ignores {
            return Err(NtStatus::CANNOT_DELETE);
        }
        if open.path().is_root() && open.stream.is_none() {
            return Err(NtStatus::CANNOT_DELETE);
        }
        if open.directory && open.stream.is_none() {
            let mut entries = open.node.entries().map_err(|error| status::of(&error))?;
            if entries.next().map_err(|error| status::of(&error))?.is_some() {
                return Err(NtStatus::DIRECTORY_NOT_EMPTY);
            }
        }
        if open.stream.is_none() {
            // Checked here as in Windows, because the close cannot report an error.
            let checked = open.share.store.check_remove(&open.path());
            checked.map_err(|error| status::of(&error))?;
        }
        if let Some(waits) = break_caching(context, open, BreakTrigger::Delete)? {
            return Ok(Some(waits));
        }
    }
    context
        .shared
        .hub()
        .set_delete_pending(open.hub_id(), delete)
        .map(|()| None)
}

/// Executes FileRenameInformation and FileRenameInformationEx.
pub(super) fn rename(context: &Context<'_>, open: &Arc<Open>, flags: RenameFlags, to: &Text) -> StepResult {
    let replace = flags.contains(RenameFlags::REPLACE_IF_EXISTS);
    if to.units().first() == Some(&u16::from(b':')) {
        return rename_stream(context, open, to, replace);
    }
    if open.stream.is_some() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let (from, to) = (open.path(), destination(open, to)?);
    if from.is_root() || to.is_root() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    links::check_move(&open.share, &from, &to)?;
    // [MS-FSA] 2.1.5.15.11: moving to another folder requires the right to add to it.
    if from.parent() != to.parent() {
        let token = context.token()?;
        security::check_adding(&open.share, &token, &to, open.directory)?;
    }
    let share_id = context.tree.map_or(0, |tree| tree.share);
    let old = name::to_wire(&from);
    if let Some(waits) = break_caching_beneath(context, open, share_id, &old)? {
        return Ok(Some(waits));
    }
    if open.directory
        && context
            .shared
            .hub()
            .opens_beneath(share_id, &old)
            .next()
            .is_some()
    {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let real = existing_path(open, &to)?;
    if let Some(waits) = clear_target(context, open, &from, &real, replace)? {
        return Ok(Some(waits));
    }
    if let Some(waits) = check_parent(context, open, &to)? {
        return Ok(Some(waits));
    }
    let to = place(open, &from, real, to, |to| {
        let store = &open.share.store;
        open.share.by_name(open.named_node(), &from, |id| {
            store.rename_node(id, &from, to, replace)
        })
    })?;
    let new = name::to_wire(&to);
    let filter = if open.directory {
        CompletionFilter::DIR_NAME
    } else {
        CompletionFilter::FILE_NAME
    };
    let moved = move_opens(context, open, share_id, &old, &new);
    context.shared.renamed(&moved, &from, &to);
    context.shared.hub().changed_name(share_id, &old, &new, filter);
    if let Some(short) = &open.short_name {
        let now = context.shared.uptime();
        context.shared.tunnel.removed(now, share_id, &from, short);
    }
    break_folder_leases(context, open, [&from, &to]);
    context.record(
        "rename",
        Some(&open.share.name),
        Some(&from),
        Some(&to),
        NtStatus::SUCCESS,
    );
    Ok(None)
}

/// Moves the opens of a renamed file in the hub. Other shares of the folder have the same paths.
fn move_opens(context: &Context<'_>, open: &Open, share_id: u32, old: &Text, new: &Text) -> Vec<OpenId> {
    let shared = context.shared;
    let others = shared.share_indices(|share| Arc::ptr_eq(&share.store, &open.share.store));
    let mut hub = shared.hub();
    let mut moved = hub.renamed(share_id, old, new);
    for other in others.into_iter().filter(|other| *other != share_id) {
        moved.extend(hub.renamed(other, old, new));
    }
    moved
}

/// Breaks the leases on the folders of names that an open has changed.
fn break_folder_leases<const N: usize>(context: &Context<'_>, open: &Open, paths: [&RelPath; N]) {
    let known_to = folder_leases::lease_above(context.shared, open);
    for path in paths {
        folder_leases::break_at(context.shared, &open.share, path, known_to);
    }
}

/// Returns the new path: its folders as on disk, its last name as written.
fn destination(open: &Open, to: &Text) -> Result<RelPath, NtStatus> {
    // smbclient's `hardlink` sends a leading separator. Samba accepts those too, but not in a CREATE.
    let target = name::parse(&without_extra_separators(to)).map_err(|status| match status {
        NtStatus::INVALID_PARAMETER => NtStatus::OBJECT_NAME_INVALID,
        other => other,
    })?;
    if target.names_stream {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let (Some(parent), Some(last)) = (target.path.parent(), target.path.file_name()) else {
        return Ok(target.path);
    };
    let parent = open
        .share
        .store
        .resolve(&parent)
        .map_err(|_| NtStatus::OBJECT_PATH_NOT_FOUND)?;
    if !parent.is_root() {
        let opened = open.share.store.open(&parent, &NodeOpen::default());
        let stat = opened.map_err(|_| NtStatus::OBJECT_PATH_NOT_FOUND)?.stat;
        if stat.kind != Kind::Directory {
            return Err(NtStatus::OBJECT_PATH_NOT_FOUND);
        }
    }
    Ok(parent.join(&last))
}

/// Returns the path of what exists at a path; the case of its last name may differ.
fn existing_path(open: &Open, path: &RelPath) -> Result<RelPath, NtStatus> {
    open.share.store.resolve(path).map_err(|error| status::of(&error))
}

/// Checks that an existing target may be replaced: only a file that this user may delete and that
/// is not open.
fn clear_target(
    context: &Context<'_>,
    open: &Open,
    from: &RelPath,
    real: &RelPath,
    replace: bool,
) -> StepResult {
    // Another spelling of the same name.
    if real == from {
        return Ok(None);
    }
    let how = NodeOpen {
        link_itself: true,
        ..NodeOpen::default()
    };
    let target = match open.share.store.open(real, &how) {
        Ok(target) => target,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(status::of(&error)),
    };
    if !replace {
        return Err(NtStatus::OBJECT_NAME_COLLISION);
    }
    let kept = attributes::of(&target.stat, false);
    if target.stat.kind == Kind::Directory || kept.contains(FileAttributes::READONLY) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // Replacing a file requires the right to delete it.
    let token = context.token()?;
    let rights = security::rights(&open.share, &token, &*target.node, &target.stat, real)?;
    if !rights.contains(AccessMask::DELETE) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let key = key_of(&target.stat, None);
    let now = context.shared.uptime();
    let outcome = {
        let mut hub = context.shared.hub();
        hub.break_caching(
            now,
            Some(open.hub_id()),
            &key,
            BreakTrigger::Replace,
            context.waiter,
        )
    };
    if let Some(waits) = step_result(outcome)? {
        return Ok(Some(waits));
    }
    if context.shared.hub().opens_of(&key).next().is_some() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(None)
}

/// Gives a file its new name and returns the name it has. An existing target whose name differs in
/// case (`real`) is replaced in one step and then respelled if possible, so that one of the two
/// files always exists.
fn place(
    open: &Open,
    from: &RelPath,
    real: RelPath,
    to: RelPath,
    put: impl FnOnce(&RelPath) -> ropeway_vfs::Result<()>,
) -> Result<RelPath, NtStatus> {
    if real == to || real == *from {
        put(&to).map_err(|error| name_error(&error))?;
        return Ok(to);
    }
    put(&real).map_err(|error| name_error(&error))?;
    Ok(match open.share.store.rename(&real, &to, false) {
        Ok(()) => to,
        Err(_) => real,
    })
}

/// Checks share modes as if the rename opened the target's folder for adding, sharing read and
/// write but not delete.
fn check_parent(context: &Context<'_>, open: &Open, to: &RelPath) -> StepResult {
    let Some(parent) = to.parent() else {
        return Ok(None);
    };
    let opened = open
        .share
        .store
        .open(&parent, &NodeOpen::default())
        .map_err(|error| status::of(&error))?;
    let key = key_of(&opened.stat, None);
    let adds = if open.directory {
        AccessMask::ADD_SUBDIRECTORY
    } else {
        AccessMask::ADD_FILE
    };
    let share = ShareAccess::READ | ShareAccess::WRITE;
    let now = context.shared.uptime();
    let mut hub = context.shared.hub();
    let outcome = hub.prepare_renaming_into(now, open.hub_id(), &key, (adds, share), context.waiter);
    step_result(outcome)
}

fn name_error(error: &ropeway_vfs::Error) -> NtStatus {
    match error.kind {
        ErrorKind::IsADirectory | ErrorKind::NotADirectory | ErrorKind::NotEmpty => NtStatus::ACCESS_DENIED,
        ErrorKind::Misuse | ErrorKind::Other => NtStatus::ACCESS_DENIED,
        _ => status::of(error),
    }
}

fn rename_stream(context: &Context<'_>, open: &Open, to: &Text, replace: bool) -> StepResult {
    let target = name::parse(to)?;
    let (Some(stream), Some(base)) = (&open.stream, &open.base) else {
        return Err(NtStatus::INVALID_PARAMETER);
    };
    let Some(new) = target.stream else {
        return Err(NtStatus::INVALID_PARAMETER);
    };
    if let Some(waits) = break_caching(context, open, BreakTrigger::Rename)? {
        return Ok(Some(waits));
    }
    let rename = |stream: &Name, new: &Name| base.rename_stream(stream, new, replace);
    rename(stream, &new).map_err(|error| status::of(&error))?;
    // Their opens are known by the old name, or have no stream any more.
    let replaced = base.stat().map(|stat| key_of(&stat, Some(&new)));
    let keys = [Some(open.file.clone()), replaced.ok()];
    let opens: Vec<_> = {
        let hub = context.shared.hub();
        let opens = keys.iter().flatten().flat_map(|key| hub.opens_of(key));
        opens.map(|info| info.id).collect()
    };
    persistent::give_up(context.shared, &opens);
    Ok(None)
}

/// Executes FileLinkInformation.
pub(super) fn link(context: &Context<'_>, open: &Open, replace: bool, to: &Text) -> StepResult {
    // The open itself needs no right for this, but the share and the folder must allow it.
    if !open.share.access().contains(AccessMask::ADD_FILE) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if open.directory || open.stream.is_some() {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    let (from, to) = (open.path(), destination(open, to)?);
    links::check_move(&open.share, &from, &to)?;
    let token = context.token()?;
    security::check_adding(&open.share, &token, &to, false)?;
    if let Some(waits) = break_caching(context, open, BreakTrigger::Rename)? {
        return Ok(Some(waits));
    }
    let real = existing_path(open, &to)?;
    if let Some(waits) = clear_target(context, open, &from, &real, replace)? {
        return Ok(Some(waits));
    }
    let to = place(open, &from, real, to, |to| {
        open.share.store.link_node(&*open.node, to, replace)
    })?;
    let share_id = context.tree.map_or(0, |tree| tree.share);
    let path = name::to_wire(&to);
    {
        let mut hub = context.shared.hub();
        hub.changed(share_id, &path, Action::ADDED, CompletionFilter::FILE_NAME);
    }
    // The number of links is an attribute, which a listing does not show.
    break_folder_leases(context, open, [&to]);
    context.record(
        "link",
        Some(&open.share.name),
        Some(&from),
        Some(&to),
        NtStatus::SUCCESS,
    );
    Ok(None)
}

impl SharedState {
    /// Updates the paths of opens of a renamed file, or below a renamed folder.
    fn renamed(&self, opens: &[OpenId], from: &RelPath, to: &RelPath) {
        for id in opens {
            let Some(Handle::File(other)) = self.handle(id.get()) else {
                continue;
            };
            let path = other.path();
            if path == *from {
                other.set_path(to.clone());
            } else if let Some(rest) = path.strip_prefix(from) {
                other.set_path(to.join_path(&rest));
            }
        }
    }
}
