//! What a lab found out: one document, written as it grows and read again by whatever shows or compares it.

mod file;
mod model;

pub use file::{FILE, FileError, load, save};
pub use model::{
    Axis, Cell, CellKey, Curve, Document, Drawing, LinkProof, LinkSummary, Machine, Median, Outcome,
    Published, Run, Score, ScorePart, Series, Setting, VERSION, Warning, WorkSummary,
};
