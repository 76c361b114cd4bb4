//! One figure by parts: how much faster an engine is than another, and how much more responsive the
//! machine stays. Pure.

use ropeway_plan::Engine;

use super::plan::Job;
use crate::report::{Document, Run, Score, ScorePart};

/// The baseline: Vista as it was released.
pub const BASE: Engine = Engine::Vista;
/// The published whole-system scores over [`BASE`] (facts file, A).
const PUBLISHED: [(&str, f64); 2] = [("Vista RTM, patched", 1.128), ("Vista SP1", 1.145)];

/// Returns the score of an engine over [`BASE`]; `None` without a part that both have.
pub fn score(document: &Document, jobs: &[Job], engine: Engine) -> Option<Score> {
    let mut parts = Vec::new();
    let mut answers = Vec::new();
    for job in jobs {
        let ratio = |of: fn(&Run) -> Option<f64>| {
            let median = |engine| Some(document.cell(&job.key(engine))?.median(of)?.value);
            ratio(median(BASE)?, median(engine)?)
        };
        if let Some(value) = ratio(until_safe) {
            parts.push(ScorePart {
                name: job.name(),
                value,
            });
        }
        answers.extend(ratio(|run| run.reads_p99_ms));
    }
    if let Some(value) = mean(&answers) {
        parts.push(ScorePart {
            name: "responsiveness".to_owned(),
            value,
        });
    }
    let values: Vec<f64> = parts.iter().map(|part| part.value).collect();
    Some(Score {
        described: format!(
            "{} over {}: geometric mean of the ratios of seconds until durable, and of another process's slowest reads \
             (99th percentile); the published figures are whole-system benchmarks",
            engine.as_str(),
            BASE.as_str()
        ),
        value: mean(&values)?,
        parts,
        published: PUBLISHED.map(|(name, value)| (name.to_owned(), value)).into(),
    })
}

/// Returns the seconds until everything was durable, else until it was written.
fn until_safe(run: &Run) -> Option<f64> {
    run.durable_seconds.or_else(|| run.seconds())
}

fn ratio(base: f64, other: f64) -> Option<f64> {
    (base > 0.0 && other > 0.0).then(|| base / other)
}

/// Returns the geometric mean; `None` without values.
fn mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Target, jobs};
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
        let values: Vec<f64> = score.parts.iter().map(|part| part.value).collect();
        let wanted = [8.0, 4.0, 2.0, 1.0, 9.0];
        assert!(
            values
                .iter()
                .zip(wanted)
                .all(|(value, wanted)| (value - wanted).abs() < 1e-9)
        );
        assert!((score.value - (64.0_f64 * 9.0).powf(0.2)).abs() < 1e-9);
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
