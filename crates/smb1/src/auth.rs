//! Responses to a challenge, for logins without extended security ([MS-NLMP] 3.3, [MS-CIFS]
//! 3.2.4.2.4).
//!
//! | method | what a listener on the line learns |
//! |---|---|
//! | NTLMv2 and LMv2 | a proof from which it can guess weak passwords |
//! | NTLM | a proof from which it computes the password's hash within hours |
//! | LM | a proof from which it computes the password within hours |
//! | clear text | the password |
//!
//! Only the first is used unless others are allowed by name.

use des::Des;
use des::cipher::{BlockCipherEncrypt as _, KeyInit as _};
use md4::{Digest as _, Md4};
use ropeway_smb_proto::auth::ntlm::{self, AvId, AvPairs};
use ropeway_smb_proto::secret::{NtHash, Password, SessionKey};
use ropeway_smb_wire::{FileTime, Text};
use zeroize::Zeroizing;

use crate::code_page::CodePage;

/// Which proofs of a password are allowed. [`Default`] allows NTLMv2 only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeakAuth {
    /// NTLM, also called NTLMv1.
    pub ntlm: bool,
    /// LM. Implies nothing else.
    pub lm: bool,
    /// The password in clear text.
    pub clear_text: bool,
}

/// The responses of one login and the key that comes from them.
pub struct Responses {
    /// The response in the LM form.
    pub lm: Vec<u8>,
    /// The response in the NT form.
    pub nt: Vec<u8>,
    /// The session key; `None` where there is none to sign with.
    pub key: Option<SessionKey>,
}

impl Responses {
    /// Returns the responses of NTLMv2 and LMv2.
    pub fn ntlm_v2(
        hash: &NtHash,
        (user, domain): (&Text, &Text),
        server_challenge: [u8; 8],
        client_challenge: [u8; 8],
        wall_time: FileTime,
    ) -> Self {
        let ntowf = ntlm::ntowf_v2(hash, user, domain);
        let mut pairs = AvPairs::default();
        pairs.set_text(AvId::NB_DOMAIN_NAME, domain);
        let part = ntlm::client_part(wall_time.0, client_challenge, &pairs.encode());
        let (proof, base_key) = ntlm::prove(&ntowf, server_challenge, &part);
        Self {
            lm: ntlm::lm_v2(&ntowf, server_challenge, client_challenge).to_vec(),
            nt: [&proof[..], &part].concat(),
            key: Some(SessionKey::new(base_key.to_vec())),
        }
    }

    /// Returns the response of NTLM, which also stands in the place of LM's.
    pub fn ntlm(hash: &NtHash, server_challenge: [u8; 8]) -> Self {
        let nt = desl(hash.expose(), server_challenge);
        Self {
            lm: nt.to_vec(),
            nt: nt.to_vec(),
            key: Some(ntlm_key(hash)),
        }
    }

    /// Returns the response of LM alone, for servers that do not know NTLM. Its key is too weak to
    /// sign with.
    pub fn lm(password: &Password, page: CodePage, server_challenge: [u8; 8]) -> Self {
        let hash = lm_hash(password, page);
        Self {
            lm: desl(&hash, server_challenge).to_vec(),
            nt: Vec::new(),
            key: None,
        }
    }

    /// Returns the password itself, for servers that ask for it.
    pub fn clear_text(password: &Password, page: CodePage) -> Self {
        let text = Text::from(password.expose());
        let mut lm = page.encode(&text).unwrap_or_default();
        lm.push(0);
        Self {
            lm,
            nt: Vec::new(),
            key: None,
        }
    }

    /// Returns no proof at all, for an anonymous login ([MS-CIFS] 3.2.4.2.4).
    pub fn anonymous() -> Self {
        Self {
            lm: Vec::new(),
            nt: Vec::new(),
            key: None,
        }
    }
}

/// Returns the session key of NTLM: MD4 of the hash.
pub fn ntlm_key(hash: &NtHash) -> SessionKey {
    SessionKey::new(Md4::digest(hash.expose()).to_vec())
}

