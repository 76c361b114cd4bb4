//! Gives the client's socket to a translator, and serves the line to it instead.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use ropeway_smb_proto::server::Connection;

use super::{Driver, DriverError};
use crate::foreign::{ForeignClient, ForeignInfo, Translation};

/// Stack of a translator's thread in bytes. Only touched pages use memory.
const STACK_LEN: usize = 512 << 10;

/// A client that goes to a translator.
pub(super) struct Handover {
    translation: Translation,
    first: Vec<u8>,
}

impl Driver {
    /// Ends the service of a client that speaks another protocol, if that is served.
    pub(super) fn look_for_translator(&self, first: &[u8]) -> Result<(), DriverError> {
        let is_first = self.protocol.is_new() && self.mailbox.foreign().is_none();
        let foreign = self.shared.foreign.as_ref().filter(|_| is_first);
        match foreign.and_then(|foreign| foreign.accept(first, &self.shared.config)) {
            None => Ok(()),
            Some(translation) => Err(DriverError::Foreign(Box::new(Handover {
                translation,
                first: first.to_vec(),
            }))),
        }
    }

    /// Serves the client, or the line of the client's translator.
    pub(super) fn serve_any(&mut self) -> Result<(), DriverError> {
        match self.serve() {
            Err(DriverError::Foreign(handover)) => {
                self.hand_over(*handover)?;
                self.serve()
            }
            outcome => outcome,
        }
    }

    fn hand_over(&mut self, handover: Handover) -> Result<(), DriverError> {
        let received = self.input.take_rest();
        let received = received.ok_or(DriverError::Limit("much data before the first response"))?;
        let (near, line) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let socket = std::mem::replace(&mut self.socket, near.into());
        let Translation {
            name,
            signing,
            config,
            translator,
        } = handover.translation;
        self.protocol = Connection::new(Arc::new(config), self.protocol.id());
        self.mailbox.set_foreign(name, signing);
        let client = ForeignClient {
            socket: TcpStream::from(socket),
            peer: self.peer,
            first: handover.first,
            received,
            line,
            send_timeout: self.shared.send_timeout,
            info: ForeignInfo {
                shared: Arc::clone(&self.shared),
            },
        };
        let thread = std::thread::Builder::new().name(format!("translate-{}", self.protocol.id().0));
        let span = tracing::Span::current();
        // When the thread ends, even by a panic, both ends of the client are closed.
        thread
            .stack_size(STACK_LEN)
            .spawn(move || span.in_scope(|| translator.run(client)))?;
        Ok(())
    }
}
