//! A page with any sections: tables, heat maps and plots. It has the look of a lab's report, without
//! the lab's document.

use std::collections::HashSet;

use super::model::Curve;
use super::plot::{self, HeatMap, Plot};
use super::view::View;

/// Largest number of plots of a page.
const PLOTS_MAX: usize = 96;

/// A page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet {
    /// The command.
    pub(crate) command: String,
    /// One word or two after it.
    pub(crate) kind: String,
    /// Whether all results are there.
    pub(crate) complete: bool,
    /// One line for people.
    pub(crate) title: String,
    /// When and where it was measured.
    pub(crate) when: String,
    /// The result in some sentences.
    pub(crate) lead: String,
    /// The most important figures: figure, unit, label.
    pub(crate) tiles: Vec<[String; 3]>,
    /// Reasons to doubt figures.
    pub(crate) warnings: Vec<String>,
    /// What was not measured.
    pub(crate) skipped: Vec<String>,
    /// Sections.
    pub(crate) sections: Vec<SheetSection>,
    /// Names and values under a heading each.
    pub(crate) facts: Vec<(String, Vec<[String; 2]>)>,
    /// Name and content of the document that the page was made from.
    pub(crate) raw: (String, Vec<u8>),
}

/// A section of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct SheetSection {
    /// Unique in the page; letters and dashes.
    pub(crate) id: String,
    /// Heading.
    pub(crate) title: String,
    /// A sentence or two below it; may be empty.
    pub(crate) note: String,
    /// Contents.
    pub(crate) parts: Vec<Part>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A table: what it is, heads, rows.
    Table(String, Vec<String>, Vec<Vec<String>>),
    /// Plots next to each other.
    Plots(Vec<Drawing>),
    /// Parts that are opened by a click on this text.
    Folded(String, Vec<Part>),
}

/// A plot or heat map.
#[derive(Clone, Debug)]
pub(crate) enum Drawing {
    /// Lines or bars.
    Curve(Curve),
    /// A heat map.
    Map(HeatMap),
}

/// The plots of a page with the names of their files, in their order.
pub(super) struct SheetPlots<'v, 'a> {
    plots: Vec<Plot<'v, 'a>>,
    next: usize,
}

impl<'v, 'a> SheetPlots<'v, 'a> {
    /// Names all plots of a page. `view` is one of no document.
    pub(super) fn of(sheet: &'a Sheet, view: &'v View<'a>) -> Self {
        let mut taken = HashSet::new();
        let mut plots = Vec::new();
        for part in sheet.sections.iter().flat_map(|section| &section.parts) {
            collect(part, &mut |drawing| {
                plots.push(match drawing {
                    Drawing::Curve(curve) => Plot::of_curve(plot::unique(&mut taken, &curve.id), view, curve),
                    Drawing::Map(map) => Plot::of_map(plot::unique(&mut taken, &map.id), view, map),
                });
            });
        }
        plots.truncate(PLOTS_MAX);
        Self { plots, next: 0 }
    }

    /// Returns the next plot; `None` beyond the limit.
    pub(super) fn next(&mut self) -> Option<&Plot<'v, 'a>> {
        self.next += 1;
        self.plots.get(self.next - 1)
    }
}

fn collect<'a>(part: &'a Part, take: &mut impl FnMut(&'a Drawing)) {
    match part {
        Part::Plots(drawings) => drawings.iter().for_each(take),
        Part::Folded(_, parts) => parts.iter().for_each(|part| collect_folded(part, take)),
        Part::Table(..) => {}
    }
}

/// Folded parts are not folded again.
fn collect_folded<'a>(part: &'a Part, take: &mut impl FnMut(&'a Drawing)) {
    if let Part::Plots(drawings) = part {
        drawings.iter().for_each(take);
    }
}
