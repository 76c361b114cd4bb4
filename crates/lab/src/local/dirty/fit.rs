//! Finds the two modes of delayed writing in a curve, and computes the article's model. Pure.

use serde::Serialize;

/// Least ratio of the two rates. Below it, cache and device cannot be told apart.
const SLOWER_MIN: f64 = 2.0;
/// Least share of one line's squared error that two lines must remove (a guess; real curves remove more
/// than 99 %).
const BETTER_MIN: f64 = 0.75;
/// Least share of all seconds by which the second mode is longer than at the rate of the first. Less is
/// a stall near the end (a guess; the article's example has more than 90 %).
const LONGER_MIN: f64 = 0.2;
/// Least share of all points in either mode.
const SHARE_MIN: f64 = 0.02;
/// Least number of points for a fit.
const POINTS_MIN: usize = 8;

/// Two rates and the threshold between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Modes {
    /// Bytes a second up to the threshold.
    pub memory_bps: f64,
    /// Bytes written when writers began to wait.
    pub threshold_bytes: f64,
    /// Bytes a second above the threshold.
    pub device_bps: f64,
}

/// Shape of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "shape")]
pub enum Shape {
    /// Two modes, as in the article.
    TwoModes(Modes),
    /// One rate from start to end.
    OneMode {
        /// Bytes a second.
        bps: f64,
    },
}

impl Shape {
    /// Returns the two modes, if there are two.
    pub fn modes(self) -> Option<Modes> {
        match self {
            Self::TwoModes(modes) => Some(modes),
            Self::OneMode { .. } => None,
        }
    }
}

/// Fits seconds over bytes by a bent line through the origin: seconds = b / memory up to the threshold,
/// plus (b - threshold) / device above it. The bend is the point with the least squared error; prefix
/// sums make the search linear in the number of points. Points are bytes and seconds, both rising.
/// `None` if there are too few.
pub fn fit(points: &[[f64; 2]]) -> Option<Shape> {
    let &[bytes, seconds] = points.last()?;
    if points.len() < POINTS_MIN || !(bytes > 0.0 && seconds > 0.0) {
        return None;
    }
    let one = Shape::OneMode { bps: bytes / seconds };
    let scaled: Vec<[f64; 2]> = points.iter().map(|[b, s]| [b / bytes, s / seconds]).collect();
    let all = Sums::of(&scaled);
    let straight = all.tt - all.xt * all.xt / all.xx;
    let margin = ((points.len() as f64 * SHARE_MIN) as usize).max(2);
    let mut left = Sums::of(&scaled[..margin - 1]);
    let mut best: Option<(f64, f64, [f64; 2])> = None;
    for point in &scaled[margin - 1..scaled.len() - margin] {
        left.add(*point);
        let bend = point[0];
        if let Some((error, slopes)) = bent(&left, &all, bend)
            && best.is_none_or(|(least, ..)| error < least)
        {
            best = Some((error, bend, slopes));
        }
    }
    let Some((error, bend, [first, second])) = best else {
        return Some(one);
    };
    let longer = (1.0 - bend) * (second - first);
    if second < first * SLOWER_MIN || longer < LONGER_MIN || error > straight * (1.0 - BETTER_MIN) {
        return Some(one);
    }
    Some(Shape::TwoModes(Modes {
        memory_bps: bytes / seconds / first,
        threshold_bytes: bend * bytes,
        device_bps: bytes / seconds / second,
    }))
}

/// Returns the seconds of the article's model: bytes below the threshold at the rate of memory, the rest
/// at the rate of the device.
pub fn model_seconds(bytes: f64, modes: &Modes) -> f64 {
    let cached = bytes.min(modes.threshold_bytes);
    cached / modes.memory_bps + (bytes - cached) / modes.device_bps
}

/// Sums over points: x bytes, t seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    x: f64,
    t: f64,
    xx: f64,
    xt: f64,
    tt: f64,
}

impl Sums {
    fn of(points: &[[f64; 2]]) -> Self {
        let mut sums = Self::default();
        points.iter().for_each(|point| sums.add(*point));
        sums
    }

    fn add(&mut self, [x, t]: [f64; 2]) {
        self.n += 1.0;
        self.x += x;
        self.t += t;
        self.xx += x * x;
        self.xt += x * t;
        self.tt += t * t;
    }
}

