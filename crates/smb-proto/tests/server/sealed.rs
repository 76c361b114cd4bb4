//! Several sessions on one connection, each with its own keys.

use crate::line::Line;
use crate::world::{login, server_config};
use ropeway_smb_proto::auth::Step;
use ropeway_smb_proto::crypto::{Cipher, KeyContext, Opener, Sealer, SessionKeys, TRANSFORM_HEADER_LEN};
use ropeway_smb_proto::server::{Config, Sealing};
use ropeway_smb_wire::header::{Command, FLAGS_OFFSET, HEADER_LEN, Header, HeaderFlags, SIGNATURE_OFFSET};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use ropeway_smb_wire::session_setup::{SessionSetupRequest, SessionSetupResponse};
use ropeway_smb_wire::{Guid, NtStatus, Reader, SessionId};

/// Dialect 3.0.2 with encryption: its keys depend on nothing but the session key.
fn line(config: Config) -> Line {
    let mut line = Line::new(config);
    line.asks = 64;
    let request = NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LARGE_MTU | Capabilities::ENCRYPTION,
        client_guid: Guid([1; 16]),
        dialects: vec![Dialect::Smb302],
        contexts: Vec::new(),
    };
    let status = line.ask(Command::Negotiate, |w| request.encode(w));
    assert_eq!(status, Some(NtStatus::SUCCESS));
    line
}

/// Returns a SESSION_SETUP for a new session.
fn setup(token: &[u8]) -> SessionSetupRequest<'_> {
    SessionSetupRequest {
        flags: Default::default(),
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::default(),
        previous_session_id: SessionId::default(),
        security_buffer: token,
    }
}

/// Logs in. Returns the session and the sealer of its requests, or the status.
fn log_in(line: &mut Line, user: &str) -> Result<(SessionId, Sealer), NtStatus> {
    let (session, keys) = log_in_keys(line, user)?;
    Ok((session, Sealer::new(Cipher::Aes128Ccm, &keys.client_to_server, 0)))
}

/// Logs in. Returns the session and its keys, or the status.
fn log_in_keys(line: &mut Line, user: &str) -> Result<(SessionId, SessionKeys), NtStatus> {
    let mut spnego = login(user, "secret");
    let mut token = spnego.start(&[]).unwrap();
    line.session = SessionId::default();
    loop {
        let request = setup(&token);
        let message = line.message(Command::SessionSetup, |w| request.encode(w));
        let (header, answer) = line.send(&message).swap_remove(0);
        if header.status.is_error() && header.status != NtStatus::MORE_PROCESSING_REQUIRED {
            return Err(header.status);
        }
        line.session = header.session_id;
        let body = &mut Reader::at(&answer, HEADER_LEN, "SESSION_SETUP");
        let response = SessionSetupResponse::decode(body).unwrap();
        match spnego.step(response.security_buffer).unwrap() {
            Step::Continue(next) => token = next,
            Step::Done(established) => {
                let cipher = Cipher::Aes128Ccm;
                let keys = SessionKeys::derive(&established.session_key, KeyContext::Smb30, Some(cipher));
                return Ok((header.session_id, keys));
            }
        }
    }
}

/// Returns an ECHO of `session`, sealed with `sealer`, whose transform header names `says`.
fn sealed(line: &mut Line, session: SessionId, sealer: &mut Sealer, says: SessionId) -> Vec<u8> {
    line.session = session;
    let mut message = line.message(Command::Echo, |w| w.u32(4));
    let head = sealer.ticket().unwrap().seal(says, &mut message);
    [&head[..], &message].concat()
}

