//! The state of a login between its rounds.

use ropeway_smb_wire::header::{Header, HeaderFlags};
use ropeway_smb_wire::negotiate::Capabilities;
use ropeway_smb_wire::session_setup::{SessionSetupFlags, SessionSetupRequest};
use ropeway_smb_wire::{SessionId, Writer};

use super::session::Session;
use super::{Config, PeerMisbehaved, SessionSecret};
use crate::auth::spnego::SpnegoClient;
use crate::crypto::{Preauth, Sender, Signer};

/// The progress of a login.
pub(super) enum Login {
    None,
    /// Waits for the negotiation.
    Waiting(SpnegoClient, Option<SessionSecret>),
    Round(Box<Round>),
}

/// A login in progress.
pub(super) struct Round {
    pub(super) mechanisms: SpnegoClient,
    pub(super) kind: Kind,
    /// 0 until the server assigns it.
    pub(super) session_id: SessionId,
    /// `Session.PreauthIntegrityHashValue` ([MS-SMB2] 3.2.1.3), or the channel's.
    pub(super) preauth: Preauth,
}

pub(super) enum Kind {
    New,
    /// Binds a channel. Requests are signed with the session's key until the channel has its own.
    Binding(SessionSecret, Signer),
    /// Reauthenticates. The session keeps its keys.
    Renewal,
}

impl Login {
    pub(super) fn session_id(&self) -> SessionId {
        match self {
            Self::Round(round) => round.session_id,
            _ => SessionId(0),
        }
    }

    /// Returns whether the login's requests are signed.
    pub(super) fn signs(&self) -> bool {
        matches!(self, Self::Round(round) if !matches!(round.kind, Kind::New))
    }

    pub(super) fn signer<'a>(&'a self, session: Option<&'a Session>) -> Option<&'a Signer> {
        match self {
            Self::Round(round) => match &round.kind {
                Kind::New => None,
                Kind::Binding(_, signer) => Some(signer),
                Kind::Renewal => session.and_then(Session::signer).map(|signer| &**signer),
            },
            _ => None,
        }
    }

    pub(super) fn hash(&mut self, message: &[u8]) {
        if let Self::Round(round) = self {
            round.preauth.update(&[message]);
        }
    }

    pub(super) fn encode(&self, config: &Config, token: &[u8], w: &mut Writer<'_>) {
        let binding = matches!(self, Self::Round(round) if matches!(round.kind, Kind::Binding(..)));
        let new = matches!(self, Self::Round(round) if matches!(round.kind, Kind::New));
        let request = SessionSetupRequest {
            flags: if binding {
                SessionSetupFlags::BINDING
            } else {
                SessionSetupFlags::default()
            },
            security_mode: config.security_mode(),
            capabilities: Capabilities::DFS,
            previous_session_id: if new {
                config.previous_session
            } else {
                SessionId(0)
            },
            security_buffer: token,
        };
        request.encode(w);
    }
}

impl Round {
    /// Checks the signature of a reply before the last round. It is present only if a session
    /// exists ([MS-SMB2] 3.3.4.1.1).
    pub(super) fn check_interim(
        &self,
        header: &Header,
        message: &mut [u8],
        session: Option<&Session>,
    ) -> Result<(), PeerMisbehaved> {
        let signed = header.flags.contains(HeaderFlags::SIGNED);
        let right = match (&self.kind, signed) {
            (Kind::New, _) | (Kind::Renewal, false) => true,
            (Kind::Binding(..), false) => return Err(PeerMisbehaved::Unsigned),
            (Kind::Binding(_, signer), true) => signer.verify_contiguous(Sender::Server, message).is_ok(),
            (Kind::Renewal, true) => session.is_none_or(|session| session.verify(message)),
        };
        if right {
            Ok(())
        } else {
            Err(PeerMisbehaved::BadSignature)
        }
    }
}
