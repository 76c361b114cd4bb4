//! The BPF programs: what the kernel runs at each system call.
//!
//! ```text
//!   sys_enter   a watched thread?  a call of the catalogue?  ──> keep time, number and arguments
//!   sys_exit    kept?  ──> read paths from memory, write a record to the ring
//!   fork        of a watched thread: watch the new one too       exec: renumbered threads
//!   exit        forget the thread
//! ```
//!
//! Paths are read when the call ends: by then the kernel has read them itself, so their pages are
//! there. A program that is executed replaces its memory, so its path is read at the begin.
//!
//! The call in progress is kept in the entry of its thread, so that one look-up at the begin and one
//! at the end of a call are enough.
//!
//! Bounds: threads and the ring have fixed sizes. What does not fit is counted.

use crate::bpf::asm::{Assembler, Helper, Label, MapFd, Reg, When, Width};
use crate::bpf::record::{self, HEADER_BYTES, at};
use crate::call::TEXT_MAX;

use Reg::{Fp, R0, R1, R2, R3, R4, R6, R7, R8, R9};

/// Bytes that a per-processor buffer needs for the largest record.
pub(super) const SCRATCH_BYTES: usize = HEADER_BYTES + 2 * TEXT_MAX;

/// A watched thread: start, number and six arguments of its call in progress, and what to capture:
/// 0 if there is none.
pub(super) const THREAD_BYTES: usize = 72;

/// Places in the array of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Counter {
    /// Records for which the ring had no room.
    Lost = 0,
    /// Threads that could not be watched.
    Full = 1,
    /// Calls of programs for another processor mode (32 bits), which have other numbers.
    Foreign = 2,
}

/// Number of counters.
pub(super) const COUNTERS: u32 = 3;

/// The maps that programs use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps {
    /// Thread -> its call in progress.
    pub(super) watched: MapFd,
    /// Number of a call -> what to do with it.
    pub(super) catalogue: MapFd,
    /// One buffer for each processor.
    pub(super) scratch: MapFd,
    pub(super) counters: MapFd,
    pub(super) ring: MapFd,
}

/// What depends on kernel and processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Offsets of `pid` and `tgid` in `struct task_struct`.
    pub(super) task_pid: u32,
    pub(super) task_tgid: u32,
    /// How to find a descriptor's position, if the kernel's types are as expected.
    pub(super) position: Option<PositionLayout>,
    /// Bytes in the ring from which on the consumer is woken.
    pub(super) wake_bytes: u32,
}

/// Offsets on the way from a task to the position of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct PositionLayout {
    /// `files` in `struct task_struct`.
    pub(super) task_files: u32,
    /// `fdt` in `struct files_struct`.
    pub(super) files_table: u32,
    /// `max_fds` in `struct fdtable`, with `fd` in the 8 bytes behind its own.
    pub(super) table_size: u32,
    /// `f_pos` in `struct file`.
    pub(super) file_position: u32,
}

/// Bit of a catalogue entry: the call is recorded.
pub(super) const RECORDED: u64 = 1;
/// Bit of a catalogue entry: what to capture is gone when the call ends.
pub(super) const AT_ENTRY: u64 = 2;
/// Bit of a catalogue entry: the first argument is a descriptor whose position counts.
pub(super) const POSITION: u64 = 4;
/// Where the two captures are in a catalogue entry, and their fields: kind, argument, words.
pub(super) const CAPTURE_SHIFTS: [u32; 2] = [8, 24];
pub(super) const CAPTURE_TEXT: u64 = 1;
pub(super) const CAPTURE_BYTES: u64 = 2;
pub(super) const CAPTURE_VECTORS: u64 = 3;
pub(super) const CAPTURE_ARG_SHIFT: u32 = 2;
pub(super) const CAPTURE_WORDS_SHIFT: u32 = 5;

