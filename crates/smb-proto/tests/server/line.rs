//! Hand-made requests, in memory.

use std::sync::Arc;

use crate::world::Served;
use ropeway_smb_proto::server::{Config, Sessions};
use ropeway_smb_wire::header::{Command, CompoundMessages, HEADER_LEN, Header};
use ropeway_smb_wire::{MessageId, NtStatus, Reader, SessionId, Writer};

/// A connection and its replies.
pub(crate) struct Line {
    pub(crate) served: Served,
    pub(crate) sessions: Sessions,
    pub(crate) next_id: u64,
    pub(crate) session: SessionId,
    pub(crate) asks: u16,
    /// Credits held, according to the server.
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

    /// Sends a frame. Returns the headers and bodies of the replies.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Vec<(Header, Vec<u8>)> {
        let mut all = Vec::new();
        for answer in self.served.feed(frame, &mut self.sessions) {
            for message in CompoundMessages::new(&answer[4..]) {
                let message = message.unwrap();
                let header = Header::decode(&mut Reader::new(message, "header")).unwrap();
                self.credits += i64::from(header.credits);
                all.push((header, message.to_vec()));
            }
        }
        all
    }

    /// Sends a sealed frame. Returns the number of replies.
    pub(crate) fn send_sealed(&mut self, frame: &[u8]) -> usize {
        let answers = self.served.feed(frame, &mut self.sessions);
        assert!(self.served.hung_up.is_none());
        answers.len()
    }

    /// Sends a request. Returns the status of its reply, or `None` if the server closed the
    /// connection.
    pub(crate) fn ask(&mut self, command: Command, body: impl FnOnce(&mut Writer<'_>)) -> Option<NtStatus> {
        let message = self.message(command, body);
        let answers = self.send(&message);
        assert_eq!(answers.is_empty(), self.served.hung_up.is_some());
        answers.first().map(|(header, _)| header.status)
    }
}
