use proptest::prelude::*;
use ropeway_smb_wire::Text;

use super::*;
use crate::header::HEADER_LEN;
use crate::hostile;
use crate::wire::assembly::Assembly;

fn request<'a>(kind: Kind, parameters: &'a [u8], data: &'a [u8]) -> Request<'a> {
    Request {
        kind,
        name: match kind {
            Kind::Named => Str::unicode(&Text::from("\\PIPE\\LANMAN")),
            _ => Str::empty(true),
        },
        flags: if kind == Kind::Nt { 0 } else { 2 },
        timeout: if kind == Kind::Nt { 0 } else { 1000 },
        function: if kind == Kind::Nt { 4 } else { 0 },
        setup: vec![5, 6, 7],
        limits: Limits {
            parameters: 10,
            data: 1000,
            setup: 2,
        },
        totals: Totals {
            parameters: parameters.len(),
            data: data.len(),
        },
        parameters,
        data,
    }
}

fn piece<'a>(parameters: &'a [u8], data: &'a [u8]) -> Piece<'a> {
    Piece {
        totals: Totals {
            parameters: 100,
            data: 200,
        },
        setup: Vec::new(),
        parameters: (3, parameters),
        data: (4, data),
    }
}

const KINDS: [Kind; 3] = [Kind::Named, Kind::Two, Kind::Nt];

proptest! {
    #[test]
    fn requests_round_trip(parameters: Vec<u8>, data: Vec<u8>) {
        for kind in KINDS {
            let request = request(kind, &parameters, &data);
            let bytes = hostile::message(|w| request.encode(w));
            let block = Block::first(&bytes).unwrap();
            prop_assert_eq!(Request::decode(kind, &block, true), Ok(request));
        }
    }

    #[test]
    fn pieces_round_trip(parameters: Vec<u8>, data: Vec<u8>) {
        for kind in KINDS {
            let piece = piece(&parameters, &data);
            let response = Piece { setup: vec![1, 2], ..piece.clone() };
            let bytes = hostile::message(|w| response.encode_response(kind, w));
            let block = Block::first(&bytes).unwrap();
            prop_assert_eq!(Piece::decode_response(kind, &block), Ok(Some(response)));
            let bytes = hostile::message(|w| piece.encode_secondary(kind, 9, w));
            let block = Block::first(&bytes).unwrap();
            prop_assert_eq!(Piece::decode_secondary(kind, &block), Ok(piece));
        }
    }

    /// Samba's clients refuse an offset behind the end, also of nothing.
    #[test]
    fn offsets_lie_in_the_message(parameters: Vec<u8>, has_data: bool) {
        let data: &[u8] = if has_data { b"data" } else { b"" };
        let response = Piece { setup: Vec::new(), ..piece(&parameters, data) };
        let bytes = hostile::message(|w| response.encode_response(Kind::Two, w));
        let block = Block::first(&bytes).unwrap();
        let words = ResponseWords::read(&mut block.words()).unwrap();
        for (offset, count) in [
            (words.parameter_offset, words.parameter_count),
            (words.data_offset, words.data_count),
        ] {
            prop_assert!(usize::from(offset) + usize::from(count) <= bytes.len(), "{words:?}");
        }
    }

    /// A whole cut anywhere comes together again, and never grows beyond what was announced.
    #[test]
    fn pieces_come_together(parameters: Vec<u8>, data: Vec<u8>, cuts in prop::collection::vec((0_usize..9, 0_usize..50), 1..20)) {
        let totals = Totals { parameters: parameters.len(), data: data.len() };
        let mut assembly = Assembly::new(totals);
        let (mut at, mut data_at) = (0, 0);
        let mut is_whole = totals == Totals::default();
        for (some, some_data) in cuts.iter().cycle().take(1000) {
            if is_whole {
                break;
            }
            let end = parameters.len().min(at + some + 1);
            let data_end = data.len().min(data_at + some_data);
            is_whole = assembly.add(&Piece {
                totals,
                setup: Vec::new(),
                parameters: (at, &parameters[at..end]),
                data: (data_at, &data[data_at..data_end]),
            }).unwrap();
            (at, data_at) = (end, data_end);
        }
        if is_whole {
            prop_assert_eq!(assembly.into_parts(), (parameters, data));
        } else {
            prop_assert!(assembly.len() <= parameters.len() + data.len());
        }
    }
}

#[test]
fn pieces_out_of_order_or_beyond_the_whole_are_refused() {
    let mut assembly = Assembly::new(Totals {
        parameters: 4,
        data: 4,
    });
    let add = |assembly: &mut Assembly, at, data: &[u8], total| {
        assembly.add(&Piece {
            totals: Totals {
                parameters: 4,
                data: total,
            },
            data: (at, data),
            ..Piece::default()
        })
    };
    assert!(add(&mut assembly, 1, b"x", 4).is_err(), "not at the end");
    assert!(add(&mut assembly, 0, b"12345", 4).is_err(), "more than all");
    assert!(
        add(&mut assembly, 0, b"12345", 400).is_err(),
        "totals do not rise"
    );
    assert!(
        add(&mut assembly, usize::MAX, b"1", 4).is_err(),
        "displacements do not wrap"
    );
    assert_eq!(add(&mut assembly, 0, b"12", 4), Ok(false));
    assert_eq!(assembly.len(), 2);
}

#[test]
fn an_interim_response_is_empty() {
    let bytes = hostile::message(crate::wire::close::encode_empty);
    let block = Block::first(&bytes).unwrap();
    assert_eq!(Piece::decode_response(Kind::Two, &block), Ok(None));
}

#[test]
fn hostile_bytes_never_panic() {
    for kind in KINDS {
        let bytes = hostile::message(|w| request(kind, b"parameters", b"data").encode(w));
        hostile::attack(&bytes, HEADER_LEN, |bytes| {
            Block::first(bytes).is_ok_and(|block| Request::decode(kind, &block, true).is_ok())
        });
        let bytes = hostile::message(|w| piece(b"parameters", b"data").encode_response(kind, w));
        hostile::attack(&bytes, HEADER_LEN, |bytes| {
            let mut assembly = Assembly::new(Totals {
                parameters: 20,
                data: 20,
            });
            if let Ok(block) = Block::first(bytes) {
                _ = Piece::decode_secondary(kind, &block);
                if let Ok(Some(piece)) = Piece::decode_response(kind, &block) {
                    _ = assembly.add(&piece);
                }
            }
            assert!(assembly.len() <= 40);
        });
    }
}
