//! What each shape of call does.

use std::rc::Rc;

use super::files::{Class, OpenFile};
use super::memory::{text, two_descriptors, vectors_length, word};
use super::{Decoder, Operation, Sink, System, UNKNOWN};
use crate::call::{Captured, RawCall};
use crate::catalogue::{Entry, Length, NewDescriptor, OpenFlags, Place, Shape};

/// The largest errno of the kernel (MAX_ERRNO of linux/err.h).
const ERRNO_MAX: i64 = 4095;
/// Results that only tracers see: the kernel repeats the call, or it ends with EINTR
/// (ERESTARTSYS and others of linux/errno.h).
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
/// Requests of ioctl(2) that share or copy blocks (linux/fs.h).
const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;
/// Commands of fcntl(2) that libc does not have on all processors.
const F_OFD_SETLK: i32 = 37;
const F_OFD_SETLKW: i32 = 38;

/// Returns bytes done or a negative errno.
fn outcome(call: &RawCall<'_>) -> i64 {
    match call.result {
        result if RESTARTS.contains(&result) => -i64::from(libc::EINTR),
        result @ ..0 if result >= -ERRNO_MAX => result,
        // An address.
        ..0 => 0,
        result => result,
    }
}

/// Returns an argument that is a descriptor or other int.
fn int(call: &RawCall<'_>, index: u8) -> i32 {
    call.args
        .get(usize::from(index))
        .map_or(0, |value| *value as u32)
        .cast_signed()
}

fn long(call: &RawCall<'_>, index: u8) -> u64 {
    call.args.get(usize::from(index)).copied().unwrap_or(0)
}

/// Returns the descriptor that a call returned.
fn returned(call: &RawCall<'_>) -> Option<i32> {
    i32::try_from(call.result).ok().filter(|number| *number >= 0)
}

impl<S: System> Decoder<S> {
    /// A program is about to be executed: its path is only readable now.
    pub(super) fn entered(&mut self, call: &RawCall<'_>) {
        let Some(entry) = self.catalogue.entry(call.number) else {
            return;
        };
        if let Shape::Execute { dir } = entry.shape {
            let dir = dir.map(|index| int(call, index));
            let path = self.resolve(call.process, dir, call.captured[0]);
            self.processes.get_mut(call.process).executing = Some(path);
        }
    }

    /// A call has ended.
    pub(super) fn call(&mut self, call: &RawCall<'_>, sink: Sink<'_>) {
        let Some(entry) = self.catalogue.entry(call.number) else {
            return;
        };
        match entry.shape {
            Shape::Open { dir, flags } => self.open(call, entry, dir, flags, sink),
            Shape::Close => self.close(call, entry, sink),
            Shape::CloseRange => self.close_range(call),
            Shape::Transfer { write, place, length } => {
                self.transfer(call, entry, (write, place, length), sink);
            }
            Shape::CopyRange | Shape::SendFile | Shape::Splice => self.copy(call, entry, sink),
            Shape::Path { dir, .. } => {
                let dir = dir.map(|index| int(call, index));
                if self.is_other(call.process, dir, call.captured[0]) {
                    return;
                }
                let path = self.resolve(call.process, dir, call.captured[0]);
                self.plain(call, entry.kind, &path, sink);
            }
            Shape::TwoPaths { .. } | Shape::Symlink { .. } => self.two_paths(call, entry, sink),
            Shape::Descriptor | Shape::Lock => self.on_descriptor(call, entry.kind, (0, 0), sink),
            Shape::Range { offset, length } => {
                let range = (long(call, offset), long(call, length));
                self.on_descriptor(call, entry.kind, range, sink);
            }
            Shape::SetLength { on_path } => self.set_length(call, entry, on_path, sink),
            Shape::Advise => {
                let kind = match int(call, 3) {
                    libc::POSIX_FADV_DONTNEED => "drop_cache",
                    _ => entry.kind,
                };
                self.on_descriptor(call, kind, (long(call, 1), long(call, 2)), sink);
            }
            Shape::Seek => self.seek(call, entry, sink),
            Shape::List => self.on_descriptor(call, entry.kind, (0, long(call, 2)), sink),
            Shape::Map => self.map(call, entry, sink),
            Shape::ChangeDir { by_descriptor } => self.change_dir(call, entry, by_descriptor, sink),
            Shape::Duplicate { to, flags } => self.duplicate(call, to, flags),
            Shape::Control => self.control(call, entry, sink),
            Shape::Ioctl => self.ioctl(call, entry, sink),
            Shape::New(new) => self.new_descriptor(call, new),
            Shape::Execute { .. } => self.executed(call, entry, sink),
            Shape::Ring => {
                if call.result >= 0 {
                    self.rings += 1;
                }
                self.new_descriptor(call, NewDescriptor::One);
            }
            Shape::Everything => self.plain(call, entry.kind, b"/", sink),
            Shape::Watch => {
                let path = self.resolve(call.process, None, call.captured[0]);
                self.plain(call, entry.kind, &path, sink);
            }
        }
    }

