//! The random steps of the model test.

use proptest::prelude::*;

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Open {
        client: u8,
        file: u64,
        stream: bool,
        access: u8,
        share: u32,
        caching: u8,
        durable: u8,
        overwrites: bool,
        delete_on_close: bool,
    },
    Close(u8),
    Lock {
        open: u8,
        offset: u64,
        length: u64,
        exclusive: bool,
        waits: bool,
    },
    Unlock(u8),
    Acknowledge {
        which: u8,
        kept: u32,
    },
    BreakTrigger {
        open: u8,
        why: u8,
    },
    Delete(u8),
    Disconnect(u8),
    Reconnect(u8),
    Forget(u8),
    Pass(u16),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let open = (
        0..3_u8,
        0..2_u64,
        0..4_u8,
        0..6_u8,
        0..16_u32,
        0..12_u8,
        any::<(u8, u8)>(),
    )
        .prop_map(
            |(client, file, stream, access, share, caching, (flags, durable))| Step::Open {
                client,
                file,
                stream: stream == 0,
                access,
                // Mostly shared.
                share: if share > 7 { 7 } else { share },
                caching,
                durable: durable % 3,
                overwrites: flags % 8 == 0,
                delete_on_close: flags % 16 == 1,
            },
        );
    let lock = (any::<u8>(), 0..6_u64, 0..4_u64, any::<(bool, bool)>()).prop_map(
        |(open, offset, length, (exclusive, waits))| Step::Lock {
            open,
            offset,
            length,
            exclusive,
            waits,
        },
    );
    prop_oneof![
        6 => open,
        3 => any::<u8>().prop_map(Step::Close),
        4 => lock,
        2 => any::<u8>().prop_map(Step::Unlock),
        4 => (any::<u8>(), 0..8_u32).prop_map(|(which, kept)| Step::Acknowledge { which, kept }),
        2 => (any::<u8>(), 0..6_u8).prop_map(|(open, why)| Step::BreakTrigger { open, why }),
        1 => any::<u8>().prop_map(Step::Delete),
        1 => any::<u8>().prop_map(Step::Disconnect),
        1 => any::<u8>().prop_map(Step::Reconnect),
        1 => any::<u8>().prop_map(Step::Forget),
        1 => any::<u16>().prop_map(Step::Pass),
    ]
}
