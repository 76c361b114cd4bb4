//! `/proc/pressure/io` and `memory`: the share of time in which tasks wait (PSI).
//!
//! Source: Documentation/accounting/psi.rst.

use serde::Serialize;

/// One file of `/proc/pressure`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Share of the last ten seconds in which some task waited, in percent.
    pub some_percent: f64,
    /// The same for all tasks at once.
    pub full_percent: f64,
    /// Time so far in which some task waited, in microseconds.
    #[serde(skip)]
    pub some_total_us: u64,
}

impl Pressure {
    /// Parses the file; `None` without the line `some`.
    pub fn parse(text: &str) -> Option<Self> {
        let line = |name: &str| {
            text.lines()
                .find(|line| line.split_whitespace().next() == Some(name))
        };
        let field = |line: &str, name: &str| -> Option<String> {
            let mut fields = line.split_whitespace();
            fields.find_map(|field| Some(field.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
        };
        let percent = |line: &str| {
            let value: f64 = field(line, "avg10")?.parse().ok()?;
            (0.0..=100.0).contains(&value).then_some(value)
        };
        let some = line("some")?;
        Some(Self {
            some_percent: percent(some)?,
            full_percent: line("full").and_then(percent).unwrap_or(0.0),
            some_total_us: field(some, "total")
                .and_then(|total| total.parse().ok())
                .unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "some avg10=8.54 avg60=7.64 avg300=15.69 total=1215532580\n\
                        full avg10=0.25 avg60=0.00 avg300=0.00 total=0\n";

    #[test]
    fn both_lines_count_and_the_second_may_be_missing() {
        let found = Pressure::parse(TEXT).unwrap();
        assert!((found.some_percent - 8.54).abs() < 1e-9 && (found.full_percent - 0.25).abs() < 1e-9);
        assert_eq!(found.some_total_us, 1_215_532_580);
        // The processor's file had no second line before Linux 5.13.
        assert!(Pressure::parse(TEXT.lines().next().unwrap()).is_some());
        for bad in [
            "",
            "full avg10=1",
            "some avg10=-1 total=2",
            "some avg10=NaN",
            "some avg10=101",
        ] {
            assert_eq!(Pressure::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn damaged_text_never_breaks_it(cut in 0_usize..120, at in 0_usize..120, byte in 0_u8..128) {
            let mut bytes = TEXT.as_bytes().to_vec();
            bytes.truncate(cut);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            if let Some(found) = Pressure::parse(&String::from_utf8_lossy(&bytes)) {
                prop_assert!((0.0..=100.0).contains(&found.some_percent));
            }
        }
    }
}
