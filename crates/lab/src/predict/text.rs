//! The table for people.

use crate::predict::{Report, Run};

/// Returns the lines of a report.
pub fn lines(report: &Report) -> Vec<String> {
    let share = report.cache_blocks as f64 * 100.0 / report.footprint_blocks as f64;
    let mut lines = vec![format!(
        "{} requests for {} blocks of {} bytes, a cache of {} blocks ({share:.1} %)",
        report.requests, report.footprint_blocks, report.block_bytes, report.cache_blocks
    )];
    for run in &report.runs {
        table(run, &mut lines);
    }
    lines
}

fn table(run: &Run, lines: &mut Vec<String>) {
    lines.push(String::new());
    lines.push(match run.delay {
        0 => "a prefetch is there at the next request".to_owned(),
        delay => format!("a prefetch takes {delay} requests"),
    });
    lines.push(format!(
        "  {:<11}{:>9}{:>11}{:>9}{:>9}{:>12}",
        "", "hits", "precision", "late", "traffic", "prefetches"
    ));
    for row in &run.methods {
        let figures = &row.figures;
        let precision = figures
            .precision
            .map_or_else(|| "-".to_owned(), |precision| format!("{precision:.3}"));
        lines.push(format!(
            "  {:<11}{:>9.4}{precision:>11}{:>9.4}{:>8.2}x{:>12}",
            row.method, figures.hit_ratio, figures.late_ratio, figures.extra_traffic, figures.prefetches
        ));
    }
    let budgets: Vec<String> = run
        .sources
        .iter()
        .map(|row| format!("{} {:.2}", row.source, row.budget))
        .collect();
    lines.push(format!(
        "  budgets at the end: {}; memory: {} KiB of {}",
        budgets.join(", "),
        run.memory_bytes >> 10,
        run.memory_bytes_max >> 10
    ));
}
