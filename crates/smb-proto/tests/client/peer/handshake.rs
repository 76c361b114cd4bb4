//! How the played server negotiates and lets clients in.

use super::{GUID, Master, Peer, body};
use crate::seal::{self, Channel};
use ropeway_smb_proto::auth::Step;
use ropeway_smb_proto::crypto::{
    Cipher, KeyContext, Preauth, SessionKeys, Signer, SigningAlgorithm, signing_key,
};
use ropeway_smb_proto::secret::SessionKey;
use ropeway_smb_wire::fsctl::validate_negotiate::{ValidateNegotiateRequest, ValidateNegotiateResponse};
use ropeway_smb_wire::header::{Header, HeaderFlags};
use ropeway_smb_wire::ioctl::{IoctlRequest, IoctlResponse};
use ropeway_smb_wire::negotiate::{
    Capabilities, Dialect, DialectRevision, NegotiateRequest, NegotiateResponse, SecurityMode,
};
use ropeway_smb_wire::negotiate_context::{
    self as context, CompressionAlgorithm, CompressionFlags, Context, HashAlgorithm,
};
use ropeway_smb_wire::session_setup::{
    SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
};
use ropeway_smb_wire::{FileTime, NtStatus, Reader, SessionId};

impl Peer {
    pub(super) fn negotiate(&mut self, reader: &mut Reader<'_>) -> Vec<u8> {
        let request = NegotiateRequest::decode(reader).unwrap();
        let dialect = self.setup.dialect;
        assert!(request.dialects.contains(&dialect));
        let mut capabilities = Capabilities::DFS | Capabilities::MULTI_CHANNEL;
        if self.setup.large_mtu && dialect >= Dialect::Smb210 {
            capabilities |= Capabilities::LARGE_MTU;
        }
        if self.setup.cipher.is_some() && dialect < Dialect::Smb311 {
            capabilities |= Capabilities::ENCRYPTION;
        }
        let contexts = if dialect == Dialect::Smb311 {
            self.contexts()
        } else {
            Vec::new()
        };
        let mut security_mode = SecurityMode::SIGNING_ENABLED;
        if self.setup.signing_required {
            security_mode |= SecurityMode::SIGNING_REQUIRED;
        }
        let hint = self.spnego.hint();
        let response = NegotiateResponse {
            security_mode,
            dialect: DialectRevision::Dialect(dialect),
            server_guid: GUID,
            capabilities,
            max_transact_size: 1 << 20,
            max_read_size: 1 << 20,
            max_write_size: 1 << 20,
            system_time: FileTime(1),
            server_start_time: FileTime(0),
            security_buffer: &hint,
            contexts,
        };
        self.negotiated = Some((
            security_mode,
            capabilities,
            request.client_guid,
            request.dialects.clone(),
        ));
        body(|w| response.encode(w))
    }

