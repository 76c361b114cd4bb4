//! Writes all reports of a document, each file atomically.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::ReportError;
use super::model::Document;
use super::{Medium, html, markdown, plot};

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
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut written = Written::default();
    let mut put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        replace(&path, bytes).map_err(failed(&path))?;
        written.bytes += bytes.len() as u64;
        written.files.push(path);
        Ok(())
    };
    for (name, svg) in plot::svgs(document, Medium::Picture) {
        put(&format!("{name}.png"), &plot::png(&name, &svg)?)?;
    }
    for (name, svg) in plot::svgs(document, Medium::File) {
        put(&format!("{name}.svg"), svg.as_bytes())?;
    }
    put("report.md", markdown(document).as_bytes())?;
    put("report.html", html(document).as_bytes())?;
    Ok(written)
}

/// Writes a file atomically: a concurrent reader finds the old file or the new one.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let write = || -> io::Result<()> {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        // After a power cut the new name must not refer to an empty file.
        file.sync_data()?;
        fs::rename(&part, path)
    };
    let done = write();
    if done.is_err() {
        // Leaves no partial file.
        _ = fs::remove_file(&part);
    }
    done
}
