//! SVG as text: a few shapes, all text escaped, all numbers finite and to a tenth, so that equal plots are equal bytes.

use std::fmt::Write;

use super::super::numbers;
use super::style;

/// For whom a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Within a page, which has the style.
    Page,
    /// A file of its own, light or dark as the reader likes it.
    File,
    /// To be made into a picture: light, with a ground.
    Picture,
}

/// Where a text stands beside its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing that grows.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

/// A length or a place, to a tenth of a pixel.
pub(super) fn px(value: f64) -> String {
    let value = if value.is_finite() {
        (value * 10.0).round() / 10.0
    } else {
        0.0
    };
    // No negative nought.
    format!("{}", value + 0.0)
}

impl Svg {
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (px(from.0), px(from.1), px(to.0), px(to.1));
        self.add(format_args!(
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        ));
    }

    /// A rectangle from its upper left corner; a tip is shown where a pointer rests on it.
    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), tip: &str) {
        let (x, y, width, height) = (
            px(corner.0),
            px(corner.1),
            px(size.0.max(0.0)),
            px(size.1.max(0.0)),
        );
        let tip = if tip.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", numbers::escape(tip))
        };
        self.add(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}">{tip}</rect>"#
        ));
    }

    pub(super) fn circle(&mut self, class: &str, center: (f64, f64), radius: f64) {
        let (x, y, r) = (px(center.0), px(center.1), px(radius));
        self.add(format_args!(
            r#"<circle class="{class}" cx="{x}" cy="{y}" r="{r}"/>"#
        ));
    }

    pub(super) fn polyline(&mut self, class: &str, name: &str, points: &[(f64, f64)]) {
        let mut places = String::with_capacity(points.len() * 12);
        for (x, y) in points {
            _ = write!(places, "{},{} ", px(*x), px(*y));
        }
        let name = numbers::escape(name);
        self.add(format_args!(
            r#"<polyline class="{class}" data-n="{name}" points="{}"/>"#,
            places.trim_end()
        ));
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let (x, y, text) = (px(at.0), px(at.1), numbers::escape(text));
        self.add(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}"{anchor}>{text}</text>"#
        ));
    }

    /// Opens a group; foreign text in its attributes is escaped already.
    pub(super) fn open(&mut self, attributes: &str) {
        self.add(format_args!("<g {attributes}>"));
    }

    pub(super) fn close(&mut self) {
        self.body.push_str("</g>\n");
    }

    fn add(&mut self, shape: std::fmt::Arguments<'_>) {
        _ = self.body.write_fmt(shape);
        self.body.push('\n');
    }

    /// The whole, with what those hear who cannot see it.
    pub(super) fn finish(self, look: Look, size: (f64, f64), named: &Named) -> String {
        let (width, height) = (px(size.0), px(size.1));
        let (id, title) = (&named.id, numbers::escape(&named.title));
        let told = numbers::escape(&named.told);
        let style = match look {
            Look::Page => String::new(),
            Look::File => format!(
                "<style>{}@media (prefers-color-scheme:dark){{{}}}</style>\n",
                style::css(false),
                style::css(true)
            ),
            Look::Picture => format!("<style>{}{}</style>\n", style::css(false), style::PICTURE_CSS),
        };
        let ground = match look {
            Look::Page => String::new(),
            Look::File | Look::Picture => {
                format!("<rect class=\"p-ground\" width=\"{width}\" height=\"{height}\"/>\n")
            }
        };
        let body = match look {
            Look::Page | Look::File => self.body,
            Look::Picture => with_marks(&self.body),
        };
        let space = if look == Look::Page {
            ""
        } else {
            " xmlns=\"http://www.w3.org/2000/svg\""
        };
        format!(
            "<svg{space} class=\"rp\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\">\n<title id=\"{id}-t\">{title}</title>\n<desc id=\"{id}-d\">{told}</desc>\n\
             {style}{ground}{}</svg>\n",
            body
        )
    }
}

/// Arrows and ticks that the font of pictures lacks are taken from the other one; it would be taken for the whole
/// text.
fn with_marks(body: &str) -> String {
    let mut marked = body.to_owned();
    for mark in ["→", "✓", "✗"] {
        marked = marked.replace(mark, &format!("<tspan font-family=\"Hack\">{mark}</tspan>"));
    }
    marked
}

/// What a drawing is called.
#[derive(Debug)]
pub(super) struct Named {
    /// Unique within a page; letters, digits and dashes.
    pub(super) id: String,
    pub(super) title: String,
    /// In words.
    pub(super) told: String,
}

/// Width of a text, at least: those of the fonts that are used are narrower.
pub(super) fn text_width(text: &str, size_px: f64) -> f64 {
    let ems: f64 = text
        .chars()
        .map(|letter| match letter {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' | ' ' | '·' | '¹' => 0.30,
            'f' | 't' | 'r' | 'I' | '-' | '(' | ')' | '/' => 0.40,
            'm' | 'w' | 'M' | 'W' | '→' | '≈' | '…' | '–' | '✓' | '✗' => 0.92,
            '0'..='9' => 0.58,
            'A'..='Z' => 0.70,
            letter if letter.is_ascii() => 0.57,
            '\u{2e80}'..='\u{10ffff}' => 1.05,
            _ => 0.66,
        })
        .sum();
    ems * size_px
}

/// As much of a text as fits.
pub(super) fn fitted(text: &str, size_px: f64, width: f64) -> String {
    let text = numbers::name(text);
    if text_width(&text, size_px) <= width {
        return text;
    }
    let mut shown = String::new();
    for letter in text.chars() {
        shown.push(letter);
        if text_width(&shown, size_px) + 0.92 * size_px > width {
            shown.pop();
            break;
        }
    }
    format!("{}…", shown.trim_end())
}
