//! Every dialect with every protection it has.

use std::sync::Arc;

use crate::world::{World, client_config, echo, login, server_config, tree};
use ropeway_smb_proto::client::{self, Compound, Encryption, Signing};
use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_proto::server::{Config, Sealing, Sessions};
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::negotiate::Dialect;

const CIPHERS: [Cipher; 4] = [
    Cipher::Aes128Ccm,
    Cipher::Aes128Gcm,
    Cipher::Aes256Ccm,
    Cipher::Aes256Gcm,
];
const SIGNATURES: [SigningAlgorithm; 3] = [
    SigningAlgorithm::HmacSha256,
    SigningAlgorithm::AesCmac,
    SigningAlgorithm::AesGmac,
];

fn ways() -> Vec<(client::Config, Config)> {
    let mut ways = Vec::new();
    for dialect in Dialect::ALL {
        let new = dialect == Dialect::Smb311;
        let signatures = if new { &SIGNATURES[..] } else { &SIGNATURES[..1] };
        let ciphers = if new { &CIPHERS[..] } else { &CIPHERS[..1] };
        for signing in signatures {
            for cipher in ciphers {
                for encryption in [Encryption::Off, Encryption::Desired] {
                    for sealing in [Sealing::Off, Sealing::Offered, Sealing::Required] {
                        for (required, signed) in [
                            (true, Signing::Required),
                            (false, Signing::Required),
                            (false, Signing::Offered),
                        ] {
                            let client = client::Config {
                                dialects: dialect..=dialect,
                                signing: signed,
                                signing_algorithms: vec![*signing],
                                encryption,
                                ciphers: vec![*cipher],
                                ..client_config()
                            };
                            let server = Config {
                                signing_required: required,
                                sealing,
                                ..server_config()
                            };
                            ways.push((client, server));
                        }
                    }
                }
            }
        }
    }
    ways
}

#[test]
fn every_dialect_and_protection() {
    let mut seen = 0;
    for (client, server) in ways() {
        let dialect = *client.dialects.start();
        let what = format!(
            "{dialect:?} {:?} {:?} {:?}",
            client.signing, client.encryption, server.sealing
        );
        let (signing, cipher) = (client.signing_algorithms[0], client.ciphers[0]);
        let wants = client.encryption == Encryption::Desired;
        let (required, sealing) = (server.signing_required, server.sealing);
        let server = Arc::new(server);
        let mut sessions = Sessions::new();
        let mut world = World::ready(client.clone(), &server, &mut sessions);
        let can = dialect >= Dialect::Smb300;
        if sealing == Sealing::Required && (!can || world.served.protocol.negotiated().is_none()) {
            assert!(!world.is_logged_in(), "{what}");
            continue;
        }
        assert!(
            world.is_logged_in(),
            "{what}: {:?} {:?}",
            world.events,
            world.served.hung_up
        );
        let agreed = world.client.negotiated().unwrap();
        assert_eq!(agreed.dialect, dialect);
        if dialect == Dialect::Smb311 {
            assert_eq!(agreed.signing, signing, "{what}");
        }
        if let Some(agreed) = agreed.cipher {
            assert!(sealing != Sealing::Off);
            if dialect == Dialect::Smb311 {
                assert_eq!(agreed, cipher, "{what}");
            }
        }
        let sealed = can && (sealing == Sealing::Required || wants && sealing != Sealing::Off);
        assert_eq!(world.client.is_encrypted(), sealed, "{what}");
        if required && !sealed {
            assert!(world.client.is_signed(), "{what}");
        }
        assert_eq!(world.echo(&mut sessions), [NtStatus::SUCCESS], "{what}");
        assert_eq!(
            world.ask(Compound::one(tree()), &mut sessions),
            [NtStatus::SUCCESS],
            "{what}"
        );
        let compound = Compound {
            operations: vec![echo(), echo(), echo()],
            ..Compound::default()
        };
        assert_eq!(
            world.ask(compound, &mut sessions),
            [NtStatus::SUCCESS; 3],
            "{what}"
        );
        assert_eq!(world.served.sealed > 0, sealed, "{what}");
        assert_eq!(sessions.len(), 1);
        // The end of the session.
        world.client.log_off(true);
        world.settle(&mut sessions);
        assert!(
            sessions.is_empty() && world.served.protocol.sessions().next().is_none(),
            "{what}"
        );
        seen += 1;
    }
    assert!(seen > 100, "{seen}");
}

/// A sealed share in a session that is not sealed.
#[test]
fn a_sealed_tree_is_asked_by_sealed_requests() {
    let server = Arc::new(server_config());
    let client = client::Config {
        encryption: Encryption::Desired,
        ..client_config()
    };
    let mut sessions = Sessions::new();
    let mut world = World::new(client, &server, 1);
    world.served.encrypted_trees = true;
    world.client.log_in(login("anna", "secret")).unwrap();
    world.settle(&mut sessions);
    assert_eq!(
        world.ask(Compound::one(tree()), &mut sessions),
        [NtStatus::SUCCESS]
    );
    assert!(world.served.sealed > 0);
}