/// Least squares of t = a u + c v with u = min(x, bend) and v = max(x - bend, 0). Returns the squared
/// error, and a and c in seconds for each byte. `None` if a or c is not positive.
fn bent(left: &Sums, all: &Sums, bend: f64) -> Option<(f64, [f64; 2])> {
    let (n, x, t) = (all.n - left.n, all.x - left.x, all.t - left.t);
    let (xx, xt) = (all.xx - left.xx, all.xt - left.xt);
    let uu = left.xx + n * bend * bend;
    let uv = bend * (x - n * bend);
    let vv = xx - 2.0 * bend * x + n * bend * bend;
    let (ut, vt) = (left.xt + bend * t, xt - bend * t);
    let determinant = uu * vv - uv * uv;
    if determinant <= 0.0 {
        return None;
    }
    let (a, c) = (
        (ut * vv - vt * uv) / determinant,
        (vt * uu - ut * uv) / determinant,
    );
    (a > 0.0 && c > 0.0).then_some((all.tt - a * ut - c * vt, [a, c]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::SplitMix64;

    const MIB: f64 = 1_048_576.0;

    /// Writes of 1 MiB, one after the other. Each takes the time of its mode, more or less, and some stall.
    /// The writes after a stall are faster, since the rate of the device stays the same.
    fn curve(modes: &Modes, writes: usize, noise: f64, seed: u64) -> Vec<[f64; 2]> {
        let mut random = SplitMix64::new(seed);
        let (mut at, mut late) = (0.0, 0.0);
        let mut points = Vec::new();
        for write in 1..=writes {
            let bytes = write as f64 * MIB;
            let due = model_seconds(bytes, modes);
            let span = due - model_seconds(bytes - MIB, modes);
            late = (late - span).max(0.0);
            if random.happens(0.01) {
                late += span * 20.0 * noise;
            }
            let wanted = due + late + span * noise * (random.fraction() * 2.0 - 1.0);
            at = f64::max(at + span * 0.01, wanted);
            points.push([bytes, at]);
        }
        points
    }

    fn near(found: f64, wanted: f64, part: f64) -> bool {
        (found / wanted - 1.0).abs() <= part
    }

    proptest! {
        #[test]
        fn both_modes_are_found_under_noise(
            share in 0.1_f64..0.8,
            memory in 300e6_f64..4e9,
            slower in 4.0_f64..200.0,
            noise in 0.0_f64..0.5,
            writes in 400_usize..3000,
            seed: u64,
        ) {
            let modes = Modes {
                memory_bps: memory,
                threshold_bytes: share * writes as f64 * MIB,
                device_bps: memory / slower,
            };
            let points = curve(&modes, writes, noise, seed);
            let found = fit(&points);
            let Some(Shape::TwoModes(found)) = found else {
                return Err(TestCaseError::fail(format!("{found:?}")));
            };
            prop_assert!(near(found.threshold_bytes, modes.threshold_bytes, 0.1), "{found:?} {modes:?}");
            prop_assert!(near(found.device_bps, modes.device_bps, 0.1), "{found:?} {modes:?}");
            // The first mode takes the time of a few writes of the second, so its rate is less certain.
            prop_assert!(found.memory_bps > found.device_bps * SLOWER_MIN);
            let [end, seconds] = points[points.len() - 1];
            prop_assert!(near(model_seconds(end, &found), seconds, 0.1));
        }

        #[test]
        fn a_steady_curve_has_one_mode(rate in 10e6_f64..4e9, noise in 0.0_f64..0.5, writes in 200_usize..2000, seed: u64) {
            let steady = Modes { memory_bps: rate, threshold_bytes: 1e18, device_bps: rate };
            let found = fit(&curve(&steady, writes, noise, seed));
            let Some(Shape::OneMode { bps }) = found else {
                return Err(TestCaseError::fail(format!("{found:?}")));
            };
            prop_assert!(near(bps, rate, 0.2));
        }

        #[test]
        fn any_rising_curve_is_fitted_or_refused(steps in prop::collection::vec((1.0_f64..1e9, 0.0_f64..10.0), 0..40)) {
            let (mut bytes, mut seconds) = (0.0, 0.0);
            let points: Vec<[f64; 2]> = steps.iter().map(|(b, s)| {
                bytes += b;
                seconds += s;
                [bytes, seconds]
            }).collect();
            if let Some(Shape::TwoModes(modes)) = fit(&points) {
                prop_assert!(modes.memory_bps > modes.device_bps && modes.device_bps > 0.0);
                prop_assert!(modes.threshold_bytes > 0.0 && modes.threshold_bytes < bytes);
            }
        }
    }

    #[test]
    fn a_stall_near_the_end_is_no_mode() {
        let mut points: Vec<[f64; 2]> = (1..=300)
            .map(|write| [f64::from(write), f64::from(write)])
            .collect();
        for (late, point) in points[295..].iter_mut().enumerate() {
            point[1] += late as f64 * 4.0;
        }
        assert!(
            matches!(fit(&points), Some(Shape::OneMode { .. })),
            "{:?}",
            fit(&points)
        );
    }

    #[test]
    fn an_exact_curve_gives_exact_modes() {
        // The article: 510 MB in 1.5 s, then 20 MB/s.
        let modes = Modes {
            memory_bps: 340e6,
            threshold_bytes: 510e6,
            device_bps: 20e6,
        };
        let points: Vec<[f64; 2]> = (1..=1000)
            .map(|write| {
                [
                    f64::from(write) * 1e6,
                    model_seconds(f64::from(write) * 1e6, &modes),
                ]
            })
            .collect();
        let Some(Shape::TwoModes(found)) = fit(&points) else {
            panic!("no two modes");
        };
        assert!(near(found.memory_bps, 340e6, 1e-6) && near(found.device_bps, 20e6, 1e-6));
        assert_eq!(found.threshold_bytes, 510e6);
        assert!((model_seconds(1e9, &found) - 26.0).abs() < 1e-6);
        assert_eq!(fit(&points[..7]), None);
        assert_eq!(fit(&[]), None);
    }
}
