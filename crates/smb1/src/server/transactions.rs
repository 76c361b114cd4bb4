//! Transactions in several messages: requests that are not complete yet, and responses that do not
//! fit one message ([MS-CIFS] 3.3.5.2.5, 3.3.4.1.2).

use std::collections::HashMap;

use ropeway_smb_wire::NtStatus;

use super::connection::Admitted;
use crate::dos_error::status::INVALID_SMB;
use crate::header::{HEADER_LEN, Header};
use crate::message::Block;
use crate::strings::Str;
use crate::wire::assembly::Assembly;
use crate::wire::transaction::{Kind, Limits, Piece, Request, Totals};

/// Maximum number of incomplete transactions of a connection. A guess: clients send one at a time.
const PENDING_MAX: usize = 16;

/// Maximum length of a request's parameters and data in bytes: 16-bit lengths, and as much for
/// NT_TRANSACT.
const REQUEST_LEN_MAX: usize = 0xFFFF;

/// A complete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Which transaction.
    pub kind: Kind,
    /// Its primary request.
    pub admitted: Admitted,
    /// Name of the pipe (TRANSACTION).
    pub name: Str,
    /// `Function` (NT_TRANSACT).
    pub function: u16,
    /// Setup words.
    pub setup: Vec<u16>,
    /// What the client accepts.
    pub limits: Limits,
    /// Parameters.
    pub parameters: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
}

impl Transaction {
    /// Returns the header of its primary request.
    pub fn header(&self) -> Header {
        self.admitted.header
    }

    /// Returns whether its strings are UTF-16.
    pub fn is_unicode(&self) -> bool {
        self.admitted.header.is_unicode()
    }
}

/// The answer to a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Setup words.
    pub setup: Vec<u16>,
    /// Parameters.
    pub parameters: Vec<u8>,
    /// Data.
    pub data: Vec<u8>,
}

/// The incomplete transactions of a connection.
#[derive(Debug, Default)]
pub struct Transactions {
    pending: HashMap<(u16, u32, Kind), (Transaction, Assembly)>,
}

impl Transactions {
    /// Begins with a primary request. Returns the transaction if it is complete; otherwise the
    /// server sends an interim response, and the client the rest.
    ///
    /// # Errors
    /// STATUS_INVALID_SMB; [`NtStatus::INSUFFICIENT_RESOURCES`]: it is too long, or there are too
    /// many.
    pub fn begin(
        &mut self,
        kind: Kind,
        admitted: &Admitted,
        block: &Block<'_>,
    ) -> Result<Option<Transaction>, NtStatus> {
        let header = &admitted.header;
        let request = Request::decode(kind, block, header.is_unicode()).map_err(|_| INVALID_SMB)?;
        let Totals { parameters, data } = request.totals;
        if parameters > REQUEST_LEN_MAX || data > REQUEST_LEN_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let mut transaction = Transaction {
            kind,
            admitted: *admitted,
            name: request.name.clone(),
            function: request.function,
            setup: request.setup.clone(),
            limits: request.limits,
            parameters: Vec::new(),
            data: Vec::new(),
        };
        if request.is_whole() {
            transaction.parameters = request.parameters.to_vec();
            transaction.data = request.data.to_vec();
            return Ok(Some(transaction));
        }
        let mut assembly = Assembly::new(request.totals);
        let piece = Piece {
            totals: request.totals,
            parameters: (0, request.parameters),
            data: (0, request.data),
            setup: Vec::new(),
        };
        assembly.add(&piece).map_err(|_| INVALID_SMB)?;
        let key = (header.mid, header.pid, kind);
        if self.pending.len() >= PENDING_MAX || self.pending.contains_key(&key) {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        self.pending.insert(key, (transaction, assembly));
        Ok(None)
    }

    /// Adds a secondary request. Returns the transaction when it is complete. A piece that fits
    /// nothing ends its transaction, and has no response.
    ///
    /// # Errors
    /// STATUS_INVALID_SMB.
    pub fn add(
        &mut self,
        kind: Kind,
        header: &Header,
        block: &Block<'_>,
    ) -> Result<Option<Transaction>, NtStatus> {
        let key = (header.mid, header.pid, kind);
        let (transaction, mut assembly) = self.pending.remove(&key).ok_or(INVALID_SMB)?;
        let of_same =
            transaction.admitted.header.uid == header.uid && transaction.admitted.header.tid == header.tid;
        let piece = Piece::decode_secondary(kind, block).map_err(|_| INVALID_SMB)?;
        if !of_same {
            return Err(INVALID_SMB);
        }
        if !assembly.add(&piece).map_err(|_| INVALID_SMB)? {
            self.pending.insert(key, (transaction, assembly));
            return Ok(None);
        }
        let (parameters, data) = assembly.into_parts();
        Ok(Some(Transaction {
            parameters,
            data,
            ..transaction
        }))
    }

    /// Forgets the incomplete transactions of a session.
    pub fn forget(&mut self, uid: u16) {
        self.pending
            .retain(|_, (transaction, _)| transaction.admitted.header.uid != uid);
    }

    /// Returns the number of incomplete transactions.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

impl Answer {
    /// Returns the pieces of the answer, each for a message of at most `message_max` bytes.
    pub fn pieces(&self, message_max: usize) -> Vec<Piece<'_>> {
        // Header, words of both kinds, setup, count of bytes, and alignment twice.
        let room = message_max.saturating_sub(HEADER_LEN + 64 + 2 * self.setup.len());
        let room = room.clamp(512, 60_000) & !7;
        let totals = Totals {
            parameters: self.parameters.len(),
            data: self.data.len(),
        };
        let (mut at_parameters, mut at_data) = (0, 0);
        let mut pieces = Vec::new();
        loop {
            let parameters = &self.parameters[at_parameters..];
            let parameters = &parameters[..parameters.len().min(room)];
            let data = &self.data[at_data..];
            let data = &data[..data.len().min(room - parameters.len())];
            pieces.push(Piece {
                totals,
                setup: self.setup.clone(),
                parameters: (at_parameters, parameters),
                data: (at_data, data),
            });
            at_parameters += parameters.len();
            at_data += data.len();
            if at_parameters == totals.parameters && at_data == totals.data {
                return pieces;
            }
        }
    }
}

#[cfg(test)]
#[path = "transactions_tests.rs"]
mod tests;
