//! TREE_CONNECT_ANDX ([MS-CIFS] 3.3.5.45), the older TREE_CONNECT, and TREE_DISCONNECT.

use ropeway_smb_wire::bare::TreeDisconnectRequest;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::tree_connect::{
    ShareType, TreeConnectFlags, TreeConnectRequest as LineRequest, TreeConnectResponse as LineResponse,
};
use ropeway_smb_wire::{NtStatus, Text, TreeId};
use ropeway_smb1::dos_error::status::{BAD_UID, INVALID_SMB};
use ropeway_smb1::server::Config;
use ropeway_smb1::wire::close::encode_empty;
use ropeway_smb1::wire::tree_connect::{
    OldTreeConnectRequest, OldTreeConnectResponse, OptionalSupport, SERVICE_ANY, SERVICE_DISK, SERVICE_IPC,
    TreeConnectRequest, TreeConnectResponse, TreeFlags,
};
use ropeway_smb1::write_block;

use crate::conversation::{Call, Conversation, Outcome, done};
use crate::line::{Fault, Place};
use crate::tables::Tree;

impl Conversation {
    pub(crate) fn tree_connect(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = TreeConnectRequest::decode(call.block, call.is_unicode())?;
        if request.flags.contains(TreeFlags::DISCONNECT) && self.tree(&call.header).is_ok() {
            self.disconnect(call)?;
        }
        let path = self.state.text(&request.path);
        let (tree, access) = self.connect(call, &path, &request.service)?;
        let is_extended = request.flags.contains(TreeFlags::EXTENDED_RESPONSE);
        let (service, file_system) = match tree.is_ipc {
            true => (SERVICE_IPC, ""),
            false => (SERVICE_DISK, "NTFS"),
        };
        let response = TreeConnectResponse {
            optional_support: OptionalSupport::SEARCH_BITS,
            access: is_extended.then_some((access, 0)),
            service: service.to_vec(),
            file_system: self.state.string(&Text::from(file_system), call.is_unicode()),
            ..TreeConnectResponse::default()
        };
        done(move |w| response.encode(w))
    }

    pub(crate) fn old_tree_connect(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = OldTreeConnectRequest::decode(call.block)?;
        let path = self.state.text(&request.path);
        self.connect(call, &path, request.service.as_bytes())?;
        let response = OldTreeConnectResponse {
            max_buffer_size: Config::BUFFER_SIZE as u16,
            tid: call.header.tid,
        };
        done(move |w| write_block(w, |w| response.write(w), |_| {}))
    }

    /// Connects to a share and sets the message's tree. Returns it with the user's rights.
    fn connect(&mut self, call: &mut Call<'_>, path: &Text, service: &[u8]) -> Result<(Tree, u32), Fault> {
        let session = self.state.session(call.header.uid).ok_or(BAD_UID)?;
        let place = Place {
            session,
            tree: TreeId::default(),
        };
        let request = LineRequest {
            flags: TreeConnectFlags::default(),
            path: unc(path),
        };
        let reply = self
            .line
            .ask(Command::TreeConnect, place, |w| request.encode(w))?;
        let response = reply.body(LineResponse::decode)?;
        let place = Place {
            session,
            tree: reply.header.tree_id().ok_or(INVALID_SMB)?,
        };
        let is_ipc = response.share_type == ShareType::Pipe;
        let tree = Tree {
            uid: call.header.uid,
            place,
            is_ipc,
        };
        let wanted = if is_ipc { SERVICE_IPC } else { SERVICE_DISK };
        let fits = service.eq_ignore_ascii_case(SERVICE_ANY) || service.eq_ignore_ascii_case(wanted);
        let added = match fits {
            true => self
                .tables
                .trees
                .add(tree)
                .ok_or(NtStatus::INSUFFICIENT_RESOURCES),
            false => Err(NtStatus::BAD_DEVICE_TYPE),
        };
        match added {
            Ok(tid) => call.header.tid = tid,
            Err(status) => {
                self.line.ask_any(Command::TreeDisconnect, place, |w| {
                    TreeDisconnectRequest.encode(w)
                })?;
                return Err(status.into());
            }
        }
        Ok((tree, response.maximal_access.bits()))
    }

    pub(crate) fn tree_disconnect(&mut self, call: &mut Call<'_>) -> Outcome {
        self.disconnect(call)?;
        done(encode_empty)
    }

    fn disconnect(&mut self, call: &Call<'_>) -> Result<(), Fault> {
        let tree = self.tree(&call.header)?;
        self.tables.forget(tree.uid, Some(call.header.tid));
        self.line.ask(Command::TreeDisconnect, tree.place, |w| {
            TreeDisconnectRequest.encode(w);
        })?;
        Ok(())
    }
}

/// Returns the path as SMB 2 has it. Old clients name the share alone.
fn unc(path: &Text) -> Text {
    let path = path.to_string_lossy();
    match path.starts_with("\\\\") {
        true => Text::from(path.as_str()),
        false => Text::from(format!("\\\\server\\{}", path.trim_start_matches('\\')).as_str()),
    }
}
