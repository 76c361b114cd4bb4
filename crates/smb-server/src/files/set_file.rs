//! SET_INFO for files and volumes ([MS-SMB2] 3.3.5.21.1, 3.3.5.21.2; [MS-FSCC] 2.4).
//!
//! ```text
//! SetFile::decode   bytes -> change; lengths, values and rights are checked
//!   apply           changes that concern one open alone
//!   (ops::rename)   Rename, Link, Disposition: other opens matter
//! ```

use std::sync::atomic::Ordering;

use ropeway_smb_proto::server::rules::info as rules;
use ropeway_smb_wire::info::{
    DispositionFlags, FileAllocationInformation, FileBasicInformation, FileDispositionInformation,
    FileDispositionInformationEx, FileEndOfFileInformation, FileFullEaInformation, FileInfoClass,
    FileLinkInformation, FileModeInformation, FilePositionInformation, FileRenameInformation,
    FileRenameInformationEx, FsInfoClass, FullEa, Information, ModeFlags, RenameFlags,
};
use ropeway_smb_wire::{FileTime, NtStatus, Text};
use ropeway_vfs::store::{NodeChange, NodeStat};
use ropeway_vfs::{ErrorKind, Timestamp};

use crate::files::{attributes, eas, output_buffer, status};
use crate::state::open::Open;

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetFile {
    /// Times and attributes.
    Basic(FileBasicInformation),
    /// The length in bytes.
    EndOfFile(u64),
    /// Number of bytes to allocate; fewer than the length truncate the file.
    Allocation(u64),
    /// Number of valid bytes. It has no effect, because all bytes are valid.
    ValidDataLength(u64),
    /// `CurrentByteOffset`.
    Position(u64),
    /// The mode.
    Mode(ModeFlags),
    /// Extended attributes.
    FullEa(Vec<FullEa>),
    /// Rename; not executed here.
    Rename {
        /// Flags. From `FileRenameInformation`, REPLACE_IF_EXISTS or none.
        flags: RenameFlags,
        /// New path from the root of the share, or the name of a stream after a colon.
        name: Text,
    },
    /// Hard link; not executed here.
    Link {
        /// Whether an existing file is replaced.
        replace: bool,
        /// Path from the root of the share.
        name: Text,
    },
    /// Delete when closed, or not; not executed here. From `FileDispositionInformation`, DELETE or
    /// none.
    Disposition(DispositionFlags),
}

