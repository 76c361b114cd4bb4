//! The computations of NTLMv2 ([MS-NLMP] 3.3.2, 3.4.4, 3.4.5).

use hmac::{Hmac, KeyInit, Mac};
use md4::Digest;
use rc4::StreamCipher;
use ropeway_smb_wire::Text;
use zeroize::Zeroize;

use crate::auth::{AuthError, Result};
use crate::secret::{NtHash, Password};

/// Returns NTOWFv1: MD4 of the password in UTF-16.
pub fn nt_hash(password: &Password) -> NtHash {
    // UTF-16 takes at most twice the bytes of UTF-8, so the buffer never grows and leaves no copy
    // behind.
    let mut units: Vec<u8> = Vec::with_capacity(2 * password.expose().len());
    units.extend(password.expose().encode_utf16().flat_map(u16::to_le_bytes));
    let hash = NtHash::from_bytes(md4::Md4::digest(&units).into());
    units.zeroize();
    hash
}

/// 16 secret bytes, wiped when dropped.
pub type Key16 = zeroize::Zeroizing<[u8; 16]>;

pub(super) fn hmac_md5(key: &[u8; 16], parts: &[&[u8]]) -> Key16 {
    let mut hmac = Hmac::<md5::Md5>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        hmac.update(part);
    }
    Key16::new(hmac.finalize().into_bytes().into())
}

fn md5(parts: &[&[u8]]) -> Key16 {
    let mut md5 = md5::Md5::new();
    for part in parts {
        md5.update(part);
    }
    Key16::new(md5.finalize().into())
}

/// Returns NTOWFv2: the hash bound to the user in upper case and to the domain as it is.
pub fn ntowf_v2(hash: &NtHash, user: &Text, domain: &Text) -> Key16 {
    let name: Vec<u8> = user
        .units()
        .iter()
        .map(|unit| upper(*unit))
        .chain(domain.units().iter().copied())
        .flat_map(u16::to_le_bytes)
        .collect();
    hmac_md5(hash.expose(), &[&name])
}

/// Maps one UTF-16 unit to upper case, as Windows does. A unit without a single upper-case unit
/// stays.
fn upper(unit: u16) -> u16 {
    let Some(character) = char::from_u32(u32::from(unit)) else {
        return unit;
    };
    let mut mapped = character.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => u16::try_from(u32::from(one)).unwrap_or(unit),
        _ => unit,
    }
}

/// Returns the client's part of the response (`temp`, `NTLMv2_CLIENT_CHALLENGE`, [MS-NLMP]
/// 2.2.2.7).
pub fn client_part(time: u64, client_challenge: [u8; 8], av_pairs: &[u8]) -> Vec<u8> {
    let mut temp = Vec::with_capacity(32 + av_pairs.len());
    temp.extend([1, 1, 0, 0, 0, 0, 0, 0]);
    temp.extend(time.to_le_bytes());
    temp.extend(client_challenge);
    temp.extend([0; 4]);
    temp.extend(av_pairs);
    temp.extend([0; 4]);
    temp
}

/// Returns `NTProofStr` and `SessionBaseKey`, which is also the `KeyExchangeKey` of NTLMv2.
pub fn prove(ntowf: &[u8; 16], server_challenge: [u8; 8], client_part: &[u8]) -> ([u8; 16], Key16) {
    let proof = hmac_md5(ntowf, &[&server_challenge, client_part]);
    let base_key = hmac_md5(ntowf, &[&*proof]);
    (*proof, base_key)
}

/// Returns the LMv2 response, for servers that send no time.
pub fn lm_v2(ntowf: &[u8; 16], server_challenge: [u8; 8], client_challenge: [u8; 8]) -> [u8; 24] {
    let mut response = [0; 24];
    response[..16].copy_from_slice(&*hmac_md5(ntowf, &[&server_challenge, &client_challenge]));
    response[16..].copy_from_slice(&client_challenge);
    response
}

/// Applies RC4 with a 16-byte key, in place. It encrypts the exported session key.
pub(super) fn rc4_once(key: &[u8; 16], bytes: &mut [u8]) {
    rc4_with(key).apply_keystream(bytes);
}

