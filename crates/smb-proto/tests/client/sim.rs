//! Thousands of connections by seed: bytes cut anywhere, replies in any order, credits granted or
//! not, and the connection lost at any point.

use crate::peer::{Grant, Setup};
use crate::world::{World, anything, config, jobs, login};
use ropeway_smb_proto::client::{CompressionOffer, Config, Encryption, EndReason, Event, Signing};
use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_wire::negotiate::Dialect;

/// Returns every dialect with every protection it has.
pub(crate) fn ways() -> Vec<(Config, Setup)> {
    let mut ways = Vec::new();
    let mut add = |dialect, signing, cipher, encryption, required| {
        let sealing = Config {
            signing: if required {
                Signing::Required
            } else {
                Signing::Offered
            },
            encryption,
            ..config()
        };
        let setup = Setup {
            dialect,
            signing,
            cipher,
            signing_required: required,
            ..Setup::default()
        };
        ways.push((sealing, setup));
    };
    use Encryption::{Desired, Off};
    use SigningAlgorithm::{AesCmac, AesGmac, HmacSha256};
    for dialect in Dialect::ALL {
        for required in [true, false] {
            let signing = if dialect < Dialect::Smb300 {
                HmacSha256
            } else {
                AesCmac
            };
            add(dialect, signing, None, Off, required);
        }
    }
    for dialect in [Dialect::Smb300, Dialect::Smb302] {
        add(dialect, AesCmac, Some(Cipher::Aes128Ccm), Desired, true);
        add(dialect, AesCmac, Some(Cipher::Aes128Ccm), Off, true);
    }
    for signing in [HmacSha256, AesGmac] {
        add(Dialect::Smb311, signing, None, Off, true);
    }
    for cipher in [
        Cipher::Aes128Ccm,
        Cipher::Aes128Gcm,
        Cipher::Aes256Ccm,
        Cipher::Aes256Gcm,
    ] {
        add(Dialect::Smb311, AesGmac, Some(cipher), Desired, true);
        add(Dialect::Smb311, AesCmac, Some(cipher), Off, false);
    }
    let mut demanded = ways.last().unwrap().clone();
    demanded.1.encrypt_data = true;
    ways.push(demanded.clone());
    demanded.0.compression = CompressionOffer::On;
    demanded.1.compression = true;
    ways.push(demanded.clone());
    demanded.0.encryption = Off;
    demanded.1.encrypt_data = false;
    ways.push(demanded);
    ways
}

/// Returns the numbers of answered compounds, dropped compounds, cancels, and jobs.
fn live(mut config: Config, mut setup: Setup, seed: u64) -> (u32, u32, u32, u32) {
    let mut random = crate::Random::new(seed);
    setup.seed = seed;
    setup.late = [0, 30, 80][random.below(3)];
    setup.split = [0, 50][random.below(2)];
    setup.grant = [Grant::AsAsked, Grant::One, Grant::Starving][random.below(3)];
    setup.large_mtu = random.percent(80);
    config.credits_target = [1, 16, 512][random.below(3)];
    // Two of three connections use jobs, which are run at random times and in random order.
    config.jobs = [None, jobs(1), jobs(20_000)][random.below(3)];
    let diligence = [10, 50, 100][random.below(3)];
    let mut world = World::new(config, setup);
    world.diligence = diligence;
    world.chunk = [usize::MAX, 7000, 300][random.below(3)];
    world.client.log_in(login("anna", "secret")).unwrap();
    world.enter();
    let cut = random.percent(50).then(|| random.below(60));
    for step in 0..40 {
        if Some(step) == cut {
            break;
        }
        if random.percent(60) {
            anything(&mut world);
        }
        world
            .step()
            .unwrap_or_else(|misbehaved| panic!("seed {seed}: {misbehaved}"));
    }
    if cut.is_none() {
        world.settle();
        // Requests that only the end of the connection ends.
        let open: Vec<_> = world.open.keys().copied().collect();
        for ticket in open {
            world.client.cancel(ticket);
        }
        world.settle();
        assert!(
            world.open.is_empty(),
            "seed {seed}: {:?} {:?}",
            world.open,
            world.client
        );
        let credits = world.client.credits();
        assert_eq!(
            (credits.in_use, credits.asked, credits.wanted),
            (0, 0, 0),
            "seed {seed}"
        );
        assert!(world.peer.has_all_ids(), "seed {seed}: every request was sent");
    }
    world.client.closed();
    world.take_events();
    assert!(
        world.open.is_empty(),
        "seed {seed}: every ticket is answered or dropped"
    );
    assert!(
        matches!(world.events.last(), Some(Event::Ended(EndReason::Closed))),
        "seed {seed}"
    );
    assert_eq!(
        world.pool.available(),
        world.pool.slots(),
        "seed {seed}: every block comes back"
    );
    (world.replied, world.dropped, world.peer.cancels, world.jobs_run)
}

/// Returns the number of seeds: ROPEWAY_SEEDS, or the default.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("ROPEWAY_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(usual)
}

#[test]
fn thousands_of_links() {
    let ways = ways();
    let seeds = seeds(100);
    let mut totals = (0, 0, 0);
    let mut jobs = 0;
    for seed in 0..seeds {
        for (index, (config, setup)) in ways.iter().enumerate() {
            let (replied, dropped, cancels, run) =
                live(config.clone(), setup.clone(), seed * 1000 + index as u64);
            totals = (totals.0 + replied, totals.1 + dropped, totals.2 + cancels);
            jobs += run;
        }
    }
    let links = seeds as u32 * ways.len() as u32;
    println!("{links} links: (answered, dropped, cancelled) {totals:?}, {jobs} jobs");
    assert!(
        totals.0 > 5 * links && totals.1 > links && totals.2 > links / 4 && jobs > links,
        "the links are lived on"
    );
}
