//! Jobs on threads: a server's signed and sealed answers, computed where they are and by two workers, are the same. With
//! more than one round it tells whether workers pay:
//!
//! ```text
//! ROPEWAY_SEEDS=24 cargo test --release -p ropeway-smb-proto --test client pays -- --nocapture
//! ```

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::peer::Setup;
use crate::world::{Kind, World, config, jobs};
use ropeway_smb_proto::client::{Chain, Config, CryptoDone, CryptoJob, Encryption};
use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_wire::FileId;
use ropeway_smb_wire::negotiate::Dialect;

/// READs at once, where time is told.
const READS: usize = 60;
/// READs at once, where there is one round.
const READS_FEW: usize = 4;
const WORKERS: usize = 2;

struct Workers {
    jobs: mpsc::Sender<CryptoJob>,
    done: mpsc::Receiver<CryptoDone>,
    out: usize,
}

impl Workers {
    fn start() -> Self {
        let (jobs, taken) = mpsc::channel::<CryptoJob>();
        let (handed_in, done) = mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..WORKERS {
            let (taken, handed_in) = (Arc::clone(&taken), handed_in.clone());
            std::thread::spawn(move || {
                let next = || taken.lock().unwrap().recv().ok();
                while let Some(job) = next() {
                    if handed_in.send(job.run()).is_err() {
                        return;
                    }
                }
            });
        }
        Self { jobs, done, out: 0 }
    }

    /// As a driver does: what is done is taken, and as much is given as there are workers.
    fn turn(&mut self, world: &mut World, waits: bool) {
        let first = waits.then(|| self.done.recv().unwrap());
        for done in first.into_iter().chain(self.done.try_iter()) {
            world.client.job_done(world.now, done).unwrap();
            self.out -= 1;
        }
        while self.out < WORKERS
            && let Some(job) = world.client.poll_job()
        {
            self.jobs.send(job).unwrap();
            self.out += 1;
        }
    }
}

/// How long it takes to receive the answers to some READs.
fn receive(world: &mut World, (reads, length): (usize, usize), workers: &mut Workers) -> Duration {
    for _ in 0..reads {
        let read = world.read(FileId::default(), 0, length).unwrap();
        world
            .submit(Chain::one(read), vec![Kind::Read(0, length)])
            .unwrap();
    }
    while let Some(transmit) = world.client.poll_transmit() {
        transmit
            .parts
            .iter()
            .for_each(|part| world.peer.feed(part.as_slice()));
    }
    let bytes = std::mem::take(&mut world.peer.output);
    let mut rest = &bytes[..];
    let start = Instant::now();
    while !rest.is_empty() || workers.out > 0 {
        workers.turn(world, rest.is_empty());
        let receive = world.client.receive();
        let mut count = 0;
        for room in [receive.first, receive.second] {
            let (now, later) = rest.split_at(room.len().min(rest.len()));
            room[..now.len()].copy_from_slice(now);
            count += now.len();
            rest = later;
        }
        world.client.received(world.now, count).unwrap();
    }
    let took = start.elapsed();
    world.take_events();
    assert!(world.open.is_empty());
    took
}

#[test]
fn by_algorithm_and_length() {
    use SigningAlgorithm::{AesCmac, AesGmac, HmacSha256};
    let rounds = crate::sim::seeds(1);
    let reads = if rounds > 1 { READS } else { READS_FEW };
    let mut workers = Workers::start();
    for (dialect, signing, cipher) in [
        (Dialect::Smb210, HmacSha256, None),
        (Dialect::Smb300, AesCmac, None),
        (Dialect::Smb300, AesCmac, Some(Cipher::Aes128Ccm)),
        (Dialect::Smb311, AesGmac, None),
        (Dialect::Smb311, AesGmac, Some(Cipher::Aes128Gcm)),
    ] {
        for length in [64 << 10, 128 << 10, 256 << 10] {
            let mut best = [Duration::MAX; 2];
            for seed in 0..rounds {
                for (best, jobs) in best.iter_mut().zip([None, jobs(1000)]) {
                    let encryption = match cipher {
                        Some(_) => Encryption::Desired,
                        None => Encryption::Off,
                    };
                    let config = Config {
                        encryption,
                        credits_target: 8000,
                        jobs,
                        ..config()
                    };
                    let setup = Setup {
                        dialect,
                        signing,
                        cipher,
                        seed,
                        ..Setup::default()
                    };
                    let mut world = World::ready(config, setup);
                    receive(&mut world, (reads, length), &mut workers);
                    *best = receive(&mut world, (reads, length), &mut workers).min(*best);
                }
            }
            let [inline, shared] = best.map(|took| (reads * length) as f64 / 1e6 / took.as_secs_f64());
            println!(
                "{signing:?} {cipher:?} {} KiB: {inline:.0} MB/s, by workers {shared:.0} MB/s",
                length >> 10
            );
        }
    }
}
