//! What a connection keeps for somebody who has not logged in is bounded, whatever is sent.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(dead_code, reason = "other tests use the rest")]

#[path = "server/line.rs"]
mod line;
#[path = "server/world.rs"]
mod world;

use std::alloc::System;

use line::Line;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use ropeway_smb_wire::negotiate_context::{Context, HashAlgorithm};
use ropeway_smb_wire::session_setup::SessionSetupRequest;
use ropeway_smb_wire::{Guid, SessionId};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use world::server_config;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// 16 logins with what NTLM remembers, the window of ids, lists of the NEGOTIATE.
const KEPT_MAX: isize = 64 << 10;

fn kept(region: &Region<'_, System>) -> isize {
    let change = region.change();
    change.bytes_allocated as isize - change.bytes_deallocated as isize
}

/// The longest NEGOTIATE that a frame holds.
fn negotiate(line: &mut Line) {
    let salt = vec![1; 60_000];
    let request = NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LARGE_MTU,
        client_guid: Guid([1; 16]),
        dialects: [Dialect::Smb311, Dialect::Smb210].repeat(10_000),
        contexts: vec![Context::PreauthIntegrity {
            hash_algorithms: vec![HashAlgorithm::SHA_512],
            salt: &salt,
        }],
    };
    let message = line.message(Command::Negotiate, |w| request.encode(w));
    line.send(&message);
}

#[test]
fn before_a_login() {
    let long = vec![0x55; 60_000];
    let ntlm = [
        b"NTLMSSP\0\x01\0\0\0".as_slice(),
        &0x6209_8235_u32.to_le_bytes(),
        &[0; 24],
        &long,
    ]
    .concat();
    let region = Region::new(ALLOCATOR);
    let mut line = Line::new(server_config());
    line.asks = 512;
    negotiate(&mut line);
    assert!(line.served.hung_up.is_none());
    for round in 0..2000 {
        let token = if round % 2 == 0 { &ntlm } else { &long };
        let request = SessionSetupRequest {
            flags: Default::default(),
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::default(),
            previous_session_id: SessionId(round),
            security_buffer: token,
        };
        line.ask(Command::SessionSetup, |w| request.encode(w)).unwrap();
        line.ask(Command::Echo, |w| w.u32(4)).unwrap();
        assert!(
            kept(&region) < KEPT_MAX,
            "{} bytes after {round} logins",
            kept(&region)
        );
    }
    assert!(line.sessions.is_empty());
    drop(line);
    assert!(kept(&region) < 4096, "{} bytes stay behind", kept(&region));
}
