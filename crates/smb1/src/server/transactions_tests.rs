use proptest::prelude::*;
use ropeway_smb_wire::Writer;

use super::*;
use crate::hostile;

fn primary(totals: Totals, parameters: &[u8], data: &[u8]) -> Vec<u8> {
    hostile::message(|w| {
        Request {
            kind: Kind::Two,
            name: Str::empty(true),
            flags: 0,
            timeout: 0,
            function: 0,
            setup: vec![1],
            limits: Limits::default(),
            totals,
            parameters,
            data,
        }
        .encode(w);
    })
}

fn admitted(header: Header) -> Admitted {
    Admitted { header, sequence: 1 }
}

fn secondary(piece: &Piece<'_>) -> Vec<u8> {
    hostile::message(|w: &mut Writer<'_>| piece.encode_secondary(Kind::Two, 0, w))
}

#[test]
fn a_request_in_pieces_is_put_together() {
    let totals = Totals {
        parameters: 6,
        data: 4,
    };
    let mut transactions = Transactions::default();
    let header = Header::default();
    let first = primary(totals, b"abc", b"");
    let begun = transactions.begin(Kind::Two, &admitted(header), &Block::first(&first).unwrap());
    assert_eq!(begun, Ok(None));
    let rest = Piece {
        totals,
        setup: Vec::new(),
        parameters: (3, b"def"),
        data: (0, b"1234"),
    };
    let other = Header { uid: 9, ..header };
    assert!(
        transactions
            .add(Kind::Nt, &header, &Block::first(&secondary(&rest)).unwrap())
            .is_err(),
        "no such transaction"
    );
    let whole = transactions
        .add(Kind::Two, &header, &Block::first(&secondary(&rest)).unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(
        (&whole.parameters[..], &whole.data[..]),
        (&b"abcdef"[..], &b"1234"[..])
    );
    assert!(transactions.is_empty());
    // A piece of another session ends the transaction.
    _ = transactions.begin(Kind::Two, &admitted(header), &Block::first(&first).unwrap());
    let taken = transactions.add(Kind::Two, &other, &Block::first(&secondary(&rest)).unwrap());
    assert_eq!(taken, Err(INVALID_SMB));
    assert!(transactions.is_empty());
}

#[test]
fn incomplete_transactions_are_bounded() {
    let totals = Totals {
        parameters: 9,
        data: 0,
    };
    let first = primary(totals, b"abc", b"");
    let block = Block::first(&first).unwrap();
    let mut transactions = Transactions::default();
    for mid in 0..100 {
        let header = Header {
            mid,
            ..Header::default()
        };
        let begun = transactions.begin(Kind::Two, &admitted(header), &block);
        assert_eq!(begun.is_ok(), usize::from(mid) < PENDING_MAX);
    }
    transactions.forget(0);
    assert!(transactions.is_empty());
}

#[test]
fn hostile_pieces_never_panic() {
    let totals = Totals {
        parameters: 6,
        data: 4,
    };
    let rest = Piece {
        totals,
        setup: Vec::new(),
        parameters: (3, b"def"),
        data: (0, b"1234"),
    };
    let (first, rest) = (primary(totals, b"abc", b""), secondary(&rest));
    let header = Header::default();
    hostile::attack(&first, HEADER_LEN, |bytes| {
        let mut transactions = Transactions::default();
        if let Ok(block) = Block::first(bytes) {
            _ = transactions.begin(Kind::Two, &admitted(header), &block);
            _ = transactions.begin(Kind::Nt, &admitted(header), &block);
            _ = transactions.begin(Kind::Named, &admitted(header), &block);
        }
        if let Ok(block) = Block::first(&rest) {
            _ = transactions.add(Kind::Two, &header, &block);
        }
    });
    hostile::attack(&rest, HEADER_LEN, |bytes| {
        let mut transactions = Transactions::default();
        _ = transactions.begin(Kind::Two, &admitted(header), &Block::first(&first).unwrap());
        if let Ok(block) = Block::first(bytes) {
            _ = transactions.add(Kind::Two, &header, &block);
        }
    });
}

proptest! {
    #[test]
    fn answers_fit_their_messages_and_come_together(
        parameters in prop::collection::vec(any::<u8>(), 0..3_000),
        data in prop::collection::vec(any::<u8>(), 0..70_000), max in 0_usize..70_000,
    ) {
        let answer = Answer { setup: vec![1], parameters: parameters.clone(), data: data.clone() };
        let mut assembly = Assembly::new(Totals { parameters: parameters.len(), data: data.len() });
        for piece in answer.pieces(max) {
            let bytes = hostile::message(|w| piece.encode_response(Kind::Nt, w));
            prop_assert!(bytes.len() <= max.max(1024));
            prop_assert!(assembly.add(&piece).is_ok());
        }
        prop_assert!(assembly.is_whole());
        prop_assert_eq!(assembly.into_parts(), (parameters, data));
    }
}
