//! Earlier results under [`Resume::Replace`]: what still holds is kept, the rest is dropped and
//! measured again. So a table may be measured by several calls, and a call that was cut continues.

use super::Resume;
use super::plan;
use super::proof::OUT_OF_BOUNDS;
use super::setup::merged;
use crate::report::{Cell, CellKey, Document, LinkSummary, Outcome};
use crate::scenario::Scenario;

/// Returns the old document without the parts that do not fit the new one, which is empty. Calls
/// `dropped` for each part that is removed.
pub(super) fn replaced(
    mut old: Document,
    new: Document,
    scenario: &Scenario,
    resume: Resume,
    dropped: &dyn Fn(&str),
) -> Document {
    if old.lab != new.lab || old.machine != new.machine {
        dropped("all results: they are of another machine or lab");
        return new;
    }
    let mut drop_cells = |why: &str, gone: &dyn Fn(&Cell) -> bool| {
        let before = old.cells.len();
        old.cells.retain(|cell| !gone(cell));
        if old.cells.len() < before {
            dropped(&format!("{} cells: {why}", before - old.cells.len()));
        }
    };
    for work in &new.works {
        let mut known = old.works.iter();
        if known.any(|known| known.name == work.name && known != work) {
            drop_cells("the work changed", &|cell| cell.key.work == work.name);
        }
    }
    for link in &new.links {
        let mut known = old.links.iter();
        if known.any(|known| known.name == link.name && !known.is_same(link)) {
            drop_cells("the link changed", &|cell| cell.key.link == link.name);
        }
    }
    for (program, version) in &new.versions {
        if old.versions.get(program).is_some_and(|known| known != version) {
            let why = format!("{program} is another build");
            drop_cells(&why, &|cell| uses(cell, program));
        }
    }
    let chosen = plan::keys(scenario);
    if resume == Resume::Fresh {
        drop_cells("as asked", &|cell| chosen.contains(&cell.key));
    }
    drop_runs(&mut old, scenario, &chosen);
    refresh(&mut old, &new);
    merged(old, new)
}

/// Drops runs that are tried again, and warnings of cells without runs.
fn drop_runs(old: &mut Document, scenario: &Scenario, chosen: &[CellKey]) {
    let limit = scenario.limit.map_or(f64::INFINITY, |limit| limit.as_secs_f64());
    for cell in old.cells.iter_mut().filter(|cell| chosen.contains(&cell.key)) {
        cell.runs.retain(|run| match run.outcome {
            Outcome::Done => true,
            Outcome::Failed(_) => false,
            // A longer limit gives it another chance.
            Outcome::TimedOut(_) => run.whole_seconds >= limit,
        });
    }
    let mut warnings = std::mem::take(&mut old.warnings);
    let is_kept = |cell: Option<&CellKey>| cell.is_none_or(|key| !old.runs(key).is_empty());
    warnings.retain(|warning| is_kept(warning.cell.as_ref()) && !warning.text.contains(OUT_OF_BOUNDS));
    old.warnings = warnings;
}

/// Takes works and links from the new document; proofs of links that stayed are kept.
fn refresh(old: &mut Document, new: &Document) {
    for work in &new.works {
        old.works.retain(|known| known.name != work.name);
        old.works.push(work.clone());
    }
    for link in &new.links {
        let proof = old
            .links
            .iter()
            .find(|known| known.name == link.name && known.described == link.described);
        // A proof that failed is repeated: the machine may have been busy.
        let proof = proof
            .and_then(|known| known.proof.clone())
            .filter(|proof| proof.holds);
        old.links.retain(|known| known.name != link.name);
        old.links.push(LinkSummary {
            proof,
            ..link.clone()
        });
    }
}

/// Whether a cell's client or server runs a program.
fn uses(cell: &Cell, program: &str) -> bool {
    let of = |name: &str| match name {
        "rclone-32" => "rclone".to_owned(),
        "rsyncd" => "rsync".to_owned(),
        name => name.to_owned(),
    };
    of(&cell.key.client) == program || of(&cell.key.server) == program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Run, WorkSummary};

    fn document(scenario: &Scenario) -> Document {
        let cells = plan::keys(scenario).into_iter().map(|key| Cell {
            key,
            runs: vec![Run::of(String::new(), Outcome::Done, 1.0)],
            ..Cell::default()
        });
        let mut document = Document {
            cells: cells.collect(),
            ..Document::default()
        };
        document.versions.insert("rclone".to_owned(), "1".to_owned());
        document
    }

    fn runs(document: &Document, client: &str) -> usize {
        let those = document.cells.iter().filter(|cell| cell.key.client == client);
        those.map(|cell| cell.runs.len()).sum()
    }

    #[test]
    fn only_results_that_still_hold_are_kept() {
        let scenario = Scenario::shipped("wan").unwrap().unwrap();
        let old = document(&scenario);
        let empty = Document {
            cells: Vec::new(),
            ..old.clone()
        };
        let resumed = |new: Document, resume| replaced(old.clone(), new, &scenario, resume, &|_| {});
        assert_eq!(resumed(empty.clone(), Resume::Replace).cells, old.cells);
        assert!(resumed(empty.clone(), Resume::Fresh).cells.is_empty());
        let mut other = empty.clone();
        other.versions.insert("rclone".to_owned(), "2".to_owned());
        let kept = resumed(other, Resume::Replace);
        assert_eq!((runs(&kept, "rclone"), runs(&kept, "rclone-32")), (0, 0));
        assert_eq!(runs(&kept, "rsync"), runs(&old, "rsync"));
        assert_eq!(kept.versions["rclone"], "2");
        let mut other = empty;
        other.machine.kernel = "another".to_owned();
        assert!(resumed(other, Resume::Replace).cells.is_empty());
    }

    #[test]
    fn failed_runs_are_tried_again_and_slow_ones_only_with_a_longer_limit() {
        let mut scenario = Scenario::shipped("wan").unwrap().unwrap();
        let mut old = document(&scenario);
        old.cells[0].runs = vec![Run::of(String::new(), Outcome::Failed("why".to_owned()), 1.0)];
        old.cells[1].runs = vec![Run::of(
            String::new(),
            Outcome::TimedOut("slow".to_owned()),
            300.1,
        )];
        let empty = Document {
            cells: Vec::new(),
            ..old.clone()
        };
        let kept = replaced(old.clone(), empty.clone(), &scenario, Resume::Replace, &|_| {});
        assert!(kept.cells[0].runs.is_empty() && kept.cells[1].runs.len() == 1);
        scenario.limit = Some(std::time::Duration::from_secs(600));
        let kept = replaced(old, empty, &scenario, Resume::Replace, &|_| {});
        assert!(kept.cells[1].runs.is_empty());
    }

    #[test]
    fn a_new_work_joins_the_document() {
        let scenario = Scenario::shipped("wan").unwrap().unwrap();
        let mut new = document(&scenario);
        new.works = vec![WorkSummary {
            name: "more".to_owned(),
            ..WorkSummary::default()
        }];
        let kept = replaced(document(&scenario), new, &scenario, Resume::Replace, &|_| {});
        assert_eq!(kept.works[0].name, "more");
        assert_eq!(kept.cells[0].key.work, "file100mb");
    }
}