/// Largest number of entries of the catalogue. Numbers of calls are below 600 on all processors.
pub(super) const NUMBERS_MAX: u32 = 1024;

/// Vectors of readv(2) that are read, at most.
const VECTORS_MAX: i32 = 64;

/// `struct pt_regs` (asm/ptrace.h): the part that is read, offsets of the arguments in it, and how to
/// tell that the program runs in the processor's mode of 64 bits.
#[cfg(target_arch = "x86_64")]
mod registers {
    /// From r10 to the code segment.
    pub(super) const FIRST: i32 = 56;
    pub(super) const BYTES: i16 = 88;
    /// rdi, rsi, rdx, r10, r8, r9.
    pub(super) const ARGS: [i16; 6] = [56, 48, 40, 0, 16, 8];
    /// Code segment; 0x33 is that of 64 bits (`__USER_CS`).
    pub(super) const MODE: i16 = 80;
    pub(super) const MODE_MASK: i32 = 0xffff;
    pub(super) const MODE_NATIVE: i32 = 0x33;
}
#[cfg(target_arch = "aarch64")]
mod registers {
    pub(super) const FIRST: i32 = 0;
    pub(super) const BYTES: i16 = 272;
    /// x0 to x5.
    pub(super) const ARGS: [i16; 6] = [0, 8, 16, 24, 32, 40];
    /// pstate; `PSR_MODE32_BIT` is clear.
    pub(super) const MODE: i16 = 264;
    pub(super) const MODE_MASK: i32 = 0x10;
    pub(super) const MODE_NATIVE: i32 = 0;
}

/// Places on the stack.
const THREAD: i16 = -4;
const KEY: i16 = -8;
const WHAT: i16 = -16;
const CHILD: i16 = -24;
/// A pointer of the kernel, and what follows it.
const POINTER: i16 = -40;
/// The entry of a thread.
const ENTRY: i16 = -112;
const REGISTERS: i16 = ENTRY - registers::BYTES;

/// Places in the entry of a thread.
const ENTRY_START: i16 = 0;
const ENTRY_NUMBER: i16 = 8;
const ENTRY_WHAT: i16 = 16;
const ENTRY_ARGS: i16 = 24;

/// A program under construction, with the label at its end.
struct Builder {
    asm: Assembler,
    maps: Maps,
    layout: Layout,
    end: Label,
}

impl Builder {
    /// Begins a program: R6 is the context, R7 process and thread.
    fn new(maps: Maps, layout: Layout) -> Self {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.mov(R6, R1)
            .call(Helper::GetCurrentPidTgid)
            .mov(R7, R0)
            .store(Width::Word, Fp, THREAD, R0);
        Self {
            asm,
            maps,
            layout,
            end,
        }
    }

    fn finish(mut self) -> Vec<u64> {
        let end = self.end;
        self.asm.place(end).exit();
        self.asm.finish()
    }

    /// R0 = the entry of a map for the key at a place on the stack.
    fn look_up(&mut self, map: MapFd, key: i16) {
        self.asm
            .map(R1, map)
            .mov(R2, Fp)
            .add(R2, i32::from(key))
            .call(Helper::MapLookup);
    }

    /// Ends the program unless the thread has an entry; R0 is the entry.
    fn require(&mut self, map: MapFd, key: i16) {
        let end = self.end;
        self.look_up(map, key);
        self.asm.jump_if(When::Equal, R0, 0, end);
    }

    /// Sets the entry of a map for keys and values on the stack. If there is no room, it counts.
    fn update(&mut self, map: MapFd, key: i16, value: i16) {
        let done = self.asm.label();
        self.asm
            .map(R1, map)
            .mov(R2, Fp)
            .add(R2, i32::from(key))
            .mov(R3, Fp)
            .add(R3, i32::from(value))
            .set(R4, 0)
            .call(Helper::MapUpdate)
            .jump_if(When::Equal, R0, 0, done);
        self.count(Counter::Full);
        self.asm.place(done);
    }

