//! NT_CREATE_ANDX ([MS-CIFS] 3.3.5.50), OPEN_ANDX, and OPEN, CREATE and CREATE_NEW of old clients.
//! Oplocks are never granted.

use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use ropeway_smb_wire::{FileAttributes, NtStatus, Text};
use ropeway_smb1::dos_time::utime;
use ropeway_smb1::wire::core_files::{OldCreateRequest, OldOpenRequest, OldOpenResponse};
use ropeway_smb1::wire::create::{CreateFlags, CreateRequest, CreateResponse};
use ropeway_smb1::wire::open::{AccessMode, OpenRequest, OpenResponse};
use ropeway_smb1::write_block;

use crate::calls::{Open, Opened};
use crate::conversation::{Call, Conversation, Outcome, done};
use crate::line::Fault;
use crate::tables::File;

/// `ResourceType` of a pipe of messages, and its state: messages, one instance at most.
const PIPE: (u16, u16) = (2, 0x05FF);

/// Access that includes DELETE.
const DELETING: AccessMask = AccessMask::DELETE
    .union(AccessMask::GENERIC_ALL)
    .union(AccessMask::MAXIMUM_ALLOWED);

impl Conversation {
    pub(crate) fn nt_create(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = CreateRequest::decode(call.block, call.is_unicode())?;
        let words = request.words;
        let mut name = self.path(&request.name);
        if words.root_fid != 0 {
            let root = u16::try_from(words.root_fid).map_err(|_| NtStatus::INVALID_HANDLE)?;
            let root = self.file(&call.header, root)?;
            name = joined(&root.path, &name);
        }
        let mut options = CreateOptions::from_bits_retain(words.create_options);
        if words.flags.contains(CreateFlags::OPEN_TARGET_DIR) {
            name = parent(&name);
            options |= CreateOptions::DIRECTORY_FILE;
        }
        let disposition = CreateDisposition::from_wire(words.create_disposition);
        let wanted = AccessMask::from_bits_retain(words.desired_access);
        if options.contains(CreateOptions::DELETE_ON_CLOSE) && !wanted.intersects(DELETING) {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        // As Windows does: attributes of open files are asked for whatever was wanted.
        let more = match wanted.is_empty() {
            true => AccessMask::empty(),
            false => AccessMask::READ_ATTRIBUTES,
        };
        let open = Open {
            access: wanted | more,
            attributes: FileAttributes::from_bits_retain(words.file_attributes),
            sharing: ShareAccess::from_bits_retain(words.share_access),
            disposition: disposition.ok_or(NtStatus::INVALID_PARAMETER)?,
            options,
            name,
        };
        let (fid, opened, is_pipe) = self.add_file(call, open)?;
        let response = CreateResponse {
            fid,
            create_action: opened.action,
            creation_time: opened.creation_time,
            last_access_time: opened.last_access_time,
            last_write_time: opened.last_write_time,
            change_time: opened.change_time,
            file_attributes: opened.attributes.bits(),
            allocation_size: opened.allocation_size,
            end_of_file: opened.end_of_file,
            resource_type: if is_pipe { PIPE.0 } else { 0 },
            pipe_status: if is_pipe { PIPE.1 } else { 0 },
            is_directory: opened.attributes.contains(FileAttributes::DIRECTORY),
            ..CreateResponse::default()
        };
        done(move |w| response.encode(w))
    }

    pub(crate) fn open_andx(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = OpenRequest::decode(call.block, call.is_unicode())?;
        let words = request.words;
        let disposition = match (words.open_mode & 3, words.open_mode & 0x10 != 0) {
            (0, true) => CreateDisposition::Create,
            (1, false) => CreateDisposition::Open,
            (1, true) => CreateDisposition::OpenIf,
            (2, false) => CreateDisposition::Overwrite,
            (2, true) => CreateDisposition::OverwriteIf,
            _ => return Err(NtStatus::INVALID_PARAMETER.into()),
        };
        let attributes = FileAttributes::from_bits_retain(u32::from(words.file_attributes));
        let name = self.path(&request.name);
        let open = by_mode(words.access_mode, disposition, attributes, name)?;
        let (fid, opened, is_pipe) = self.add_file(call, open)?;
        let response = OpenResponse {
            fid,
            file_attributes: opened.attributes.bits() as u16,
            last_write_time: utime(opened.last_write_time, self.state.config().zone),
            file_size: opened.end_of_file as u32,
            access: words.access_mode.access(),
            resource_type: if is_pipe { PIPE.0 } else { 0 },
            pipe_status: if is_pipe { PIPE.1 } else { 0 },
            open_result: opened.action.clamp(1, 3) as u16,
            ..OpenResponse::default()
        };
        done(move |w| response.encode(w))
    }

    pub(crate) fn old_open(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = OldOpenRequest::decode(call.block, call.is_unicode())?;
        let mode = request.words.access_mode;
        let name = self.path(&request.path);
        let open = by_mode(mode, CreateDisposition::Open, FileAttributes::default(), name)?;
        let (fid, opened, _) = self.add_file(call, open)?;
        let response = OldOpenResponse {
            fid,
            file_attributes: opened.attributes.bits() as u16,
            last_write_time: utime(opened.last_write_time, self.state.config().zone),
            file_size: opened.end_of_file as u32,
            access_mode: mode,
        };
        done(move |w| write_block(w, |w| response.write(w), |_| {}))
    }

    pub(crate) fn old_create(&mut self, call: &mut Call<'_>, is_new: bool) -> Outcome {
        let request = OldCreateRequest::decode(call.block, call.is_unicode())?;
        let disposition = match is_new {
            true => CreateDisposition::Create,
            false => CreateDisposition::OverwriteIf,
        };
        let attributes = FileAttributes::from_bits_retain(u32::from(request.words.file_attributes));
        let mode = AccessMode::of(AccessMode::READ_WRITE, AccessMode::SHARE_COMPATIBLE);
        let name = self.path(&request.path);
        let open = by_mode(mode, disposition, attributes, name)?;
        let (fid, ..) = self.add_file(call, open)?;
        done(move |w| write_block(w, |w| w.u16(fid), |_| {}))
    }

    /// Opens a file or pipe and gives it a number. Returns whether it is a pipe.
    fn add_file(&mut self, call: &mut Call<'_>, mut open: Open) -> Result<(u16, Opened, bool), Fault> {
        let tree = self.tree(&call.header)?;
        if tree.is_ipc {
            open.name = pipe_name(&open.name);
        }
        let path = open.name.clone();
        let opened = self.line.create(tree.place, open)?;
        let file = File {
            uid: call.header.uid,
            tid: call.header.tid,
            place: tree.place,
            id: opened.id,
            is_pipe: tree.is_ipc,
            path,
            refused_lock: None,
        };
        let Some(fid) = self.tables.files.add(file) else {
            self.line.close(tree.place, opened.id)?;
            return Err(NtStatus::TOO_MANY_OPENED_FILES.into());
        };
        call.opened = Some(fid);
        Ok((fid, opened, tree.is_ipc))
    }
}

/// Returns how to open a file by the modes of DOS ([MS-CIFS] 2.2.4.41.1).
fn by_mode(
    mode: AccessMode,
    disposition: CreateDisposition,
    attributes: FileAttributes,
    name: Text,
) -> Result<Open, NtStatus> {
    let (read, write) = (AccessMask::FILE_GENERIC_READ, AccessMask::FILE_GENERIC_WRITE);
    let access = match mode.access() {
        AccessMode::READ => read,
        AccessMode::WRITE => write | AccessMask::READ_ATTRIBUTES,
        AccessMode::READ_WRITE | 7 => read | write,
        AccessMode::EXECUTE => read | AccessMask::EXECUTE,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    let all = ShareAccess::READ | ShareAccess::WRITE;
    let sharing = match mode.sharing() {
        AccessMode::DENY_ALL => ShareAccess::default(),
        AccessMode::DENY_WRITE => ShareAccess::READ,
        AccessMode::DENY_READ => ShareAccess::WRITE,
        AccessMode::SHARE_COMPATIBLE | AccessMode::DENY_NONE | 7 => all,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    let mut options = CreateOptions::NON_DIRECTORY_FILE;
    if mode.is_write_through() {
        options |= CreateOptions::WRITE_THROUGH;
    }
    Ok(Open {
        access,
        attributes,
        sharing,
        disposition,
        options,
        name,
    })
}

/// Returns the path of a name in a folder.
pub(crate) fn joined(folder: &Text, name: &Text) -> Text {
    let mut units = folder.units().to_vec();
    if !folder.is_empty() && !name.is_empty() {
        units.push(u16::from(b'\\'));
    }
    units.extend(name.units());
    Text::from_units(units)
}

/// Returns the folder of a path.
pub(crate) fn parent(path: &Text) -> Text {
    let units = path.units();
    let end = units.iter().rposition(|unit| *unit == u16::from(b'\\'));
    Text::from_units(units[..end.unwrap_or(0)].to_vec())
}

/// Returns the name of a pipe without `PIPE\` in front.
fn pipe_name(name: &Text) -> Text {
    let text = name.to_string_lossy();
    match text.split_at_checked(5) {
        Some((start, rest)) if start.eq_ignore_ascii_case("pipe\\") => Text::from(rest),
        _ => name.clone(),
    }
}
