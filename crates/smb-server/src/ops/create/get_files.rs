//! GET_FILES: small files that a client of this project reads with one request (docs/adr/0039).
//!
//! Each file is read as CREATE, READ, QUERY_INFO and CLOSE would read it. A file that this cannot read
//! has a status: the client reads it by requests of its own, which may wait.

use ropeway_smb_proto::server::rules::create::CreateIntent;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::{AccessMask, CreateDisposition};
use ropeway_smb_wire::fsctl::private::PrivateOperation;
use ropeway_smb_wire::fsctl::private_get::{GET_OUTPUT_MAX, GetFile, GetFlags, GotFile, GotFlags};
use ropeway_smb_wire::info::FileNetworkOpenInformation;
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{ErrorKind, Kind};

use super::find::{self, FindError, FoundFile};
use super::together::{FilesJob, create_request};
use crate::files::fsctl;
use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;
use crate::files::query_file::{self, FileView};
use crate::files::{eas, status};
use crate::ops::range_locks;
use crate::state::Counters;
use crate::state::open::Open;

/// Reads all files.
///
/// # Errors
/// Nothing is read: the list is malformed, or the answer could be too long.
pub(super) fn get_files(job: &FilesJob, body: &[u8], output_max: usize) -> OutputResult {
    let files = GetFile::decode_list(body).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if GetFile::reply_len(&files) > output_max.min(GET_OUTPUT_MAX) as u64 {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let mut content = Vec::new();
    let body = output_buffer::encoded(|w| {
        for file in &files {
            let read = job.check_session().and_then(|()| job.read(file, &mut content));
            let entry = match read {
                Ok((info, flags)) => {
                    let count = content.len() as u64;
                    Counters::add(&job.shared.counters.bytes_read, count);
                    job.figures.read(count);
                    GotFile {
                        status: NtStatus::SUCCESS,
                        info,
                        flags,
                        content: &content,
                    }
                }
                Err(status) => GotFile::failed(status),
            };
            entry.encode(w);
        }
    });
    Ok(fsctl::private_reply(PrivateOperation::GET_FILES, &body))
}

impl FilesJob {
    /// Reads a file into `content`.
    pub(super) fn read(
        &self,
        file: &GetFile,
        content: &mut Vec<u8>,
    ) -> Result<(FileNetworkOpenInformation, GotFlags), NtStatus> {
        let access = AccessMask::FILE_GENERIC_READ;
        let request = create_request(file.path.clone(), CreateDisposition::Open, access);
        let intent = CreateIntent::new(&request)?;
        let (open, stat) = self.open(&request, |place, target| {
            let contexts = Default::default();
            let found = find::find(place, &self.token, &request, &intent, &contexts, target, None);
            let found = found.map_err(FindError::into_status)?;
            check_readable(&found)?;
            Ok(found)
        })?;
        let read = self.read_open(&open, &stat, file, content);
        self.close(&open)?;
        read
    }

    fn read_open(
        &self,
        open: &Open,
        stat: &NodeStat,
        file: &GetFile,
        content: &mut Vec<u8>,
    ) -> Result<(FileNetworkOpenInformation, GotFlags), NtStatus> {
        let shared = &self.shared;
        if file.flags.contains(GetFlags::PLAIN_ONLY) && !is_plain(open)? {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        range_locks::check_locks(shared, open, 0, u64::from(file.length), false)?;
        // Bounded by the length of the reply, or by what one request may have compared.
        content.resize(file.length as usize, 0);
        let count = open
            .node
            .read_at(content, 0)
            .map_err(|error| status::of(&error))?;
        content.truncate(count);
        let mut flags = GotFlags::default();
        let after = open.node.stat().map_err(|error| status::of(&error))?;
        if (after.size, after.modified, after.changed) != (stat.size, stat.modified, stat.changed) {
            flags |= GotFlags::CHANGED;
        }
        let view = FileView {
            names: open.share.name_view(),
            ..FileView::default()
        };
        Ok((query_file::network_open(open, stat, &view), flags))
    }
}

/// Only files are read this way.
fn check_readable(found: &FoundFile) -> Result<(), NtStatus> {
    match found.stat.kind {
        Kind::File if !found.access.contains(AccessMask::READ_DATA) => Err(NtStatus::ACCESS_DENIED),
        Kind::File => Ok(()),
        _ => Err(NtStatus::NOT_SUPPORTED),
    }
}

/// Whether a file has neither named streams nor extended attributes.
fn is_plain(open: &Open) -> Result<bool, NtStatus> {
    let has_streams = match open.node.streams() {
        Ok(streams) => !streams.is_empty(),
        Err(error) if error.kind == ErrorKind::Unsupported => false,
        Err(error) => return Err(status::of(&error)),
    };
    Ok(!has_streams && eas::size(&*open.node)? == 0)
}