fn rc4_with(key: &[u8; 16]) -> rc4::Rc4 {
    rc4::Rc4::new_from_slice(key).expect("RC4 takes keys of 16 bytes")
}

/// Returns the MIC over the three messages, with zeros at its own position in the third ([MS-NLMP]
/// 3.1.5.1.2).
pub(super) fn mic(
    exported: &[u8; 16],
    negotiate: &[u8],
    challenge: &[u8],
    authenticate: [&[u8]; 2],
) -> Key16 {
    let [before, after] = authenticate;
    hmac_md5(exported, &[negotiate, challenge, before, &[0; 16], after])
}

/// The signatures of both directions at one end.
pub(super) struct Session {
    ours: Signatures,
    theirs: Signatures,
}

impl Session {
    /// Creates the signatures. `ours` is the direction we sign.
    pub(super) fn new(exported: &[u8; 16], key_exchange: bool, ours: Direction) -> Box<Self> {
        let theirs = match ours {
            Direction::ToServer => Direction::ToClient,
            Direction::ToClient => Direction::ToServer,
        };
        Box::new(Self {
            ours: Signatures::new(exported, key_exchange, ours),
            theirs: Signatures::new(exported, key_exchange, theirs),
        })
    }

    pub(super) fn sign(&mut self, message: &[u8]) -> Vec<u8> {
        self.ours.sign(message).to_vec()
    }

    pub(super) fn verify(&mut self, message: &[u8], signature: &[u8]) -> Result<()> {
        self.theirs.verify(message, signature)
    }
}

/// The direction of a signed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// The signatures of one direction with extended session security ([MS-NLMP] 3.4.4.2). SMB uses
/// them only for SPNEGO's list of mechanisms.
pub(super) struct Signatures {
    sign_key: Key16,
    /// Encrypts the checksums, with key exchange.
    seal: Option<rc4::Rc4>,
    sequence: u32,
}

impl Signatures {
    pub(super) fn new(exported: &[u8; 16], key_exchange: bool, direction: Direction) -> Self {
        let (sign, seal): (&[u8], &[u8]) = match direction {
            Direction::ToServer => (
                b"session key to client-to-server signing key magic constant\0",
                b"session key to client-to-server sealing key magic constant\0",
            ),
            Direction::ToClient => (
                b"session key to server-to-client signing key magic constant\0",
                b"session key to server-to-client sealing key magic constant\0",
            ),
        };
        // 128-bit sealing keys derive from the whole exported key. Shorter ones are refused by
        // `check_flags`.
        let seal_key = md5(&[exported, seal]);
        Self {
            sign_key: md5(&[exported, sign]),
            seal: key_exchange.then(|| rc4_with(&seal_key)),
            sequence: 0,
        }
    }

    /// Returns the `NTLMSSP_MESSAGE_SIGNATURE` ([MS-NLMP] 2.2.2.9.2) of the next message.
    pub(super) fn sign(&mut self, message: &[u8]) -> [u8; 16] {
        let sequence = self.sequence.to_le_bytes();
        let checksum = hmac_md5(&self.sign_key, &[&sequence, message]);
        let mut signature = [0; 16];
        signature[..4].copy_from_slice(&1_u32.to_le_bytes());
        signature[4..12].copy_from_slice(&checksum[..8]);
        if let Some(seal) = &mut self.seal {
            seal.apply_keystream(&mut signature[4..12]);
        }
        signature[12..].copy_from_slice(&sequence);
        self.sequence = self.sequence.wrapping_add(1);
        signature
    }

    pub(super) fn verify(&mut self, message: &[u8], signature: &[u8]) -> Result<()> {
        same(&self.sign(message), signature)
    }

    /// Encrypts a message, which precedes its signature in the RC4 stream.
    #[cfg(test)]
    pub(super) fn encrypt(&mut self, message: &mut [u8]) {
        self.seal.as_mut().unwrap().apply_keystream(message);
    }
}

/// Compares in constant time.
///
/// # Errors
/// [`AuthError::BadMic`] if they differ.
pub fn same(computed: &[u8; 16], claimed: &[u8]) -> Result<()> {
    aws_lc_rs::constant_time::verify_slices_are_equal(computed, claimed).map_err(|_| AuthError::BadMic)
}