/// [MS-SMB2] 3.3.5.2.1.1, 3.3.5.2.1.
#[test]
fn a_session_is_sealed_with_its_own_key() {
    // The session named by the message, by the key, and by the transform header.
    for (message, key, says) in [(0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (0, 0, 1), (1, 1, 0)] {
        let mut line = line(server_config());
        let mut both = [
            log_in(&mut line, "anna").unwrap(),
            log_in(&mut line, "bert").unwrap(),
        ];
        for (session, sealer) in &mut both {
            let frame = sealed(&mut line, *session, sealer, *session);
            line.served.feed(&frame, &mut line.sessions);
            assert!(line.served.hung_up.is_none(), "its own key is fine");
        }
        let (message, says) = (both[message].0, both[says].0);
        let frame = sealed(&mut line, message, &mut both[key].1, says);
        let answers = line.served.feed(&frame, &mut line.sessions);
        assert!(answers.is_empty() && line.served.hung_up.is_some());
    }
}

/// The keys of an anonymous session are no secret: who has them must not log in to another session, not
/// even by a SESSION_SETUP that follows another request in its compound.
#[test]
fn nobody_logs_in_to_a_session_with_the_keys_of_another() {
    /// NextCommand in the header ([MS-SMB2] 2.2.1).
    const NEXT_COMMAND: usize = 20;
    let mut line = line(Config {
        anonymous: true,
        ..server_config()
    });
    let (user, _) = log_in(&mut line, "anna").unwrap();
    let (nobody, mut sealer) = log_in(&mut line, "").unwrap();
    // Its own keys are fine.
    let own = sealed(&mut line, nobody, &mut sealer, nobody);
    assert_eq!(line.send_sealed(&own), 1);
    line.session = nobody;
    let mut frame = line.message(Command::Echo, |w| w.u32(4));
    frame.resize(frame.len().next_multiple_of(8), 0);
    let next = u32::try_from(frame.len()).unwrap();
    frame[NEXT_COMMAND..NEXT_COMMAND + 4].copy_from_slice(&next.to_le_bytes());
    let token = login("", "").start(&[]).unwrap();
    let request = setup(&token);
    line.session = user;
    let mut login = line.message(Command::SessionSetup, |w| request.encode(w));
    login[FLAGS_OFFSET] |= HeaderFlags::RELATED_OPERATIONS.bits() as u8;
    frame.extend(login);
    let head = sealer.ticket().unwrap().seal(nobody, &mut frame);
    line.served
        .feed(&[&head[..], &frame].concat(), &mut line.sessions);
    assert!(line.served.hung_up.is_some());
    assert!(
        line.sessions
            .get(user)
            .is_none_or(|session| !session.is_anonymous)
    );
}

/// [MS-SMB2] 3.3.4.1.1: a sealed message has no signature. Found by `cargo xtask attack server`:
/// the request's own signature was returned.
#[test]
fn a_sealed_reply_has_no_signature() {
    let mut line = line(server_config());
    let (session, keys) = log_in_keys(&mut line, "anna").unwrap();
    let cipher = Cipher::Aes128Ccm;
    let mut sealer = Sealer::new(cipher, &keys.client_to_server, 0);
    line.session = session;
    let mut message = line.message(Command::Logoff, |w| w.u32(0));
    message[FLAGS_OFFSET] |= HeaderFlags::SIGNED.bits() as u8;
    message[SIGNATURE_OFFSET..HEADER_LEN].fill(7);
    let head = sealer.ticket().unwrap().seal(session, &mut message);
    let frame = [&head[..], &message].concat();
    let mut answer = line
        .served
        .feed(&frame, &mut line.sessions)
        .swap_remove(0)
        .split_off(4);
    let (head, answer) = answer.split_first_chunk_mut::<TRANSFORM_HEADER_LEN>().unwrap();
    Opener::new(cipher, &keys.server_to_client)
        .open(head, answer)
        .unwrap();
    let header = Header::decode(&mut Reader::new(answer, "header")).unwrap();
    assert_eq!(header.status, NtStatus::INVALID_PARAMETER);
    assert!(!header.flags.contains(HeaderFlags::SIGNED));
    assert_eq!(header.signature, [0; 16]);
}

/// [MS-SMB2] 3.3.4.1.1. Found by `cargo xtask attack server`: the request's own signature was
/// returned.
#[test]
fn an_echo_without_a_session_is_answered_without_a_signature() {
    let mut line = line(server_config());
    let mut message = line.message(Command::Echo, |w| w.u32(4));
    message[FLAGS_OFFSET] |= HeaderFlags::SIGNED.bits() as u8;
    message[SIGNATURE_OFFSET..HEADER_LEN].fill(7);
    let (header, _) = line.send(&message).swap_remove(0);
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert!(!header.flags.contains(HeaderFlags::SIGNED));
    assert_eq!(header.signature, [0; 16]);
}

#[test]
fn a_plain_request_in_a_sealed_session_is_refused() {
    let mut line = line(Config {
        sealing: Sealing::Required,
        signing_required: false,
        ..server_config()
    });
    let (session, mut sealer) = log_in(&mut line, "anna").unwrap();
    line.session = session;
    assert_eq!(
        line.ask(Command::Echo, |w| w.u32(4)),
        Some(NtStatus::ACCESS_DENIED)
    );
    assert_eq!(
        line.ask(Command::Logoff, |w| w.u32(4)),
        Some(NtStatus::ACCESS_DENIED)
    );
    let frame = sealed(&mut line, session, &mut sealer, session);
    assert_eq!(line.served.feed(&frame, &mut line.sessions).len(), 1);
    assert_eq!(line.sessions.len(), 1);
}

#[test]
fn sessions_on_one_connection_are_bounded() {
    let mut line = line(server_config());
    for number in 0..10 {
        let outcome = log_in(&mut line, "anna").map(|_| ());
        let expected = if number < 4 {
            Ok(())
        } else {
            Err(NtStatus::INSUFFICIENT_RESOURCES)
        };
        assert_eq!(outcome, expected, "{number}");
    }
    assert_eq!(line.sessions.len(), 4);
}
