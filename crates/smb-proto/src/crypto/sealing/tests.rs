use super::*;
use crate::testing::hex;
use proptest::prelude::*;

const CIPHERS: [Cipher; 4] = [
    Cipher::Aes128Ccm,
    Cipher::Aes128Gcm,
    Cipher::Aes256Ccm,
    Cipher::Aes256Gcm,
];

fn key(cipher: Cipher) -> Key {
    Key::new(vec![0x5A; cipher.key_len()])
}

#[test]
fn tickets_go_to_other_threads() {
    fn moved<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    moved::<SealTicket>();
    shared::<Opener>();
}

/// "Encryption in SMB 3.0: a protocol perspective": the WRITE request and its reply.
#[test]
fn smb30_ccm_example() {
    let nonce = hex("66E69A111892584FB5ED524A744DA3EE").try_into().unwrap();
    let ticket = SealTicket {
        key: Arc::new(AeadKey::new(
            Cipher::Aes128Ccm,
            &Key::new(hex("261B72350558F2E9DCF613070383EDBF")),
        )),
        nonce,
    };
    let mut message = hex("
        FE534D4240000100000000000900400008000000000000000400000000000000
        FFFE0000010000001100001400E4080000000000000000000000000000000000
        3100700017000000000000000000000015010000390000020100000039020000
        00000000000000007000000000000000536D623320656E6372797074696F6E20
        74657374696E67");
    let header = ticket.seal(SessionId(0x0008_E400_1400_0011), &mut message);
    let sealed = hex("
        FD534D4281A286535415445DAE393921E44FA42E66E69A111892584FB5ED524A
        744DA3EE87000000000001001100001400E4080025C8FEE16605A437832D1CD5
        2DA9F4645333482A175FE5384563F45FCDAFAEF38BC62BA4D5C62897996625A4
        4C29BE5658DE2E6117585779E7B59FFD971278D08580D7FA899E410E910EABF5
        AA1DB43050B33B49182637759AC15D84BFCDF5B6B238993C0F4CF4D6012023F6
        C627297075D84B7803912D0A9639634453595EF3E33FFE4E7AC2AB");
    assert_eq!(header[..], sealed[..52]);
    assert_eq!(message, sealed[52..]);

    let reply = hex("
        FD534D42A6015530A18F6D9AFFE22AFAE8E66484860000000000000011000014
        00E4080050000000000001001100001400E40800DBF46435C5F14169293CE079
        E344479BF670227E49873F458672C3098DAC467DD5809F369D67409166515787
        1483E01F7BECD02064EAC3E235F913668BBC2F097980D4B378F1993EFF6E60D1
        77309E5B");
    let opener = Opener::new(
        Cipher::Aes128Ccm,
        &Key::new(hex("8FE2B57EC34D2DB5B1A9727F526BBDB5")),
    );
    let mut message = reply[52..].to_vec();
    opener
        .open(reply[..52].try_into().unwrap(), &mut message)
        .unwrap();
    let expected = hex("
        FE534D4240000100000000000900210009000000000000000400000000000000
        FFFE0000010000001100001400E4080000000000000000000000000000000000
        11000000170000000000000000000000");
    assert_eq!(message, expected);
}

/// McGrew and Viega, "The Galois/Counter Mode of Operation", test cases 4 and 16.
#[test]
fn gcm_vectors() {
    let mut nonce = [0; 16];
    nonce[..12].copy_from_slice(&hex("cafebabefacedbaddecaf888"));
    let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let plain = hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
        1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
    for (cipher, key, sealed_start, tag) in [
        (
            Cipher::Aes128Gcm,
            "feffe9928665731c6d6a8f9467308308",
            "42831ec2217774244b7221b784d0d49c",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            Cipher::Aes256Gcm,
            "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            "522dc1f099567d07f47f37a32a84427d",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ] {
        let key = AeadKey::new(cipher, &Key::new(hex(key)));
        let mut message = plain.clone();
        assert_eq!(key.seal(&nonce, &aad, &mut message)[..], hex(tag));
        assert_eq!(message[..16], hex(sealed_start));
        key.open(&nonce, &aad, &hex(tag), &mut message).unwrap();
        assert_eq!(message, plain);
    }
}

#[test]
fn nonces_differ_and_end() {
    let mut sealer = Sealer::new(Cipher::Aes128Gcm, &key(Cipher::Aes128Gcm), 0);
    let mut other = Sealer::new(Cipher::Aes128Gcm, &key(Cipher::Aes128Gcm), 1);
    let first = sealer.ticket().unwrap().nonce;
    assert_ne!(first, sealer.ticket().unwrap().nonce);
    assert_ne!(first, other.ticket().unwrap().nonce);
    sealer.counter = Some(u64::MAX);
    sealer.ticket().unwrap();
    assert_eq!(sealer.ticket().unwrap_err(), NoncesExhausted);
    assert_eq!(sealer.ticket().unwrap_err(), NoncesExhausted);
}

proptest! {
    #[test]
    fn sealed_messages_open_and_damaged_ones_do_not(
        plain in proptest::collection::vec(any::<u8>(), 0..300),
        session_id: u64,
        damage: proptest::sample::Index,
        bit in 0..8,
    ) {
        for cipher in CIPHERS {
            let opener = Opener::new(cipher, &key(cipher));
            let mut sealer = Sealer::new(cipher, &key(cipher), 3);
            let mut message = plain.clone();
            let header = sealer.ticket().unwrap().seal(SessionId(session_id), &mut message);

            let mut whole = [&header[..], &message].concat();
            prop_assert_eq!(opener.open(&header, &mut message), Ok(()));
            prop_assert_eq!(&message, &plain);

            let at = damage.index(whole.len());
            whole[at] ^= 1_u8 << bit;
            let (header, message) = whole.split_first_chunk_mut().unwrap();
            // This holds for every bit: nonce-field bytes outside the cipher's nonce are
            // authenticated too.
            prop_assert_eq!(opener.open(header, message), Err(Unopenable));
        }
    }

    #[test]
    fn hostile_bytes_do_not_open(
        header: [u8; 32], more: [u8; 20], message in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut whole = [0; TRANSFORM_HEADER_LEN];
        whole[..32].copy_from_slice(&header);
        whole[32..].copy_from_slice(&more);
        for cipher in CIPHERS {
            prop_assert!(Opener::new(cipher, &key(cipher)).open(&whole, &mut message.clone()).is_err());
        }
    }
}
