//! Plots of a document as SVG and PNG. Nothing depends on the machine: equal documents give equal bytes.

mod curve;
mod figure;
mod heat;
mod multiples;
mod panel;
mod picture;
mod scale;
mod style;
mod svg;
mod times;

use std::collections::HashSet;

use super::error::ReportError;
use super::model::{Curve, Document};
use super::numbers;
use super::view::{Section, View};
use svg::Caption;

pub use figure::{Figure, FigurePanel, FigureShape, figure_png, figure_svg};
pub(crate) use heat::HeatMap;
pub use svg::Medium;

/// Largest number of plots of a document.
const PLOTS_MAX: usize = 96;
/// Largest length of a plot's name in characters.
const NAME_MAX: usize = 60;
/// Width of a plot of seconds as a file, and on a wide page.
pub(super) const WIDE_PX: f64 = 1040.0;
/// Width of a curve as a file.
const CURVE_PX: f64 = 760.0;

/// Content of a plot.
#[derive(Clone, Copy, Debug)]
enum Subject<'v, 'a> {
    Times(&'v Section<'a>),
    Curve(&'a Curve),
    Heat(&'a HeatMap),
}

/// A plot, to be drawn in any width.
#[derive(Debug)]
pub(super) struct Plot<'v, 'a> {
    /// Unique name, fit for a file.
    pub(super) name: String,
    pub(super) title: String,
    view: &'v View<'a>,
    subject: Subject<'v, 'a>,
}

impl<'v, 'a> Plot<'v, 'a> {
    /// Returns the plot of a curve with this unique name.
    pub(super) fn of_curve(name: String, view: &'v View<'a>, curve: &'a Curve) -> Self {
        Self {
            name,
            title: numbers::name(&curve.title),
            view,
            subject: Subject::Curve(curve),
        }
    }

    /// Returns the plot of a heat map with this unique name.
    pub(super) fn of_map(name: String, view: &'v View<'a>, map: &'a HeatMap) -> Self {
        Self {
            name,
            title: numbers::name(&map.title),
            view,
            subject: Subject::Heat(map),
        }
    }
}

impl Plot<'_, '_> {
    /// Whether it is a curve, not the seconds of a section.
    pub(super) fn is_curve(&self) -> bool {
        matches!(self.subject, Subject::Curve(_))
    }

    /// Whether it shows this section.
    pub(super) fn shows(&self, section: &Section<'_>) -> bool {
        matches!(self.subject, Subject::Times(shown) if shown.work == section.work && shown.direction == section.direction)
    }

    /// Whether it is a curve of this section: its id ends with work and direction.
    pub(super) fn belongs_to(&self, section: &Section<'_>) -> bool {
        let Subject::Curve(curve) = self.subject else {
            return false;
        };
        let rest = curve
            .id
            .strip_suffix(section.direction)
            .and_then(|id| id.strip_suffix('-'));
        let rest = rest.and_then(|id| id.strip_suffix(section.work));
        rest.is_some_and(|id| id.ends_with('-'))
    }

    /// Returns a description for readers who cannot see the plot.
    pub(super) fn describe(&self) -> String {
        match self.subject {
            Subject::Times(section) => times::describe(self.view, section),
            Subject::Curve(curve) => curve::describe(curve),
            Subject::Heat(map) => heat::describe(map),
        }
    }

    /// Returns the plot as SVG. `id` is unique within a page.
    pub(super) fn svg(&self, medium: Medium, width: f64, id: &str) -> String {
        let caption = Caption {
            id: id.to_owned(),
            title: self.title.clone(),
            description: self.describe(),
        };
        match self.subject {
            Subject::Times(section) => times::draw(self.view, section, medium, width, &caption),
            Subject::Curve(curve) => curve::draw(self.view, curve, medium, width, &caption),
            Subject::Heat(map) => heat::draw(map, medium, width, &caption),
        }
    }

    /// Width of the plot as a file.
    pub(super) fn file_px(&self) -> f64 {
        match self.subject {
            Subject::Times(_) => WIDE_PX,
            Subject::Curve(_) | Subject::Heat(_) => CURVE_PX,
        }
    }
}

/// Returns all plots of a document.
pub(super) fn plots<'v, 'a>(view: &'v View<'a>) -> Vec<Plot<'v, 'a>> {
    let mut taken = HashSet::new();
    let mut plots = Vec::new();
    for section in &view.sections {
        plots.push(Plot {
            name: unique(
                &mut taken,
                &format!("time-{}-{}", section.work, section.direction),
            ),
            title: view.section_title(section),
            view,
            subject: Subject::Times(section),
        });
    }
    let curves = view.doc.curves.iter();
    for curve in curves.filter(|curve| curve::is_worth_drawing(curve)) {
        plots.push(Plot::of_curve(unique(&mut taken, &curve.id), view, curve));
    }
    plots.truncate(PLOTS_MAX);
    plots
}

/// Returns name and SVG of each plot, as [`super::write_all`] writes them.
pub fn svgs(document: &Document, medium: Medium) -> Vec<(String, String)> {
    let view = View::of(document);
    let drawn = plots(&view).into_iter().map(|plot| {
        let svg = plot.svg(medium, plot.file_px(), &plot.name);
        (plot.name, svg)
    });
    drawn.collect()
}

/// Renders an SVG of [`Medium::Picture`] as PNG, with two pixels for one.
///
/// # Errors
/// The SVG is invalid or has no size.
pub fn png(name: &str, svg: &str) -> Result<Vec<u8>, ReportError> {
    picture::png(name, svg)
}

/// Returns the style of plots in a page.
pub(super) fn css(dark: bool) -> String {
    style::css(dark)
}

/// Returns an unused name of small letters, digits and dashes.
pub(super) fn unique(taken: &mut HashSet<String>, wanted: &str) -> String {
    let mut name = String::new();
    for letter in wanted.chars().take(NAME_MAX) {
        match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9') => name.push(letter),
            _ if name.ends_with('-') || name.is_empty() => {}
            _ => name.push('-'),
        }
    }
    let name = name.trim_end_matches('-');
    let name = if name.is_empty() { "plot" } else { name };
    // This ends, since there are fewer plots than numbers.
    let free = (1_u32..).find_map(|number| {
        let tried = if number == 1 {
            name.to_owned()
        } else {
            format!("{name}-{number}")
        };
        taken.insert(tried.clone()).then_some(tried)
    });
    free.unwrap_or_default()
}
