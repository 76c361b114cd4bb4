//! What a session negotiates.

use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::negotiate_context as contexts;

use crate::chance::Random;
use crate::values::one_of;

/// Dialect and protection of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionKind {
    pub(crate) dialect: Dialect,
    pub(crate) signing: SigningAlgorithm,
    /// Cipher for everything after the login.
    pub(crate) cipher: Option<Cipher>,
    /// Offered compression algorithms, and whether chained messages are offered.
    pub(crate) compression: Option<(Algorithms, bool)>,
}

const CIPHERS: [Cipher; 4] = [
    Cipher::Aes128Gcm,
    Cipher::Aes128Ccm,
    Cipher::Aes256Gcm,
    Cipher::Aes256Ccm,
];

impl SessionKind {
    pub(crate) fn of(random: &mut Random) -> Self {
        let dialect = match random.below(10) {
            0 => Dialect::Smb202,
            1 => Dialect::Smb210,
            2 => one_of(random, &[Dialect::Smb300, Dialect::Smb302]),
            _ => Dialect::Smb311,
        };
        let mut kind = Self {
            dialect,
            signing: SigningAlgorithm::HmacSha256,
            cipher: None,
            compression: None,
        };
        if dialect >= Dialect::Smb300 {
            kind.signing = SigningAlgorithm::AesCmac;
            kind.cipher = random.percent(40).then_some(Cipher::Aes128Ccm);
        }
        if dialect == Dialect::Smb311 {
            let all = [
                SigningAlgorithm::AesGmac,
                SigningAlgorithm::AesCmac,
                SigningAlgorithm::HmacSha256,
            ];
            kind.signing = one_of(random, &all);
            kind.cipher = random.percent(50).then(|| one_of(random, &CIPHERS));
            kind.compression = random.percent(50).then(|| {
                let algorithms = Algorithms {
                    lz4: random.percent(60),
                    lznt1: random.percent(60),
                    pattern_v1: true,
                    zstd: random.percent(50),
                };
                (algorithms, random.percent(70))
            });
        }
        kind
    }

    /// Returns the group that the session is counted in.
    pub(crate) fn group(&self) -> &'static str {
        match (self.cipher, self.compression) {
            (None, None) => "frames signed",
            (None, Some(_)) => "frames signed and compressed",
            (Some(Cipher::Aes128Gcm), None) => "frames sealed, AES-128-GCM",
            (Some(Cipher::Aes128Ccm), None) => "frames sealed, AES-128-CCM",
            (Some(Cipher::Aes256Gcm), None) => "frames sealed, AES-256-GCM",
            (Some(Cipher::Aes256Ccm), None) => "frames sealed, AES-256-CCM",
            (Some(Cipher::Aes128Gcm), Some(_)) => "frames sealed and compressed, AES-128-GCM",
            (Some(Cipher::Aes128Ccm), Some(_)) => "frames sealed and compressed, AES-128-CCM",
            (Some(Cipher::Aes256Gcm), Some(_)) => "frames sealed and compressed, AES-256-GCM",
            (Some(Cipher::Aes256Ccm), Some(_)) => "frames sealed and compressed, AES-256-CCM",
        }
    }

    pub(crate) fn wire_cipher(&self) -> Option<contexts::Cipher> {
        self.cipher.map(|cipher| match cipher {
            Cipher::Aes128Ccm => contexts::Cipher::AES_128_CCM,
            Cipher::Aes128Gcm => contexts::Cipher::AES_128_GCM,
            Cipher::Aes256Ccm => contexts::Cipher::AES_256_CCM,
            Cipher::Aes256Gcm => contexts::Cipher::AES_256_GCM,
        })
    }

    pub(crate) fn wire_signing(&self) -> contexts::SigningAlgorithm {
        match self.signing {
            SigningAlgorithm::HmacSha256 => contexts::SigningAlgorithm::HMAC_SHA256,
            SigningAlgorithm::AesCmac => contexts::SigningAlgorithm::AES_CMAC,
            SigningAlgorithm::AesGmac => contexts::SigningAlgorithm::AES_GMAC,
        }
    }

    pub(crate) fn wire_compression(&self) -> Vec<contexts::CompressionAlgorithm> {
        use contexts::CompressionAlgorithm as Wire;
        let algorithms = self
            .compression
            .map(|(algorithms, _)| algorithms)
            .unwrap_or_default();
        [
            (Wire::LZ4, algorithms.lz4),
            (Wire::LZNT1, algorithms.lznt1),
            (Wire::PATTERN_V1, algorithms.pattern_v1),
            (Wire::OWN_ZSTD, algorithms.zstd),
        ]
        .into_iter()
        .filter_map(|(algorithm, has)| has.then_some(algorithm))
        .collect()
    }
}
