//! The order of a pass's records. Pure: the place of each request follows from its number, so any
//! number of workers can share a pass.

use crate::bench::cell::Pattern;
use crate::random::SplitMix64;

/// Distance of records in a strided pass: that of iozone (`-j`, its default).
pub const STRIDE: u64 = 17;
/// Rounds of the permutation; four of them make a pseudorandom one (Luby, Rackoff 1988).
const ROUNDS: usize = 4;

/// Order of the records of a pass; each occurs once.
#[derive(Clone, Debug)]
pub enum Order {
    /// From the first to the last.
    Sequential {
        /// Number of records.
        records: u64,
    },
    /// Every [`STRIDE`]th record, then those after them, until each was there.
    Strided {
        /// Number of records.
        records: u64,
    },
    /// In an order that follows from a seed.
    Random(Permutation),
}

impl Order {
    /// Returns the order of a pattern over so many records.
    pub fn of(pattern: Pattern, records: u64, seed: u64) -> Self {
        match pattern {
            Pattern::RandomRead | Pattern::RandomWrite => Self::Random(Permutation::new(records, seed)),
            Pattern::Strided => Self::Strided { records },
            _ => Self::Sequential { records },
        }
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        match self {
            Self::Sequential { records } | Self::Strided { records } => *records,
            Self::Random(permutation) => permutation.length,
        }
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the record of the request with this number, below [`len`](Self::len).
    pub fn at(&self, number: u64) -> u64 {
        match self {
            Self::Sequential { .. } => number,
            Self::Strided { records } => strided(number, *records),
            Self::Random(permutation) => permutation.at(number),
        }
    }
}

/// Returns the record of a request: column by column, where a column has every [`STRIDE`]th record.
fn strided(number: u64, records: u64) -> u64 {
    let (rows, longer) = (records / STRIDE, records % STRIDE);
    // The first columns have one row more.
    let in_longer = longer * (rows + 1);
    let (column, row) = if number < in_longer {
        (number / (rows + 1), number % (rows + 1))
    } else {
        let rest = number - in_longer;
        (longer + rest / rows.max(1), rest % rows.max(1))
    };
    column + row * STRIDE
}

/// A permutation of `0..length` by a seed, in constant memory: a Feistel network over the next larger
/// power of two, repeated while a value is outside.
#[derive(Clone, Debug)]
pub struct Permutation {
    length: u64,
    /// Bits of each half.
    bits: [u32; 2],
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// Returns the permutation of a seed.
    pub fn new(length: u64, seed: u64) -> Self {
        let bits = u64::BITS - length.saturating_sub(1).leading_zeros();
        // Even tiny networks need two halves.
        let bits = bits.max(2);
        let mut random = SplitMix64::new(seed);
        Self {
            length,
            bits: [bits / 2, bits - bits / 2],
            keys: std::array::from_fn(|_| random.next()),
        }
    }

    /// Returns the value at a place below the length.
    fn at(&self, place: u64) -> u64 {
        let mut value = place;
        // The network is a permutation of a domain less than four times as large, so its cycles
        // come back soon.
        loop {
            value = self.network(value);
            if value < self.length {
                return value;
            }
        }
    }

    fn network(&self, value: u64) -> u64 {
        // The halves may differ by one bit, and change places in each round.
        let [mut left_bits, mut right_bits] = self.bits;
        let (mut left, mut right) = (value >> right_bits, value & mask(right_bits));
        for key in self.keys {
            let mixed = mix(right ^ key) & mask(left_bits);
            (left, right) = (right, left ^ mixed);
            (left_bits, right_bits) = (right_bits, left_bits);
        }
        (left << right_bits) | right
    }
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The finisher of SplitMix64.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(order: &Order) -> Vec<u64> {
        (0..order.len()).map(|number| order.at(number)).collect()
    }

    #[test]
    fn a_strided_pass_is_that_of_iozone() {
        // 50 records, as strace shows `iozone -i 5 -r 4k -s 200k`.
        let order = Order::of(Pattern::Strided, 50, 1);
        let seen = all(&order);
        assert_eq!(seen[..9], [0, 17, 34, 1, 18, 35, 2, 19, 36]);
        let mut sorted = seen;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<u64>>());
    }

    #[test]
    fn a_seed_gives_one_order_and_another_seed_another() {
        let order = |seed| all(&Order::of(Pattern::RandomRead, 1000, seed));
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let neighbours = order(1).windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert!(neighbours < 10, "{neighbours} of 999 requests follow each other");
        assert_eq!(all(&Order::of(Pattern::Write, 3, 1)), [0, 1, 2]);
        assert!(Order::of(Pattern::Read, 0, 1).is_empty());
    }

    #[test]
    fn places_are_spread_over_the_whole_file() {
        // The first tenth of a pass that is cut must not lie in one part of the file.
        let order = Order::of(Pattern::RandomRead, 1 << 20, 7);
        let mut tenths = [0_u32; 10];
        for number in 0..100_000 {
            tenths[((order.at(number) * 10) >> 20) as usize] += 1;
        }
        assert!(
            tenths.iter().all(|count| (9_000..11_000).contains(count)),
            "{tenths:?}"
        );
    }

    proptest! {
        #[test]
        fn every_record_occurs_once(records in 1_u64..3000, seed: u64, pattern in 0_usize..Pattern::ALL.len()) {
            let mut seen = all(&Order::of(Pattern::ALL[pattern], records, seed));
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..records).collect::<Vec<u64>>());
        }
    }
}
