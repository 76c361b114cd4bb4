//! Builds HTML. Text and values of attributes are always escaped; names of elements and attributes
//! are ours.

use super::RELOAD_SECONDS;

/// HTML as far as it is built.
#[derive(Default)]
pub(super) struct Html(String);

impl Html {
    /// Begins a page, up to its body. `is_live`: it is kept up to date.
    pub(super) fn page(title: &str, is_live: bool) -> Self {
        let mut html = Self::default();
        html.doctype();
        html.open("html", &[("lang", "en")]);
        html.open("head", &[]);
        html.meta();
        html.element("title", &[], title);
        html.void(
            "link",
            &[("rel", "icon"), ("type", "image/svg+xml"), ("href", "/icon.svg")],
        );
        html.void("link", &[("rel", "stylesheet"), ("href", "/page.css")]);
        if is_live {
            html.element("script", &[("src", "/page.js"), ("defer", "")], "");
            html.reload();
        }
        html.close("head");
        html
    }

    pub(super) fn doctype(&mut self) {
        self.0.push_str("<!doctype html>\n");
    }

    /// Adds what every page says of itself.
    pub(super) fn meta(&mut self) {
        self.void("meta", &[("charset", "utf-8")]);
        let width = "width=device-width, initial-scale=1";
        self.void("meta", &[("name", "viewport"), ("content", width)]);
        self.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
        self.void("meta", &[("name", "referrer"), ("content", "no-referrer")]);
    }

    /// Loads the page again now and then, if there are no scripts.
    fn reload(&mut self) {
        self.open("noscript", &[]);
        let seconds = RELOAD_SECONDS.to_string();
        self.void("meta", &[("http-equiv", "refresh"), ("content", &seconds)]);
        self.close("noscript");
    }

    pub(super) fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.0.push('<');
        self.0.push_str(name);
        for (name, value) in attributes {
            self.0.push(' ');
            self.0.push_str(name);
            self.0.push_str("=\"");
            self.text(value);
            self.0.push('"');
        }
        self.0.push('>');
    }

    pub(super) fn close(&mut self, name: &str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push_str(">\n");
    }

    /// Adds an element that has no end.
    pub(super) fn void(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.open(name, attributes);
    }

    /// Adds an element with text.
    pub(super) fn element(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        self.open(name, attributes);
        self.text(text);
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }

    /// Adds text, escaped.
    pub(super) fn text(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c => self.0.push(c),
            }
        }
    }

    /// Ends the page.
    pub(super) fn finish(mut self) -> String {
        self.close("html");
        self.0
    }
}