    /// Removes the entry of a map for the key on the stack.
    fn delete(&mut self, map: MapFd, key: i16) {
        self.asm
            .map(R1, map)
            .mov(R2, Fp)
            .add(R2, i32::from(key))
            .call(Helper::MapDelete);
    }

    /// Adds 1 to a counter.
    fn count(&mut self, counter: Counter) {
        let none = self.asm.label();
        self.asm.store_constant(Width::Word, Fp, KEY, counter as i32);
        self.look_up(self.maps.counters, KEY);
        self.asm
            .jump_if(When::Equal, R0, 0, none)
            .set(R1, 1)
            .atomic_add(R0, 0, R1)
            .place(none);
    }

    /// R9 = this processor's buffer, with kind and thread of a record.
    fn begin_record(&mut self, kind: u32) {
        self.asm.store_constant(Width::Word, Fp, KEY, 0);
        self.require(self.maps.scratch, KEY);
        self.asm
            .mov(R9, R0)
            .store_constant(Width::Word, R9, at::KIND, kind.cast_signed())
            .store(Width::Double, R9, at::THREAD, R7);
    }

    /// Writes the record to the ring, with R8 bytes captured. The consumer is woken only if much
    /// waits for it: it looks by itself every few milliseconds, and waking costs the program time.
    fn end_record(&mut self) {
        /// `BPF_RB_NO_WAKEUP` and `BPF_RB_FORCE_WAKEUP`.
        const QUIET: i32 = 1;
        const WAKE: i32 = 2;
        let (wake, write, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm
            .map(R1, self.maps.ring)
            // BPF_RB_AVAIL_DATA
            .set(R2, 0)
            .call(Helper::RingbufQuery)
            .set(R4, QUIET)
            .jump_if(When::Above, R0, self.layout.wake_bytes.cast_signed(), wake)
            .jump(write)
            .place(wake)
            .set(R4, WAKE)
            .place(write)
            .map(R1, self.maps.ring)
            .mov(R2, R9)
            .mov(R3, R8)
            .add(R3, HEADER_BYTES as i32)
            .call(Helper::RingbufOutput)
            .jump_if(When::Equal, R0, 0, done);
        self.count(Counter::Lost);
        self.asm.place(done);
    }

    /// Copies the call in progress (entry in R8) to the record; what to capture goes to the stack.
    fn copy_call(&mut self) {
        self.asm
            .load(Width::Double, R1, R8, ENTRY_NUMBER)
            .store(Width::Word, R9, at::NUMBER, R1)
            .load(Width::Double, R1, R8, ENTRY_START)
            .store(Width::Double, R9, at::START, R1)
            .load(Width::Double, R1, R8, ENTRY_WHAT)
            .store(Width::Double, Fp, WHAT, R1)
            .store_constant(Width::Double, R9, at::LENGTHS, 0)
            .store_constant(Width::Double, R9, at::POSITION, -1);
        for index in 0..6 {
            self.asm
                .load(Width::Double, R1, R8, ENTRY_ARGS + 8 * index)
                .store(Width::Double, R9, at::ARGS + 8 * index, R1);
        }
    }

    /// R3 = what the kernel has at R3 + `offset`. Goes to a label if that cannot be read.
    fn follow(&mut self, offset: u32, failed: Label) {
        self.fetch(offset, 8, failed);
        self.asm.load(Width::Double, R3, Fp, POINTER);
    }

    /// Reads `bytes` that the kernel has at R3 + `offset` to the stack. Goes to a label if it cannot.
    fn fetch(&mut self, offset: u32, bytes: i32, failed: Label) {
        self.asm
            .mov(R1, Fp)
            .add(R1, i32::from(POINTER))
            .add(R3, offset.cast_signed())
            .set(R2, bytes)
            .call(Helper::ProbeReadKernel)
            .jump_if(When::NotEqual, R0, 0, failed);
    }

    /// Adds the position of the descriptor that is the first argument, if the catalogue wants it.
    fn position(&mut self) {
        let Some(layout) = self.layout.position else {
            return;
        };
        let (wanted, done) = (self.asm.label(), self.asm.label());
        self.asm
            .load(Width::Double, R1, Fp, WHAT)
            .jump_if(When::BitsSet, R1, POSITION as i32, wanted)
            .jump(done)
            .place(wanted)
            .call(Helper::GetCurrentTask)
            .mov(R3, R0);
        self.follow(layout.task_files, done);
        self.follow(layout.files_table, done);
        // The size of the table, and where its files are.
        self.fetch(layout.table_size, 16, done);
        let within = self.asm.label();
        self.asm
            .load(Width::Word, R3, Fp, POINTER)
            .load(Width::Word, R1, R9, at::ARGS)
            .subtract(R3, R1)
            .jump_if(When::SignedGreater, R3, 0, within)
            .jump(done)
            .place(within)
            .load(Width::Double, R3, Fp, POINTER + 8)
            .load(Width::Word, R1, R9, at::ARGS)
            .shift_left(R1, 3)
            .add_reg(R3, R1);
        self.follow(0, done);
        self.follow(layout.file_position, done);
        self.asm.store(Width::Double, R9, at::POSITION, R3).place(done);
    }

    /// R2 = field `field` of capture `index`.
    fn capture_field(&mut self, index: usize, shift: u32, mask: i32) {
        let shift = (CAPTURE_SHIFTS[index] + shift).cast_signed();
        self.asm
            .load(Width::Double, R2, Fp, WHAT)
            .shift_right(R2, shift)
            .and(R2, mask);
    }

    /// Reads what capture `index` wants from the program's memory, behind the R8 bytes that are
    /// there already, and adds its length to R8.
    fn capture(&mut self, index: usize) {
        let length = at::LENGTHS + 4 * index as i16;
        let [text, vectors, read, failed, done] = [(); 5].map(|()| self.asm.label());
        self.capture_field(index, 0, 3);
        self.asm.jump_if(When::Equal, R2, 0, done);
        // R3 = the address: the argument of that number. Seven and eight are within the record.
        self.capture_field(index, CAPTURE_ARG_SHIFT, 7);
        self.asm
            .shift_left(R2, 3)
            .add_reg(R2, R9)
            .load(Width::Double, R3, R2, at::ARGS)
            .mov(R1, R9)
            .add_reg(R1, R8)
            .add(R1, HEADER_BYTES as i32);
        self.capture_field(index, 0, 3);
        self.asm
            .jump_if(When::Equal, R2, CAPTURE_TEXT as i32, text)
            .jump_if(When::Equal, R2, CAPTURE_VECTORS as i32, vectors);
        self.words(index);
        self.asm.jump(read).place(vectors);
        self.vectors();
        self.asm
            .place(read)
            // The size survives the call in the record.
            .store(Width::Word, R9, length, R2)
            .call(Helper::ProbeReadUser)
            .jump_if(When::NotEqual, R0, 0, failed)
            .load(Width::Word, R2, R9, length)
            .and(R2, 0x7ff)
            .add_reg(R8, R2)
            .jump(done)
            .place(text)
            .set(R2, TEXT_MAX as i32)
            .call(Helper::ProbeReadUserStr)
            .jump_if(When::SignedLess, R0, 1, failed)
            .jump_if(When::Above, R0, TEXT_MAX as i32, failed)
            .store(Width::Word, R9, length, R0)
            .add_reg(R8, R0)
            .jump(done)
            .place(failed)
            .store_constant(Width::Word, R9, length, -libc::EFAULT)
            .place(done);
    }

    /// R2 = the fixed size of a capture.
    fn words(&mut self, index: usize) {
        self.capture_field(index, CAPTURE_WORDS_SHIFT, 0x3f);
        self.asm.shift_left(R2, 3);
    }

    /// R2 = the size of the vectors: their number is the third argument.
    fn vectors(&mut self) {
        let few = self.asm.label();
        let many = self.asm.label();
        self.asm
            .load(Width::Double, R2, R9, at::ARGS + 16)
            .jump_if(When::Above, R2, VECTORS_MAX, many)
            .jump(few)
            .place(many)
            .set(R2, VECTORS_MAX)
            .place(few)
            .shift_left(R2, 4);
    }
}

/// At the begin of a system call: context is the registers, and the number.
pub(super) fn sys_enter(maps: Maps, layout: Layout) -> Vec<u64> {
    let mut program = Builder::new(maps, layout);
    let (end, native, kept) = (program.end, program.asm.label(), program.asm.label());
    program.require(maps.watched, THREAD);
    program
        .asm
        .mov(R9, R0)
        // If the end of the last call was not seen, that call is over all the same.
        .store_constant(Width::Double, R9, ENTRY_WHAT, 0)
        .load(Width::Double, R8, R6, 8)
        .jump_if(When::Above, R8, NUMBERS_MAX.cast_signed(), end)
        .store(Width::Word, Fp, KEY, R8)
        .store(Width::Double, R9, ENTRY_NUMBER, R8);
    program.require(maps.catalogue, KEY);
    program
        .asm
        .load(Width::Double, R8, R0, 0)
        .jump_if(When::Equal, R8, 0, end)
        .load(Width::Double, R3, R6, 0)
        .add(R3, registers::FIRST)
        .mov(R1, Fp)
        .add(R1, i32::from(REGISTERS))
        .set(R2, i32::from(registers::BYTES))
        .call(Helper::ProbeReadKernel)
        .jump_if(When::NotEqual, R0, 0, end)
        .load(Width::Double, R1, Fp, REGISTERS + registers::MODE)
        .and(R1, registers::MODE_MASK)
        .jump_if(When::Equal, R1, registers::MODE_NATIVE, native);
    program.count(Counter::Foreign);
    program.asm.jump(end).place(native);
    for (index, place) in registers::ARGS.into_iter().enumerate() {
        program.asm.load(Width::Double, R1, Fp, REGISTERS + place).store(
            Width::Double,
            R9,
            ENTRY_ARGS + 8 * index as i16,
            R1,
        );
    }
    program
        .asm
        .call(Helper::KtimeGetNs)
        .store(Width::Double, R9, ENTRY_START, R0)
        .store(Width::Double, R9, ENTRY_WHAT, R8)
        .jump_if(When::BitsSet, R8, AT_ENTRY as i32, kept)
        .jump(end)
        .place(kept)
        .mov(R8, R9);
    emit_call(&mut program, record::ENTERED);
    program.finish()
}

/// At the end of a system call: context is the registers, and the result.
pub(super) fn sys_exit(maps: Maps, layout: Layout) -> Vec<u64> {
    let mut program = Builder::new(maps, layout);
    let end = program.end;
    program.require(maps.watched, THREAD);
    program
        .asm
        .mov(R8, R0)
        .load(Width::Double, R1, R8, ENTRY_WHAT)
        .jump_if(When::Equal, R1, 0, end);
    program.begin_record(record::CALL);
    program.copy_call();
    program
        .asm
        .store_constant(Width::Double, R8, ENTRY_WHAT, 0)
        .load(Width::Double, R1, R6, 8)
        .store(Width::Double, R9, at::RESULT, R1)
        .call(Helper::KtimeGetNs)
        .store(Width::Double, R9, at::END, R0);
    program.position();
    program.asm.set(R8, 0);
    program.capture(0);
    program.capture(1);
    program.end_record();
    program.finish()
}

/// Writes a record of the thread's call in progress (entry in R8), and keeps it.
fn emit_call(program: &mut Builder, kind: u32) {
    program.begin_record(kind);
    program.copy_call();
    program
        .asm
        .store_constant(Width::Double, R9, at::RESULT, 0)
        .call(Helper::KtimeGetNs)
        .store(Width::Double, R9, at::END, R0)
        .set(R8, 0);
    program.capture(0);
    program.capture(1);
    program.end_record();
}

/// At a fork: context is the task of the parent, which runs, and that of the child.
pub(super) fn fork(maps: Maps, layout: Layout) -> Vec<u64> {
    let mut program = Builder::new(maps, layout);
    let end = program.end;
    program.require(maps.watched, THREAD);
    program.begin_record(record::FORK);
    // The child's thread and process go to the first two arguments.
    for (offset, place) in [(layout.task_pid, at::ARGS), (layout.task_tgid, at::ARGS + 8)] {
        program
            .asm
            .load(Width::Double, R3, R6, 8)
            .add(R3, offset.cast_signed())
            .mov(R1, Fp)
            .add(R1, i32::from(CHILD))
            .set(R2, 4)
            .call(Helper::ProbeReadKernel)
            .jump_if(When::NotEqual, R0, 0, end)
            .load(Width::Word, R1, Fp, CHILD)
            .store(Width::Double, R9, place, R1);
    }
    program
        .asm
        .load(Width::Double, R1, R9, at::ARGS)
        .store(Width::Word, Fp, CHILD, R1);
    for place in (0..THREAD_BYTES as i16).step_by(8) {
        program.asm.store_constant(Width::Double, Fp, ENTRY + place, 0);
    }
    program.update(maps.watched, CHILD, ENTRY);
    program.asm.set(R8, 0);
    program.end_record();
    program.finish()
}

/// When another program was loaded: context is the task, the number it had before, and the program.
pub(super) fn execute(maps: Maps, layout: Layout) -> Vec<u64> {
    let mut program = Builder::new(maps, layout);
    // A thread that executes a program gets the number of the process, whose own thread has ended.
    program
        .asm
        .load(Width::Double, R1, R6, 8)
        .store(Width::Word, Fp, CHILD, R1);
    program.require(maps.watched, CHILD);
    let same = program.asm.label();
    program
        .asm
        .mov(R9, R0)
        .load(Width::Word, R1, Fp, CHILD)
        .load(Width::Word, R2, Fp, THREAD)
        .mov(R8, R1);
    // There is no comparison of two registers here: their difference is compared with 0.
    program.asm.subtract(R8, R2).jump_if(When::Equal, R8, 0, same);
    // Its call, which executes the program, goes on under the new number.
    for place in (0..THREAD_BYTES as i16).step_by(8) {
        program
            .asm
            .load(Width::Double, R1, R9, place)
            .store(Width::Double, Fp, ENTRY + place, R1);
    }
    program.update(maps.watched, THREAD, ENTRY);
    program.delete(maps.watched, CHILD);
    program.asm.place(same);
    program.begin_record(record::EXECUTE);
    program
        .asm
        .mov(R1, R9)
        .add(R1, HEADER_BYTES as i32)
        .set(R2, 16)
        .call(Helper::GetCurrentComm)
        .set(R8, 16);
    program.end_record();
    program.finish()
}

/// At the end of a thread.
pub(super) fn exit(maps: Maps, layout: Layout) -> Vec<u64> {
    let mut program = Builder::new(maps, layout);
    let report = program.asm.label();
    program.require(maps.watched, THREAD);
    program
        .asm
        .mov(R8, R0)
        .load(Width::Double, R1, R8, ENTRY_WHAT)
        .jump_if(When::Equal, R1, 0, report);
    emit_call(&mut program, record::UNFINISHED);
    program.asm.place(report);
    program.delete(maps.watched, THREAD);
    program.begin_record(record::EXIT);
    program.asm.set(R8, 0);
    program.end_record();
    program.finish()
}
