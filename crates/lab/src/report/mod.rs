//! What a lab found out: one document, written as it grows and read again by whatever shows or compares it.

mod compare;
mod error;
mod file;
mod html;
mod markdown;
mod model;
mod numbers;
mod plot;
mod table;
mod view;
mod words;
mod write;

pub use compare::{CellChange, Change, Comparison, Difference, compare};
pub use error::ReportError;
pub use file::{FILE, FileError, load, save};
pub use html::html;
pub use markdown::markdown;
pub use model::{
    Axis, Cell, CellKey, Curve, Document, Drawing, LinkCut, LinkProof, LinkSummary, Machine, Median, Outcome,
    Published, Run, Score, ScorePart, Series, Setting, VERSION, Warning, WorkSummary,
};
pub use plot::{Look, png, svgs};
pub use table::{TableOptions, table};
pub use write::{Written, write_all};