    /// Emits an operation without offset and length.
    fn plain(&mut self, call: &RawCall<'_>, kind: &'static str, path: &[u8], sink: Sink<'_>) {
        let mut operation = Operation::on(kind, path);
        operation.result = outcome(call);
        self.emit(call, &operation, sink);
    }

    /// Emits an operation on the descriptor that is the first argument, if it is a file.
    fn on_descriptor(
        &mut self,
        call: &RawCall<'_>,
        kind: &'static str,
        (offset, length): (u64, u64),
        sink: Sink<'_>,
    ) {
        if let Some(path) = self.descriptor_path(call.process, int(call, 0)) {
            let mut operation = Operation::on(kind, &path);
            (operation.offset, operation.length) = (offset, length);
            operation.result = outcome(call);
            self.emit(call, &operation, sink);
        }
    }

    fn open(&mut self, call: &RawCall<'_>, entry: &Entry, dir: Option<u8>, flags: OpenFlags, sink: Sink<'_>) {
        let flags = match flags {
            OpenFlags::Arg(index) => int(call, index),
            OpenFlags::How => word(call.captured[1], 0)
                .map_or(0, |flags| flags as u32)
                .cast_signed(),
            OpenFlags::Creating => libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
            OpenFlags::None => 0,
        };
        let dir = dir.map(|index| int(call, index));
        let mut path = self.resolve(call.process, dir, call.captured[0]);
        if let Some(descriptor) = returned(call) {
            self.processes.close(call.process, descriptor);
            if &*path == UNKNOWN
                && let Some(link) = self.system.descriptor(call.process, descriptor)
            {
                path = Rc::from(link);
            }
            let appends = flags & libc::O_APPEND != 0;
            let file = OpenFile {
                class: Class::File,
                path: Rc::clone(&path),
                position: (!appends).then_some(0),
                appends,
            };
            let closes = flags & libc::O_CLOEXEC != 0;
            self.processes.open(call.process, descriptor, file, closes);
        }
        let kind = if flags & libc::O_CREAT != 0 {
            "create"
        } else {
            entry.kind
        };
        self.plain(call, kind, &path, sink);
    }

    fn close(&mut self, call: &RawCall<'_>, entry: &Entry, sink: Sink<'_>) {
        let descriptor = int(call, 0);
        // What is not known is gone by now; what was opened since is another file.
        let known = self.processes.file(call.process, descriptor);
        let path = match known.map(|number| self.processes.files.get(number)) {
            Some(file) if file.class == Class::Other => None,
            Some(file) => Some(Rc::clone(&file.path)),
            None => Some(Rc::from(format!("fd {descriptor}").into_bytes())),
        };
        if let Some(path) = path {
            self.plain(call, entry.kind, &path, sink);
        }
        // Also after an error (close(2)), except for a descriptor that is none.
        if call.result != -i64::from(libc::EBADF) {
            self.processes.close(call.process, descriptor);
        }
    }

    fn close_range(&mut self, call: &RawCall<'_>) {
        if call.result == 0 {
            let only_mark = long(call, 2) & u64::from(libc::CLOSE_RANGE_CLOEXEC) != 0;
            let (first, last) = (int(call, 0).cast_unsigned(), int(call, 1).cast_unsigned());
            self.processes.close_range(call.process, first, last, only_mark);
        }
    }

    fn transfer(
        &mut self,
        call: &RawCall<'_>,
        entry: &Entry,
        (write, place, length): (bool, Place, Length),
        sink: Sink<'_>,
    ) {
        let length = match length {
            Length::Arg(index) => long(call, index),
            // Unknown without memory: what was done.
            Length::Vectors if call.captured[0] == Captured::Nothing => {
                u64::try_from(call.result).unwrap_or(0)
            }
            Length::Vectors => vectors_length(call.captured[0]),
        };
        let fixed = match place {
            Place::Current => None,
            Place::Arg(index) => Some(long(call, index)).filter(|offset| *offset != u64::MAX),
        };
        let offset = match fixed {
            Some(offset) => offset,
            None => self.moved(call, write),
        };
        self.on_descriptor(call, entry.kind, (offset, length), sink);
    }