impl SetFile {
    /// Decodes a request for an open.
    ///
    /// # Errors
    /// STATUS_INVALID_INFO_CLASS, STATUS_ACCESS_DENIED, STATUS_INFO_LENGTH_MISMATCH,
    /// STATUS_INVALID_PARAMETER.
    pub(crate) fn decode(open: &Open, class: u8, buffer: &[u8]) -> Result<Self, NtStatus> {
        let class = FileInfoClass::from_u8(class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
        rules::check_set_file(class, open.access)?;
        let set = Self::read(class, buffer)?;
        set.check(open)?;
        Ok(set)
    }

    fn read(class: FileInfoClass, buffer: &[u8]) -> Result<Self, NtStatus> {
        Ok(match class {
            FileInfoClass::Basic => Self::Basic(information(buffer)?),
            FileInfoClass::EndOfFile => {
                Self::EndOfFile(information::<FileEndOfFileInformation>(buffer)?.end_of_file)
            }
            FileInfoClass::Allocation => {
                Self::Allocation(information::<FileAllocationInformation>(buffer)?.allocation_size)
            }
            // The layout is that of FileEndOfFileInformation ([MS-FSCC] 2.4.50).
            FileInfoClass::ValidDataLength => {
                Self::ValidDataLength(information::<FileEndOfFileInformation>(buffer)?.end_of_file)
            }
            FileInfoClass::Position => {
                Self::Position(information::<FilePositionInformation>(buffer)?.current_byte_offset)
            }
            FileInfoClass::Mode => Self::Mode(information::<FileModeInformation>(buffer)?.mode),
            FileInfoClass::FullEa => Self::FullEa(information::<FileFullEaInformation>(buffer)?.attributes),
            FileInfoClass::Rename => {
                let rename = information::<FileRenameInformation>(buffer)?;
                let flags = match rename.replace_if_exists {
                    true => RenameFlags::REPLACE_IF_EXISTS,
                    false => RenameFlags::default(),
                };
                Self::Rename {
                    flags,
                    name: rename.name,
                }
            }
            FileInfoClass::RenameEx => {
                let FileRenameInformationEx { flags, name } = information(buffer)?;
                Self::Rename { flags, name }
            }
            FileInfoClass::Link => {
                let link = information::<FileLinkInformation>(buffer)?;
                Self::Link {
                    replace: link.replace_if_exists,
                    name: link.name,
                }
            }
            FileInfoClass::Disposition => {
                let delete = information::<FileDispositionInformation>(buffer)?.delete_pending;
                Self::Disposition(match delete {
                    true => DispositionFlags::DELETE,
                    false => DispositionFlags::default(),
                })
            }
            FileInfoClass::DispositionEx => {
                Self::Disposition(information::<FileDispositionInformationEx>(buffer)?.flags)
            }
            _ => return Err(NtStatus::INVALID_INFO_CLASS),
        })
    }

    /// Checks values, by themselves and for this open ([MS-FSA] 2.1.5.15).
    fn check(&self, open: &Open) -> Result<(), NtStatus> {
        let is_valid = match self {
            Self::Basic(basic) => {
                attributes::check_settable(basic.attributes, open.directory)?;
                let times = [
                    basic.creation_time,
                    basic.last_access_time,
                    basic.last_write_time,
                    basic.change_time,
                ];
                times.into_iter().all(is_settable)
            }
            Self::EndOfFile(length) | Self::Allocation(length) | Self::ValidDataLength(length) => {
                !open.directory && i64::try_from(*length).is_ok()
            }
            Self::Position(offset) => i64::try_from(*offset).is_ok(),
            Self::Mode(mode) => {
                let both = ModeFlags::SYNCHRONOUS_IO_ALERT | ModeFlags::SYNCHRONOUS_IO_NONALERT;
                SETTABLE_MODE.contains(*mode) && !mode.contains(both)
            }
            Self::Rename { name, .. } | Self::Link { name, .. } => !name.is_empty(),
            Self::FullEa(_) | Self::Disposition(_) => true,
        };
        if is_valid {
            Ok(())
        } else {
            Err(NtStatus::INVALID_PARAMETER)
        }
    }

    /// Executes the change.
    ///
    /// # Errors
    /// Errors of the store; STATUS_NOT_SUPPORTED for changes that are not executed here.
    pub(crate) fn apply(&self, open: &Open) -> Result<(), NtStatus> {
        match self {
            Self::Basic(basic) => set_basic(open, basic),
            Self::EndOfFile(length) => keeping_times(open, || stored(open.node.set_len(*length))),
            Self::Allocation(length) => keeping_times(open, || set_allocation(open, *length)),
            Self::ValidDataLength(length) => {
                // All bytes of a store are valid: they were written or are 0.
                let stat = stored(open.node.stat())?;
                match *length <= stat.size {
                    true => Ok(()),
                    false => Err(NtStatus::INVALID_PARAMETER),
                }
            }
            Self::Position(offset) => {
                open.position.store(*offset, Ordering::Relaxed);
                Ok(())
            }
            Self::Mode(mode) => {
                open.state.mode.store(mode.bits(), Ordering::Relaxed);
                Ok(())
            }
            Self::FullEa(attributes) => eas::set(&*open.node, attributes),
            Self::Rename { .. } | Self::Link { .. } | Self::Disposition(_) => Err(NtStatus::NOT_SUPPORTED),
        }
    }
}

/// Mode bits that can change after CREATE ([MS-FSA] 2.1.5.15.9).
const SETTABLE_MODE: ModeFlags = ModeFlags::from_bits_retain(
    ModeFlags::WRITE_THROUGH.bits()
        | ModeFlags::SEQUENTIAL_ONLY.bits()
        | ModeFlags::SYNCHRONOUS_IO_ALERT.bits()
        | ModeFlags::SYNCHRONOUS_IO_NONALERT.bits(),
);

fn information<I: Information>(buffer: &[u8]) -> Result<I, NtStatus> {
    I::decode(buffer).map_err(|fault| output_buffer::malformed(&fault))
}

fn stored<T>(result: ropeway_vfs::Result<T>) -> Result<T, NtStatus> {
    result.map_err(|error| status::of(&error))
}

/// Whether a time may be set. Negative times other than -1 and -2 are invalid ([MS-FSA]
/// 2.1.5.15.2).
fn is_settable(time: FileTime) -> bool {
    matches!(time, FileTime::FREEZE | FileTime::THAW) || time <= FileTime::MAX
}

/// Bits of `OpenState::frozen`.
const FROZEN_ACCESSED: u8 = 1;
const FROZEN_MODIFIED: u8 = 2;

/// Sets times and attributes in one change.
///
/// The change time is reported as set until the next change. Nothing else changes the creation
/// time. So freezing these two has no effect.
fn set_basic(open: &Open, basic: &FileBasicInformation) -> Result<(), NtStatus> {
    // What is being written has its own time when it ends.
    let _alone = open.state.changes.write();
    // Explicit times need no look at the file.
    let needs_stat = !basic.attributes.is_empty()
        || [basic.last_access_time, basic.last_write_time]
            .into_iter()
            .any(|time| time != FileTime::KEEP && set_time(time).is_none());
    let stat = needs_stat.then(|| stored(open.node.stat())).transpose()?;
    let attributes_of = |stat: &NodeStat| {
        (!basic.attributes.is_empty())
            .then(|| attributes::changed(stat, basic.attributes))
            .filter(|kept| stat.dos_attributes != Some(*kept))
    };
    let change = NodeChange {
        created: set_time(basic.creation_time),
        accessed: set_time(basic.last_access_time),
        modified: set_time(basic.last_write_time),
        changed: set_time(basic.change_time),
        dos_attributes: stat.as_ref().and_then(attributes_of),
    };
    if change != NodeChange::default() {
        stored(open.node.change(&change))?;
    }
    let mut frozen = open.state.frozen.load(Ordering::Relaxed);
    let asked = [
        (FROZEN_ACCESSED, basic.last_access_time),
        (FROZEN_MODIFIED, basic.last_write_time),
    ];
    for (bit, time) in asked {
        match time {
            FileTime::KEEP => {}
            FileTime::THAW => frozen &= !bit,
            // A time that was set no longer changes through this open either ([MS-FSA] 2.1.5.15.2).
            _ => frozen |= bit,
        }
    }
    open.state.frozen.store(frozen, Ordering::Relaxed);
    Ok(())
}

/// Returns the time to set, if any.
fn set_time(time: FileTime) -> Option<Timestamp> {
    match time {
        FileTime::KEEP | FileTime::FREEZE | FileTime::THAW => None,
        _ => Some(attributes::timestamp(time)),
    }
}

/// Executes an operation that changes the content, and keeps the times as they are now that the client has
/// set or frozen through this open ([MS-FSA] 2.1.1.6 `UserSetModificationTime`). Other opens may change
/// them (smb2.timestamps.modern_write_time_update-1). The operation has succeeded even if they cannot be
/// restored. Free of cost if there are none.
///
/// # Errors
/// Those of the operation, and errors of looking at the file before it.
pub(crate) fn keeping_times<T>(
    open: &Open,
    act: impl FnOnce() -> Result<T, NtStatus>,
) -> Result<T, NtStatus> {
    let frozen = || open.state.frozen.load(Ordering::Relaxed);
    let shared = open.state.changes.read();
    if frozen() == 0 {
        return act();
    }
    drop(shared);
    // One at a time: another one would take the time of this operation for one to keep.
    let _alone = open.state.changes.write();
    let stat = stored(open.node.stat())?;
    let held = NodeChange {
        accessed: (frozen() & FROZEN_ACCESSED != 0).then_some(stat.accessed),
        modified: (frozen() & FROZEN_MODIFIED != 0).then_some(stat.modified),
        ..NodeChange::default()
    };
    let done = act()?;
    if held != NodeChange::default()
        && let Err(error) = open.node.change(&held)
    {
        tracing::debug!(path = %open.path(), %error, "cannot restore the times of a file");
    }
    Ok(done)
}

/// Returns the access time that a READ through this open must not change, if there is one.
///
/// # Errors
/// Errors of the store.
pub(crate) fn held_access_time(open: &Open) -> Result<Option<Timestamp>, NtStatus> {
    match open.state.frozen.load(Ordering::Relaxed) & FROZEN_ACCESSED {
        0 => Ok(None),
        _ => Ok(Some(stored(open.node.stat())?.accessed)),
    }
}

/// Restores the access time after a READ. Often that has not changed: setting a time that is there already
/// would give the file another change time.
///
/// # Errors
/// Errors of the store.
pub(crate) fn restore_access_time(open: &Open, held: Option<Timestamp>) -> Result<(), NtStatus> {
    if held.is_none() || held == Some(stored(open.node.stat())?.accessed) {
        return Ok(());
    }
    stored(open.node.change(&NodeChange {
        accessed: held,
        ..NodeChange::default()
    }))
}

/// Sets the allocation ([MS-FSA] 2.1.5.15.1). Less than the length truncates the file; more
/// reserves space as far as the volume can.
fn set_allocation(open: &Open, length: u64) -> Result<(), NtStatus> {
    let stat = stored(open.node.stat())?;
    if length < stat.size {
        return stored(open.node.set_len(length));
    }
    let unit = open.share.store.features().unit;
    if length > stat.allocated {
        match open.node.allocate(length) {
            Err(error) if error.kind == ErrorKind::Unsupported => {}
            result => stored(result)?,
        }
    } else if attributes::round_up(length, unit) < stat.allocated {
        // Setting the same length frees space reserved behind the end.
        stored(open.node.set_len(stat.size))?;
    }
    // An allocation that keeps the length changes only the change time ([MS-FSA] 2.1.5.15.1;
    // smb2.timestamps.modern_write_time_update-2). A far server knows that by itself, and not every user
    // may set a time.
    if open.share.far {
        return Ok(());
    }
    let now = stored(open.node.stat())?;
    let change = if now.modified == stat.modified {
        // Any time that is set gives the file another change time, and that of the last access is
        // not what others write meanwhile.
        NodeChange {
            accessed: Some(now.accessed),
            ..NodeChange::default()
        }
    } else {
        NodeChange {
            modified: Some(stat.modified),
            ..NodeChange::default()
        }
    };
    _ = open.node.change(&change);
    Ok(())
}

/// Refuses SET_INFO for a volume: labels, quotas and object ids are not stored.
///
/// # Errors
/// Always: STATUS_ACCESS_DENIED for labels, STATUS_NOT_SUPPORTED, or STATUS_INVALID_INFO_CLASS.
pub(crate) fn set_fs(class: u8) -> Result<(), NtStatus> {
    Err(match FsInfoClass::from_u8(class) {
        Some(FsInfoClass::Label) => NtStatus::ACCESS_DENIED,
        Some(FsInfoClass::Control | FsInfoClass::ObjectId) => NtStatus::NOT_SUPPORTED,
        _ => NtStatus::INVALID_INFO_CLASS,
    })
}

#[cfg(test)]
#[path = "set_file_tests.rs"]
mod tests;