/// A proof that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// NTLMv2.
    NtlmV2,
    /// LMv2, without NTLMv2.
    LmV2,
    /// NTLM.
    Ntlm,
    /// LM.
    Lm,
    /// Clear text.
    ClearText,
}

/// Verifies the responses of a client against a password's hash. Returns how they proved it and the
/// key that signs; `None` if they prove nothing or only in a way that is not allowed. Servers keep no
/// hash of LM, so LM is never accepted.
pub fn verify(
    hash: &NtHash,
    (user, domain): (&Text, &Text),
    server_challenge: [u8; 8],
    (lm, nt): (&[u8], &[u8]),
    weak: WeakAuth,
) -> Option<(Method, SessionKey)> {
    let ntowf = ntlm::ntowf_v2(hash, user, domain);
    if let Some((proof, part)) = nt.split_first_chunk::<16>()
        && part.len() > 8
    {
        let (expected, base_key) = ntlm::prove(&ntowf, server_challenge, part);
        if ntlm::same(&expected, proof).is_ok() {
            return Some((Method::NtlmV2, SessionKey::new(base_key.to_vec())));
        }
    }
    if let Some((_, client)) = lm.split_first_chunk::<16>()
        && let Ok(client) = <[u8; 8]>::try_from(client)
    {
        let expected = ntlm::lm_v2(&ntowf, server_challenge, client);
        if is_same(&expected, lm) {
            let mut proof = [0; 16];
            proof.copy_from_slice(&expected[..16]);
            let (_, base_key) = ntlm::prove(&ntowf, server_challenge, &client);
            return Some((Method::LmV2, SessionKey::new(base_key.to_vec())));
        }
    }
    if weak.ntlm {
        let expected = desl(hash.expose(), server_challenge);
        if is_same(&expected, nt) || is_same(&expected, lm) {
            return Some((Method::Ntlm, ntlm_key(hash)));
        }
    }
    None
}

/// Compares in constant time.
fn is_same(expected: &[u8; 24], claimed: &[u8]) -> bool {
    if claimed.len() != expected.len() {
        return false;
    }
    let differences = expected.iter().zip(claimed).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0
}

/// Returns the LM hash: DES with each half of the password in upper case as the key ([MS-NLMP]
/// 3.3.1, LMOWFv1).
fn lm_hash(password: &Password, page: CodePage) -> Zeroizing<[u8; 16]> {
    let upper = Zeroizing::new(password.expose().to_uppercase());
    let bytes = Zeroizing::new(page.encode(&Text::from(upper.as_str())).unwrap_or_default());
    let mut padded = Zeroizing::new([0; 14]);
    for (to, from) in padded.iter_mut().zip(bytes.iter()) {
        *to = *from;
    }
    let mut hash = Zeroizing::new([0; 16]);
    for (half, key) in hash.chunks_mut(8).zip(padded.as_chunks::<7>().0) {
        half.copy_from_slice(&des_once(*key, *b"KGS!@#$%"));
    }
    hash
}

/// Returns the challenge encrypted with three parts of a hash ([MS-NLMP] 6, DESL).
fn desl(hash: &[u8; 16], challenge: [u8; 8]) -> [u8; 24] {
    let mut keys = Zeroizing::new([0; 21]);
    keys[..16].copy_from_slice(hash);
    let mut response = [0; 24];
    for (part, key) in response.chunks_mut(8).zip(keys.as_chunks::<7>().0) {
        part.copy_from_slice(&des_once(*key, challenge));
    }
    response
}

