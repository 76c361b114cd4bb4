//! PUT_FILES: small files that a client of this project makes with one request (docs/adr/0039).
//!
//! Each file is made as CREATE, WRITE, FLUSH, SET_INFO and CLOSE would make it.

use std::sync::Arc;

use ropeway_smb_proto::server::hub::BreakTrigger;
use ropeway_smb_proto::server::rules::create::CreateIntent;
use ropeway_smb_wire::change_notify::CompletionFilter;
use ropeway_smb_wire::create::{AccessMask, CreateDisposition};
use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateOperation};
use ropeway_smb_wire::fsctl::private_put::{PUT_STATUS_LEN, PutFile, PutFlags, PutStatus, PutStep};
use ropeway_smb_wire::info::{FileBasicInformation, FileInfoClass, Information};
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::store::Node;

use super::find::{self, FolderRights};
use super::together::{FilesJob, create_request};
use crate::files::fsctl;
use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;
use crate::files::set_file::SetFile;
use crate::files::status;
use crate::ops::deliver::deliver;
use crate::ops::{info, notify, range_locks};
use crate::state::Counters;
use crate::state::open::Open;

/// The step that failed, and why.
pub(super) type Failed = (PutStep, NtStatus);

/// A file that is being made.
pub(super) struct Made {
    /// `None` if it could not be made.
    open: Option<Arc<Open>>,
    failed: Option<Failed>,
}

impl Made {
    /// A file of which nothing was made.
    pub(super) fn nothing(failed: Failed) -> Self {
        Self {
            open: None,
            failed: Some(failed),
        }
    }
}

/// How a file is made.
pub(super) struct NewFile<'a> {
    pub(super) path: &'a Text,
    pub(super) flags: PutFlags,
    pub(super) basic: &'a FileBasicInformation,
}

impl<'a> From<&'a PutFile<'_>> for NewFile<'a> {
    fn from(file: &'a PutFile<'_>) -> Self {
        Self {
            path: &file.path,
            flags: file.flags,
            basic: &file.basic,
        }
    }
}

/// Makes all files, then makes their content durable, then sets their times: a device is faster
/// with many flushes at once, and the time of a file marks it as complete.
///
/// # Errors
/// Nothing is made: the list is malformed, or the answer would be too long.
pub(super) fn put_files(job: &FilesJob, body: &[u8], output_max: usize) -> OutputResult {
    let files = PutFile::decode_list(body).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if PRIVATE_HEADER_LEN + files.len() * PUT_STATUS_LEN > output_max {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let mut rights = FolderRights::default();
    let new: Vec<NewFile<'_>> = files.iter().map(NewFile::from).collect();
    let made = new.iter().zip(&files);
    let made: Vec<Made> = made
        .map(|(file, put)| job.make(file, put.content, &mut rights))
        .collect();
    Ok(complete(job, (made, &new), PrivateOperation::PUT_FILES))
}

/// Makes the content of files durable where that is wanted, then sets their times, and returns the reply.
pub(super) fn complete(
    job: &FilesJob,
    (mut made, files): (Vec<Made>, &[NewFile<'_>]),
    operation: PrivateOperation,
) -> (NtStatus, Vec<u8>) {
    let flushed = |(one, file): (&Made, &NewFile<'_>)| {
        let open = one.open.clone().filter(|_| one.failed.is_none());
        open.filter(|_| file.flags.contains(PutFlags::FLUSH))
    };
    // Who watches need not wait for the device.
    deliver(&job.shared);
    for step in [|node: &dyn Node| node.begin_sync(), |node: &dyn Node| node.sync()] {
        for (one, file) in made.iter_mut().zip(files) {
            if let Some(open) = flushed((one, file)) {
                one.failed = job.flush(&open, step).err();
            }
        }
    }
    let statuses = made.into_iter().zip(files);
    let statuses: Vec<PutStatus> = statuses.map(|(one, file)| job.finish(one, file)).collect();
    let body = output_buffer::encoded(|w| statuses.iter().for_each(|status| status.encode(w)));
    fsctl::private_reply(operation, &body)
}

impl FilesJob {
    /// Does a step of a flush.
    fn flush(&self, open: &Open, step: impl Fn(&dyn Node) -> ropeway_vfs::Result<()>) -> Result<(), Failed> {
        let done = self
            .check_session()
            .and_then(|()| step(&*open.node).map_err(|error| status::of(&error)));
        done.map_err(|status| (PutStep::FLUSH, status))
    }

    /// Makes a file with its content.
    pub(super) fn make(&self, file: &NewFile<'_>, content: &[u8], rights: &mut FolderRights) -> Made {
        match self.check_session().and_then(|()| self.create(file, rights)) {
            Ok(open) => Made {
                failed: self.write(&open, content).err(),
                open: Some(open),
            },
            Err(status) => Made::nothing((PutStep::CREATE, status)),
        }
    }

    /// Sets times and attributes, and closes the file.
    fn finish(&self, made: Made, file: &NewFile<'_>) -> PutStatus {
        let mut failed = made.failed;
        if let Some(open) = made.open {
            if failed.is_none() {
                let set = self
                    .check_session()
                    .and_then(|()| set_attributes(&open, file.basic));
                failed = set.err().map(|status| (PutStep::ATTRIBUTES, status));
            }
            // A change of the content and one of the attributes are one to those who watch.
            let filter =
                CompletionFilter::SIZE | CompletionFilter::LAST_WRITE | info::basic_filter(file.basic);
            notify::changed(&self.shared, &open, filter);
            let closed = self.close(&open);
            failed = failed.or(closed.err().map(|status| (PutStep::CLOSE, status)));
        }
        let (step, status) = failed.unwrap_or((PutStep::CLOSE, NtStatus::SUCCESS));
        PutStatus { status, step }
    }

    /// Makes the file and opens it.
    fn create(&self, file: &NewFile<'_>, rights: &mut FolderRights) -> Result<Arc<Open>, NtStatus> {
        let access = AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE;
        let request = create_request(file.path.clone(), CreateDisposition::Create, access);
        let intent = CreateIntent::new(&request)?;
        let (open, _) = self.open(&request, |place, target| {
            find::make(place, &self.token, &request, &intent, target, rights)
        })?;
        notify::entry_changed(&self.shared, &open, true);
        Ok(open)
    }

    fn write(&self, open: &Open, content: &[u8]) -> Result<(), Failed> {
        if content.is_empty() {
            return Ok(());
        }
        let (shared, length) = (&self.shared, content.len() as u64);
        let failed = |status| (PutStep::WRITE, status);
        range_locks::check_locks(shared, open, 0, length, true).map_err(failed)?;
        // Somebody may have opened the file while it was empty.
        let id = Some(open.hub_id());
        let now = shared.uptime();
        let mut hub = shared.hub();
        hub.break_caching(now, id, &open.file, BreakTrigger::Write, self.waiter);
        drop(hub);
        let written = open.node.write_at(content, 0);
        written.map_err(|error| failed(status::of(&error)))?;
        Counters::add(&shared.counters.bytes_written, length);
        self.figures.written(length);
        Ok(())
    }
}

fn set_attributes(open: &Open, basic: &FileBasicInformation) -> Result<(), NtStatus> {
    if *basic == FileBasicInformation::default() {
        return Ok(());
    }
    let set = SetFile::decode(open, FileInfoClass::Basic as u8, &basic.to_bytes());
    set.and_then(|set| set.apply(open))
}
