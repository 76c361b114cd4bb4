use super::*;
use crate::hostile::{attack, structure};
use proptest::prelude::*;

fn texts() -> impl Strategy<Value = Text> {
    proptest::collection::vec(1_u16.., 0..20).prop_map(Text::from_units)
}

fn referrals() -> impl Strategy<Value = Referral> {
    (
        1_u16..=4,
        any::<bool>(),
        any::<u16>(),
        any::<u32>(),
        [texts(), texts(), texts()],
    )
        .prop_map(|(version, is_root, flags, time_to_live_s, [one, two, three])| {
            let flags = ReferralEntryFlags::from_bits_retain(flags);
            let target = if Referral::is_name_list(version, flags) {
                Target::Names {
                    special_name: one,
                    expanded_names: if flags.contains(ReferralEntryFlags::TARGET_SET_BOUNDARY) {
                        vec![two, three]
                    } else {
                        Vec::new()
                    },
                }
            } else if version == 1 {
                Target::Path {
                    dfs_path: Text::default(),
                    dfs_alternate_path: Text::default(),
                    network_address: one,
                }
            } else {
                Target::Path {
                    dfs_path: one,
                    dfs_alternate_path: two,
                    network_address: three,
                }
            };
            Referral {
                version,
                is_root,
                flags,
                time_to_live_s: if version == 1 { 0 } else { time_to_live_s },
                target,
            }
        })
}

proptest! {
    #[test]
    fn round_trip(
        max_referral_level: u16, request_file_name in texts(), path_consumed: u16, flags: u32,
        referrals in proptest::collection::vec(referrals(), 0..10),
    ) {
        let request = DfsReferralRequest { max_referral_level, request_file_name };
        prop_assert_eq!(DfsReferralRequest::decode(&structure(|w| request.encode(w))), Ok(request));
        let response = DfsReferralResponse { path_consumed, flags: ReferralHeaderFlags::from_bits_retain(flags), referrals };
        prop_assert_eq!(DfsReferralResponse::decode(&structure(|w| response.encode(w))), Ok(response));
    }
}

fn response(version: u16) -> DfsReferralResponse {
    let target = |server: &str| Referral {
        version,
        is_root: true,
        flags: ReferralEntryFlags::default(),
        time_to_live_s: if version == 1 { 0 } else { 300 },
        target: Target::Path {
            dfs_path: if version == 1 { "" } else { "\\d\\root" }.into(),
            dfs_alternate_path: if version == 1 { "" } else { "\\d\\root" }.into(),
            network_address: server.into(),
        },
    };
    DfsReferralResponse {
        path_consumed: 14,
        flags: ReferralHeaderFlags::REFERRAL_SERVERS | ReferralHeaderFlags::STORAGE_SERVERS,
        referrals: vec![target("\\one\\root"), target("\\two\\root")],
    }
}

/// Layout by [MS-DFSC] 2.2.5.3: entries of 34 bytes, strings behind them.
#[test]
fn version_3_is_laid_out_as_specified() {
    let bytes = structure(|w| response(3).encode(w));
    assert_eq!(bytes[..8], [14, 0, 2, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[8..20], [3, 0, 34, 0, 1, 0, 0, 0, 44, 1, 0, 0]);
    assert_eq!(bytes[20..26], [68, 0, 84, 0, 100, 0]);
    assert_eq!(bytes[42..46], [3, 0, 34, 0]);
    assert_eq!(bytes[76..80], *b"\\\0d\0");
}

#[test]
fn entries_without_a_guid_are_read() {
    let mut bytes = vec![0, 0, 1, 0, 2, 0, 0, 0];
    bytes.extend([3, 0, 18, 0, 0, 0, 0, 0, 9, 0, 0, 0, 18, 0, 0, 0, 18, 0]);
    bytes.extend(b"\\\0a\0\0\0");
    let response = DfsReferralResponse::decode(&bytes).unwrap();
    let path = Target::Path {
        dfs_path: "\\a".into(),
        dfs_alternate_path: "".into(),
        network_address: "\\a".into(),
    };
    assert_eq!(
        (
            response.referrals[0].time_to_live_s,
            &response.referrals[0].target
        ),
        (9, &path)
    );
}

#[test]
fn offsets_and_sizes_are_checked() {
    let good = structure(|w| response(3).encode(w));
    for (at, value, fault) in [
        (10, 17, Fault::Chain),
        (10, 255, Fault::Bounds),
        (20, 17, Fault::Bounds),
        (21, 0xFF, Fault::Bounds),
        (8, 5, Fault::Value),
        (8, 0, Fault::Value),
        (3, 2, Fault::Chain),
        (2, 9, Fault::Value),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(
            DfsReferralResponse::decode(&bytes).unwrap_err().fault,
            fault,
            "byte {at} = {value}"
        );
    }
    let mut endless = good;
    endless.truncate(endless.len() - 2);
    assert_eq!(
        DfsReferralResponse::decode(&endless).unwrap_err().fault,
        Fault::Truncated
    );
}

#[test]
fn hostile_bytes_never_panic() {
    for version in 1..=4 {
        attack(&structure(|w| response(version).encode(w)), 0, |bytes| {
            (
                DfsReferralResponse::decode(bytes).is_ok(),
                DfsReferralRequest::decode(bytes).is_ok(),
            )
        });
    }
    let names = DfsReferralResponse {
        path_consumed: 0,
        flags: ReferralHeaderFlags::default(),
        referrals: vec![Referral {
            version: 4,
            is_root: false,
            flags: ReferralEntryFlags::NAME_LIST_REFERRAL,
            time_to_live_s: 600,
            target: Target::Names {
                special_name: "\\example".into(),
                expanded_names: vec!["\\dc1".into(), "\\dc2".into()],
            },
        }],
    };
    let bytes = structure(|w| names.encode(w));
    assert_eq!(DfsReferralResponse::decode(&bytes), Ok(names));
    attack(&bytes, 0, |bytes| DfsReferralResponse::decode(bytes).is_ok());
}
