use super::token::{MechTypes, NegState, NegTokenInit, NegTokenResp};
use super::*;
use crate::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy, NtlmServer, ServerNames, nt_hash};
use crate::auth::{AuthError, Established, Identity, Mechanism, Oid, Result, Step};
use crate::secret::{Password, SessionKey};
use crate::testing::{anatomy, hex};
use proptest::prelude::*;

fn ntlm_client(credentials: Credentials) -> Box<dyn Mechanism> {
    let entropy = NtlmEntropy {
        now: ropeway_smb_wire::FileTime(5),
        client_challenge: [1; 8],
        session_key: [2; 16].into(),
    };
    Box::new(NtlmClient::new(credentials, "HERE".into(), None, entropy))
}

fn user() -> Credentials {
    Credentials::with_password("", "anna", &Password::from("secret"))
}

fn ntlm_server() -> Box<dyn Mechanism> {
    let names = ServerNames {
        netbios_computer: "THERE".into(),
        netbios_domain: "THERE".into(),
        dns_computer: "there".into(),
        dns_domain: "".into(),
    };
    let lookup = Box::new(|user: &ropeway_smb_wire::Text, _: &ropeway_smb_wire::Text| {
        (*user == "anna".into()).then(|| nt_hash(&Password::from("secret")))
    });
    Box::new(NtlmServer::new(
        names,
        ropeway_smb_wire::FileTime(7),
        [3; 8],
        true,
        lookup,
    ))
}

/// A conversation of `messages` messages, each of which is its number.
struct Toy {
    oids: &'static [Oid],
    messages: u8,
}

impl Toy {
    fn boxed(oids: &'static [Oid], messages: u8) -> Box<dyn Mechanism> {
        Box::new(Self { oids, messages })
    }
}

impl Mechanism for Toy {
    fn oids(&self) -> &[Oid] {
        self.oids
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Step> {
        let received = match token {
            None => 0,
            Some([number]) if *number <= self.messages => *number,
            Some(_) => return Err(AuthError::Mechanism("toy")),
        };
        let token = (received < self.messages).then(|| vec![received + 1]);
        if received + 1 < self.messages {
            return Ok(Step::Continue(vec![received + 1]));
        }
        Ok(Step::Done(Established {
            token,
            session_key: SessionKey::new(vec![9; 32]),
            identity: Some(Identity::Anonymous),
        }))
    }

    fn has_mic(&self) -> bool {
        true
    }

    fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        Ok(message.to_vec())
    }

    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<()> {
        if message == mic {
            Ok(())
        } else {
            Err(AuthError::BadMic)
        }
    }
}

/// Both ends to the end: the session keys and how many messages the client sent.
fn converse(
    client: &mut SpnegoClient,
    server: &mut SpnegoServer,
    hint: &[u8],
) -> Result<(SessionKey, SessionKey, usize)> {
    let mut token = client.start(hint)?;
    for sent in 1..10 {
        let (reply, theirs) = match server.step(&token)? {
            Step::Continue(reply) => (reply, None),
            Step::Done(established) => (established.token.unwrap(), Some(established.session_key)),
        };
        match (client.step(&reply)?, theirs) {
            (Step::Continue(next), None) => token = next,
            (Step::Done(established), Some(theirs)) => return Ok((established.session_key, theirs, sent)),
            _ => panic!("one end is done and the other is not"),
        }
    }
    panic!("no end");
}

#[test]
fn ntlm_takes_two_round_trips() {
    for credentials in [user(), Credentials::anonymous()] {
        let mut client = SpnegoClient::new(vec![ntlm_client(credentials)]);
        let mut server = SpnegoServer::new(vec![ntlm_server()]);
        let hint = server.hint();
        let (ours, theirs, sent) = converse(&mut client, &mut server, &hint).unwrap();
        assert_eq!(ours.full(), theirs.full());
        assert_eq!(sent, 2);
    }
}

#[test]
fn the_published_tokens_are_ours() {
    let mut client = SpnegoClient::new(vec![ntlm_client(user())]);
    let reply = hex(anatomy::NEGOTIATE_RESPONSE);
    let first = client.start(&reply[0x80..0x1C0]).unwrap();
    let published = &hex(anatomy::SETUP_REQUEST_1)[0x58..];
    // The flags and the version are not those of Windows; the wrapping is.
    assert_eq!(first.len(), published.len());
    assert_eq!(first[..46], published[..46]);
    let challenge = &hex(anatomy::SETUP_RESPONSE_1)[0x48..];
    let Step::Continue(second) = client.step(challenge).unwrap() else {
        panic!()
    };
    let published = &hex(anatomy::SETUP_REQUEST_2)[0x58..];
    assert_eq!(second[8..13], published[8..13], "state");
    assert_eq!(
        second[second.len() - 20..second.len() - 12],
        published[published.len() - 20..published.len() - 12]
    );
}

#[test]
fn wrong_passwords_are_refused() {
    let wrong = Credentials::with_password("", "anna", &Password::from("guess"));
    let mut client = SpnegoClient::new(vec![ntlm_client(wrong)]);
    let mut server = SpnegoServer::new(vec![ntlm_server()]);
    let error = converse(&mut client, &mut server, &[]).unwrap_err();
    assert!(matches!(error, AuthError::Refused(_)));
    assert!(server.step(&[]).is_err(), "it is over");
}

