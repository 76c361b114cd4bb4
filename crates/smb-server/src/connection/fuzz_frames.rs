//! Connections without a socket and changed responses, for fuzz targets.

use ropeway_smb_proto::server::ReplyFrame;
use ropeway_smb_wire::SessionId;

use super::{Driver, DriverError};
use crate::ops;
use crate::ops::deliver::deliver;

impl Driver {
    /// Executes a frame and everything that it causes. Returns the responses, or `None` if the
    /// connection ends.
    pub(crate) fn serve_frame(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        if frame.len() > self.protocol.frame_len_max() {
            return None;
        }
        let mut answers = Vec::new();
        let mut outcome = self.take_frame(&mut frame.to_vec());
        loop {
            answers.append(&mut self.output.take_all());
            outcome.ok()?;
            outcome = self.resume_once();
            let is_idle = self.jobs.is_empty() && self.remaining.is_empty() && self.output.is_empty();
            if self.stopped || outcome.is_err() {
                return None;
            }
            if is_idle {
                return Some(answers);
            }
        }
    }

    fn resume_once(&mut self) -> Result<(), DriverError> {
        if !self.jobs.is_empty() {
            std::thread::yield_now();
        }
        self.process_messages()?;
        match self.remaining.pop_front() {
            Some((rest, compound)) => self.run_compound(&rest, compound),
            None => Ok(()),
        }
    }

    /// Returns the number of requests that reached the code of their command.
    pub(crate) fn handled(&self) -> u64 {
        self.handled
    }

    /// Sends the frames that the mutator makes of a frame. Returns `false` if there is no mutator.
    pub(super) fn push_mutated(
        &mut self,
        frame: &ReplyFrame,
        sealed: Option<SessionId>,
    ) -> Result<bool, DriverError> {
        let Some(reply_mutator) = self.shared.reply_mutator.clone() else {
            return Ok(false);
        };
        let replies = frame
            .replies()
            .map(|(message, signer)| (message.to_vec(), signer));
        for mutated_frame in reply_mutator.mutate_replies(replies.collect()) {
            let mut reply = ReplyFrame::new(Vec::new(), sealed.is_some());
            let is_protected = mutated_frame.iter().all(|(message, signer)| {
                let is_login = message.get(12).is_none_or(|command| *command < 2);
                !is_login && (signer.is_some() || sealed.is_some())
            });
            let length = mutated_frame.iter().map(|(message, _)| message.len()).sum();
            for (message, signer) in mutated_frame {
                reply.push_message(&message, signer);
            }
            if reply.is_empty() {
                continue;
            }
            // Only frames after the login may be compressed.
            let both = self.protocol.negotiated().map(|both| both.compression());
            let algorithms = both.unwrap_or_default().algorithms;
            reply.compress_payload(algorithms, length, |_| is_protected && !algorithms.is_empty());
            let mut finished = self.protocol.finish(reply, sealed)?;
            reply_mutator.mutate_frame(&mut finished);
            self.output.push(finished);
        }
        Ok(true)
    }

    /// Loses the connection.
    pub(crate) fn lose(&mut self) {
        let id = self.protocol.id();
        self.shared.remove_mailbox(id);
        let sessions: Vec<_> = self.protocol.sessions().collect();
        ops::session::connection_lost(&self.shared, id, &sessions);
        deliver(&self.shared);
    }
}
