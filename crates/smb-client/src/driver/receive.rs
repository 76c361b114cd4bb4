//! What arrives on a connection.

use std::io::{ErrorKind, IoSliceMut};

use super::{Driver, READS_MAX};
use crate::error::LostReason;

impl Driver {
    pub(super) fn read(&mut self) {
        for _ in 0..READS_MAX {
            let target = self.connection.receive();
            let mut slices = [IoSliceMut::new(target.first), IoSliceMut::new(target.second)];
            let filled = match slices[0].is_empty() {
                true => &mut slices[1..],
                false => &mut slices[..],
            };
            match self.stream.try_read_vectored(filled) {
                Ok(0) => return self.close_with(LostReason::Closed),
                Ok(count) => {
                    let now = self.now();
                    // A connection that is not logged in may belong to a server that only starts.
                    if self.ready.is_none() {
                        self.status.session.reach.heard();
                    }
                    if let Err(fault) = self.connection.received(now, count) {
                        tracing::warn!(%fault, "the server broke the protocol");
                        self.ended = Some(LostReason::Misbehaved(fault));
                        return;
                    }
                    // Replies free blocks and window space: deliver them before reading on.
                    while self.start_jobs() {}
                    self.events();
                }
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => {
                    let missing = self.connection.missing();
                    return self.low_water.prepare(&self.stream, missing);
                }
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) => return self.fail(&fault),
            }
        }
    }
}
