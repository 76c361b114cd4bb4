//! From events of tracefs to calls: the begin and the end of each call are paired by thread.
//!
//! Events of several processors are merged by their times first ([`Merge`]): a thread may begin a call
//! on one processor and end it on another one.

use std::collections::HashMap;

use super::format::{Field, Format};
use crate::call::{Captured, RawCall, RawEvent};
use crate::catalogue::{Capture, Catalogue};

/// Most calls in progress that are kept; a call whose end was lost stays until its thread's next one.
const PROGRESS_MAX: usize = 1 << 16;
/// Largest number of arguments of a call.
const ARGS: usize = 6;

/// What an event's number means.
#[derive(Clone, Debug)]
enum Meaning {
    Enter(Box<Enter>),
    Exit { result: Field },
    Fork { child: Field },
    Execute { path: Field, old: Field },
    End,
}

/// Fields of a call's begin.
#[derive(Clone, Debug)]
struct Enter {
    number: u32,
    args: Vec<Field>,
    /// Texts of the two captures, where the kernel tells them (Linux 6.19).
    texts: [Option<Field>; 2],
}

/// All events that are understood.
#[derive(Clone, Debug)]
pub struct Meanings {
    by_id: HashMap<u16, Meaning>,
    kind: Field,
    thread: Field,
}

impl Meanings {
    /// Makes the table from the `format` files of all events, by the names of their folders
    /// (`sys_enter_openat`); `None` if the fields of all events are missing.
    pub fn new<'t>(
        formats: impl IntoIterator<Item = (&'t str, &'t str)>,
        catalogue: &Catalogue,
    ) -> Option<Self> {
        let mut by_id = HashMap::new();
        let mut common = None;
        for (name, text) in formats {
            let Some(format) = Format::parse(text) else {
                continue;
            };
            if let Some(meaning) = meaning(name, &format, catalogue) {
                by_id.insert(format.id, meaning);
            }
            common = common.or_else(|| {
                Some((
                    format.field("common_type")?.clone(),
                    format.field("common_pid")?.clone(),
                ))
            });
        }
        let (kind, thread) = common?;
        Some(Self { by_id, kind, thread })
    }

    /// Whether the kernel tells the names of files.
    pub fn has_names(&self) -> bool {
        let has = |meaning: &Meaning| matches!(meaning, Meaning::Enter(enter) if enter.texts[0].is_some());
        self.by_id.values().any(has)
    }
}

fn meaning(name: &str, format: &Format, catalogue: &Catalogue) -> Option<Meaning> {
    let field = |name: &str| format.field(name).cloned();
    if let Some(call) = name.strip_prefix("sys_enter_") {
        let (number, entry) = catalogue.by_tracepoint(call)?;
        let first = format
            .fields
            .iter()
            .position(|field| field.name == "__syscall_nr")?
            + 1;
        let args: Vec<Field> = format.fields[first..].iter().take(ARGS).cloned().collect();
        // `__filename_val` belongs to the argument `filename`.
        let texts = entry.captures.map(|capture| match capture {
            Capture::Text(argument) => {
                let argument = args.get(usize::from(argument))?;
                format
                    .field(&format!("__{}_val", argument.name))
                    .filter(|field| field.is_elsewhere)
                    .cloned()
            }
            _ => None,
        });
        return Some(Meaning::Enter(Box::new(Enter { number, args, texts })));
    }
    if name.starts_with("sys_exit_") {
        return Some(Meaning::Exit {
            result: field("ret")?,
        });
    }
    match name {
        "sched_process_fork" => Some(Meaning::Fork {
            child: field("child_pid")?,
        }),
        "sched_process_exec" => Some(Meaning::Execute {
            path: field("filename")?,
            old: field("old_pid")?,
        }),
        "sched_process_exit" => Some(Meaning::End),
        _ => None,
    }
}

/// A call in progress.
#[derive(Clone, Debug)]
struct Progress {
    number: u32,
    start_ns: u64,
    args: [u64; ARGS],
    texts: [Option<Box<[u8]>>; 2],
}

/// Which process a thread belongs to.
pub trait Threads {
    /// Returns the process of a thread, if that is known.
    fn process_of(&mut self, thread: u32) -> Option<u32>;
}

/// Pairs begins and ends.
#[derive(Debug)]
pub struct Pairing {
    meanings: Meanings,
    progress: HashMap<u32, Progress>,
    /// Process of each thread.
    processes: HashMap<u32, u32>,
    /// Calls whose begin or end is missing.
    unpaired: u64,
}

impl Pairing {
    /// Begins without threads.
    pub fn new(meanings: Meanings) -> Self {
        Self {
            meanings,
            progress: HashMap::new(),
            processes: HashMap::new(),
            unpaired: 0,
        }
    }

    /// Returns how many calls had a begin without an end.
    pub fn unpaired(&self) -> u64 {
        self.unpaired
    }

    /// Returns how many calls are kept.
    pub fn in_progress(&self) -> usize {
        self.progress.len()
    }

