//! One figure by parts: how much faster an engine is than another, and how much more responsive the
//! machine stays. Pure.

use ropeway_plan::Engine;

use super::plan::{Job, Target};
use crate::report::{Document, Run, Score, ScorePart};

/// The baseline: Vista as it was released.
pub const BASE: Engine = Engine::Vista;
/// The published whole-system scores over [`BASE`] (facts file, A).
const PUBLISHED: [(&str, f64); 2] = [("Vista RTM, patched", 1.128), ("Vista SP1", 1.145)];

/// Weight of the responsiveness, beside those of the targets ([`Target::weight`]). A guess: half as
/// much as a target, since it is a by-product of the copies.
pub(super) const RESPONSIVENESS: f64 = 1.0;

/// Returns the score of an engine over [`BASE`]; `None` without a part that both have. Each target is a
/// part: the geometric mean over its works and directions. The score is the weighted geometric mean of
/// the parts.
pub fn score(document: &Document, jobs: &[Job], engine: Engine) -> Option<Score> {
    let gains = |of: fn(&Run) -> Option<f64>, target: Option<Target>| {
        let jobs = jobs
            .iter()
            .filter(|job| target.is_none_or(|target| job.target == target));
        let gains: Vec<f64> = jobs.filter_map(|job| gain(document, *job, engine, of)).collect();
        gains
    };
    let mut parts: Vec<ScorePart> = Target::ALL
        .into_iter()
        .filter_map(|target| {
            let gains = gains(until_durable, Some(target));
            Some(ScorePart {
                name: format!("{target}, {} kinds of copies", gains.len()),
                value: mean(gains.iter().map(|gain| (*gain, 1.0)))?,
                weight: target.weight(),
            })
        })
        .collect();
    let answers = gains(|run| run.reads_p99_ms, None);
    parts.extend(
        mean(answers.iter().map(|gain| (*gain, 1.0))).map(|value| ScorePart {
            name: "responsiveness".to_owned(),
            value,
            weight: RESPONSIVENESS,
        }),
    );
    Some(Score {
        described: format!(
            "{} over {}: weighted geometric mean of the parts. A target's part is the geometric mean of the ratios of \
             seconds until durable, over its works and directions; responsiveness is that of another process's slowest \
             reads (99th percentile) meanwhile. The published figures are whole-system benchmarks",
            engine.as_str(),
            BASE.as_str()
        ),
        value: mean(parts.iter().map(|part| (part.value, part.weight)))?,
        parts,
        published: PUBLISHED.map(|(name, value)| (name.to_owned(), value)).into(),
    })
}

/// Returns how many times less an engine takes than [`BASE`] for a kind of copy, by medians.
pub(super) fn gain(
    document: &Document,
    job: Job,
    engine: Engine,
    of: fn(&Run) -> Option<f64>,
) -> Option<f64> {
    let median = |engine| Some(document.cell(&job.key(engine))?.median(of)?.value);
    ratio(median(BASE)?, median(engine)?)
}

/// Returns the seconds until everything was durable, else until it was written.
pub(super) fn until_durable(run: &Run) -> Option<f64> {
    run.durable_seconds.or_else(|| run.seconds())
}

fn ratio(base: f64, other: f64) -> Option<f64> {
    (base > 0.0 && other > 0.0).then(|| base / other)
}

/// Returns the geometric mean of values with weights; `None` without values.
fn mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weights) = values.fold((0.0, 0.0), |(sum, weights), (value, weight)| {
        (sum + value.ln() * weight, weights + weight)
    });
    (weights > 0.0).then(|| (sum / weights).exp())
}

#[cfg(test)]
mod tests {
    use super::super::plan::jobs;
    use super::*;
    use crate::report::{Cell, Outcome};

    fn cell(job: Job, engine: Engine, seconds: f64, reads_p99_ms: Option<f64>) -> Cell {
        let run = |discarded, seconds| Run {
            discarded,
            transfer_seconds: Some(seconds),
            durable_seconds: Some(seconds),
            reads_p99_ms,
            ..Run::of(String::new(), Outcome::Done, seconds + 1.0)
        };
        Cell {
            key: job.key(engine),
            payload_bytes: 1,
            files: 1,
            runs: vec![run(true, 1000.0), run(false, seconds)],
            ..Cell::default()
        }
    }

    #[test]
    fn twice_as_fast_is_two_and_parts_make_the_whole() {
        let jobs = jobs(&[Target::Local]);
        let mut document = Document::default();
        for (job, seconds) in jobs.iter().zip([1.0, 2.0, 4.0, 8.0]) {
            document.cells.push(cell(*job, Engine::Vista, 8.0, Some(9.0)));
            document
                .cells
                .push(cell(*job, Engine::VistaSp1, seconds, Some(1.0)));
        }
        let score = score(&document, &jobs, Engine::VistaSp1).unwrap();
        let parts: Vec<(f64, f64)> = score.parts.iter().map(|part| (part.value, part.weight)).collect();
        // 64 is the product of the four ratios; targets weigh 3, and what another process waits 1.
        let wanted = [(64.0_f64.powf(0.25), 3.0), (9.0, 1.0)];
        assert!(
            parts.iter().zip(wanted).all(|(part, wanted)| {
                (part.0 - wanted.0).abs() < 1e-9 && (part.1 - wanted.1).abs() < 1e-9
            })
        );
        assert_eq!(parts.len(), 2);
        let whole = (64.0_f64.powf(0.75) * 9.0).powf(0.25);
        assert!((score.value - whole).abs() < 1e-9, "{}", score.value);
        assert_eq!(score.published.len(), 2);
    }

    #[test]
    fn without_the_base_there_is_no_score() {
        let jobs = jobs(&[Target::Stick]);
        let document = Document {
            cells: vec![cell(jobs[0], Engine::Auto, 1.0, None)],
            ..Document::default()
        };
        assert_eq!(score(&document, &jobs, Engine::Auto), None);
    }
}
