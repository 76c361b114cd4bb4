//! Maps figures to positions on an axis, and places the ticks.

use super::super::model::Axis;
use super::super::numbers;

/// Largest figure that is drawn: beyond all figures of a lab.
const DRAWN_MAX: f64 = 1e18;

/// Whether a figure can be drawn.
pub(super) fn is_drawn(value: f64, logarithmic: bool) -> bool {
    value.is_finite() && value.abs() <= DRAWN_MAX && (!logarithmic || value > 1.0 / DRAWN_MAX)
}

/// An axis with a range and a length.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    least: f64,
    most: f64,
    logarithmic: bool,
    /// Pixels of both ends.
    pub(super) ends: (f64, f64),
    /// Value and label of each tick.
    pub(super) ticks: Vec<(f64, String)>,
    /// Unit of the labels: `MB/s`.
    pub(super) unit: String,
    /// Number of base units in [`Self::unit`].
    divisor: f64,
}

impl Scale {
    /// Returns a linear scale from 0, for bars.
    pub(super) fn bars(most: f64, unit: &str, ends: (f64, f64), tick_px: f64) -> Self {
        let axis = Axis::new("", unit);
        let mut scale = Self::new(&axis, (0.0, most), ends, tick_px);
        // Bars need no rounded end.
        if most > 0.0 {
            scale.most = most;
            scale.ticks.retain(|(value, _)| *value <= most);
        }
        scale
    }

    /// Returns the horizontal scale of a figure: a range that ends where the figures do, with as many
    /// ticks as have room.
    pub(super) fn along(axis: &Axis, range: (f64, f64), ends: (f64, f64)) -> Self {
        const TICK_PX: f64 = 70.0;
        let mut scale = Self::new(axis, range, ends, TICK_PX);
        if !axis.logarithmic && range.1 > 0.0 {
            scale.most = range.1;
            scale.ticks.retain(|(value, _)| *value <= range.1);
        }
        scale
    }

    /// Returns the scale of a range, with ticks at least `tick_px` apart.
    pub(super) fn new(axis: &Axis, range: (f64, f64), ends: (f64, f64), tick_px: f64) -> Self {
        let room = ((ends.1 - ends.0).abs() / tick_px).floor().max(1.0);
        // At most a hundred.
        let ticks_max = (room as usize).min(100);
        if axis.logarithmic {
            Self::logarithmic(&axis.unit, range, ends, ticks_max)
        } else {
            Self::linear(&axis.unit, range, ends, ticks_max)
        }
    }

    fn linear(unit: &str, range: (f64, f64), ends: (f64, f64), ticks_max: usize) -> Self {
        let (mut least, mut most) = range;
        // The axis begins at 0, so that differences do not look larger than they are.
        least = least.min(0.0);
        if least >= most {
            (least, most) = (least.min(0.0), most.max(least + 1.0));
        }
        let (divisor, unit) = shown_unit(unit, most.abs().max(least.abs()));
        let step = nice_step((most - least) / divisor / ticks_max as f64);
        let first = (least / divisor / step).floor();
        let last = (most / divisor / step).ceil();
        // `as` is bounded: a step is at least the range divided by a hundred.
        let count = (last - first).clamp(1.0, 400.0) as usize;
        // One more for steps of 2.5; zeros at the end are removed.
        let decimals = usize::try_from(1 - (step.log10() + 1e-9).floor() as i32)
            .unwrap_or(0)
            .min(12);
        let ticks = (0..=count)
            .map(|at| {
                let value = (first + at as f64) * step;
                (value * divisor, tick_text(value, decimals))
            })
            .collect();
        Self {
            least: first * step * divisor,
            most: (first + count as f64) * step * divisor,
            logarithmic: false,
            ends,
            ticks,
            unit,
            divisor,
        }
    }

    fn logarithmic(unit: &str, range: (f64, f64), ends: (f64, f64), ticks_max: usize) -> Self {
        let binary = unit == "B";
        let (mut least, mut most) = range;
        if least >= most {
            (least, most) = (least / 2.0, least * 2.0);
        }
        let base: f64 = if binary { 2.0 } else { 10.0 };
        let power = |value: f64| value.ln() / base.ln();
        let (low, high) = ((power(least) + 1e-9).floor(), (power(most) - 1e-9).ceil());
        let decades = (high - low).max(1.0);
        let every = (decades / ticks_max as f64).ceil().max(1.0);
        let mut ticks = Vec::new();
        let within: &[f64] = if binary || decades * 3.0 > ticks_max as f64 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let mut at = low;
        while at <= high && ticks.len() <= 400 {
            for part in within {
                let value = base.powf(at) * part;
                ticks.push((value, log_text(value, unit)));
            }
            at += every;
        }
        // The axis ends at the last needed tick, so that no half of it is empty.
        let first = ticks
            .iter()
            .rposition(|tick| tick.0 <= least * 1.000_001)
            .unwrap_or(0);
        let last = ticks.iter().position(|tick| tick.0 >= most * 0.999_999);
        ticks.truncate(last.map_or(ticks.len(), |last| last + 1));
        ticks.drain(..first.min(ticks.len().saturating_sub(1)));
        least = least.min(ticks.first().map_or(least, |tick| tick.0));
        most = most.max(ticks.last().map_or(most, |tick| tick.0));
        Self {
            least,
            most,
            logarithmic: true,
            ends,
            ticks,
            unit: numbers::clean(unit, 24),
            divisor: 1.0,
        }
    }

