//! QUERY_INFO for an open file ([MS-SMB2] 3.3.5.20.1, [MS-FSCC] 2.4).

use std::sync::atomic::Ordering;

use ropeway_smb_proto::server::rules::info as rules;
use ropeway_smb_wire::fsctl::reparse::ReparseTag;
use ropeway_smb_wire::info::{
    FileAccessInformation, FileAlignmentInformation, FileAllInformation, FileAttributeTagInformation,
    FileBasicInformation, FileCompressionInformation, FileEaInformation, FileIdInformation, FileInfoClass,
    FileInternalInformation, FileModeInformation, FileNameInformation, FileNetworkOpenInformation,
    FileNormalizedNameInformation, FilePositionInformation, FileStandardInformation, FileStreamInformation,
    Information, ModeFlags, StreamEntry,
};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::query_info::QueryInfoFlags;
use ropeway_smb_wire::{FileAttributes, NtStatus, Text};
use ropeway_vfs::store::{NodeOpen, NodeStat, StreamInfo};
use ropeway_vfs::{Kind, Name, RelPath};

use crate::files::output_buffer;
use crate::files::output_buffer::{OutputResult, append};
use crate::files::short_name::NameView;
use crate::files::{attributes, eas, status};
use crate::state::open::{Open, OpenState};

/// What the response depends on besides the open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileView<'a> {
    /// Whether the file is deleted when it is closed.
    pub(crate) delete_pending: bool,
    /// Which names are hidden, and which have short names.
    pub(crate) names: NameView,
    /// Whether the dialect is 3.1.1, which has `FileNormalizedNameInformation`.
    pub(crate) normalized_names: bool,
    /// List of the wanted extended attributes; empty for all.
    pub(crate) input: &'a [u8],
    /// How to list extended attributes.
    pub(crate) flags: QueryInfoFlags,
    /// `AdditionalInformation`: index of the first extended attribute.
    pub(crate) index: u32,
}

