//! QUERY_INFO and SET_INFO ([MS-SMB2] 3.3.5.20, 3.3.5.21).

use std::sync::Arc;

use ropeway_smb_proto::server::hub::BreakTrigger;
use ropeway_smb_wire::change_notify::CompletionFilter;
use ropeway_smb_wire::error::{ErrorContext, ErrorId, ErrorResponse};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::query_info::{InfoType, QueryInfoRequest, QueryInfoResponse, SecurityInformation};
use ropeway_smb_wire::set_info::{SetInfoRequest, SetInfoResponse};
use ropeway_smb_wire::{NtStatus, info::FileBasicInformation};

use super::context::{Context, Outcome};
use super::{notify, rename};
use crate::files::query_file::{FileView, query_file};
use crate::files::query_fs::query_fs;
use crate::files::security;
use crate::files::set_file::{SetFile, set_fs};
use crate::state::open::{Handle, Open};

pub(super) fn query(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(QueryInfoRequest::decode)?;
    let length = request.output_buffer_length as usize;
    let handle = context.handle(request.file_id)?;
    context
        .protocol
        .check_size(&context.request.header, length.max(request.input.len()))?;
    let open = match handle {
        Handle::File(open) => open,
        Handle::Pipe(pipe) => {
            let server = pipe.server.lock();
            let (status, output) = match request.info_type {
                InfoType::File => server.query(request.info_class, length)?,
                _ => return Err(NtStatus::NOT_SUPPORTED),
            };
            return context.reply_with(status, |w| QueryInfoResponse { output: &output }.encode(w));
        }
    };
    let (status, output) = match request.info_type {
        InfoType::File => {
            let view = FileView {
                delete_pending: context.shared.hub().delete_pending(&open.file),
                names: open.share.name_view(),
                normalized_names: context.protocol.dialect() >= Dialect::Smb311,
                input: request.input,
                flags: request.flags,
                index: request.additional_information,
            };
            query_file(&open, request.info_class, length, &view)?
        }
        InfoType::FileSystem => query_fs(&open.share, request.info_class, length)?,
        InfoType::Security => {
            let parts = SecurityInformation::from_bits_retain(request.additional_information);
            match security::query(&open, parts, length) {
                Ok(output) => (NtStatus::SUCCESS, output),
                Err(security::QueryFault::Status(status)) => return Err(status),
                Err(security::QueryFault::TooSmall(needed)) => return too_small(context, needed),
            }
        }
        InfoType::Quota => return Err(NtStatus::NOT_SUPPORTED),
    };
    context.reply_with(status, |w| QueryInfoResponse { output: &output }.encode(w))
}

/// Replies with the required number of bytes ([MS-SMB2] 2.2.2.2).
fn too_small(context: &mut Context<'_>, needed: u32) -> Outcome {
    let data = needed.to_le_bytes();
    let error = if context.protocol.dialect() >= Dialect::Smb311 {
        ErrorResponse::Contexts(vec![ErrorContext {
            error_id: ErrorId::DEFAULT,
            data: &data,
        }])
    } else {
        ErrorResponse::Plain(&data)
    };
    context.reply_with(NtStatus::BUFFER_TOO_SMALL, |w| error.encode(w))
}

pub(super) fn set(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(SetInfoRequest::decode)?;
    context
        .protocol
        .check_size(&context.request.header, request.buffer.len())?;
    let open = match context.handle(request.file_id)? {
        Handle::File(open) => open,
        Handle::Pipe(_) => return Err(NtStatus::NOT_SUPPORTED),
    };
    match request.info_type {
        InfoType::File => return set_file(context, &open, &request),
        InfoType::FileSystem => set_fs(request.info_class)?,
        InfoType::Security => {
            let parts = SecurityInformation::from_bits_retain(request.additional_information);
            let token = context.token()?;
            let outcome = security::set(&open, &token, parts, request.buffer);
            let status = outcome.err().unwrap_or(NtStatus::SUCCESS);
            context.record_of("security", &open, status);
            outcome?;
            notify::changed(context.shared, &open, CompletionFilter::SECURITY);
        }
        InfoType::Quota => return Err(NtStatus::NOT_SUPPORTED),
    }
    context.reply(|w| SetInfoResponse.encode(w))
}

fn set_file(context: &mut Context<'_>, open: &Arc<Open>, request: &SetInfoRequest<'_>) -> Outcome {
    let set = SetFile::decode(open, request.info_class, request.buffer)?;
    let (action, outcome) = match &set {
        SetFile::Rename { flags, name } => (Some("rename"), rename::rename(context, open, *flags, name)),
        SetFile::Link { replace, name } => (Some("link"), rename::link(context, open, *replace, name)),
        SetFile::Disposition(flags) => (None, rename::set_disposition(context, open, *flags)),
        other => (None, apply(context, open, other).map(|()| None)),
    };
    if let (Some(action), Err(status)) = (action, &outcome) {
        // Successful operations are recorded with the new name where they happen.
        context.record_of(action, open, *status);
    }
    if let Some(waits) = outcome? {
        return Ok(waits);
    }
    context.reply(|w| SetInfoResponse.encode(w))
}

fn apply(context: &Context<'_>, open: &Arc<Open>, set: &SetFile) -> Result<(), NtStatus> {
    if let SetFile::EndOfFile(_) | SetFile::Allocation(_) = set {
        let now = context.shared.uptime();
        let id = Some(open.hub_id());
        context
            .shared
            .hub()
            .break_caching(now, id, &open.file, BreakTrigger::Write, context.waiter);
    }
    set.apply(open)?;
    let filter = match set {
        SetFile::Basic(basic) => basic_filter(basic),
        SetFile::EndOfFile(_) | SetFile::Allocation(_) => {
            CompletionFilter::SIZE | CompletionFilter::LAST_WRITE
        }
        SetFile::FullEa(_) => CompletionFilter::EA,
        _ => CompletionFilter::default(),
    };
    match set {
        // No watch asks for the change time, but a listing shows it ([MS-FSA] 2.1.5.15.2;
        // smb2.dirlease.setctime).
        SetFile::Basic(_) => notify::changed(context.shared, open, filter),
        _ if !filter.is_empty() => notify::changed(context.shared, open, filter),
        _ => {}
    }
    Ok(())
}

/// Returns the aspects under which a change of times and attributes is notified.
pub(super) fn basic_filter(basic: &FileBasicInformation) -> CompletionFilter {
    let mut filter = CompletionFilter::default();
    for (is_set, aspect) in [
        (!basic.attributes.is_empty(), CompletionFilter::ATTRIBUTES),
        (basic.creation_time.0 != 0, CompletionFilter::CREATION),
        (basic.last_access_time.0 != 0, CompletionFilter::LAST_ACCESS),
        (basic.last_write_time.0 != 0, CompletionFilter::LAST_WRITE),
    ] {
        if is_set {
            filter |= aspect;
        }
    }
    filter
}
