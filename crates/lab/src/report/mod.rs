//! Results of a lab: one document, written while it grows, and the tables, plots and comparisons made
//! from it.

mod atomic;
mod beside;
mod build;
mod compare;
mod error;
mod file;
mod html;
mod lines;
mod markdown;
mod model;
pub(crate) mod numbers;
mod plot;
mod sheet;
mod table;
mod text;
mod view;
mod write;

pub(crate) use compare::noise;
pub use compare::{CellChange, Change, Comparison, Difference, compare};
pub use error::ReportError;
pub use file::{FILE, FileError, load, save};
pub(crate) use file::{load_json, save_json};
pub use html::html;
pub use markdown::markdown;
pub use model::{
    Axis, Cell, CellKey, Curve, Document, Drawing, FloorTime, LOOPBACK, LinkCut, LinkProof, LinkSummary,
    Machine, Median, Outcome, Published, Run, Score, ScorePart, Series, Setting, SocketEnd, Sockets, VERSION,
    Warning, WorkSummary,
};
pub(crate) use plot::HeatMap;
pub use plot::{Figure, FigurePanel, FigureShape, Medium, figure_png, figure_svg, png, svgs};
pub(crate) use sheet::{Drawing as SheetDrawing, Part, Sheet, SheetSection};
pub use table::{TableOptions, table};
pub(crate) use write::write_sheet;
pub use write::{Written, write_all};
