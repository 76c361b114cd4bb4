//! Twenty thousand opens of one file: no request scans all of them. With such scans the steps below
//! would take some 10^9 comparisons and minutes in a debug build; they take seconds.

use super::*;

const MANY: u64 = 20_000;

impl World {
    fn another(&mut self, number: u64) -> OpenRequest {
        OpenRequest {
            session: SessionId(number % 100),
            ..self.request()
        }
    }
}

#[test]
fn opens_of_one_file() {
    let mut world = world();
    let mut opens = Vec::new();
    for number in 0..MANY {
        let mut request = world.another(number);
        match number % 3 {
            0 => request.oplock = OplockLevel::Batch,
            1 => request.lease = Some(lease(7, RWH)),
            _ => {}
        }
        match world.outcome(&request) {
            OpenOutcome::Granted(granted) => opens.push(granted.open),
            OpenOutcome::Wait => {
                // The first open has all caching until the second is created.
                let batch = opens[0];
                world
                    .hub
                    .oplock_break_ack(Duration::ZERO, batch, OplockLevel::LevelII)
                    .unwrap();
                opens.push(world.open(&request).open);
            }
            OpenOutcome::Refused(status) => panic!("{status}"),
        }
        world.events();
    }
    let denied = OpenRequest {
        share_access: ALONE,
        ..world.request()
    };
    for _ in 0..MANY {
        assert_eq!(world.refused(&denied), NtStatus::SHARING_VIOLATION);
        world.events();
    }
    for open in opens.iter().take(1000) {
        world.write(*open);
        world.events();
    }
    for open in opens {
        let (now, waiter) = (world.now, world.waiter());
        let mode = (AccessMask::DELETE, ALONE);
        let prepared = world.hub.prepare_renaming_into(now, open, &file(1), mode, waiter);
        assert_eq!(prepared, BreakOutcome::Refused(NtStatus::SHARING_VIOLATION));
        world.close(open);
    }
    world.assert_empty();
}

/// Each open has its own lease and loses it to the first writer.
#[test]
fn leases_on_one_file() {
    let mut world = world();
    let mut opens = Vec::new();
    for number in 0..MANY {
        let mut request = world.another(number);
        let key = LeaseKey(u128::from(number + 1).to_le_bytes());
        request.access = READ;
        request.lease = Some(LeaseRequest { key, ..lease(1, RH) });
        opens.push(world.open(&request).open);
    }
    assert_eq!(world.events(), []);
    world.hub.changed_locally(world.now, 1, 1);
    assert_eq!(world.events().len() as u64, MANY);
    for open in opens {
        world.hub.changed_locally(world.now, 1, 2);
        world.close(open);
    }
    world.assert_empty();
}