    fn contexts(&self) -> Vec<Context<'static>> {
        let mut contexts = Vec::new();
        contexts.push(Context::PreauthIntegrity {
            hash_algorithms: vec![HashAlgorithm::SHA_512],
            salt: &[9; 32],
        });
        if let Some(cipher) = self.setup.cipher {
            contexts.push(Context::Encryption(vec![match cipher {
                Cipher::Aes128Ccm => context::Cipher::AES_128_CCM,
                Cipher::Aes128Gcm => context::Cipher::AES_128_GCM,
                Cipher::Aes256Ccm => context::Cipher::AES_256_CCM,
                Cipher::Aes256Gcm => context::Cipher::AES_256_GCM,
            }]));
        }
        contexts.push(Context::Signing(vec![match self.setup.signing {
            SigningAlgorithm::HmacSha256 => context::SigningAlgorithm::HMAC_SHA256,
            SigningAlgorithm::AesCmac => context::SigningAlgorithm::AES_CMAC,
            SigningAlgorithm::AesGmac => context::SigningAlgorithm::AES_GMAC,
        }]));
        if self.setup.compression {
            contexts.push(Context::Compression {
                flags: CompressionFlags::CHAINED,
                algorithms: vec![CompressionAlgorithm::LZ4, CompressionAlgorithm::PATTERN_V1],
            });
        }
        contexts
    }

    pub(super) fn validate(
        &mut self,
        reader: &mut Reader<'_>,
        change: fn(&mut ValidateNegotiateResponse),
    ) -> Vec<u8> {
        let request = IoctlRequest::decode(reader).unwrap();
        let asked = ValidateNegotiateRequest::decode(request.input).unwrap();
        let (security_mode, capabilities, guid, dialects) = self.negotiated.as_ref().unwrap();
        assert_eq!(asked.guid, *guid);
        let codes: Vec<_> = dialects.iter().map(|dialect| dialect.code()).collect();
        assert_eq!(asked.dialects, codes);
        let mut answer = ValidateNegotiateResponse {
            capabilities: *capabilities,
            guid: GUID,
            security_mode: *security_mode,
            dialect: self.setup.dialect.code(),
        };
        change(&mut answer);
        let output = body(|w| answer.encode(w));
        let response = IoctlResponse {
            ctl_code: request.ctl_code,
            file_id: request.file_id,
            input: &[],
            output: &output,
        };
        body(|w| response.encode(w))
    }

    /// A signed request without a channel is one to be bound to a session that another connection made.
    pub(super) fn take_session(&mut self, header: &Header) {
        let signed = header.flags.contains(HeaderFlags::SIGNED);
        if signed && self.channel.is_none() && self.master.is_none() {
            self.master = self.hub.lock().unwrap().master.clone();
        }
    }

    pub(super) fn session_setup(&mut self, reader: &mut Reader<'_>, message: &[u8]) -> (NtStatus, Vec<u8>) {
        let request = SessionSetupRequest::decode(reader).unwrap();
        let binding = request.flags.contains(SessionSetupFlags::BINDING);
        assert_eq!(binding, self.master.is_some() && self.channel.is_none());
        if self.setup_hash == Preauth::new() {
            self.setup_hash = self.preauth.clone();
        }
        self.setup_hash.update(&[message]);
        let step = match self.spnego.step(request.security_buffer) {
            Ok(step) => step,
            Err(_) => return (NtStatus::LOGON_FAILURE, Vec::new()),
        };
        let mut flags = self.setup.session_flags;
        if self.setup.encrypt_data {
            flags |= SessionFlags::ENCRYPT_DATA;
        }
        let (status, token) = match step {
            Step::Continue(token) => (NtStatus::MORE_PROCESSING_REQUIRED, token),
            Step::Done(established) => {
                self.establish(&established.session_key);
                (NtStatus::SUCCESS, established.token.unwrap_or_default())
            }
        };
        let response = SessionSetupResponse {
            session_flags: flags,
            security_buffer: &token,
        };
        (status, body(|w| response.encode(w)))
    }

    pub(super) fn establish(&mut self, key: &SessionKey) {
        self.expired = false;
        if self.channel.is_some() {
            return;
        }
        let setup = &self.setup;
        let hash = self.setup_hash.value();
        let context = match setup.dialect {
            Dialect::Smb202 | Dialect::Smb210 => None,
            Dialect::Smb300 | Dialect::Smb302 => Some(KeyContext::Smb30),
            Dialect::Smb311 => Some(KeyContext::Smb311(hash)),
        };
        let (signing, channel) = match (&self.master, context) {
            (Some(_), Some(context)) => (signing_key(key, context), 1),
            (None, Some(context)) => {
                let keys = SessionKeys::derive(key, context, setup.cipher);
                self.master = Some(Master {
                    id: SessionId(0x77),
                    signing: keys.signing.clone(),
                    ours: keys.server_to_client,
                    theirs: keys.client_to_server,
                });
                (keys.signing, 0)
            }
            _ => {
                self.master = Some(Master {
                    id: SessionId(0x77),
                    signing: key.truncated(),
                    ours: key.truncated(),
                    theirs: key.truncated(),
                });
                (key.truncated(), 0)
            }
        };
        let master = self.master.as_ref().unwrap();
        self.hub.lock().unwrap().master = Some(master.clone());
        self.channel = Some(Channel {
            id: master.id,
            signer: Signer::new(setup.signing, &signing),
            sealing: Channel::sealing(setup.cipher, &master.ours, &master.theirs, channel),
        });
    }

    /// Signs and hashes the answer to SESSION_SETUP as its kind demands.
    pub(super) fn finish_setup(&mut self, status: NtStatus, request: &[u8], replies: &mut [Vec<u8>]) {
        let header = Header::decode(&mut Reader::new(request, "test")).unwrap();
        let reply = &mut replies[0];
        self.grant_in(reply, header.credits);
        let guest = self
            .setup
            .session_flags
            .intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL);
        match (&self.channel, &self.master) {
            _ if self.setup.forgets_to_sign => {}
            (Some(channel), _) if status == NtStatus::SUCCESS && !guest => seal::sign(&channel.signer, reply),
            (None, Some(master)) => seal::sign(&Signer::new(self.setup.signing, &master.signing), reply),
            _ => {}
        }
        if status == NtStatus::MORE_PROCESSING_REQUIRED {
            self.setup_hash.update(&[reply]);
        }
        let frame = seal::wrap(vec![std::mem::take(reply)], None, None, false);
        self.output.extend_from_slice(&frame);
    }
}