    /// Returns the offset of a transfer at the descriptor's position, and moves the position. 0 if
    /// nobody knows it.
    fn moved(&mut self, call: &RawCall<'_>, write: bool) -> u64 {
        let done = u64::try_from(call.result).unwrap_or(0);
        let Some(number) = self.file(call.process, int(call, 0)) else {
            return call.position.map_or(0, |after| after.saturating_sub(done));
        };
        let file = self.processes.files.get_mut(number);
        let before = match call.position {
            Some(after) => Some(after.saturating_sub(done)),
            None if write && file.appends => None,
            None => file.position,
        };
        file.position = before.map(|before| before.saturating_add(done));
        before.unwrap_or(0)
    }

    /// A copy inside the kernel: the path is that of the source, `to` that of the target, the offset
    /// that in the target.
    fn copy(&mut self, call: &RawCall<'_>, entry: &Entry, sink: Sink<'_>) {
        let (source, target, length) = match entry.shape {
            Shape::SendFile => (int(call, 1), int(call, 0), long(call, 3)),
            _ => (int(call, 0), int(call, 2), long(call, 4)),
        };
        let done = u64::try_from(call.result).unwrap_or(0);
        let from = self.descriptor_path(call.process, source);
        let into = self.descriptor_path(call.process, target);
        if from.is_none() && into.is_none() {
            return;
        }
        // The offset in memory has moved already.
        let at = |captured| word(captured, 0).map(|after| after.saturating_sub(done));
        let (source_offset, target_offset) = match entry.shape {
            Shape::SendFile => (at(call.captured[0]), None),
            _ => (at(call.captured[0]), at(call.captured[1])),
        };
        let source_offset = source_offset.or_else(|| self.advance(call.process, source, done));
        let target_offset = target_offset.or_else(|| self.advance(call.process, target, done));
        let mut operation = Operation::on(
            entry.kind,
            from.as_deref().or(into.as_deref()).unwrap_or_default(),
        );
        if let (Some(_), Some(into)) = (&from, &into) {
            operation.to = into;
        }
        let offset = if into.is_some() {
            target_offset
        } else {
            source_offset
        };
        (operation.offset, operation.length) = (offset.unwrap_or(0), length);
        operation.result = outcome(call);
        self.emit(call, &operation, sink);
    }

    /// Moves the position of a descriptor; returns the one before.
    fn advance(&mut self, process: u32, descriptor: i32, done: u64) -> Option<u64> {
        let number = self.processes.file(process, descriptor)?;
        let file = self.processes.files.get_mut(number);
        let before = file.position;
        file.position = before.map(|before| before.saturating_add(done));
        before
    }

    fn two_paths(&mut self, call: &RawCall<'_>, entry: &Entry, sink: Sink<'_>) {
        let (path, to): (Rc<[u8]>, Rc<[u8]>) = match entry.shape {
            Shape::Symlink { dir } => {
                let dir = dir.map(|index| int(call, index));
                let path = self.resolve(call.process, dir, call.captured[1]);
                (path, Rc::from(text(call.captured[0]).unwrap_or(UNKNOWN)))
            }
            Shape::TwoPaths { dirs } => {
                let one = dirs.map(|(one, _)| int(call, one));
                let two = dirs.map(|(_, two)| int(call, two));
                let path = self.resolve(call.process, one, call.captured[0]);
                (path, self.resolve(call.process, two, call.captured[1]))
            }
            _ => return,
        };
        let mut operation = Operation::on(entry.kind, &path);
        operation.to = &to;
        operation.result = outcome(call);
        self.emit(call, &operation, sink);
    }

    fn set_length(&mut self, call: &RawCall<'_>, entry: &Entry, on_path: bool, sink: Sink<'_>) {
        let length = long(call, 1);
        if !on_path {
            return self.on_descriptor(call, entry.kind, (0, length), sink);
        }
        let path = self.resolve(call.process, None, call.captured[0]);
        let mut operation = Operation::on(entry.kind, &path);
        operation.length = length;
        operation.result = outcome(call);
        self.emit(call, &operation, sink);
    }

    fn seek(&mut self, call: &RawCall<'_>, entry: &Entry, sink: Sink<'_>) {
        let (offset, whence) = (long(call, 1), int(call, 2));
        let kind = match whence {
            libc::SEEK_DATA | libc::SEEK_HOLE => "extents",
            _ => entry.kind,
        };
        let reached = u64::try_from(call.result).ok();
        if let (Some(reached), Some(number)) = (reached, self.file(call.process, int(call, 0))) {
            self.processes.files.get_mut(number).position = Some(reached);
        }
        let shown = if whence == libc::SEEK_SET || kind == "extents" {
            offset
        } else {
            reached.unwrap_or(0)
        };
        self.on_descriptor(call, kind, (shown, 0), sink);
    }

