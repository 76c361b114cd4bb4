use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const BOTH: [NameMapping; 2] = [NameMapping::None, NameMapping::Sfm];

fn wire(name: &[u8], mapping: NameMapping) -> Vec<u16> {
    to_wire(name, mapping).units().to_vec()
}

/// Parts of surrogates and of `é`.
const BYTES: &[&[u8]] = &[
    b"\xED\xA0\x80",
    b"\xED\xB0\x80",
    b"\xED",
    b"\xA0",
    b"\x80",
    b"\xC3",
    b"\xA9",
];
/// Characters that escape those bytes, and the UTF-8 bytes of U+EF80.
const CHARS: &[u32] = &[0xEFED, 0xEFA0, 0xEF80, 0xEFB0, 0xEFC3, 0xEFA9, 0xEFEE, 0xEFBE];

/// Generates bytes that often look like the mapping of others.
fn names() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        prop::sample::select(BYTES).prop_map(<[u8]>::to_vec),
        (0xEF80..=0xEFFF_u32).prop_map(utf8),
        prop::sample::select(CHARS).prop_map(utf8),
        (0xF000..=0xF02A_u32).prop_map(utf8),
        prop::sample::select(&b"\"*:<>?\\|. \x01\x1Fa"[..]).prop_map(|byte| vec![byte]),
        any::<char>().prop_map(|c| utf8(u32::from(c))),
        escaped(),
    ];
    vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
}

fn utf8(c: u32) -> Vec<u8> {
    let mut out = Vec::new();
    push_char(&mut out, c);
    out
}

/// Items as such, escaped up to three times.
fn escaped() -> impl Strategy<Value = Vec<u8>> {
    let tokens = prop_oneof![
        (0x80..=0xFF_u8).prop_map(Token::Byte),
        (0x80..0xFFFF_u32).prop_map(Token::Char),
        (0xF001..0xF02A_u32).prop_map(Token::Char),
        (0xD7FF..0xE001_u32).prop_map(Token::Char),
    ];
    (0..=3_usize, tokens).prop_map(|(times, token)| Item { times, token }.bytes())
}

/// Generates units that often look like a mapping.
fn units() -> impl Strategy<Value = Vec<u16>> {
    let pieces = prop_oneof![
        names().prop_map(|name| wire(&name, NameMapping::None)),
        any::<u16>().prop_map(|unit| vec![unit]),
        (0xD800..=0xDFFF_u16).prop_map(|unit| vec![unit]),
    ];
    vec(pieces, 0..4).prop_map(|pieces| pieces.concat())
}

#[test]
fn ordinary_names_are_unicode() {
    for name in ["a.txt", "Ä ö", "日本", "😀", "\u{E000}\u{EF7F}\u{F030}"] {
        for mapping in BOTH {
            assert_eq!(to_wire(name.as_bytes(), mapping), Text::from(name));
            assert_eq!(from_wire(&Text::from(name), mapping), name.as_bytes());
        }
    }
}

#[test]
fn raw_bytes_and_surrogates_are_mapped() {
    let none = NameMapping::None;
    assert_eq!(wire(b"a\xFFb", none), [0x61, 0xEFFF, 0x62]);
    assert_eq!(wire(b"\xED\xA0\x80a", none), [0xD800, 0x61]);
    // A pair is not the character that it would be.
    let pair = b"\xED\xA0\x80\xED\xB0\x80";
    assert_eq!(wire(pair, none), [0xEFED, 0xEFA0, 0xEF80, 0xEFED, 0xEFB0, 0xEF80]);
    assert_eq!(wire("\u{10000}".as_bytes(), none), [0xD800, 0xDC00]);
    // A character that looks like a mapped byte stays distinct from one.
    assert_eq!(wire("\u{EF80}".as_bytes(), none), [0xEFEE, 0xEFBE, 0xEF80]);
    // `é` is never mapped to bytes, so characters that would escape it stay unchanged.
    assert_eq!(wire("\u{EFC3}\u{EFA9}".as_bytes(), none), [0xEFC3, 0xEFA9]);
}