/// Answers a query of an information class.
///
/// # Errors
/// STATUS_INVALID_INFO_CLASS, STATUS_ACCESS_DENIED, STATUS_INFO_LENGTH_MISMATCH,
/// STATUS_NOT_SUPPORTED, errors of extended attributes, and errors of the store.
pub(crate) fn query_file(open: &Open, class: u8, length_max: usize, view: &FileView<'_>) -> OutputResult {
    let class = FileInfoClass::from_u8(class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
    let fixed = rules::check_query_file(class, open.access, length_max)?;
    match class {
        FileInfoClass::FullEa => return eas::query(open, length_max, view),
        FileInfoClass::Stream => return streams(open, length_max),
        _ => {}
    }
    output_buffer::truncated(bytes(open, class, view)?, fixed, length_max)
}

/// Returns the whole response for a class that is not a list.
fn bytes(open: &Open, class: FileInfoClass, view: &FileView<'_>) -> Result<Vec<u8>, NtStatus> {
    Ok(match class {
        FileInfoClass::Access => access(open).to_bytes(),
        FileInfoClass::Alignment => FileAlignmentInformation::default().to_bytes(),
        FileInfoClass::Position => position(open).to_bytes(),
        FileInfoClass::Mode => mode(open).to_bytes(),
        FileInfoClass::Name => FileNameInformation {
            name: full_name(open, true),
        }
        .to_bytes(),
        FileInfoClass::NormalizedName => normalized_name(open, view)?.to_bytes(),
        FileInfoClass::AlternateName => alternate_name(open, view)?.to_bytes(),
        FileInfoClass::Ea => ea(open)?.to_bytes(),
        // These classes are for pipes, which are opened elsewhere.
        FileInfoClass::Pipe | FileInfoClass::PipeLocal | FileInfoClass::PipeRemote => {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        _ => of_stat(open, class, view)?,
    })
}

/// Returns the response for classes that need attributes from the store.
fn of_stat(open: &Open, class: FileInfoClass, view: &FileView<'_>) -> Result<Vec<u8>, NtStatus> {
    let stat = open.node.stat().map_err(|error| status::of(&error))?;
    let features = open.share.store.features();
    Ok(match class {
        FileInfoClass::Basic => basic(open, &stat, view).to_bytes(),
        FileInfoClass::Standard => standard(open, &stat, view).to_bytes(),
        FileInfoClass::Internal => internal(open, &stat).to_bytes(),
        FileInfoClass::NetworkOpen => network_open(open, &stat, view).to_bytes(),
        FileInfoClass::AttributeTag => FileAttributeTagInformation {
            attributes: file_attributes(open, &stat, view),
            reparse_tag: reparse_tag(&stat),
        }
        .to_bytes(),
        FileInfoClass::Compression => FileCompressionInformation {
            compressed_file_size: attributes::end_of_file(&stat),
            ..FileCompressionInformation::default()
        }
        .to_bytes(),
        FileInfoClass::Id => FileIdInformation {
            volume_serial_number: features.volume,
            file_id: u128::from(attributes::index_number(stat.id, features)).to_le_bytes(),
        }
        .to_bytes(),
        FileInfoClass::All => all(open, &stat, view)?.to_bytes(),
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    })
}

/// Returns the attributes of an open, with its name considered.
pub(crate) fn file_attributes(open: &Open, stat: &NodeStat, view: &FileView<'_>) -> FileAttributes {
    let dot_name = view.names.hide_dot_files && has_dot_name(&path(open));
    attributes::of(stat, dot_name)
}

/// Returns `ReparseTag`: the tag of links, or 0.
pub(crate) fn reparse_tag(stat: &NodeStat) -> u32 {
    match stat.kind {
        Kind::Symlink => ReparseTag::SYMLINK.0,
        _ => 0,
    }
}

/// Returns the attributes that CREATE and CLOSE report too.
pub(crate) fn network_open(open: &Open, stat: &NodeStat, view: &FileView<'_>) -> FileNetworkOpenInformation {
    let basic = basic(open, stat, view);
    FileNetworkOpenInformation {
        creation_time: basic.creation_time,
        last_access_time: basic.last_access_time,
        last_write_time: basic.last_write_time,
        change_time: basic.change_time,
        allocation_size: attributes::allocation_size(stat, open.share.store.features()),
        end_of_file: attributes::end_of_file(stat),
        attributes: basic.attributes,
    }
}

fn basic(open: &Open, stat: &NodeStat, view: &FileView<'_>) -> FileBasicInformation {
    FileBasicInformation {
        creation_time: attributes::file_time(stat.created),
        last_access_time: attributes::file_time(stat.accessed),
        last_write_time: attributes::file_time(stat.modified),
        change_time: attributes::file_time(stat.changed),
        attributes: file_attributes(open, stat, view),
    }
}

fn standard(open: &Open, stat: &NodeStat, view: &FileView<'_>) -> FileStandardInformation {
    // A folder's links are the `..` of its subfolders, which Windows does not count.
    let links = match open.directory {
        true => 1,
        false => u32::try_from(stat.links).unwrap_or(u32::MAX),
    };
    FileStandardInformation {
        allocation_size: attributes::allocation_size(stat, open.share.store.features()),
        end_of_file: attributes::end_of_file(stat),
        number_of_links: links.saturating_sub(u32::from(view.delete_pending)),
        delete_pending: view.delete_pending,
        directory: open.directory,
    }
}

fn internal(open: &Open, stat: &NodeStat) -> FileInternalInformation {
    FileInternalInformation {
        index_number: attributes::index_number(stat.id, open.share.store.features()),
    }
}

fn access(open: &Open) -> FileAccessInformation {
    FileAccessInformation {
        access_flags: open.access,
    }
}

fn position(open: &Open) -> FilePositionInformation {
    FilePositionInformation {
        current_byte_offset: open.position.load(Ordering::Relaxed),
    }
}

/// CREATE options that are bits of the mode, with the same values ([MS-FSCC] 2.4.31).
const MODE_OPTIONS: u32 = 0x0000_103E;

fn mode(open: &Open) -> FileModeInformation {
    let mode = match open.state.mode.load(Ordering::Relaxed) {
        OpenState::MODE_OF_OPTIONS => open.options.bits() & MODE_OPTIONS,
        set => set,
    };
    FileModeInformation {
        mode: ModeFlags::from_bits_retain(mode),
    }
}

fn ea(open: &Open) -> Result<FileEaInformation, NtStatus> {
    eas::size(&*open.node).map(|ea_size| FileEaInformation { ea_size })
}

fn all(open: &Open, stat: &NodeStat, view: &FileView<'_>) -> Result<FileAllInformation, NtStatus> {
    Ok(FileAllInformation {
        basic: basic(open, stat, view),
        standard: standard(open, stat, view),
        internal: internal(open, stat),
        ea: ea(open)?,
        access: access(open),
        position: position(open),
        mode: mode(open),
        alignment: FileAlignmentInformation::default(),
        name: FileNameInformation {
            name: full_name(open, true),
        },
    })
}

/// Returns the normalized name; only in 3.1.1 ([MS-SMB2] 3.3.5.20.1).
fn normalized_name(open: &Open, view: &FileView<'_>) -> Result<FileNormalizedNameInformation, NtStatus> {
    if !view.normalized_names {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    Ok(FileNormalizedNameInformation {
        name: full_name(open, false),
    })
}

/// Returns `FileAlternateNameInformation`: the short name.
fn alternate_name(open: &Open, view: &FileView<'_>) -> Result<FileNameInformation, NtStatus> {
    let name = path(open).file_name().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    view.names
        .short_name(name.as_bytes())
        .map(|name| FileNameInformation { name })
        .ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)
}

/// Answers `FileStreamInformation`: the content of files and all named streams.
fn streams(open: &Open, length_max: usize) -> OutputResult {
    let named = match open.node.streams() {
        Ok(named) => named,
        Err(error) if error.kind == ropeway_vfs::ErrorKind::Unsupported => Vec::new(),
        Err(error) => return Err(status::of(&error)),
    };
    let features = open.share.store.features();
    let mut streams = Vec::with_capacity(named.len() + 1);
    if !open.directory {
        let stat = content_stat(open)?;
        streams.push(StreamEntry {
            name: "::$DATA".into(),
            size: attributes::end_of_file(&stat),
            allocation_size: attributes::allocation_size(&stat, features),
        });
    }
    streams.extend(named.iter().map(|stream| StreamEntry {
        name: stream_name(stream),
        size: stream.size,
        allocation_size: attributes::round_up(stream.size, features.unit),
    }));
    let lengths = streams.iter().map(|stream| 24 + stream.name.wire_len());
    let count = output_buffer::count_fitting(lengths, 8, length_max);
    let status = if count < streams.len() {
        NtStatus::BUFFER_OVERFLOW
    } else {
        NtStatus::SUCCESS
    };
    streams.truncate(count);
    Ok((status, FileStreamInformation { streams }.to_bytes()))
}

/// Returns the attributes of the open file, or of the file that an open stream belongs to.
fn content_stat(open: &Open) -> Result<NodeStat, NtStatus> {
    let stat = match open.stream {
        None => open.node.stat(),
        Some(_) => {
            let how = NodeOpen {
                link_itself: true,
                ..NodeOpen::default()
            };
            open.share.store.open(&path(open), &how).map(|opened| opened.stat)
        }
    };
    stat.map_err(|error| status::of(&error))
}

/// Returns `:NAME:$DATA`.
fn stream_name(stream: &StreamInfo) -> Text {
    let mut units = vec![u16::from(b':')];
    append(
        &mut units,
        &names::to_wire(stream.name.as_bytes(), NameMapping::None),
    );
    append(&mut units, &":$DATA".into());
    Text::from_units(units)
}

/// Returns the current path of an open.
pub(crate) fn path(open: &Open) -> RelPath {
    open.path.lock().clone()
}

/// Returns the name of an open on the wire: path with backslashes, then a colon and the stream.
fn full_name(open: &Open, leading_backslash: bool) -> Text {
    let mut units = wire_path(&path(open), leading_backslash);
    if let Some(stream) = &open.stream {
        units.push(u16::from(b':'));
        append(&mut units, &names::to_wire(stream.as_bytes(), NameMapping::None));
    }
    Text::from_units(units)
}

/// Returns a path on the wire: names separated by backslashes.
pub(crate) fn wire_path(path: &RelPath, leading_backslash: bool) -> Vec<u16> {
    let mut units = Vec::with_capacity(path.as_bytes().len() + 1);
    if leading_backslash && path.is_root() {
        units.push(u16::from(b'\\'));
    }
    for (at, name) in path.components().enumerate() {
        if at > 0 || leading_backslash {
            units.push(u16::from(b'\\'));
        }
        append(&mut units, &names::to_wire(name.as_bytes(), NameMapping::Sfm));
    }
    units
}

fn has_dot_name(path: &RelPath) -> bool {
    path.file_name().as_ref().is_some_and(is_dot_name)
}

/// Whether a name begins with a dot, which hides it on Unix.
pub(crate) fn is_dot_name(name: &Name) -> bool {
    name.as_bytes().first() == Some(&b'.')
}

#[cfg(test)]
#[path = "query_file_tests.rs"]
mod tests;
