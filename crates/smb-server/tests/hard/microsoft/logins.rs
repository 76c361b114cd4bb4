//! SessionMgmt and Encryption: sessions that come back, and what must be sealed.

use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{NtStatus, SessionId};

use crate::raw::{Create, Raw};
use crate::serve::Serve;

/// Negotiates a dialect.
fn connected(serve: &Serve, dialect: Dialect) -> Raw {
    let mut raw = Raw::connect(serve.address);
    raw.dialect = dialect;
    raw.negotiate();
    raw
}

/// SessionMgmt_ReconnectWithDifferentDialect: a client does not come back to its session in another dialect,
/// as somebody on the way could make it do ([MS-SMB2] 3.3.5.5.3). The session stays.
#[test]
fn a_session_is_not_replaced_in_another_dialect() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut first = Raw::ready(serve.address);
    let file = first.create(&Create::of("file")).unwrap();
    let mut second = connected(&serve, Dialect::Smb302);
    second.previous = first.session;
    assert_eq!(second.log_in("alice", "secret"), NtStatus::USER_SESSION_DELETED);
    assert_eq!(first.echo(), NtStatus::SUCCESS);
    let other = first.create(&Create::of("other")).unwrap();
    assert_eq!(first.close(other), NtStatus::SUCCESS);
    // It may begin anew, also on this connection.
    second.previous = SessionId::default();
    second.session = SessionId::default();
    assert_eq!(second.log_in("alice", "secret"), NtStatus::SUCCESS);
    // In its dialect it comes back.
    let mut third = connected(&serve, Dialect::Smb311);
    third.previous = first.session;
    assert_eq!(third.log_in("alice", "secret"), NtStatus::SUCCESS);
    assert_eq!(first.close(file), NtStatus::USER_SESSION_DELETED);
}
