//! Many small files in one request of this project's client: PUT_FILES and GET_FILES (docs/adr/0039),
//! COPY_FILES and SAME_FILES (docs/adr/0040).
//!
//! Each file is opened, used and closed as its own requests would do it, by the same functions: the
//! rights, the hub, the watches and the audit see no difference. A worker does so, one file after
//! another, while the connection goes on.

use ropeway_smb_proto::compression::CompressionSampler;
use ropeway_smb_proto::server::Negotiated;
use ropeway_smb_wire::fsctl::private::{PrivateMessage, PrivateOperation, VERSION};
use ropeway_smb_wire::ioctl::IoctlRequest;
use ropeway_smb_wire::{FileId, NtStatus};

use super::get_files::get_files;
use super::put_files::put_files;
use super::same_files::{copy_files, same_files};
use super::together::FilesJob;
use crate::files::output_buffer::OutputResult;
use crate::ops::context::{Context, Execution, Outcome};
use crate::ops::deliver::deliver;
use crate::ops::ioctl::{PRIVATE_INPUT_MAX, answer_private};
use crate::state::workers::JobClass;

/// Executes a private control that names no open.
pub(in crate::ops) fn files_together(
    context: &mut Context<'_>,
    request: &IoctlRequest<'_>,
    output_max: usize,
) -> Outcome {
    let share = context.share().ok_or(NtStatus::NETWORK_NAME_DELETED)?;
    // It has no private controls.
    if share.far {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let token = context.token()?;
    if token.is_anonymous && !share.anonymous {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if request.input.len() > PRIVATE_INPUT_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let message = PrivateMessage::decode(request.input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let (execute, class) = match message.operation {
        _ if message.version != VERSION => return Err(NtStatus::NOT_SUPPORTED),
        PrivateOperation::PUT_FILES => (put_files as Execute, JobClass::MakesFiles),
        PrivateOperation::GET_FILES => (get_files as Execute, JobClass::ReadsFiles),
        PrivateOperation::COPY_FILES => (copy_files as Execute, JobClass::Hashes),
        PrivateOperation::SAME_FILES => (same_files as Execute, JobClass::Hashes),
        _ => return Err(NtStatus::NOT_SUPPORTED),
    };
    // A client of this project that has compression wants it wherever it helps.
    let compression = context.protocol.negotiated().map(Negotiated::reply_compression);
    let job = FilesJob::new(context, share, token);
    let body = message.body.to_vec();
    context.class = class;
    Ok(Execution::Offload(
        None,
        Box::new(move |mut frame, header, signer| {
            let done = execute(&job, &body, output_max);
            let length = done.as_ref().map_or(0, |(_, output)| output.len());
            answer_private(&mut frame, (header, signer), FileId::RELATED, done);
            if let Some(algorithms) = compression.filter(|_| length > 0) {
                let worth = |data: &[u8]| CompressionSampler::default().is_worthwhile(algorithms, data);
                frame.compress_payload(algorithms, length, worth);
            }
            deliver(&job.shared);
            frame
        }),
    ))
}

/// Executes one operation on the files of a request's body.
type Execute = fn(&FilesJob, &[u8], usize) -> OutputResult;