/// Linux `fs/smb/client` names: `SFM_DOUBLEQUOTE` to `SFM_PERIOD`.
#[test]
fn sfm_maps_forbidden_characters() {
    let sfm = NameMapping::Sfm;
    assert_eq!(
        wire(b"\"*:<>?\\|", sfm),
        [0xF020, 0xF021, 0xF022, 0xF023, 0xF024, 0xF025, 0xF026, 0xF027]
    );
    assert_eq!(wire(b" a.b ", sfm), [0x20, 0x61, 0x2E, 0x62, 0xF028]);
    assert_eq!(wire(b"...", sfm), [0x2E, 0x2E, 0xF029]);
    assert_eq!(wire(b"\x01\x1F\x20a", sfm), [0xF001, 0xF01F, 0x20, 0x61]);
    assert_eq!(wire(b"a:b", NameMapping::None), [0x61, 0x3A, 0x62]);
    assert_eq!(wire("\u{F022}".as_bytes(), sfm), [0xEFEF, 0xEF80, 0xEFA2]);
    assert_eq!(wire("\u{F028}a".as_bytes(), sfm), [0xF028, 0x61]);
}

/// A server cannot make a name that steps out of its directory from characters that look harmless.
#[test]
fn dot_names_stay_unchanged() {
    for name in [".", "..", "\u{F029}", ".\u{F029}", "\u{EFEF}\u{EF80}\u{EFA9}"] {
        for mapping in BOTH {
            let text = Text::from(name);
            assert_eq!(from_wire(&text, mapping), name.as_bytes());
            assert_eq!(to_wire(name.as_bytes(), mapping), text);
        }
    }
}

#[test]
fn names_that_windows_forbids_are_reported() {
    let error = |name: &str| check(&Text::from(name)).err();
    assert_eq!(error("a b.c"), None);
    assert_eq!(error(""), Some(NameError::NotAName));
    assert_eq!(error(".."), Some(NameError::NotAName));
    assert_eq!(error("a/b"), Some(NameError::Character('/')));
    assert_eq!(error("a\0"), Some(NameError::Character('\0')));
    assert_eq!(error("a\\b"), Some(NameError::Character('\\')));
    assert_eq!(error("a:b"), Some(NameError::Character(':')));
    assert_eq!(error("..."), Some(NameError::Ending));
    assert_eq!(error("a "), Some(NameError::Ending));
    for device in ["con", "NUL.txt", "Com1", "lpt² .a.b", "CONIN$"] {
        assert_eq!(error(device), Some(NameError::Device), "{device}");
    }
    for fine in ["console", "com", "com0", "com12", "nul1", "xcon"] {
        assert_eq!(error(fine), None, "{fine}");
    }
    assert_eq!(check(&to_wire(b"a:?\x01.", NameMapping::Sfm)), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_linux_name_round_trips(name in names()) {
        for mapping in BOTH {
            prop_assert_eq!(&from_wire(&to_wire(&name, mapping), mapping), &name, "{:?}", mapping);
        }
    }

    #[test]
    fn every_server_name_round_trips(units in units()) {
        let text = Text::from_units(units);
        prop_assert_eq!(&to_wire(&from_wire(&text, NameMapping::None), NameMapping::None), &text);
        let last = text.units().last().copied().unwrap_or_default();
        let is_legal = text.units().iter().all(|unit| private(u32::from(*unit), false).is_none())
            && private(u32::from(last), true).is_none();
        if is_legal {
            let back = to_wire(&from_wire(&text, NameMapping::Sfm), NameMapping::Sfm);
            prop_assert_eq!(back.units(), text.units());
        }
    }

    #[test]
    fn mapped_names_are_allowed(name in names()) {
        let error = check(&to_wire(&name, NameMapping::Sfm));
        let is_reported = matches!(
            error,
            Ok(()) | Err(NameError::NotAName | NameError::Device | NameError::Character('/' | '\0'))
        );
        prop_assert!(is_reported, "{:?}", error);
    }

    #[test]
    fn text_in_utf8_is_left_alone(name in "[a-zäöüß日本😀 ]{0,20}[a-z]") {
        for mapping in BOTH {
            prop_assert_eq!(to_wire(name.as_bytes(), mapping), Text::from(name.as_str()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn plain_names_are_what_their_items_are(units in vec(prop_oneof![20 => 0x1F..0x80_u16, 1 => any::<u16>()], 0..8)) {
        let name = Text::from_units(units);
        for mapping in BOTH {
            prop_assert_eq!(from_wire(&name, mapping), from_items(&name, mapping));
        }
    }
}
