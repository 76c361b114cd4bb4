//! Derivation of an SMB 3 session's keys from the session key that authentication gives.
//!
//! [MS-SMB2] 3.1.4.2: SP800-108 in counter mode with HMAC-SHA256, a 32-bit counter, and the labels
//! and contexts of 3.2.5.3.1 and 3.3.5.5.3. SMB 2 derives nothing: its signing key is the session
//! key.

use aws_lc_rs::hmac;

use super::Cipher;
use crate::secret::{Key, SessionKey};

/// Context of the derivation, which depends on the dialect.
#[derive(Clone, Copy, Debug)]
pub enum KeyContext<'a> {
    /// SMB 3.0 and 3.0.2: contexts are constants.
    Smb30,
    /// SMB 3.1.1: the context is `Session.PreauthIntegrityHashValue`; for a channel's signing key,
    /// the channel's hash.
    Smb311(&'a [u8; 64]),
}

/// All keys of a session and its first channel.
#[derive(Clone, Debug)]
pub struct SessionKeys {
    /// Signs messages on the first channel.
    pub signing: Key,
    /// `Session.ApplicationKey`, for protocols above SMB.
    pub application: Key,
    /// Encrypts requests.
    pub client_to_server: Key,
    /// Encrypts replies.
    pub server_to_client: Key,
}

impl SessionKeys {
    /// Derives all keys. Without a `cipher`, the cipher keys are those of a 128-bit cipher.
    pub fn derive(session_key: &SessionKey, context: KeyContext<'_>, cipher: Option<Cipher>) -> Self {
        let (client_to_server, server_to_client) =
            cipher_keys(session_key, context, cipher.unwrap_or(Cipher::Aes128Ccm));
        Self {
            signing: signing_key(session_key, context),
            application: application_key(session_key, context),
            client_to_server,
            server_to_client,
        }
    }
}

/// Derives `Session.SigningKey`; or, from a bound channel's own session key and hash,
/// `Channel.SigningKey`.
pub fn signing_key(session_key: &SessionKey, context: KeyContext<'_>) -> Key {
    let base = session_key.truncated();
    match context {
        KeyContext::Smb30 => derive(base.expose(), b"SMB2AESCMAC\0", b"SmbSign\0", 16),
        KeyContext::Smb311(hash) => derive(base.expose(), b"SMBSigningKey\0", hash, 16),
    }
}

/// Derives `Session.ApplicationKey`.
pub fn application_key(session_key: &SessionKey, context: KeyContext<'_>) -> Key {
    let base = session_key.truncated();
    match context {
        KeyContext::Smb30 => derive(base.expose(), b"SMB2APP\0", b"SmbRpc\0", 16),
        KeyContext::Smb311(hash) => derive(base.expose(), b"SMBAppKey\0", hash, 16),
    }
}

/// Derives the cipher keys of both directions: client to server, server to client. These are the
/// client's `EncryptionKey` and `DecryptionKey`; at the server the names are exchanged. Keys of
/// 256-bit ciphers derive from the full session key.
pub fn cipher_keys(session_key: &SessionKey, context: KeyContext<'_>, cipher: Cipher) -> (Key, Key) {
    let truncated = session_key.truncated();
    let length = cipher.key_len();
    let base = if length > 16 {
        session_key.full()
    } else {
        truncated.expose()
    };
    match context {
        KeyContext::Smb30 => (
            derive(base, b"SMB2AESCCM\0", b"ServerIn \0", length),
            derive(base, b"SMB2AESCCM\0", b"ServerOut\0", length),
        ),
        KeyContext::Smb311(hash) => (
            derive(base, b"SMBC2SCipherKey\0", hash, length),
            derive(base, b"SMBS2CCipherKey\0", hash, length),
        ),
    }
}

/// Derives one key (SP800-108 5.1). One round gives 32 bytes, and no key of SMB is longer.
fn derive(base: &[u8], label: &[u8], context: &[u8], length: usize) -> Key {
    assert!(length <= 32, "one round of HMAC-SHA256");
    let bits = (length as u32) * 8;
    let mut hmac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, base));
    hmac.update(&1_u32.to_be_bytes());
    hmac.update(label);
    hmac.update(&[0]);
    hmac.update(context);
    hmac.update(&bits.to_be_bytes());
    Key::from(&hmac.sign().as_ref()[..length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{anatomy, hex};

    /// "SMB 2 and SMB 3 security in Windows 10: the anatomy of signing and cryptographic keys", SMB 3.0.
    #[test]
    fn smb30_example() {
        let session_key = SessionKey::new(hex("7CD451825D0450D235424E44BA6E78CC"));
        let keys = SessionKeys::derive(&session_key, KeyContext::Smb30, None);
        assert_eq!(keys.signing.expose(), hex("0B7E9C5CAC36C0F6EA9AB275298CEDCE"));
        assert_eq!(
            keys.client_to_server.expose(),
            hex("FAD27796665B313EBB578F388632B4F7")
        );
        assert_eq!(
            keys.server_to_client.expose(),
            hex("B0F0427F7CEB416D1D9DCC0CD4F99447")
        );
        assert_eq!(keys.application.expose(), hex("BB23A4575AA26C721AF525AF15A87B4F"));
        let channel = SessionKey::new(hex("4E01A2B313BCF660CC250BEF021AEDE6"));
        assert_eq!(
            signing_key(&channel, KeyContext::Smb30).expose(),
            hex("BA1A17DBBFEC349BCA105563D598952F")
        );
    }

    /// From the same article, for SMB 3.1.1.
    #[test]
    fn smb311_example() {
        let session_key = SessionKey::new(hex(anatomy::SESSION_KEY));
        let preauth: [u8; 64] = hex(anatomy::PREAUTH).try_into().unwrap();
        let keys = SessionKeys::derive(
            &session_key,
            KeyContext::Smb311(&preauth),
            Some(Cipher::Aes128Gcm),
        );
        assert_eq!(keys.signing.expose(), hex(anatomy::SIGNING_KEY));
        // The article's EncryptionKey is the client's.
        assert_eq!(
            keys.server_to_client.expose(),
            hex("E2AF0DCEFAC68DA71A0DFBD0D1350D74")
        );
        assert_eq!(
            keys.client_to_server.expose(),
            hex("629BCBC54422A0F572B97F45989B6073")
        );
        assert_eq!(keys.application.expose(), hex("6D7AD7954E9EC61E907B4D473DC178FF"));
    }

    #[test]
    fn long_keys_use_the_whole_session_key() {
        let preauth = [9; 64];
        let context = KeyContext::Smb311(&preauth);
        let mut bytes = vec![1; 32];
        let (one, _) = cipher_keys(&SessionKey::new(bytes.clone()), context, Cipher::Aes256Gcm);
        bytes[31] = 2;
        let (other, _) = cipher_keys(&SessionKey::new(bytes.clone()), context, Cipher::Aes256Gcm);
        assert_eq!(one.expose().len(), 32);
        assert_ne!(one.expose(), other.expose());
        let (short, _) = cipher_keys(&SessionKey::new(bytes.clone()), context, Cipher::Aes128Gcm);
        bytes[31] = 3;
        let (same, _) = cipher_keys(&SessionKey::new(bytes), context, Cipher::Aes128Gcm);
        assert_eq!(short.expose(), same.expose());
    }
}
