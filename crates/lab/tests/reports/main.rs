//! Reports of a document: complete, well-formed, reproducible, and safe for any content.

mod common;
mod page;

use proptest::prelude::*;
use ropeway_lab::report::{
    Cell, Change, Document, Medium, Outcome, TableOptions, compare, html, load, markdown, png, save, svgs,
    table, write_all,
};

#[test]
fn the_table_shows_what_was_measured_and_names_what_was_missed() {
    let text = table(&common::sample(), TableOptions::default());
    for part in [
        "One spreadsheet-like file of 100 MB: read",
        "75ms-622mbit (622 Mbit/s, 75 ms)",
        "ropeway → smbd",
        "published s",
        "1.03× ✓",
        "failed",
        "timed out",
        "≈",
        "5 – 95",
        "63 of 64 targets were reached.",
        "75ms-622mbit, dirset1gb, write, ropeway → ropeway: 19.1 s for a target of 14.9 s (+28.",
        "Cause: smbd answered CREATE",
        "cp: it needs a mounted share",
        "Others kept 0.3 of 2",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    // The cause of a miss is not said twice.
    assert_eq!(text.matches("Cause: smbd").count(), 1);
}

#[test]
fn a_cell_with_a_failed_run_misses_its_target() {
    let mut document = common::sample();
    let missed = |document: &Document| {
        table(document, TableOptions::default()).contains("62 of 64 targets were reached.")
    };
    assert!(!missed(&document));
    let reached = |cell: &&mut Cell| {
        let median = cell.judged().map(|median| median.value);
        median
            .zip(cell.target_seconds)
            .is_some_and(|(seconds, target)| seconds <= target)
    };
    let cell = document.cells.iter_mut().find(reached).unwrap();
    let mut wrong = cell.runs[0].clone();
    wrong.outcome = Outcome::Failed("copied wrongly".to_owned());
    cell.runs.push(wrong);
    assert!(missed(&document));
}

#[test]
fn transfers_are_compared_with_transfers_only() {
    let before = common::sample();
    let mut after = before.clone();
    let known = |cell: &&mut Cell| {
        cell.counted().count() > 1 && cell.counted().all(|run| run.transfer_seconds.is_some())
    };
    let cell = after.cells.iter_mut().find(known).unwrap();
    let (key, whole) = (cell.key.clone(), cell.judged());
    let counted = cell.runs.iter_mut().rfind(|run| !run.discarded);
    counted.unwrap().transfer_seconds = None;
    assert_eq!(cell.seconds(), whole, "no median of both");
    let comparison = compare(&before, &after);
    let changed = comparison.cells.iter().find(|cell| cell.key == key).unwrap();
    assert_eq!(changed.change, Change::Same);
}

#[test]
fn the_table_keeps_to_the_width_of_a_terminal() {
    let options = TableOptions {
        width: Some(80),
        brief: true,
    };
    let text = table(&common::sample(), options);
    let (tables, _) = text.split_once("Seconds are medians").unwrap();
    for line in tables.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(tables.contains("rsync → rsyncd"), "{tables}");
}

#[test]
fn markdown_has_whole_tables_and_names_its_pictures() {
    let document = common::sample();
    let text = markdown(&document);
    let mut columns = None;
    for line in text.lines() {
        let bars = line.replace("\\|", "").matches('|').count();
        if line.starts_with('|') {
            assert_eq!(*columns.get_or_insert(bars), bars, "{line}");
        } else {
            columns = None;
        }
    }
    for (name, _) in svgs(&common::sample(), Medium::File) {
        assert!(text.contains(&format!("({name}.png)")), "{name}");
    }
    let (kernel, congestion) = (&document.machine.kernel, &document.links[0].congestion);
    for part in [
        "## Settings",
        "## Works",
        congestion,
        "✓ holds",
        "Version 4.",
        kernel,
    ] {
        assert!(text.contains(part), "{part} is missing");
    }
}

#[test]
fn plots_are_well_formed_and_described() {
    for medium in [Medium::Page, Medium::File, Medium::Picture] {
        let plots = svgs(&common::sample(), medium);
        assert_eq!(plots.len(), 8);
        for (name, svg) in plots {
            let tree = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
            let root = tree.root_element();
            assert_eq!(
                (root.tag_name().name(), root.attribute("role")),
                ("svg", Some("img"))
            );
            for tag in ["title", "desc"] {
                let element = root.children().find(|child| child.has_tag_name(tag));
                let element = element.or_else(|| {
                    let namespace = "http://www.w3.org/2000/svg";
                    root.children().find(|child| child.has_tag_name((namespace, tag)))
                });
                assert!(
                    element
                        .and_then(|element| element.text())
                        .is_some_and(|text| text.len() > 10),
                    "{name}"
                );
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{name}");
        }
    }
}

/// Boxes of all texts of a plot, as wide as they may be; none may lie on another.
#[test]
fn labels_do_not_lie_on_one_another() {
    for (name, svg) in svgs(&common::sample(), Medium::Page) {
        let tree = roxmltree::Document::parse(&svg).unwrap();
        let number =
            |node: &roxmltree::Node<'_, '_>, what| -> f64 { node.attribute(what).unwrap().parse().unwrap() };
        let boxes: Vec<(f64, f64, f64, &str)> = tree
            .descendants()
            .filter(|node| node.has_tag_name("text"))
            .map(|node| {
                let text = node.text().unwrap_or_default();
                // Half an em a letter is what text takes; the layout reckons with more.
                let width = text.chars().count() as f64 * 5.5;
                let left = match node.attribute("text-anchor") {
                    Some("middle") => number(&node, "x") - width / 2.0,
                    Some("end") => number(&node, "x") - width,
                    _ => number(&node, "x"),
                };
                (left, left + width, number(&node, "y"), text)
            })
            .collect();
        for (at, one) in boxes.iter().enumerate() {
            for other in &boxes[at + 1..] {
                let apart = one.1 <= other.0 || other.1 <= one.0 || (one.2 - other.2).abs() >= 10.0;
                assert!(apart, "{name}: {one:?} lies on {other:?}");
            }
        }
    }
}

#[test]
fn all_files_are_written_whole_and_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut document = common::sample();
    document.cells.truncate(10);
    let first = write_all(&document, &folder.path().join("new/reports")).unwrap();
    assert_eq!(first.files.len(), 2 + 2 * svgs(&document, Medium::File).len());
    let read = || -> Vec<Vec<u8>> {
        first
            .files
            .iter()
            .map(|file| std::fs::read(file).unwrap())
            .collect()
    };
    let before = read();
    assert_eq!(
        first.bytes,
        before.iter().map(|bytes| bytes.len() as u64).sum::<u64>()
    );
    let again = write_all(&document, &folder.path().join("new/reports")).unwrap();
    assert_eq!((again, read()), (first.clone(), before.clone()));
    let left = std::fs::read_dir(folder.path().join("new/reports"))
        .unwrap()
        .count();
    assert_eq!(left, first.files.len(), "nothing half-written is left");
    for (file, bytes) in first.files.iter().zip(&before) {
        if file.extension().is_some_and(|extension| extension == "png") {
            assert!(
                bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000,
                "{}",
                file.display()
            );
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = write_all(&Document::default(), &file.join("below")).unwrap_err();
    assert!(error.to_string().contains("below"), "{error}");
}

#[test]
fn figures_that_are_none_are_shown_as_such() {
    let mut document = common::sample();
    for (at, bad) in [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -5.0,
        0.0,
        1e300,
        1e-300,
    ]
    .into_iter()
    .enumerate()
    {
        let cell = &mut document.cells[at];
        for run in &mut cell.runs {
            run.transfer_seconds = Some(bad);
        }
        cell.floor_seconds = Some(bad);
        cell.line_seconds = Some(bad);
        cell.target_seconds = Some(bad);
        document.published[at].seconds = bad;
        for curve in &mut document.curves {
            curve.series[0].points.push([bad, bad]);
        }
        document.links[at].rtt_ms = bad;
    }
    document.curves[2].series[0].points.push([0.0, 1.0]);
    for (name, svg) in svgs(&document, Medium::Picture) {
        roxmltree::Document::parse(&svg).unwrap();
        assert!(!svg.contains("NaN") && svg.len() < 200_000, "{name}");
        if name.starts_with("nas") || name.ends_with("100mb-read") {
            png(&name, &svg).unwrap();
        }
    }
    assert!(!html(&document).contains("NaN"));
    assert!(!table(&document, TableOptions::default()).contains("NaN"));
}

#[test]
fn hostile_names_change_neither_pages_nor_terminals() {
    let mut document = common::sample();
    let evil = "</td></svg><script>alert(1)</script>\u{1b}[2J|`\"'&\u{202e}\u{0}";
    document.title = evil.to_owned();
    for cell in &mut document.cells {
        cell.key.server = evil.to_owned();
        for run in &mut cell.runs {
            if run.outcome != Outcome::Done {
                run.outcome = Outcome::Failed(evil.to_owned());
            }
        }
    }
    document.curves[0].id = "../../etc/passwd".to_owned();
    document.curves[1].id = "../../etc/passwd".to_owned();
    document.curves[1].series[1].name = evil.to_owned();
    for text in [html(&document), markdown(&document)] {
        assert!(!text.contains("<script>alert") && !text.contains('\u{1b}') && !text.contains('\u{0}'));
    }
    let text = table(&document, TableOptions::default());
    assert!(
        !text.chars().any(|letter| letter.is_control() && letter != '\n'),
        "{text}"
    );
    let names: Vec<String> = svgs(&document, Medium::File)
        .into_iter()
        .map(|(name, svg)| {
            roxmltree::Document::parse(&svg).unwrap();
            name
        })
        .collect();
    assert!(
        names.contains(&"etc-passwd".to_owned()) && names.contains(&"etc-passwd-2".to_owned()),
        "{names:?}"
    );
}

#[test]
fn a_document_of_any_size_gives_bounded_reports() {
    let mut document = common::sample();
    let cell = document.cells[0].clone();
    for number in 0..20_000 {
        let mut cell = cell.clone();
        cell.key.link = format!("link{number}");
        cell.key.client = format!("client{}", number % 700);
        document.cells.push(cell);
        let mut warning = document.warnings[0].clone();
        warning.text = "x".repeat(100);
        document.warnings.push(warning);
    }
    let points: Vec<[f64; 2]> = (0..300_000)
        .map(|at| [f64::from(at), f64::from(at % 97)])
        .collect();
    document.curves[0].series[0].points = points;
    let (_, svg) = &svgs(&document, Medium::Page)[4];
    assert!(svg.len() < 60_000, "{}", svg.len());
    let page = html(&document);
    let (shown, _) = page.split_once("<footer").unwrap();
    assert!(shown.len() < 8 << 20, "{}", shown.len());
    assert!(shown.contains("not shown"));
}

#[test]
fn a_comparison_tells_noise_from_change_and_conditions_first() {
    let before = common::sample();
    let same = compare(&before, &before);
    assert!(same.conditions.is_empty() && !same.is_worse());
    assert!(
        same.cells
            .iter()
            .all(|cell| matches!(cell.change, Change::Same | Change::Unmeasured))
    );
    let mut after = before.clone();
    after.machine.kernel = "another".to_owned();
    after.settings[2].value = "bbr".to_owned();
    after.links[1].proof = None;
    let times = |document: &mut Document, at: usize, factor: f64| {
        for run in &mut document.cells[at].runs {
            run.transfer_seconds = run.transfer_seconds.map(|seconds| seconds * factor);
        }
    };
    times(&mut after, 0, 1.2);
    times(&mut after, 1, 0.8);
    times(&mut after, 2, 1.01);
    for run in &mut after.cells[3].runs {
        run.outcome = Outcome::Failed("gone".to_owned());
    }
    after.cells[4].payload_bytes += 1;
    after.cells.pop();
    let comparison = compare(&before, &after);
    let changes: Vec<Change> = comparison.cells.iter().take(5).map(|cell| cell.change).collect();
    use Change::{Broken, Faster, Incomparable, Same, Slower};
    assert_eq!(changes, [Slower, Faster, Same, Broken, Incomparable]);
    assert!(comparison.is_worse() && comparison.only_before.len() == 1 && comparison.only_after.is_empty());
    let text = comparison.table();
    let place = |part: &str| {
        text.find(part)
            .unwrap_or_else(|| panic!("{part} is missing in\n{text}"))
    };
    assert!(place("machine kernel: ") < place(&format!("setting {}", before.settings[2].name)));
    assert!(place("link 32ms-155mbit") < place("SLOWER"));
    assert!(place("1.200") < place("1 slower, 1 broken, 1 faster"));
}

/// The document's own doc names every field.
#[test]
fn the_schema_names_every_field() {
    let doc = include_str!("../../../../docs/lab-report.md");
    let model = include_str!("../../src/report/model.rs");
    let mut fields = 0;
    for line in model.lines() {
        let Some((name, _)) = line
            .trim()
            .strip_prefix("pub ")
            .and_then(|rest| rest.split_once(": "))
            .filter(|(name, _)| !name.contains(' '))
        else {
            continue;
        };
        assert!(
            doc.contains(&format!("`{name}`")),
            "docs/lab-report.md does not name `{name}`"
        );
        fields += 1;
    }
    assert!(fields > 60, "{fields}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn documents_are_read_as_they_were_written(
        title in ".*",
        seconds in proptest::collection::vec(0.0..1e6_f64, 1..6),
        rate in any::<u64>(),
        variant in "[a-z]{0,4}",
        reason in ".*",
        complete in any::<bool>(),
    ) {
        let mut document = common::sample();
        document.cells.truncate(3);
        document.title = title;
        document.complete = complete;
        document.links[0].up_bps = Some(rate);
        document.cells[0].key.variant = variant;
        document.cells[0].runs[0].outcome = Outcome::TimedOut(reason);
        for (run, value) in document.cells[1].runs.iter_mut().zip(&seconds) {
            run.transfer_seconds = Some(*value);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        save(&document, &path).unwrap();
        let read = load(&path).unwrap();
        prop_assert!(read == document);
        // And they are shown, whatever they say.
        let options = TableOptions { width: Some(60), brief: false };
        prop_assert!(!table(&read, options).is_empty());
        prop_assert!(roxmltree::Document::parse(&svgs(&read, Medium::File)[0].1).is_ok());
    }
}
