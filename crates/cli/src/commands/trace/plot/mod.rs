//! `--plot`: operations and bytes per second, operations in flight, sizes, and offsets against time.
//!
//! Everything is gathered in tables of fixed size, whose steps double when a trace is longer than
//! they are: memory does not grow with the trace.

mod busiest;
mod offsets;
mod picture;
mod sizes;
mod terminal;
mod timeline;

use std::io::{self, Write};

use self::offsets::Offsets;
use self::sizes::Sizes;
use self::timeline::Timeline;
use super::listing::heading;
use super::sums::size_of;
use super::view::{View, one_line};
use crate::args::Plot;
use crate::trace_file::{Header, Operation};

pub(super) use self::busiest::Busiest;

/// The series of all plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Series {
    Read,
    Write,
    Other,
}

/// Number of series.
const SERIES: usize = 3;

impl Series {
    const ALL: [Self; SERIES] = [Self::Read, Self::Write, Self::Other];

    fn of(operation: &Operation) -> Self {
        match operation.kind.as_str() {
            "read" => Self::Read,
            // Copies inside the kernel write too.
            "write" | "copy_range" | "reflink" => Self::Write,
            _ => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// Gathers and draws.
pub(super) struct Plots<'a> {
    plot: Plot<'a>,
    busiest: Busiest,
    title: String,
    header: Header,
    timeline: Timeline,
    sizes: Sizes,
    offsets: Offsets,
}

impl<'a> Plots<'a> {
    /// Offsets are drawn of the busiest files only, if there are any.
    pub(super) fn new(plot: Plot<'a>, busiest: Busiest) -> Self {
        Self {
            plot,
            busiest,
            title: String::new(),
            header: Header::default(),
            timeline: Timeline::default(),
            sizes: Sizes::default(),
            offsets: Offsets::default(),
        }
    }
}

impl View for Plots<'_> {
    fn begin(&mut self, header: &Header, _out: &mut dyn Write) -> io::Result<()> {
        self.title = one_line(&header.command.join(" "));
        self.header = header.clone();
        Ok(())
    }

    fn take(&mut self, operation: &Operation, _out: &mut dyn Write) -> io::Result<()> {
        let series = Series::of(operation);
        self.timeline.add(operation, series);
        if series != Series::Other {
            self.sizes.add(size_of(operation), series);
            if self.busiest.is_drawn(operation, series) {
                self.offsets.add(operation, series);
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self.plot {
            Plot::Terminal => {
                heading(&self.header, out)?;
                terminal::draw(self, out)
            }
            Plot::Svg(path) => picture::svg(self, path),
            Plot::Png(path) => picture::png(self, path),
        }
    }
}
