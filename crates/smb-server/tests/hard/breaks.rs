//! Which connection of a client receives a lease break.

use std::sync::Arc;

use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_wire::create::{CreateResponse, OplockLevel};
use ropeway_smb_wire::create_context::{Lease, LeaseState, RequestContext};
use ropeway_smb_wire::header::{Command, HEADER_LEN, Header};
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, BreakNotification, LeaseBreak};
use ropeway_smb_wire::{Guid, LeaseKey, NtStatus, Reader};

use crate::raw::{Create, Raw};
use crate::samples;
use crate::serve::Serve;

const KEY: LeaseKey = LeaseKey([1; 16]);

impl Raw {
    /// Receives a lease break and returns the new state.
    fn receive_lease_break(&mut self) -> LeaseState {
        let message = self.receive().unwrap();
        let header = Header::decode(&mut Reader::new(&message, "header")).unwrap();
        assert_eq!(header.command, Command::OplockBreak);
        match BreakNotification::decode(&mut Reader::at(&message, HEADER_LEN, "break")).unwrap() {
            BreakNotification::Lease(lease) if lease.lease_key == KEY => lease.new_lease_state,
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file with a lease.
    fn leases(&mut self, name: &str) {
        let lease = Lease {
            lease_key: KEY,
            lease_state: LeaseState::from_bits_retain(7),
            lease_flags: Default::default(),
        };
        self.create(&Create {
            oplock: OplockLevel::Lease,
            contexts: vec![RequestContext::Lease(lease)],
            ..Create::of(name)
        })
        .unwrap();
    }

    /// Checks that no message precedes the response to an ECHO.
    fn expect_nothing_queued(&mut self) {
        let echo = self.message(Command::Echo, |w| w.u32(4));
        self.send(&echo);
        let message = self.receive().unwrap();
        let header = Header::decode(&mut Reader::new(&message, "header")).unwrap();
        assert_eq!(header.command, Command::Echo);
    }

    fn gives_up(&mut self, keeps: LeaseState) {
        let acknowledgment = BreakAcknowledgment::Lease(LeaseBreak {
            lease_key: KEY,
            lease_state: keeps,
        });
        let reply = self.call(Command::OplockBreak, |w| acknowledgment.encode(w));
        assert_eq!(reply.status(), NtStatus::SUCCESS);
    }
}

/// Logs in a user as the client `guid`; all passwords are `secret`.
fn client(serve: &Serve, user: &str, guid: u8) -> Raw {
    let mut raw = Raw::connect(serve.address);
    raw.guid = Guid([guid; 16]);
    raw.negotiate();
    assert_eq!(raw.log_in(user, "secret"), NtStatus::SUCCESS);
    assert_eq!(raw.tree("data"), NtStatus::SUCCESS);
    raw
}

/// smb2.lease.v2_complex1: the oldest connection of the client receives the break, but only if its
/// user is the same, because any client may claim any identifier.
#[test]
fn a_clients_oldest_connection_receives_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::with(folder.path(), |options| {
        let hash = *nt_hash(&Password::from("secret")).expose();
        options.config.accounts = Arc::new(move |_, _| Some(NtHash::from_bytes(hash)));
    });
    let mut stranger = client(&serve, "bob", 1);
    let mut oldest = client(&serve, "alice", 1);
    let mut holder = client(&serve, "alice", 1);
    let mut other = client(&serve, "alice", 2);
    holder.leases("f");
    let wish = Create::of("f");
    let request = wish.request();
    let open = other.message(Command::Create, |w| request.encode(w));
    other.send(&open);
    let keeps = oldest.receive_lease_break();
    stranger.expect_nothing_queued();
    holder.expect_nothing_queued();
    holder.gives_up(keeps);
    let opened = other.reply().unwrap();
    assert_eq!(opened.status(), NtStatus::SUCCESS);
    let file = CreateResponse::decode(&mut opened.body()).unwrap().file_id;
    // If that connection is gone, the next one receives it.
    drop(oldest);
    serve.settles_at((3, 2));
    let write = samples::write(file, 0, b"text");
    let written = other.call(Command::Write, |w| w.bytes(&write));
    assert_eq!(written.status(), NtStatus::SUCCESS);
    assert_eq!(holder.receive_lease_break(), LeaseState::from_bits_retain(0));
    stranger.expect_nothing_queued();
}