    /// Returns the position of a figure in pixels, within the ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.ln() - self.least.ln()) / (self.most.ln() - self.least.ln())
        } else {
            (value - self.least) / (self.most - self.least)
        };
        let share = if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        };
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// Whether a figure is beyond the end.
    pub(super) fn is_beyond(&self, value: f64) -> bool {
        value > self.most * 1.000_001
    }

    /// Whether the labels of the ticks contain the unit.
    pub(super) fn ticks_have_unit(&self) -> bool {
        self.logarithmic && log_has_unit(&self.unit)
    }

    /// Returns data for the page's script: pixel and figure of both ends, and whether it is logarithmic.
    pub(super) fn data(&self) -> String {
        let (a, b) = self.ends;
        let (least, most) = (self.least / self.divisor, self.most / self.divisor);
        let log = u8::from(self.logarithmic);
        format!("{a:.1} {b:.1} {least} {most} {log}")
    }
}

/// Returns divisor and name of the unit that gives short numbers.
fn shown_unit(unit: &str, most: f64) -> (f64, String) {
    match unit {
        "B" | "B/s" | "bit/s" => {
            let (divisor, prefix) = numbers::prefix(most);
            (divisor, format!("{prefix}{unit}"))
        }
        "ms" if most >= 10_000.0 => (1000.0, "s".to_owned()),
        "s" if most < 0.1 => (0.001, "ms".to_owned()),
        unit => (1.0, numbers::clean(unit, 24)),
    }
}

/// Returns the next value of 1, 2, 2.5 and 5 times a power of ten.
fn nice_step(least: f64) -> f64 {
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let part = least / power;
    let nice = [1.0, 2.0, 2.5, 5.0].into_iter().find(|nice| part <= nice + 1e-9);
    nice.unwrap_or(10.0) * power
}

fn tick_text(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let rest = rest.trim_end_matches('0');
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), numbers::count);
    let sign = if value < 0.0 { "-" } else { "" };
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{rest}")
}

fn log_has_unit(unit: &str) -> bool {
    matches!(unit, "B" | "B/s" | "bit/s")
}

fn log_text(value: f64, unit: &str) -> String {
    match unit {
        "B" => numbers::binary(value),
        unit if log_has_unit(unit) => numbers::prefixed(value, unit),
        _ if (1e-4..1e7).contains(&value) => tick_text(value, 4),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(unit: &str, logarithmic: bool, range: (f64, f64), ticks_max: f64) -> Vec<String> {
        let axis = Axis {
            logarithmic,
            ..Axis::new("", unit)
        };
        let scale = Scale::new(&axis, range, (0.0, 100.0), 100.0 / ticks_max);
        scale.ticks.into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(texts("s", false, (0.0, 17.0), 5.0), ["0", "5", "10", "15", "20"]);
        assert_eq!(
            texts("B/s", false, (0.0, 113e6), 6.0),
            ["0", "20", "40", "60", "80", "100", "120"]
        );
        assert_eq!(
            texts("s", false, (0.0, 0.7), 4.0),
            ["0", "0.2", "0.4", "0.6", "0.8"]
        );
        assert_eq!(
            texts("1/s", false, (0.0, 2100.0), 4.0),
            ["0", "1,000", "2,000", "3,000"]
        );
        assert_eq!(
            texts("B", true, (65536.0, 1048576.0), 9.0),
            ["64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB"]
        );
        assert_eq!(
            texts("s", true, (1.0, 90.0), 9.0),
            ["1", "2", "5", "10", "20", "50", "100"]
        );
        assert_eq!(
            texts("s", true, (0.1, 9000.0), 5.0),
            ["0.1", "1", "10", "100", "1,000", "10,000"]
        );
    }

    #[test]
    fn strange_ranges_are_drawn() {
        for range in [
            (0.0, 0.0),
            (5.0, 5.0),
            (-3.0, -3.0),
            (-1e18, 1e18),
            (0.0, 1e-300),
            (1e-17, 1e18),
        ] {
            for logarithmic in [false, range.0 > 0.0] {
                let axis = Axis {
                    logarithmic,
                    ..Axis::new("", "B")
                };
                let scale = Scale::new(&axis, range, (10.0, 90.0), 8.0);
                assert!((10.0..=90.0).contains(&scale.place(range.0)), "{range:?}");
                assert!(!scale.ticks.is_empty() && scale.ticks.len() < 410, "{range:?}");
            }
        }
    }
}
