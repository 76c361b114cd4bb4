//! Logging in with a hostile peer: both roles of NTLM and SPNEGO on any tokens.

use ropeway_smb_proto::auth::ntlm::{
    Authenticate, Challenge, Credentials, NtlmClient, NtlmEntropy, NtlmServer, ServerNames, nt_hash,
};
use ropeway_smb_proto::auth::spnego::{SpnegoClient, SpnegoServer};
use ropeway_smb_proto::auth::{Result as AuthResult, Step as AuthStep};
use ropeway_smb_proto::secret::Password;
use ropeway_smb_wire::{FileTime, Text};

fn client() -> NtlmClient {
    let credentials = Credentials::with_password("", "anna", &Password::from("secret"));
    let entropy = NtlmEntropy {
        now: FileTime(7),
        client_challenge: [1; 8],
        session_key: [2; 16].into(),
    };
    NtlmClient::new(credentials, "here".into(), Some("cifs/peer".into()), entropy)
}

fn server() -> NtlmServer {
    let names = ServerNames {
        netbios_computer: "PEER".into(),
        netbios_domain: "PEER".into(),
        dns_computer: "peer".into(),
        dns_domain: "".into(),
    };
    let lookup = Box::new(|user: &Text, _: &Text| {
        (*user == "anna".into()).then(|| nt_hash(&Password::from("secret")))
    });
    NtlmServer::new(names, FileTime(7), [3; 8], true, lookup)
}

pub(crate) fn ntlm_client(bytes: &[u8]) {
    let mut client = client();
    client.negotiate();
    if let Ok((message, _)) = client.authenticate(bytes) {
        Authenticate::decode(&message).expect("what is written can be read");
    }
}

pub(crate) fn ntlm_server(bytes: &[u8]) {
    let mut honest = server();
    if honest.challenge(&client().negotiate()).is_ok() {
        let outcome = honest.authenticate(bytes);
        let (Ok(_) | Err(_)) = outcome;
    }
    if let Ok(challenge) = server().challenge(bytes) {
        Challenge::decode(&challenge).expect("what is written can be read");
    }
}

/// Tokens, each after a length of two bytes.
pub(crate) fn tokens(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut tokens = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (token, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        tokens.push(token);
        bytes = rest;
    }
    tokens
}

fn steps(tokens: &[&[u8]], mut step: impl FnMut(&[u8]) -> AuthResult<AuthStep>) {
    for token in tokens {
        // Once more after an end, too.
        let _ = step(token);
    }
}

pub(crate) fn spnego_client(bytes: &[u8]) {
    let tokens = tokens(bytes);
    let Some((hint, tokens)) = tokens.split_first() else {
        return;
    };
    let mut spnego = SpnegoClient::new(vec![Box::new(client())]);
    if spnego.start(hint).is_ok() {
        steps(tokens, |token| spnego.step(token));
    }
}

pub(crate) fn spnego_server(bytes: &[u8]) {
    let mut spnego = SpnegoServer::new(vec![Box::new(server())]);
    let _ = spnego.hint();
    steps(&tokens(bytes), |token| spnego.step(token));
}
