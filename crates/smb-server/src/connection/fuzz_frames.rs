//! A connection's messages without a socket, and lies in its answers: for fuzz targets.

use ropeway_smb_proto::server::ReplyFrame;
use ropeway_smb_wire::SessionId;

use super::{Driver, DriverError};
use crate::ops;
use crate::ops::deliver::deliver;

impl Driver {
    /// Executes a frame and all that it causes; its answers, or none if the connection ends.
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

    /// Requests that reached the code of their command so far.
    pub(crate) fn handled(&self) -> u64 {
        self.handled
    }

    /// Sends what the liar makes of a frame; `false` if there is no liar.
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
            let mut told = ReplyFrame::new(Vec::new(), sealed.is_some());
            let is_protected = mutated_frame.iter().all(|(message, signer)| {
                let is_login = message.get(12).is_none_or(|command| *command < 2);
                !is_login && (signer.is_some() || sealed.is_some())
            });
            let length = mutated_frame.iter().map(|(message, _)| message.len()).sum();
            for (message, signer) in mutated_frame {
                told.push_message(&message, signer);
            }
            if told.is_empty() {
                continue;
            }
            // As soon as both ends can, and not before.
            told.compress_payload(length, |_| is_protected);
            let mut finished = self.protocol.finish(told, sealed)?;
            reply_mutator.mutate_frame(&mut finished);
            self.output.push(finished);
        }
        Ok(true)
    }

    /// The connection is lost.
    pub(crate) fn lose(&mut self) {
        let id = self.protocol.id();
        self.shared.remove_mailbox(id);
        let sessions: Vec<_> = self.protocol.sessions().collect();
        ops::session::connection_lost(&self.shared, id, &sessions);
        deliver(&self.shared);
    }
}
