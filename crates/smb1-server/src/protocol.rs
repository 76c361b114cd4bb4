//! Which clients are served: those that offer NT LM 0.12 and nothing newer.

use std::net::IpAddr;
use std::sync::Arc;

use ropeway_smb_proto::auth::Mechanism;
use ropeway_smb_proto::auth::ntlm::NtlmServer;
use ropeway_smb_proto::auth::spnego::SpnegoServer;
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::server::{Config, Mechanisms};
use ropeway_smb_server::{ForeignClient, ForeignProtocol, Translation, Translator};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb1::code_page::CodePage;
use ropeway_smb1::dos_time::Zone;
use ropeway_smb1::server::{self as smb1, Offer, ProofServer, Signing};

use crate::conversation::Conversation;

/// Called with the address of each client that connects.
pub type OnClient = Arc<dyn Fn(IpAddr) + Send + Sync>;

/// SMB 1 as a further protocol of a server.
pub struct Smb1Server {
    /// Code page of clients without Unicode.
    pub code_page: CodePage,
    /// The server's distance from UTC.
    pub zone: Zone,
    /// Called with each client.
    pub on_client: OnClient,
}

struct Smb1Translator {
    config: smb1::Config,
    offer: Offer,
    challenge: [u8; 8],
    on_client: OnClient,
}

impl ForeignProtocol for Smb1Server {
    fn accept(&self, first: &[u8], config: &Config) -> Option<Translation> {
        let offer = Offer::of(first)?;
        let mut random = [0; 8];
        (config.random)(&mut random);
        let signing = match config.signing_required {
            true => Signing::Required,
            false => Signing::Offered,
        };
        let translator = Smb1Translator {
            config: smb1::Config {
                server_guid: config.server_guid,
                names: config.names.clone(),
                hint: hint(config),
                signing,
                code_page: self.code_page,
                zone: self.zone,
                sessions_max: config.sessions_per_connection_max,
            },
            offer,
            challenge: random,
            on_client: Arc::clone(&self.on_client),
        };
        Some(Translation {
            name: "NT LM 0.12",
            signing: "MD5",
            config: line_config(config, offer, random),
            translator: Box::new(translator),
        })
    }
}

/// Returns the settings of the line: SMB 2.1 without protection, since it is inside this process.
fn line_config(config: &Config, offer: Offer, challenge: [u8; 8]) -> Config {
    let mut line = config.clone();
    line.dialect_min = Dialect::Smb210;
    line.dialect_max = Dialect::Smb210;
    line.signing_required = false;
    line.multichannel = false;
    line.leasing = false;
    line.compression = Algorithms::default();
    if !offer.extended_security {
        let (accounts, anonymous, guest) = (Arc::clone(&config.accounts), config.anonymous, config.guest);
        let proofs: Mechanisms = Arc::new(move || {
            let proof = ProofServer::new(challenge, Arc::clone(&accounts), anonymous, guest);
            vec![Box::new(proof) as Box<dyn Mechanism>]
        });
        line.mechanisms = Some(proofs);
    }
    line
}

/// Returns the list of mechanisms for NEGOTIATE.
fn hint(config: &Config) -> Vec<u8> {
    let ntlm = NtlmServer::new(
        config.names.clone(),
        ropeway_smb_wire::FileTime(0),
        [0; 8],
        false,
        Box::new(|_, _| None),
    );
    let mut mechanisms = config.mechanisms.as_ref().map_or_else(Vec::new, |make| make());
    mechanisms.push(Box::new(ntlm));
    SpnegoServer::new(mechanisms).hint()
}

impl Translator for Smb1Translator {
    fn run(self: Box<Self>, client: ForeignClient) {
        let peer = client.peer;
        (self.on_client)(peer.ip().to_canonical());
        let connection = smb1::Connection::new(self.config, self.offer, self.challenge);
        match Conversation::serve(client, connection) {
            Ok(()) => tracing::debug!(%peer, "SMB 1 connection closed"),
            Err(reason) => tracing::warn!(%peer, "SMB 1 connection ended by the server: {reason}"),
        }
    }
}
