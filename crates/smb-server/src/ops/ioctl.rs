//! IOCTL ([MS-SMB2] 3.3.5.15), and READ and WRITE of pipes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_smb_proto::server::ReplyFrame;
use ropeway_smb_proto::server::hub::{BreakOutcome, BreakTrigger, OpenId};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::validate_negotiate::{ValidateNegotiateRequest, ValidateNegotiateResponse};
use ropeway_smb_wire::header::Header;
use ropeway_smb_wire::ioctl::{IoctlFlags, IoctlRequest, IoctlResponse};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::read::{ReadRequest, ReadResponse};
use ropeway_smb_wire::write::WriteResponse;
use ropeway_smb_wire::{FileId, NtStatus, SessionId};

use super::context::{Context, Execution, Outcome};
use super::{create, notify, persistent, range_locks};
use crate::files::fsctl;
use crate::files::fsctl::{CopyView, Range};
use crate::files::output_buffer::OutputResult;
use crate::interfaces;
use crate::state::SharedState;
use crate::state::open::{Handle, Open, PipeOpen};
use crate::state::workers::JobClass;

/// Most bytes of a private control's input: those of a list of small files. The other operations take 24.
pub(super) const PRIVATE_INPUT_MAX: usize = 64 << 10;

pub(super) fn ioctl(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(IoctlRequest::decode)?;
    if !request.flags.contains(IoctlFlags::IS_FSCTL) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let output_max = request.max_output_response as usize;
    let largest = request
        .input
        .len()
        .max(output_max)
        .max(request.max_input_response as usize);
    context.protocol.check_size(&context.request.header, largest)?;
    // [MS-SMB2] 3.3.5.15.
    if needs_no_file(request.ctl_code) && request.file_id != FileId::RELATED {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    match request.ctl_code {
        CtlCode::VALIDATE_NEGOTIATE_INFO => return validate(context, &request),
        CtlCode::QUERY_NETWORK_INTERFACE_INFO => {
            let interfaces = interfaces::advertised(&context.shared.addresses, context.local);
            let output = fsctl::network_interfaces(&interfaces, output_max)?;
            return answer(context, &request, request.file_id, NtStatus::SUCCESS, &output);
        }
        CtlCode::DFS_GET_REFERRALS | CtlCode::DFS_GET_REFERRALS_EX => return Err(NtStatus::NOT_FOUND),
        CtlCode::PIPE_WAIT => return Err(NtStatus::NOT_SUPPORTED),
        CtlCode::PRIVATE if request.file_id == FileId::RELATED && context.may_offload => {
            return create::files_together(context, &request, output_max);
        }
        _ => {}
    }
    let (status, output) = match context.handle(request.file_id)? {
        Handle::Pipe(pipe) => {
            if request.ctl_code != CtlCode::PIPE_TRANSCEIVE {
                return Err(NtStatus::INVALID_DEVICE_REQUEST);
            }
            let done = pipe.server.lock().transceive(request.input, output_max);
            // A part of the response may be left, or the pipe may have broken.
            context.shared.hub().pipe_has_data(OpenId::new(pipe.id));
            done?
        }
        Handle::File(open) if request.ctl_code == CtlCode::PRIVATE => {
            return private(context, &open, &request, output_max);
        }
        Handle::File(open) => {
            if request.ctl_code == CtlCode::SET_REPARSE_POINT {
                let now = context.shared.uptime();
                let id = Some(open.hub_id());
                let mut hub = context.shared.hub();
                let outcome = hub.break_caching(now, id, &open.file, BreakTrigger::Delete, context.waiter);
                if outcome == BreakOutcome::Wait {
                    return Ok(Execution::Pending);
                }
            }
            let outcome = control(context, &open, &request, output_max);
            if request.ctl_code == CtlCode::SET_REPARSE_POINT {
                let status = outcome
                    .as_ref()
                    .map_or_else(|status| *status, |(status, _)| *status);
                // The node has no name any more.
                if status == NtStatus::SUCCESS {
                    persistent::give_up(context.shared, &[open.hub_id()]);
                }
                context.record_of("reparse", &open, status);
            }
            outcome?
        }
    };
    let file_id = context.compound.file(request.file_id);
    answer(context, &request, file_id, status, &output)
}

/// Whether a control code concerns the connection or the share instead of a file.
fn needs_no_file(code: CtlCode) -> bool {
    matches!(
        code,
        CtlCode::VALIDATE_NEGOTIATE_INFO
            | CtlCode::QUERY_NETWORK_INTERFACE_INFO
            | CtlCode::DFS_GET_REFERRALS
            | CtlCode::DFS_GET_REFERRALS_EX
            | CtlCode::PIPE_WAIT
    )
}

/// Executes a private control: by a worker, since it reads much.
fn private(
    context: &mut Context<'_>,
    open: &Arc<Open>,
    request: &IoctlRequest<'_>,
    output_max: usize,
) -> Outcome {
    if request.input.len() > PRIVATE_INPUT_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let file_id = context.compound.file(request.file_id);
    let (shared, open) = (Arc::clone(context.shared), Arc::clone(open));
    let execute = move |input: &[u8]| {
        let locked = |open: &Open, range: Range| {
            range_locks::check_locks(&shared, open, range.offset, range.length, range.write).is_err()
        };
        fsctl::private(&open, input, output_max, &locked)
    };
    if !context.may_offload {
        // In a compound it would keep the connection's thread from everything else. A digest of a folder
        // takes no longer than a listing, which this thread makes as well.
        if !fsctl::is_folder_digest(request.input) {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        let (status, output) = execute(request.input)?;
        return answer(context, request, file_id, status, &output);
    }
    context.class = JobClass::Hashes;
    let input = request.input.to_vec();
    Ok(Execution::Offload(
        None,
        Box::new(move |mut frame, header, signer| {
            answer_private(&mut frame, (header, signer), file_id, execute(&input));
            frame
        }),
    ))
}

/// Puts a worker's answer to a private control into the frame.
pub(super) fn answer_private(
    frame: &mut ReplyFrame,
    (header, signer): (Header, Option<SessionId>),
    file_id: FileId,
    outcome: OutputResult,
) {
    match outcome {
        Ok((status, output)) => {
            let response = IoctlResponse {
                ctl_code: CtlCode::PRIVATE,
                file_id,
                input: &[],
                output: &output,
            };
            frame.push(&Header { status, ..header }, signer, |w| response.encode(w));
        }
        Err(status) => frame.push_error(&Header { status, ..header }, signer),
    }
}

fn answer(
    context: &mut Context<'_>,
    request: &IoctlRequest<'_>,
    file_id: FileId,
    status: NtStatus,
    output: &[u8],
) -> Outcome {
    let response = IoctlResponse {
        ctl_code: request.ctl_code,
        file_id,
        input: &[],
        output,
    };
    context.reply_with(status, |w| response.encode(w))
}

/// Executes an FSCTL of a file.
fn control(
    context: &mut Context<'_>,
    open: &Arc<Open>,
    request: &IoctlRequest<'_>,
    output_max: usize,
) -> OutputResult {
    let shared = Arc::clone(context.shared);
    let session = context.session().0;
    let tree = context.request.tree.0;
    let locked = |open: &Open, range: Range| {
        range_locks::check_locks(&shared, open, range.offset, range.length, range.write).is_err()
    };
    let own = |id: u64| match shared.handle(id) {
        Some(handle) if handle.belongs_to(session, tree) => handle.file().cloned(),
        _ => None,
    };
    let of_session = |id: u64| {
        let open = shared.handle(id)?.file().cloned()?;
        (open.session.load(Ordering::Relaxed) == session).then_some(open)
    };
    let changes = matches!(
        request.ctl_code,
        CtlCode::SRV_COPYCHUNK
            | CtlCode::SRV_COPYCHUNK_WRITE
            | CtlCode::SET_ZERO_DATA
            | CtlCode::DUPLICATE_EXTENTS_TO_FILE
    );
    if changes {
        let now = shared.uptime();
        let id = Some(open.hub_id());
        shared
            .hub()
            .break_caching(now, id, &open.file, BreakTrigger::Write, context.waiter);
    }
    let apple = shared
        .sessions()
        .get(context.session())
        .is_some_and(|one| one.apple_copies);
    let outcome = match request.ctl_code {
        CtlCode::SRV_COPYCHUNK | CtlCode::SRV_COPYCHUNK_WRITE => {
            let view = CopyView {
                // The source may be in another tree of the session ([MS-SMB2] 3.3.5.15.6).
                source: &|key| of_session(fsctl::resume_id(key)),
                locked: &locked,
                apple,
            };
            fsctl::copy_chunks(open, request.ctl_code, request.input, output_max, &view)
        }
        CtlCode::DUPLICATE_EXTENTS_TO_FILE => {
            let source = |id: FileId| OpenId::from_file_id(id).and_then(|id| own(id.get()));
            fsctl::duplicate_extents(open, request.input, source, &locked)
                .map(|()| (NtStatus::SUCCESS, Vec::new()))
        }
        CtlCode::SET_REPARSE_POINT => set_reparse(&shared, open, request, &locked),
        code => fsctl::control(open, code, request.input, output_max, &locked),
    };
    if changes && outcome.is_ok() {
        notify::content_changed(&shared, open);
    }
    outcome
}

/// Replaces a node with a symbolic link. Other opens would write to an unreachable node, so there
/// must be none. The pending deletion prevents new ones until the link exists.
fn set_reparse(
    shared: &SharedState,
    open: &Open,
    request: &IoctlRequest<'_>,
    locked: fsctl::Locked<'_>,
) -> OutputResult {
    {
        let mut hub = shared.hub();
        if hub.delete_pending(&open.file) {
            return Err(NtStatus::DELETE_PENDING);
        }
        if hub.opens_of(&open.file).nth(1).is_some() {
            return Err(NtStatus::SHARING_VIOLATION);
        }
        hub.set_delete_pending(open.hub_id(), true)?;
    }
    let outcome = fsctl::control(open, request.ctl_code, request.input, 0, locked);
    let kept = shared.hub().set_delete_pending(open.hub_id(), false);
    kept.and(outcome)
}

/// Validates the negotiation ([MS-SMB2] 3.3.5.15.12).
fn validate(context: &mut Context<'_>, request: &IoctlRequest<'_>) -> Outcome {
    let Some(both) = context.protocol.negotiated() else {
        return Err(NtStatus::INVALID_PARAMETER);
    };
    if both.dialect == Dialect::Smb311 {
        // Its logins hash the whole negotiation.
        return Ok(Execution::Disconnect("a VALIDATE_NEGOTIATE_INFO in 3.1.1"));
    }
    let client = ValidateNegotiateRequest {
        capabilities: both.client_capabilities,
        guid: both.client_guid,
        security_mode: both.client_security_mode,
        dialects: both
            .client_dialects
            .iter()
            .map(|dialect| dialect.code())
            .collect(),
    };
    let server = ValidateNegotiateResponse {
        capabilities: both.capabilities,
        guid: context.shared.config.server_guid,
        security_mode: both.security_mode,
        dialect: both.dialect.code(),
    };
    let output_max = request.max_output_response as usize;
    match fsctl::validate_negotiate(request.input, output_max, &client, &server) {
        Some(output) => answer(context, request, request.file_id, NtStatus::SUCCESS, &output),
        // The negotiation was tampered with: the connection ends without a reply.
        None => Ok(Execution::Disconnect("a NEGOTIATE that was tampered with")),
    }
}

/// Reads from a pipe. The read of an empty pipe waits ([MS-SMB2] 3.3.5.12, note 368;
/// smb2.credits.ipc_max_data_zero).
pub(super) fn read_pipe(context: &mut Context<'_>, pipe: &PipeOpen, request: &ReadRequest) -> Outcome {
    let read = {
        let mut server = pipe.server.lock();
        let read = server.read(request.length as usize);
        if matches!(read, Err(NtStatus::PIPE_EMPTY)) {
            // No data comes in between, since the pipe is locked.
            let mut hub = context.shared.hub();
            hub.wait_for_pipe(OpenId::new(pipe.id), context.waiter)?;
        }
        read
    };
    let (status, data) = match read {
        Err(NtStatus::PIPE_EMPTY) => return Ok(Execution::Pending),
        read => read?,
    };
    context.reply_with(status, |w| ReadResponse::default().encode(w, &data))
}

pub(super) fn write_pipe(context: &mut Context<'_>, pipe: &PipeOpen, data: &[u8]) -> Outcome {
    let written = pipe.server.lock().write(data);
    // Also if the pipe has broken.
    context.shared.hub().pipe_has_data(OpenId::new(pipe.id));
    written?;
    let count = data.len() as u32;
    context.reply(|w| WriteResponse { count }.encode(w))
}
