//! SVG as text. All text is escaped; all numbers are finite and rounded to a tenth, so that equal plots
//! give equal bytes.

use std::fmt::Write;

use super::super::numbers;
use super::style;

/// Height of the title of a file.
const HEAD_PX: f64 = 30.0;

/// Medium for which a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Part of a page, which has the style.
    Page,
    /// A separate file, light or dark by the reader's setting.
    File,
    /// Source of a picture: light, with a background.
    Picture,
}

/// Position of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

/// Formats a length or position, to a tenth of a pixel.
pub(super) fn px(value: f64) -> String {
    let value = if value.is_finite() {
        (value * 10.0).round() / 10.0
    } else {
        0.0
    };
    // Turns -0 into 0.
    format!("{}", value + 0.0)
}

impl Svg {
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (px(from.0), px(from.1), px(to.0), px(to.1));
        self.add(format_args!(
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        ));
    }

    /// Draws a rectangle from its upper left corner, with an optional tip.
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

    /// Draws a tick or a cross that ends at a point. Not every font has these letters.
    pub(super) fn mark(&mut self, is_tick: bool, (right, base): (f64, f64)) {
        if is_tick {
            let (low, high) = ((right - 6.0, base), (right, base - 8.0));
            self.line("p-mark p-yes", (right - 9.0, base - 3.5), low);
            self.line("p-mark p-yes", low, high);
        } else {
            for (from, to) in [(8.0, 0.5), (0.5, 8.0)] {
                let (from, to) = ((right - 8.0, base - from), (right - 1.0, base - to));
                self.line("p-mark p-not", from, to);
            }
        }
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

    /// Draws many lines as one path.
    pub(super) fn strokes(&mut self, class: &str, lines: &[[(f64, f64); 2]]) {
        let mut path = String::with_capacity(lines.len() * 24);
        for [from, to] in lines {
            let (x1, y1, x2, y2) = (px(from.0), px(from.1), px(to.0), px(to.1));
            _ = write!(path, "M{x1} {y1}L{x2} {y2}");
        }
        self.add(format_args!(r#"<path class="{class}" d="{path}"/>"#));
    }

    /// Adds rules for a light and a dark background.
    pub(super) fn style(&mut self, light: &str, dark: &str) {
        self.add(format_args!(
            "<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>"
        ));
    }

    /// Opens a group. Foreign text in its attributes must be escaped.
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

    /// Returns the whole SVG, with title and description for readers who cannot see it.
    pub(super) fn finish(self, medium: Medium, size: (f64, f64), caption: &Caption) -> String {
        // A page has its own titles; a file contains the title.
        let head = if medium == Medium::Page { 0.0 } else { HEAD_PX };
        let (width, height) = (px(size.0), px(size.1 + head));
        let (id, title) = (&caption.id, numbers::escape(&caption.title));
        let description = numbers::escape(&caption.description);
        let style = match medium {
            Medium::Page => String::new(),
            Medium::File => format!(
                "<style>{}@media (prefers-color-scheme:dark){{{}}}</style>\n",
                style::css(false),
                style::css(true)
            ),
            Medium::Picture => format!("<style>{}{}</style>\n", style::css(false), style::PICTURE_CSS),
        };
        let ground = match medium {
            Medium::Page => String::new(),
            Medium::File | Medium::Picture => {
                format!("<rect class=\"p-ground\" width=\"{width}\" height=\"{height}\"/>\n")
            }
        };
        let body = match medium {
            Medium::Page => self.body,
            Medium::File => headed(&self.body, &caption.title, size.0),
            Medium::Picture => without_arrows(&headed(&self.body, &caption.title, size.0)),
        };
        let space = if medium == Medium::Page {
            ""
        } else {
            " xmlns=\"http://www.w3.org/2000/svg\""
        };
        format!(
            "<svg{space} class=\"rp\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\">\n<title id=\"{id}-t\">{title}</title>\n<desc id=\"{id}-d\">{description}</desc>\n\
             {style}{ground}{}</svg>\n",
            body
        )
    }
}

/// Adds the title above a drawing.
fn headed(body: &str, title: &str, width: f64) -> String {
    let mut svg = Svg::default();
    let title = fitted(title, 15.0, width - 24.0);
    svg.text("p-h p-title", (12.0, 26.0), Anchor::Start, &title);
    svg.open(&format!("transform=\"translate(0 {})\"", px(HEAD_PX)));
    svg.body.push_str(body);
    svg.close();
    svg.body
}

/// Replaces the arrow, which the font of pictures lacks. One missing letter would change the font of the
/// whole text.
fn without_arrows(body: &str) -> String {
    body.replace('→', "›")
}

/// Title and description of a drawing.
#[derive(Debug)]
pub(super) struct Caption {
    /// Unique within a page; letters, digits and dashes.
    pub(super) id: String,
    pub(super) title: String,
    /// Description for readers who cannot see the drawing.
    pub(super) description: String,
}

/// Returns the largest width of a text: that in DejaVu Sans, the widest of the usual system fonts.
pub(super) fn text_width(text: &str, size_px: f64) -> f64 {
    let ems: f64 = text
        .chars()
        .map(|letter| match letter {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' | '·' | '\u{a0}' => 0.34,
            'f' | 't' | 'r' | 'I' | '-' | '(' | ')' | '[' | ']' | '/' | '!' | '¹' => 0.42,
            'm' | 'w' | 'M' | 'W' | '→' | '≈' | '…' | '–' | '✓' | '✗' | '%' | '@' => 1.0,
            '<' | '>' | '=' | '+' | '~' | '×' | '±' | '#' => 0.84,
            'A'..='Z' => 0.74,
            letter if letter.is_ascii() => 0.636,
            '\u{2e80}'..='\u{10ffff}' => 1.05,
            _ => 0.7,
        })
        .sum();
    ems * size_px
}

/// Returns as much of a text as fits.
pub(super) fn fitted(text: &str, size_px: f64, width: f64) -> String {
    let text = numbers::name(text);
    if text_width(&text, size_px) <= width {
        return text;
    }
    let mut shown = String::new();
    for letter in text.chars() {
        shown.push(letter);
        if text_width(&shown, size_px) + size_px > width {
            shown.pop();
            break;
        }
    }
    format!("{}…", shown.trim_end())
}
