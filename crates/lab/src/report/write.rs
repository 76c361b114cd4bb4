//! Writes all reports of a document, each file atomically.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::atomic::replace;
use super::error::ReportError;
use super::html::html;
use super::markdown::markdown;
use super::model::Document;
use super::plot::{self, Medium};
use super::sheet::{Sheet, SheetPlots};
use super::view::View;

/// The written files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Paths, in the order of writing.
    pub files: Vec<PathBuf>,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Writes `report.md`, `report.html` and each plot as `.svg` and `.png`. Creates the folder if missing.
///
/// # Errors
/// A file cannot be written, or a plot cannot be rendered.
pub fn write_all(document: &Document, folder: &Path) -> Result<Written, ReportError> {
    let mut writer = Writer::begin(folder)?;
    for (name, svg) in plot::svgs(document, Medium::Picture) {
        writer.put(&format!("{name}.png"), &plot::png(&name, &svg)?)?;
    }
    for (name, svg) in plot::svgs(document, Medium::File) {
        writer.put(&format!("{name}.svg"), svg.as_bytes())?;
    }
    writer.put("report.md", markdown(document).as_bytes())?;
    writer.put("report.html", html(document).as_bytes())?;
    Ok(writer.written)
}

/// Returns a page as HTML.
pub(crate) fn sheet_html(sheet: &Sheet) -> String {
    let empty = Document::default();
    let view = View::of(&empty);
    super::html::sheet(sheet, SheetPlots::of(sheet, &view))
}

/// Returns a page as Markdown; its pictures have the names of [`write_sheet`].
fn sheet_markdown(sheet: &Sheet) -> String {
    let empty = Document::default();
    let view = View::of(&empty);
    super::markdown::sheet(sheet, SheetPlots::of(sheet, &view))
}

/// Writes `STEM.md`, `STEM.html` and each plot as `.svg` and `.png`. Creates the folder if missing.
///
/// # Errors
/// A file cannot be written, or a plot cannot be rendered.
pub(crate) fn write_sheet(sheet: &Sheet, folder: &Path, stem: &str) -> Result<Written, ReportError> {
    let mut writer = Writer::begin(folder)?;
    let empty = Document::default();
    let view = View::of(&empty);
    let mut plots = SheetPlots::of(sheet, &view);
    while let Some(plot) = plots.next() {
        let picture = plot.svg(Medium::Picture, plot.file_px(), &plot.name);
        writer.put(&format!("{}.png", plot.name), &plot::png(&plot.name, &picture)?)?;
        let file = plot.svg(Medium::File, plot.file_px(), &plot.name);
        writer.put(&format!("{}.svg", plot.name), file.as_bytes())?;
    }
    writer.put(&format!("{stem}.md"), sheet_markdown(sheet).as_bytes())?;
    writer.put(&format!("{stem}.html"), sheet_html(sheet).as_bytes())?;
    Ok(writer.written)
}

/// Writes files into a folder.
struct Writer<'a> {
    folder: &'a Path,
    written: Written,
}

impl<'a> Writer<'a> {
    /// Creates the folder if it is missing.
    fn begin(folder: &'a Path) -> Result<Self, ReportError> {
        fs::create_dir_all(folder).map_err(Self::failed(folder))?;
        Ok(Self {
            folder,
            written: Written::default(),
        })
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), ReportError> {
        let path = self.folder.join(name);
        replace(&path, bytes).map_err(Self::failed(&path))?;
        self.written.bytes += bytes.len() as u64;
        self.written.files.push(path);
        Ok(())
    }

    fn failed(path: &Path) -> impl FnOnce(io::Error) -> ReportError + use<> {
        let path = path.to_owned();
        move |source| ReportError::Write { path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Axis, Curve, Series};
    use crate::report::plot::HeatMap;
    use crate::report::sheet::{Drawing, Part, SheetSection};

    fn sheet() -> Sheet {
        let curve = Curve::lines(
            "a",
            "A <curve>",
            [Axis::logarithmic("record", "B"), Axis::new("throughput", "B/s")],
            vec![Series::measured("x", vec![[4096.0, 1e6], [65536.0, 2e6]])],
        );
        let map = HeatMap {
            id: "a".to_owned(),
            title: "A map".to_owned(),
            rows: vec!["r".to_owned()],
            columns: vec!["c".to_owned()],
            shown: ("MB/s".to_owned(), 1e6),
            values: vec![vec![Some(5e6)]],
            tips: vec![vec!["tip <x>".to_owned()]],
            ..HeatMap::default()
        };
        Sheet {
            command: "ropeway bench".to_owned(),
            title: "Title & more".to_owned(),
            lead: "Lead.".to_owned(),
            tiles: vec![["5".to_owned(), "MB/s".to_owned(), "writes".to_owned()]],
            warnings: vec!["a <warning>".to_owned()],
            sections: vec![SheetSection {
                id: "s".to_owned(),
                title: "Section".to_owned(),
                note: "Note.".to_owned(),
                parts: vec![
                    Part::Table(
                        "Table".to_owned(),
                        vec!["a".to_owned(), "b".to_owned()],
                        vec![vec!["1|".to_owned(), "2".to_owned()]],
                    ),
                    Part::Plots(vec![Drawing::Curve(curve)]),
                    Part::Folded("More".to_owned(), vec![Part::Plots(vec![Drawing::Map(map)])]),
                ],
            }],
            facts: vec![("Machine".to_owned(), vec![["Kernel".to_owned(), "6".to_owned()]])],
            raw: ("bench.json".to_owned(), b"{}".to_vec()),
            ..Sheet::default()
        }
    }

    #[test]
    fn a_page_has_everything_and_nothing_foreign() {
        let page = sheet_html(&sheet());
        for part in [
            "<h1>Title &amp; more</h1>",
            "a &lt;warning&gt;",
            "<h2 id=\"s\">Section</h2>",
            "<summary>More</summary>",
            "download=\"bench.json\"",
            "not complete",
            "tip &lt;x&gt;",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<curve>") && !page.contains("<warning>"));
        // Each plot stands there in two widths.
        assert_eq!(page.matches("<svg").count(), 4);
        assert_eq!(page, sheet_html(&sheet()));
    }

    #[test]
    fn all_files_are_written_and_named_in_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let written = write_sheet(&sheet(), folder.path(), "bench").unwrap();
        let names: Vec<String> = written
            .files
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names,
            ["a.png", "a.svg", "a-2.png", "a-2.svg", "bench.md", "bench.html"]
        );
        let text = fs::read_to_string(folder.path().join("bench.md")).unwrap();
        for part in [
            "# Title & more",
            "(a.png)",
            "(a-2.png)",
            "| 1\\| | 2 |",
            "## Machine",
        ] {
            let part = part.replace('&', "&amp;");
            assert!(text.contains(&part), "{part}\nis not in\n{text}");
        }
        let svg = fs::read_to_string(folder.path().join("a-2.svg")).unwrap();
        assert!(roxmltree::Document::parse(&svg).is_ok());
    }
}
