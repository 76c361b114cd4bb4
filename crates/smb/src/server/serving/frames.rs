//! A connection's messages without a socket: for fuzz targets.

use super::{Ended, Serving};
use crate::server::ops;

impl Serving {
    /// Executes a frame and all that it causes; its answers, or none if the connection ends.
    pub(in crate::server) fn serve_frame(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        if frame.len() > self.protocol.frame_len_max() {
            return None;
        }
        let mut answers = Vec::new();
        let mut outcome = self.take_frame(&mut frame.to_vec());
        loop {
            answers.append(&mut self.output.take());
            outcome.ok()?;
            outcome = self.go_on_once();
            let is_idle = self.jobs.is_empty() && self.rests.is_empty() && self.output.is_empty();
            if self.stopped || outcome.is_err() {
                return None;
            }
            if is_idle {
                return Some(answers);
            }
        }
    }

    fn go_on_once(&mut self) -> Result<(), Ended> {
        if !self.jobs.is_empty() {
            std::thread::yield_now();
        }
        self.read_mail()?;
        match self.rests.pop_front() {
            Some((rest, compound)) => self.run_chain(&rest, compound),
            None => Ok(()),
        }
    }

    /// The connection is lost.
    pub(in crate::server) fn lose(&mut self) {
        let id = self.protocol.id();
        self.shared.remove_mailbox(id);
        let sessions: Vec<_> = self.protocol.sessions().collect();
        ops::session::connection_lost(&self.shared, id, &sessions);
        self.shared.deliver();
    }
}
