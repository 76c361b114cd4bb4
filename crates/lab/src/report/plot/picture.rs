//! Renders plots as PNG, with a font in the program, so that they are the same on every machine.

use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::super::error::ReportError;

/// Pixels of a picture for one pixel of a drawing.
const SCALE: f32 = 2.0;
/// Largest side of a picture in pixels.
const SIDE_MAX: f32 = 12_000.0;

/// Renders an SVG.
///
/// # Errors
/// The SVG is invalid or too large.
pub(super) fn png(name: &str, svg: &str) -> Result<Vec<u8>, ReportError> {
    let failed = |reason: String| ReportError::Picture {
        name: name.to_owned(),
        reason,
    };
    let options = Options {
        fontdb: fonts(),
        font_family: "Ubuntu".to_owned(),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size();
    let scale = SCALE.min(SIDE_MAX / size.width().max(size.height()));
    // Bounded by the line above.
    let (width, height) = ((size.width() * scale).ceil(), (size.height() * scale).ceil());
    let mut pixels =
        Pixmap::new(width as u32, height as u32).ok_or_else(|| failed("it has no size".to_owned()))?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(error.to_string()))
}

/// Returns the font Ubuntu Light (Ubuntu Font Licence 1.0).
fn fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let made = FONTS.get_or_init(|| {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
        fonts.set_sans_serif_family("Ubuntu");
        Arc::new(fonts)
    });
    Arc::clone(made)
}