    fn map(&mut self, call: &RawCall<'_>, entry: &Entry, sink: Sink<'_>) {
        let (descriptor, flags) = (int(call, 4), int(call, 3));
        if descriptor < 0 || flags & libc::MAP_ANONYMOUS != 0 {
            return;
        }
        if let Some(path) = self.descriptor_path(call.process, descriptor) {
            let mut operation = Operation::on(entry.kind, &path);
            (operation.offset, operation.length) = (long(call, 5), long(call, 1));
            operation.result = outcome(call).min(0);
            self.emit(call, &operation, sink);
        }
    }

    fn change_dir(&mut self, call: &RawCall<'_>, entry: &Entry, by_descriptor: bool, sink: Sink<'_>) {
        let path = if by_descriptor {
            self.base(call.process, Some(int(call, 0)))
        } else {
            self.resolve(call.process, None, call.captured[0])
        };
        if call.result == 0 {
            let known = (&*path != UNKNOWN).then(|| Rc::clone(&path));
            self.processes.get_mut(call.process).folder = known;
        }
        self.plain(call, entry.kind, &path, sink);
    }

    fn duplicate(&mut self, call: &RawCall<'_>, to: Option<u8>, flags: Option<u8>) {
        let Some(made) = returned(call) else {
            return;
        };
        let to = to.map_or(made, |index| int(call, index));
        let closes = flags.is_some_and(|index| int(call, index) & libc::O_CLOEXEC != 0);
        self.processes.duplicate(call.process, int(call, 0), to, closes);
    }

    fn control(&mut self, call: &RawCall<'_>, entry: &Entry, sink: Sink<'_>) {
        let (descriptor, command) = (int(call, 0), int(call, 1));
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                if let Some(made) = returned(call) {
                    let closes = command == libc::F_DUPFD_CLOEXEC;
                    self.processes.duplicate(call.process, descriptor, made, closes);
                }
            }
            libc::F_SETFD if call.result == 0 => {
                let closes = int(call, 2) & libc::FD_CLOEXEC != 0;
                self.processes
                    .set_closes_on_execute(call.process, descriptor, closes);
            }
            libc::F_SETFL if call.result == 0 => {
                if let Some(number) = self.processes.file(call.process, descriptor) {
                    let appends = int(call, 2) & libc::O_APPEND != 0;
                    self.processes.files.get_mut(number).appends = appends;
                }
            }
            libc::F_SETLK | libc::F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW => {
                self.on_descriptor(call, entry.kind, (0, 0), sink);
            }
            _ => {}
        }
    }

    fn ioctl(&mut self, call: &RawCall<'_>, entry: &Entry, sink: Sink<'_>) {
        let request = long(call, 1) & u64::from(u32::MAX);
        // `struct file_clone_range`: source, its offset, length, offset in the target.
        let range = |index| word(call.captured[0], index).unwrap_or(0);
        let (source, offset, length) = match request {
            FICLONE => (int(call, 2), 0, 0),
            FICLONERANGE => ((range(0) as u32).cast_signed(), range(3), range(2)),
            _ => return,
        };
        let from = self.descriptor_path(call.process, source);
        let into = self.descriptor_path(call.process, int(call, 0));
        if let (Some(from), Some(into)) = (from, into) {
            let mut operation = Operation::on(entry.kind, &from);
            operation.to = &into;
            (operation.offset, operation.length) = (offset, length);
            operation.result = outcome(call);
            self.emit(call, &operation, sink);
        }
    }

    fn new_descriptor(&mut self, call: &RawCall<'_>, new: NewDescriptor) {
        let process = call.process;
        match (new, returned(call)) {
            (_, None) => {}
            (NewDescriptor::Two, _) => {
                for made in two_descriptors(call.captured[0]).into_iter().flatten() {
                    self.processes.open(process, made, OpenFile::other(), false);
                }
            }
            (NewDescriptor::One, Some(made)) => {
                self.processes.open(process, made, OpenFile::other(), false);
            }
            (NewDescriptor::Unknown, Some(made)) => self.processes.close(process, made),
            (NewDescriptor::Memory, Some(made)) => {
                let name = text(call.captured[0]).unwrap_or(UNKNOWN);
                let file = OpenFile {
                    class: Class::File,
                    path: Rc::from([&b"memfd:"[..], name].concat()),
                    position: Some(0),
                    appends: false,
                };
                let closes = int(call, 1) & libc::MFD_CLOEXEC.cast_signed() != 0;
                self.processes.open(process, made, file, closes);
            }
        }
    }

    fn executed(&mut self, call: &RawCall<'_>, entry: &Entry, sink: Sink<'_>) {
        let kept = self.processes.get_mut(call.process).executing.take();
        let path = match kept {
            Some(path) => path,
            None if call.result < 0 => self.resolve(call.process, None, call.captured[0]),
            // The memory is that of the new program.
            None => self.resolve(call.process, None, Captured::Nothing),
        };
        self.plain(call, entry.kind, &path, sink);
    }
}
