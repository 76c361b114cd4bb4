//! Requests that arrive in one frame ([MS-SMB2] 3.3.5.2.7).

use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags, SIGNATURE_LEN, SIGNATURE_OFFSET};
use ropeway_smb_wire::{FileId, NtStatus, Reader, SessionId, TreeId};

use super::sessions::Scope;

/// What the requests of a compound inherit from one another ([MS-SMB2] 3.3.5.2.7.2).
#[derive(Clone, Debug)]
pub struct CompoundState {
    /// The session whose key opened the frame.
    pub sealed: Option<SessionId>,
    /// The file that the previous request named or opened.
    pub file: Option<FileId>,
    /// The status of the previous request.
    pub status: NtStatus,
    pub(super) scope: Scope,
    pub(super) count: usize,
    pub(super) is_lost: bool,
    /// The signature that was moved out of the frame's only message.
    pub(super) signature: Option<[u8; SIGNATURE_LEN]>,
}

impl CompoundState {
    /// Creates the state before the first request.
    pub fn new(sealed: Option<SessionId>) -> Self {
        Self {
            sealed,
            file: None,
            status: NtStatus::SUCCESS,
            scope: Scope::default(),
            count: 0,
            is_lost: false,
            signature: None,
        }
    }

    /// Moves the signature out of `message` if that is a WRITE, and leaves zeros, so that it is
    /// verified by the fast path ([`Signer::verify_detached`](crate::crypto::Signer::verify_detached)). `message` is the only
    /// one of its frame and is admitted next. Other messages are unchanged: some are kept as they
    /// were received.
    pub fn take_signature(&mut self, message: &mut [u8]) {
        if message.len() <= HEADER_LEN {
            return;
        }
        let header = Header::decode(&mut Reader::new(message, "SMB2 header"));
        if header.is_ok_and(|header| header.command == Command::Write && header.next_command == 0) {
            let field = &mut message[SIGNATURE_OFFSET..][..SIGNATURE_LEN];
            let mut signature = [0; SIGNATURE_LEN];
            signature.copy_from_slice(field);
            field.fill(0);
            self.signature = Some(signature);
        }
    }

    /// Returns the file of a request: that of the request before it, whatever a related request
    /// names. An unrelated request inherits no file.
    pub fn file(&self, named: FileId) -> FileId {
        self.file.unwrap_or(named)
    }

    /// Sets the tree that a TREE_CONNECT created, for the rest of the compound.
    pub fn set_tree(&mut self, tree: TreeId) {
        self.scope.tree = tree;
    }

    /// Returns the session and the tree that the next message addresses. A malformed message
    /// addresses none; [`Connection::admit`](super::Connection::admit) rejects it.
    pub fn scope(&self, message: &[u8]) -> Scope {
        let header = Header::decode(&mut Reader::new(message, "SMB2 header"));
        header.map_or(Scope::default(), |header| self.scope_of(&header))
    }

    pub(super) fn scope_of(&self, header: &Header) -> Scope {
        let is_related = header.flags.contains(HeaderFlags::RELATED_OPERATIONS);
        match is_related && self.count > 0 {
            true => self.scope,
            false => Scope::of(header),
        }
    }

    /// Returns the number of requests so far.
    pub fn count(&self) -> usize {
        self.count
    }
}
