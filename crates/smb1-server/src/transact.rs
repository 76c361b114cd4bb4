//! TRANSACTION, TRANSACTION2 and NT_TRANSACT: requests in several messages, and which function
//! executes them.

use ropeway_smb_wire::{NtStatus, Reader};
use ropeway_smb1::dos_error::status::INVALID_SMB;
use ropeway_smb1::server::{Admitted, Answer, Transaction};
use ropeway_smb1::wire::close::encode_empty;
use ropeway_smb1::wire::nt_transact::{Function, IoctlSetup, SecurityParameters};
use ropeway_smb1::wire::trans2::{CreateDirectory, Subcommand};
use ropeway_smb1::wire::transaction::Kind;
use ropeway_smb1::{Block, Header};

use crate::calls::{IO_MAX, Query};
use crate::conversation::Conversation;
use crate::line::Fault;

impl Conversation {
    /// Takes a primary request.
    pub(crate) fn primary(&mut self, kind: Kind, admitted: &Admitted, message: &[u8]) -> Result<(), Fault> {
        let block = Block::first(message).map_err(|_| Fault::End("the client sent a malformed message"))?;
        // Nothing is kept for clients without a login.
        let begun = match self.tree(&admitted.header) {
            Ok(_) => self
                .transactions
                .begin(kind, admitted, &block)
                .map_err(Fault::from),
            Err(fault) => Err(fault),
        };
        match begun {
            Ok(Some(transaction)) => self.transact(&transaction),
            // The client now sends the rest.
            Ok(None) => {
                let sequence = admitted.sequence;
                self.respond(&admitted.header, sequence, NtStatus::SUCCESS, encode_empty)
            }
            Err(Fault::Status(status)) => {
                self.respond(&admitted.header, admitted.sequence, status, encode_empty)
            }
            Err(end) => Err(end),
        }
    }

    /// Takes a secondary request.
    pub(crate) fn secondary(&mut self, kind: Kind, header: &Header, message: &[u8]) -> Result<(), Fault> {
        let fault = Fault::End("the client sent a piece of no transaction");
        let block = Block::first(message).map_err(|_| Fault::End("the client sent a malformed message"))?;
        match self.transactions.add(kind, header, &block).map_err(|_| fault)? {
            Some(transaction) => self.transact(&transaction),
            None => Ok(()),
        }
    }

    /// Executes a transaction and sends its responses.
    fn transact(&mut self, request: &Transaction) -> Result<(), Fault> {
        let (header, sequence) = (request.admitted.header, request.admitted.sequence);
        let outcome = match request.kind {
            Kind::Two => self
                .transaction2(request)
                .map(|answer| (answer, NtStatus::SUCCESS)),
            Kind::Nt => self.nt_transact(request),
            Kind::Named => self.named(request),
        };
        let (mut answer, status) = match outcome {
            Ok(outcome) => outcome,
            Err(Fault::Status(status)) => return self.respond(&header, sequence, status, encode_empty),
            Err(end) => return Err(end),
        };
        let limits = request.limits;
        let fits = |length: usize, max: u32| length.min(usize::try_from(max).unwrap_or(usize::MAX));
        let (parameters, data) = (answer.parameters.len(), answer.data.len());
        answer.parameters.truncate(fits(parameters, limits.parameters));
        answer.data.truncate(fits(data, limits.data));
        let is_cut = answer.parameters.len() < parameters || answer.data.len() < data;
        let status = if is_cut { NtStatus::BUFFER_OVERFLOW } else { status };
        let message_max = usize::from(self.state.client().buffer_size);
        for piece in answer.pieces(message_max) {
            self.respond(&header, sequence, status, |w| {
                piece.encode_response(request.kind, w);
            })?;
        }
        Ok(())
    }

    fn transaction2(&mut self, request: &Transaction) -> Result<Answer, Fault> {
        match Subcommand(*request.setup.first().ok_or(INVALID_SMB)?) {
            Subcommand::FIND_FIRST2 => self.find_first(request),
            Subcommand::FIND_NEXT2 => self.find_next(request),
            Subcommand::QUERY_FS_INFORMATION => self.query_volume(request),
            Subcommand::QUERY_PATH_INFORMATION => self.query_path(request),
            Subcommand::QUERY_FILE_INFORMATION => self.query_file(request),
            Subcommand::SET_PATH_INFORMATION => self.set_path(request),
            Subcommand::SET_FILE_INFORMATION => self.set_file(request),
            Subcommand::CREATE_DIRECTORY => {
                let place = self.disk(&request.header())?.place;
                let asked = CreateDirectory::decode(&request.parameters, request.is_unicode())?;
                let path = self.path(&asked.path);
                self.make_directory(place, path)?;
                Ok(with_parameters(vec![0; 2]))
            }
            // No share is in DFS.
            Subcommand::GET_DFS_REFERRAL => Err(NtStatus::NOT_FOUND.into()),
            _ => Err(NtStatus::NOT_SUPPORTED.into()),
        }
    }

    fn nt_transact(&mut self, request: &Transaction) -> Result<(Answer, NtStatus), Fault> {
        match Function(request.function) {
            Function::QUERY_SECURITY => self.query_security(request),
            Function::SET_SECURITY => {
                let mut reader = Reader::new(&request.parameters, "NT_TRANSACT");
                let asked = SecurityParameters::read(&mut reader)?;
                let file = self.file(&request.header(), asked.fid)?;
                let query = Query::Security(asked.parts);
                self.line.set(file.place, file.id, query, &request.data)?;
                Ok((Answer::default(), NtStatus::SUCCESS))
            }
            Function::IOCTL => {
                IoctlSetup::decode(&request.setup).ok_or(INVALID_SMB)?;
                Err(NtStatus::NOT_SUPPORTED.into())
            }
            _ => Err(NtStatus::NOT_SUPPORTED.into()),
        }
    }

    fn query_security(&mut self, request: &Transaction) -> Result<(Answer, NtStatus), Fault> {
        let mut reader = Reader::new(&request.parameters, "NT_TRANSACT");
        let asked = SecurityParameters::read(&mut reader)?;
        let file = self.file(&request.header(), asked.fid)?;
        let query = Query::Security(asked.parts);
        let data = self.line.query(file.place, file.id, query, IO_MAX)?;
        let max = usize::try_from(request.limits.data).unwrap_or(usize::MAX);
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let mut answer = with_parameters(length.to_le_bytes().to_vec());
        if data.len() > max {
            // The client asks again with enough room ([MS-CIFS] 2.2.7.6.2).
            return Ok((answer, NtStatus::BUFFER_TOO_SMALL));
        }
        answer.data = data;
        Ok((answer, NtStatus::SUCCESS))
    }
}

/// Returns an answer of parameters alone.
pub(crate) fn with_parameters(parameters: Vec<u8>) -> Answer {
    Answer {
        parameters,
        ..Answer::default()
    }
}