/// Encrypts one block with a key of 56 bits, which are spread over 8 bytes with parity bits.
fn des_once(key: [u8; 7], block: [u8; 8]) -> [u8; 8] {
    let bits = key.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut spread = Zeroizing::new([0_u8; 8]);
    for (at, byte) in spread.iter_mut().enumerate() {
        // Seven bits each; DES ignores the parity bit.
        *byte = ((bits >> (49 - 7 * at)) as u8 & 0x7F) << 1;
    }
    let cipher = Des::new_from_slice(&*spread).expect("DES has keys of 8 bytes");
    let mut block = block.into();
    cipher.encrypt_block(&mut block);
    block.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF];

    fn texts() -> (Text, Text) {
        (Text::from("User"), Text::from("Domain"))
    }

    /// The examples of [MS-NLMP] 4.2.2, with the password "Password".
    #[test]
    fn known_responses() {
        let password = Password::from("Password");
        let hash = ntlm::nt_hash(&password);
        assert_eq!(
            *lm_hash(&password, CodePage::default()),
            [
                0xE5, 0x2C, 0xAC, 0x67, 0x41, 0x9A, 0x9A, 0x22, 0x4A, 0x3B, 0x10, 0x8F, 0x3F, 0xA6, 0xCB,
                0x6D
            ]
        );
        assert_eq!(
            Responses::ntlm(&hash, CHALLENGE).nt,
            [
                0x67, 0xC4, 0x30, 0x11, 0xF3, 0x02, 0x98, 0xA2, 0xAD, 0x35, 0xEC, 0xE6, 0x4F, 0x16, 0x33,
                0x1C, 0x44, 0xBD, 0xBE, 0xD9, 0x27, 0x84, 0x1F, 0x94
            ]
        );
        assert_eq!(
            Responses::lm(&password, CodePage::default(), CHALLENGE).lm,
            [
                0x98, 0xDE, 0xF7, 0xB8, 0x7F, 0x88, 0xAA, 0x5D, 0xAF, 0xE2, 0xDF, 0x77, 0x96, 0x88, 0xA1,
                0x72, 0xDE, 0xF1, 0x1C, 0x7D, 0x5C, 0xCD, 0xEF, 0x13
            ]
        );
        assert_eq!(
            ntlm_key(&hash).full()[..4],
            [0xD8, 0x72, 0x62, 0xB0],
            "4.2.2.1.3, session base key"
        );
    }

    #[test]
    fn only_allowed_proofs_are_accepted() {
        let (user, domain) = texts();
        let names = (&user, &domain);
        let hash = ntlm::nt_hash(&Password::from("secret"));
        let wrong = ntlm::nt_hash(&Password::from("wrong"));
        let strong = WeakAuth::default();
        let v2 = Responses::ntlm_v2(&hash, names, CHALLENGE, [7; 8], FileTime(1));
        let check = |responses: &Responses, hash: &NtHash, weak| {
            verify(hash, names, CHALLENGE, (&responses.lm, &responses.nt), weak)
        };
        let (method, key) = check(&v2, &hash, strong).unwrap();
        assert_eq!(
            (method, key.full()),
            (Method::NtlmV2, v2.key.as_ref().unwrap().full())
        );
        assert!(check(&v2, &wrong, strong).is_none());
        let lm_only = Responses {
            nt: Vec::new(),
            ..Responses::ntlm_v2(&hash, names, CHALLENGE, [7; 8], FileTime(1))
        };
        assert_eq!(check(&lm_only, &hash, strong).unwrap().0, Method::LmV2);
        let v1 = Responses::ntlm(&hash, CHALLENGE);
        assert!(check(&v1, &hash, strong).is_none(), "not unless allowed");
        let weak = WeakAuth { ntlm: true, ..strong };
        assert_eq!(check(&v1, &hash, weak).unwrap().0, Method::Ntlm);
        assert!(check(&v1, &wrong, weak).is_none());
        let lm = Responses::lm(&Password::from("secret"), CodePage::default(), CHALLENGE);
        assert!(check(&lm, &hash, weak).is_none());
        let none = Responses::anonymous();
        assert!(check(&none, &hash, weak).is_none());
    }

    #[test]
    fn clear_text_is_a_string_of_the_code_page() {
        let page = CodePage::default();
        assert_eq!(Responses::clear_text(&Password::from("ab"), page).lm, b"ab\0");
    }
}
