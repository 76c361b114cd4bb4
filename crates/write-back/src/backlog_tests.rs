use super::*;

/// Near and far file as plain bytes, and the journal's data by record.
struct Bench {
    backlog: Backlog,
    near: Vec<u8>,
    far: Vec<u8>,
    data: Vec<Vec<u8>>,
    /// A planned round, its far effects so far, and how many pieces were written.
    under_way: Option<(Round, usize)>,
}

impl Bench {
    fn new(far: Vec<u8>) -> Self {
        Self {
            backlog: Backlog::new(far.len() as u64),
            near: far.clone(),
            far,
            data: Vec::new(),
            under_way: None,
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let place = Place {
            part: 0,
            number: self.data.len() as u64,
            at: 0,
            length: 0,
        };
        self.data.push(bytes.to_vec());
        let at = Timestamp(0);
        self.backlog.write(offset as u64, bytes.len() as u64, at, place);
        let end = offset + bytes.len();
        self.near.resize(self.near.len().max(end), 0);
        self.near[offset..end].copy_from_slice(bytes);
    }

    fn bytes_of(&self, piece: &Piece) -> Vec<u8> {
        let skip = piece.skip as usize;
        self.data[piece.place.number as usize][skip..skip + piece.length as usize].to_vec()
    }

    fn read(&self) -> Vec<u8> {
        let valid = (self.backlog.far_valid as usize).min(self.far.len());
        let mut bytes = self.far[..valid].to_vec();
        bytes.resize(self.backlog.size as usize, 0);
        for (at, piece) in self.backlog.pieces_in(0, u64::MAX) {
            bytes[at as usize..][..piece.length as usize].copy_from_slice(&self.bytes_of(&piece));
        }
        bytes
    }

    /// Does one step of a round.
    fn drain(&mut self, bytes_max: u64) {
        let Some((round, done)) = self.under_way.take() else {
            if self.backlog.is_empty() {
                return;
            }
            let round = self.backlog.plan(bytes_max);
            self.backlog.begin();
            self.far.truncate(round.far_valid as usize);
            self.under_way = Some((round, 0));
            return;
        };
        if let Some((at, piece)) = round.pieces.get(done) {
            let bytes = self.bytes_of(piece);
            let (start, end) = (*at as usize, (at + piece.length) as usize);
            self.far.resize(self.far.len().max(end), 0);
            self.far[start..end].copy_from_slice(&bytes);
            self.under_way = Some((round, done + 1));
            return;
        }
        if let Some((length, _)) = round.last {
            self.far.resize(length as usize, 0);
        }
        self.backlog.commit(round.mark, self.far.len() as u64);
    }
}

#[test]
fn the_near_content_is_right_at_every_step_and_arrives() {
    for seed in 0..4000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::new((0..random.usize(0..300)).map(|_| random.u8(1..)).collect());
        for step in 0..random.usize(1..80) {
            match random.u8(0..10) {
                0..=3 => {
                    let bytes: Vec<u8> = (0..random.usize(1..90)).map(|_| random.u8(1..)).collect();
                    bench.write(random.usize(0..350), &bytes);
                }
                4 => {
                    let length = random.usize(0..400);
                    bench.backlog.set_len(length as u64, Timestamp(0));
                    bench.near.resize(length, 0);
                }
                // A round that fails: the far file keeps what it got.
                5 => bench.under_way = None,
                _ => bench.drain(random.u64(1..200)),
            }
            assert!(bench.read() == bench.near, "{seed}: step {step}");
            let kept: u64 = bench
                .backlog
                .pieces_in(0, u64::MAX)
                .iter()
                .map(|(_, piece)| piece.length)
                .sum();
            assert_eq!(kept, bench.backlog.bytes(), "{seed}: step {step}");
        }
        while !bench.backlog.is_empty() {
            bench.drain(100);
        }
        assert!(bench.far == bench.near, "{seed}");
    }
}

#[test]
fn a_round_takes_the_oldest_records_first() {
    let mut bench = Bench::new(Vec::new());
    bench.write(100, &[1; 10]);
    bench.write(0, &[2; 10]);
    bench.write(105, &[3; 2]);
    let round = bench.backlog.plan(15);
    let starts: Vec<u64> = round.pieces.iter().map(|(at, _)| *at).collect();
    assert_eq!((starts, round.mark, round.last), (vec![100, 107, 0], 2, None));
    assert_eq!(bench.backlog.plan(100).mark, 3);
}

#[test]
fn what_only_the_far_file_has_is_known() {
    let mut bench = Bench::new(vec![1; 100]);
    assert_eq!(bench.backlog.only_far(), [(0, 100)]);
    bench.write(10, &[2; 10]);
    bench.write(90, &[2; 30]);
    assert_eq!(bench.backlog.only_far(), [(0, 10), (20, 70)]);
    bench.backlog.set_len(15, Timestamp(0));
    assert_eq!(bench.backlog.only_far(), [(0, 10)]);
    bench.backlog.set_len(0, Timestamp(0));
    assert_eq!(bench.backlog.only_far(), []);
}

#[test]
fn a_write_gives_its_own_time_and_a_set_time_stays() {
    let mut bench = Bench::new(Vec::new());
    bench.write(0, b"x");
    let set = NodeChange {
        modified: Some(Timestamp(7)),
        ..NodeChange::default()
    };
    bench.backlog.set(&set);
    assert_eq!(bench.backlog.plan(1).last.unwrap().1, set);
    bench.backlog.begin();
    bench.write(0, b"y");
    bench.backlog.commit(2, 1);
    assert!(!bench.backlog.is_empty());
    assert_eq!(bench.backlog.plan(9).last.unwrap().1.modified, Some(Timestamp(0)));
}