    fn process(&mut self, thread: u32, threads: &mut dyn Threads) -> u32 {
        if let Some(known) = self.processes.get(&thread) {
            return *known;
        }
        if self.processes.len() >= PROGRESS_MAX {
            self.processes.clear();
        }
        let found = threads.process_of(thread).unwrap_or(thread);
        self.processes.insert(thread, found);
        found
    }

    /// Takes an event, in the order of times, and passes on what it means.
    pub fn take(
        &mut self,
        time: u64,
        event: &[u8],
        threads: &mut dyn Threads,
        pass: &mut dyn FnMut(RawEvent<'_>),
    ) {
        let kind = self
            .meanings
            .kind
            .number(event)
            .and_then(|kind| u16::try_from(kind).ok());
        let thread = self
            .meanings
            .thread
            .number(event)
            .and_then(|thread| u32::try_from(thread).ok());
        let (Some(kind), Some(thread)) = (kind, thread) else {
            return;
        };
        let Some(meaning) = self.meanings.by_id.get(&kind).cloned() else {
            return;
        };
        match meaning {
            Meaning::Enter(enter) => self.enter(time, event, thread, &enter),
            Meaning::Exit { result } => {
                let result = result.number(event).unwrap_or(0).cast_signed();
                self.exit(time, thread, result, threads, pass);
            }
            Meaning::Fork { child } => {
                let child = child.number(event).and_then(|child| u32::try_from(child).ok());
                if let Some(child) = child {
                    let parent_process = self.process(thread, threads);
                    self.processes.remove(&child);
                    let child_process = self.process(child, threads);
                    pass(RawEvent::Fork {
                        parent: thread,
                        parent_process,
                        child,
                        child_process,
                    });
                }
            }
            Meaning::Execute { path, old } => {
                let process = self.process(thread, threads);
                if let Some(old) = old.number(event).and_then(|old| u32::try_from(old).ok())
                    && old != thread
                {
                    self.progress.remove(&old);
                    self.processes.remove(&old);
                }
                let path = path.text(event).unwrap_or_default();
                let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                // The kernel cuts names here too (TASK_COMM_LEN).
                let program = &name[..name.len().min(15)];
                if let Some(call) = self.progress.get(&thread) {
                    let mut call = raw(call, (thread, process), time, 0);
                    call.captured[0] = Captured::Bytes(path);
                    pass(RawEvent::Entered(call));
                }
                pass(RawEvent::Execute { process, program });
            }
            Meaning::End => {
                let process = self.process(thread, threads);
                if let Some(call) = self.progress.remove(&thread) {
                    pass(RawEvent::Unfinished(raw(&call, (thread, process), time, 0)));
                }
                self.processes.remove(&thread);
                pass(RawEvent::Exit { thread, process });
            }
        }
    }

    fn enter(&mut self, time: u64, event: &[u8], thread: u32, enter: &Enter) {
        let mut args = [0; ARGS];
        for (arg, field) in args.iter_mut().zip(&enter.args) {
            *arg = field.number(event).unwrap_or(0);
        }
        let text = |field: &Option<Field>| Some(Box::from(field.as_ref()?.text(event)?));
        let call = Progress {
            number: enter.number,
            start_ns: time,
            args,
            texts: [text(&enter.texts[0]), text(&enter.texts[1])],
        };
        if self.progress.len() >= PROGRESS_MAX && !self.progress.contains_key(&thread) {
            self.unpaired += self.progress.len() as u64;
            self.progress.clear();
        }
        if self.progress.insert(thread, call).is_some() {
            self.unpaired += 1;
        }
    }

    fn exit(
        &mut self,
        time: u64,
        thread: u32,
        result: i64,
        threads: &mut dyn Threads,
        pass: &mut dyn FnMut(RawEvent<'_>),
    ) {
        // A call that began before the recording has no begin.
        if let Some(call) = self.progress.remove(&thread) {
            let process = self.process(thread, threads);
            pass(RawEvent::Call(raw(&call, (thread, process), time, result)));
        }
    }
}

fn raw(call: &Progress, (thread, process): (u32, u32), end_ns: u64, result: i64) -> RawCall<'_> {
    RawCall {
        thread,
        process,
        number: call.number,
        start_ns: call.start_ns,
        end_ns,
        result,
        args: call.args,
        captured: [captured(&call.texts[0]), captured(&call.texts[1])],
        position: None,
    }
}

fn captured(text: &Option<Box<[u8]>>) -> Captured<'_> {
    text.as_deref().map_or(Captured::Nothing, Captured::Bytes)
}

/// Merges the events of several processors by their times.
#[derive(Debug, Default)]
pub struct Merge {
    events: Vec<(u64, Box<[u8]>)>,
}

impl Merge {
    /// Adds an event.
    pub fn add(&mut self, time: u64, event: &[u8]) {
        self.events.push((time, Box::from(event)));
    }

    /// Passes on all events before a time, in their order. The others wait.
    pub fn release(&mut self, before: u64, mut pass: impl FnMut(u64, &[u8])) {
        self.events.sort_by_key(|(time, _)| *time);
        let end = self.events.partition_point(|(time, _)| *time < before);
        for (time, event) in self.events.drain(..end) {
            pass(time, &event);
        }
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
