//! COPY_FILES and SAME_FILES: small files whose content is here already, which a client of this project
//! needs not send or fetch (docs/adr/0040).
//!
//! A file is read as GET_FILES reads it. What was read is hashed, and what was hashed is written: whatever
//! happens to the file meanwhile, a new one has the content that the client named, or is not made.

use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateOperation};
use ropeway_smb_wire::fsctl::private_get::{GOT_FIXED_LEN, GetFile, GetFlags, GotFile, GotFlags};
use ropeway_smb_wire::fsctl::private_put::{PUT_STATUS_LEN, PutStep};
use ropeway_smb_wire::fsctl::private_same::{CopyFile, SameFile};
use ropeway_smb_wire::info::FileNetworkOpenInformation;
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::{ContentHash, HashAlgorithm};

use super::find::FolderRights;
use super::put_files::{Made, NewFile, complete};
use super::together::FilesJob;
use crate::files::fsctl;
use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;

/// A file, and the content that it may have.
struct Named<'a> {
    path: &'a Text,
    flags: GetFlags,
    length: u32,
    hash: &'a ContentHash,
}

/// Makes files from others of the share.
///
/// # Errors
/// Nothing is made: the list is malformed, or the answer would be too long.
pub(super) fn copy_files(job: &FilesJob, body: &[u8], output_max: usize) -> OutputResult {
    let files = CopyFile::decode_list(body).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if PRIVATE_HEADER_LEN + files.len() * PUT_STATUS_LEN > output_max {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let new: Vec<NewFile<'_>> = files.iter().map(new_file).collect();
    let (mut rights, mut content) = (FolderRights::default(), Vec::new());
    let mut made = Vec::with_capacity(files.len());
    for (file, new) in files.iter().zip(&new) {
        let named = Named {
            path: &file.from,
            flags: GetFlags::default(),
            length: file.length,
            hash: &file.hash,
        };
        made.push(match job.compare(&named, &mut content) {
            Ok((_, true)) => job.make(new, &content, &mut rights),
            Ok((_, false)) => Made::nothing((PutStep::COMPARE, NtStatus::NOT_FOUND)),
            Err(status) => Made::nothing((PutStep::COMPARE, status)),
        });
    }
    Ok(complete(job, (made, &new), PrivateOperation::COPY_FILES))
}

fn new_file(file: &CopyFile) -> NewFile<'_> {
    NewFile {
        path: &file.path,
        flags: file.flags,
        basic: &file.basic,
    }
}

/// Tells whether files have the content that is named.
///
/// # Errors
/// Nothing is read: the list is malformed, or the answer would be too long.
pub(super) fn same_files(job: &FilesJob, body: &[u8], output_max: usize) -> OutputResult {
    let files = SameFile::decode_list(body).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if PRIVATE_HEADER_LEN + files.len() * GOT_FIXED_LEN > output_max {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let mut content = Vec::new();
    let body = output_buffer::encoded(|w| {
        for file in &files {
            let named = Named {
                path: &file.path,
                flags: file.flags,
                length: file.length,
                hash: &file.hash,
            };
            let entry = match job.compare(&named, &mut content) {
                Ok((info, is_same)) => GotFile {
                    status: NtStatus::SUCCESS,
                    info,
                    flags: match is_same {
                        true => GotFlags::SAME,
                        false => GotFlags::default(),
                    },
                    content: &[],
                },
                Err(status) => GotFile::failed(status),
            };
            entry.encode(w);
        }
    });
    Ok(fsctl::private_reply(PrivateOperation::SAME_FILES, &body))
}

impl FilesJob {
    /// Reads a file into `content`. Returns whether that is all of the file, and what was named.
    fn compare(
        &self,
        named: &Named<'_>,
        content: &mut Vec<u8>,
    ) -> Result<(FileNetworkOpenInformation, bool), NtStatus> {
        self.check_session()?;
        let get = GetFile {
            path: named.path.clone(),
            flags: named.flags,
            length: named.length,
        };
        let (info, flags) = self.read(&get, content)?;
        let is_whole = info.end_of_file == u64::from(named.length)
            && content.len() as u64 == info.end_of_file
            && !flags.contains(GotFlags::CHANGED);
        let is_same = is_whole && HashAlgorithm::Blake3.hash(content) == *named.hash;
        Ok((info, is_same))
    }
}
