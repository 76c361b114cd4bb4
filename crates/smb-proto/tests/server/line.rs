//! Requests made by hand, in memory.

use std::sync::Arc;

use crate::world::Served;
use ropeway_smb_proto::server::{Config, Sessions};
use ropeway_smb_wire::header::{Chain, Command, HEADER_LEN, Header};
use ropeway_smb_wire::{MessageId, NtStatus, Reader, SessionId, Writer};

/// A connection and what it would answer.
pub(crate) struct Line {
    pub(crate) served: Served,
    pub(crate) sessions: Sessions,
    pub(crate) next_id: u64,
    pub(crate) session: SessionId,
    pub(crate) asks: u16,
    /// Credits held, as the server says.
    pub(crate) credits: i64,
}

impl Line {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            served: Served::new(&Arc::new(config), 1),
            sessions: Sessions::new(),
            next_id: 0,
            session: SessionId::default(),
            asks: 1,
            credits: 1,
        }
    }

    pub(crate) fn message(&mut self, command: Command, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN];
        body(&mut Writer::within(&mut out, 0));
        let mut header = Header::request(command, MessageId(self.next_id));
        header.credits = self.asks;
        header.session_id = self.session;
        self.next_id += 1;
        self.credits -= 1;
        let mut head = Vec::new();
        header.encode(&mut Writer::new(&mut head));
        out[..HEADER_LEN].copy_from_slice(&head);
        out
    }

    /// The headers of the answers.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Vec<(Header, Vec<u8>)> {
        let mut all = Vec::new();
        for answer in self.served.feed(frame, &mut self.sessions) {
            for message in Chain::new(&answer[4..]) {
                let message = message.unwrap();
                let header = Header::decode(&mut Reader::new(message, "header")).unwrap();
                self.credits += i64::from(header.credits);
                all.push((header, message.to_vec()));
            }
        }
        all
    }

    /// The status of the one answer; none if the server hung up.
    pub(crate) fn ask(&mut self, command: Command, body: impl FnOnce(&mut Writer<'_>)) -> Option<NtStatus> {
        let message = self.message(command, body);
        let answers = self.send(&message);
        assert_eq!(answers.is_empty(), self.served.hung_up.is_some());
        answers.first().map(|(header, _)| header.status)
    }
}
