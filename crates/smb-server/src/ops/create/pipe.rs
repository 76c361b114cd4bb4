//! CREATE in IPC$: named pipes.

use parking_lot::Mutex;
use std::sync::Arc;

use ropeway_smb_proto::server::hub::{FileKey, OpenOutcome, OpenRequest};
use ropeway_smb_wire::create::{
    AccessMask, CreateAction, CreateRequest, CreateResponse, CreateResponseFlags, OplockLevel, ShareAccess,
};
use ropeway_smb_wire::{FileAttributes, FileTime, NtStatus};

use crate::ops::context::{Context, Outcome};
use crate::ops::tree;
use crate::pipes::PipeServer;
use crate::state::open::{Handle, PipeOpen};

/// The hub's volume number for pipes. No file system has it, since device numbers have 32 bits.
const PIPES: u64 = u64::MAX;

pub(super) fn open(context: &mut Context<'_>, request: &CreateRequest<'_>) -> Outcome {
    let token = context.token()?;
    let server = PipeServer::open(&request.name, &context.shared.pipe_host(&token))?;
    let hub_request = OpenRequest {
        file: FileKey {
            share_volume: PIPES,
            index: context.waiter.connection.0.rotate_left(32) ^ context.waiter.request,
            stream: None,
        },
        path: request.name.clone(),
        share_id: tree::IPC,
        directory: false,
        existed: true,
        size: 0,
        overwrites: false,
        access: AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_WRITE,
        share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        delete_on_close: false,
        oplock: OplockLevel::None,
        lease: None,
        durable: None,
        app_instance: None,
        replay: false,
        channel_sequence: context.channel_sequence(),
        connection: context.waiter.connection,
        session: context.session(),
        tree: context.request.tree,
        client: context.client(),
        user: Arc::from(token.name.as_str()),
        waiter: context.waiter,
    };
    let outcome = context.shared.hub().open(context.shared.uptime(), &hub_request);
    let granted = match outcome {
        OpenOutcome::Granted(granted) => granted,
        OpenOutcome::Refused(status) => return Err(status),
        OpenOutcome::Wait => return Err(NtStatus::PIPE_NOT_AVAILABLE),
    };
    let id = granted.open.get();
    let pipe = PipeOpen {
        id,
        session: context.session().0,
        tree: context.request.tree.0,
        server: Mutex::new(server),
    };
    context.shared.add_handle(id, Handle::Pipe(Arc::new(pipe)));
    let response = CreateResponse {
        oplock_level: OplockLevel::None,
        flags: CreateResponseFlags::default(),
        create_action: CreateAction::OPENED,
        creation_time: FileTime(0),
        last_access_time: FileTime(0),
        last_write_time: FileTime(0),
        change_time: FileTime(0),
        allocation_size: 4096,
        end_of_file: 0,
        file_attributes: FileAttributes::NORMAL,
        file_id: granted.open.file_id(),
        contexts: Vec::new(),
    };
    context.compound.file = Some(response.file_id);
    context.reply(|w| response.encode(w))
}