#[test]
fn the_hint_selects() {
    let kerberos: &[Oid] = &[Oid::KERBEROS, Oid::MS_KERBEROS];
    let both = || vec![Toy::boxed(kerberos, 2), ntlm_client(user())];
    let mut server = SpnegoServer::new(vec![ntlm_server()]);
    let hint = server.hint();
    let (_, _, sent) = converse(&mut SpnegoClient::new(both()), &mut server, &hint).unwrap();
    assert_eq!(sent, 2, "Kerberos was never tried");

    let mut server = SpnegoServer::new(vec![Toy::boxed(&[Oid::MS_KERBEROS], 2)]);
    let hint = server.hint();
    let (key, _, _) = converse(&mut SpnegoClient::new(both()), &mut server, &hint).unwrap();
    assert_eq!(key.full(), [9; 32]);

    let hint = SpnegoServer::new(vec![Toy::boxed(&[Oid::SPNEGO], 1)]).hint();
    let error = SpnegoClient::new(both()).start(&hint).unwrap_err();
    assert_eq!(error, AuthError::NoCommonMechanism);
}

#[test]
fn without_a_hint_the_server_chooses_and_the_list_is_protected() {
    let mut client = SpnegoClient::new(vec![Toy::boxed(&[Oid::KERBEROS], 2), ntlm_client(user())]);
    let mut server = SpnegoServer::new(vec![ntlm_server()]);
    let (ours, theirs, sent) = converse(&mut client, &mut server, &[]).unwrap();
    assert_eq!(ours.full(), theirs.full());
    assert_eq!(sent, 3);
}

#[test]
fn a_shortened_list_is_found_out() {
    // Somebody in the middle takes Kerberos out of the client's list, so that the server chooses NTLM.
    let mut client = SpnegoClient::new(vec![Toy::boxed(&[Oid::KERBEROS], 2), ntlm_client(user())]);
    let mut server = SpnegoServer::new(vec![Toy::boxed(&[Oid::KERBEROS], 2), ntlm_server()]);
    client.start(&[]).unwrap();
    let mut shortened = SpnegoClient::new(vec![ntlm_client(user())]);
    let Step::Continue(reply) = server.step(&shortened.start(&[]).unwrap()).unwrap() else {
        panic!()
    };
    // The client sees that its first choice was not taken, begins anew, and finds a token it did not ask for.
    assert!(client.step(&reply).is_err());

    // Even if the one in the middle lets the client begin anew, the MICs are over different lists.
    let mut client = SpnegoClient::new(vec![Toy::boxed(&[Oid::KERBEROS], 2), ntlm_client(user())]);
    let mut server = SpnegoServer::new(vec![Toy::boxed(&[Oid::KERBEROS], 2), ntlm_server()]);
    client.start(&[]).unwrap();
    let choice = NegTokenResp {
        state: Some(NegState::AcceptIncomplete),
        mechanism: Some(Oid::NTLMSSP.0),
        ..NegTokenResp::default()
    }
    .encode();
    let Step::Continue(negotiate) = client.step(&choice).unwrap() else {
        panic!()
    };
    let negotiate = NegTokenResp::decode(&negotiate).unwrap().token.unwrap();
    let list = MechTypes::encode([Oid::NTLMSSP].into_iter());
    let forged = NegTokenInit::encode(&list, Some(negotiate));
    let Step::Continue(challenge) = server.step(&forged).unwrap() else {
        panic!()
    };
    let Step::Continue(authenticate) = client.step(&challenge).unwrap() else {
        panic!()
    };
    assert_eq!(server.step(&authenticate).unwrap_err(), AuthError::BadMic);
}

#[test]
fn mechanisms_of_any_number_of_rounds_fit() {
    for messages in 1..6 {
        let mut client = SpnegoClient::new(vec![Toy::boxed(&[Oid::KERBEROS], messages)]);
        let mut server = SpnegoServer::new(vec![Toy::boxed(&[Oid::KERBEROS], messages)]);
        let hint = server.hint();
        let outcome = converse(&mut client, &mut server, &hint);
        assert!(outcome.is_ok(), "{messages}: {:?}", outcome.map(|_| ()));
    }
}

#[test]
fn bare_ntlm_is_understood() {
    let mut client = ntlm_client(user());
    let mut server = SpnegoServer::new(vec![ntlm_server()]);
    let Step::Continue(negotiate) = client.step(None).unwrap() else {
        panic!()
    };
    let Step::Continue(challenge) = server.step(&negotiate).unwrap() else {
        panic!()
    };
    let Step::Done(ours) = client.step(Some(&challenge)).unwrap() else {
        panic!()
    };
    let Step::Done(theirs) = server.step(&ours.token.unwrap()).unwrap() else {
        panic!()
    };
    assert_eq!(ours.session_key.full(), theirs.session_key.full());
    assert!(theirs.token.is_none());
}

proptest! {
    #[test]
    fn hostile_tokens_never_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..60),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let damage = |mut bytes: Vec<u8>| {
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            bytes
        };
        let mut client = SpnegoClient::new(vec![Toy::boxed(&[Oid::KERBEROS], 2), ntlm_client(user())]);
        let mut server = SpnegoServer::new(vec![ntlm_server()]);
        let _ = SpnegoClient::new(vec![ntlm_client(user())]).start(&noise);
        let _ = SpnegoServer::new(vec![ntlm_server()]).step(&noise);
        let mut token = client.start(&[]).unwrap();
        for _ in 0..4 {
            let reply = match server.step(&damage(token)) {
                Ok(Step::Continue(reply)) => reply,
                Ok(Step::Done(established)) => established.token.unwrap_or(vec![0]),
                Err(_) => break,
            };
            match client.step(&damage(reply)) {
                Ok(Step::Continue(next)) => token = next,
                _ => break,
            }
        }
        let _ = client.step(&noise);
        let _ = server.step(&noise);
    }
}
